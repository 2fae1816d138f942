/* convert.h - from an op's rules to the ops of the plan: where a tensor lies otherwise than the op that reads it wants, a
 * conversion is put before that op. Pure. */
#ifndef KC_STRATEGY_CONVERT_H
#define KC_STRATEGY_CONVERT_H

#include "cut.h"

/* An op of the plan while the plan is made; its spans are these. */
struct kc_made_op {
    struct kc_plan_op plan;
    const struct kc_cut_op *from; /* NULL: a conversion */
    const int32_t *at;            /* inputs, then outputs: tensors of the plan */
    const uint32_t *omit;         /* NULL: nothing is left out */
    const double *attr;
    uint32_t inputs, outputs, attrs;
};

/* A collective that a conversion or a step calls; op.collective is its index. */
struct kc_made_collective {
    uint8_t primitive, type, reduce, axis;
    uint8_t purpose, counted, pad[2];
    int32_t shift;
    uint64_t count;
};

struct kc_made {
    struct kc_plan_tensor *tensors; /* those of the cut, then those that conversions make; texts are the graph's */
    struct kc_made_op *ops;
    struct kc_made_collective *collectives;
    uint32_t tensor_count, op_count, collective_count;
    uint32_t part_first[CUT_PARTS]; /* ops */
};

/* `plan` has the mesh. Sums that an op needs whole or in parts are made so once, for all who read them later; what is gathered
 * is kept for the part of the graph that it is in, so that backward gathers again; what is alike on all ranks and wanted as a
 * sum is left out on all but the first where the op can do without it. A result that is alike on an axis is written by
 * coordinate 0 alone.
 * -EINVAL a dimension that has to be cut evenly is not (e), -ENOSPC. */
int kc_convert(const struct kc_cut *cut, const struct kc_shard_plan *plan, struct kc_strategy_opcodes opcodes,
               struct kc_arena *arena, struct kc_made *out, struct kc_error *e);

#endif
