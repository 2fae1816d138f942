/* test_executor.c - the executor of schedule, ranks as threads, with kernels of the toy model, a communication made
 * of one barrier a call, and a state that is plain memory. What is compared: layouts, thread counts, formulas. */
#include "base/bf16.h"
#include "base/finite.h"
#include "schedule/schedule.h"

#include "base/clock.h"
#include "schedule/executor_impl.h"
#include "shm/probe.h"
#include "shm/reader.h"
#include "toy.h"
#include "tests/unit/suite.h"

#include <check.h>
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define COUNTS_ALLOCATIONS 0
#else
#define COUNTS_ALLOCATIONS 1
/* Every allocation of the process, counted. */
static _Atomic uint64_t allocations;
void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t m);
void *__libc_realloc(void *p, size_t n);
void *malloc(size_t n)
{
    atomic_fetch_add(&allocations, 1);
    return __libc_malloc(n);
}
void *calloc(size_t n, size_t m)
{
    atomic_fetch_add(&allocations, 1);
    return __libc_calloc(n, m);
}
void *realloc(void *p, size_t n)
{
    atomic_fetch_add(&allocations, 1);
    return __libc_realloc(p, n);
}
#endif

#define RANKS   4
#define BUCKETS 8

/* ---- communication: the last to come does it for all ---- */

struct kc_group {
    struct kc_comm_call call[RANKS];
    uint32_t arrived, generation;
    uint64_t next;
};

struct world {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct kc_group groups[2];
    uint32_t ranks;
    _Atomic bool aborted;
    unsigned char *sum;
};

struct rank {
    struct world *world;
    uint32_t number;
    struct toy_context toy;
    struct kc_op ops[TOY_TABLE];
    struct kc_op_table table;
    struct kc_comm_if comm;
    struct kc_state_if state;
    /* state */
    const struct kc_shard_plan *shard;
    float *data[KC_STATES][BUCKETS]; /* moments under zero: the own shard alone */
    bool open[KC_STATES][BUCKETS];
    uint64_t store[256];
    char verbs[512];
    int fail_verb; /* verb that answers -EIO; -1 none */
    /* a collective in flight */
    struct kc_comm_call call;
    const struct kc_group *group;
    int fail_collective;     /* the n-th answers -EPROTO; -1 none */
    const struct kc_reader *until_waits; /* AGREE completes only when the compute lane waits; NULL: at once */
    uint16_t hold_until_ran; /* the first collective completes only after this op ran; TOY_TABLE none */
    uint32_t collectives;
    struct kc_arena arena;
    const struct kc_exec_plan *plan;
    struct kc_executor *executor;
    struct kc_run run;
    struct kc_error e;
    int code;
};

static void reduce(struct world *w, const struct kc_group *g, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        double d = 0;
        float f = 0;
        uint64_t u = 0;
        for (uint32_t r = 0; r < w->ranks; r++) {
            const void *in = g->call[r].in;
            d += g->call[0].type == KC_F64 ? ((const double *)in)[i] : 0;
            f += g->call[0].type == KC_F32 ? ((const float *)in)[i] : 0;
            u += g->call[0].type == KC_U64 ? ((const uint64_t *)in)[i] : 0;
        }
        if (g->call[0].type == KC_F64)
            ((double *)(void *)w->sum)[i] = d;
        else if (g->call[0].type == KC_F32)
            ((float *)(void *)w->sum)[i] = f;
        else
            ((uint64_t *)(void *)w->sum)[i] = u;
    }
}

static void perform(struct world *w, struct kc_group *g)
{
    size_t bytes = g->call[0].count * kc_type_bytes[g->call[0].type];
    if (g->call[0].primitive == KC_ALL_GATHER)
        for (uint32_t r = 0; r < w->ranks; r++)
            memcpy(w->sum + r * bytes, g->call[r].in, bytes);
    else
        reduce(w, g, g->call[0].count);
    for (uint32_t r = 0; r < w->ranks; r++) {
        size_t part = g->call[0].primitive == KC_REDUCE_SCATTER ? bytes / w->ranks : bytes;
        if (g->call[0].primitive == KC_ALL_GATHER)
            part = bytes * w->ranks;
        memcpy(g->call[r].out, w->sum + (g->call[0].primitive == KC_REDUCE_SCATTER ? r * part : 0), part);
    }
}

static int comm_start(void *self, const struct kc_group *g, const struct kc_comm_call *call, struct kc_comm_op **op,
                      struct kc_error *e)
{
    struct rank *r = self;
    if (r->fail_collective == (int)r->collectives++)
        return kc_fail(e, -EPROTO, "signatures differ");
    r->call = *call;
    r->group = g;
    *op = (struct kc_comm_op *)(void *)r;
    return 0;
}

static int comm_wait(void *self, struct kc_comm_op **op, uint64_t deadline, struct kc_error *e)
{
    struct rank *r = self;
    struct world *w = r->world;
    struct kc_group *g = (struct kc_group *)(uintptr_t)r->group;
    (void)deadline;
    while (r->hold_until_ran < TOY_TABLE && !atomic_load(&r->toy.ran[r->hold_until_ran]) && !atomic_load(&w->aborted))
        sched_yield();
    for (struct kc_rank_view v; r->until_waits && r->call.type == KC_F64 && !atomic_load(&w->aborted); sched_yield())
        if (kc_reader_rank(r->until_waits, r->number, &v) == 0 && v.wait.what == KC_WAIT_LANE)
            break;
    pthread_mutex_lock(&w->lock);
    uint32_t generation = g->generation;
    int code = r->call.sequence == g->next ? 0 : kc_fail(e, -EPROTO, "sequence");
    g->call[r->number] = r->call;
    if (code == 0 && ++g->arrived == w->ranks) {
        perform(w, g);
        g->arrived = 0, g->generation++, g->next++;
        pthread_cond_broadcast(&w->changed);
    }
    while (code == 0 && g->generation == generation && !w->aborted)
        pthread_cond_wait(&w->changed, &w->lock);
    if (code == 0 && g->generation == generation)
        code = kc_fail(e, -ESHUTDOWN, "aborted");
    pthread_mutex_unlock(&w->lock);
    *op = NULL;
    return code;
}

static const struct kc_group *comm_group(void *self, uint32_t index)
{
    return &((struct rank *)self)->world->groups[index];
}

static void world_abort(struct world *w)
{
    pthread_mutex_lock(&w->lock);
    w->aborted = true;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
}

/* ---- state ---- */

static uint64_t first_of(const struct rank *r, enum kc_state_class what, uint32_t bucket)
{
    const struct kc_plan_bucket *b = KC_AT(r->shard, struct kc_plan_bucket, r->shard->buckets) + bucket;
    return what >= KC_STATE_MOMENT1 && r->shard->zero ? r->number * b->shard : 0;
}

static const void *state_read(void *self, enum kc_state_class what, uint32_t bucket, uint64_t *version)
{
    struct rank *r = self;
    (void)version;
    return (const void *)((uintptr_t)r->data[what][bucket] - first_of(r, what, bucket) * 4);
}

static int state_open(void *self, enum kc_state_class what, uint32_t bucket, void **data)
{
    struct rank *r = self;
    if (r->open[what][bucket])
        return -EBUSY;
    r->open[what][bucket] = true;
    *data = (void *)(uintptr_t)state_read(self, what, bucket, NULL);
    return 0;
}

static void state_close(void *self, enum kc_state_class what, uint32_t bucket)
{
    struct rank *r = self;
    if (!r->open[what][bucket]) /* Check allocates and is not for threads */
        abort();
    r->open[what][bucket] = false;
}

static int state_verb(void *self, enum kc_state_verb verb, struct kc_error *e)
{
    struct rank *r = self;
    size_t n = strlen(r->verbs);
    snprintf(r->verbs + n, sizeof r->verbs - n, "%s ", kc_state_verb_name[verb]);
    r->store[0] = 1;
    return r->fail_verb == (int)verb ? kc_fail(e, -EIO, "disk full") : 0;
}

static uint64_t *state_store(void *self, size_t *count)
{
    *count = sizeof((struct rank *)self)->store / 8;
    return ((struct rank *)self)->store;
}

/* ---- a job ---- */

static struct kc_probe *probes[RANKS]; /* NULL: the ranks record nothing */
static const struct kc_trace_if *watchers[RANKS]; /* NULL: nobody looks on */

struct job {
    struct toy toy;
    struct world world;
    struct rank rank[RANKS];
    uint32_t threads;
    double clip, lr;
};

static const struct toy_shape shape = {.ranks = 2,
                                       .zero = 1,
                                       .layers = 3,
                                       .hidden = 40,
                                       .vocab = 7,
                                       .context = 5,
                                       .micro = 2,
                                       .sequences = 8,
                                       .latency_ns = 1};

/* Starting values: a formula of the element alone. */
static float start_value(int32_t tensor, uint64_t i)
{
    return (float)(0.3 * sin(1.7 * tensor + 0.9 * (double)i + 1));
}

static const struct kc_plan_bucket *bucket_of(const struct rank *r, uint32_t bucket)
{
    return KC_AT(r->shard, struct kc_plan_bucket, r->shard->buckets) + bucket;
}

/* The master of an element, NULL if this rank does not keep it. */
static float *master_at(const struct rank *r, uint32_t bucket, uint64_t at)
{
    const struct kc_plan_bucket *b = bucket_of(r, bucket);
    uint64_t first = first_of(r, KC_STATE_MASTER, bucket), kept = r->shard->zero ? b->shard : b->count;
    return at >= first && at < first + kept ? r->data[KC_STATE_MASTER][bucket] + (at - first) : NULL;
}

static void start(struct rank *r, uint32_t bucket, uint64_t at, float value)
{
    float *master = master_at(r, bucket, at);
    if (!kc_bucket_has_master(bucket_of(r, bucket))) {
        r->data[KC_STATE_PARAMETER][bucket][at] = value;
        return;
    }
    ((uint16_t *)(void *)r->data[KC_STATE_PARAMETER][bucket])[at] = kc_bf16_from_float(value);
    if (master)
        *master = value;
}

static void rank_state(struct rank *r, const struct kc_shard_plan *s)
{
    const struct kc_plan_bucket *b = KC_AT(s, struct kc_plan_bucket, s->buckets);
    const struct kc_plan_segment *g = KC_AT(s, struct kc_plan_segment, s->segments);
    ck_assert_uint_le(s->buckets.count, BUCKETS);
    for (uint32_t k = 0; k < s->buckets.count; k++) {
        for (int c = 0; c < KC_STATES; c++)
            r->data[c][k] = calloc(c >= KC_STATE_MOMENT1 && s->zero ? b[k].shard : b[k].count, 4);
        for (uint32_t i = 0; i < b[k].segments_count; i++) /* gradients of an earlier step: nothing may add to them */
            for (uint64_t n = 0; n < g[b[k].segments_first + i].count; n++)
                r->data[KC_STATE_GRADIENT][k][g[b[k].segments_first + i].offset + n] = 100;
        for (uint32_t i = 0; i < b[k].segments_count; i++)
            for (uint64_t n = 0; n < g[b[k].segments_first + i].count; n++)
                start(r, k, g[b[k].segments_first + i].offset + n, start_value(g[b[k].segments_first + i].tensor, n));
    }
}

static void job_make(struct job *j, struct toy_shape s, uint32_t threads, double clip)
{
    memset(j, 0, sizeof *j);
    toy_plan(&j->toy, s);
    j->threads = threads, j->clip = clip, j->lr = 0.01;
    pthread_mutex_init(&j->world.lock, NULL);
    pthread_cond_init(&j->world.changed, NULL);
    j->world.ranks = s.ranks;
    j->world.sum = malloc(1u << 20);
    for (uint32_t i = 0; i < s.ranks; i++) {
        struct rank *r = &j->rank[i];
        r->world = &j->world, r->number = i, r->shard = j->toy.shard;
        r->toy.shard = j->toy.shard, r->toy.rank = i, r->toy.fail_at = r->toy.poison_at = -1;
        r->fail_verb = r->fail_collective = -1, r->hold_until_ran = TOY_TABLE;
        toy_ops(r->ops);
        r->table = (struct kc_op_table){
            .self = &r->toy, .device = "cpu", .variant = "toy", .ops = r->ops, .count = TOY_TABLE,
            .failed = toy_failed};
        r->comm = (struct kc_comm_if){.self = r, .start = comm_start, .wait = comm_wait, .group = comm_group};
        r->state = (struct kc_state_if){.self = r,
                                        .read = state_read,
                                        .open = state_open,
                                        .close = state_close,
                                        .verb = state_verb,
                                        .store = state_store};
        rank_state(r, j->toy.shard);
        ck_assert_int_eq(kc_arena_new(&r->arena, 1u << 20), 0);
        int code = kc_schedule_expand(j->toy.shard, j->toy.comm, i, &r->arena, &r->plan, &r->e);
        ck_assert_msg(code == 0, "%s", r->e.text);
        struct kc_executor_config c = {.shard = j->toy.shard,
                                       .comm_plan = j->toy.comm,
                                       .plan = r->plan,
                                       .ops = &r->table,
                                       .comm = &r->comm,
                                       .state = &r->state,
                                       .threads = threads,
                                       .probe = probes[i],
                                       .trace = watchers[i],
                                       .clip = clip,
                                       .oversubscribe = i % 2};
        code = kc_executor_new(&c, &r->executor, &r->e);
        ck_assert_msg(code == 0, "%s", r->e.text);
    }
}

static void job_free(struct job *j)
{
    world_abort(&j->world);
    for (uint32_t i = 0; i < j->world.ranks; i++) {
        kc_executor_free(j->rank[i].executor);
        kc_arena_free(&j->rank[i].arena);
        for (uint32_t k = 0; k < BUCKETS; k++)
            for (int c = 0; c < KC_STATES; c++)
                free(j->rank[i].data[c][k]);
    }
    free(j->world.sum);
    toy_free(&j->toy);
}

struct order {
    struct job *job;
    struct rank *rank;
    enum kc_program_id program;
    uint64_t step;
};

static void *rank_main(void *argument)
{
    struct order *o = argument;
    struct rank *r = o->rank;
    r->run.values = (struct kc_step_values){.step = o->step,
                                            .lr = o->job->lr,
                                            .beta1_power = pow(0.9, (double)o->step + 1),
                                            .beta2_power = pow(0.95, (double)o->step + 1),
                                            .sample_first = o->step * o->job->toy.shape.sequences};
    r->code = kc_executor_run(r->executor, o->program, &r->run, &r->e);
    if (r->code < 0)
        world_abort(r->world); /* as engine does when a rank fails */
    return NULL;
}

/* One program on all ranks at once. */
static void job_run(struct job *j, enum kc_program_id program, uint64_t step)
{
    pthread_t thread[RANKS];
    struct order order[RANKS];
    for (uint32_t i = 0; i < j->world.ranks; i++) {
        order[i] = (struct order){j, &j->rank[i], program, step};
        pthread_create(&thread[i], NULL, rank_main, &order[i]);
    }
    for (uint32_t i = 0; i < j->world.ranks; i++)
        pthread_join(thread[i], NULL);
}

static void job_train(struct job *j, uint64_t steps, double *losses)
{
    for (uint64_t s = 0; s < steps; s++) {
        job_run(j, KC_PROGRAM_TRAIN, s);
        for (uint32_t i = 0; i < j->world.ranks; i++) {
            ck_assert_msg(j->rank[i].code == 0, "rank %u: %s", i, j->rank[i].e.text);
            ck_assert_double_eq(j->rank[i].run.loss, j->rank[0].run.loss); /* the same on all ranks */
        }
        losses[s] = j->rank[0].run.loss;
    }
}

/* A parameter as ops see it. Where its master is kept here, it must be that, rounded. */
static float parameter_at(const struct rank *r, uint32_t bucket, uint64_t at)
{
    const float *data = r->data[KC_STATE_PARAMETER][bucket], *master = master_at(r, bucket, at);
    if (!kc_bucket_has_master(bucket_of(r, bucket)))
        return data[at];
    uint16_t half = ((const uint16_t *)(const void *)data)[at];
    if (master)
        ck_assert_uint_eq(half, kc_bf16_from_float(*master));
    return kc_bf16_to_float(half);
}

/* Parameter values of a rank by tensor, without padding, into out; returns how many. */
static size_t parameters(const struct rank *r, float *out)
{
    const struct kc_plan_tensor *t = KC_AT(r->shard, struct kc_plan_tensor, r->shard->tensors);
    size_t n = 0;
    for (uint32_t i = 0; i < r->shard->tensors.count; i++) {
        if (t[i].role != KC_PARAMETER)
            continue;
        size_t count = t[i].local[0] * (t[i].rank > 1 ? t[i].local[1] : 1);
        for (size_t k = 0; k < count; k++)
            out[n++] = parameter_at(r, (uint32_t)t[i].bucket, t[i].offset + k);
    }
    return n;
}

#define STEPS 4
#define ROOM  4096
struct result {
    double loss[STEPS];
    float values[ROOM];
    size_t count;
    double norm;
};

static void train_layout(struct toy_shape s, uint32_t threads, struct result *out)
{
    struct job *j = malloc(sizeof *j);
    job_make(j, s, threads, 1.0);
    job_train(j, STEPS, out->loss);
    out->count = parameters(&j->rank[0], out->values);
    out->norm = j->rank[0].run.grad_norm;
    for (uint32_t i = 1; i < s.ranks; i++) { /* replicas are equal */
        float *other = malloc(sizeof out->values);
        ck_assert_uint_eq(parameters(&j->rank[i], other), out->count);
        ck_assert_mem_eq(other, out->values, out->count * 4);
        free(other);
    }
    job_free(j);
    free(j);
}

/* ---- who looks on ---- */

#define SHOWN_MOST 4096
struct watcher {
    struct kc_trace_if offer;
    uint32_t asked;
    _Atomic uint8_t shown[SHOWN_MOST][8]; /* by instruction and operand */
};

static bool watcher_wants(void *self, uint32_t program, uint64_t step)
{
    ((struct watcher *)self)->asked++;
    return program == KC_PROGRAM_TRAIN && step == 2;
}

static void watcher_seen(void *self, uint32_t n, uint32_t operand, const void *data)
{
    struct watcher *w = self;
    if (!data || n >= SHOWN_MOST || operand >= 8) /* Check allocates and is not for threads */
        abort();
    w->shown[n][operand]++;
}

/* All operands of ops that are there, and what a collective gives: once each. */
static void check_shown(const struct watcher *w, const struct kc_exec_plan *plan)
{
    const struct kc_exec_program *p = &plan->programs[KC_PROGRAM_TRAIN];
    const struct kc_exec_instruction *i = KC_AT(plan, struct kc_exec_instruction, plan->instructions) + p->first;
    for (uint32_t n = 0; n < p->count; n++) {
        const struct kc_exec_ref *refs = KC_AT(plan, struct kc_exec_ref, plan->refs) + i[n].refs;
        for (uint32_t k = 0; k < 8; k++) {
            const bool there = k < (uint32_t)i[n].inputs + i[n].outputs && refs[k].space != KC_SPACE_NONE;
            const bool due = (i[n].kind == KC_I_COMPUTE && there) || (i[n].kind == KC_I_COLLECTIVE && there && k >= i[n].inputs);
            ck_assert_msg(w->shown[n][k] == due, "instruction %u operand %u: %u", n, k, w->shown[n][k]);
        }
    }
}

START_TEST(who_looks_on_sees_each_operand_once_and_changes_nothing)
{
    static const struct toy_shape shapes[] = {
        {.ranks = 2, .zero = 1, .layers = 3, .hidden = 40, .vocab = 7, .context = 5, .micro = 2, .sequences = 8, .latency_ns = 1},
        {.ranks = 2, .zero = 0, .layers = 2, .hidden = 40, .vocab = 7, .context = 5, .micro = 2, .sequences = 8, .latency_ns = 1}};
    for (size_t k = 0; k < 2; k++) {
        struct watcher *w = calloc(2, sizeof *w);
        struct result *alone = malloc(sizeof *alone), *watched = malloc(sizeof *watched);
        train_layout(shapes[k], 2, alone);
        for (int i = 0; i < 2; i++) {
            w[i].offer = (struct kc_trace_if){.self = &w[i], .wants = watcher_wants, .seen = watcher_seen};
            watchers[i] = &w[i].offer;
        }
        train_layout(shapes[k], 2, watched);
        struct job *j = malloc(sizeof *j);
        job_make(j, shapes[k], 1, 1.0);
        for (int i = 0; i < 2; i++) {
            ck_assert_uint_eq(w[i].asked, STEPS); /* once a run */
            check_shown(&w[i], j->rank[i].plan);
            watchers[i] = NULL;
        }
        ck_assert_mem_eq(watched->loss, alone->loss, sizeof alone->loss);
        ck_assert_mem_eq(watched->values, alone->values, alone->count * sizeof *alone->values);
        job_free(j);
        free(j);
        free(w);
        free(alone);
        free(watched);
    }
}
END_TEST

/* ---- what comes out ---- */

/* The model by its formula, in double: mean cross entropy over a batch, logits of row 0. */
static double formula(const struct kc_shard_plan *s, const struct toy_shape *h, double *logits_of_last)
{
    const struct kc_plan_tensor *t = KC_AT(s, struct kc_plan_tensor, s->tensors);
    int32_t wte = -1, w[8], b[8];
    uint32_t layers = 0;
    for (int32_t i = 0; i < (int32_t)s->tensors.count; i++) {
        if (t[i].role != KC_PARAMETER)
            continue;
        if (t[i].rank == 2)
            wte = i;
        else if (strstr(KC_TEXT(s, t[i].name), ".w"))
            w[layers] = i;
        else
            b[layers++] = i;
    }
    double sum = 0;
    for (uint64_t row = 0; row < h->sequences; row++)
        for (uint64_t i = 0; i < h->context; i++) {
            uint64_t q = row * 31 + i * 17, token = q % 7, target = (q / 3 + 1) % 7;
            double z[7], top = -1e30, total = 0;
            for (uint32_t v = 0; v < h->vocab; v++) {
                z[v] = 0;
                for (uint32_t k = 0; k < h->hidden; k++) {
                    double x = (double)start_value(wte, token * h->hidden + k);
                    for (uint32_t l = 0; l < layers; l++)
                        x = x * (1 + (double)start_value(w[l], k)) + (double)start_value(b[l], k);
                    z[v] += x * (double)start_value(wte, v * h->hidden + k);
                }
                top = fmax(top, z[v]);
            }
            for (uint32_t v = 0; v < h->vocab; v++)
                total += exp(z[v] - top);
            sum += top + log(total) - z[target];
            memcpy(logits_of_last, z, sizeof z);
        }
    return sum / (double)(h->sequences * h->context);
}

START_TEST(the_first_loss_is_that_of_the_formula_and_training_lowers_it)
{
    struct job *j = malloc(sizeof *j);
    double losses[20], z[7];
    job_make(j, shape, 1, 0);
    job_train(j, 20, losses);
    double want = formula(j->toy.shard, &shape, z);
    ck_assert_double_eq_tol(losses[0], want, 1e-6 * want);
    ck_assert_double_lt(losses[19], 0.8 * losses[0]);
    /* no clip: gradients are divided by the step's tokens and nothing else */
    ck_assert_double_eq(j->rank[0].run.values.scale, 1.0 / (8 * 5));
    ck_assert_double_eq(j->rank[0].run.agreed[KC_AGREE_TOKENS], 8 * 5);
    job_free(j);
    free(j);
}
END_TEST

START_TEST(clipping_scales_by_the_global_norm)
{
    struct job *j = malloc(sizeof *j);
    double loss;
    job_make(j, shape, 1, 0.01);
    job_train(j, 1, &loss);
    const struct kc_run *run = &j->rank[1].run;
    ck_assert_double_gt(run->grad_norm, 0.01);
    ck_assert_double_eq_tol(run->values.scale * 40, 0.01 / (run->grad_norm + 1e-6), 1e-12);
    ck_assert_double_eq_tol(run->grad_norm, sqrt(run->agreed[KC_AGREE_NORM]) / 40, 1e-12);
    job_free(j);
    free(j);
}
END_TEST

START_TEST(F43_F44_every_layout_gives_the_same_losses_norms_and_parameters)
{
    static struct result first, other;
    struct toy_shape s = shape;
    s.ranks = 1, s.zero = 0, s.micro = 8;
    train_layout(s, 1, &first);
    const uint32_t layouts[][3] = {{1, 1, 8}, {1, 0, 2}, {2, 0, 4}, {2, 1, 4},
                                   {2, 1, 1}, {4, 0, 2}, {4, 1, 2}, {4, 1, 1}};
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        s.ranks = layouts[i][0], s.zero = layouts[i][1], s.micro = layouts[i][2];
        train_layout(s, 1, &other);
        for (int k = 0; k < STEPS; k++)
            ck_assert_double_eq_tol(other.loss[k], first.loss[k], 1e-5 * first.loss[k]);
        ck_assert_double_eq_tol(other.norm, first.norm, 1e-4 * first.norm);
        for (size_t n = 0; n < first.count; n++)
            ck_assert_float_eq_tol(other.values[n], first.values[n], 2e-3f);
    }
}
END_TEST

START_TEST(zero_one_and_thread_count_change_no_bit)
{
    static struct result first, other;
    struct toy_shape s = shape;
    train_layout(s, 1, &first);
    for (uint32_t threads = 1; threads <= 3; threads++)
        for (uint32_t zero = 0; zero < 2; zero++) {
            s.zero = zero;
            train_layout(s, threads, &other);
            ck_assert_mem_eq(other.loss, first.loss, sizeof first.loss);
            ck_assert_mem_eq(other.values, first.values, first.count * 4);
        }
}
END_TEST

/* Nobody enqueues behind the last op of a program, who could be told. */
START_TEST(an_op_that_fails_on_the_lane_fails_its_own_program)
{
    struct job *j = malloc(sizeof *j);
    struct toy_shape one = shape;
    one.ranks = 1;
    job_make(j, one, 1, 1);
    struct rank *r = &j->rank[0];
    r->run.values = (struct kc_step_values){.evaluate = 1, .rows = one.micro};
    kc_executor_clear(r->executor);
    ck_assert_int_eq(kc_executor_run(r->executor, KC_PROGRAM_EVALUATE, &r->run, &r->e), 0);
    r->toy.fails_late = true;
    ck_assert_int_eq(kc_executor_run(r->executor, KC_PROGRAM_EVALUATE, &r->run, &r->e), -EIO);
    ck_assert_str_eq(r->e.text, "the library failed in a product");
    job_free(j);
    free(j);
}
END_TEST

/* Masters in f32 and what ops read in bf16: training goes as in fp32 within its rounding, and nothing of how the state is
 * spread changes a bit. */
START_TEST(bf16_trains_from_masters_on_every_layout)
{
    static struct result full, first, other;
    struct toy_shape s = shape;
    train_layout(s, 1, &full);
    s.precision = KC_PRECISION_BF16;
    train_layout(s, 1, &first);
    for (int k = 0; k < STEPS; k++)
        ck_assert_double_eq_tol(first.loss[k], full.loss[k], 0.02 * full.loss[k]);
    ck_assert(first.loss[STEPS - 1] != full.loss[STEPS - 1]); /* and it was not fp32 */
    for (uint32_t zero = 0; zero < 2; zero++)
        for (uint32_t threads = 1; threads <= 3; threads += 2) {
            s.zero = zero;
            train_layout(s, threads, &other);
            ck_assert_mem_eq(other.loss, first.loss, sizeof first.loss);
            ck_assert_mem_eq(other.values, first.values, first.count * 4);
        }
    s.ranks = 4, s.micro = 1, s.zero = 1;
    train_layout(s, 1, &other);
    for (int k = 0; k < STEPS; k++)
        ck_assert_double_eq_tol(other.loss[k], first.loss[k], 0.01 * first.loss[k]);
}
END_TEST

/* A step far smaller than half a unit of bf16: without masters nothing would ever move. */
START_TEST(masters_keep_what_rounding_would_lose)
{
    enum { N = 32 };
    struct job *j = malloc(sizeof *j);
    struct toy_shape s = shape;
    double loss;
    float before[N];
    s.precision = KC_PRECISION_BF16, s.zero = 0;
    job_make(j, s, 1, 1);
    j->lr = 1e-6;
    const float *masters = j->rank[0].data[KC_STATE_MASTER][0];
    memcpy(before, masters, sizeof before);
    job_train(j, 1, &loss);
    int moved = 0, stayed = 0;
    for (int i = 0; i < N; i++) {
        moved += masters[i] != before[i];
        stayed += parameter_at(&j->rank[0], 0, (uint64_t)i) == kc_bf16_to_float(kc_bf16_from_float(before[i]));
    }
    ck_assert_int_eq(moved, N);
    ck_assert_int_ge(stayed, N - 2); /* one may have stood at the border */
    job_free(j);
    free(j);
}
END_TEST

START_TEST(reductions_run_while_backward_goes_on)
{
    /* The first reduction ends only when the last op of backward has run: a schedule that waited for it would stand
     * still. */
    struct job *j = malloc(sizeof *j);
    double loss;
    struct toy_shape s = shape;
    s.hidden = 20000, s.context = 1, s.sequences = 4;
    job_make(j, s, 1, 1);
    ck_assert_uint_gt(j->toy.shard->buckets.count, 1);
    free(j->world.sum);
    j->world.sum = malloc(4u << 20);
    for (int i = 0; i < 2; i++)
        j->rank[i].hold_until_ran = TOY_EMBED_W;
    job_train(j, 1, &loss);
    job_free(j);
    free(j);
}
END_TEST

START_TEST(evaluation_sums_over_runs_and_ranks_and_changes_nothing)
{
    struct job *j = malloc(sizeof *j);
    static float before[ROOM], after[ROOM];
    double z[7];
    job_make(j, shape, 1, 1);
    size_t n = parameters(&j->rank[0], before);
    for (int i = 0; i < 2; i++)
        kc_executor_clear(j->rank[i].executor);
    job_run(j, KC_PROGRAM_EVALUATE, 0); /* rows 0–3; a run is one micro-batch a rank */
    job_run(j, KC_PROGRAM_EVALUATE, 0);
    job_run(j, KC_PROGRAM_AGREE, 0);
    ck_assert_double_eq(j->rank[1].run.agreed[KC_AGREE_TOKENS], 2 * 4 * 5);
    struct toy_shape half = shape;
    half.sequences = 4;
    double want = formula(j->toy.shard, &half, z);
    ck_assert_double_eq_tol(j->rank[1].run.loss, want, 1e-6 * want);
    parameters(&j->rank[0], after);
    ck_assert_mem_eq(before, after, n * 4);
    job_free(j);
    free(j);
}
END_TEST

START_TEST(forward_leaves_logits_of_the_tokens_that_were_given)
{
    struct job *j = malloc(sizeof *j);
    struct toy_shape s = shape;
    double z[7];
    s.ranks = 1, s.micro = 1, s.sequences = 1;
    job_make(j, s, 1, 1);
    int32_t *tokens = kc_executor_tokens(j->rank[0].executor);
    for (uint64_t i = 0; i < s.context; i++)
        tokens[i] = (int32_t)(i * 17 % 7); /* row 0 of the loader */
    kc_executor_clear(j->rank[0].executor);
    job_run(j, KC_PROGRAM_FORWARD, 0);
    ck_assert_int_eq(j->rank[0].code, 0);
    formula(j->toy.shard, &s, z);
    float logits[16];
    ck_assert_uint_le(s.vocab, 16);
    kc_executor_logits(j->rank[0].executor, s.context - 1, logits);
    for (uint32_t v = 0; v < s.vocab; v++)
        ck_assert_double_eq_tol((double)logits[v], z[v], 1e-4);
    job_run(j, KC_PROGRAM_AGREE, 0);
    ck_assert_double_eq(j->rank[0].run.agreed[KC_AGREE_TOKENS], 0); /* all targets were masked */
    job_free(j);
    free(j);
}
END_TEST

START_TEST(F13_control_and_stop_votes_are_agreed_in_band)
{
    struct job *j = malloc(sizeof *j);
    job_make(j, shape, 1, 1);
    j->rank[0].run.control = 12345, j->rank[1].run.control = 99; /* only rank 0's counts */
    j->rank[1].run.stop_vote = j->rank[1].run.background = 1;
    j->rank[0].run.replica_digest = j->rank[1].run.replica_digest = 7;
    const enum kc_program_id programs[] = {KC_PROGRAM_TRAIN, KC_PROGRAM_AGREE};
    for (int p = 0; p < 2; p++) {
        job_run(j, programs[p], 0);
        for (int i = 0; i < 2; i++) {
            ck_assert_double_eq(j->rank[i].run.agreed[KC_AGREE_CONTROL], 12345);
            ck_assert_double_eq(j->rank[i].run.agreed[KC_AGREE_STOP], 1);
            ck_assert_double_eq(j->rank[i].run.agreed[KC_AGREE_BACKGROUND], 1);
            ck_assert_double_eq(j->rank[i].run.agreed[KC_AGREE_DIGEST], 14);
        }
    }
    job_free(j);
    free(j);
}
END_TEST

START_TEST(digests_that_differ_are_named_with_their_rank)
{
    struct job *j = malloc(sizeof *j);
    struct toy_shape s = shape;
    s.ranks = 4;
    job_make(j, s, 1, 1);
    job_run(j, KC_PROGRAM_DIGEST, 0);
    ck_assert_msg(j->rank[3].code == 0, "%s", j->rank[3].e.text);
    j->rank[2].executor->c.digest[KC_DIGEST_SPEC] = 5;
    job_run(j, KC_PROGRAM_DIGEST, 0);
    for (int i = 0; i < 4; i++) {
        ck_assert_int_eq(j->rank[i].code, -EILSEQ);
        ck_assert_ptr_nonnull(strstr(j->rank[i].e.text, "rank 0 holds another job_spec than rank 2"));
    }
    job_free(j);
    free(j);
}
END_TEST

START_TEST(storage_programs_run_their_verbs_in_order_and_end_at_an_agreed_failure)
{
    struct job *j = malloc(sizeof *j);
    job_make(j, shape, 1, 1);
    for (int p = KC_PROGRAM_SNAPSHOT_BEGIN; p <= KC_PROGRAM_SNAPSHOT_COMMITTED; p++)
        job_run(j, (enum kc_program_id)p, 0);
    ck_assert_str_eq(j->rank[1].verbs, "begin store-agree mark copied root-close write written commit committed store-agree ");
    ck_assert_uint_eq(j->rank[1].store[0], 1); /* set by the last verb; the sum before it was 2 */
    j->rank[0].verbs[0] = j->rank[1].verbs[0] = 0;
    job_run(j, KC_PROGRAM_RESTORE, 0);
    ck_assert_str_eq(j->rank[1].verbs, "read store-agree root-part restore-close ");
    for (int i = 0; i < 2; i++)
        j->rank[i].fail_verb = KC_VERB_ROOT_CLOSE;
    j->rank[0].world->aborted = false;
    job_run(j, KC_PROGRAM_ROOT, 0);
    ck_assert_int_eq(j->rank[0].code, -EIO);
    ck_assert_ptr_nonnull(strstr(j->rank[0].e.text, "disk full"));
    j->world.aborted = false;
    job_run(j, KC_PROGRAM_AGREE, 0); /* all failed alike: the next program runs */
    ck_assert_msg(j->rank[0].code == 0, "%s", j->rank[0].e.text);
    job_free(j);
    free(j);
}
END_TEST

/* ---- faults ---- */

/* Why a step was not finite, on all ranks at once. */
struct question {
    struct rank *rank;
    struct kc_suspect why;
    bool look_again;
};

static void *ask(void *argument)
{
    struct question *q = argument;
    q->rank->code = kc_executor_find_nonfinite(q->rank->executor, &q->rank->run, q->look_again, &q->why, &q->rank->e);
    return NULL;
}

static void job_ask(struct job *j, bool look_again, struct question *q)
{
    pthread_t thread[RANKS];
    for (uint32_t i = 0; i < j->world.ranks; i++) {
        q[i] = (struct question){.rank = &j->rank[i], .look_again = look_again};
        pthread_create(&thread[i], NULL, ask, &q[i]);
    }
    for (uint32_t i = 0; i < j->world.ranks; i++) {
        pthread_join(thread[i], NULL);
        ck_assert_msg(j->rank[i].code == 0, "%s", j->rank[i].e.text);
    }
}

/* A rank's op makes a weight's gradient of finite values not a number: it is found before it is added to others', and where it
 * was made by running the step once more. */
START_TEST(F47_a_value_that_is_not_finite_is_named_with_rank_step_tensor_and_op)
{
    struct job *j = malloc(sizeof *j);
    static float before[ROOM], after[ROOM];
    struct question q[RANKS];
    job_make(j, shape, 1, 1);
    double loss;
    job_train(j, 1, &loss);
    size_t n = parameters(&j->rank[0], before);
    j->rank[1].toy.poison_at = 1;
    job_run(j, KC_PROGRAM_TRAIN, 1);
    const struct kc_run was = j->rank[0].run;
    for (int i = 0; i < 2; i++)
        ck_assert_msg(j->rank[i].code == 0 && j->rank[i].run.skipped && j->rank[i].run.nonfinite.ranks == 1 &&
                      j->rank[i].run.nonfinite.rank == 1, "%s", j->rank[i].e.text);
    job_ask(j, false, q); /* by the sums alone */
    for (int i = 0; i < 2; i++) {
        ck_assert_str_eq(q[i].why.text, "step 2: rank 1 has a value that is not finite in the gradient of h.2.w (bucket 0), "
                                        "before the reduction");
        ck_assert_int_eq(q[i].why.rank, 1);
        ck_assert_uint_eq(q[i].why.origins, 0);
    }
    job_ask(j, true, q);
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(q[i].why.rank, 1);
        ck_assert_uint_eq(q[i].why.origins, 2);
        ck_assert_mem_eq(&j->rank[i].run.nonfinite, &was.nonfinite, offsetof(struct kc_nonfinite, own));
        ck_assert_mem_eq(j->rank[i].run.agreed, was.agreed, sizeof was.agreed); /* of the step, not of its second run */
    }
    ck_assert_str_eq(q[0].why.text, "step 2: rank 1 made a value that is not finite of finite ones");
    ck_assert_msg(strstr(q[1].why.text, "step 2: rank 1: affine") && strstr(q[1].why.text, " of layer 2 made NaN of finite values "
                  "in micro-batch 0, in the gradient of h.2.w at ["), "%s", q[1].why.text);
    ck_assert_str_eq(q[1].why.seen, "; seen in the gradient of h.2.w (bucket 0) before its reduction");
    ck_assert_str_eq(q[0].why.seen, "");
    parameters(&j->rank[0], after); /* F46: nothing was updated */
    ck_assert_mem_eq(before, after, n * 4);
    job_run(j, KC_PROGRAM_AGREE, 0); /* and a snapshot or a stop can still be agreed on */
    ck_assert_int_eq(j->rank[0].code, 0);
    j->rank[0].toy.poison_at = 1;
    job_run(j, KC_PROGRAM_TRAIN, 1);
    job_ask(j, false, q);
    ck_assert_ptr_nonnull(strstr(q[0].why.text, "step 2: 2 ranks have values that are not finite, rank 0 in the gradient of h.2.w"));
    ck_assert_int_eq(q[0].why.rank, -1);
    job_ask(j, true, q);
    ck_assert_uint_eq(q[0].why.origins, 3);
    ck_assert_int_eq(q[1].why.rank, 0);
    ck_assert_ptr_nonnull(strstr(q[0].why.text, "step 2: rank 0: affine"));
    ck_assert_ptr_nonnull(strstr(q[1].why.text, "step 2: rank 1: affine"));
    job_free(j);
    free(j);
}
END_TEST

/* The same numbers would come again. */
START_TEST(F47_what_does_not_come_again_is_the_machine)
{
    struct job *j = malloc(sizeof *j);
    struct question q[RANKS];
    job_make(j, shape, 1, 1);
    j->rank[1].toy.poison_at = 1;
    job_run(j, KC_PROGRAM_TRAIN, 1);
    j->rank[1].toy.poison_at = -1;
    job_ask(j, true, q);
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(q[i].why.rank, 1);
        ck_assert_uint_eq(q[i].why.origins, 0);
        ck_assert_ptr_nonnull(strstr(q[i].why.text, "rank 1 has a value that is not finite in the gradient of h.2.w"));
        ck_assert_ptr_nonnull(strstr(q[i].why.text, "it did not come again when the step was run once more"));
    }
    job_free(j);
    free(j);
}
END_TEST

/* Its weights are spoilt: no op is to blame. */
START_TEST(F47_a_parameter_that_is_not_finite_is_named)
{
    struct job *j = malloc(sizeof *j);
    struct question q[RANKS];
    job_make(j, shape, 1, 1);
    j->rank[0].data[KC_STATE_PARAMETER][0][5] = INFINITY;
    job_run(j, KC_PROGRAM_TRAIN, 0);
    job_ask(j, true, q);
    ck_assert_uint_eq(q[0].why.origins, 1); /* 1 gathered it from there */
    ck_assert_msg(strstr(q[0].why.text, "step 1: rank 0: the parameter ") && strstr(q[0].why.text, " is inf at ["), "%s",
                  q[0].why.text);
    job_free(j);
    free(j);
}
END_TEST

START_TEST(F47_a_rank_that_is_alone_names_it_too)
{
    struct job *j = malloc(sizeof *j);
    struct question q[RANKS];
    struct toy_shape one = shape;
    one.ranks = 1;
    job_make(j, one, 1, 1);
    j->rank[0].toy.poison_at = 1;
    job_run(j, KC_PROGRAM_TRAIN, 1);
    job_ask(j, false, q);
    ck_assert_ptr_nonnull(strstr(q[0].why.text, "the sum of finite gradients or losses is not finite"));
    job_ask(j, true, q);
    ck_assert_msg(strstr(q[0].why.text, "rank 0: affine") && strstr(q[0].why.text, "in the gradient of h.2.w at ["), "%s", q[0].why.text);
    job_free(j);
    free(j);
}
END_TEST

START_TEST(a_step_that_is_not_finite_is_left_out)
{
    struct job *j = malloc(sizeof *j);
    static float before[ROOM], after[ROOM];
    job_make(j, shape, 2, 1);
    double loss;
    job_train(j, 1, &loss);
    size_t n = parameters(&j->rank[0], before);
    j->rank[0].toy.poison_at = 1;
    job_run(j, KC_PROGRAM_TRAIN, 1);
    for (int i = 0; i < 2; i++) {
        ck_assert_msg(j->rank[i].code == 0 && j->rank[i].run.skipped, "%s", j->rank[i].e.text);
        parameters(&j->rank[i], after);
        ck_assert_mem_eq(before, after, n * 4);
    }
    job_run(j, KC_PROGRAM_TRAIN, 2);
    ck_assert_int_eq(j->rank[1].code, 0);
    ck_assert(!j->rank[1].run.skipped);
    parameters(&j->rank[1], after);
    ck_assert(memcmp(before, after, n * 4) != 0);
    job_free(j);
    free(j);
}
END_TEST

START_TEST(an_error_of_the_communication_lane_ends_the_program)
{
    struct job *j = malloc(sizeof *j);
    job_make(j, shape, 2, 1);
    j->rank[1].fail_collective = 1;
    job_run(j, KC_PROGRAM_TRAIN, 0);
    ck_assert_int_eq(j->rank[1].code, -EPROTO);
    ck_assert_str_eq(j->rank[1].e.text, "signatures differ");
    ck_assert_int_eq(j->rank[0].code, -ESHUTDOWN); /* its peer, by the abort */
    job_run(j, KC_PROGRAM_AGREE, 0);
    ck_assert_int_eq(j->rank[1].code, -ESHUTDOWN); /* nothing runs after that */
    job_free(j);
    free(j);
}
END_TEST

START_TEST(F11_an_error_of_the_compute_lane_does_not_wait_for_communication)
{
    struct job *j = malloc(sizeof *j);
    job_make(j, shape, 1, 1);
    j->rank[0].toy.fail_at = 0, j->rank[0].toy.fail_op = TOY_LOAD;
    job_run(j, KC_PROGRAM_TRAIN, 0);
    ck_assert_int_eq(j->rank[0].code, -EIO);
    ck_assert_str_eq(j->rank[0].e.text, "load, layer -1, micro-batch 0: train.bin shrank");
    ck_assert_int_eq(j->rank[1].code, -ESHUTDOWN);
    job_free(j);
    free(j);
}
END_TEST

START_TEST(F11_an_error_of_the_compute_lane_leaves_a_collective_that_stands_still)
{
    struct job *j = malloc(sizeof *j);
    struct toy_shape s = shape;
    s.ranks = 1, s.sequences = 2, s.hidden = 20000, s.context = 1; /* several buckets */
    job_make(j, s, 1, 1);
    struct rank *r = &j->rank[0];
    r->hold_until_ran = TOY_UPDATE; /* the first reduction can only be ended by an abort */
    r->toy.fail_at = 0, r->toy.fail_op = TOY_EMBED_W;
    r->toy.fail_after = &r->executor->in_flight; /* the reduction stands before compute fails */
    r->run.values.step = 0;
    r->code = kc_executor_run(r->executor, KC_PROGRAM_TRAIN, &r->run, &r->e); /* comes back without it */
    ck_assert_int_eq(r->code, -EIO);
    ck_assert_int_eq(kc_executor_run(r->executor, KC_PROGRAM_AGREE, &r->run, &r->e), -ESHUTDOWN);
    job_free(j); /* aborts, then frees */
    free(j);
}
END_TEST

static void *abort_soon(void *argument)
{
    struct job *j = argument;
    while (!atomic_load(&j->rank[0].executor->in_flight))
        sched_yield();
    world_abort(&j->world);
    return NULL;
}

START_TEST(F10_an_abort_wakes_both_lanes)
{
    struct job *j = malloc(sizeof *j);
    job_make(j, shape, 2, 1);
    pthread_t t;
    pthread_create(&t, NULL, abort_soon, j);
    struct order o = {j, &j->rank[0], KC_PROGRAM_TRAIN, 0}; /* rank 1 never comes */
    rank_main(&o);
    pthread_join(t, NULL);
    ck_assert_int_eq(j->rank[0].code, -ESHUTDOWN);
    job_free(j);
    free(j);
}
END_TEST

START_TEST(a_table_without_an_opcode_of_the_plan_is_refused)
{
    struct job *j = malloc(sizeof *j);
    job_make(j, shape, 1, 1);
    struct kc_executor_config c = j->rank[0].executor->c;
    struct kc_op_table short_table = j->rank[0].table;
    short_table.count = TOY_NORM;
    c.ops = &short_table;
    struct kc_executor *x = NULL;
    struct kc_error e = {""};
    ck_assert_int_eq(kc_executor_new(&c, &x, &e), -EINVAL);
    ck_assert_ptr_null(x);
    ck_assert_ptr_nonnull(strstr(e.text, "has no opcode"));
    job_free(j);
    free(j);
}
END_TEST

/* ---- cost ---- */

START_TEST(a_step_allocates_nothing)
{
#if COUNTS_ALLOCATIONS
    struct job *j = malloc(sizeof *j);
    struct toy_shape s = shape;
    s.ranks = 1, s.sequences = 4;
    job_make(j, s, 2, 1);
    struct order o = {j, &j->rank[0], KC_PROGRAM_TRAIN, 0};
    rank_main(&o);
    uint64_t before = atomic_load(&allocations);
    for (o.step = 1; o.step < 50; o.step++)
        rank_main(&o);
    uint64_t after = atomic_load(&allocations);
    ck_assert_int_eq(j->rank[0].code, 0);
    ck_assert_uint_gt(before, 0);
    ck_assert_uint_eq(after, before);
    job_free(j);
    free(j);
#endif
}
END_TEST

START_TEST(the_time_of_a_step_is_told_in_parts_that_sum_up)
{
    struct job *j = malloc(sizeof *j);
    struct toy_shape s = shape;
    s.hidden = 4000;
    job_make(j, s, 1, 1);
    uint64_t from = kc_now();
    job_run(j, KC_PROGRAM_TRAIN, 0);
    double wall = (double)(kc_now() - from) / 1e9, sum = 0;
    for (int p = 0; p < KC_PARTS; p++) {
        ck_assert_double_ge(j->rank[0].run.seconds[p], 0);
        sum += j->rank[0].run.seconds[p];
    }
    ck_assert_double_gt(j->rank[0].run.seconds[KC_PART_FORWARD], 0);
    ck_assert_double_gt(j->rank[0].run.seconds[KC_PART_BACKWARD], 0);
    ck_assert_double_gt(j->rank[0].run.seconds[KC_PART_OPTIMIZER], 0);
    ck_assert_double_le(sum, wall);
    job_free(j);
    free(j);
}
END_TEST

/* The trace of a lane: every instruction of it once a step, as they stand in the program, one after the other. Adds
 * up the time of each part in the last step, with the gaps as communication. */
static void check_trace(const struct rank *r, const struct kc_reader *reader, uint32_t lane, uint32_t steps,
                        uint64_t part[KC_PARTS])
{
    static struct kc_trace_seen t[KC_TRACE_COMPUTE];
    const struct kc_exec_program *p = &r->plan->programs[KC_PROGRAM_TRAIN];
    const struct kc_exec_instruction *ins =
        KC_AT(r->plan, struct kc_exec_instruction, r->plan->instructions) + p->first;
    uint64_t cursor = 0, lost = 0, before = 0;
    int count = kc_reader_trace(reader, r->number, lane, &cursor, t, KC_TRACE_COMPUTE, &lost), at = 0;
    for (uint32_t s = 1; s <= steps; s++)
        for (uint32_t n = 0; n < p->count; n++) {
            if (ins[n].lane != lane)
                continue;
            ck_assert_int_lt(at, count);
            ck_assert_uint_eq(t[at].place, KC_TRACE_PLACE(KC_PROGRAM_TRAIN, n));
            ck_assert_uint_eq(t[at].step, s);
            ck_assert(before <= t[at].begin && t[at].begin <= t[at].end);
            if (s == steps) {
                part[ins[n].part] += t[at].end - t[at].begin;
                part[KC_PART_COMM] += n == 0 ? 0 : t[at].begin - before;
            }
            before = t[at++].end;
        }
    ck_assert_int_eq(at, count);
    ck_assert_uint_eq(lost, 0);
}

/* F28: a rank's last words say in which phase it failed. */
START_TEST(a_step_that_fails_ends_in_its_phase)
{
    struct job *j = malloc(sizeof *j);
    struct kc_reader *reader = NULL;
    struct kc_rank_view v;
    ck_assert_int_eq(kc_probe_private(2, probes, NULL), 0);
    ck_assert_int_eq(kc_reader_of_probe(probes[0], &reader, NULL), 0);
    job_make(j, shape, 1, 1);
    j->rank[0].toy.fail_at = 0, j->rank[0].toy.fail_op = TOY_LOAD;
    job_run(j, KC_PROGRAM_TRAIN, 0);
    ck_assert_int_eq(j->rank[0].code, -EIO);
    ck_assert_int_eq(kc_reader_rank(reader, 0, &v), 0);
    ck_assert_str_eq(kc_phase_name[v.phase], kc_phase_name[KC_PHASE_DATA]);
    job_free(j);
    free(j);
    kc_reader_free(reader);
    kc_probe_free(probes[0]);
    kc_probe_free(probes[1]);
    probes[0] = probes[1] = NULL;
}
END_TEST

START_TEST(every_instruction_leaves_a_record_and_they_sum_up_to_the_parts)
{
    struct job *j = malloc(sizeof *j);
    struct kc_reader *reader = NULL;
    double losses[2];
    ck_assert_int_eq(kc_probe_private(2, probes, NULL), 0);
    ck_assert_int_eq(kc_reader_of_probe(probes[0], &reader, NULL), 0);
    job_make(j, shape, 1, 1);
    job_train(j, 2, losses);
    for (uint32_t i = 0; i < 2; i++) {
        uint64_t part[KC_PARTS] = {0}, comm[KC_PARTS] = {0};
        check_trace(&j->rank[i], reader, KC_LANE_COMPUTE, 2, part);
        check_trace(&j->rank[i], reader, KC_LANE_COMM, 2, comm);
        const struct kc_run *run = &j->rank[i].run; /* what it waited for others is part of what nothing hid */
        ck_assert_double_ge(run->waited, 0);
        ck_assert_double_le(run->waited, run->seconds[KC_PART_COMM] + 1e-9);
        for (int p = 0; p < KC_PARTS; p++) /* one measurement: equal but for the rounding of a double */
            ck_assert_double_eq_tol(j->rank[i].run.seconds[p], (double)part[p] / 1e9, 1e-9);
        ck_assert_uint_gt(comm[KC_PART_COMM], 0);
    }
    job_free(j);
    free(j);
    kc_reader_free(reader);
    kc_probe_free(probes[0]);
    kc_probe_free(probes[1]);
}
END_TEST

/* The newest record of the one instruction of a kind on a lane. */
static struct kc_trace_seen newest_of(const struct rank *r, const struct kc_reader *reader, uint32_t lane,
                                      const struct kc_exec_instruction *i)
{
    static struct kc_trace_seen t[KC_TRACE_COMPUTE];
    uint64_t cursor = 0;
    uint32_t n = (uint32_t)(i - KC_AT(r->plan, struct kc_exec_instruction, r->plan->instructions)) -
                 r->plan->programs[KC_PROGRAM_TRAIN].first;
    int count = kc_reader_trace(reader, r->number, lane, &cursor, t, KC_TRACE_COMPUTE, NULL);
    while (count-- > 0)
        if (KC_TRACE_INDEX(t[count].place) == n)
            return t[count];
    ck_abort_msg("instruction %u has no record", n);
    return t[0];
}

START_TEST(what_a_lane_waits_is_no_time_of_the_instruction_after_it)
{
    struct job *j = malloc(sizeof *j);
    struct kc_reader *reader = NULL;
    const struct kc_exec_instruction *sum = NULL, *agree = NULL;
    double loss;
    ck_assert_int_eq(kc_probe_private(2, probes, NULL), 0);
    ck_assert_int_eq(kc_reader_of_probe(probes[0], &reader, NULL), 0);
    job_make(j, shape, 1, 1);
    j->rank[0].until_waits = j->rank[1].until_waits = reader;
    job_train(j, 1, &loss);
    for (uint32_t k = 0; k < 2; k++) {
        const struct rank *r = &j->rank[k];
        const struct kc_exec_program *p = &r->plan->programs[KC_PROGRAM_TRAIN];
        const struct kc_exec_instruction *ins =
            KC_AT(r->plan, struct kc_exec_instruction, r->plan->instructions) + p->first;
        for (uint32_t n = 0; n < p->count; n++) {
            if (ins[n].kind == KC_I_COLLECTIVE && !agree) /* the last collective before the agreement is read */
                sum = &ins[n];
            agree = ins[n].kind == KC_I_AGREE ? &ins[n] : agree;
        }
        struct kc_trace_seen s = newest_of(r, reader, KC_LANE_COMM, sum),
                             a = newest_of(r, reader, KC_LANE_COMPUTE, agree);
        ck_assert_uint_ge(a.begin, s.end);
        sum = agree = NULL;
    }
    job_free(j);
    free(j);
    kc_reader_free(reader);
    kc_probe_free(probes[0]);
    kc_probe_free(probes[1]);
}
END_TEST

/* ---- small parts ---- */

START_TEST(values_that_are_not_finite_are_found_at_every_place)
{
    enum { N = 2100 };
    float *v = malloc(N * sizeof *v);
    const float bad[] = {NAN, INFINITY, -INFINITY, -NAN};
    for (int i = 0; i < N; i++)
        v[i] = i % 3 == 0 ? 3.4028235e38f : i % 3 == 1 ? -1e-45f : 0; /* the largest, a subnormal, zero */
    ck_assert_int_eq(kc_find_nonfinite(v, N), -1);
    for (int i = 0; i < N; i += 7) {
        float old = v[i];
        v[i] = bad[i % 4];
        ck_assert_int_eq(kc_find_nonfinite(v, N), i);
        ck_assert_int_eq(kc_find_nonfinite(v, (uint64_t)i), -1);
        v[i] = old;
    }
    free(v);
}
END_TEST

START_TEST(the_nonfinite_word_counts_ranks_and_names_a_single_one)
{
    uint32_t ranks, rank;
    int64_t where;
    kc_nonfinite_decode(kc_nonfinite_encode(3, -1) + kc_nonfinite_encode(63, 100000), &ranks, &rank, &where);
    ck_assert_uint_eq(ranks, 1);
    ck_assert_uint_eq(rank, 63);
    ck_assert_int_eq(where, 100000);
    kc_nonfinite_decode(kc_nonfinite_encode(2, -2), &ranks, &rank, &where); /* the loss */
    ck_assert_uint_eq(ranks, 1);
    ck_assert_int_eq(where, -2);
    double sum = 0;
    for (uint32_t r = 0; r < KC_RANKS_MAX; r++)
        sum += kc_nonfinite_encode(r, 1000000);
    kc_nonfinite_decode(sum, &ranks, &rank, &where);
    ck_assert_uint_eq(ranks, 64);
}
END_TEST

struct tiles {
    _Atomic uint32_t *ran;
    uint32_t workers;
    _Atomic uint32_t *strays;
};

static void count_tile(void *argument, uint32_t index, uint32_t worker)
{
    struct tiles *t = argument;
    atomic_fetch_add(&t->ran[index], 1);
    if (worker >= t->workers)
        atomic_fetch_add(t->strays, 1);
}

START_TEST(a_team_runs_every_tile_once)
{
    enum { GRIDS = 3000, TILES = 37 };
    for (uint32_t threads = 1; threads <= 4; threads++) {
        struct kc_team *team = NULL;
        ck_assert_int_eq(kc_team_new(threads, threads % 2 ? 200 : 0, NULL, &team), 0);
        static _Atomic uint32_t ran[TILES], strays;
        memset((void *)ran, 0, sizeof ran);
        struct tiles t = {ran, threads, &strays};
        struct kc_lane *lane = kc_team_lane(team);
        for (uint32_t g = 0; g < GRIDS; g++)
            ck_assert_int_eq(lane->enqueue(lane, count_tile, &t, sizeof t, g % (TILES + 1)), 0);
        for (uint32_t i = 0; i < TILES; i++) {
            uint32_t want = 0;
            for (uint32_t g = 0; g < GRIDS; g++)
                want += i < g % (TILES + 1);
            ck_assert_uint_eq(ran[i], want);
        }
        ck_assert_uint_eq(strays, 0);
        char large[KC_LANE_ARG_MAX + 1];
        ck_assert_int_eq(lane->enqueue(lane, count_tile, large, sizeof large, 1), -EINVAL);
        kc_team_free(team);
    }
}
END_TEST

/* The sleeper's own count of the times it gave up its core. */
struct sleeper {
    struct kc_progress_word word;
    _Atomic bool sleeps;
    long switches;
};

static void *sleep_for_the_last(void *argument)
{
    struct sleeper *s = argument;
    struct rusage before, after;
    getrusage(RUSAGE_THREAD, &before);
    atomic_store(&s->sleeps, true);
    kc_progress_sleep(&s->word, 1000);
    getrusage(RUSAGE_THREAD, &after);
    s->switches = after.ru_nvcsw - before.ru_nvcsw;
    return NULL;
}

START_TEST(a_sleeper_is_woken_by_what_it_sleeps_for_alone)
{
    struct sleeper s = {0};
    pthread_t thread;
    ck_assert_int_eq(pthread_create(&thread, NULL, sleep_for_the_last, &s), 0);
    while (!atomic_load(&s.sleeps) || !atomic_load(&s.word.sleepers))
        sched_yield();
    for (uint32_t n = 1; n <= 1000; n++) {
        kc_progress_set(&s.word, n);
        for (int i = 0; i < 20; i++) /* room for a thread that was woken to go to sleep again */
            sched_yield();
    }
    pthread_join(thread, NULL);
    ck_assert_int_lt(s.switches, 100); /* once, and once for every 200 ms that this took */
}
END_TEST

START_TEST(progress_numbers_wrap)
{
    /* round 2^31 - 1, then 0, 1: a busy team comes there in a day */
    ck_assert(kc_progress_is(5, 5));
    ck_assert(!kc_progress_is(5, 6));
    ck_assert(kc_progress_is(0, 0x7fffffff));
    ck_assert(!kc_progress_is(0x7fffffff, 0));
    ck_assert(!kc_progress_is(0x7fffffff, 0x80000000u)); /* the number behind it, before it is cut */
    ck_assert(kc_progress_is(PROGRESS_FAILED | 1, 1000));
}
END_TEST

int main(void)
{
    Suite *s = suite_create("executor");
    TCase *t = tcase_create("training");
    tcase_set_timeout(t, 60);
    tcase_add_test(t, the_first_loss_is_that_of_the_formula_and_training_lowers_it);
    tcase_add_test(t, who_looks_on_sees_each_operand_once_and_changes_nothing);
    tcase_add_test(t, clipping_scales_by_the_global_norm);
    tcase_add_test(t, F43_F44_every_layout_gives_the_same_losses_norms_and_parameters);
    tcase_add_test(t, zero_one_and_thread_count_change_no_bit);
    tcase_add_test(t, an_op_that_fails_on_the_lane_fails_its_own_program);
    tcase_add_test(t, bf16_trains_from_masters_on_every_layout);
    tcase_add_test(t, masters_keep_what_rounding_would_lose);
    tcase_add_test(t, reductions_run_while_backward_goes_on);
    suite_add_tcase(s, t);
    t = tcase_create("programs");
    tcase_set_timeout(t, 60);
    tcase_add_test(t, evaluation_sums_over_runs_and_ranks_and_changes_nothing);
    tcase_add_test(t, forward_leaves_logits_of_the_tokens_that_were_given);
    tcase_add_test(t, F13_control_and_stop_votes_are_agreed_in_band);
    tcase_add_test(t, digests_that_differ_are_named_with_their_rank);
    tcase_add_test(t, storage_programs_run_their_verbs_in_order_and_end_at_an_agreed_failure);
    suite_add_tcase(s, t);
    t = tcase_create("faults");
    tcase_set_timeout(t, 60);
    tcase_add_test(t, F47_a_value_that_is_not_finite_is_named_with_rank_step_tensor_and_op);
    tcase_add_test(t, F47_what_does_not_come_again_is_the_machine);
    tcase_add_test(t, F47_a_parameter_that_is_not_finite_is_named);
    tcase_add_test(t, F47_a_rank_that_is_alone_names_it_too);
    tcase_add_test(t, a_step_that_is_not_finite_is_left_out);
    tcase_add_test(t, an_error_of_the_communication_lane_ends_the_program);
    tcase_add_test(t, F11_an_error_of_the_compute_lane_does_not_wait_for_communication);
    tcase_add_test(t, F11_an_error_of_the_compute_lane_leaves_a_collective_that_stands_still);
    tcase_add_test(t, F10_an_abort_wakes_both_lanes);
    tcase_add_test(t, a_table_without_an_opcode_of_the_plan_is_refused);
    suite_add_tcase(s, t);
    t = tcase_create("parts");
    tcase_set_timeout(t, 60);
    tcase_add_test(t, a_step_allocates_nothing);
    tcase_add_test(t, the_time_of_a_step_is_told_in_parts_that_sum_up);
    tcase_add_test(t, a_step_that_fails_ends_in_its_phase);
    tcase_add_test(t, every_instruction_leaves_a_record_and_they_sum_up_to_the_parts);
    tcase_add_test(t, what_a_lane_waits_is_no_time_of_the_instruction_after_it);
    tcase_add_test(t, values_that_are_not_finite_are_found_at_every_place);
    tcase_add_test(t, the_nonfinite_word_counts_ranks_and_names_a_single_one);
    tcase_add_test(t, a_team_runs_every_tile_once);
    tcase_add_test(t, a_sleeper_is_woken_by_what_it_sleeps_for_alone);
    tcase_add_test(t, progress_numbers_wrap);
    suite_add_tcase(s, t);
    return suite_run(s);
}
