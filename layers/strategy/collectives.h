/* collectives.h - builds the communication plan from the shard plan: groups from the mesh, collectives from
 * conversions. Pure. */
#ifndef KC_STRATEGY_COLLECTIVES_H
#define KC_STRATEGY_COLLECTIVES_H

#include "convert.h"

/* Where the gradients and the updated parameters of a bucket have to go along its axes, as the optimizer needs it. */
struct kc_placement kc_collectives_update_place(const struct kc_shard_plan *shard);
/* Begin and fill the plan in its fresh arena, not sealed yet: first what ops call (`made`), then links, buckets and the
 * rest. The algorithm of a collective is the one that the spec names
 * for its primitive, else the cheapest by `costs`. Errors as kc_strategy_plan(). */
int kc_collectives_build(const struct kc_job_spec *spec, const struct kc_shard_plan *shard, const struct kc_made *made,
                         const struct kc_device_view *devices, const struct kc_comm_costs *costs,
                         struct kc_arena *arena, struct kc_comm_plan **out, struct kc_error *e);

#endif
