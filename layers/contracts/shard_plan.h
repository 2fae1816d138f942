/* shard_plan.h - how the model is cut: every tensor's placement, the buckets of state, who owns which part, and the ops
 * in local shapes. One plan for all ranks: what differs between ranks (its batch rows, its shard of a
 * bucket, the stages it holds, a part that is smaller than others') follows from its coordinates in the mesh, by the
 * functions at the end.
 * Writer: strategy. Readers: schedule, state, govern, trace, engine, console. */
#ifndef KC_CONTRACTS_SHARD_PLAN_H
#define KC_CONTRACTS_SHARD_PLAN_H

#include "base/contract.h"
#include "contracts/placement.h"
#include "contracts/types.h"

#include <assert.h>

#define KC_SHARD_PLAN_VERSION 9
#define KC_ALIGN_ELEMENTS 64 /* tensors start at multiples of it in a bucket, shards are multiples of it */
#define KC_EVERY_STAGE (-1)  /* as the stage of an op: on every stage that needs it */
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
    uint8_t join, frozen, pad; /* as in model_graph */
    struct kc_placement place[KC_AXES];
    int32_t layer, of;
    float init_scale;
    uint32_t decay, pad2;
    uint64_t global[KC_DIMS_MAX], local[KC_DIMS_MAX]; /* sizes; unused dimensions are 0. local: the most that any rank has,
                                                         which memory is laid out for; kc_plan_box() says what one has */
    int32_t bucket;   /* PARAMETER, GRADIENT: its bucket; else -1 */
    uint32_t pad3;
    uint64_t offset;  /* elements from the start of the bucket; RESULT: of the AGREE vector */
};

/* A run of a bucket that belongs to one tensor. Between segments there is padding (alignment), in memory only. */
struct kc_plan_segment {
    int32_t tensor;  /* the PARAMETER */
    uint32_t decay;  /* 1: weight decay applies */
    uint64_t offset, count; /* elements in the bucket; of the largest part (kc_plan_tensor.local) */
};

/* Parameters, gradients, moments and masters share one layout: bucket b, element o is the same in all of them. Gradients,
 * moments and masters are f32. */
struct kc_plan_bucket {
    uint64_t count;  /* elements, padding included; a multiple of shards × 64 */
    uint64_t shard;  /* elements each owner has: count / shards */
    uint32_t shards; /* owners: the ranks along `axes`; owner k has [k·shard, (k+1)·shard): of it these
                        elements count and are saved, and of the classes in `parts` nothing else is kept */
    uint32_t segments_first, segments_count; /* range in segments */
    int32_t layer;   /* the layer whose backward completes it; -1: embeddings and last norm */
    uint32_t type;   /* enum kc_type: of its parameters, as ops read them; all alike */
    uint32_t axes;   /* bits 1 << enum kc_axis: it is cut flat over these; data and context, dense ones expert, too */
    uint32_t once;   /* bits 1 << enum kc_axis: ranks along these hold the same, coordinate 0 alone counts and saves it */
    int32_t stage;   /* virtual stage that holds it */
    int32_t tied;    /* another stage that holds it as well and does not count it; -1 none */
    uint32_t repeat; /* so many neighbours on the tensor axis hold the same, of which the first counts it; 0 and 1: none */
    uint32_t frozen; /* 1: none of its parameters is trained: it has no gradients and no moments, nothing reduces it or updates
                        it; it has masters, and parameters in parts are gathered, as any */
    uint32_t parts;  /* bits 1 << enum kc_state_class: of these state keeps each owner's elements alone, and the whole is in work
                        memory while ops need it; of the others each rank has it all */
};
static_assert(sizeof(struct kc_plan_bucket) == 64, "contracts have no hidden padding");

static inline int kc_bucket_in_parts(const struct kc_plan_bucket *b, enum kc_state_class what)
{
    return b->parts >> what & 1;
}
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

/* An op of one rank; or, with collective >= 0, a conversion between placements, which one collective of comm_plan does:
 * in[0] → out[0]. */
struct kc_plan_op {
    uint16_t opcode; /* jobs' id, a number here */
    uint8_t klass, in_place, accumulates, pad[3];
    int32_t layer;
    struct kc_span in, out; /* int32_t tensor indices, -1 left out */
    struct kc_span omit;    /* uint32_t an operand, in before out, or empty; bits 1 << enum kc_axis: ranks whose coordinate on
                               one of these is not 0 leave the operand out */
    struct kc_span attr;    /* double */
    int32_t stage;          /* virtual stage, or KC_EVERY_STAGE */
    int32_t collective;     /* of comm_plan; -1 */
    uint32_t pad2;
    uint64_t flops, bytes, scratch; /* local */
};

/* A virtual stage of the pipeline: a run of layers, with what stands before the first and behind the last of the model. */
struct kc_plan_stage {
    uint32_t coordinate; /* on KC_PIPELINE: who holds it */
    uint32_t layer_first, layers;
    uint32_t pad;
    uint64_t f, i, w;    /* flops of a micro-batch by class */
};

/* A tensor that one stage makes and another reads: it is sent for every micro-batch, forward or backward. */
struct kc_plan_link {
    int32_t tensor;
    uint32_t from, to;   /* virtual stages */
    int32_t send, recv;  /* of comm_plan: what the ranks of `from` and of `to` call; -1 where both are one rank's */
};

struct kc_shard_plan {
    struct kc_contract head;
    uint32_t ranks, zero;
    uint32_t axis[KC_AXES];     /* mesh sizes; rank = Σ coordinate · stride, fastest axis first */
    uint32_t sequence_pairs;    /* 1: the context axis cuts sequences into 2c chunks, coordinate i has chunks i and 2c−1−i */
    uint32_t pipeline, chunks;  /* enum kc_pipeline; virtual stages a rank */
    uint32_t recompute;         /* enum kc_recompute; never auto, which is one of the others here */
    uint32_t recompute_layers;  /* of each stage, from its first on; 0 all */
    struct kc_span stages;      /* struct kc_plan_stage, pipeline × chunks */
    struct kc_span links;       /* struct kc_plan_link */
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
    uint16_t opcode_add;        /* jobs' id of the op that adds a run to a run, f32 */
    uint16_t pad2;
    double update[KC_UPDATES];  /* the spec's optimizer constants; decay where a segment has none: 0 instead */
};

/* Elements of RESULT tensors besides `result`: what is counted in a step for people to see, summed by AGREE. They stand in the
 * order of tensors. */
uint64_t kc_plan_tallies(const struct kc_shard_plan *p);

/* Which coordinate of a pipeline of `ranks` holds a virtual stage, 0 to ranks · chunks - 1: round and round, with one chunk the two
 * are the same; two chunks of an order that fills every gap go down the ranks and back up, so that the first holds the last. */
uint32_t kc_stage_coordinate(enum kc_pipeline order, uint32_t ranks, uint32_t chunks, uint32_t stage);
/* And back: which stage is the chunk-th of a coordinate. */
uint32_t kc_stage_of(enum kc_pipeline order, uint32_t ranks, uint32_t chunks, uint32_t coordinate, uint32_t chunk);

/* Is a class of any bucket in parts? */
int kc_plan_in_parts(const struct kc_shard_plan *p, enum kc_state_class what);
/* Coordinate of `rank` on `axis`. */
static inline uint32_t kc_plan_coordinate(const struct kc_shard_plan *p, uint32_t rank, enum kc_axis axis)
{
    for (int a = 0; a < (int)axis; a++)
        rank /= p->axis[a];
    return rank % p->axis[axis];
}

/* Part i of n of a dimension of `size`, cut as evenly as can be: [first, end) with first = ⌊i·size/n⌋. */
static inline uint64_t kc_part_first(uint64_t size, uint32_t n, uint32_t i)
{
    return size * i / n;
}

/* What `rank` has of a tensor, in logical coordinates: an op's view of it. Where several axes cut one dimension, the
 * slowest cuts first. Of a sequence in pairs of chunks `first` counts in the order in which ranks hold it. */
struct kc_box {
    uint64_t first[KC_DIMS_MAX], size[KC_DIMS_MAX];
};
void kc_plan_box(const struct kc_shard_plan *p, const struct kc_plan_tensor *t, uint32_t rank, struct kc_box *out);
uint64_t kc_box_elements(const struct kc_box *b, uint32_t rank);

/* Which owner of a bucket a rank is: its number among the ranks along bucket.axes, 0 to shards - 1. */
uint32_t kc_plan_owner(const struct kc_shard_plan *p, const struct kc_plan_bucket *b, uint32_t rank);
/* Does it hold the bucket: has it a stage that does; and does it count and save its owner's part: of ranks that hold the
 * same, one does. */
int kc_plan_holds(const struct kc_shard_plan *p, const struct kc_plan_bucket *b, uint32_t rank);
int kc_plan_counts(const struct kc_shard_plan *p, const struct kc_plan_bucket *b, uint32_t rank);
/* Has the rank a stage that runs the op? */
int kc_plan_runs_op(const struct kc_shard_plan *p, const struct kc_plan_op *op, uint32_t rank);
/* Does it leave operand `i` (in before out) of the op out? */
int kc_plan_omits(const struct kc_shard_plan *p, const struct kc_plan_op *op, uint32_t i, uint32_t rank);

extern const struct kc_layout kc_shard_plan_layout;

#endif
