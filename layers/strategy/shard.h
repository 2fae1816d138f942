/* shard.h - builds the shard plan: local shapes, placements, ops with the conversions between them. Pure. */
#ifndef KC_STRATEGY_SHARD_H
#define KC_STRATEGY_SHARD_H

#include "convert.h"

/* Begin and fill the plan in its fresh arena but for its buckets, not sealed yet; `made`, in scratch memory, has the
 * collectives that its ops call. `borders`: the first layer of each stage and one more, or NULL: they follow from what the
 * layers cost. Errors as kc_strategy_plan(). */
int kc_shard_build(const struct kc_model_graph *graph, const struct kc_job_spec *spec, const uint32_t *borders,
                   struct kc_strategy_opcodes opcodes, struct kc_arena *arena, struct kc_shard_plan **out,
                   struct kc_made *made, struct kc_error *e);

#endif
