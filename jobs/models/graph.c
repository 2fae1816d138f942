/* graph.c - see graph.h. Writes into the arena only; when that is full, the sealing at the end says so. */
#include "graph.h"

#include <stdio.h>
#include <string.h>

/* The next tensor with everything that follows from its shape; a dummy in the counting pass. */
static struct kc_graph_tensor *tensor(struct graph *g, enum kc_role role, enum kc_type type, struct shape s)
{
    static const struct kc_graph_tensor blank = {.of = -1};
    struct kc_graph_tensor *t = g->tensors ? &g->tensors[g->tensor_count] : &g->counted;
    g->tensor_count++;
    *t = blank;
    t->role = (uint8_t)role;
    t->type = (uint8_t)type;
    t->rank = s.rank;
    t->layer = g->layer;
    for (int d = 0; d < s.rank; d++) {
        t->dim[d] = (uint8_t)s.at[d].dim;
        t->size[d] = s.at[d].size;
        t->join |= (uint8_t)((s.at[d].dim & JOINED ? 1 : 0) << d);
    }
    return t;
}

static kc_text layer_text(struct graph *g, const char *format)
{
    char text[96];
    if (!g->tensors)
        return 0;
    snprintf(text, sizeof text, format, (int)g->layer);
    return kc_contract_text(g->arena, text);
}

static kc_text suffixed(struct graph *g, const char *prefix, kc_text name, const char *suffix)
{
    char text[128];
    if (!g->tensors)
        return 0;
    snprintf(text, sizeof text, "%s%s%s", prefix, KC_TEXT(g->arena->base, name), suffix);
    return kc_contract_text(g->arena, text);
}

static int32_t last(const struct graph *g)
{
    return (int32_t)g->tensor_count - 1;
}

int32_t graph_input(struct graph *g, const char *name, struct shape s)
{
    tensor(g, KC_INPUT, KC_I32, s)->name = layer_text(g, name);
    return last(g);
}

int32_t graph_activation(struct graph *g, const char *name, struct shape s)
{
    enum kc_type type = s.at[s.rank - 1].dim == KC_SEQUENCE ? KC_F32 : g->storage;
    tensor(g, KC_ACTIVATION, type, s)->name = layer_text(g, name);
    return last(g);
}

int32_t graph_statistic(struct graph *g, const char *name, struct shape s)
{
    tensor(g, KC_ACTIVATION, KC_F32, s)->name = layer_text(g, name);
    return last(g);
}

int32_t graph_index(struct graph *g, const char *name, struct shape s)
{
    tensor(g, KC_ACTIVATION, KC_I32, s)->name = layer_text(g, name);
    return last(g);
}

void graph_sorted(struct graph *g, int32_t tensor)
{
    if (g->tensors)
        g->tensors[tensor].sorted = 1;
}

int32_t graph_result(struct graph *g, const char *name, struct shape s)
{
    tensor(g, KC_RESULT, KC_F64, s)->name = layer_text(g, name);
    return last(g);
}

int32_t graph_parameter(struct graph *g, const char *name, struct shape s, enum kc_init init, double scale)
{
    struct kc_graph_tensor *p = tensor(g, KC_PARAMETER, g->storage, s);
    kc_text text = layer_text(g, name);
    p->name = text;
    p->init = (uint8_t)init;
    p->init_scale = (float)scale;
    p->decay = s.rank - __builtin_popcount(p->join) >= 2;
    int32_t index = last(g);
    struct kc_graph_tensor *gradient = tensor(g, KC_GRADIENT, KC_F32, s);
    gradient->name = suffixed(g, "", text, ".grad");
    gradient->of = index;
    return index;
}

int32_t graph_derivative(struct graph *g, int32_t activation)
{
    struct shape s = {0};
    enum kc_type type = g->storage;
    kc_text of = 0;
    uint8_t sorted = 0;
    if (g->tensors) {
        const struct kc_graph_tensor *a = &g->tensors[activation];
        s.rank = a->rank;
        for (int d = 0; d < a->rank; d++)
            s.at[d] = (struct extent){a->dim[d], a->size[d]};
        type = (enum kc_type)a->type;
        of = a->name;
        sorted = a->sorted;
    }
    struct kc_graph_tensor *d = tensor(g, KC_DERIVATIVE, type, s);
    d->sorted = sorted;
    d->name = suffixed(g, "d ", of, "");
    d->of = activation;
    return last(g);
}

/* An expression of the opcode table's row, with the names it may use. */
#define ROW_VALUE(value)                                            \
    const uint64_t r = size.r, k = size.k, n = size.n, s = size.s; \
    (void)r, (void)k, (void)n, (void)s;                            \
    return value

#define OPCODE(id, name, klass, in, out, in_place, add, rules, flops, scratch, block) \
    static uint64_t flops_##id(struct op_size size)                                   \
    {                                                                                 \
        ROW_VALUE(flops);                                                             \
    }                                                                                 \
    static uint64_t scratch_##id(struct op_size size)                                 \
    {                                                                                 \
        ROW_VALUE(scratch);                                                           \
    }                                                                                 \
    static uint64_t block_##id(struct op_size size)                                   \
    {                                                                                 \
        ROW_VALUE(block);                                                             \
    }
#include "opcodes.def"
#undef OPCODE

static const struct {
    const char *name, *rules;
    uint8_t klass, inputs, outputs, in_place, add;
    uint64_t (*flops)(struct op_size size), (*scratch)(struct op_size size), (*block)(struct op_size size);
} rows[KC_OPCODES] = {
#define OPCODE(id, name, klass, in, out, in_place, add, rules, flops, scratch, block) \
    [KC_OP_##id] = {name, rules, KC_##klass, in, out, in_place, add, flops_##id, scratch_##id, block_##id},
#include "opcodes.def"
#undef OPCODE
};

static int32_t *operands(struct graph *g, struct kc_span *span, const int32_t *list, uint64_t *bytes)
{
    uint32_t n = 0;
    while (list[n] != GRAPH_END)
        n++;
    int32_t *to = kc_contract_array(g->arena, span, n, sizeof *to);
    for (uint32_t i = 0; i < n && to; i++) {
        to[i] = list[i];
        if (list[i] < 0)
            continue;
        const struct kc_graph_tensor *t = &g->tensors[list[i]];
        uint64_t elements = 1;
        for (int d = 0; d < t->rank; d++)
            elements *= t->size[d];
        *bytes += elements * kc_type_bytes[t->type];
    }
    return to;
}

void graph_op(struct graph *g, enum kc_opcode opcode, struct op_size size, const int32_t *in, const int32_t *out,
              const double *attr, uint32_t attrs)
{
    g->op_count++;
    if (!g->tensors)
        return;
    struct kc_graph_op *op = &g->ops[g->op_count - 1];
    op->opcode = (uint16_t)opcode; /* the table has every opcode, so index and id are the same number */
    op->klass = rows[opcode].klass;
    op->layer = g->layer;
    op->flops = rows[opcode].flops(size);
    const uint64_t row = rows[opcode].scratch(size);
    op->scratch = size.r * row;
    op->scratch_most = rows[opcode].block(size) * row;
    operands(g, &op->in, in, &op->bytes);
    operands(g, &op->out, out, &op->bytes);
    double *values = kc_contract_array(g->arena, &op->attr, attrs, sizeof *values);
    if (values && attrs)
        memcpy(values, attr, attrs * sizeof *values);
}

void graph_load(struct graph *g, const struct kc_job_spec *spec, struct shape tokens, struct graph_ends *ends)
{
    ends->tokens = graph_input(g, "tokens", tokens);
    ends->targets = graph_input(g, "targets", tokens);
    ends->positions = graph_input(g, "positions", tokens);
    ends->starts = spec->documents == KC_DOCUMENTS_MASKED ? graph_input(g, "starts", tokens) : -1;
    graph_op(g, KC_OP_LOAD, (struct op_size){.r = tokens.at[0].size * tokens.at[1].size}, NO_OPERANDS,
             OPERANDS(ends->tokens, ends->targets, ends->positions, ends->starts), NULL, 0);
}

int32_t graph_head(struct graph *g, struct op_size size, int32_t x, int32_t w, struct graph_ends *ends)
{
    struct shape logits = {.rank = 3};
    if (g->tensors)
        for (int d = 0; d < 2; d++)
            logits.at[d] = (struct extent){g->tensors[x].dim[d], g->tensors[x].size[d]};
    logits.at[2] = (struct extent){KC_VOCAB, size.n};
    ends->evaluate_first = g->op_count;
    ends->result = graph_result(g, "result", SHAPE({KC_NONE, 2}));
    graph_op(g, KC_OP_HEAD_LOSS_F, size, OPERANDS(x, w, ends->targets), OPERANDS(ends->result), NULL, 0);
    ends->logits_first = g->op_count;
    ends->logits = graph_activation(g, "logits", logits);
    graph_op(g, KC_OP_HEAD_F, size, OPERANDS(x, w), OPERANDS(ends->logits), NULL, 0);
    ends->backward_first = g->op_count;
    int32_t dx = graph_derivative(g, x);
    graph_op(g, KC_OP_HEAD_LOSS_G, size, OPERANDS(x, w, ends->targets), OPERANDS(gradient_of(w), dx, ends->result), NULL,
             0);
    return dx;
}

static struct kc_placement placement(char letter)
{
    static const char letters[] = "bshkfve";
    static const uint8_t dims[] = {KC_BATCH, KC_SEQUENCE, KC_HEADS, KC_KV_HEADS, KC_FFN, KC_VOCAB, KC_DIM_EXPERT};
    const char *at = strchr(letters, letter);
    if (letter == 'P' || letter == 'p' || letter == 'M')
        return (struct kc_placement){.kind = KC_PLACE_PARTIAL, .reduce = letter == 'M' ? KC_MAX : KC_SUM};
    if (!at)
        return (struct kc_placement){.kind = KC_PLACE_REPLICATED};
    return (struct kc_placement){.kind = KC_PLACE_SHARDED, .dim = dims[at - letters]};
}

static void opcode_rules(struct kc_arena *arena, struct kc_span *span, const char *text, uint32_t operands_count)
{
    uint32_t n = (uint32_t)(strlen(text) + 1) / (operands_count + 1); /* words of equal length and spaces between */
    struct kc_graph_rule *rule = kc_contract_array(arena, span, n, sizeof *rule);
    for (uint32_t i = 0; i < n && rule; i++)
        for (uint32_t k = 0; k < operands_count; k++)
            rule[i].at[k] = placement(text[i * (operands_count + 1) + k]);
}

/* Inputs that are a P somewhere. */
static uint32_t optional(const char *text, uint32_t inputs, uint32_t operands_count)
{
    uint32_t bits = 0;
    for (uint32_t i = 0; text[i]; i++)
        if (text[i] == 'P' && i % (operands_count + 1) < inputs)
            bits |= 1u << i % (operands_count + 1);
    return bits;
}

void graph_opcodes(struct kc_arena *arena, struct kc_span *span)
{
    struct kc_graph_opcode *o = kc_contract_array(arena, span, KC_OPCODES, sizeof *o);
    for (uint32_t i = 0; i < KC_OPCODES && o; i++) {
        o[i].name = kc_contract_text(arena, rows[i].name);
        o[i].id = (uint16_t)i;
        o[i].klass = rows[i].klass;
        o[i].inputs = rows[i].inputs;
        o[i].outputs = rows[i].outputs;
        o[i].in_place = rows[i].in_place;
        o[i].accumulates = rows[i].add;
        o[i].again = i == KC_OP_ATTENTION_F || i == KC_OP_GROUPED_F; /* what is quadratic in tokens keeps nothing */
        const uint32_t all = (uint32_t)(rows[i].inputs + rows[i].outputs);
        o[i].optional = optional(rows[i].rules, rows[i].inputs, all);
        opcode_rules(arena, &o[i].rules, rows[i].rules, all);
    }
}
