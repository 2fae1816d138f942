/* pipeline.h - the stages of a pipeline: which layers, which ops, and what goes from one to another. Pure. */
#ifndef KC_STRATEGY_PIPELINE_H
#define KC_STRATEGY_PIPELINE_H

#include "base/arena.h"
#include "base/error.h"
#include "contracts/job_spec.h"
#include "contracts/shard_plan.h"

/* Fill stages, links and every op's stage of a plan whose tensors and ops are there. The layers are cut by flops (stage.h)
 * or as `borders` says, if it is not NULL; an op
 * is of the stage of its layer, one before the first layer or behind the last of that which it reads from or which reads it
 * first, one that needs nothing but inputs of every stage. A link's send is collective `collectives` and on, its receive the
 * one behind it; -1 where both ends are one rank's.
 * -EINVAL there are fewer layers than stages, or a tensor skips a stage (e); -ENOSPC. */
int kc_pipeline_build(const struct kc_job_spec *spec, const uint32_t *borders, uint32_t collectives, struct kc_shard_plan *plan,
                      struct kc_arena *arena, struct kc_error *e);

#endif
