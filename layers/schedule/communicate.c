/* communicate.c - the communication lane: one thread that runs the collectives of a program in order, each when what
 * it waits for is complete. Before a gradient is added to others it is looked through for values that are not finite:
 * after the sum nobody could say whose they were. Allocates nothing. */
#include "executor_impl.h"

#include "base/clock.h"
#include "base/finite.h"
#include "base/thread.h"
#include "check.h"
#include "shm/probe.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define WHERE_RANK   128.0  /* 7 bits count ranks */
#define WHERE_TENSOR 8192.0 /* 6 bits for a rank below 64 */

double kc_nonfinite_encode(uint32_t rank, int64_t where)
{
    if (where == -1)
        return 0;
    return 1 + rank * WHERE_RANK + (double)(where < 0 ? 0 : where + 1) * WHERE_TENSOR;
}

void kc_nonfinite_decode(double sum, uint32_t *ranks, uint32_t *rank, int64_t *where)
{
    uint64_t s = sum > 0 && sum < 9e15 ? (uint64_t)sum : 0;
    *ranks = (uint32_t)(s & 127);
    *rank = (uint32_t)(s >> 7 & 63);
    *where = (s >> 13) == 0 ? -2 : (int64_t)(s >> 13) - 1;
}

/* ---- construction ---- */

static const struct kc_plan_collective *collective_at(const struct kc_executor *x, uint32_t index)
{
    return KC_AT(x->c.comm_plan, struct kc_plan_collective, x->c.comm_plan->collectives) + index;
}

static uint32_t members_of(const struct kc_executor *x, const struct kc_plan_collective *c)
{
    const uint32_t g = kc_comm_group_of(x->c.comm_plan, c->family, x->c.plan->rank);
    return g == KC_NOT_MEMBER ? 0 : KC_AT(x->c.comm_plan, struct kc_plan_group, x->c.comm_plan->groups)[g].ranks.count;
}

/* Everybody the same, or all of it to the member `shift` places on, and as much from the one before. */
static void fill_counts(const struct kc_executor *x, const struct kc_plan_collective *c, uint64_t *send, uint64_t *recv)
{
    const uint32_t n = members_of(x, c), own = x->position[c->family];
    const uint32_t shift = (uint32_t)(((int64_t)c->shift % n + n) % n);
    for (uint32_t m = 0; m < n; m++) {
        send[m] = c->shift == 0 ? c->count / n : m == (own + shift) % n ? c->count : 0;
        recv[m] = c->shift == 0 ? c->count / n : own == (m + shift) % n ? c->count : 0;
    }
}

int kc_comm_prepare(struct kc_executor *x, struct kc_error *e)
{
    const uint32_t collectives = x->c.comm_plan->collectives.count, buckets = x->c.shard->buckets.count;
    uint32_t counts = 0;
    x->counts_first = calloc(collectives + 1u, sizeof *x->counts_first);
    x->first_reduction = malloc((buckets + 1u) * sizeof *x->first_reduction);
    for (uint32_t i = 0; i < collectives && x->counts_first; i++) {
        x->counts_first[i] = counts;
        if (collective_at(x, i)->primitive == KC_ALL_TO_ALL)
            counts += 2 * members_of(x, collective_at(x, i));
    }
    x->counts = calloc(counts + 1u, sizeof *x->counts);
    if (!x->counts_first || !x->first_reduction || !x->counts)
        return kc_fail(e, -ENOMEM, "no memory for an executor");
    for (uint32_t b = 0; b < buckets; b++)
        x->first_reduction[b] = -1;
    for (uint32_t i = 0; i < collectives; i++) {
        const struct kc_plan_collective *c = collective_at(x, i);
        const uint32_t members = members_of(x, c);
        if (c->primitive == KC_ALL_TO_ALL && members && !c->counted)
            fill_counts(x, c, x->counts + x->counts_first[i], x->counts + x->counts_first[i] + members);
        if (c->purpose == KC_PURPOSE_GRADIENT && members && x->first_reduction[c->bucket] < 0)
            x->first_reduction[c->bucket] = (int32_t)i;
    }
    return 0;
}

/* ---- a run ---- */

static void look_through(struct kc_executor *x, uint32_t bucket, const float *data, uint64_t count)
{
    const struct kc_shard_plan *s = x->c.shard;
    if (x->nonfinite != -1)
        return; /* the first is what is told */
    int64_t at = kc_find_nonfinite(data, count);
    if (at < 0)
        return;
    const struct kc_plan_bucket *b = KC_AT(s, struct kc_plan_bucket, s->buckets) + bucket;
    const struct kc_plan_segment *g = KC_AT(s, struct kc_plan_segment, s->segments) + b->segments_first;
    for (uint32_t i = 0; i < b->segments_count; i++)
        if ((uint64_t)at >= g[i].offset)
            x->nonfinite = g[i].tensor;
}

/* Is a bucket's gradient added to that of other ranks? */
static bool is_reduced(const struct kc_executor *x, uint32_t bucket)
{
    const int32_t first = x->first_reduction[bucket];
    return first >= 0 && members_of(x, collective_at(x, (uint32_t)first)) > 1;
}

void kc_comm_look_at_own(struct kc_executor *x)
{
    const struct kc_shard_plan *s = x->c.shard;
    const struct kc_plan_bucket *b = KC_AT(s, struct kc_plan_bucket, s->buckets);
    for (uint32_t k = 0; k < s->buckets.count; k++)
        if (!b[k].frozen && kc_plan_holds(s, &b[k], x->c.plan->rank) && !is_reduced(x, k)) {
            const struct kc_exec_ref whole = {.space = KC_SPACE_GRADIENT, .bucket = (int32_t)k};
            look_through(x, k, kc_executor_at(x, &whole, false), b[k].count);
        }
}

/* What has to be in the vector before it is summed. */
static void complete_agreement(struct kc_executor *x)
{
    double *own = (double *)(void *)(x->result + KC_RESULT_OWN);
    if (x->program != KC_PROGRAM_TRAIN)
        return;
    if (!isfinite(own[KC_AGREE_LOSS]))
        x->nonfinite = -2;
    own[KC_AGREE_NONFINITE] = kc_nonfinite_encode(x->c.plan->rank, x->nonfinite);
    if (x->hunt)
        kc_hunt_vote(x->hunt, x->c.plan->rank, own);
}

/* How many rows go where stands in a tensor: elements for each member, and from each. */
static int count_rows(struct kc_executor *x, const struct kc_exec_instruction *i, const struct kc_plan_collective *c)
{
    const struct kc_plan_op *op = KC_AT(x->c.shard, struct kc_plan_op, x->c.shard->ops) + i->op;
    const struct kc_plan_tensor *rows =
        KC_AT(x->c.shard, struct kc_plan_tensor, x->c.shard->tensors) + KC_AT(x->c.shard, int32_t, op->in)[0];
    const struct kc_exec_ref *refs = kc_refs_of(x->c.plan, i);
    const int32_t *moves = kc_executor_at(x, &refs[1], false);
    const uint32_t n = members_of(x, c), back = c->counted == 2;
    const uint64_t row = rows->local[rows->rank - 1];
    uint64_t *send = x->counts + x->counts_first[i->collective], *recv = send + n, sent = 0, received = 0;
    for (uint32_t m = 0; m < n; m++) {
        send[m] = (uint64_t)moves[back * n + m] * row;
        recv[m] = (uint64_t)moves[!back * n + m] * row;
        sent += send[m], received += recv[m];
    }
    if (sent <= kc_ref_elements(&refs[0]) && received <= kc_ref_elements(&refs[2]))
        return 0;
    return kc_fail(&x->comm_error, -ENOSPC,
                   "layer %d: rank %u sends %llu and receives %llu rows of %s, there is memory for %llu",
                   i->layer, x->c.plan->rank, (unsigned long long)(sent / row), (unsigned long long)(received / row),
                   KC_TEXT(x->c.shard, rows->name), (unsigned long long)(kc_ref_elements(&refs[2]) / row));
}

/* The call as comm takes it, without its sequence. */
static struct kc_comm_call call_of(struct kc_executor *x, const struct kc_exec_instruction *i,
                                   const struct kc_plan_collective *c)
{
    const struct kc_exec_ref *refs = kc_refs_of(x->c.plan, i);
    struct kc_comm_call call = {.primitive = c->primitive,
                                .type = c->type,
                                .reduce = c->reduce,
                                .algorithm = c->algorithm,
                                .peer = -1,
                                .count = c->count};
    if (i->inputs)
        call.in = kc_executor_at(x, &refs[0], false);
    if (i->outputs)
        call.out = kc_executor_at(x, &refs[i->inputs], true);
    if (c->primitive == KC_SEND || c->primitive == KC_RECV)
        call.peer = (int32_t)(1 - x->position[c->family]); /* groups of two */
    if (c->primitive == KC_ALL_TO_ALL) {
        call.send_counts = x->counts + x->counts_first[i->collective];
        call.recv_counts = call.send_counts + members_of(x, c);
    }
    return call;
}

/* The lane was outside of collectives from `left` until now. */
static void count_away(struct kc_executor *x, uint64_t left, uint64_t now)
{
    const uint64_t since = atomic_load_explicit(&x->stands_since, memory_order_relaxed);
    const uint64_t from = since > left ? since : left;
    if (since && now > from)
        x->away_ns += now - from;
}

/* *left: kc_now() when the lane left the collective before this one, and then when it left this one. */
static int collective_run(struct kc_executor *x, const struct kc_exec_instruction *i, uint64_t *left)
{
    const struct kc_plan_collective *c = collective_at(x, (uint32_t)i->collective);
    const uint32_t group = kc_comm_group_of(x->c.comm_plan, c->family, x->c.plan->rank);
    if (c->counted && count_rows(x, i, c) < 0)
        return -ENOSPC;
    struct kc_comm_call call = call_of(x, i, c);
    call.sequence = x->base[c->family] + i->sequence;
    if ((i->inputs && !call.in) || (i->outputs && !call.out))
        return kc_fail(&x->comm_error, -EPERM, "%s of bucket %d without a ticket", kc_primitive_name[c->primitive],
                       c->bucket);
    if (call.sequence != x->next[c->family])
        return kc_fail(&x->comm_error, -EPROTO, "collective %llu of group %u comes when %llu is due",
                       (unsigned long long)call.sequence, group, (unsigned long long)x->next[c->family]);
    if (c->purpose == KC_PURPOSE_GRADIENT && x->first_reduction[c->bucket] == i->collective && members_of(x, c) > 1)
        look_through(x, (uint32_t)c->bucket, call.in, c->count);
    else if (c->purpose == KC_PURPOSE_AGREE)
        complete_agreement(x);

    kc_executor_blank(x, i);
    struct kc_comm_op *op = NULL;
    const struct kc_comm_if *comm = x->c.comm;
    const uint64_t from = kc_now();
    int r = comm->start(comm->self, comm->group(comm->self, group), &call, &op, &x->comm_error);
    count_away(x, *left, kc_now()); /* it has arrived: from here on peers can be late */
    if (r == 0)
        r = comm->wait(comm->self, &op, 0, &x->comm_error);
    *left = kc_now();
    x->comm_ns += *left - from;
    if (r == 0) {
        x->next[c->family]++;
        kc_executor_show(x, i, i->inputs, call.out);
    }
    return r;
}

static int walk(struct kc_executor *x)
{
    uint64_t left = kc_now();
    for (uint32_t n = 0; n < x->count; n++) {
        const struct kc_exec_instruction *i = &x->instructions[n];
        if (i->lane != KC_LANE_COMM)
            continue;
        for (uint32_t w = 0; w < i->wait_count; w++)
            if (!kc_executor_await(x, KC_LANE_COMM, KC_AT(x->c.plan, uint32_t, x->c.plan->waits)[i->waits + w], 0))
                return -ECANCELED;
        /* Raise in_flight, then look: the compute lane fails first and then looks at in_flight, so one of us sees the
         * other. */
        atomic_store(&x->in_flight, 1);
        if (kc_progress_failed(&x->done[KC_LANE_COMM])) {
            atomic_store(&x->in_flight, 0);
            return -ECANCELED;
        }
        uint64_t begin = kc_now();
        int r = collective_run(x, i, &left);
        if (r < 0)
            return r;
        uint64_t end = kc_now();
        atomic_store(&x->in_flight, 0);
        kc_progress_set(&x->done[KC_LANE_COMM], n + 1);
        kc_executor_trace(x, KC_LANE_COMM, n, begin, end);
    }
    return 0;
}

void *kc_comm_lane(void *executor)
{
    struct kc_executor *x = executor;
    kc_thread_name("kc-comm");
    for (uint32_t run = 1;; run++) {
        kc_progress_sleep(&x->start, run);
        if (kc_progress_failed(&x->start))
            return NULL;
        x->comm_code = walk(x);
        if (x->comm_code < 0)
            kc_executor_fail(x);
        kc_progress_set(&x->finished, run);
    }
}
