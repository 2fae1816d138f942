/* graph_runner.c - see graph_runner.h. */
#include "tests/unit/graph_runner.h"

#include "base/bf16.h"
#include "base/clock.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct team {
    void (*tile)(void *arg, uint32_t index, uint32_t worker);
    void *arg;
    uint32_t tiles;
    atomic_uint next, worker;
};

static void *team_member(void *of)
{
    struct team *t = of;
    uint32_t worker = atomic_fetch_add(&t->worker, 1);
    for (uint32_t i; (i = atomic_fetch_add(&t->next, 1)) < t->tiles;)
        t->tile(t->arg, i, worker);
    return NULL;
}

static int lane_enqueue(struct kc_lane *lane, void (*tile)(void *arg, uint32_t index, uint32_t worker),
                        const void *arg, size_t bytes, uint32_t tiles)
{
    struct test_lane *l = (struct test_lane *)lane; /* its first member: a runner may be moved, a pointer to itself may not */
    unsigned char copy[KC_LANE_ARG_MAX] __attribute__((aligned(64)));
    if (bytes > sizeof copy)
        return -EINVAL;
    memcpy(copy, arg, bytes);
    l->enqueued++;
    if (lane->workers == 1) {
        for (uint32_t i = 0; i < tiles; i++)
            tile(copy, l->backwards ? tiles - 1 - i : i, 0);
        return 0;
    }
    struct team team = {.tile = tile, .arg = copy, .tiles = tiles};
    pthread_t threads[64];
    for (uint32_t w = 0; w < lane->workers; w++)
        if (pthread_create(&threads[w], NULL, team_member, &team) != 0)
            abort();
    for (uint32_t w = 0; w < lane->workers; w++)
        pthread_join(threads[w], NULL);
    return 0;
}

void test_lane_init(struct test_lane *l, uint32_t workers)
{
    *l = (struct test_lane){.lane = {.workers = workers, .enqueue = lane_enqueue}};
}

struct kc_job_spec test_spec(uint32_t layers, uint32_t hidden, uint32_t heads, uint32_t context, uint32_t vocab,
                             uint32_t micro)
{
    struct kc_job_spec s = {.ranks = 1, .threads = 1, .seed = 1, .family = KC_FAMILY_GPT2, .layers = layers,
                            .hidden = hidden, .heads = heads, .kv_heads = heads, .ffn = 4 * hidden, .context = context, .vocab = vocab, .sequences = micro,
                            .micro = micro, .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1,
                            .clip = 1};
    for (int a = 0; a < KC_AXES; a++)
        s.axis[a] = 1;
    return s;
}

static kc_text text_behind(struct test_frozen *s, const char *text)
{
    char *to = s->text + s->used;
    s->used += 1 + (uint32_t)snprintf(to, sizeof s->text - s->used, "%s", text);
    return (kc_text)(to - (char *)s);
}

void test_freeze(struct test_frozen *s, const char *pattern)
{
    s->spec.freeze.offset = offsetof(struct test_frozen, list);
    s->list[s->spec.freeze.count++] = text_behind(s, pattern);
}

void test_lora(struct test_frozen *s, const char *pattern, uint32_t rank, double alpha)
{
    s->spec.lora_rank = rank, s->spec.lora_alpha = alpha;
    s->spec.lora_targets.offset = offsetof(struct test_frozen, targets);
    s->targets[s->spec.lora_targets.count++] = text_behind(s, pattern);
}

void test_family(struct kc_job_spec *s, enum kc_family family)
{
    s->family = family;
    if (family == KC_FAMILY_GPT2)
        return;
    s->kv_heads = s->heads % 2 ? 1 : s->heads / 2;
    s->ffn = 2 * s->hidden + 6;
    if (family == KC_FAMILY_MOE)
        s->experts = 5, s->top_k = 2, s->balance = 0.1;
    s->rope_theta = 10000;
    s->rms_eps = 1e-5;
}

const struct kc_graph_tensor *graph_runner_tensor(const struct runner *r, int32_t index)
{
    return KC_AT(r->graph, struct kc_graph_tensor, r->graph->tensors) + index;
}

static uint64_t elements(const struct kc_graph_tensor *t)
{
    uint64_t n = 1;
    for (int d = 0; d < t->rank; d++)
        n *= t->size[d];
    return n;
}

uint64_t graph_runner_elements(const struct runner *r, int32_t index)
{
    return elements(graph_runner_tensor(r, index));
}

int32_t graph_runner_find(const struct runner *r, enum kc_role role, const char *name)
{
    for (uint32_t i = 0; i < r->graph->tensors.count; i++) {
        const struct kc_graph_tensor *t = graph_runner_tensor(r, (int32_t)i);
        if (t->role == role && strcmp(KC_TEXT(r->graph, t->name), name) == 0)
            return (int32_t)i;
    }
    return -1;
}

/* Does any op from `from` on read tensor t? */
static int read_later(const struct kc_model_graph *g, uint32_t from, int32_t t)
{
    const struct kc_graph_op *ops = KC_AT(g, struct kc_graph_op, g->ops);
    for (uint32_t i = from; i < g->ops.count; i++)
        for (uint32_t k = 0; k < ops[i].in.count; k++)
            if (KC_AT(g, int32_t, ops[i].in)[k] == t)
                return 1;
    return 0;
}

static int allocate(struct runner *r)
{
    const struct kc_model_graph *g = r->graph;
    const struct kc_graph_op *ops = KC_AT(g, struct kc_graph_op, g->ops);
    const struct kc_graph_opcode *opcodes = KC_AT(g, struct kc_graph_opcode, g->opcodes);
    int32_t *share = malloc(g->tensors.count * sizeof *share);
    if (!share)
        return -ENOMEM;
    for (uint32_t i = 0; i < g->tensors.count; i++)
        share[i] = -1;
    for (uint32_t i = 0; r->in_place && i < g->ops.count; i++) {
        int which = opcodes[ops[i].opcode].in_place;
        int32_t from = which ? KC_AT(g, int32_t, ops[i].in)[which - 1] : -1;
        if (from >= 0 && !read_later(g, i + 1, from))
            share[KC_AT(g, int32_t, ops[i].out)[0]] = from;
    }
    for (uint32_t i = 0; i < g->tensors.count; i++) {
        const struct kc_graph_tensor *t = graph_runner_tensor(r, (int32_t)i);
        if (share[i] >= 0)
            continue;
        size_t bytes = (elements(t) * kc_type_bytes[t->type] + 63) / 64 * 64;
        r->data[i] = aligned_alloc(64, bytes);
        if (!r->data[i])
            abort();
        /* nothing but parameters and results may rely on what was there before */
        memset(r->data[i], t->role == KC_PARAMETER || t->role == KC_RESULT ? 0 : 0xff, bytes);
        if (t->role == KC_PARAMETER) {
            r->master[i] = t->type == KC_BF16 ? calloc(elements(t), sizeof(float)) : NULL;
            r->moment1[i] = calloc(elements(t), sizeof(float));
            r->moment2[i] = calloc(elements(t), sizeof(float));
        }
    }
    for (uint32_t i = 0; i < g->tensors.count; i++)
        if (share[i] >= 0) {
            int32_t root = share[i];
            while (share[root] >= 0)
                root = share[root];
            r->data[i] = r->data[root];
        }
    free(share);
    return 0;
}

int graph_runner_new(struct runner *r, const struct kc_job_spec *spec, const char *variant, uint32_t workers,
                     int in_place, kc_load_fn *load, void *load_self, struct kc_error *e)
{
    *r = (struct runner){.spec = spec, .in_place = in_place};
    int bad = kc_arena_new(&r->arena, 4 << 20);
    if (bad == 0)
        bad = kc_model_graph_build(spec, &r->arena, &r->graph, e);
    if (bad < 0)
        return bad;
    struct kc_jobs_config config = {
        .spec = spec, .variant = variant, .load = load, .load_self = load_self};
    bad = kc_jobs_cpu_table(&config, &r->table, e);
    if (bad < 0)
        return bad;
    test_lane_init(&r->lane, workers);
    const size_t n = r->graph->tensors.count;
    r->data = calloc(n, sizeof *r->data);
    r->master = calloc(n, sizeof *r->master);
    r->moment1 = calloc(n, sizeof *r->moment1);
    r->moment2 = calloc(n, sizeof *r->moment2);
    r->op_seconds = calloc(KC_OPCODES, sizeof *r->op_seconds);
    r->op_flops = calloc(KC_OPCODES, sizeof *r->op_flops);
    r->scratch_bytes = KC_SCRATCH_MIN;
    for (uint32_t i = 0; i < r->graph->ops.count; i++) {
        const struct kc_graph_op *op = KC_AT(r->graph, struct kc_graph_op, r->graph->ops) + i;
        const uint64_t wants = op->scratch < op->scratch_most ? op->scratch : op->scratch_most;
        r->scratch_bytes = wants > r->scratch_bytes ? (wants + 63) / 64 * 64 : r->scratch_bytes;
    }
    r->scratch = aligned_alloc(64, r->scratch_bytes);
    return allocate(r);
}

void graph_runner_free(struct runner *r)
{
    for (uint32_t i = 0; r->data && i < r->graph->tensors.count; i++) {
        int shared = 0;
        for (uint32_t k = 0; k < i; k++)
            shared |= r->data[k] == r->data[i];
        if (!shared)
            free(r->data[i]);
        else
            r->data[i] = NULL;
        free(r->master[i]);
        free(r->moment1[i]);
        free(r->moment2[i]);
    }
    free(r->data);
    free(r->master);
    free(r->moment1);
    free(r->moment2);
    free(r->op_seconds);
    free(r->op_flops);
    free(r->scratch);
    kc_jobs_cpu_table_free(r->table);
    kc_arena_free(&r->arena);
}

/* splitmix64, Box-Muller; any seeded values would do. */
static double uniform(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return ((double)((z ^ z >> 31) >> 11) + 0.5) / 9007199254740992.0;
}

void graph_runner_set(struct runner *r, int32_t parameter, const float *values)
{
    const uint64_t n = graph_runner_elements(r, parameter);
    if (r->master[parameter]) {
        memcpy(r->master[parameter], values, n * sizeof *values);
        for (uint64_t k = 0; k < n; k++)
            ((uint16_t *)r->data[parameter])[k] = kc_bf16_from_float(values[k]);
    } else {
        memcpy(r->data[parameter], values, n * sizeof *values);
    }
}

void graph_runner_init_parameters(struct runner *r, uint64_t seed)
{
    for (uint32_t i = 0; i < r->graph->tensors.count; i++) {
        const struct kc_graph_tensor *t = graph_runner_tensor(r, (int32_t)i);
        if (t->role != KC_PARAMETER)
            continue;
        float *p = malloc(elements(t) * sizeof *p);
        for (uint64_t k = 0; k < elements(t); k++) {
            double normal = sqrt(-2 * log(uniform(&seed))) * cos(2 * 3.14159265358979 * uniform(&seed));
            p[k] = t->init == KC_INIT_NORMAL ? (float)(normal * t->init_scale)
                                             : (float)((t->init == KC_INIT_ONE) + 0.05 * normal);
        }
        graph_runner_set(r, (int32_t)i, p);
        free(p);
    }
}

static struct kc_view view_of(const struct runner *r, int32_t index)
{
    struct kc_view v = {0};
    if (index < 0)
        return v;
    const struct kc_graph_tensor *t = graph_runner_tensor(r, index);
    v.data = r->data[index];
    v.type = t->type;
    v.rank = t->rank;
    memcpy(v.size, t->size, sizeof v.size);
    return v;
}

int graph_runner_runs(const struct kc_model_graph *g, enum runner_program program, uint32_t op)
{
    if (op < g->evaluate_first)
        return 1;
    if (op < g->logits_first)
        return program == RUN_EVALUATE;
    return program == (op < g->backward_first ? RUN_FORWARD : RUN_TRAIN);
}

int graph_runner_run(struct runner *r, enum runner_program program, int accumulate, uint32_t micro,
                     const struct kc_step_values *step, struct kc_error *e)
{
    const struct kc_model_graph *g = r->graph;
    const struct kc_graph_op *ops = KC_AT(g, struct kc_graph_op, g->ops);
    const struct kc_graph_opcode *opcodes = KC_AT(g, struct kc_graph_opcode, g->opcodes);
    unsigned char *written = calloc(g->tensors.count, 1);
    int bad = 0;
    for (uint32_t i = 0; i < g->ops.count && bad == 0; i++) {
        if (!graph_runner_runs(g, program, i))
            continue;
        const int32_t *in = KC_AT(g, int32_t, ops[i].in), *out = KC_AT(g, int32_t, ops[i].out);
        struct kc_view iv[KC_RULE_TENSORS], ov[KC_RULE_TENSORS];
        for (uint32_t k = 0; k < ops[i].in.count; k++)
            iv[k] = view_of(r, in[k]);
        int holds = accumulate; /* something of this step already; gradients of what is frozen are left out */
        for (uint32_t k = 0; k < ops[i].out.count; k++) {
            ov[k] = view_of(r, out[k]);
            holds |= out[k] >= 0 && graph_runner_tensor(r, out[k])->role == KC_GRADIENT && written[out[k]];
        }
        int gradient = ops[i].klass == KC_WEIGHT_GRADIENT;
        struct kc_op_call call = {.opcode = opcodes[ops[i].opcode].id, .inputs = (uint8_t)ops[i].in.count,
                                  .outputs = (uint8_t)ops[i].out.count, .in = iv, .out = ov,
                                  .attr = KC_AT(g, double, ops[i].attr), .attrs = ops[i].attr.count, .micro = micro,
                                  .accumulate = gradient ? holds : 1, .scratch = r->scratch,
                                  .scratch_bytes = r->scratch_bytes, .step = step};
        uint64_t t = kc_now();
        bad = r->table->ops[call.opcode].enqueue(r->table->self, &call, &r->lane.lane, e);
        r->op_seconds[call.opcode] += (double)(kc_now() - t) * 1e-9;
        r->op_flops[call.opcode] += (double)ops[i].flops;
        for (uint32_t k = 0; k < ops[i].out.count; k++)
            if (out[k] >= 0)
                written[out[k]] = 1;
    }
    free(written);
    return bad;
}

static struct kc_view run_view(void *data, enum kc_type type, uint64_t n)
{
    return (struct kc_view){.data = data, .type = (uint8_t)type, .rank = 1, .size = {n}};
}

double graph_runner_gradient_norm(struct runner *r)
{
    double sum = 0;
    for (uint32_t i = 0; i < r->graph->tensors.count; i++) {
        if (graph_runner_tensor(r, (int32_t)i)->role != KC_GRADIENT)
            continue;
        struct kc_view in = run_view(r->data[i], KC_F32, graph_runner_elements(r, (int32_t)i));
        struct kc_view out = {.data = &sum, .type = KC_F64, .rank = 1, .size = {1}};
        struct kc_op_call call = {.opcode = KC_OP_NORM, .inputs = 1, .outputs = 1, .in = &in, .out = &out,
                                  .accumulate = 1, .scratch = r->scratch, .scratch_bytes = r->scratch_bytes};
        if (r->table->ops[KC_OP_NORM].enqueue(r->table->self, &call, &r->lane.lane, NULL) < 0)
            abort();
    }
    return sqrt(sum);
}

int graph_runner_update(struct runner *r, const struct kc_step_values *step, struct kc_error *e)
{
    int bad = 0;
    for (uint32_t i = 0; i < r->graph->tensors.count && bad == 0; i++) {
        const struct kc_graph_tensor *t = graph_runner_tensor(r, (int32_t)i);
        if (t->role != KC_GRADIENT)
            continue;
        const uint64_t n = elements(t);
        const double attr[] = {r->spec->beta1, r->spec->beta2, r->spec->eps,
                               graph_runner_tensor(r, t->of)->decay ? r->spec->weight_decay : 0};
        struct kc_view in = run_view(r->data[i], KC_F32, n);
        const enum kc_type type = (enum kc_type)graph_runner_tensor(r, t->of)->type;
        struct kc_view out[] = {run_view(r->data[t->of], type, n), run_view(r->moment1[t->of], KC_F32, n),
                                run_view(r->moment2[t->of], KC_F32, n), run_view(r->master[t->of], KC_F32, n)};
        struct kc_op_call call = {.opcode = KC_OP_ADAMW,
                                  .inputs = 1,
                                  .outputs = 4,
                                  .in = &in,
                                  .out = out,
                                  .attr = attr,
                                  .attrs = 4,
                                  .scratch = r->scratch,
                                  .scratch_bytes = r->scratch_bytes,
                                  .step = step};
        bad = r->table->ops[KC_OP_ADAMW].enqueue(r->table->self, &call, &r->lane.lane, e);
    }
    return bad;
}
