/* cut.h - the model graph on its way to a plan: expansions are carried out, and every op knows the rule by which it is cut
 * along each axis. Lives in scratch memory. */
#ifndef KC_STRATEGY_CUT_H
#define KC_STRATEGY_CUT_H

#include "strategy/strategy.h"

#include <stdbool.h>

#define CUT_PARTS 4 /* forward, what evaluation adds, what sampling adds, backward: see model_graph.h */

struct kc_cut_op {
    uint16_t opcode;      /* index into the graph's opcodes, or KC_STEP_… */
    uint8_t klass;
    uint8_t axis, dim;    /* of a step that sends: of its expansion */
    uint8_t pad;
    int32_t layer;
    uint32_t inputs, outputs, attrs;
    const int32_t *at;    /* inputs, then outputs: tensors of the cut, -1 left out */
    const double *attr;
    uint64_t flops, scratch, scratch_most;
    uint8_t rule[KC_AXES];
};

struct kc_cut {
    const struct kc_model_graph *graph;
    const struct kc_graph_opcode *opcodes;
    const struct kc_job_spec *spec;
    struct kc_graph_tensor *tensors; /* the graph's, then those of expansions */
    uint32_t tensor_count, op_count;
    struct kc_cut_op *ops;
    uint32_t part_first[CUT_PARTS + 1]; /* ops */
    struct kc_placement (*place)[KC_AXES]; /* of a tensor, as the op that writes it leaves it */
    uint32_t moves;       /* conversions that ops want, at most: one an input and axis */
    uint32_t sends;       /* steps that do */
};

/* A step in which ranks send each other something: no op of jobs. */
static inline bool kc_cut_sends(const struct kc_cut_op *op)
{
    return op->opcode >= KC_STEP_RETURN;
}

/* The graph with its expansions carried out for the mesh of `spec`; nothing is placed yet. `borders`: again.h. -ENOSPC. */
int kc_cut_begin(const struct kc_model_graph *graph, const struct kc_job_spec *spec, const uint32_t *borders,
                 struct kc_arena *arena, struct kc_cut *out);
static inline uint32_t kc_cut_part(const struct kc_cut *c, uint32_t op)
{
    uint32_t p = 0;
    while (op >= c->part_first[p + 1])
        p++;
    return p;
}
/* An axis along which placements spread: data always, so that one rank runs the same programs as many; of the others those
 * that have several ranks. Pipeline stages hold whole tensors. */
static inline bool kc_cut_uses(const struct kc_job_spec *spec, int axis)
{
    return axis == KC_DATA || (spec->axis[axis] > 1 && axis != KC_PIPELINE);
}
/* The opcode's name; "shift", … */
const char *kc_cut_name(const struct kc_cut *c, const struct kc_cut_op *op);

#endif
