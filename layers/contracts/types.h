/* types.h - the vocabulary of all contracts. Every list is one table (types.def style rows below): enum, names, order on
 * the wire. Identifiers are append-only.
 * Written by: nobody, it is fixed at compile time. Read by: everybody. */
#ifndef KC_CONTRACTS_TYPES_H
#define KC_CONTRACTS_TYPES_H

#include <stddef.h>
#include <stdint.h>

#define KC_RANKS_MAX 64         /* of a job */
#define KC_PLAN_RANKS_MAX 16384 /* that are planned and proved, whether they could run or not */
#define KC_DIMS_MAX 5

/* id, name, bytes of an element */
#define KC_TYPE_TABLE(X) X(F32, "f32", 4) X(F64, "f64", 8) X(BF16, "bf16", 2) X(I32, "i32", 4) X(U64, "u64", 8)
#define KC_REDUCE_TABLE(X) X(SUM, "sum", 0) X(AVG, "avg", 0) X(MAX, "max", 0) X(MIN, "min", 0)
#define KC_ALGORITHM_TABLE(X) X(DIRECT, "direct", 0) X(RING, "ring", 0) X(TREE, "tree", 0)
/* id, name, the algorithms that it has (bits 1 << enum kc_algorithm) */
#define KC_PRIMITIVE_TABLE(X)                                                                                          \
    X(ALL_REDUCE, "all-reduce", 1 << KC_DIRECT | 1 << KC_RING | 1 << KC_TREE)                                          \
    X(ALL_GATHER, "all-gather", 1 << KC_DIRECT | 1 << KC_RING)                                                         \
    X(REDUCE_SCATTER, "reduce-scatter", 1 << KC_DIRECT | 1 << KC_RING)                                                 \
    X(BROADCAST, "broadcast", 1 << KC_DIRECT | 1 << KC_TREE) X(ALL_TO_ALL, "all-to-all", 1 << KC_DIRECT)               \
    X(SEND, "send", 1 << KC_DIRECT) X(RECV, "recv", 1 << KC_DIRECT) X(BARRIER, "barrier", 1 << KC_DIRECT)
/* mesh axes, fastest first (DESIGN §3.3) */
#define KC_AXIS_TABLE(X)                                                                                               \
    X(TENSOR, "tensor", 0) X(CONTEXT, "context", 0) X(EXPERT, "expert", 0) X(DATA, "data", 0)                          \
    X(PIPELINE, "pipeline", 0)
/* orders of a pipeline's turns (schedule/order.h) */
#define KC_PIPELINE_TABLE(X)                                                                                           \
    X(PIPELINE_1F1B, "1f1b", 0) X(PIPELINE_GPIPE, "gpipe", 0) X(PIPELINE_INTERLEAVED, "interleaved", 0)                \
    X(PIPELINE_ZERO_BUBBLE, "zero-bubble", 0)
/* what forward does not keep for backward, which makes it again */
#define KC_RECOMPUTE_TABLE(X)                                                                                          \
    X(RECOMPUTE_NONE, "none", 0) X(RECOMPUTE_SELECTIVE, "selective", 0) /* attention */ X(RECOMPUTE_FULL, "full", 0) \
    X(RECOMPUTE_AUTO, "auto", 0) /* full, of as few layers as fit a memory */
/* named dimensions of tensors */
#define KC_DIM_TABLE(X)                                                                                                \
    X(NONE, "none", 0) X(BATCH, "batch", 0) X(SEQUENCE, "sequence", 0) X(HIDDEN, "hidden", 0) X(HEADS, "heads", 0)     \
    X(FFN, "ffn", 0) X(VOCAB, "vocab", 0) X(DIM_EXPERT, "expert", 0) X(QKV, "qkv", 0) X(POSITION, "position", 0)   \
    X(HEAD, "head", 0) /* the numbers of one head */ X(KV_HEADS, "kv-heads", 0)
/* what a tensor is for */
#define KC_ROLE_TABLE(X)                                                                                               \
    X(INPUT, "input", 0)           /* token ids and targets, filled by LOAD */                                         \
    X(PARAMETER, "parameter", 0)   X(ACTIVATION, "activation", 0)                                                      \
    X(GRADIENT, "gradient", 0)     /* of a parameter; accumulates over micro-batches */                                \
    X(DERIVATIVE, "derivative", 0) /* of an activation; lives within one micro-batch */                                \
    X(RESULT, "result", 0)         /* f64 sums that AGREE reduces: loss and tokens, tallies */
/* class of an op: forward, input gradient, weight gradient; data loading and optimizer stand apart */
#define KC_CLASS_TABLE(X)                                                                                              \
    X(FORWARD, "F", 0) X(INPUT_GRADIENT, "I", 0) X(WEIGHT_GRADIENT, "W", 0) X(LOAD, "LOAD", 0) X(UPDATE, "UPDATE", 0)
/* what state keeps in buckets */
#define KC_STATE_TABLE(X)                                                                                              \
    X(STATE_PARAMETER, "parameter", 0) X(STATE_GRADIENT, "gradient", 0) X(STATE_MOMENT1, "moment1", 0)                 \
    X(STATE_MOMENT2, "moment2", 0)                                                                                     \
    X(STATE_MASTER, "master", 0) /* f32 originals of parameters that ops read in another type */
#define KC_INIT_TABLE(X) X(INIT_ZERO, "zero", 0) X(INIT_ONE, "one", 0) X(INIT_NORMAL, "normal", 0)
#define KC_CONTRACT_TABLE(X)                                                                                           \
    X(CONTRACT_NONE, "none", 0) X(CONTRACT_JOB_SPEC, "job_spec", 0) X(CONTRACT_DEVICE_VIEW, "device_view", 0)          \
    X(CONTRACT_COMM_COSTS, "comm_costs", 0) X(CONTRACT_MODEL_GRAPH, "model_graph", 0)                                  \
    X(CONTRACT_SHARD_PLAN, "shard_plan", 0) X(CONTRACT_COMM_PLAN, "comm_plan", 0)                                      \
    X(CONTRACT_EXEC_PLAN, "exec_plan", 0) X(CONTRACT_STEP_TRACE, "step_trace", 0)

#define KC_ENUM_ROW(id, name, extra) KC_##id,
enum kc_type { KC_TYPE_TABLE(KC_ENUM_ROW) KC_TYPES };
enum kc_reduce { KC_REDUCE_TABLE(KC_ENUM_ROW) KC_REDUCES };
enum kc_algorithm { KC_ALGORITHM_TABLE(KC_ENUM_ROW) KC_ALGORITHMS };
enum kc_primitive { KC_PRIMITIVE_TABLE(KC_ENUM_ROW) KC_PRIMITIVES };
enum kc_axis { KC_AXIS_TABLE(KC_ENUM_ROW) KC_AXES };
enum kc_pipeline { KC_PIPELINE_TABLE(KC_ENUM_ROW) KC_PIPELINES };
enum kc_recompute { KC_RECOMPUTE_TABLE(KC_ENUM_ROW) KC_RECOMPUTES };
enum kc_dim { KC_DIM_TABLE(KC_ENUM_ROW) KC_DIMS };
enum kc_role { KC_ROLE_TABLE(KC_ENUM_ROW) KC_ROLES };
enum kc_class { KC_CLASS_TABLE(KC_ENUM_ROW) KC_CLASSES };
enum kc_state_class { KC_STATE_TABLE(KC_ENUM_ROW) KC_STATES };
enum kc_init { KC_INIT_TABLE(KC_ENUM_ROW) KC_INITS };
enum kc_contract_kind { KC_CONTRACT_TABLE(KC_ENUM_ROW) KC_CONTRACTS };

/* Names, indexed by the enums above (contracts/types.c). */
extern const char *const kc_type_name[KC_TYPES], *const kc_reduce_name[KC_REDUCES],
    *const kc_algorithm_name[KC_ALGORITHMS], *const kc_primitive_name[KC_PRIMITIVES], *const kc_axis_name[KC_AXES],
    *const kc_pipeline_name[KC_PIPELINES], *const kc_recompute_name[KC_RECOMPUTES], *const kc_dim_name[KC_DIMS], *const kc_role_name[KC_ROLES], *const kc_class_name[KC_CLASSES],
    *const kc_state_name[KC_STATES], *const kc_init_name[KC_INITS], *const kc_contract_name[KC_CONTRACTS];
extern const uint8_t kc_type_bytes[KC_TYPES];
extern const uint8_t kc_primitive_algorithms[KC_PRIMITIVES];

#endif
