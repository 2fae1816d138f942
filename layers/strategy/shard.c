/* shard.c - see shard.h. What differs between ranks is not in the plan: it follows from a rank's coordinates. */
#include "shard.h"

#include "bucket.h"
#include "placement.h"

#include <errno.h>
#include <string.h>

static int full(const struct kc_arena *arena, struct kc_error *e)
{
    return kc_fail(e, -ENOSPC, "the shard plan needs more than %zu bytes", arena->size);
}

static int copy_span(struct kc_arena *arena, const void *from, struct kc_span span, size_t element,
                     struct kc_span *to)
{
    void *p = kc_contract_array(arena, to, span.count, element);
    if (!p)
        return -ENOSPC;
    memcpy(p, (const char *)from + span.offset, span.count * element);
    return 0;
}

/* An axis cuts a tensor where it is sharded. */
static int tensor_cut(const struct kc_shard_plan *plan, struct kc_plan_tensor *t, struct kc_error *e)
{
    memcpy(t->local, t->global, sizeof t->local);
    for (int a = 0; a < KC_AXES; a++)
        for (int d = 0; d < t->rank && t->place[a].kind == KC_PLACE_SHARDED; d++) {
            if (t->dim[d] != t->place[a].dim)
                continue;
            if (t->local[d] % plan->axis[a])
                return kc_fail(e, -EINVAL,
                               "%s: dimension %s has %llu elements, not a multiple of parallel.%s %u; choose an axis "
                               "that divides it",
                               KC_TEXT(plan, t->name), kc_dim_name[t->dim[d]], (unsigned long long)t->local[d],
                               kc_axis_name[a], plan->axis[a]);
            t->local[d] /= plan->axis[a];
        }
    return 0;
}

static int tensors_build(const struct kc_model_graph *graph, struct kc_shard_plan *plan, struct kc_arena *arena,
                         struct kc_plan_tensor **out, struct kc_error *e)
{
    const struct kc_graph_tensor *from = KC_AT(graph, struct kc_graph_tensor, graph->tensors);
    uint32_t n = graph->tensors.count;
    struct kc_plan_tensor *to = kc_contract_array(arena, &plan->tensors, n, sizeof *to);
    if (!to)
        return full(arena, e);
    for (uint32_t i = 0; i < n; i++) {
        to[i].name = kc_contract_text(arena, KC_TEXT(graph, from[i].name));
        to[i].role = from[i].role, to[i].type = from[i].type, to[i].rank = from[i].rank, to[i].init = from[i].init;
        memcpy(to[i].dim, from[i].dim, sizeof to[i].dim);
        to[i].join = from[i].join;
        to[i].layer = from[i].layer, to[i].of = from[i].of;
        to[i].init_scale = from[i].init_scale, to[i].decay = from[i].decay;
        memcpy(to[i].global, from[i].size, sizeof to[i].global);
        to[i].bucket = -1;
    }
    /* The data axis is placed even with one rank, so that one rank runs the same programs as many; an other axis of
     * size 1 is replicated, which a zeroed placement says. */
    for (int a = 0; a < KC_AXES; a++)
        if (a == KC_DATA || plan->axis[a] > 1) {
            int r = kc_placement_propagate(graph, (enum kc_axis)a, plan->axis[a], to, e);
            if (r < 0)
                return r;
        }
    for (uint32_t i = 0; i < n; i++) {
        for (int a = 0; a < KC_AXES; a++)
            if (to[i].place[a].kind == PLACE_UNKNOWN)
                return kc_fail(e, -EINVAL, "%s: no op writes it; the model graph is wrong",
                               KC_TEXT(plan, to[i].name));
        int r = tensor_cut(plan, &to[i], e);
        if (r < 0)
            return r;
    }
    *out = to;
    return 0;
}

/* How many ranks share the work of an op: an axis divides it when an operand is sharded on it. */
static uint64_t op_sharers(const struct kc_shard_plan *plan, const struct kc_plan_tensor *tensors, const int32_t *in,
                           uint32_t inputs, const int32_t *out, uint32_t outputs)
{
    uint64_t n = 1;
    for (int a = 0; a < KC_AXES; a++) {
        bool cut = false;
        for (uint32_t i = 0; i < inputs; i++)
            cut |= in[i] >= 0 && tensors[in[i]].place[a].kind == KC_PLACE_SHARDED;
        for (uint32_t i = 0; i < outputs; i++)
            cut |= out[i] >= 0 && tensors[out[i]].place[a].kind == KC_PLACE_SHARDED;
        n *= cut ? plan->axis[a] : 1;
    }
    return n;
}

static int ops_build(const struct kc_model_graph *graph, struct kc_shard_plan *plan,
                     const struct kc_plan_tensor *tensors, struct kc_arena *arena, struct kc_error *e)
{
    const struct kc_graph_op *from = KC_AT(graph, struct kc_graph_op, graph->ops);
    const struct kc_graph_opcode *opcodes = KC_AT(graph, struct kc_graph_opcode, graph->opcodes);
    struct kc_plan_op *to = kc_contract_array(arena, &plan->ops, graph->ops.count, sizeof *to);
    if (!to)
        return full(arena, e);
    for (uint32_t i = 0; i < graph->ops.count; i++) {
        const struct kc_graph_opcode *code = &opcodes[from[i].opcode];
        to[i].opcode = code->id, to[i].klass = from[i].klass;
        to[i].in_place = code->in_place, to[i].accumulates = code->accumulates;
        to[i].layer = from[i].layer;
        to[i].collective = -1;
        if (copy_span(arena, graph, from[i].in, sizeof(int32_t), &to[i].in) < 0 ||
            copy_span(arena, graph, from[i].out, sizeof(int32_t), &to[i].out) < 0 ||
            copy_span(arena, graph, from[i].attr, sizeof(double), &to[i].attr) < 0)
            return full(arena, e);
        uint64_t n = op_sharers(plan, tensors, KC_AT(graph, int32_t, from[i].in), from[i].in.count,
                                KC_AT(graph, int32_t, from[i].out), from[i].out.count);
        to[i].flops = from[i].flops / n, to[i].bytes = from[i].bytes / n, to[i].scratch = from[i].scratch / n;
        if (to[i].scratch > from[i].scratch_most)
            to[i].scratch = from[i].scratch_most;
    }
    return 0;
}

static int check_batch(const struct kc_model_graph *graph, const struct kc_job_spec *spec, struct kc_error *e)
{
    const struct kc_graph_tensor *tokens = KC_AT(graph, struct kc_graph_tensor, graph->tensors) + graph->tokens;
    uint32_t rows = spec->micro * spec->axis[KC_DATA] * spec->axis[KC_EXPERT];
    if (tokens->size[0] != rows)
        return kc_fail(e, -EINVAL,
                       "the model graph has %llu rows a micro-batch, batch.micro %u x parallel.expert %u x parallel.data %u = %u",
                       (unsigned long long)tokens->size[0], spec->micro, spec->axis[KC_EXPERT], spec->axis[KC_DATA], rows);
    if (rows == 0 || spec->sequences == 0 || spec->sequences % rows)
        return kc_fail(
            e, -EINVAL,
            "batch.sequences %u is not a multiple of batch.micro %u x parallel.expert %u x parallel.data %u = %u; %u would do",
            spec->sequences, spec->micro, spec->axis[KC_EXPERT], spec->axis[KC_DATA], rows, rows ? (spec->sequences / rows + 1) * rows : 0);
    return 0;
}

int kc_shard_build(const struct kc_model_graph *graph, const struct kc_job_spec *spec,
                   struct kc_strategy_opcodes opcodes, uint64_t target, struct kc_arena *arena,
                   struct kc_shard_plan **out, struct kc_error *e)
{
    int r = check_batch(graph, spec, e);
    if (r < 0)
        return r;
    struct kc_shard_plan *plan =
        kc_contract_begin(arena, KC_CONTRACT_SHARD_PLAN, KC_SHARD_PLAN_VERSION, sizeof *plan);
    if (!plan)
        return full(arena, e);
    plan->ranks = spec->ranks, plan->zero = spec->zero;
    memcpy(plan->axis, spec->axis, sizeof plan->axis);
    plan->evaluate_first = graph->evaluate_first, plan->logits_first = graph->logits_first;
    plan->backward_first = graph->backward_first;
    plan->micro = spec->micro, plan->sequences = spec->sequences;
    plan->micro_batches = spec->sequences / (spec->micro * spec->axis[KC_DATA] * spec->axis[KC_EXPERT]);
    plan->tokens = graph->tokens, plan->targets = graph->targets;
    plan->positions = graph->positions, plan->starts = graph->starts;
    plan->logits = graph->logits, plan->result = graph->result;
    plan->opcode_update = opcodes.update, plan->opcode_norm = opcodes.norm;
    plan->update[KC_UPDATE_BETA1] = spec->beta1, plan->update[KC_UPDATE_BETA2] = spec->beta2;
    plan->update[KC_UPDATE_EPS] = spec->eps, plan->update[KC_UPDATE_DECAY] = spec->weight_decay;

    struct kc_plan_tensor *tensors = NULL;
    plan->chunks = 1;
    struct kc_plan_stage *stage = kc_contract_array(arena, &plan->stages, 1, sizeof *stage);
    if (stage)
        stage->layers = graph->layers;
    if ((r = tensors_build(graph, plan, arena, &tensors, e)) < 0 ||
        (r = ops_build(graph, plan, tensors, arena, e)) < 0 ||
        (r = kc_bucket_layout(plan, arena, tensors, target, spec->axis[KC_DATA], e)) < 0)
        return r;
    *out = plan;
    return 0;
}
