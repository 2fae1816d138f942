/* costs.h - reads the table of communication costs: which algorithm is cheapest, and from what size on an operation
 * is worth its latency. Pure. */
#ifndef KC_STRATEGY_COSTS_H
#define KC_STRATEGY_COSTS_H

#include "contracts/comm_costs.h"
#include "contracts/device_view.h"

/* The farthest distance between any two of the ranks, at least that of one machine. */
enum kc_distance kc_costs_distance(const struct kc_device_view *devices, const uint32_t *ranks, uint32_t count);
/* The algorithm with the smallest latency · steps + bytes / bandwidth for a group of `ranks`; `direct` when the table
 * knows nothing about the primitive at that distance. */
enum kc_algorithm kc_costs_algorithm(const struct kc_comm_costs *costs, enum kc_primitive primitive,
                                     enum kc_distance distance, uint32_t ranks, uint64_t bytes);
/* Bytes at which latency is an eighth of the whole time; 0 when the table does not know. */
double kc_costs_worthwhile(const struct kc_comm_costs *costs, enum kc_primitive primitive, enum kc_distance distance,
                           uint32_t ranks);

#endif
