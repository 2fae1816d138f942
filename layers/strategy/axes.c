/* axes.c - see axes.h. */
#include "axes.h"

#include "placement.h"

bool kc_axis_cuts(const struct kc_job_spec *spec, enum kc_axis axis, uint8_t dim)
{
    switch (axis) {
    case KC_TENSOR:
        return dim == KC_HEADS || dim == KC_KV_HEADS || dim == KC_FFN || dim == KC_VOCAB ||
               (dim == KC_SEQUENCE && spec->sequence);
    case KC_CONTEXT:
        return dim == KC_SEQUENCE;
    case KC_EXPERT:
        return dim == KC_BATCH || dim == KC_DIM_EXPERT;
    default:
        return axis == KC_DATA && dim == KC_BATCH;
    }
}

struct kc_placement kc_axis_input(enum kc_axis axis, const struct kc_graph_tensor *t)
{
    const uint8_t dim = axis == KC_CONTEXT ? KC_SEQUENCE : KC_BATCH;
    for (int d = 0; d < t->rank && axis != KC_TENSOR; d++)
        if (t->dim[d] == dim)
            return place_sharded(dim);
    return place_replicated();
}

struct kc_placement kc_axis_parameter(enum kc_axis axis, const struct kc_graph_tensor *t)
{
    for (int d = 0; d < t->rank; d++) {
        const uint8_t dim = t->dim[d];
        if (axis == KC_TENSOR && (dim == KC_HEADS || dim == KC_KV_HEADS || dim == KC_FFN || dim == KC_VOCAB))
            return place_sharded(dim);
        if (axis == KC_EXPERT && dim == KC_DIM_EXPERT)
            return place_sharded(dim);
    }
    return place_replicated();
}
