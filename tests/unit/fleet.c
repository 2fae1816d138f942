/* fleet.c - see fleet.h. */
#include "tests/unit/fleet.h"
#include "tests/unit/graph_runner.h"
#include "tests/unit/toy.h"

#include "base/bf16.h"
#include "contracts/comm_costs.h"
#include "contracts/device_view.h"
#include "strategy/strategy.h"

#include <check.h>
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STORE 4096
#define FLEET_OPCODES                                                                                                    \
    (struct kc_strategy_opcodes){                                                                                      \
        .update = KC_OP_ADAMW, .norm = KC_OP_NORM, .add = KC_OP_ADD, .box = KC_OP_BOX, .pack = KC_OP_PACK, .unpack = KC_OP_UNPACK}

/* ---- communication ---- */

struct kc_group {
    const struct kc_plan_group *plan;
    struct kc_comm_call *call; /* by position */
    uint32_t arrived, generation;
    uint64_t next;
};

struct fleet_world {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct kc_group *groups;
    bool aborted;
};

struct fleet_rank {
    struct fleet *fleet;
    uint32_t number;
    struct kc_arena arena;
    struct kc_op_table *table;
    struct kc_comm_if comm;
    struct kc_state_if state;
    void **data[KC_STATES]; /* by bucket: whole; moments and masters too, of which zero uses a part */
    bool *open[KC_STATES];
    uint64_t store[STORE];
    /* a collective in flight */
    struct kc_comm_call call;
    struct kc_group *group;
    uint32_t position;
    struct kc_executor *executor;
    struct kc_run run;
    struct kc_error e;
    enum kc_program_id program;
    int code;
};

static void add_one(enum kc_type type, enum kc_reduce how, void *to, const void *from, size_t i)
{
    if (type == KC_U64) {
        ((uint64_t *)to)[i] += ((const uint64_t *)from)[i];
        return;
    }
    double a, b;
    if (type == KC_F64)
        a = ((double *)to)[i], b = ((const double *)from)[i];
    else if (type == KC_BF16)
        a = (double)kc_bf16_to_float(((uint16_t *)to)[i]), b = (double)kc_bf16_to_float(((const uint16_t *)from)[i]);
    else
        a = (double)((float *)to)[i], b = (double)((const float *)from)[i];
    const double sum = how == KC_MAX ? fmax(a, b) : a + b;
    if (type == KC_F64)
        ((double *)to)[i] = sum;
    else if (type == KC_BF16)
        ((uint16_t *)to)[i] = kc_bf16_from_float((float)sum);
    else
        ((float *)to)[i] = (float)sum;
}

static void all_to_all(const struct kc_group *g, unsigned char *all, size_t unit)
{
    const uint32_t n = g->plan->ranks.count;
    size_t first[KC_RANKS_MAX], total = 0;
    for (uint32_t r = 0; r < n; r++) {
        first[r] = total;
        for (uint32_t m = 0; m < n; m++)
            total += g->call[r].send_counts[m];
    }
    for (uint32_t r = 0; r < n; r++)
        if (first[r] < total)
            memcpy(all + first[r] * unit, g->call[r].in, (r + 1 < n ? first[r + 1] - first[r] : total - first[r]) * unit);
    for (uint32_t r = 0; r < n; r++)
        for (uint32_t from = 0, at = 0; from < n; from++) {
            size_t skip = first[from];
            for (uint32_t m = 0; m < r; m++)
                skip += g->call[from].send_counts[m];
            if (g->call[from].send_counts[r] != g->call[r].recv_counts[from])
                abort();
            memcpy((unsigned char *)g->call[r].out + at * unit, all + skip * unit, g->call[from].send_counts[r] * unit);
            at += (uint32_t)g->call[from].send_counts[r];
        }
}

static size_t room_of(const struct kc_group *g, size_t unit)
{
    size_t n = 0;
    for (uint32_t r = 0; r < g->plan->ranks.count; r++) {
        n += g->call[r].count;
        for (uint32_t m = 0; g->call[r].primitive == KC_ALL_TO_ALL && m < g->plan->ranks.count; m++)
            n += g->call[r].send_counts[m];
    }
    return (n + 1) * unit;
}

/* Everybody is there. Sums are taken in the order of positions. */
static void perform(struct kc_group *g)
{
    const struct kc_comm_call *c = &g->call[0];
    const uint32_t n = g->plan->ranks.count;
    const size_t unit = kc_type_bytes[c->type], bytes = c->count * unit;
    unsigned char *all = malloc(room_of(g, unit));
    switch (c->primitive) {
    case KC_ALL_GATHER:
        for (uint32_t r = 0; r < n; r++)
            memcpy(all + r * bytes, g->call[r].in, bytes);
        for (uint32_t r = 0; r < n; r++)
            memcpy(g->call[r].out, all, n * bytes);
        break;
    case KC_ALL_TO_ALL:
        all_to_all(g, all, unit);
        break;
    case KC_SEND:
        memcpy(g->call[1].out, c->in, bytes);
        break;
    case KC_RECV:
        memcpy(c->out, g->call[1].in, bytes);
        break;
    default:
        memcpy(all, c->in, bytes);
        for (uint32_t r = 1; r < n; r++)
            for (size_t i = 0; i < c->count; i++)
                add_one((enum kc_type)c->type, (enum kc_reduce)c->reduce, all, g->call[r].in, i);
        for (uint32_t r = 0; r < n; r++) {
            const size_t part = c->primitive == KC_REDUCE_SCATTER ? bytes / n : bytes;
            memcpy(g->call[r].out, all + (c->primitive == KC_REDUCE_SCATTER ? r * part : 0), part);
        }
    }
    free(all);
}

static int comm_start(void *self, const struct kc_group *g, const struct kc_comm_call *call, struct kc_comm_op **op,
                      struct kc_error *e)
{
    struct fleet_rank *r = self;
    (void)e;
    r->call = *call;
    r->group = (struct kc_group *)(uintptr_t)g;
    const uint32_t *ranks = KC_AT(r->fleet->comm, uint32_t, g->plan->ranks);
    for (r->position = 0; ranks[r->position] != r->number;)
        r->position++;
    *op = (struct kc_comm_op *)(void *)r;
    return 0;
}

static bool pair_of(const struct kc_comm_call *a, const struct kc_comm_call *b)
{
    if (a->primitive == KC_SEND || b->primitive == KC_SEND)
        return a->primitive + b->primitive == KC_SEND + KC_RECV && a->peer == 1 - b->peer;
    return a->primitive == b->primitive && a->reduce == b->reduce;
}

static int comm_wait(void *self, struct kc_comm_op **op, uint64_t deadline, struct kc_error *e)
{
    struct fleet_rank *r = self;
    struct fleet_world *w = r->fleet->world;
    struct kc_group *g = r->group;
    (void)deadline;
    pthread_mutex_lock(&w->lock);
    const uint32_t generation = g->generation;
    int code = r->call.sequence == g->next ? 0 : kc_fail(e, -EPROTO, "sequence");
    g->call[r->position] = r->call;
    if (code == 0 && ++g->arrived == g->plan->ranks.count) {
        for (uint32_t m = 1; m < g->plan->ranks.count; m++)
            if (!pair_of(&g->call[0], &g->call[m]) || g->call[m].type != g->call[0].type ||
                (g->call[0].primitive != KC_ALL_TO_ALL && g->call[m].count != g->call[0].count))
                code = kc_fail(e, -EPROTO, "members of %s call what does not belong together",
                               KC_TEXT(r->fleet->comm, g->plan->name));
        if (code == 0)
            perform(g);
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
    return &((struct fleet_world *)((struct fleet_rank *)self)->fleet->world)->groups[index];
}

static void world_abort(struct fleet *r)
{
    struct fleet_world *w = r->world;
    pthread_mutex_lock(&w->lock);
    w->aborted = true;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
}

/* ---- state ---- */

static const void *state_read(void *self, enum kc_state_class what, uint32_t bucket, uint64_t *version)
{
    (void)version;
    return ((struct fleet_rank *)self)->data[what][bucket];
}

static int state_open(void *self, enum kc_state_class what, uint32_t bucket, void **data)
{
    struct fleet_rank *r = self;
    if (r->open[what][bucket])
        return -EBUSY;
    r->open[what][bucket] = true;
    *data = r->data[what][bucket];
    return *data ? 0 : -EINVAL;
}

static void state_close(void *self, enum kc_state_class what, uint32_t bucket)
{
    ((struct fleet_rank *)self)->open[what][bucket] = false;
}

static int state_verb(void *self, enum kc_state_verb verb, struct kc_error *e)
{
    (void)self, (void)verb, (void)e;
    return 0;
}

static uint64_t *state_store(void *self, size_t *count)
{
    *count = STORE;
    return ((struct fleet_rank *)self)->store;
}

static uint64_t name_number(const char *name)
{
    uint64_t h = 1469598103934665603u;
    for (; *name; name++)
        h = (h ^ (unsigned char)*name) * 1099511628211u;
    return h;
}

/* Of an element of a whole tensor. Vectors stand near one, as norms do, and biases near zero. */
static float start_value(const struct kc_shard_plan *s, const struct kc_plan_tensor *t, uint64_t at)
{
    uint64_t x = (name_number(KC_TEXT(s, t->name)) + at) * 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 29) * 0xbf58476d1ce4e5b9u;
    const float noise = (float)((double)(x >> 40) / (double)(1 << 24) - 0.5);
    return t->init == KC_INIT_ONE ? 1 + 0.2f * noise : 0.2f * noise;
}

/* Calls `each` for every element of a rank's part: where it is in the part, and in the whole. */
static void part_walk(const struct fleet_rank *r, const struct kc_plan_tensor *t,
                      void (*each)(void *, uint64_t local, uint64_t global), void *arg)
{
    struct kc_box box;
    kc_plan_box(r->fleet->shard, t, r->number, &box);
    const uint64_t n = kc_box_elements(&box, t->rank);
    for (uint64_t i = 0; i < n; i++) {
        uint64_t rest = i, at = 0, stride = 1;
        for (int d = t->rank; d-- > 0;) {
            at += (box.first[d] + rest % box.size[d]) * stride;
            rest /= box.size[d];
            stride *= t->global[d];
        }
        each(arg, i, at);
    }
}

struct filling {
    const struct fleet_rank *r;
    const struct kc_plan_tensor *t;
};

static bool has_master(const struct fleet_rank *r, uint32_t bucket)
{
    return kc_bucket_has_master(KC_AT(r->fleet->shard, struct kc_plan_bucket, r->fleet->shard->buckets) + bucket);
}

/* Does state keep the element of a class on this rank? */
static bool keeps(const struct fleet_rank *r, enum kc_state_class what, uint32_t bucket, uint64_t at)
{
    const struct kc_shard_plan *s = r->fleet->shard;
    const struct kc_plan_bucket *b = KC_AT(s, struct kc_plan_bucket, s->buckets) + bucket;
    const uint64_t first = kc_plan_owner(s, b, r->number) * b->shard;
    const uint32_t from = what == KC_STATE_PARAMETER ? 3 : what == KC_STATE_GRADIENT ? 2 : 1;
    return s->zero < from || (at >= first && at < first + b->shard);
}

static void fill_one(void *arg, uint64_t local, uint64_t global)
{
    const struct filling *f = arg;
    const uint32_t b = (uint32_t)f->t->bucket;
    const float value = keeps(f->r, KC_STATE_PARAMETER, b, f->t->offset + local)
                            ? start_value(f->r->fleet->shard, f->t, global)
                            : NAN;
    if (!has_master(f->r, b)) {
        ((float *)f->r->data[KC_STATE_PARAMETER][b])[f->t->offset + local] = value;
        return;
    }
    ((uint16_t *)f->r->data[KC_STATE_PARAMETER][b])[f->t->offset + local] = kc_bf16_from_float(value);
    ((float *)f->r->data[KC_STATE_MASTER][b])[f->t->offset + local] = value;
}

static void state_make(struct fleet_rank *r)
{
    const struct kc_shard_plan *s = r->fleet->shard;
    const struct kc_plan_bucket *b = KC_AT(s, struct kc_plan_bucket, s->buckets);
    const struct kc_plan_tensor *t = KC_AT(s, struct kc_plan_tensor, s->tensors);
    for (int c = 0; c < KC_STATES; c++) {
        r->data[c] = calloc(s->buckets.count + 1u, sizeof *r->data[c]);
        r->open[c] = calloc(s->buckets.count + 1u, sizeof *r->open[c]);
        for (uint32_t k = 0; k < s->buckets.count; k++)
            if (kc_plan_holds(s, &b[k], r->number))
                r->data[c][k] = calloc(b[k].count, 4);
    }
    for (uint32_t i = 0; i < s->tensors.count; i++)
        if (t[i].role == KC_PARAMETER && kc_plan_holds(s, &b[t[i].bucket], r->number))
            part_walk(r, &t[i], fill_one, &(struct filling){r, &t[i]});
}

/* ---- a job ---- */

struct kc_job_spec fleet_small(enum kc_family family, uint32_t tied)
{
    struct kc_job_spec s = test_spec(6, 16, 4, 8, 29, 1);
    test_family(&s, family);
    s.tied = tied;
    s.sequences = 8, s.micro = 8, s.chunks = 1, s.lr = 1e-2, s.end_of_text = KC_NO_TOKEN;
    return s;
}

struct kc_job_spec fleet_cut(struct kc_job_spec s, enum kc_pipeline order, uint32_t stages, uint32_t chunks,
                              uint32_t data, uint32_t micros)
{
    s.pipeline = order, s.chunks = chunks;
    s.axis[KC_PIPELINE] = stages, s.axis[KC_DATA] = data, s.ranks = stages * data;
    s.micro = s.sequences / data / micros;
    return s;
}

static void load_row(const struct fleet *r, uint64_t sample, const struct kc_load_part *part, int32_t *tokens, int32_t *targets)
{
    for (uint32_t run = 0; run < part->runs; run++)
        for (uint32_t n = 0; n < part->run[run].count; n++) {
            const uint64_t i = part->run[run].first + n, q = sample * 31 + i * 17 + i * i % 7;
            *tokens++ = (int32_t)(q % r->spec.vocab);
            *targets++ = (sample + i) % 11 == 0 ? -1 : (int32_t)((q / 3 + 1) % r->spec.vocab);
        }
}

static int load(void *self, int evaluate, uint64_t position, uint32_t rows, const struct kc_load_part *part,
                int32_t *tokens, int32_t *targets, int32_t *starts, struct kc_error *e)
{
    (void)e;
    uint32_t length = 0;
    for (uint32_t run = 0; run < part->runs; run++)
        length += part->run[run].count;
    for (uint32_t b = 0; b < rows; b++)
        load_row(self, position + b + (evaluate ? 1000 : 0), part, tokens + b * length, targets + b * length);
    if (starts)
        memset(starts, 0, (size_t)rows * length * sizeof *starts);
    return 0;
}

static int plans_of_ranks(struct fleet *r, struct kc_error *e)
{
    int code = 0;
    for (uint32_t i = 0; i < r->spec.ranks && code == 0; i++) {
        r->rank[i].fleet = r, r->rank[i].number = i;
        ck_assert_int_eq(kc_arena_new(&r->rank[i].arena, 16u << 20), 0);
        code = kc_schedule_expand(r->shard, r->comm, i, &r->rank[i].arena, &r->plan[i], e);
    }
    return code < 0 ? code : kc_schedule_check(r->plan, r->shard, r->comm, e);
}

int fleet_plan(struct fleet *r, const struct kc_job_spec *spec, struct kc_error *e)
{
    *r = (struct fleet){.spec = *spec};
    const size_t room[5] = {8u << 20, 0 /* toy_devices makes it */, 1u << 20, 16u << 20, 8u << 20};
    for (int i = 0; i < 5; i++)
        if (room[i])
            ck_assert_int_eq(kc_arena_new(&r->arena[i], room[i]), 0);
    r->rank = calloc(spec->ranks, sizeof *r->rank);
    int code = kc_model_graph_build(spec, &r->arena[0], &r->graph, e);
    if (code < 0)
        return code;
    const struct kc_device_view *devices = toy_devices(spec->ranks, &r->arena[1]);
    struct kc_comm_costs *costs = kc_contract_begin(&r->arena[2], KC_CONTRACT_COMM_COSTS, KC_COMM_COSTS_VERSION, sizeof *costs);
    code = kc_strategy_plan(r->graph, &r->spec, devices, costs, FLEET_OPCODES, &r->arena[3], &r->arena[4], &r->shard,
                            &r->comm, e);
    return code < 0 ? code : plans_of_ranks(r, e);
}

static void world_make(struct fleet *r)
{
    struct fleet_world *w = r->world = calloc(1, sizeof *w);
    const struct kc_plan_group *g = KC_AT(r->comm, struct kc_plan_group, r->comm->groups);
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->changed, NULL);
    w->groups = calloc(r->comm->groups.count + 1u, sizeof *w->groups);
    for (uint32_t i = 0; i < r->comm->groups.count; i++)
        w->groups[i] = (struct kc_group){.plan = &g[i], .call = calloc(g[i].ranks.count, sizeof *w->groups[i].call)};
}

static void rank_make(struct fleet *r, struct fleet_rank *k)
{
    const struct kc_shard_plan *s = r->shard;
    const struct kc_jobs_config config = {.spec = &r->spec, .load = load, .load_self = r};
    ck_assert_msg(kc_jobs_cpu_table(&config, &k->table, &k->e) == 0, "%s", k->e.text);
    state_make(k);
    k->comm = (struct kc_comm_if){.self = k, .start = comm_start, .wait = comm_wait, .group = comm_group};
    k->state = (struct kc_state_if){.self = k,
                                    .read = state_read,
                                    .open = state_open,
                                    .close = state_close,
                                    .verb = state_verb,
                                    .store = state_store};
    const struct kc_executor_config c = {.shard = s,
                                         .comm_plan = r->comm,
                                         .plan = r->plan[k->number],
                                         .ops = k->table,
                                         .comm = &k->comm,
                                         .state = &k->state,
                                         .threads = 1,
                                         .clip = r->spec.clip,
                                         .oversubscribe = true};
    ck_assert_msg(kc_executor_new(&c, &k->executor, &k->e) == 0, "%s", k->e.text);
}

void fleet_make(struct fleet *r, const struct kc_job_spec *spec)
{
    struct kc_error e = {""};
    const int code = fleet_plan(r, spec, &e);
    ck_assert_msg(code == 0, "%s", e.text);
    world_make(r);
    for (uint32_t i = 0; i < spec->ranks; i++)
        rank_make(r, &r->rank[i]);
}

static void rank_free(struct fleet *r, struct fleet_rank *k)
{
    kc_executor_free(k->executor);
    kc_jobs_cpu_table_free(k->table);
    kc_arena_free(&k->arena);
    for (int c = 0; c < KC_STATES; c++) {
        for (uint32_t b = 0; k->data[c] && b < r->shard->buckets.count; b++)
            free(k->data[c][b]);
        free(k->data[c]);
        free(k->open[c]);
    }
}

void fleet_free(struct fleet *r)
{
    struct fleet_world *w = r->world;
    if (w)
        world_abort(r);
    for (uint32_t i = 0; i < r->spec.ranks; i++)
        rank_free(r, &r->rank[i]);
    for (uint32_t i = 0; w && i < r->comm->groups.count; i++)
        free(w->groups[i].call);
    if (w)
        free(w->groups);
    free(w);
    free(r->rank);
    for (int i = 0; i < 5; i++)
        kc_arena_free(&r->arena[i]);
}

/* ---- a run ---- */

static void *rank_main(void *argument)
{
    struct fleet_rank *k = argument;
    k->code = kc_executor_run(k->executor, k->program, &k->run, &k->e);
    if (k->code < 0)
        world_abort(k->fleet);
    return NULL;
}

/* One program on all ranks at once. The first rank's agreed numbers; those of others must be the same. */
static struct fleet_step run_all(struct fleet *r, enum kc_program_id program, uint64_t step)
{
    pthread_t thread[KC_RANKS_MAX];
    for (uint32_t i = 0; i < r->spec.ranks; i++) {
        struct fleet_rank *k = &r->rank[i];
        k->program = program;
        k->run.values = (struct kc_step_values){.step = step,
                                                .tokens = 1,
                                                .lr = r->spec.lr,
                                                .beta1_power = pow(r->spec.beta1, (double)step + 1),
                                                .beta2_power = pow(r->spec.beta2, (double)step + 1),
                                                .sample_first = step * r->spec.sequences,
                                                .rows = r->spec.micro * r->shard->axis[KC_DATA] * r->shard->axis[KC_EXPERT],
                                                .evaluate = program == KC_PROGRAM_EVALUATE};
        pthread_create(&thread[i], NULL, rank_main, k);
    }
    for (uint32_t i = 0; i < r->spec.ranks; i++)
        pthread_join(thread[i], NULL);
    for (uint32_t i = 0; i < r->spec.ranks; i++) {
        const struct fleet_rank *k = &r->rank[i];
        ck_assert_msg(k->code == 0, "rank %u of %u: %s", i, r->spec.ranks, k->e.text);
        ck_assert_double_eq(k->run.loss, r->rank[0].run.loss);
        ck_assert_double_eq(k->run.grad_norm, r->rank[0].run.grad_norm);
    }
    const struct kc_run *run = &r->rank[0].run;
    return (struct fleet_step){.loss = run->loss, .norm = run->grad_norm, .tokens = run->agreed[KC_AGREE_TOKENS]};
}

struct fleet_step fleet_train(struct fleet *r, uint64_t step)
{
    return run_all(r, KC_PROGRAM_TRAIN, step);
}

const double *fleet_tallies(const struct fleet *r, uint64_t *count)
{
    const struct kc_run *run = &r->rank[0].run;
    for (uint32_t i = 1; i < r->spec.ranks; i++) {
        ck_assert_uint_eq(r->rank[i].run.tallies_count, run->tallies_count);
        if (run->tallies_count)
            ck_assert_mem_eq(r->rank[i].run.tallies, run->tallies, run->tallies_count * sizeof *run->tallies);
    }
    *count = run->tallies_count;
    return run->tallies;
}

double fleet_evaluate(struct fleet *r)
{
    for (uint32_t i = 0; i < r->spec.ranks; i++)
        kc_executor_clear(r->rank[i].executor);
    run_all(r, KC_PROGRAM_EVALUATE, 0);
    return run_all(r, KC_PROGRAM_AGREE, 0).loss;
}

struct gathering {
    const struct fleet_rank *r;
    const struct kc_plan_tensor *t;
    float *out;
    uint8_t *there;
};

static void gather_one(void *arg, uint64_t local, uint64_t global)
{
    struct gathering *g = arg;
    const void *data = g->r->data[KC_STATE_PARAMETER][g->t->bucket];
    if (!keeps(g->r, KC_STATE_PARAMETER, (uint32_t)g->t->bucket, g->t->offset + local))
        return;
    const float value = has_master(g->r, (uint32_t)g->t->bucket)
                            ? kc_bf16_to_float(((const uint16_t *)data)[g->t->offset + local])
                            : ((const float *)data)[g->t->offset + local];
    if (g->there[global])
        ck_assert_msg(memcmp(&g->out[global], &value, 4) == 0, "%s: copies differ", KC_TEXT(g->r->fleet->shard, g->t->name));
    g->out[global] = value;
    g->there[global] = 1;
}

size_t fleet_parameters(struct fleet *r, float **out)
{
    const struct kc_shard_plan *s = r->shard;
    const struct kc_plan_tensor *t = KC_AT(s, struct kc_plan_tensor, s->tensors);
    const struct kc_plan_bucket *b = KC_AT(s, struct kc_plan_bucket, s->buckets);
    size_t total = 0, n = 0;
    for (uint32_t i = 0; i < s->tensors.count; i++) {
        size_t size = t[i].role == KC_PARAMETER;
        for (int d = 0; d < t[i].rank; d++)
            size *= t[i].global[d];
        total += size;
    }
    *out = calloc(total + 1, sizeof **out);
    uint8_t *there = calloc(total + 1, 1);
    for (uint32_t i = 0; i < s->tensors.count; i++) {
        size_t size = 1;
        for (int d = 0; d < t[i].rank; d++)
            size *= t[i].global[d];
        if (t[i].role != KC_PARAMETER)
            continue;
        for (uint32_t k = 0; k < r->spec.ranks; k++)
            if (kc_plan_holds(s, &b[t[i].bucket], k))
                part_walk(&r->rank[k], &t[i], gather_one,
                          &(struct gathering){.r = &r->rank[k], .t = &t[i], .out = *out + n, .there = there + n});
        n += size;
    }
    for (size_t i = 0; i < total; i++)
        ck_assert_msg(there[i], "nobody holds element %zu", i);
    free(there);
    return total;
}
