/* shard_plan.h - how the model is cut: every tensor's placement, the buckets of state, who owns which part, and the ops
 * of one rank with local shapes. One plan for all ranks: what differs between ranks (its batch rows, its shard of a
 * bucket) follows from its coordinates in the mesh.
 * Writer: strategy. Readers: schedule, state, govern, engine, console. */
#ifndef KC_CONTRACTS_SHARD_PLAN_H
#define KC_CONTRACTS_SHARD_PLAN_H

#include "base/contract.h"
#include "contracts/placement.h"
#include "contracts/types.h"

#include <assert.h>

#define KC_SHARD_PLAN_VERSION 3
#define KC_ALIGN_ELEMENTS 64 /* tensors start at multiples of it in a bucket, shards are multiples of it */
#define KC_FLAT KC_NONE      /* as the dimension of a placement: cut flat over a whole bucket, ignoring tensor borders */

/* The optimizer's constants, in the order in which its op takes them as attributes. */
#define KC_UPDATE_TABLE(X)                                                                                             \
    X(UPDATE_BETA1, "beta1", 0) X(UPDATE_BETA2, "beta2", 0) X(UPDATE_EPS, "eps", 0)                                    \
    X(UPDATE_DECAY, "weight_decay", 0)
enum kc_update { KC_UPDATE_TABLE(KC_ENUM_ROW) KC_UPDATES };

struct kc_plan_tensor {
    kc_text name;
    uint8_t role, type, rank, init;
    uint8_t dim[KC_DIMS_MAX];
    uint8_t join, pad[2];    /* as in model_graph */
    struct kc_placement place[KC_AXES];
    int32_t layer, of;
    float init_scale;
    uint32_t decay, pad2;
    uint64_t global[KC_DIMS_MAX], local[KC_DIMS_MAX]; /* sizes; unused dimensions are 0 */
    int32_t bucket;   /* PARAMETER, GRADIENT: its bucket; else -1 */
    uint32_t pad3;
    uint64_t offset;  /* elements from the start of the bucket */
};

/* A run of a bucket that belongs to one tensor. Between segments there is padding (alignment), in memory only. */
struct kc_plan_segment {
    int32_t tensor;  /* the PARAMETER */
    uint32_t decay;  /* 1: weight decay applies */
    uint64_t offset, count; /* elements in the bucket */
};

/* Parameters, gradients, moments and masters share one layout: bucket b, element o is the same in all of them. Gradients,
 * moments and masters are f32. */
struct kc_plan_bucket {
    uint64_t count;  /* elements, padding included; a multiple of shards × 64 */
    uint64_t shard;  /* elements each owner has: count / shards */
    uint32_t shards; /* owners: the group size; owner k has [k·shard, (k+1)·shard) for snapshots and counting always,
                        and for optimizer state when zero ≥ 1 */
    uint32_t segments_first, segments_count; /* range in segments */
    int32_t layer;   /* the layer whose backward completes it; -1: embeddings and last norm */
    uint32_t type;   /* enum kc_type: of its parameters, as ops read them; all alike */
    uint32_t pad;
};
static_assert(sizeof(struct kc_plan_bucket) == 40, "contracts have no hidden padding");

/* Parameters that are f32 are their own masters; of others state keeps masters, which the optimizer updates. */
static inline int kc_bucket_has_master(const struct kc_plan_bucket *b)
{
    return b->type != KC_F32;
}
/* The type of the elements of a bucket in a class of state. */
static inline enum kc_type kc_bucket_type(const struct kc_plan_bucket *b, enum kc_state_class what)
{
    return what == KC_STATE_PARAMETER ? (enum kc_type)b->type : KC_F32;
}

struct kc_plan_op {
    uint16_t opcode; /* jobs' id, a number here */
    uint8_t klass, in_place, accumulates, pad[3];
    int32_t layer;
    struct kc_span in, out; /* int32_t tensor indices, -1 left out */
    struct kc_span attr;    /* double */
    uint32_t pad2;
    uint64_t flops, bytes, scratch; /* local */
};

struct kc_shard_plan {
    struct kc_contract head;
    uint32_t ranks, zero;
    uint32_t axis[KC_AXES];     /* mesh sizes; rank = Σ coordinate · stride, fastest axis first */
    uint32_t pad;
    struct kc_span tensors;     /* struct kc_plan_tensor */
    struct kc_span buckets;     /* struct kc_plan_bucket, in the order in which backward completes them */
    struct kc_span segments;    /* struct kc_plan_segment, by bucket, ascending offset */
    struct kc_span ops;         /* struct kc_plan_op */
    uint32_t evaluate_first, logits_first, backward_first; /* the parts of ops, as in model_graph */
    uint32_t micro_batches;     /* of one rank in one step */
    uint32_t micro, sequences;  /* rows of a rank's micro-batch; rows of the step over all ranks */
    int32_t tokens, targets, positions, starts, logits, result; /* as in model_graph */
    uint16_t opcode_update;     /* jobs' id of the optimizer op (AdamW on a run of elements) */
    uint16_t opcode_norm;       /* jobs' id of the squared-norm op (f32 run → += f64) */
    uint32_t pad2;
    double update[KC_UPDATES];  /* the spec's optimizer constants; decay where a segment has none: 0 instead */
};

/* Coordinate of `rank` on `axis`. */
static inline uint32_t kc_plan_coordinate(const struct kc_shard_plan *p, uint32_t rank, enum kc_axis axis)
{
    for (int a = 0; a < (int)axis; a++)
        rank /= p->axis[a];
    return rank % p->axis[axis];
}

extern const struct kc_layout kc_shard_plan_layout;

#endif
