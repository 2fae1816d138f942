/* again.c - see again.h. */
#include "again.h"

#include "scratch.h"

#include <errno.h>
#include <stdbool.h>

struct again {
    const struct kc_model_graph *graph;
    const struct kc_graph_op *ops;
    const struct kc_graph_tensor *tensors;
    uint32_t recompute, layers;
    const uint32_t *borders;
    int32_t *made;   /* by tensor: the forward op that makes it, -1 */
    uint8_t *needed; /* by tensor: the backward of its layer reads it, or an op that runs again */
    uint8_t *marks;
};

static bool of_layers_again(const struct again *a, int32_t layer)
{
    const uint32_t *first = a->borders;
    while (first && first[1] <= (uint32_t)layer)
        first++;
    return !first || (uint32_t)layer - *first < a->layers;
}

static bool only_counts(const struct again *a, const struct kc_graph_op *op)
{
    bool results = op->out.count > 0;
    for (uint32_t i = 0; i < op->out.count; i++) {
        const int32_t t = KC_AT(a->graph, int32_t, op->out)[i];
        results &= t >= 0 && a->tensors[t].role == KC_RESULT;
    }
    return results;
}

static bool may_run_again(const struct again *a, const struct kc_graph_op *op)
{
    const struct kc_graph_opcode *code = KC_AT(a->graph, struct kc_graph_opcode, a->graph->opcodes) + op->opcode;
    bool allowed = op->layer >= 0 && op->klass == KC_FORWARD && (a->recompute == KC_RECOMPUTE_FULL || code->again) &&
                   of_layers_again(a, op->layer);
    for (uint32_t i = 0; i < op->out.count; i++) {
        const int32_t t = KC_AT(a->graph, int32_t, op->out)[i];
        allowed &= t < 0 || a->tensors[t].role != KC_RESULT;
    }
    return allowed;
}

/* What the op reads of its own layer. */
static void need_inputs(struct again *a, const struct kc_graph_op *op)
{
    for (uint32_t i = 0; i < op->in.count; i++) {
        const int32_t t = KC_AT(a->graph, int32_t, op->in)[i];
        if (t >= 0 && a->made[t] >= 0 && a->ops[a->made[t]].layer == op->layer)
            a->needed[t] = 1;
    }
}

int kc_again_mark(const struct kc_model_graph *graph, const struct kc_job_spec *spec, const uint32_t *borders,
                  struct kc_arena *arena, uint8_t **out)
{
    struct again a = {.graph = graph,
                      .ops = KC_AT(graph, struct kc_graph_op, graph->ops),
                      .tensors = KC_AT(graph, struct kc_graph_tensor, graph->tensors),
                      .recompute = spec->recompute,
                      .layers = spec->recompute_layers,
                      .borders = borders};
    a.made = kc_scratch_take(arena, graph->tensors.count, sizeof *a.made);
    a.needed = kc_scratch_take(arena, graph->tensors.count, 1);
    a.marks = kc_scratch_take(arena, graph->ops.count, 1);
    if (!a.made || !a.needed || !a.marks)
        return -ENOSPC;
    *out = a.marks;
    if (spec->recompute == KC_RECOMPUTE_NONE)
        return 0;
    for (uint32_t t = 0; t < graph->tensors.count; t++)
        a.made[t] = -1;
    for (uint32_t o = 0; o < graph->evaluate_first; o++)
        for (uint32_t i = 0; i < a.ops[o].out.count; i++)
            if (KC_AT(graph, int32_t, a.ops[o].out)[i] >= 0)
                a.made[KC_AT(graph, int32_t, a.ops[o].out)[i]] = (int32_t)o;
    for (uint32_t o = graph->backward_first; o < graph->ops.count; o++)
        if (!only_counts(&a, &a.ops[o]))
            need_inputs(&a, &a.ops[o]);
    for (uint32_t o = graph->evaluate_first; o-- > 0;) {
        bool needed = false;
        for (uint32_t i = 0; i < a.ops[o].out.count; i++)
            needed |= KC_AT(graph, int32_t, a.ops[o].out)[i] >= 0 && a.needed[KC_AT(graph, int32_t, a.ops[o].out)[i]];
        a.marks[o] = needed && may_run_again(&a, &a.ops[o]);
        if (a.marks[o])
            need_inputs(&a, &a.ops[o]);
    }
    return 0;
}
