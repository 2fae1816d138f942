/* propagate.h - how placements spread through a graph, forward and backward, by the rules that its opcodes state. Works along
 * one mesh axis at a time; the axes are independent. Pure. */
#ifndef KC_STRATEGY_PROPAGATE_H
#define KC_STRATEGY_PROPAGATE_H

#include "cut.h"

/* Along `axis`, give every op a rule (cut->ops[…].rule) and every tensor the placement in which it is written
 * (cut->place[…][axis]). Inputs and parameters lie as axes.h says, parameters where all ops that read them have a rule for it;
 * elsewhere they are replicated, and none ever moves. The rest follows op by op: of the rules that fit, the one that moves
 * fewest bytes, then has fewest conversions, then stands first.
 * -ENOTSUP no rule fits (e: op, tensor, axis, and the cheapest conversion that would make one fit), -EINVAL a dimension is too
 * small for the axis, or the graph is wrong, -ENOSPC. */
int kc_propagate(struct kc_cut *cut, enum kc_axis axis, struct kc_arena *arena, struct kc_error *e);

/* How often the parts of dimension `dim` of `size` repeat on an axis of `ranks`: 1, or more where key/value heads are fewer. */
uint32_t kc_propagate_repeat(uint8_t dim, uint64_t size, uint32_t ranks);

#endif
