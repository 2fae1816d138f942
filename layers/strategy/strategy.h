/* strategy.h - decides how to cut: (graph, spec, devices, costs) → shard plan and communication plan. Pure: the same
 * arguments give the same bytes. Touches no device, file, clock or random number; allocates only in the given arenas.
 */
#ifndef KC_STRATEGY_H
#define KC_STRATEGY_H

#include "base/arena.h"
#include "base/error.h"
#include "contracts/comm_costs.h"
#include "contracts/comm_plan.h"
#include "contracts/device_view.h"
#include "contracts/job_spec.h"
#include "contracts/model_graph.h"
#include "contracts/shard_plan.h"

/* What jobs call the ops that no graph has: the optimizer's, and those that turn a tensor into its parts and back (in or none
 * → out). Numbers that strategy only passes on.
 * box: what in and out both have of the logical tensor, zero elsewhere.
 * pack: attributes d, n: the n parts of dimension d one behind the other; unpack: back. */
struct kc_strategy_opcodes {
    uint16_t update, norm, add, box, pack, unpack;
};

/* Cut `graph` for the mesh of `spec`. Each plan is built, sealed and frozen in its own fresh arena.
 * -EINVAL the spec cannot be cut so (e: every number of the equation), -ENOSPC an arena is too small (its `need`
 * tells more), -ENOTSUP an op offers no rule for the placement it would need (e: op, tensor, axis, placement). */
int kc_strategy_plan(const struct kc_model_graph *graph, const struct kc_job_spec *spec,
                     const struct kc_device_view *devices, const struct kc_comm_costs *costs,
                     struct kc_strategy_opcodes opcodes, struct kc_arena *shard_arena, struct kc_arena *comm_arena,
                     const struct kc_shard_plan **shard, const struct kc_comm_plan **comm, struct kc_error *e);

#endif
