/* placement.c - see placement.h. Pure: reads the graph, writes the placements of one axis. */
#include "placement.h"

#include <errno.h>
#include <stdio.h>

bool kc_placement_equal(struct kc_placement a, struct kc_placement b)
{
    if (a.kind != b.kind)
        return false;
    if (a.kind == KC_PLACE_SHARDED)
        return a.dim == b.dim;
    return a.kind != KC_PLACE_PARTIAL || a.reduce == b.reduce;
}

/* Rows: from; columns: to. S to S and P to P depend on the dimension and the reduction and are looked at apart. */
static const struct kc_conversion table[KC_PLACES][KC_PLACES] = {
    [KC_PLACE_REPLICATED] = {[KC_PLACE_REPLICATED] = {.kind = CONVERT_NOTHING},
                             [KC_PLACE_SHARDED] = {.kind = CONVERT_SLICE},
                             [KC_PLACE_PARTIAL] = {.kind = CONVERT_IMPOSSIBLE}},
    [KC_PLACE_SHARDED] = {[KC_PLACE_REPLICATED] = {.kind = CONVERT_PRIMITIVE, .primitive = KC_ALL_GATHER},
                          [KC_PLACE_SHARDED] = {.kind = CONVERT_PRIMITIVE, .primitive = KC_ALL_TO_ALL},
                          [KC_PLACE_PARTIAL] = {.kind = CONVERT_IMPOSSIBLE}},
    [KC_PLACE_PARTIAL] = {[KC_PLACE_REPLICATED] = {.kind = CONVERT_PRIMITIVE, .primitive = KC_ALL_REDUCE},
                          [KC_PLACE_SHARDED] = {.kind = CONVERT_PRIMITIVE, .primitive = KC_REDUCE_SCATTER},
                          [KC_PLACE_PARTIAL] = {.kind = CONVERT_IMPOSSIBLE}},
};

struct kc_conversion kc_placement_convert(struct kc_placement from, struct kc_placement to)
{
    if (from.kind >= KC_PLACES || to.kind >= KC_PLACES)
        return (struct kc_conversion){.kind = CONVERT_IMPOSSIBLE};
    if (kc_placement_equal(from, to))
        return (struct kc_conversion){.kind = CONVERT_NOTHING};
    struct kc_conversion c = table[from.kind][to.kind];
    if (from.kind == KC_PLACE_PARTIAL)
        c.reduce = from.reduce;
    return c;
}

double kc_conversion_bytes(struct kc_conversion c, uint64_t bytes, uint32_t ranks)
{
    if (c.kind != CONVERT_PRIMITIVE || ranks < 2)
        return 0;
    double others = (double)(ranks - 1) / ranks * (double)bytes;
    switch (c.primitive) {
    case KC_ALL_REDUCE:
        return 2 * others; /* a reduce-scatter and an all-gather */
    case KC_ALL_TO_ALL:
        return others / ranks; /* a rank holds 1/ranks of it and keeps its own share */
    default:
        return others;
    }
}

const char *kc_conversion_name(struct kc_conversion c)
{
    switch (c.kind) {
    case CONVERT_NOTHING:
        return "nothing";
    case CONVERT_SLICE:
        return "local slice";
    case CONVERT_PRIMITIVE:
        return kc_primitive_name[c.primitive];
    default:
        return "no single primitive";
    }
}

void kc_placement_text(struct kc_placement p, char out[32])
{
    switch (p.kind) {
    case KC_PLACE_REPLICATED:
        snprintf(out, 32, "R");
        break;
    case KC_PLACE_SHARDED:
        snprintf(out, 32, "S(%s)", p.dim == KC_FLAT ? "flat" : p.dim < KC_DIMS ? kc_dim_name[p.dim] : "?");
        break;
    case KC_PLACE_PARTIAL:
        snprintf(out, 32, "P(%s)", p.reduce < KC_REDUCES ? kc_reduce_name[p.reduce] : "?");
        break;
    default:
        snprintf(out, 32, "not placed");
    }
}

/* ---- propagation ---- */

/* One op on one axis, and where the operands stand. */
struct site {
    const struct kc_model_graph *graph;
    const struct kc_graph_op *op;
    const struct kc_graph_opcode *opcode;
    const int32_t *in, *out;
    enum kc_axis axis;
    uint32_t ranks;
    struct kc_plan_tensor *tensors;
};

static struct kc_placement *place_of(const struct site *s, int32_t tensor)
{
    return &s->tensors[tensor].place[s->axis];
}

static uint64_t tensor_bytes(const struct kc_graph_tensor *t)
{
    uint64_t n = kc_type_bytes[t->type];
    for (int d = 0; d < t->rank; d++)
        n *= t->size[d];
    return n;
}

/* Outputs that somebody placed before (several ops add to one gradient) must come out the same way. */
static bool outputs_agree(const struct site *s, const struct kc_graph_rule *rule)
{
    for (uint32_t i = 0; i < s->op->out.count; i++) {
        if (s->out[i] < 0)
            continue;
        struct kc_placement there = *place_of(s, s->out[i]);
        if (there.kind != PLACE_UNKNOWN && !kc_placement_equal(there, rule->at[s->opcode->inputs + i]))
            return false;
    }
    return true;
}

/* What it costs to bring the inputs to where the rule wants them: bytes, and how many inputs and the first that must
 * move. Negative: impossible. */
static double rule_cost(const struct site *s, const struct kc_graph_rule *rule, int *moves, uint32_t *first)
{
    const struct kc_graph_tensor *tensors = KC_AT(s->graph, struct kc_graph_tensor, s->graph->tensors);
    double bytes = 0;
    *moves = 0;
    for (uint32_t i = 0; i < s->op->in.count; i++) {
        if (s->in[i] < 0)
            continue;
        struct kc_conversion c = kc_placement_convert(*place_of(s, s->in[i]), rule->at[i]);
        if (c.kind == CONVERT_NOTHING)
            continue;
        if (c.kind == CONVERT_IMPOSSIBLE)
            return -1;
        if ((*moves)++ == 0)
            *first = i;
        bytes += kc_conversion_bytes(c, tensor_bytes(&tensors[s->in[i]]), s->ranks);
    }
    return bytes;
}

static int no_rule(const struct site *s, uint32_t index, const struct kc_graph_rule *best, uint32_t input,
                   struct kc_error *e)
{
    const struct kc_graph_tensor *tensors = KC_AT(s->graph, struct kc_graph_tensor, s->graph->tensors);
    const char *op = KC_TEXT(s->graph, s->opcode->name), *axis = kc_axis_name[s->axis];
    char from[32], to[32];
    if (!best) {
        for (uint32_t i = 0; i < s->op->in.count; i++) {
            if (s->in[i] < 0)
                continue;
            kc_placement_text(*place_of(s, s->in[i]), from);
            return kc_fail(e, -ENOTSUP,
                           "op %u (%s, layer %d) has no rule for %s as %s on axis %s, and no single primitive "
                           "leads to one; set parallel.%s to 1",
                           index, op, s->op->layer, KC_TEXT(s->graph, tensors[s->in[i]].name), from, axis, axis);
        }
        return kc_fail(e, -ENOTSUP,
                       "op %u (%s, layer %d) has no rule for its outputs on axis %s; set parallel.%s to 1", index, op,
                       s->op->layer, axis, axis);
    }
    struct kc_placement there = *place_of(s, s->in[input]);
    kc_placement_text(there, from);
    kc_placement_text(best->at[input], to);
    return kc_fail(e, -ENOTSUP,
                   "op %u (%s, layer %d) would need %s as %s instead of %s on axis %s: one %s; conversions inside "
                   "a graph are not carried out, set parallel.%s to 1",
                   index, op, s->op->layer, KC_TEXT(s->graph, tensors[s->in[input]].name), to, from, axis,
                   kc_conversion_name(kc_placement_convert(there, best->at[input])), axis);
}

static int op_propagate(const struct site *s, uint32_t index, struct kc_error *e)
{
    const struct kc_graph_rule *rules = KC_AT(s->graph, struct kc_graph_rule, s->opcode->rules), *best = NULL;
    double best_bytes = 0;
    int best_moves = 0;
    uint32_t best_input = 0;
    for (uint32_t r = 0; r < s->opcode->rules.count; r++) {
        int moves;
        uint32_t input = 0;
        double bytes = outputs_agree(s, &rules[r]) ? rule_cost(s, &rules[r], &moves, &input) : -1;
        /* fewer bytes first, then fewer conversions, then the order of the table */
        if (bytes < 0 || (best && (bytes > best_bytes || (bytes == best_bytes && moves >= best_moves))))
            continue;
        best = &rules[r], best_bytes = bytes, best_moves = moves, best_input = input;
    }
    if (!best || best_moves > 0)
        return no_rule(s, index, best, best_input, e);
    for (uint32_t i = 0; i < s->op->out.count; i++)
        if (s->out[i] >= 0)
            *place_of(s, s->out[i]) = best->at[s->opcode->inputs + i];
    return 0;
}

static struct kc_placement seed(const struct kc_graph_tensor *t, enum kc_axis axis)
{
    if (t->role == KC_PARAMETER)
        return place_replicated();
    if (t->role != KC_INPUT)
        return (struct kc_placement){.kind = PLACE_UNKNOWN};
    for (int d = 0; axis == KC_DATA && d < t->rank; d++)
        if (t->dim[d] == KC_BATCH)
            return place_sharded(KC_BATCH);
    return place_replicated();
}

int kc_placement_propagate(const struct kc_model_graph *graph, enum kc_axis axis, uint32_t ranks,
                           struct kc_plan_tensor *tensors, struct kc_error *e)
{
    const struct kc_graph_tensor *logical = KC_AT(graph, struct kc_graph_tensor, graph->tensors);
    for (uint32_t t = 0; t < graph->tensors.count; t++)
        tensors[t].place[axis] = seed(&logical[t], axis);

    const struct kc_graph_op *ops = KC_AT(graph, struct kc_graph_op, graph->ops);
    const struct kc_graph_opcode *opcodes = KC_AT(graph, struct kc_graph_opcode, graph->opcodes);
    for (uint32_t o = 0; o < graph->ops.count; o++) {
        struct site s = {.graph = graph,
                         .op = &ops[o],
                         .opcode = &opcodes[ops[o].opcode],
                         .axis = axis,
                         .in = KC_AT(graph, int32_t, ops[o].in),
                         .out = KC_AT(graph, int32_t, ops[o].out),
                         .ranks = ranks,
                         .tensors = tensors};
        for (uint32_t i = 0; i < s.op->in.count; i++)
            if (s.in[i] >= 0 && place_of(&s, s.in[i])->kind == PLACE_UNKNOWN)
                return kc_fail(e, -EINVAL,
                               "op %u (%s) reads %s before any op writes it; the model graph is out of order", o,
                               KC_TEXT(graph, s.opcode->name), KC_TEXT(graph, logical[s.in[i]].name));
        int r = op_propagate(&s, o, e);
        if (r < 0)
            return r;
    }
    return 0;
}
