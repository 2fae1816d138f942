/* shard.h - builds the shard plan: local shapes, placements, buckets. Pure. */
#ifndef KC_STRATEGY_SHARD_H
#define KC_STRATEGY_SHARD_H

#include "strategy/strategy.h"

/* Begin and fill the plan in its fresh arena, not sealed yet. `target`: bytes from which a bucket may end (bucket.h).
 * Errors as kc_strategy_plan(). */
int kc_shard_build(const struct kc_model_graph *graph, const struct kc_job_spec *spec,
                   struct kc_strategy_opcodes opcodes, uint64_t target, struct kc_arena *arena,
                   struct kc_shard_plan **out, struct kc_error *e);

#endif
