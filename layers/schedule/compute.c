/* compute.c - the compute lane: walks a program on the calling thread, hands ops to the team, opens and closes
 * tickets, runs storage verbs, reads what was agreed. Allocates nothing; reads the clock at the end of an
 * instruction, which is the begin of the next, and after a wait. */
#include "executor_impl.h"

#include "base/clock.h"
#include "check.h"
#include "shm/probe.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define CLEAR_TILE (UINT64_C(1) << 20)

/* Where the time goes: one part at a time. */
struct meter {
    struct kc_executor *x;
    uint8_t part;
    uint64_t since; /* of the part */
    uint64_t now;   /* the clock as it was last read */
};

/* What a person sees the rank do. Tickets are too short to show. */
static void show_phase(struct kc_executor *x, uint8_t part)
{
    static const uint8_t train[KC_PARTS] = {[KC_PART_DATA] = KC_PHASE_DATA,
                                            [KC_PART_FORWARD] = KC_PHASE_FORWARD,
                                            [KC_PART_BACKWARD] = KC_PHASE_BACKWARD,
                                            [KC_PART_COMM] = KC_PHASE_COMMUNICATION,
                                            [KC_PART_OPTIMIZER] = KC_PHASE_OPTIMIZER};
    if (x->program == KC_PROGRAM_TRAIN && part != KC_PART_STATE)
        kc_probe_phase(x->c.probe, (enum kc_phase)train[part]);
}

static void meter_read(struct meter *m)
{
    m->x->run->seconds[m->part] += (double)(m->now - m->since) / (double)KC_SECOND;
    m->since = m->now;
}

static void meter_to(struct meter *m, uint8_t part)
{
    if (part == m->part)
        return;
    meter_read(m);
    m->part = part;
    show_phase(m->x, part);
}

/* Standing still for the comm lane is communication, whatever the instruction is. */
static int await_all(struct meter *m, const struct kc_exec_instruction *i)
{
    struct kc_executor *x = m->x;
    const uint32_t *waits = KC_AT(x->c.plan, uint32_t, x->c.plan->waits) + i->waits;
    for (uint32_t w = 0; w < i->wait_count; w++) {
        if (kc_progress_reached(&x->done[KC_LANE_COMM], waits[w] + 1))
            continue; /* also when that lane failed: seen below */
        meter_to(m, KC_PART_COMM);
        const uint64_t from = m->now;
        atomic_store_explicit(&x->stands_since, from, memory_order_relaxed);
        bool complete = kc_executor_await(x, KC_LANE_COMPUTE, waits[w], x->spins);
        atomic_store_explicit(&x->stands_since, 0, memory_order_relaxed);
        m->now = kc_now();
        x->run->waited += (double)(m->now - from) / (double)KC_SECOND;
        if (!complete)
            return -ECANCELED;
    }
    return kc_progress_failed(&x->done[KC_LANE_COMPUTE]) ? -ECANCELED : 0;
}

/* ---- instructions ---- */

static int view_of(struct kc_executor *x, const struct kc_exec_ref *r, bool write, struct kc_view *v,
                   struct kc_error *e)
{
    *v = (struct kc_view){.type = r->type, .rank = r->rank};
    memcpy(v->size, r->size, sizeof v->size);
    memcpy(v->first, r->first, sizeof v->first);
    if (r->space == KC_SPACE_NONE)
        return 0;
    v->data = kc_executor_at(x, r, write);
    if (v->data)
        return 0;
    return kc_fail(e, -EPERM, "program %s %s %s, bucket %d, without a ticket", kc_program_name[x->program],
                   write ? "writes" : "reads", kc_space_name[r->space], r->bucket);
}

static bool overlap(const struct kc_exec_ref *a, const struct kc_exec_ref *b)
{
    return a->space == b->space && a->bucket == b->bucket && a->offset < b->offset + kc_ref_bytes(b) &&
           b->offset < a->offset + kc_ref_bytes(a);
}

void kc_executor_blank(struct kc_executor *x, const struct kc_exec_instruction *i)
{
    const struct kc_exec_ref *refs = kc_refs_of(x->c.plan, i);
    for (uint32_t k = i->inputs; (x->watch || x->hunt) && !i->accumulate && k < (uint32_t)i->inputs + i->outputs; k++) {
        bool fresh = refs[k].space == KC_SPACE_WORK;
        for (uint32_t n = 0; n < i->inputs && fresh; n++)
            fresh = !overlap(&refs[k], &refs[n]);
        if (fresh)
            memset(x->work + refs[k].offset, 0, kc_ref_bytes(&refs[k]));
    }
}

static int op_run(struct kc_executor *x, const struct kc_exec_instruction *i, struct kc_error *e)
{
    struct kc_view in[OPERANDS_MAX], out[OPERANDS_MAX];
    const struct kc_exec_ref *refs = kc_refs_of(x->c.plan, i);
    if (x->skip && i->op < 0 && i->opcode == x->c.shard->opcode_update)
        return 0;
    int r = 0;
    for (uint32_t k = 0; k < i->inputs && r == 0; k++)
        r = view_of(x, &refs[k], false, &in[k], e);
    for (uint32_t k = 0; k < i->outputs && r == 0; k++)
        r = view_of(x, &refs[i->inputs + k], true, &out[k], e);
    if (r < 0)
        return r;
    const struct kc_op_call call = {.opcode = i->opcode,
                                    .accumulate = i->accumulate,
                                    .inputs = (uint8_t)i->inputs,
                                    .outputs = (uint8_t)i->outputs,
                                    .in = in,
                                    .out = out,
                                    .attr = KC_AT(x->c.plan, double, x->c.plan->attrs) + i->attrs,
                                    .attrs = i->attr_count,
                                    .micro = i->micro,
                                    .scratch = x->scratch,
                                    .scratch_bytes = x->c.plan->scratch_bytes,
                                    .step = &x->run->values};
    for (uint32_t k = 0; k < i->inputs; k++)
        kc_executor_show(x, i, k, in[k].data);
    kc_executor_blank(x, i);
    if (x->hunt)
        kc_hunt_before(x, i, in, out);
    int token = i->part == KC_PART_DATA ? kc_probe_wait_begin(x->c.probe, KC_WAIT_DATA, KC_NO_GROUP, i->micro) : -1;
    r = x->c.ops->ops[i->opcode].enqueue(x->c.ops->self, &call, kc_team_lane(x->team), e);
    kc_probe_wait_end(x->c.probe, token);
    for (uint32_t k = 0; k < i->outputs && r == 0; k++)
        kc_executor_show(x, i, i->inputs + k, out[k].data);
    if (x->hunt && r == 0)
        kc_hunt_after(x, i, out);
    if (r < 0 && e && !e->text[0])
        kc_fail(e, r, "an op failed");
    return r < 0 ? kc_fail_prefix(e, r, "%s, layer %d, micro-batch %u", x->c.ops->ops[i->opcode].name, i->layer,
                                  i->micro)
                 : 0;
}

struct clearing {
    unsigned char *data;
    uint64_t bytes;
};

static void clear_tile(void *argument, uint32_t index, uint32_t worker)
{
    const struct clearing *c = argument;
    uint64_t from = index * CLEAR_TILE, n = c->bytes - from < CLEAR_TILE ? c->bytes - from : CLEAR_TILE;
    (void)worker;
    memset(c->data + from, 0, n);
}

static int clear_run(struct kc_executor *x, const struct kc_exec_ref *r, struct kc_error *e)
{
    struct clearing c = {.data = kc_executor_at(x, r, true), .bytes = kc_ref_bytes(r)};
    if (!c.data)
        return kc_fail(e, -EPERM, "clearing %s, bucket %d, without a ticket", kc_space_name[r->space], r->bucket);
    struct kc_lane *lane = kc_team_lane(x->team);
    return lane->enqueue(lane, clear_tile, &c, sizeof c, (uint32_t)((c.bytes + CLEAR_TILE - 1) / CLEAR_TILE));
}

static struct kc_place *place_of(struct kc_executor *x, const struct kc_exec_ref *r)
{
    return &x->places[(uint32_t)kc_space_state(r->space) * x->c.shard->buckets.count + (uint32_t)r->bucket];
}

static int ticket_run(struct kc_executor *x, const struct kc_exec_instruction *i, struct kc_error *e)
{
    const struct kc_exec_ref *r = kc_refs_of(x->c.plan, i) + i->inputs;
    struct kc_place *p = place_of(x, r);
    enum kc_state_class class = (enum kc_state_class)kc_space_state(r->space);
    if (i->kind == KC_I_CLOSE) {
        x->c.state->close(x->c.state->self, class, (uint32_t)r->bucket);
        p->open = false; /* where it lies stays known: the comm lane may look for what is not finite */
        return 0;
    }
    int code = x->c.state->open(x->c.state->self, class, (uint32_t)r->bucket, &p->data);
    if (code < 0)
        return kc_fail(e, code, "state gives schedule no ticket for %s of bucket %d: %s", kc_state_name[class],
                       r->bucket, code == -EBUSY ? "it is open already" : strerror(-code));
    p->open = true;
    return 0;
}

/* ---- agreement ---- */

static void agree_run(struct kc_executor *x)
{
    struct kc_run *run = x->run;
    const double *agreed = (const double *)(const void *)(x->result + KC_RESULT_AGREED(x->c.plan->tallies));
    memcpy(run->agreed, agreed, sizeof run->agreed);
    run->tallies = agreed + KC_AGREES, run->tallies_count = x->c.plan->tallies;
    struct kc_nonfinite *n = &run->nonfinite;
    kc_nonfinite_decode(run->agreed[KC_AGREE_NONFINITE], &n->ranks, &n->rank, &n->where);
    run->agreed[KC_AGREE_NONFINITE] = n->ranks;
    if (x->hunt) {
        kc_hunt_count(x->hunt, run->agreed);
        x->skip = run->skipped = true;
        return;
    }
    double tokens = run->agreed[KC_AGREE_TOKENS];
    run->loss = tokens > 0 ? run->agreed[KC_AGREE_LOSS] / tokens : 0;
    if (x->program != KC_PROGRAM_TRAIN)
        return;
    double norm = tokens > 0 ? sqrt(run->agreed[KC_AGREE_NORM]) / tokens : 0;
    double factor = x->c.clip > 0 ? x->c.clip / (norm + 1e-6) : 1; /* as torch.nn.utils.clip_grad_norm_ */
    run->grad_norm = norm;
    run->values.scale = tokens > 0 ? (factor < 1 ? factor : 1) / tokens : 0;
    if (n->ranks == 0 && isfinite(norm) && isfinite(run->loss))
        return;
    if (n->ranks == 0)
        kc_comm_look_at_own(x);
    n->own = x->nonfinite;
    x->skip = run->skipped = true;
}

static int compare_run(const struct kc_executor *x, struct kc_error *e)
{
    const uint64_t *all = (const uint64_t *)(const void *)(x->result + KC_RESULT_GATHERED(x->c.plan->tallies));
    for (int d = 0; d < KC_DIGESTS; d++) {
        char text[256] = "";
        size_t length = 0;
        for (uint32_t r = 1; r < x->c.plan->ranks; r++)
            if (all[r * KC_DIGESTS + (uint32_t)d] != all[d] && length < sizeof text)
                length += (size_t)snprintf(text + length, sizeof text - length, "%s%u", length ? ", " : "", r);
        if (length)
            return kc_fail(e, -EILSEQ,
                           "rank 0 holds another %s than rank %s; start all ranks from one spec with one build",
                           kc_digest_name[d], text);
    }
    return 0;
}

/* ---- the walk ---- */

static int instruction_run(struct kc_executor *x, const struct kc_exec_instruction *i, struct kc_error *e)
{
    switch (i->kind) {
    case KC_I_COMPUTE:
        return op_run(x, i, e);
    case KC_I_CLEAR:
        return clear_run(x, kc_refs_of(x->c.plan, i) + i->inputs, e);
    case KC_I_OPEN:
    case KC_I_CLOSE:
        return ticket_run(x, i, e);
    case KC_I_STATE:
        return x->c.state->verb(x->c.state->self, (enum kc_state_verb)i->opcode, e);
    case KC_I_AGREE:
        agree_run(x);
        return 0;
    case KC_I_COMPARE:
        return compare_run(x, e);
    default:
        return kc_fail(e, -EINVAL, "instruction of kind %u on the compute lane", i->kind);
    }
}

int kc_compute_lane(struct kc_executor *x, struct kc_error *e)
{
    struct meter m = {.x = x, .part = KC_PART_STATE, .now = kc_now()};
    int r = 0;
    m.since = m.now;
    for (uint32_t n = 0; n < x->count && r == 0; n++) {
        const struct kc_exec_instruction *i = &x->instructions[n];
        if (i->lane != KC_LANE_COMPUTE)
            continue;
        r = await_all(&m, i);
        if (r < 0)
            break;
        meter_to(&m, i->part);
        uint64_t begin = m.now;
        r = instruction_run(x, i, e);
        m.now = kc_now();
        if (r == 0) {
            kc_progress_set(&x->done[KC_LANE_COMPUTE], n + 1);
            kc_executor_trace(x, KC_LANE_COMPUTE, n, begin, m.now);
        }
    }
    meter_read(&m);
    return r;
}
