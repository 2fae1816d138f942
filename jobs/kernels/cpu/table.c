/* table.c - which kernels a table has, and its life. */
#include "cpu.h"

#include <stdio.h>
#include <stdlib.h>

static op_fn *const functions[KC_OPCODES] = { /* NULL: retired */
    [KC_OP_LOAD] = op_load,
    [KC_OP_EMBED_F] = op_embed,
    [KC_OP_EMBED_W] = op_embed_weight,
    [KC_OP_POSITION_W] = op_position_weight,
    [KC_OP_LAYERNORM_F] = op_layernorm,
    [KC_OP_LAYERNORM_I] = op_layernorm_input,
    [KC_OP_LAYERNORM_W] = op_layernorm_weight,
    [KC_OP_LINEAR_F] = op_linear,
    [KC_OP_LINEAR_I] = op_linear_input,
    [KC_OP_LINEAR_W] = op_linear_weight,
    [KC_OP_ATTENTION_F] = op_attention,
    [KC_OP_ATTENTION_I] = op_attention_input,
    [KC_OP_HEAD_F] = op_head,
    [KC_OP_ADAMW] = op_adamw,
    [KC_OP_NORM] = op_norm,
    [KC_OP_ADD] = op_add,
    [KC_OP_SCALE_F] = op_scale,
    [KC_OP_SCALE_I] = op_scale,
    [KC_OP_LINEAR_GELU_F] = op_linear_gelu,
    [KC_OP_LINEAR_ADD_F] = op_linear_add,
    [KC_OP_LINEAR_GELU_I] = op_linear_gelu_input,
    [KC_OP_HEAD_LOSS_F] = op_head_loss,
    [KC_OP_HEAD_LOSS_G] = op_head_loss_gradient,
    [KC_OP_PROJECT_F] = op_project,
    [KC_OP_PROJECT_I] = op_project_input,
    [KC_OP_PROJECT_W] = op_project_weight,
    [KC_OP_RMSNORM_F] = op_rmsnorm,
    [KC_OP_RMSNORM_I] = op_rmsnorm_input,
    [KC_OP_RMSNORM_W] = op_rmsnorm_weight,
    [KC_OP_ROPE_TABLE] = op_rope_table,
    [KC_OP_ROPE_F] = op_rope,
    [KC_OP_ROPE_I] = op_rope_input,
    [KC_OP_SWIGLU_F] = op_swiglu,
    [KC_OP_SWIGLU_I] = op_swiglu_input,
    [KC_OP_ROUTE_F] = op_route,
    [KC_OP_ROUTE_I] = op_route_input,
    [KC_OP_ARRANGE_F] = op_arrange,
    [KC_OP_DISPATCH_F] = op_dispatch,
    [KC_OP_DISPATCH_I] = op_dispatch_input,
    [KC_OP_EXPERTS_F] = op_experts,
    [KC_OP_EXPERTS_I] = op_experts_input,
    [KC_OP_EXPERTS_W] = op_experts_weight,
    [KC_OP_COMBINE_F] = op_combine,
    [KC_OP_COMBINE_I] = op_combine_input,
    [KC_OP_GROUPED_F] = op_grouped_attention,
    [KC_OP_GROUPED_I] = op_grouped_attention_input,
    [KC_OP_BOX] = op_box,
    [KC_OP_PACK] = op_pack,
    [KC_OP_UNPACK] = op_unpack,
    [KC_OP_CONVERT] = op_convert,
    [KC_OP_VOCAB_MAX] = op_vocab_max,
    [KC_OP_VOCAB_SUM] = op_vocab_sum,
    [KC_OP_VOCAB_LOSS] = op_vocab_loss,
    [KC_OP_VOCAB_SLOPE] = op_vocab_slope,
    [KC_OP_RING_F] = op_ring_attention,
    [KC_OP_RING_I] = op_ring_attention_input,
    [KC_OP_SPLIT] = op_split,
    [KC_OP_JOIN] = op_join,
    [KC_OP_SWIGLU_ROWS_F] = op_swiglu_rows,
    [KC_OP_SWIGLU_ROWS_I] = op_swiglu_rows_input,
    [KC_OP_EXCHANGE_COUNTS] = op_exchange_counts,
    [KC_OP_EXCHANGE_PLAN] = op_exchange_plan,
    [KC_OP_TALLY] = op_tally,
    [KC_OP_TO_EXPERTS] = op_exchange_identity,
    [KC_OP_FROM_EXPERTS] = op_exchange_identity,
    [KC_OP_TO_EXPERTS_I] = op_exchange_identity,
    [KC_OP_FROM_EXPERTS_I] = op_exchange_identity,
    [KC_OP_EXCHANGE_SORT] = op_exchange_sort,
    [KC_OP_EXCHANGE_UNSORT] = op_exchange_unsort,
};

static const struct {
    const char *name;
    uint8_t inputs, outputs;
} shapes[KC_OPCODES] = {
#define OPCODE(id, name, klass, in, out, in_place, add, rules, flops, scratch, block) [KC_OP_##id] = {name, in, out},
#include "jobs/models/opcodes.def"
#undef OPCODE
};

void lane_fail(struct cpu *c, int failure, const struct kc_error *e)
{
    if (atomic_exchange_explicit(&c->told, 1, memory_order_relaxed))
        return;
    c->error = *e;
    atomic_store_explicit(&c->failed, failure, memory_order_release);
}

int operands_check(struct cpu *c, const struct kc_op_call *call, const struct need *need, size_t count,
                   struct kc_error *e)
{
    int failed = atomic_load_explicit(&c->failed, memory_order_acquire);
    if (failed)
        return kc_fail(e, failed, "%s", c->error.text);
    const char *name = shapes[call->opcode].name;
    if (call->inputs != shapes[call->opcode].inputs || call->outputs != shapes[call->opcode].outputs)
        return kc_fail(e, -EINVAL, "op %s has %u inputs and %u outputs, called with %u and %u", name,
                       shapes[call->opcode].inputs, shapes[call->opcode].outputs, call->inputs, call->outputs);
    for (size_t i = 0; i < count; i++) {
        const struct kc_view *v = need[i].index < call->inputs ? &call->in[need[i].index]
                                                               : &call->out[need[i].index - call->inputs];
        if (!v->data || v->type != need[i].type || view_elements(v) != need[i].elements)
            return kc_fail(e, -EINVAL, "op %s, operand %d: needs %llu elements of %s, has %llu of %s%s", name,
                           need[i].index, (unsigned long long)need[i].elements, kc_type_name[need[i].type],
                           (unsigned long long)view_elements(v), v->type < KC_TYPES ? kc_type_name[v->type] : "?",
                           v->data ? "" : ", no memory");
    }
    return 0;
}

/* Is the part of a name before its end or a '+' this word? */
static int part_is(const char *part, const char *word)
{
    const size_t n = strcspn(part, "+");
    return strlen(word) == n && strncmp(part, word, n) == 0;
}

static const struct kernels *vectors(const char *part)
{
    const struct kernels *const all[] = {kernels_avx512(), kernels_avx2(), &kernels_portable};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) /* the best first */
        if (all[i] && (part_is(part, "auto") || part_is(part, all[i]->name)))
            return all[i];
    return NULL;
}

/* How products in bf16 are made: natively where that is the faster way, which AMX is. `asked` NULL: choose. */
static int bf16_resolve(struct cpu *c, const char *asked, int blocked)
{
    const char *isa = blocked ? NULL : gemm_native_isa();
    c->native = asked ? strcmp(asked, "native") == 0 : isa && strcmp(isa, "amx") == 0;
    if (asked && c->config.spec->precision != KC_PRECISION_BF16)
        return -ENOTSUP;
    return c->native ? (isa ? 0 : -ENOTSUP) : !asked || strcmp(asked, "widened") == 0 ? 0 : -ENOTSUP;
}

/* "vector", "vector+gemm" or "vector+gemm+way" → kernels; the way is that of products in bf16, and part of the
 * name where the precision is. Plain names leave the matrix product to us: the best there is, for "portable" our
 * own. A full name that means another machine or library is refused, with what would be taken here. */
static int variant_resolve(struct cpu *c, const char *asked, struct kc_error *e)
{
    char onednn[64];
    gemm_onednn_text(onednn, sizeof onednn);
    if (!asked || !*asked)
        asked = "auto";
    const char *gemm = strchr(asked, '+'), *way = gemm ? strchr(gemm + 1, '+') : NULL;
    gemm = gemm ? gemm + 1 : NULL;
    c->k = vectors(asked);
    const int blocked = gemm ? part_is(gemm, "blocked") : !gemm_onednn() || part_is(asked, "portable");
    if (c->k && blocked)
        c->sgemm = c->k->blocked;
    else if (gemm_onednn() && (!gemm || part_is(gemm, onednn) || part_is(gemm, "onednn")))
        c->sgemm = gemm_onednn();
    const int bf16 = c->config.spec->precision == KC_PRECISION_BF16;
    const char *ways = !bf16 ? "" : gemm_native_isa() ? "+widened (or +native)" : "+widened";
    if (!c->k || !c->sgemm || bf16_resolve(c, way ? way + 1 : NULL, blocked) < 0)
        return kc_fail(e, -ENOTSUP,
                       "kernel variant %s is not to be had here; this machine has %s+%s%s and portable+blocked%s. "
                       "Other kernels change the last bits of every number: choose one of these, or \"auto\"",
                       asked, vectors("auto")->name, gemm_onednn() ? onednn : "blocked", ways,
                       bf16 ? "+widened" : "");
    snprintf(c->variant, sizeof c->variant, "%s+%s%s", c->k->name, blocked ? "blocked" : onednn,
             !bf16 ? "" : c->native ? "+native" : "+widened");
    return 0;
}

static int table_failed(void *self, struct kc_error *e)
{
    const struct cpu *c = self;
    int failed = atomic_load_explicit(&c->failed, memory_order_acquire);
    return failed ? kc_fail(e, failed, "%s", c->error.text) : 0;
}

int kc_jobs_cpu_table(const struct kc_jobs_config *config, struct kc_op_table **out, struct kc_error *e)
{
    struct cpu *c = calloc(1, sizeof *c);
    if (!c)
        return kc_fail(e, -ENOMEM, "no memory for the op table");
    c->config = *config;
    int r = variant_resolve(c, config->variant, e);
    if (r < 0) {
        free(c);
        return r;
    }
    for (uint16_t i = 0; i < KC_OPCODES; i++)
        c->ops[i] = (struct kc_op){.id = i, .name = shapes[i].name, .enqueue = functions[i]};
    c->config.variant = c->variant;
    c->table = (struct kc_op_table){.self = c,
                                    .device = "cpu",
                                    .variant = c->variant,
                                    .ops = c->ops,
                                    .count = KC_OPCODES,
                                    .failed = table_failed};
    *out = &c->table;
    return 0;
}

void kc_jobs_cpu_table_free(struct kc_op_table *table)
{
    if (!table)
        return;
    struct cpu *c = table->self;
    gemm_native_free(c);
    for (int i = 0; i < WORKERS; i++)
        free(c->panels[i]);
    free(c);
}
