/* axes.h - what each axis of the mesh is for: which dimensions it may cut, and how what no op makes lies along it. All else follows
 * by rules, so a new placement that opcodes have rules for is written here and nowhere else (tests/unit/test_placement.c). Pure. */
#ifndef KC_STRATEGY_AXES_H
#define KC_STRATEGY_AXES_H

#include "strategy/strategy.h"

#include <stdbool.h>

/* May tensors be cut by `dim` (enum kc_dim) along the axis? */
bool kc_axis_cuts(const struct kc_job_spec *spec, enum kc_axis axis, uint8_t dim);
/* Inputs lie by their batch on data and expert, by their sequence on context. */
struct kc_placement kc_axis_input(enum kc_axis axis, const struct kc_graph_tensor *t);
/* How a parameter should lie where all ops that read it have a rule for that: by the first of heads, key/value heads, ffn and
 * vocabulary on tensor, by experts on expert; else replicated. */
struct kc_placement kc_axis_parameter(enum kc_axis axis, const struct kc_graph_tensor *t);

#endif
