/* stage.c - see stage.h. */
#include "stage.h"

#include <errno.h>
#include <stdbool.h>

uint64_t kc_stage_cost(const struct kc_layer_costs *costs, uint32_t stages, const uint32_t *first, uint32_t stage)
{
    uint64_t sum = (stage == 0 ? costs->embedding : 0) + (stage + 1 == stages ? costs->head : 0);
    for (uint32_t i = first[stage]; i < first[stage + 1]; i++)
        sum += costs->layer[i];
    return sum;
}

/* Fill stage after stage up to `limit`, keeping a layer for each one that is left. True: all fit, *nearest is what
 * the most expensive stage costs. False: it is the least limit that gives another cut; no lower one will do. */
static bool fill(const struct kc_layer_costs *costs, uint32_t stages, uint64_t limit, uint32_t *first,
                 uint64_t *nearest)
{
    uint64_t most = 0, refused = UINT64_MAX;
    uint32_t at = 0;
    for (uint32_t s = 0; s + 1 < stages; s++) {
        const uint32_t end = costs->layers - (stages - 1 - s);
        first[s] = at;
        uint64_t sum = (s == 0 ? costs->embedding : 0) + costs->layer[at++];
        for (; at < end && sum + costs->layer[at] <= limit; at++)
            sum += costs->layer[at];
        if (at < end && sum + costs->layer[at] < refused)
            refused = sum + costs->layer[at];
        if (sum > most)
            most = sum;
    }
    first[stages - 1] = at;
    first[stages] = costs->layers;
    const uint64_t last = kc_stage_cost(costs, stages, first, stages - 1);
    if (last > most)
        most = last;
    *nearest = most <= limit || most < refused ? most : refused;
    return most <= limit;
}

/* What some stage must cost in any cut: its dearest layer, or a layer with the embedding or the head. */
static uint64_t least(const struct kc_layer_costs *costs, uint32_t stages)
{
    uint64_t most = costs->embedding + costs->layer[0];
    for (uint32_t i = 1; i < costs->layers; i++)
        if (costs->layer[i] > most)
            most = costs->layer[i];
    if (stages > 1 && costs->head + costs->layer[costs->layers - 1] > most)
        most = costs->head + costs->layer[costs->layers - 1];
    return most;
}

/* Give the last layer of a stage to the next one if that makes them more equal, or as equal with the later one the
 * dearer. The other way round is never better: stages were filled from the front, so that a stage with the next one's
 * first layer is at least as dear as the next, and a layer that it gave away keeps it so. */
static bool even(const struct kc_layer_costs *costs, uint32_t stages, uint32_t *first, uint32_t stage)
{
    const uint64_t a = kc_stage_cost(costs, stages, first, stage), b = kc_stage_cost(costs, stages, first, stage + 1);
    const bool gives = first[stage + 1] - first[stage] > 1 && a > b && b + costs->layer[first[stage + 1] - 1] <= a;
    first[stage + 1] -= gives;
    return gives;
}

int kc_stage_cut(const struct kc_layer_costs *costs, uint32_t ranks, uint32_t chunks, uint32_t *first,
                 struct kc_error *e)
{
    const uint64_t wanted = (uint64_t)ranks * chunks;
    if (!wanted || wanted > costs->layers)
        return kc_fail(e, -EINVAL,
                       "model.layers = %u, but parallel.pipeline·parallel.chunks = %u·%u = %llu stages of at "
                       "least one layer. Lower pipeline or chunks",
                       costs->layers, ranks, chunks, (unsigned long long)wanted);
    const uint32_t stages = (uint32_t)wanted;
    uint64_t low = least(costs, stages), high = 0, nearest;
    fill(costs, stages, UINT64_MAX, first, &high);
    while (low < high) {
        const uint64_t middle = low + (high - low) / 2;
        if (fill(costs, stages, middle, first, &nearest))
            high = nearest;
        else
            low = nearest;
    }
    fill(costs, stages, high, first, &nearest);
    for (bool moved = true; moved;) {
        moved = false;
        for (uint32_t s = 0; s + 1 < stages; s++)
            moved |= even(costs, stages, first, s);
    }
    return 0;
}
