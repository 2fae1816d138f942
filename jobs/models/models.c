/* models.c - from a spec to a sealed graph; a family is one row of the table. */
#include "graph.h"

#include <errno.h>
#include <stdlib.h>

static const struct family {
    int (*emit)(struct graph *g, const struct kc_job_spec *spec, struct graph_ends *ends);
    uint64_t (*parameters)(const struct kc_job_spec *spec);
    uint64_t (*flops_per_token)(const struct kc_job_spec *spec);
} families[KC_FAMILIES] = {
    [KC_FAMILY_GPT2] = {gpt2_emit, gpt2_parameters, gpt2_flops_per_token},
    [KC_FAMILY_LLAMA] = {llama_emit, llama_parameters, llama_flops_per_token},
    [KC_FAMILY_MOE] = {llama_emit, llama_parameters, llama_flops_per_token},
};

static int sizes_check(const struct kc_job_spec *s, struct kc_error *e)
{
    if (s->family >= KC_FAMILIES)
        return kc_fail(e, -EINVAL, "model.family: number %u is not a family; there are %d", s->family, KC_FAMILIES);
    const struct {
        const char *name;
        uint32_t value;
    } need[] = {{"model.layers", s->layers}, {"model.hidden", s->hidden}, {"model.heads", s->heads},
                {"model.kv_heads", s->kv_heads}, {"model.ffn", s->ffn}, {"model.context", s->context}, {"model.vocab", s->vocab}, {"batch.micro", s->micro},
                {"parallel.data", s->axis[KC_DATA]}, {"parallel.expert", s->axis[KC_EXPERT]}};
    for (size_t i = 0; i < sizeof need / sizeof *need; i++)
        if (need[i].value == 0 || need[i].value > INT32_MAX)
            return kc_fail(e, -EINVAL, "%s is %u; it must be from 1 to %d", need[i].name, need[i].value, INT32_MAX);
    if (s->hidden % s->heads)
        return kc_fail(e, -EINVAL, "model.heads (%u) does not divide model.hidden (%u); try heads %u", s->heads,
                       s->hidden, s->hidden % 64 ? 1 : s->hidden / 64);
    if (s->heads % s->kv_heads)
        return kc_fail(e, -EINVAL, "model.kv_heads (%u) does not divide model.heads (%u)", s->kv_heads, s->heads);
    if (s->rope_theta > 0 && s->hidden / s->heads % 2)
        return kc_fail(e, -EINVAL, "model.heads (%u) leaves heads of %u numbers; to be turned they must be even",
                       s->heads, s->hidden / s->heads);
    if (s->experts && (s->top_k == 0 || s->top_k > s->experts))
        return kc_fail(e, -EINVAL, "model.top_k (%u) must be from 1 to model.experts (%u)", s->top_k, s->experts);
    return 0;
}

static uint64_t trained(const struct graph *g)
{
    uint64_t sum = 0;
    for (uint32_t t = 0; t < g->tensor_count; t++) {
        uint64_t n = g->tensors[t].role == KC_PARAMETER && !g->tensors[t].frozen;
        for (int d = 0; d < g->tensors[t].rank; d++)
            n *= g->tensors[t].size[d];
        sum += n;
    }
    return sum;
}

static int graph_build(const struct kc_job_spec *spec, struct kc_arena *arena, struct linear *linear,
                       const struct kc_model_graph **out, struct kc_error *e)
{
    const struct family *family = &families[spec->family];
    const enum kc_type storage = spec->precision == KC_PRECISION_BF16 ? KC_BF16 : KC_F32;
    struct graph g = {.arena = arena, .spec = spec, .storage = storage, .linear = linear};
    struct graph_ends ends;
    int r = family->emit(&g, spec, &ends); /* counts */
    if (r < 0)
        return kc_fail(e, r, "no memory for a graph of %u layers", spec->layers);

    struct kc_model_graph full = {0}, *root = kc_contract_begin(arena, KC_CONTRACT_MODEL_GRAPH,
                                                                KC_MODEL_GRAPH_VERSION, sizeof *root);
    if (!root)
        root = &full; /* go on: what follows still counts what it would need */
    kc_contract_array(arena, &root->tensors, g.tensor_count, sizeof(struct kc_graph_tensor));
    kc_contract_array(arena, &root->ops, g.op_count, sizeof(struct kc_graph_op));
    graph_opcodes(arena, &root->opcodes);
    graph_expansions(arena, root);
    if (arena->need > arena->size)
        return kc_fail(e, -ENOSPC, "the graph of %u layers needs more than %zu bytes", spec->layers, arena->size);
    g = (struct graph){.arena = arena, .spec = spec, .storage = storage, .linear = linear, .tensors = (void *)(arena->base + root->tensors.offset),
                       .ops = (void *)(arena->base + root->ops.offset)};
    r = family->emit(&g, spec, &ends);
    if (r < 0)
        return kc_fail(e, r, "no memory for a graph of %u layers", spec->layers);
    if (arena->need > arena->size)
        return kc_fail(e, -ENOSPC, "the graph of %u layers needs more than %zu bytes", spec->layers, arena->size);
    const uint64_t adapters = graph_adapter_elements(&g);
    if ((r = graph_lora_check(&g, spec, e)) < 0 || (r = graph_freeze(&g, spec, &ends, e)) < 0)
        return r;
    root->tensors.count = g.tensor_count, root->ops.count = g.op_count;
    root->family = kc_contract_text(arena, kc_family_name[spec->family]);
    root->layers = spec->layers;
    root->parameters = family->parameters(spec) + adapters;
    root->trained = trained(&g);
    root->tokens = ends.tokens;
    root->targets = ends.targets;
    root->positions = ends.positions;
    root->starts = ends.starts;
    root->logits = ends.logits;
    root->result = ends.result;
    root->evaluate_first = ends.evaluate_first;
    root->logits_first = ends.logits_first;
    root->backward_first = ends.backward_first;
    r = kc_contract_seal(arena);
    if (r < 0)
        return kc_fail(e, r, "the graph of %u layers needs %zu bytes, the arena has %zu", spec->layers, arena->need,
                       arena->size);
    *out = root;
    return 0;
}

int kc_model_graph_build(const struct kc_job_spec *spec, struct kc_arena *arena, const struct kc_model_graph **out,
                         struct kc_error *e)
{
    int r = sizes_check(spec, e);
    if (r < 0)
        return r;
    struct linear *linear = calloc((size_t)spec->layers * LINEAR_A_LAYER, sizeof *linear);
    if (!linear)
        return kc_fail(e, -ENOMEM, "no memory for a graph of %u layers", spec->layers);
    r = graph_build(spec, arena, linear, out, e);
    free(linear);
    return r;
}

uint64_t kc_model_parameters(const struct kc_job_spec *spec)
{
    return families[spec->family].parameters(spec);
}

uint64_t kc_model_flops_per_token(const struct kc_job_spec *spec)
{
    return families[spec->family].flops_per_token(spec);
}
