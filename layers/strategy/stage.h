/* stage.h - which layers make a stage of the pipeline. Pure. */
#ifndef KC_STRATEGY_STAGE_H
#define KC_STRATEGY_STAGE_H

#include "base/error.h"

#include <stdint.h>

/* What the parts of a model cost, in one unit (flops of forward and backward). */
struct kc_layer_costs {
    const uint64_t *layer;
    uint32_t layers;
    uint64_t embedding, head; /* before the first layer and behind the last: they go where these go */
};

/* Cut the layers into ranks · chunks stages, one run of whole layers each and at least one layer: stage s gets layers
 * first[s] to first[s + 1] - 1 (ranks · chunks + 1 entries). No cut has a cheaper most expensive stage. Among those,
 * no layer on a border can change sides to make the two stages more equal, and of two that are equally so the earlier
 * stages are cheaper, since they keep more micro-batches in memory. -EINVAL fewer layers than stages, or none of
 * them. */
int kc_stage_cut(const struct kc_layer_costs *costs, uint32_t ranks, uint32_t chunks, uint32_t *first,
                 struct kc_error *e);
/* What a stage of a cut into `stages` costs. */
uint64_t kc_stage_cost(const struct kc_layer_costs *costs, uint32_t stages, const uint32_t *first, uint32_t stage);

#endif
