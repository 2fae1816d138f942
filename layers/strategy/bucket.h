/* bucket.h - lays parameters out in buckets: what is reduced, sharded and updated as one. Pure.
 *
 * Order: as backward completes the gradients (the last op that adds to one completes it), so that a bucket's
 * reduction can start while backward goes on. A bucket ends at a border between layers once it holds `target` bytes,
 * and anywhere before it would exceed BUCKET_BYTES_MAX (a larger tensor is a bucket of its own; none is cut). Bytes are those
 * of gradients, f32 always: so both precisions have the same buckets. Small last pieces of a layer thus join the next layer's;
 * tied embeddings, which the first op of the graph completes, come last. What has to be reduced and gathered in another way is
 * in another bucket: parameters of one bucket have one type and one stage, are cut by the same axes, and their gradients are
 * parts of sums on the same axes. Tensors start at multiples of KC_ALIGN_ELEMENTS; a bucket is padded to shards ×
 * KC_ALIGN_ELEMENTS. */
#ifndef KC_STRATEGY_BUCKET_H
#define KC_STRATEGY_BUCKET_H

#include "base/arena.h"
#include "base/error.h"
#include "contracts/model_graph.h"
#include "contracts/shard_plan.h"

#define BUCKET_BYTES_MIN (UINT64_C(64) << 10)
#define BUCKET_BYTES_MAX                                                                                             \
    (UINT64_C(25) << 20) /* as PyTorch DDP: beyond it a larger operation gains nothing and overlaps less */

/* What each level of ZeRO keeps in parts (kc_plan_bucket.parts): 1 moments and masters, 2 gradients too, 3 parameters too. */
static inline uint32_t kc_bucket_parts(uint32_t zero)
{
    const uint32_t optimizer = 1u << KC_STATE_MOMENT1 | 1u << KC_STATE_MOMENT2 | 1u << KC_STATE_MASTER;
    return (zero >= 1 ? optimizer : 0) | (zero >= 2 ? 1u << KC_STATE_GRADIENT : 0) | (zero >= 3 ? 1u << KC_STATE_PARAMETER : 0);
}

/* Fill buckets, segments, and bucket and offset of every parameter and gradient of the plan (whose tensors and ops
 * are there). -EINVAL a parameter without exactly one gradient, or in more than two stages, -ENOSPC. */
int kc_bucket_layout(struct kc_shard_plan *plan, struct kc_arena *arena, struct kc_plan_tensor *tensors,
                     uint64_t target, struct kc_error *e);

/* Axes along which the bucket's gradients are parts of sums that its reduction over bucket.axes does not make: bits. */
uint32_t kc_bucket_sums(const struct kc_shard_plan *plan, uint32_t bucket);

#endif
