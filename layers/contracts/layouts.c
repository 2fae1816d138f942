/* layouts.c - the fields of every contract as tables (struct kc_layout), and the names of the enums in their headers.
 * Printing as JSON and finding the first difference need nothing else.
 *
 * The head of a block (size, digest) follows from the rest and would always be the first thing that differs, so it is
 * HIDDEN, like padding. tests/unit/test_contracts.c proves that each table covers every byte of its struct once. */
#include "contracts/comm_costs.h"
#include "contracts/comm_plan.h"
#include "contracts/device_view.h"
#include "contracts/exec_plan.h"
#include "contracts/job_spec.h"
#include "contracts/model_graph.h"
#include "contracts/shard_plan.h"
#include "contracts/state_if.h"
#include "contracts/step_trace.h"

#define MEMBER(s, m) (((const struct s *)0)->m)
#define KIND(x)                                                                                                        \
    _Generic((x), uint8_t: KC_FIELD_U8, uint16_t: KC_FIELD_U16, uint32_t: KC_FIELD_U32, uint64_t: KC_FIELD_U64,        \
             int32_t: KC_FIELD_I32, int64_t: KC_FIELD_I64, float: KC_FIELD_F32, double: KC_FIELD_F64)
#define COUNT(a) (sizeof(a) / sizeof *(a))
#define PLACE(s, m) .name = #m, .offset = offsetof(struct s, m)

/* One row a field; s is the struct's tag, m the member. */
#define SCALAR(s, m) {PLACE(s, m), .count = 1, .kind = KIND(MEMBER(s, m))}
#define ARRAY(s, m) {PLACE(s, m), .count = COUNT(MEMBER(s, m)), .kind = KIND(MEMBER(s, m)[0])}
#define ENUM(s, m, n) {PLACE(s, m), .count = 1, .kind = KIND(MEMBER(s, m)), .names = n, .names_count = COUNT(n)}
#define ENUMS(s, m, n)                                                                                                 \
    {PLACE(s, m), .count = COUNT(MEMBER(s, m)), .kind = KIND(MEMBER(s, m)[0]), .names = n, .names_count = COUNT(n)}
#define TEXT(s, m) {PLACE(s, m), .count = 1, .kind = KC_FIELD_TEXT}
#define SPAN_OF(s, m, l) {PLACE(s, m), .count = 1, .kind = KC_FIELD_SPAN, .of = &l}
#define SPAN(s, m, k) {PLACE(s, m), .count = 1, .kind = KC_FIELD_SPAN, .scalar = k}
#define SPAN_ENUM(s, m, k, n)                                                                                          \
    {PLACE(s, m), .count = 1, .kind = KC_FIELD_SPAN, .scalar = k, .names = n, .names_count = COUNT(n)}
#define INLINE(s, m, l) {PLACE(s, m), .count = 1, .kind = KC_FIELD_STRUCT, .of = &l}
#define INLINES(s, m, l) {PLACE(s, m), .count = COUNT(MEMBER(s, m)), .kind = KC_FIELD_STRUCT, .of = &l}
#define HIDDEN(s, m) {PLACE(s, m), .count = sizeof MEMBER(s, m), .kind = KC_FIELD_HIDDEN}
/* The compiler's padding behind member m, up to the next member. */
#define GAP(s, m, next)                                                                                                \
    {.name = "gap", .offset = offsetof(struct s, m) + sizeof MEMBER(s, m),                                             \
     .count = offsetof(struct s, next) - offsetof(struct s, m) - sizeof MEMBER(s, m), .kind = KC_FIELD_HIDDEN}
#define LAYOUT(s, rows) {.name = #s, .bytes = sizeof(struct s), .count = COUNT(rows), .fields = rows}

/* ---- names of the enums ---- */
#define NAME_ROW(id, name, extra) name,
const char *const kc_family_name[KC_FAMILIES] = {KC_FAMILY_TABLE(NAME_ROW)};
const char *const kc_device_kind_name[KC_DEVICE_NAMES] = {KC_DEVICE_TABLE(NAME_ROW)};
const char *const kc_precision_name[KC_PRECISIONS] = {KC_PRECISION_TABLE(NAME_ROW)};
const char *const kc_order_name[KC_ORDERS] = {KC_ORDER_TABLE(NAME_ROW)};
const char *const kc_documents_name[KC_DOCUMENTS] = {KC_DOCUMENTS_TABLE(NAME_ROW)};
const char *const kc_optimizer_name[KC_OPTIMIZERS] = {KC_OPTIMIZER_TABLE(NAME_ROW)};
const char *const kc_lr_name[KC_LRS] = {KC_LR_TABLE(NAME_ROW)};
const char *const kc_busy_name[KC_BUSIES] = {KC_BUSY_TABLE(NAME_ROW)};
const char *const kc_coding_name[KC_CODINGS] = {KC_CODING_TABLE(NAME_ROW)};
const char *const kc_on_nonfinite_name[KC_ON_NONFINITES] = {KC_ON_NONFINITE_TABLE(NAME_ROW)};
const char *const kc_on_crash_name[KC_ON_CRASHES] = {KC_ON_CRASH_TABLE(NAME_ROW)};
const char *const kc_on_hang_name[KC_ON_HANGS] = {KC_ON_HANG_TABLE(NAME_ROW)};
const char *const kc_drill_name[KC_DRILLS] = {KC_DRILL_TABLE(NAME_ROW)};
#define EXTRA_ROW(id, name, extra) extra,
const uint8_t kc_drill_of_process[KC_DRILLS] = {KC_DRILL_TABLE(EXTRA_ROW)};
const char *const kc_drill_at_name[KC_DRILL_ATS] = {KC_DRILL_AT_TABLE(NAME_ROW)};
#define CHOICE_NAME_ROW(id, name, extra) [KC_CHOICE_##id] = name,
const char *const kc_choice_name[KC_CHOICES] = {[KC_CHOICE_AUTO] = "auto", KC_ALGORITHM_TABLE(CHOICE_NAME_ROW)};
const char *const kc_distance_name[KC_DISTANCES] = {KC_DISTANCE_TABLE(NAME_ROW)};
const char *const kc_place_name[KC_PLACES] = {KC_PLACE_TABLE(NAME_ROW)};
const char *const kc_when_name[KC_WHENS] = {KC_WHEN_TABLE(NAME_ROW)};
const char *const kc_traced_name[KC_TRACED_WHENS] = {KC_TRACED_TABLE(NAME_ROW)};
const char *const kc_purpose_name[KC_PURPOSES] = {KC_PURPOSE_TABLE(NAME_ROW)};
const char *const kc_program_name[KC_PROGRAMS] = {KC_PROGRAM_TABLE(NAME_ROW)};
const char *const kc_lane_name[KC_LANES] = {KC_LANE_TABLE(NAME_ROW)};
const char *const kc_instruction_name[KC_INSTRUCTIONS] = {KC_INSTRUCTION_TABLE(NAME_ROW)};
const char *const kc_part_name[KC_PARTS] = {KC_PART_TABLE(NAME_ROW)};
const char *const kc_space_name[KC_SPACES] = {KC_SPACE_TABLE(NAME_ROW)};
const char *const kc_agree_name[KC_AGREES] = {KC_AGREE_TABLE(NAME_ROW)};
const char *const kc_digest_name[KC_DIGESTS] = {KC_DIGEST_TABLE(NAME_ROW)};
const char *const kc_state_verb_name[KC_STATE_VERBS] = {KC_STATE_VERB_TABLE(NAME_ROW)};

/* ---- job_spec ---- */
static const struct kc_field spec_env[] = {TEXT(kc_spec_env, name), TEXT(kc_spec_env, value)};
static const struct kc_layout spec_env_layout = LAYOUT(kc_spec_env, spec_env);
static const struct kc_field spec_file[] = {TEXT(kc_spec_file, path), TEXT(kc_spec_file, mask), SCALAR(kc_spec_file, weight)};
static const struct kc_layout spec_file_layout = LAYOUT(kc_spec_file, spec_file);
static const struct kc_field spec_injection[] = {
    SCALAR(kc_spec_injection, rank),
    ENUM(kc_spec_injection, what, kc_drill_name),
    ENUM(kc_spec_injection, at, kc_drill_at_name),
    SCALAR(kc_spec_injection, nth),
    SCALAR(kc_spec_injection, step),
    SCALAR(kc_spec_injection, again),
    SCALAR(kc_spec_injection, code),
    SCALAR(kc_spec_injection, signal),
    SCALAR(kc_spec_injection, milliseconds),
    SCALAR(kc_spec_injection, mib),
    SCALAR(kc_spec_injection, times),
};
static const struct kc_layout spec_injection_layout = LAYOUT(kc_spec_injection, spec_injection);
static const struct kc_field job_spec[] = {
    HIDDEN(kc_job_spec, head),
    TEXT(kc_job_spec, name),
    SCALAR(kc_job_spec, ranks),
    ENUM(kc_job_spec, device, kc_device_kind_name),
    SCALAR(kc_job_spec, threads),
    SCALAR(kc_job_spec, oversubscribe),
    ENUM(kc_job_spec, precision, kc_precision_name),
    ENUM(kc_job_spec, order, kc_order_name),
    GAP(kc_job_spec, order, seed),
    SCALAR(kc_job_spec, seed),
    SCALAR(kc_job_spec, steps),
    ENUM(kc_job_spec, family, kc_family_name),
    SCALAR(kc_job_spec, layers),
    SCALAR(kc_job_spec, hidden),
    SCALAR(kc_job_spec, heads),
    SCALAR(kc_job_spec, context),
    SCALAR(kc_job_spec, vocab),
    TEXT(kc_job_spec, init_from),
    SCALAR(kc_job_spec, kv_heads),
    SCALAR(kc_job_spec, ffn),
    SCALAR(kc_job_spec, tied),
    SCALAR(kc_job_spec, experts),
    SCALAR(kc_job_spec, top_k),
    SCALAR(kc_job_spec, rope_theta),
    SCALAR(kc_job_spec, rms_eps),
    SCALAR(kc_job_spec, balance),
    SPAN(kc_job_spec, freeze, KC_FIELD_TEXT),
    SCALAR(kc_job_spec, lora_rank),         SCALAR(kc_job_spec, lora_alpha),
    SPAN(kc_job_spec, lora_targets, KC_FIELD_TEXT),
    SPAN_OF(kc_job_spec, train, spec_file_layout),
    SPAN_OF(kc_job_spec, validation, spec_file_layout),
    ENUM(kc_job_spec, documents, kc_documents_name),
    SCALAR(kc_job_spec, end_of_text),
    SCALAR(kc_job_spec, sequences),
    SCALAR(kc_job_spec, micro),
    ENUM(kc_job_spec, optimizer, kc_optimizer_name),
    ENUM(kc_job_spec, lr_kind, kc_lr_name),
    GAP(kc_job_spec, lr_kind, lr),
    SCALAR(kc_job_spec, lr),
    SCALAR(kc_job_spec, beta1),
    SCALAR(kc_job_spec, beta2),
    SCALAR(kc_job_spec, eps),
    SCALAR(kc_job_spec, weight_decay),
    SCALAR(kc_job_spec, clip),
    SCALAR(kc_job_spec, warmup),
    SCALAR(kc_job_spec, floor),
    ARRAY(kc_job_spec, axis),
    SCALAR(kc_job_spec, zero),
    SCALAR(kc_job_spec, sequence),
    ENUM(kc_job_spec, pipeline, kc_pipeline_name),
    SCALAR(kc_job_spec, chunks),
    ENUM(kc_job_spec, recompute, kc_recompute_name),
    SCALAR(kc_job_spec, recompute_layers),
    SCALAR(kc_job_spec, recompute_memory),
    SCALAR(kc_job_spec, expert_memory),
    SCALAR(kc_job_spec, snapshot_keep),
    SCALAR(kc_job_spec, snapshot_keep_every),
    SCALAR(kc_job_spec, snapshot_copies),
    ENUM(kc_job_spec, snapshot_busy, kc_busy_name),
    SCALAR(kc_job_spec, snapshot_mib_per_second),
    SCALAR(kc_job_spec, snapshot_full_every),
    ENUM(kc_job_spec, snapshot_coding, kc_coding_name),
    SCALAR(kc_job_spec, keep_nonfinite),
    SCALAR(kc_job_spec, max_rollbacks),
    GAP(kc_job_spec, max_rollbacks, snapshot_every),
    SCALAR(kc_job_spec, snapshot_every),
    SCALAR(kc_job_spec, evaluate_every),
    SCALAR(kc_job_spec, replica_every),
    SCALAR(kc_job_spec, evaluate_batches),
    ENUM(kc_job_spec, on_nonfinite, kc_on_nonfinite_name),
    ENUM(kc_job_spec, on_crash, kc_on_crash_name),
    SCALAR(kc_job_spec, max_restarts),
    SCALAR(kc_job_spec, backoff),
    SCALAR(kc_job_spec, backoff_max),
    ENUM(kc_job_spec, on_hang, kc_on_hang_name),
    SCALAR(kc_job_spec, shrink),
    SCALAR(kc_job_spec, hang_floor),
    SCALAR(kc_job_spec, hang_ceiling),
    SCALAR(kc_job_spec, straggler_score),
    SCALAR(kc_job_spec, grace_seconds),
    SCALAR(kc_job_spec, log_max_mib),
    SCALAR(kc_job_spec, log_keep),
    SPAN_OF(kc_job_spec, env, spec_env_layout),
    ENUMS(kc_job_spec, algorithm, kc_choice_name),
    SPAN_OF(kc_job_spec, inject, spec_injection_layout),
};
const struct kc_layout kc_job_spec_layout = LAYOUT(kc_job_spec, job_spec);

/* ---- device_view, comm_costs ---- */
static const struct kc_field view_device[] = {
    TEXT(kc_view_device, kind),         TEXT(kc_view_device, node),    TEXT(kc_view_device, rack),
    TEXT(kc_view_device, isa),          SCALAR(kc_view_device, numa),  SCALAR(kc_view_device, cores),
    SCALAR(kc_view_device, peak_flops), SCALAR(kc_view_device, memory_bytes),
};
static const struct kc_layout view_device_layout = LAYOUT(kc_view_device, view_device);
static const struct kc_field device_view[] = {
    HIDDEN(kc_device_view, head),
    SPAN_OF(kc_device_view, devices, view_device_layout),
    SPAN(kc_device_view, place, KC_FIELD_U32),
    SCALAR(kc_device_view, places),
    HIDDEN(kc_device_view, pad),
    SPAN_ENUM(kc_device_view, distance, KC_FIELD_U8, kc_distance_name),
};
const struct kc_layout kc_device_view_layout = LAYOUT(kc_device_view, device_view);

static const struct kc_field comm_cost[] = {
    ENUM(kc_comm_cost, primitive, kc_primitive_name), ENUM(kc_comm_cost, algorithm, kc_algorithm_name),
    ENUM(kc_comm_cost, distance, kc_distance_name),   HIDDEN(kc_comm_cost, pad),
    SCALAR(kc_comm_cost, ranks_max),                  SCALAR(kc_comm_cost, latency_ns),
    SCALAR(kc_comm_cost, bytes_per_second),
};
static const struct kc_layout comm_cost_layout = LAYOUT(kc_comm_cost, comm_cost);
static const struct kc_field comm_costs[] = {
    HIDDEN(kc_comm_costs, head),
    SPAN_OF(kc_comm_costs, rows, comm_cost_layout),
};
const struct kc_layout kc_comm_costs_layout = LAYOUT(kc_comm_costs, comm_costs);

/* ---- model_graph ---- */
static const struct kc_field placement[] = {
    ENUM(kc_placement, kind, kc_place_name),
    ENUM(kc_placement, dim, kc_dim_name),
    ENUM(kc_placement, reduce, kc_reduce_name),
    SCALAR(kc_placement, repeat),
};
static const struct kc_layout placement_layout = LAYOUT(kc_placement, placement);
static const struct kc_field graph_rule[] = {INLINES(kc_graph_rule, at, placement_layout)};
static const struct kc_layout graph_rule_layout = LAYOUT(kc_graph_rule, graph_rule);
static const struct kc_field graph_opcode[] = {
    TEXT(kc_graph_opcode, name),
    SCALAR(kc_graph_opcode, id),
    ENUM(kc_graph_opcode, klass, kc_class_name),
    SCALAR(kc_graph_opcode, inputs),
    SCALAR(kc_graph_opcode, outputs),
    SCALAR(kc_graph_opcode, in_place),
    SCALAR(kc_graph_opcode, accumulates),
    SCALAR(kc_graph_opcode, again),
    SCALAR(kc_graph_opcode, optional),
    SPAN_OF(kc_graph_opcode, rules, graph_rule_layout),
};
static const struct kc_layout graph_opcode_layout = LAYOUT(kc_graph_opcode, graph_opcode);
static const struct kc_field graph_tensor[] = {
    TEXT(kc_graph_tensor, name),
    ENUM(kc_graph_tensor, role, kc_role_name),
    ENUM(kc_graph_tensor, type, kc_type_name),
    SCALAR(kc_graph_tensor, rank),
    ENUM(kc_graph_tensor, init, kc_init_name),
    ENUMS(kc_graph_tensor, dim, kc_dim_name),
    SCALAR(kc_graph_tensor, join),
    SCALAR(kc_graph_tensor, sorted),
    SCALAR(kc_graph_tensor, frozen),
    SCALAR(kc_graph_tensor, layer),
    SCALAR(kc_graph_tensor, of),
    SCALAR(kc_graph_tensor, init_scale),
    SCALAR(kc_graph_tensor, decay),
    ARRAY(kc_graph_tensor, size),
};
static const struct kc_layout graph_tensor_layout = LAYOUT(kc_graph_tensor, graph_tensor);
static const struct kc_field graph_op[] = {
    SCALAR(kc_graph_op, opcode),
    ENUM(kc_graph_op, klass, kc_class_name),
    HIDDEN(kc_graph_op, pad),
    SCALAR(kc_graph_op, layer),
    SPAN(kc_graph_op, in, KC_FIELD_I32),
    SPAN(kc_graph_op, out, KC_FIELD_I32),
    SPAN(kc_graph_op, attr, KC_FIELD_F64),
    SCALAR(kc_graph_op, flops),
    SCALAR(kc_graph_op, bytes),
    SCALAR(kc_graph_op, scratch),
    SCALAR(kc_graph_op, scratch_most),
};
static const struct kc_layout graph_op_layout = LAYOUT(kc_graph_op, graph_op);
static const struct kc_field graph_temp[] = {
    TEXT(kc_graph_temp, name),    SCALAR(kc_graph_temp, type), SCALAR(kc_graph_temp, rank),
    SCALAR(kc_graph_temp, first), SCALAR(kc_graph_temp, last), ENUMS(kc_graph_temp, dim, kc_dim_name),
    ENUM(kc_graph_temp, role, kc_role_name),
    HIDDEN(kc_graph_temp, pad),   ARRAY(kc_graph_temp, size),
};
static const struct kc_layout graph_temp_layout = LAYOUT(kc_graph_temp, graph_temp);
static const struct kc_field graph_step[] = {
    SCALAR(kc_graph_step, opcode), ENUM(kc_graph_step, when, kc_when_name), SCALAR(kc_graph_step, work),
    SCALAR(kc_graph_step, inputs), SCALAR(kc_graph_step, outputs),          HIDDEN(kc_graph_step, pad),
    ARRAY(kc_graph_step, at),
};
static const struct kc_layout graph_step_layout = LAYOUT(kc_graph_step, graph_step);
static const struct kc_field graph_expansion[] = {
    SCALAR(kc_graph_expansion, opcode),      ENUM(kc_graph_expansion, axis, kc_axis_name),
    ENUM(kc_graph_expansion, dim, kc_dim_name), SCALAR(kc_graph_expansion, operand),
    SCALAR(kc_graph_expansion, rounds),      HIDDEN(kc_graph_expansion, pad),
    SCALAR(kc_graph_expansion, temps_first), SCALAR(kc_graph_expansion, temps_count),
    SCALAR(kc_graph_expansion, steps_first), SCALAR(kc_graph_expansion, steps_count),
};
static const struct kc_layout graph_expansion_layout = LAYOUT(kc_graph_expansion, graph_expansion);
static const struct kc_field model_graph[] = {
    HIDDEN(kc_model_graph, head),
    TEXT(kc_model_graph, family),
    SCALAR(kc_model_graph, layers),
    SCALAR(kc_model_graph, parameters),
    SCALAR(kc_model_graph, trained),
    SPAN_OF(kc_model_graph, opcodes, graph_opcode_layout),
    SPAN_OF(kc_model_graph, expansions, graph_expansion_layout),
    SPAN_OF(kc_model_graph, temps, graph_temp_layout),
    SPAN_OF(kc_model_graph, steps, graph_step_layout),
    SPAN_OF(kc_model_graph, tensors, graph_tensor_layout),
    SPAN_OF(kc_model_graph, ops, graph_op_layout),
    SCALAR(kc_model_graph, tokens),
    SCALAR(kc_model_graph, targets),
    SCALAR(kc_model_graph, positions),
    SCALAR(kc_model_graph, starts),
    SCALAR(kc_model_graph, logits),
    SCALAR(kc_model_graph, result),
    SCALAR(kc_model_graph, evaluate_first),
    SCALAR(kc_model_graph, logits_first),
    SCALAR(kc_model_graph, backward_first),
    HIDDEN(kc_model_graph, pad),
};
const struct kc_layout kc_model_graph_layout = LAYOUT(kc_model_graph, model_graph);

/* ---- shard_plan ---- */
static const struct kc_field plan_tensor[] = {
    TEXT(kc_plan_tensor, name),
    ENUM(kc_plan_tensor, role, kc_role_name),
    ENUM(kc_plan_tensor, type, kc_type_name),
    SCALAR(kc_plan_tensor, rank),
    ENUM(kc_plan_tensor, init, kc_init_name),
    ENUMS(kc_plan_tensor, dim, kc_dim_name),
    SCALAR(kc_plan_tensor, join),
    SCALAR(kc_plan_tensor, frozen),
    HIDDEN(kc_plan_tensor, pad),
    INLINES(kc_plan_tensor, place, placement_layout),
    SCALAR(kc_plan_tensor, layer),
    SCALAR(kc_plan_tensor, of),
    SCALAR(kc_plan_tensor, init_scale),
    SCALAR(kc_plan_tensor, decay),
    HIDDEN(kc_plan_tensor, pad2),
    ARRAY(kc_plan_tensor, global),
    ARRAY(kc_plan_tensor, local),
    SCALAR(kc_plan_tensor, bucket),
    HIDDEN(kc_plan_tensor, pad3),
    SCALAR(kc_plan_tensor, offset),
};
static const struct kc_layout plan_tensor_layout = LAYOUT(kc_plan_tensor, plan_tensor);
static const struct kc_field plan_segment[] = {
    SCALAR(kc_plan_segment, tensor),
    SCALAR(kc_plan_segment, decay),
    SCALAR(kc_plan_segment, offset),
    SCALAR(kc_plan_segment, count),
};
static const struct kc_layout plan_segment_layout = LAYOUT(kc_plan_segment, plan_segment);
static const struct kc_field plan_bucket[] = {
    SCALAR(kc_plan_bucket, count),          SCALAR(kc_plan_bucket, shard),
    SCALAR(kc_plan_bucket, shards),         SCALAR(kc_plan_bucket, segments_first),
    SCALAR(kc_plan_bucket, segments_count), SCALAR(kc_plan_bucket, layer),
    ENUM(kc_plan_bucket, type, kc_type_name), SCALAR(kc_plan_bucket, axes),
    SCALAR(kc_plan_bucket, once),           SCALAR(kc_plan_bucket, stage),
    SCALAR(kc_plan_bucket, tied),           SCALAR(kc_plan_bucket, repeat),
    SCALAR(kc_plan_bucket, frozen),         SCALAR(kc_plan_bucket, parts),
};
static const struct kc_layout plan_bucket_layout = LAYOUT(kc_plan_bucket, plan_bucket);
static const struct kc_field plan_op[] = {
    SCALAR(kc_plan_op, opcode),
    ENUM(kc_plan_op, klass, kc_class_name),
    SCALAR(kc_plan_op, in_place),
    SCALAR(kc_plan_op, accumulates),
    HIDDEN(kc_plan_op, pad),
    SCALAR(kc_plan_op, layer),
    SPAN(kc_plan_op, in, KC_FIELD_I32),
    SPAN(kc_plan_op, out, KC_FIELD_I32),
    SPAN(kc_plan_op, omit, KC_FIELD_U32),
    SPAN(kc_plan_op, attr, KC_FIELD_F64),
    SCALAR(kc_plan_op, stage),
    SCALAR(kc_plan_op, collective),
    HIDDEN(kc_plan_op, pad2),
    SCALAR(kc_plan_op, flops),
    SCALAR(kc_plan_op, bytes),
    SCALAR(kc_plan_op, scratch),
};
static const struct kc_layout plan_op_layout = LAYOUT(kc_plan_op, plan_op);
static const struct kc_field plan_stage[] = {
    SCALAR(kc_plan_stage, coordinate), SCALAR(kc_plan_stage, layer_first), SCALAR(kc_plan_stage, layers),
    HIDDEN(kc_plan_stage, pad),        SCALAR(kc_plan_stage, f),           SCALAR(kc_plan_stage, i),
    SCALAR(kc_plan_stage, w),
};
static const struct kc_layout plan_stage_layout = LAYOUT(kc_plan_stage, plan_stage);
static const struct kc_field plan_link[] = {
    SCALAR(kc_plan_link, tensor),
    SCALAR(kc_plan_link, from),
    SCALAR(kc_plan_link, to),
    SCALAR(kc_plan_link, send),
    SCALAR(kc_plan_link, recv),
};
static const struct kc_layout plan_link_layout = LAYOUT(kc_plan_link, plan_link);
static const struct kc_field shard_plan[] = {
    HIDDEN(kc_shard_plan, head),
    SCALAR(kc_shard_plan, ranks),
    SCALAR(kc_shard_plan, zero),
    ARRAY(kc_shard_plan, axis),
    SCALAR(kc_shard_plan, sequence_pairs),
    ENUM(kc_shard_plan, pipeline, kc_pipeline_name),
    SCALAR(kc_shard_plan, chunks),
    ENUM(kc_shard_plan, recompute, kc_recompute_name),
    SCALAR(kc_shard_plan, recompute_layers),
    SPAN_OF(kc_shard_plan, stages, plan_stage_layout),
    SPAN_OF(kc_shard_plan, links, plan_link_layout),
    SPAN_OF(kc_shard_plan, tensors, plan_tensor_layout),
    SPAN_OF(kc_shard_plan, buckets, plan_bucket_layout),
    SPAN_OF(kc_shard_plan, segments, plan_segment_layout),
    SPAN_OF(kc_shard_plan, ops, plan_op_layout),
    SCALAR(kc_shard_plan, evaluate_first),
    SCALAR(kc_shard_plan, logits_first),
    SCALAR(kc_shard_plan, backward_first),
    SCALAR(kc_shard_plan, micro_batches),
    SCALAR(kc_shard_plan, micro),
    SCALAR(kc_shard_plan, sequences),
    SCALAR(kc_shard_plan, tokens),
    SCALAR(kc_shard_plan, targets),
    SCALAR(kc_shard_plan, positions),
    SCALAR(kc_shard_plan, starts),
    SCALAR(kc_shard_plan, logits),
    SCALAR(kc_shard_plan, result),
    SCALAR(kc_shard_plan, opcode_update),
    SCALAR(kc_shard_plan, opcode_norm),
    SCALAR(kc_shard_plan, opcode_add),
    HIDDEN(kc_shard_plan, pad2),
    ARRAY(kc_shard_plan, update),
};
const struct kc_layout kc_shard_plan_layout = LAYOUT(kc_shard_plan, shard_plan);

/* ---- comm_plan ---- */
static const struct kc_field plan_family[] = {
    TEXT(kc_plan_family, name),
    SCALAR(kc_plan_family, axes),
    SCALAR(kc_plan_family, groups_first),
    SCALAR(kc_plan_family, groups_count),
};
static const struct kc_layout plan_family_layout = LAYOUT(kc_plan_family, plan_family);
static const struct kc_field plan_group[] = {
    TEXT(kc_plan_group, name),
    SCALAR(kc_plan_group, family),
    SPAN(kc_plan_group, ranks, KC_FIELD_U32),
};
static const struct kc_layout plan_group_layout = LAYOUT(kc_plan_group, plan_group);
static const struct kc_field plan_collective[] = {
    ENUM(kc_plan_collective, primitive, kc_primitive_name),
    ENUM(kc_plan_collective, type, kc_type_name),
    ENUM(kc_plan_collective, reduce, kc_reduce_name),
    ENUM(kc_plan_collective, algorithm, kc_algorithm_name),
    ENUM(kc_plan_collective, purpose, kc_purpose_name),
    SCALAR(kc_plan_collective, counted),
    HIDDEN(kc_plan_collective, pad),
    SCALAR(kc_plan_collective, family),
    SCALAR(kc_plan_collective, shift),
    SCALAR(kc_plan_collective, bucket),
    HIDDEN(kc_plan_collective, pad2),
    SCALAR(kc_plan_collective, count),
};
static const struct kc_layout plan_collective_layout = LAYOUT(kc_plan_collective, plan_collective);
static const struct kc_field comm_plan[] = {
    HIDDEN(kc_comm_plan, head),
    SPAN_OF(kc_comm_plan, families, plan_family_layout),
    SPAN_OF(kc_comm_plan, groups, plan_group_layout),
    SPAN(kc_comm_plan, members, KC_FIELD_U32),
    SCALAR(kc_comm_plan, ranks),
    HIDDEN(kc_comm_plan, pad),
    SPAN_OF(kc_comm_plan, collectives, plan_collective_layout),
};
const struct kc_layout kc_comm_plan_layout = LAYOUT(kc_comm_plan, comm_plan);

/* ---- exec_plan ---- */
static const struct kc_field exec_ref[] = {
    ENUM(kc_exec_ref, space, kc_space_name), ENUM(kc_exec_ref, type, kc_type_name), SCALAR(kc_exec_ref, rank),
    HIDDEN(kc_exec_ref, pad),                SCALAR(kc_exec_ref, bucket),           SCALAR(kc_exec_ref, offset),
    ARRAY(kc_exec_ref, size),                ARRAY(kc_exec_ref, first),
};
static const struct kc_layout exec_ref_layout = LAYOUT(kc_exec_ref, exec_ref);
static const struct kc_field exec_instruction[] = {
    ENUM(kc_exec_instruction, kind, kc_instruction_name),
    ENUM(kc_exec_instruction, lane, kc_lane_name),
    ENUM(kc_exec_instruction, part, kc_part_name),
    SCALAR(kc_exec_instruction, accumulate),
    SCALAR(kc_exec_instruction, opcode),
    SCALAR(kc_exec_instruction, micro),
    SCALAR(kc_exec_instruction, layer),
    SCALAR(kc_exec_instruction, collective),
    SCALAR(kc_exec_instruction, op),
    SCALAR(kc_exec_instruction, sequence),
    SCALAR(kc_exec_instruction, refs),
    SCALAR(kc_exec_instruction, inputs),
    SCALAR(kc_exec_instruction, outputs),
    SCALAR(kc_exec_instruction, attrs),
    SCALAR(kc_exec_instruction, attr_count),
    SCALAR(kc_exec_instruction, wait_count),
    SCALAR(kc_exec_instruction, waits),
    HIDDEN(kc_exec_instruction, pad),
    SCALAR(kc_exec_instruction, scratch),
};
static const struct kc_layout exec_instruction_layout = LAYOUT(kc_exec_instruction, exec_instruction);
static const struct kc_field exec_program[] = {
    SCALAR(kc_exec_program, first),
    SCALAR(kc_exec_program, count),
    SPAN(kc_exec_program, sequences, KC_FIELD_U32),
};
static const struct kc_layout exec_program_layout = LAYOUT(kc_exec_program, exec_program);
static const struct kc_field exec_plan[] = {
    HIDDEN(kc_exec_plan, head),
    SCALAR(kc_exec_plan, rank),
    SCALAR(kc_exec_plan, ranks),
    SCALAR(kc_exec_plan, work_bytes),
    SCALAR(kc_exec_plan, work_bytes_unshared),
    SCALAR(kc_exec_plan, scratch_bytes),
    SCALAR(kc_exec_plan, result_bytes),
    SCALAR(kc_exec_plan, tallies),
    INLINES(kc_exec_plan, programs, exec_program_layout),
    SPAN_OF(kc_exec_plan, instructions, exec_instruction_layout),
    SPAN_OF(kc_exec_plan, refs, exec_ref_layout),
    SPAN(kc_exec_plan, attrs, KC_FIELD_F64),
    SPAN(kc_exec_plan, waits, KC_FIELD_U32),
    INLINE(kc_exec_plan, tokens, exec_ref_layout),
    INLINE(kc_exec_plan, targets, exec_ref_layout),
    INLINE(kc_exec_plan, positions, exec_ref_layout),
    INLINE(kc_exec_plan, starts, exec_ref_layout),
    INLINE(kc_exec_plan, logits, exec_ref_layout),
};
const struct kc_layout kc_exec_plan_layout = LAYOUT(kc_exec_plan, exec_plan);

/* ---- step_trace ---- */
static const struct kc_field traced[] = {
    SCALAR(kc_traced, instruction),
    SCALAR(kc_traced, operand),
    ENUM(kc_traced, when, kc_traced_name),
    ENUM(kc_traced, lane, kc_lane_name),
    ENUM(kc_traced, type, kc_type_name),
    SCALAR(kc_traced, rank),
    SCALAR(kc_traced, partial),
    SCALAR(kc_traced, batched),
    SCALAR(kc_traced, micro),
    SCALAR(kc_traced, layer),
    TEXT(kc_traced, op),
    TEXT(kc_traced, what),
    TEXT(kc_traced, tensor),
    ARRAY(kc_traced, whole),
    ARRAY(kc_traced, first),
    ARRAY(kc_traced, size),
    SCALAR(kc_traced, lo),
    SCALAR(kc_traced, count),
    SCALAR(kc_traced, digest),
    SCALAR(kc_traced, sum),
    SCALAR(kc_traced, squares),
    SCALAR(kc_traced, largest),
    SCALAR(kc_traced, nonfinite),
};
static const struct kc_layout traced_layout = LAYOUT(kc_traced, traced);
static const struct kc_field step_trace[] = {
    HIDDEN(kc_step_trace, head),
    SCALAR(kc_step_trace, step),
    SCALAR(kc_step_trace, begun),
    SCALAR(kc_step_trace, rank),
    SCALAR(kc_step_trace, ranks),
    ARRAY(kc_step_trace, axis),
    SCALAR(kc_step_trace, zero),
    SCALAR(kc_step_trace, micro_batches),
    HIDDEN(kc_step_trace, pad),
    HIDDEN(kc_step_trace, spec),
    HIDDEN(kc_step_trace, shard),
    HIDDEN(kc_step_trace, exec),
    TEXT(kc_step_trace, variant),
    HIDDEN(kc_step_trace, pad2),
    SPAN_OF(kc_step_trace, rows, traced_layout),
};
const struct kc_layout kc_step_trace_layout = LAYOUT(kc_step_trace, step_trace);
