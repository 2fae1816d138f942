/* executor.c - the life of an executor, and one run of a program over its two lanes. */
#include "executor_impl.h"

#include "base/bf16.h"
#include "base/clock.h"
#include "base/thread.h"
#include "builder.h"
#include "check.h"
#include "shm/probe.h"

#include <assert.h>
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define PAGE  4096
#define SPINS 4000 /* some tens of microseconds: shorter than falling asleep and waking up */

static uint64_t round_up(uint64_t n, uint64_t unit)
{
    return (n + unit - 1) / unit * unit;
}

uint64_t kc_schedule_memory(const struct kc_exec_plan *plan)
{
    return round_up(plan->work_bytes, PAGE) + round_up(plan->scratch_bytes, PAGE) +
           round_up(plan->result_bytes, PAGE);
}

/* ---- what the lanes share ---- */

void *kc_executor_at(struct kc_executor *x, const struct kc_exec_ref *r, bool write)
{
    switch (r->space) {
    case KC_SPACE_WORK:
        return x->work + r->offset;
    case KC_SPACE_RESULT:
        return x->result + r->offset;
    case KC_SPACE_STORE:
        return (char *)x->store + r->offset;
    default:
        break;
    }
    uint32_t class = (uint32_t)kc_space_state(r->space);
    struct kc_place *p = &x->places[class * x->c.shard->buckets.count + (uint32_t)r->bucket];
    if (write && !p->open)
        return NULL;
    if (!p->data) /* compute lane only: whatever the comm lane touches is open */
        p->data = (void *)x->c.state->read(x->c.state->self, (enum kc_state_class) class, (uint32_t)r->bucket, NULL);
    return p->data ? (char *)p->data + r->offset : NULL;
}

void kc_executor_fail(struct kc_executor *x)
{
    kc_progress_fail(&x->done[KC_LANE_COMPUTE]);
    kc_progress_fail(&x->done[KC_LANE_COMM]);
}

bool kc_executor_await(struct kc_executor *x, int lane, uint32_t instruction, uint32_t spins)
{
    struct kc_progress_word *other = &x->done[1 - lane];
    if (!kc_progress_spin(other, instruction + 1, spins)) {
        const struct kc_exec_instruction *i = &x->instructions[instruction];
        uint32_t group = KC_NO_GROUP;
        uint64_t sequence = 0;
        if (i->kind == KC_I_COLLECTIVE) {
            const uint32_t family =
                KC_AT(x->c.comm_plan, struct kc_plan_collective, x->c.comm_plan->collectives)[i->collective].family;
            group = kc_comm_group_of(x->c.comm_plan, family, x->c.plan->rank);
            sequence = x->base[family] + i->sequence;
        }
        /* The communication lane waiting for its next work is no wait of the rank. */
        int token = lane == KC_LANE_COMPUTE ? kc_probe_wait_begin(x->c.probe, KC_WAIT_LANE, group, sequence) : -1;
        kc_progress_sleep(other, instruction + 1);
        kc_probe_wait_end(x->c.probe, token);
    }
    return !kc_progress_failed(other);
}

void kc_executor_trace(const struct kc_executor *x, enum kc_lane_id lane, uint32_t n, uint64_t begin, uint64_t end)
{
    static_assert(KC_LANES == KC_TRACE_LANES, "the board has a trace for every lane");
    kc_probe_trace(x->c.probe, lane,
                   &(struct kc_trace_seen){.begin = begin,
                                           .end = end,
                                           .step = x->step,
                                           .place = KC_TRACE_PLACE(x->program, n)});
}

/* ---- construction ---- */

static int check_ops(const struct kc_executor_config *c, struct kc_error *e)
{
    const struct kc_exec_instruction *ins = KC_AT(c->plan, struct kc_exec_instruction, c->plan->instructions);
    for (uint32_t i = 0; i < c->plan->instructions.count; i++) {
        if (ins[i].inputs > OPERANDS_MAX || ins[i].outputs > OPERANDS_MAX)
            return kc_fail(e, -EINVAL, "instruction %u has %u inputs and %u outputs, at most %d fit", i,
                           ins[i].inputs, ins[i].outputs, OPERANDS_MAX);
        if (ins[i].kind == KC_I_COMPUTE && (ins[i].opcode >= c->ops->count || !c->ops->ops[ins[i].opcode].enqueue))
            return kc_fail(e, -EINVAL, "the op table of %s has no opcode %u, which the plan names", c->ops->device,
                           ins[i].opcode);
    }
    return 0;
}

/* Rows whose number follows from data have room for the most there can be, which they seldom are. */
static bool has_worst_case(const struct kc_comm_plan *comm)
{
    const struct kc_plan_collective *c = KC_AT(comm, struct kc_plan_collective, comm->collectives);
    for (uint32_t i = 0; i < comm->collectives.count; i++)
        if (c[i].counted)
            return true;
    return false;
}

static int map_memory(struct kc_executor *x, struct kc_error *e)
{
    const struct kc_exec_plan *p = x->c.plan;
    x->memory_bytes = kc_schedule_memory(p);
    void *m = mmap(NULL, x->memory_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (m == MAP_FAILED)
        return kc_fail(e, -ENOMEM, "no memory for activations and scratch: %zu bytes; lower batch.micro",
                       x->memory_bytes);
    x->memory = m;
    x->work = x->memory;
    x->scratch = x->work + round_up(p->work_bytes, PAGE);
    x->result = x->scratch + round_up(p->scratch_bytes, PAGE);
    /* touched now and here, so on this rank's NUMA node; room for a worst case as it is used */
    unsigned char *from = has_worst_case(x->c.comm_plan) ? x->scratch : x->memory;
    memset(from, 0, x->memory_bytes - (size_t)(from - x->memory));
    return 0;
}

static int find_groups(struct kc_executor *x, struct kc_error *e)
{
    for (uint32_t f = 0; f < x->c.comm_plan->families.count; f++) {
        const struct kc_plan_group *group;
        const uint32_t g = kc_comm_group_of(x->c.comm_plan, f, x->c.plan->rank);
        x->position[f] = (uint32_t)builder_position(x->c.comm_plan, f, x->c.plan->rank, &group);
        if (g != KC_NOT_MEMBER && !x->c.comm->group(x->c.comm->self, g))
            return kc_fail(e, -EINVAL, "communication has no group %u, of which rank %u is a member", g,
                           x->c.plan->rank);
    }
    return 0;
}

static int find_store(struct kc_executor *x, struct kc_error *e)
{
    size_t count = 0;
    uint64_t parameters = 0;
    const struct kc_plan_tensor *t = KC_AT(x->c.shard, struct kc_plan_tensor, x->c.shard->tensors);
    for (uint32_t i = 0; i < x->c.shard->tensors.count; i++)
        parameters += t[i].role == KC_PARAMETER;
    x->store = x->c.state->store(x->c.state->self, &count);
    if (x->store && count >= KC_STORE_COUNT(parameters))
        return 0;
    return kc_fail(e, -EINVAL, "the store vector of state has %zu elements, %llu parameters need %llu", count,
                   (unsigned long long)parameters, (unsigned long long)KC_STORE_COUNT(parameters));
}

/* Spinning helps only where every thread that spins has a core of its own. */
static uint32_t spins_for(const struct kc_executor_config *c)
{
    cpu_set_t cpus;
    if (c->oversubscribe || sched_getaffinity(0, sizeof cpus, &cpus) != 0)
        return 0;
    return CPU_COUNT(&cpus) > (int)c->threads ? SPINS : 0;
}

static int start_comm_lane(struct kc_executor *x, struct kc_error *e)
{
    int r = kc_thread_start(&x->thread, kc_comm_lane, x);
    if (r < 0)
        return kc_fail(e, r, "no thread for the communication lane: %s", strerror(-r));
    x->thread_made = true;
    return 0;
}

int kc_executor_new(const struct kc_executor_config *config, struct kc_executor **out, struct kc_error *e)
{
    if (config->threads == 0)
        return kc_fail(e, -EINVAL, "an executor needs at least one thread");
    struct kc_executor *x = calloc(1, sizeof *x);
    if (!x)
        return kc_fail(e, -ENOMEM, "no memory for an executor");
    x->c = *config;
    x->spins = spins_for(config);
    uint32_t families = config->comm_plan->families.count;
    x->places = calloc((size_t)KC_STATES * config->shard->buckets.count + 1, sizeof *x->places);
    x->next = calloc(families + 1u, sizeof *x->next);
    x->base = calloc(families + 1u, sizeof *x->base);
    x->position = calloc(families + 1u, sizeof *x->position);
    int r = x->places && x->next && x->base && x->position ? 0 : kc_fail(e, -ENOMEM, "no memory for an executor");
    if (r == 0 && (r = check_ops(config, e)) == 0 && (r = find_groups(x, e)) == 0 &&
        (r = kc_comm_prepare(x, e)) == 0 && (r = find_store(x, e)) == 0 && (r = map_memory(x, e)) == 0) {
        r = kc_team_new(config->threads, x->spins, config->probe, &x->team);
        if (r < 0)
            kc_fail(e, r, "no %u threads for the compute lane: %s", config->threads, strerror(-r));
        else
            r = start_comm_lane(x, e);
    }
    if (r < 0) {
        kc_executor_free(x);
        return r;
    }
    *out = x;
    return 0;
}

void kc_executor_free(struct kc_executor *x)
{
    if (!x)
        return;
    if (x->thread_made) {
        kc_executor_fail(x);
        kc_progress_fail(&x->start);
        pthread_join(x->thread, NULL);
    }
    kc_team_free(x->team);
    if (x->memory)
        munmap(x->memory, x->memory_bytes);
    free(x->places);
    free(x->next);
    free(x->base);
    free(x->position);
    free(x->counts);
    free(x->counts_first);
    free(x->first_reduction);
    free(x);
}

/* ---- a run ---- */

static double *own_vector(struct kc_executor *x)
{
    return (double *)(void *)(x->result + KC_RESULT_OWN);
}

void kc_executor_clear(struct kc_executor *x)
{
    memset(own_vector(x), 0, (KC_AGREES + x->c.plan->tallies) * sizeof(double));
}

/* What LOAD writes elsewhere: targets are masked, nobody asks for a loss; a row is one document from its beginning. */
static void fill_inputs(struct kc_executor *x)
{
    const struct kc_exec_plan *p = x->c.plan;
    const struct kc_exec_ref *refs[] = {&p->targets, &p->positions, &p->starts};
    for (int k = 0; k < 3; k++) {
        int32_t *to = (int32_t *)(void *)(x->work + refs[k]->offset);
        const uint64_t n = refs[k]->space == KC_SPACE_NONE ? 0 : kc_ref_elements(refs[k]);
        for (uint64_t i = 0; i < n; i++)
            to[i] = k == 0 ? -1 : k == 1 ? (int32_t)(i % refs[k]->size[1]) : 0;
    }
}

static void fill_digests(struct kc_executor *x)
{
    uint64_t *own = (uint64_t *)(void *)(x->result + KC_RESULT_DIGESTS(x->c.plan->tallies));
    memcpy(own, x->c.digest, sizeof x->c.digest);
    own[KC_DIGEST_SHARD] = x->c.shard->head.digest.low;
    own[KC_DIGEST_COMM] = x->c.comm_plan->head.digest.low;
}

static void prepare(struct kc_executor *x, enum kc_program_id program, struct kc_run *run)
{
    x->program = program;
    x->run = run;
    x->instructions = kc_program_at(x->c.plan, program);
    x->count = x->c.plan->programs[program].count;
    x->step = (uint32_t)run->values.step + 1;
    x->watch = x->c.trace && x->c.trace->wants(x->c.trace->self, program, run->values.step) && !x->hunt ? x->c.trace : NULL;
    x->skip = false;
    x->nonfinite = -1;
    x->comm_ns = x->away_ns = 0;
    atomic_store(&x->stands_since, 0);
    memset(x->places, 0, (size_t)KC_STATES * x->c.shard->buckets.count * sizeof *x->places);
    /* gathered while ops run: the comm lane looks nothing up */
    const struct kc_plan_bucket *b = KC_AT(x->c.shard, struct kc_plan_bucket, x->c.shard->buckets);
    for (uint32_t k = 0; k < x->c.shard->buckets.count; k++)
        if (kc_bucket_in_parts(&b[k], KC_STATE_PARAMETER) && kc_plan_holds(x->c.shard, &b[k], x->c.plan->rank))
            x->places[KC_STATE_PARAMETER * x->c.shard->buckets.count + k].data =
                (void *)x->c.state->read(x->c.state->self, KC_STATE_PARAMETER, k, NULL);
    memcpy(x->base, x->next, x->c.comm_plan->families.count * sizeof *x->base);
    kc_progress_reset(&x->done[KC_LANE_COMPUTE]);
    kc_progress_reset(&x->done[KC_LANE_COMM]);
    run->skipped = false;
    run->nonfinite = (struct kc_nonfinite){.where = -1, .own = -1};
    memset(run->seconds, 0, sizeof run->seconds);
    run->waited = 0;

    double *own = own_vector(x);
    own[KC_AGREE_DIGEST] = run->replica_digest;
    own[KC_AGREE_STOP] = run->stop_vote;
    own[KC_AGREE_BACKGROUND] = run->background;
    own[KC_AGREE_CONTROL] = x->c.plan->rank == 0 ? run->control : 0;
    if (program == KC_PROGRAM_FORWARD)
        fill_inputs(x);
    else if (program == KC_PROGRAM_DIGEST)
        fill_digests(x);
}

static bool communicates(const struct kc_executor *x)
{
    const uint32_t *n = KC_AT(x->c.plan, uint32_t, x->c.plan->programs[x->program].sequences);
    for (uint32_t g = 0; g < x->c.plan->programs[x->program].sequences.count; g++)
        if (n[g])
            return true;
    return false;
}

/* The comm lane is idle again, or stands in a collective that only the peers or an abort can end. */
static int settle(struct kc_executor *x, int code, struct kc_error *e)
{
    if (code < 0) {
        kc_executor_fail(x);
        if (code != -ECANCELED && atomic_load(&x->in_flight)) {
            x->broken = true;
            return code;
        }
    }
    kc_progress_sleep(&x->finished, x->runs);
    if (x->comm_code < 0 && x->comm_code != -ECANCELED) {
        x->broken = true;
        if (code == 0 || code == -ECANCELED) { /* it was the first to fail */
            if (e)
                *e = x->comm_error;
            return x->comm_code;
        }
    }
    return code;
}

static enum kc_phase phase_of(enum kc_program_id program)
{
    switch (program) {
    case KC_PROGRAM_EVALUATE:
        return KC_PHASE_EVALUATE;
    case KC_PROGRAM_SNAPSHOT_BEGIN:
    case KC_PROGRAM_SNAPSHOT_COPIED:
    case KC_PROGRAM_SNAPSHOT_WRITTEN:
    case KC_PROGRAM_SNAPSHOT_COMMITTED:
        return KC_PHASE_SNAPSHOT;
    case KC_PROGRAM_RESTORE:
        return KC_PHASE_RESTORE;
    case KC_PROGRAM_TRAIN:
        return KC_PHASE_DATA;
    case KC_PROGRAM_FORWARD:
        return KC_PHASE_FORWARD;
    default:
        return KC_PHASES; /* too short to show */
    }
}

int kc_executor_run(struct kc_executor *x, enum kc_program_id program, struct kc_run *run, struct kc_error *e)
{
    if (x->broken)
        return kc_fail(e, -ESHUTDOWN, "a program failed on this rank while it communicated; nothing runs after that");
    enum kc_phase phase = phase_of(program), before = KC_PHASE_NONE;
    if (phase != KC_PHASES)
        before = kc_probe_phase(x->c.probe, phase);
    prepare(x, program, run);
    bool comm = communicates(x);
    if (comm)
        kc_progress_set(&x->start, ++x->runs);
    if (e)
        e->text[0] = 0;
    int code = kc_compute_lane(x, e);
    if (code == 0)
        code = x->c.ops->failed(x->c.ops->self, e);
    if (comm)
        code = settle(x, code, e);
    if (code == 0)
        run->waited -= (double)x->away_ns / (double)KC_SECOND;
    if (program == KC_PROGRAM_TRAIN && code == 0)
        kc_probe_set(x->c.probe, KC_METRIC_COMM_SECONDS, (double)x->comm_ns / (double)KC_SECOND);
    if (phase != KC_PHASES && (code == 0 || program != KC_PROGRAM_TRAIN)) /* a rank whose step fails leaves, and in this phase */
        kc_probe_phase(x->c.probe, before);
    return code;
}

void kc_executor_logits(const struct kc_executor *x, uint64_t row, float *out)
{
    const struct kc_exec_ref *r = &x->c.plan->logits;
    uint64_t n = r->size[r->rank - 1];
    const unsigned char *from = x->work + r->offset + row * n * kc_type_bytes[r->type];
    for (uint64_t i = 0; i < n && r->type == KC_BF16; i++)
        out[i] = kc_bf16_to_float(((const uint16_t *)(const void *)from)[i]);
    if (r->type == KC_F32)
        memcpy(out, from, n * sizeof *out);
}

int32_t *kc_executor_tokens(struct kc_executor *x)
{
    return (int32_t *)(void *)(x->work + x->c.plan->tokens.offset);
}
