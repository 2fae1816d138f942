/* costs.c - see costs.h. */
#include "costs.h"

#include <stddef.h>

enum kc_distance kc_costs_distance(const struct kc_device_view *devices, const uint32_t *ranks, uint32_t count)
{
    const uint8_t *distance = KC_AT(devices, uint8_t, devices->distance);
    const uint32_t *place = KC_AT(devices, uint32_t, devices->place);
    uint64_t there = 0; /* places that a rank of the group has */
    /* Cores of one machine count as equally far: which of them a job is leased differs from start to start, and neither
     * the plan nor a bit of the result may. */
    uint8_t farthest = KC_DISTANCE_MACHINE;
    for (uint32_t i = 0; i < count; i++)
        there |= UINT64_C(1) << place[ranks[i]];
    for (uint32_t i = 0; i < devices->places; i++)
        for (uint32_t j = i + 1; j < devices->places; j++) {
            uint8_t d = distance[(size_t)i * devices->places + j];
            if (there >> i & there >> j & 1 && d > farthest)
                farthest = d;
        }
    return (enum kc_distance)farthest;
}

/* The row for this size of group: the one with the smallest limit that still holds it. */
static const struct kc_comm_cost *row_of(const struct kc_comm_costs *costs, enum kc_primitive primitive,
                                         enum kc_algorithm algorithm, enum kc_distance distance, uint32_t ranks)
{
    const struct kc_comm_cost *rows = KC_AT(costs, struct kc_comm_cost, costs->rows), *best = NULL;
    for (uint32_t i = 0; i < costs->rows.count; i++)
        if (rows[i].primitive == primitive && rows[i].algorithm == algorithm && rows[i].distance == distance &&
            rows[i].ranks_max >= ranks && rows[i].bytes_per_second > 0 &&
            (!best || rows[i].ranks_max < best->ranks_max))
            best = &rows[i];
    return best;
}

enum kc_algorithm kc_costs_algorithm(const struct kc_comm_costs *costs, enum kc_primitive primitive,
                                     enum kc_distance distance, uint32_t ranks, uint64_t bytes)
{
    enum kc_algorithm best = KC_DIRECT;
    double best_ns = -1;
    for (int a = 0; a < KC_ALGORITHMS; a++) {
        const struct kc_comm_cost *row = row_of(costs, primitive, (enum kc_algorithm)a, distance, ranks);
        if (!row)
            continue;
        double ns = kc_comm_cost_ns(row, ranks, bytes);
        if (best_ns < 0 || ns < best_ns)
            best = (enum kc_algorithm)a, best_ns = ns;
    }
    return best;
}

double kc_costs_worthwhile(const struct kc_comm_costs *costs, enum kc_primitive primitive, enum kc_distance distance,
                           uint32_t ranks)
{
    double least = 0;
    for (int a = 0; a < KC_ALGORITHMS; a++) {
        const struct kc_comm_cost *row = row_of(costs, primitive, (enum kc_algorithm)a, distance, ranks);
        if (!row)
            continue;
        uint32_t steps = kc_comm_cost_steps(row->primitive, row->algorithm, ranks);
        double bytes = 7 * row->latency_ns * 1e-9 * steps * row->bytes_per_second;
        if (least == 0 || bytes < least)
            least = bytes;
    }
    return least;
}
