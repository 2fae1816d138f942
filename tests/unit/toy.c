/* toy.c - see toy.h. */
#include "toy.h"

#include "base/bf16.h"
#include "strategy/strategy.h"

#include <check.h>
#include <errno.h>
#include <math.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* name, class, inputs, outputs, in_place, accumulates, rules (a word a rule, a letter an operand) */
static const struct {
    const char *name;
    uint8_t klass, inputs, outputs, in_place, accumulates;
    const char *rules[3];
} codes[TOY_OPCODES] = {
    [TOY_LOAD] = {"load", KC_LOAD, 0, 2, 0, 0, {"RR", "bb"}},
    [TOY_EMBED_F] = {"embed", KC_FORWARD, 2, 1, 0, 0, {"RRR", "bRb"}},
    [TOY_EMBED_W] = {"embed.w", KC_WEIGHT_GRADIENT, 2, 1, 0, 1, {"RRR", "bbP"}},
    [TOY_AFFINE_F] = {"affine", KC_FORWARD, 3, 1, 0, 0, {"RRRR", "bRRb"}},
    [TOY_AFFINE_I] = {"affine.i", KC_INPUT_GRADIENT, 2, 1, 1, 0, {"RRR", "bRb"}},
    [TOY_AFFINE_W] = {"affine.w", KC_WEIGHT_GRADIENT, 2, 2, 0, 1, {"RRRR", "bbPP"}},
    [TOY_HEAD_F] = {"head", KC_FORWARD, 2, 1, 0, 0, {"RRR", "bRb"}},
    [TOY_HEAD_I] = {"head.i", KC_INPUT_GRADIENT, 2, 1, 0, 0, {"RRR", "bRb"}},
    [TOY_HEAD_W] = {"head.w", KC_WEIGHT_GRADIENT, 2, 1, 0, 1, {"RRR", "bbP"}},
    [TOY_LOSS_F] = {"loss", KC_FORWARD, 2, 1, 0, 1, {"RRR", "bbP"}},
    [TOY_LOSS_I] = {"loss.i", KC_INPUT_GRADIENT, 2, 1, 1, 0, {"RRR", "bbb"}},
};

static struct kc_placement place(char letter)
{
    if (letter == 'b')
        return (struct kc_placement){.kind = KC_PLACE_SHARDED, .dim = KC_BATCH};
    return (struct kc_placement){.kind = letter == 'P' ? KC_PLACE_PARTIAL : KC_PLACE_REPLICATED};
}

struct builder {
    struct kc_arena *arena;
    int storage;
    struct kc_model_graph *graph;
    struct kc_graph_tensor *tensors;
    struct kc_graph_op *ops;
    uint32_t t, o;
};

/* F32 stands for the spec's precision where ops read parameters, activations and derivatives. */
static int32_t tensor(struct builder *b, const char *name, int role, int type, int layer, int of,
                      const uint8_t dims[3], const uint64_t sizes[3])
{
    struct kc_graph_tensor *t = &b->tensors[b->t];
    t->name = kc_contract_text(b->arena, name);
    bool stored = role == KC_PARAMETER || role == KC_ACTIVATION || role == KC_DERIVATIVE;
    t->role = (uint8_t)role, t->type = (uint8_t)(stored ? b->storage : type), t->layer = layer, t->of = of;
    for (; t->rank < 3 && sizes[t->rank]; t->rank++)
        t->dim[t->rank] = dims[t->rank], t->size[t->rank] = sizes[t->rank];
    t->init = KC_INIT_NORMAL, t->init_scale = 0.02f, t->decay = t->rank > 1;
    return (int32_t)b->t++;
}

static void op(struct builder *b, enum toy_opcode code, int layer, const int32_t *operands)
{
    struct kc_graph_op *op = &b->ops[b->o++];
    op->opcode = (uint16_t)code, op->klass = codes[code].klass, op->layer = layer, op->flops = 1000;
    memcpy(kc_contract_array(b->arena, &op->in, codes[code].inputs, 4), operands, codes[code].inputs * 4u);
    memcpy(kc_contract_array(b->arena, &op->out, codes[code].outputs, 4), operands + codes[code].inputs,
           codes[code].outputs * 4u);
}
#define OP(b, code, layer, ...) op(b, code, layer, (const int32_t[]){__VA_ARGS__})

static void opcodes_build(struct kc_model_graph *g, enum toy_opcode without, struct kc_arena *a)
{
    struct kc_graph_opcode *list = kc_contract_array(a, &g->opcodes, TOY_OPCODES, sizeof *list);
    for (uint32_t i = 0; i < TOY_OPCODES; i++) {
        list[i].name = kc_contract_text(a, codes[i].name);
        list[i].id = (uint16_t)i, list[i].klass = codes[i].klass;
        list[i].inputs = codes[i].inputs, list[i].outputs = codes[i].outputs;
        list[i].in_place = codes[i].in_place, list[i].accumulates = codes[i].accumulates;
        uint32_t n = i == without ? 1 : 2;
        struct kc_graph_rule *rules = kc_contract_array(a, &list[i].rules, n, sizeof *rules);
        for (uint32_t r = 0; r < n; r++)
            for (size_t k = 0; codes[i].rules[r][k]; k++)
                rules[r].at[k] = place(codes[i].rules[r][k]);
    }
}

#define LAYERS_MAX 64
const struct kc_model_graph *toy_graph(const struct kc_job_spec *spec, enum toy_opcode without, struct kc_arena *a)
{
    ck_assert_int_eq(kc_arena_new(a, 4u << 20), 0);
    struct builder b = {.arena = a, .storage = spec->precision == KC_PRECISION_BF16 ? KC_BF16 : KC_F32};
    struct kc_model_graph *g = b.graph =
        kc_contract_begin(a, KC_CONTRACT_MODEL_GRAPH, KC_MODEL_GRAPH_VERSION, sizeof *g);
    opcodes_build(g, without, a);
    uint32_t L = spec->layers;
    b.tensors = kc_contract_array(a, &g->tensors, 11 + 6 * L, sizeof *b.tensors);
    b.ops = kc_contract_array(a, &g->ops, 11 + 3 * L, sizeof *b.ops);
    const uint64_t B = (uint64_t)spec->micro * spec->axis[KC_DATA], S = spec->context, H = spec->hidden,
                   V = spec->vocab;
    const uint8_t act[3] = {KC_BATCH, KC_SEQUENCE, KC_HIDDEN}, lg[3] = {KC_BATCH, KC_SEQUENCE, KC_VOCAB},
                  tied[3] = {KC_VOCAB, KC_HIDDEN}, vec[3] = {KC_HIDDEN}, none[3] = {KC_NONE};
    const uint64_t in_size[3] = {B, S}, x_size[3] = {B, S, H}, l_size[3] = {B, S, V}, e_size[3] = {V, H},
                   v_size[3] = {H}, r_size[3] = {2};
    char name[64];
    g->tokens = tensor(&b, "tokens", KC_INPUT, KC_I32, -1, -1, act, in_size);
    g->targets = tensor(&b, "targets", KC_INPUT, KC_I32, -1, -1, act, in_size);
    g->positions = g->starts = -1;
    g->result = tensor(&b, "result", KC_RESULT, KC_F64, -1, -1, none, r_size);
    int32_t wte = tensor(&b, "wte", KC_PARAMETER, KC_F32, -1, -1, tied, e_size);
    int32_t dwte = tensor(&b, "wte.grad", KC_GRADIENT, KC_F32, -1, wte, tied, e_size);
    int32_t x[LAYERS_MAX + 1], w[LAYERS_MAX], bias[LAYERS_MAX], dw[LAYERS_MAX], db[LAYERS_MAX];
    x[0] = tensor(&b, "x", KC_ACTIVATION, KC_F32, -1, -1, act, x_size);
    OP(&b, TOY_LOAD, -1, g->tokens, g->targets);
    OP(&b, TOY_EMBED_F, -1, g->tokens, wte, x[0]);
    for (uint32_t l = 0; l < L; l++) {
        snprintf(name, sizeof name, "h.%u.w", l);
        w[l] = tensor(&b, name, KC_PARAMETER, KC_F32, (int)l, -1, vec, v_size);
        dw[l] = tensor(&b, "dw", KC_GRADIENT, KC_F32, (int)l, w[l], vec, v_size);
        snprintf(name, sizeof name, "h.%u.b", l);
        bias[l] = tensor(&b, name, KC_PARAMETER, KC_F32, (int)l, -1, vec, v_size);
        db[l] = tensor(&b, "db", KC_GRADIENT, KC_F32, (int)l, bias[l], vec, v_size);
        snprintf(name, sizeof name, "h.%u.y", l);
        x[l + 1] = tensor(&b, name, KC_ACTIVATION, KC_F32, (int)l, -1, act, x_size);
        OP(&b, TOY_AFFINE_F, (int)l, x[l], w[l], bias[l], x[l + 1]);
    }
    int32_t evaluated = tensor(&b, "scores", KC_ACTIVATION, KC_F32, -1, -1, lg, l_size);
    g->evaluate_first = b.o;
    OP(&b, TOY_HEAD_F, -1, x[L], wte, evaluated);
    OP(&b, TOY_LOSS_F, -1, evaluated, g->targets, g->result);
    g->logits_first = b.o;
    g->logits = tensor(&b, "logits", KC_ACTIVATION, KC_F32, -1, -1, lg, l_size);
    OP(&b, TOY_HEAD_F, -1, x[L], wte, g->logits);
    g->backward_first = b.o;
    int32_t trained = tensor(&b, "scores", KC_ACTIVATION, KC_F32, -1, -1, lg, l_size);
    int32_t dlogits = tensor(&b, "d scores", KC_DERIVATIVE, KC_F32, -1, trained, lg, l_size);
    OP(&b, TOY_HEAD_F, -1, x[L], wte, trained);
    OP(&b, TOY_LOSS_F, -1, trained, g->targets, g->result);
    OP(&b, TOY_LOSS_I, -1, trained, g->targets, dlogits);
    int32_t d = tensor(&b, "d x", KC_DERIVATIVE, KC_F32, (int)L - 1, x[L], act, x_size);
    OP(&b, TOY_HEAD_W, -1, dlogits, x[L], dwte);
    OP(&b, TOY_HEAD_I, -1, dlogits, wte, d);
    for (uint32_t l = L; l-- > 0;) {
        OP(&b, TOY_AFFINE_W, (int)l, d, x[l], dw[l], db[l]);
        int32_t next = tensor(&b, "d x", KC_DERIVATIVE, KC_F32, (int)l - 1, x[l], act, x_size);
        OP(&b, TOY_AFFINE_I, (int)l, d, w[l], next);
        d = next;
    }
    OP(&b, TOY_EMBED_W, -1, g->tokens, d, dwte);
    ck_assert_uint_eq(b.o, g->ops.count);
    ck_assert_uint_eq(b.t, g->tensors.count);
    g->layers = L;
    ck_assert_int_eq(kc_contract_seal(a), 0);
    return g;
}

static const struct kc_job_spec *spec_make(const struct toy_shape *s, struct kc_arena *a)
{
    ck_assert_int_eq(kc_arena_new(a, 65536), 0);
    struct kc_job_spec *p = kc_contract_begin(a, KC_CONTRACT_JOB_SPEC, KC_JOB_SPEC_VERSION, sizeof *p);
    p->precision = s->precision;
    p->ranks = s->ranks, p->threads = 1, p->seed = 1, p->steps = 4;
    p->layers = s->layers, p->hidden = s->hidden, p->heads = 1, p->context = s->context, p->vocab = s->vocab;
    p->sequences = s->sequences, p->micro = s->micro;
    p->lr = 1e-2, p->beta1 = 0.9, p->beta2 = 0.95, p->eps = 1e-8, p->weight_decay = 0.1, p->clip = 1;
    for (int i = 0; i < KC_AXES; i++)
        p->axis[i] = i == KC_DATA ? s->ranks : 1;
    p->zero = s->zero;
    for (int i = 0; i < KC_PRIMITIVES; i++)
        p->algorithm[i] = s->algorithm;
    ck_assert_int_eq(kc_contract_seal(a), 0);
    return p;
}

const struct kc_device_view *toy_devices(uint32_t n, struct kc_arena *a)
{
    ck_assert_int_eq(kc_arena_new(a, 65536 + (size_t)n * (n + sizeof(struct kc_view_device))), 0);
    struct kc_device_view *p = kc_contract_begin(a, KC_CONTRACT_DEVICE_VIEW, KC_DEVICE_VIEW_VERSION, sizeof *p);
    kc_contract_array(a, &p->devices, n, sizeof(struct kc_view_device));
    uint32_t *place = kc_contract_array(a, &p->place, n, sizeof *place);
    uint8_t *d = kc_contract_array(a, &p->distance, (size_t)n * n, 1);
    p->places = n;
    for (uint32_t i = 0; i < n; i++)
        place[i] = i;
    for (uint32_t i = 0; i < n * n; i++)
        d[i] = i / n == i % n ? KC_DISTANCE_SAME : KC_DISTANCE_NUMA;
    ck_assert_int_eq(kc_contract_seal(a), 0);
    return p;
}

const struct kc_comm_costs *toy_costs(double latency_ns, struct kc_arena *a)
{
    ck_assert_int_eq(kc_arena_new(a, 65536), 0);
    struct kc_comm_costs *p = kc_contract_begin(a, KC_CONTRACT_COMM_COSTS, KC_COMM_COSTS_VERSION, sizeof *p);
    struct kc_comm_cost *rows = kc_contract_array(a, &p->rows, KC_ALGORITHMS * KC_PRIMITIVES, sizeof *rows);
    for (uint32_t i = 0; i < KC_ALGORITHMS * KC_PRIMITIVES; i++)
        rows[i] = (struct kc_comm_cost){.primitive = (uint8_t)(i / KC_ALGORITHMS),
                                        .algorithm = (uint8_t)(i % KC_ALGORITHMS),
                                        .distance = KC_DISTANCE_MACHINE,
                                        .ranks_max = 64,
                                        .latency_ns = latency_ns,
                                        .bytes_per_second = i % KC_ALGORITHMS == KC_RING ? 4e9 : 2e9};
    ck_assert_int_eq(kc_contract_seal(a), 0);
    return p;
}

void toy_make(struct toy *t, struct toy_shape shape)
{
    *t = (struct toy){.shape = shape};
    ck_assert_uint_le(shape.layers, LAYERS_MAX);
    ck_assert_uint_le(shape.vocab, 64);
    t->spec = spec_make(&shape, &t->arena[0]);
    t->graph = toy_graph(t->spec, TOY_OPCODES, &t->arena[1]);
    t->devices = toy_devices(shape.ranks, &t->arena[2]);
    t->costs = toy_costs(shape.latency_ns, &t->arena[3]);
}

void toy_plan(struct toy *t, struct toy_shape shape)
{
    toy_make(t, shape);
    struct kc_error e = {""};
    ck_assert_int_eq(kc_arena_new(&t->arena[4], 4u << 20), 0);
    ck_assert_int_eq(kc_arena_new(&t->arena[5], 4u << 20), 0);
    int r =
        kc_strategy_plan(t->graph, t->spec, t->devices, t->costs, (struct kc_strategy_opcodes){.update = TOY_UPDATE, .norm = TOY_NORM},
                         &t->arena[4], &t->arena[5], &t->shard, &t->comm, &e);
    ck_assert_msg(r == 0, "%s", e.text);
}

void toy_free(struct toy *t)
{
    for (int i = 0; i < 6; i++)
        kc_arena_free(&t->arena[i]);
}

/* ---- kernels ---- */

/* One tile of work: the call by value (views copied, so that the caller's may go). */
struct job {
    struct toy_context *context;
    uint16_t opcode;
    uint32_t micro, inputs, accumulate;
    struct kc_view in[3], out[4];
    const struct kc_step_values *step;
    double attr[4];
};

/* Elements as floats, whatever type the view has. */
static float get(const struct kc_view *v, uint64_t i)
{
    return v->type == KC_BF16 ? kc_bf16_to_float(((const uint16_t *)v->data)[i]) : ((const float *)v->data)[i];
}

static void put(const struct kc_view *v, uint64_t i, float value)
{
    if (v->type == KC_BF16)
        ((uint16_t *)v->data)[i] = kc_bf16_from_float(value);
    else
        ((float *)v->data)[i] = value;
}

static uint64_t rows_of(const struct kc_view *v)
{
    return v->size[0] * v->size[1];
}

static void load_tile(const struct job *j)
{
    const struct kc_shard_plan *s = j->context->shard;
    uint64_t S = j->out[0].size[1], V = 7;
    int32_t *tokens = j->out[0].data, *targets = j->out[1].data;
    for (uint32_t b = 0; b < s->micro; b++)
        for (uint64_t i = 0; i < S; i++) {
            uint64_t row = (uint64_t)j->micro * s->micro * s->axis[KC_DATA] + j->context->rank * s->micro + b;
            uint64_t q = (j->step->sample_first + row) * 31 + i * 17;
            tokens[b * S + i] = (int32_t)(q % V);
            targets[b * S + i] = (int32_t)((q / 3 + 1) % V);
        }
}

static void embed_tile(const struct job *j, uint32_t h)
{
    bool forward = j->opcode == TOY_EMBED_F;
    uint64_t H = forward ? j->out[0].size[2] : j->in[1].size[2], n = rows_of(&j->in[0]);
    const int32_t *tokens = j->in[0].data;
    for (uint64_t v = 0; !forward && !j->accumulate && v < j->out[0].size[0]; v++)
        ((float *)j->out[0].data)[v * H + h] = 0;
    for (uint64_t i = 0; i < n; i++)
        if (forward)
            put(&j->out[0], i * H + h, get(&j->in[1], (uint64_t)tokens[i] * H + h));
        else
            ((float *)j->out[0].data)[(uint64_t)tokens[i] * H + h] += get(&j->in[1], i * H + h);
}

static void affine_tile(const struct job *j, uint32_t h)
{
    uint64_t H = j->in[0].size[2], n = rows_of(&j->in[0]);
    const struct kc_view *a = &j->in[0], *b = &j->in[1];
    float *dw = j->out[0].data, sum_w = 0, sum_b = 0;
    for (uint64_t i = 0; i < n; i++) {
        if (j->opcode == TOY_AFFINE_F)
            put(&j->out[0], i * H + h, get(a, i * H + h) * (1 + get(b, h)) + get(&j->in[2], h));
        else if (j->opcode == TOY_AFFINE_I)
            put(&j->out[0], i * H + h, get(a, i * H + h) * (1 + get(b, h)));
        else
            sum_w += get(a, i * H + h) * get(b, i * H + h), sum_b += get(a, i * H + h);
    }
    if (j->opcode == TOY_AFFINE_W) {
        float *bias = j->out[1].data;
        sum_w = j->context->poison_at == (int)j->step->step && h == 1 ? NAN : sum_w;
        dw[h] = j->accumulate ? dw[h] + sum_w : sum_w;
        bias[h] = j->accumulate ? bias[h] + sum_b : sum_b;
    }
}

static void head_tile(const struct job *j, uint32_t row)
{
    const struct kc_view *wide = j->opcode == TOY_HEAD_F ? &j->out[0] : &j->in[0];
    uint64_t V = wide->size[2], n = rows_of(wide),
             H = j->opcode == TOY_HEAD_F   ? j->in[1].size[1]
                 : j->opcode == TOY_HEAD_I ? j->out[0].size[2]
                                           : j->in[1].size[2];
    if (j->opcode == TOY_HEAD_W) { /* row: of the vocabulary */
        for (uint64_t h = 0; h < H && row < V && !j->accumulate; h++)
            ((float *)j->out[0].data)[row * H + h] = 0;
        for (uint64_t i = 0; i < n && row < V; i++)
            for (uint64_t h = 0; h < H; h++)
                ((float *)j->out[0].data)[row * H + h] += get(&j->in[0], i * V + row) * get(&j->in[1], i * H + h);
        return;
    }
    const struct kc_view *w = &j->in[1];
    for (uint64_t i = row; i < n; i += 8)
        for (uint64_t k = 0; k < (j->opcode == TOY_HEAD_F ? V : H); k++) {
            float sum = 0;
            for (uint64_t h = 0; h < (j->opcode == TOY_HEAD_F ? H : V); h++)
                sum += j->opcode == TOY_HEAD_F ? get(&j->in[0], i * H + h) * get(w, k * H + h)
                                               : get(&j->in[0], i * V + h) * get(w, h * H + k);
            put(&j->out[0], i * (j->opcode == TOY_HEAD_F ? V : H) + k, sum);
        }
}

static void loss_tile(const struct job *j)
{
    uint64_t V = j->in[0].size[2], n = rows_of(&j->in[0]);
    const int32_t *targets = j->in[1].data;
    for (uint64_t i = 0; i < n; i++) {
        float z[64], top = -INFINITY, sum = 0, lse;
        for (uint64_t v = 0; v < V; v++)
            z[v] = get(&j->in[0], i * V + v), top = fmaxf(top, z[v]);
        for (uint64_t v = 0; v < V; v++)
            sum += expf(z[v] - top);
        lse = top + logf(sum);
        if (j->opcode == TOY_LOSS_F) {
            ((double *)j->out[0].data)[0] += targets[i] < 0 ? 0 : (double)(lse - z[targets[i]]);
            ((double *)j->out[0].data)[1] += targets[i] >= 0;
        } else {
            for (uint64_t v = 0; v < V; v++) /* its memory may be that of z */
                put(&j->out[0], i * V + v, targets[i] < 0 ? 0 : expf(z[v] - lse) - ((int64_t)v == targets[i]));
        }
    }
}

static void update_tile(const struct job *j)
{
    const float *g = j->in[0].data;
    const struct kc_view *parameter = &j->out[0];
    float *m = j->out[1].data, *v = j->out[2].data, *master = j->out[3].data;
    for (uint64_t i = 0; i < j->in[0].size[0]; i++) {
        double gi = (double)g[i] * j->step->scale, b1 = j->attr[0], b2 = j->attr[1];
        m[i] = (float)(b1 * (double)m[i] + (1 - b1) * gi);
        v[i] = (float)(b2 * (double)v[i] + (1 - b2) * gi * gi);
        double mh = (double)m[i] / (1 - j->step->beta1_power), vh = (double)v[i] / (1 - j->step->beta2_power);
        double p = (double)(master ? master[i] : get(parameter, i));
        p -= j->step->lr * (mh / (sqrt(vh) + j->attr[2]) + j->attr[3] * p);
        if (master)
            master[i] = (float)p;
        put(parameter, i, (float)p);
    }
}

static void tile(void *argument, uint32_t index, uint32_t worker)
{
    const struct job *j = argument;
    (void)worker;
    switch (j->opcode) {
    case TOY_LOAD:
        load_tile(j);
        break;
    case TOY_EMBED_F:
    case TOY_EMBED_W:
        embed_tile(j, index);
        break;
    case TOY_AFFINE_F:
    case TOY_AFFINE_I:
    case TOY_AFFINE_W:
        affine_tile(j, index);
        break;
    case TOY_HEAD_F:
    case TOY_HEAD_I:
    case TOY_HEAD_W:
        head_tile(j, index);
        break;
    case TOY_LOSS_F:
    case TOY_LOSS_I:
        loss_tile(j);
        break;
    case TOY_UPDATE:
        update_tile(j);
        break;
    default: { /* TOY_NORM */
        double sum = 0;
        for (uint64_t i = 0; i < j->in[0].size[0]; i++)
            sum += (double)((const float *)j->in[0].data)[i] * (double)((const float *)j->in[0].data)[i];
        *(double *)j->out[0].data += sum;
    }
    }
}

static int enqueue(void *self, const struct kc_op_call *call, struct kc_lane *lane, struct kc_error *e)
{
    struct toy_context *c = self;
    bool fails = call->opcode == c->fail_op && c->fail_at == (int)call->step->step;
    while (fails && c->fail_after && !atomic_load(c->fail_after))
        sched_yield();
    if (fails)
        return kc_fail(e, -EIO, "train.bin shrank");
    struct job j = {
        .context = c, .opcode = call->opcode, .micro = call->micro, .inputs = call->inputs, .step = call->step,
        .accumulate = call->accumulate};
    memcpy(j.in, call->in, call->inputs * sizeof *j.in);
    memcpy(j.out, call->out, call->outputs * sizeof *j.out);
    memcpy(j.attr, call->attr, call->attrs * sizeof *j.attr);
    uint32_t tiles = 1;
    if (call->opcode == TOY_EMBED_F)
        tiles = (uint32_t)call->out[0].size[2];
    else if (call->opcode == TOY_EMBED_W)
        tiles = (uint32_t)call->in[1].size[2];
    else if (call->opcode >= TOY_AFFINE_F && call->opcode <= TOY_AFFINE_W)
        tiles = (uint32_t)call->in[0].size[2];
    else if (call->opcode == TOY_HEAD_F || call->opcode == TOY_HEAD_I)
        tiles = 8;
    else if (call->opcode == TOY_HEAD_W)
        tiles = (uint32_t)call->in[0].size[2];
    int r = lane->enqueue(lane, tile, &j, sizeof j, tiles);
    atomic_fetch_add(&c->ran[call->opcode], 1);
    return r;
}

void toy_ops(struct kc_op ops[TOY_TABLE])
{
    for (uint32_t i = 0; i < TOY_TABLE; i++)
        ops[i] =
            (struct kc_op){.id = (uint16_t)i, .name = i < TOY_OPCODES ? codes[i].name : "update", .enqueue = enqueue};
}

int toy_failed(void *self, struct kc_error *e)
{
    const struct toy_context *c = self;
    return c->fails_late ? kc_fail(e, -EIO, "the library failed in a product") : 0;
}
