/* shard.c - see shard.h. What differs between ranks is not in the plan: it follows from a rank's coordinates. */
#include "shard.h"

#include "pipeline.h"
#include "placement.h"
#include "propagate.h"

#include "contracts/comm_plan.h"

#include <errno.h>
#include <string.h>

static int full(const struct kc_arena *arena, struct kc_error *e)
{
    return kc_fail(e, -ENOSPC, "the shard plan needs more than %zu bytes", arena->size);
}

static int copy(struct kc_arena *arena, struct kc_span *to, const void *from, size_t count, size_t element)
{
    void *p = kc_contract_array(arena, to, count, element);
    if (!p)
        return -ENOSPC;
    if (count)
        memcpy(p, from, count * element);
    return 0;
}

static int tensors_write(const struct kc_model_graph *graph, struct kc_shard_plan *plan, const struct kc_made *made,
                         struct kc_arena *arena)
{
    struct kc_plan_tensor *to = kc_contract_array(arena, &plan->tensors, made->tensor_count, sizeof *to);
    if (!to)
        return -ENOSPC;
    memcpy(to, made->tensors, made->tensor_count * sizeof *to);
    uint64_t tallies = 0;
    for (uint32_t i = 0; i < made->tensor_count; i++) {
        to[i].name = kc_contract_text(arena, KC_TEXT(graph, to[i].name));
        if (to[i].role != KC_RESULT || (int32_t)i == graph->result)
            continue;
        uint64_t n = 1;
        for (int d = 0; d < to[i].rank; d++)
            n *= to[i].global[d];
        to[i].offset = KC_AGREES + tallies;
        tallies += n;
    }
    return 0;
}

/* How many ranks share the work of an op: an axis divides it when an operand is sharded on it. */
static uint64_t op_sharers(const struct kc_shard_plan *plan, const struct kc_made *made, const struct kc_made_op *op)
{
    uint64_t n = 1;
    for (int a = 0; a < KC_AXES; a++) {
        uint32_t parts = 1;
        for (uint32_t i = 0; i < op->inputs + op->outputs; i++) {
            const struct kc_placement p =
                op->at[i] < 0 ? place_replicated() : made->tensors[op->at[i]].place[a];
            const uint32_t here = plan->axis[a] / (p.repeat ? p.repeat : 1u);
            if (p.kind == KC_PLACE_SHARDED && here > parts)
                parts = here;
        }
        n *= parts;
    }
    return n;
}

static uint64_t local_bytes(const struct kc_made *made, const struct kc_made_op *op)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < op->inputs + op->outputs; i++) {
        if (op->at[i] < 0)
            continue;
        const struct kc_plan_tensor *t = &made->tensors[op->at[i]];
        uint64_t n = kc_type_bytes[t->type];
        for (int d = 0; d < t->rank; d++)
            n *= t->local[d];
        bytes += n;
    }
    return bytes;
}

static int ops_write(struct kc_shard_plan *plan, const struct kc_made *made, struct kc_arena *arena)
{
    struct kc_plan_op *to = kc_contract_array(arena, &plan->ops, made->op_count, sizeof *to);
    if (!to)
        return -ENOSPC;
    for (uint32_t i = 0; i < made->op_count; i++) {
        const struct kc_made_op *op = &made->ops[i];
        to[i] = op->plan;
        if (copy(arena, &to[i].in, op->at, op->inputs, sizeof *op->at) < 0 ||
            copy(arena, &to[i].out, op->at + op->inputs, op->outputs, sizeof *op->at) < 0 ||
            copy(arena, &to[i].omit, op->omit, op->omit ? op->inputs + op->outputs : 0, sizeof *op->omit) < 0 ||
            copy(arena, &to[i].attr, op->attr, op->attrs, sizeof *op->attr) < 0)
            return -ENOSPC;
        to[i].bytes = local_bytes(made, op);
        if (!op->from)
            continue;
        const uint64_t n = op_sharers(plan, made, op);
        to[i].flops = op->from->flops / n, to[i].scratch = op->from->scratch / n;
        if (to[i].scratch > op->from->scratch_most)
            to[i].scratch = op->from->scratch_most;
    }
    return 0;
}

static int check_batch(const struct kc_model_graph *graph, const struct kc_job_spec *spec, struct kc_error *e)
{
    const struct kc_graph_tensor *tokens = KC_AT(graph, struct kc_graph_tensor, graph->tensors) + graph->tokens;
    uint32_t rows = spec->micro * spec->axis[KC_DATA] * spec->axis[KC_EXPERT];
    if (tokens->size[0] != rows)
        return kc_fail(e, -EINVAL,
                       "the model graph has %llu rows a micro-batch, batch.micro %u x parallel.expert %u x "
                       "parallel.data %u = %u",
                       (unsigned long long)tokens->size[0], spec->micro, spec->axis[KC_EXPERT], spec->axis[KC_DATA], rows);
    if (rows == 0 || spec->sequences == 0 || spec->sequences % rows)
        return kc_fail(
            e, -EINVAL,
            "batch.sequences %u is not a multiple of batch.micro %u x parallel.expert %u x parallel.data %u = %u; %u would do",
            spec->sequences, spec->micro, spec->axis[KC_EXPERT], spec->axis[KC_DATA], rows,
            rows ? (spec->sequences / rows + 1) * rows : 0);
    return 0;
}

/* Ranks have as many tokens of a sequence: chunks of the context axis, and parts of those along the tensor axis. */
static int check_sequence(const struct kc_model_graph *graph, const struct kc_job_spec *spec, struct kc_error *e)
{
    const struct kc_graph_tensor *tokens = KC_AT(graph, struct kc_graph_tensor, graph->tensors) + graph->tokens;
    const uint32_t context = spec->axis[KC_CONTEXT], tensor = spec->sequence ? spec->axis[KC_TENSOR] : 1;
    const uint64_t chunks = context > 1 ? 2ull * context : 1, all = tokens->size[1];
    if (all % chunks)
        return kc_fail(e, -EINVAL,
                       "model.context = %llu is not a multiple of 2·parallel.context = 2·%u = %llu: every rank has two "
                       "chunks of each sequence; model.context %llu would do",
                       (unsigned long long)all, context, (unsigned long long)chunks,
                       (unsigned long long)((all / chunks + 1) * chunks));
    if (all / context % tensor)
        return kc_fail(e, -EINVAL,
                       "model.context / parallel.context = %llu / %u = %llu tokens are not a multiple of parallel.tensor = "
                       "%u, which parallel.sequence asks for; model.context %llu would do",
                       (unsigned long long)all, context, (unsigned long long)(all / context), tensor,
                       (unsigned long long)((all / (chunks * tensor) + 1) * chunks * tensor));
    return 0;
}

static void plan_scalars(const struct kc_model_graph *graph, const struct kc_job_spec *spec,
                         struct kc_strategy_opcodes opcodes, struct kc_shard_plan *plan)
{
    plan->ranks = spec->ranks, plan->zero = spec->zero, plan->recompute = spec->recompute;
    plan->recompute_layers = spec->recompute_layers;
    memcpy(plan->axis, spec->axis, sizeof plan->axis);
    plan->sequence_pairs = spec->axis[KC_CONTEXT] > 1;
    plan->micro = spec->micro, plan->sequences = spec->sequences;
    plan->micro_batches = spec->sequences / (spec->micro * spec->axis[KC_DATA] * spec->axis[KC_EXPERT]);
    plan->tokens = graph->tokens, plan->targets = graph->targets;
    plan->positions = graph->positions, plan->starts = graph->starts;
    plan->logits = graph->logits, plan->result = graph->result;
    plan->opcode_update = opcodes.update, plan->opcode_norm = opcodes.norm, plan->opcode_add = opcodes.add;
    plan->update[KC_UPDATE_BETA1] = spec->beta1, plan->update[KC_UPDATE_BETA2] = spec->beta2;
    plan->update[KC_UPDATE_EPS] = spec->eps, plan->update[KC_UPDATE_DECAY] = spec->weight_decay;
}

/* Every op and tensor placed along every axis, and what follows from that. */
static int cut_and_convert(const struct kc_model_graph *graph, const struct kc_job_spec *spec, const uint32_t *borders,
                           struct kc_strategy_opcodes opcodes, const struct kc_shard_plan *plan, struct kc_arena *arena,
                           struct kc_made *made, struct kc_error *e)
{
    struct kc_cut cut;
    int r = kc_cut_begin(graph, spec, borders, arena, &cut);
    for (int a = 0; r == 0 && a < KC_AXES; a++)
        if (kc_cut_uses(spec, a))
            r = kc_propagate(&cut, (enum kc_axis)a, arena, e);
    if (r == 0)
        r = kc_convert(&cut, plan, opcodes, arena, made, e);
    return r;
}

int kc_shard_build(const struct kc_model_graph *graph, const struct kc_job_spec *spec, const uint32_t *borders,
                   struct kc_strategy_opcodes opcodes, struct kc_arena *arena, struct kc_shard_plan **out,
                   struct kc_made *made, struct kc_error *e)
{
    int r = check_batch(graph, spec, e);
    if (r < 0 || (r = check_sequence(graph, spec, e)) < 0)
        return r;
    struct kc_shard_plan *plan =
        kc_contract_begin(arena, KC_CONTRACT_SHARD_PLAN, KC_SHARD_PLAN_VERSION, sizeof *plan);
    if (!plan)
        return full(arena, e);
    plan_scalars(graph, spec, opcodes, plan);
    r = cut_and_convert(graph, spec, borders, opcodes, plan, arena, made, e);
    if (r == 0) {
        plan->evaluate_first = made->part_first[1], plan->logits_first = made->part_first[2];
        plan->backward_first = made->part_first[3];
        r = tensors_write(graph, plan, made, arena);
    }
    if (r == 0)
        r = ops_write(plan, made, arena);
    if (r == 0)
        r = kc_pipeline_build(spec, borders, made->collective_count, plan, arena, e);
    if (r == -ENOSPC)
        return full(arena, e);
    *out = plan;
    return r;
}
