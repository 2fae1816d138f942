/* step_trace.h - what one rank's memory held in one step: a row for each operand of each instruction, with a digest of its
 * bits and figures of its values. A file of these, one rank's behind the other's, is what kc trace writes and kc compare
 * reads (kc-trace(5)).
 * Writer: trace. Readers: engine, console. */
#ifndef KC_CONTRACTS_STEP_TRACE_H
#define KC_CONTRACTS_STEP_TRACE_H

#include "base/contract.h"
#include "contracts/types.h"

#include <assert.h>

#define KC_STEP_TRACE_VERSION 1
#define KC_STEP_TRACE_MOST    (1u << 31) /* bytes of a file of them */

/* When a row was taken. */
#define KC_TRACED_TABLE(X)                                                                                             \
    X(TRACED_NOT, "not run", 0)  /* the instruction was left out: the update of a step that is not finite */           \
    X(TRACED_FOUND, "found", 0)  /* an input that this step has not written, as the instruction found it */            \
    X(TRACED_LEFT, "left", 0)    /* an output, as the instruction left it */
enum kc_traced_when { KC_TRACED_TABLE(KC_ENUM_ROW) KC_TRACED_WHENS };
extern const char *const kc_traced_name[KC_TRACED_WHENS];

/* A part of a tensor. Its elements are numbers lo … lo + count - 1 of the box, row-major. */
struct kc_traced {
    uint32_t instruction; /* of the train program */
    uint32_t operand;     /* inputs, then outputs */
    uint8_t when;         /* enum kc_traced_when */
    uint8_t lane, type, rank; /* enum kc_lane_id, enum kc_type; dimensions */
    uint8_t partial;      /* bits 1 << enum kc_axis: ranks along these have values of their own, not parts of one: summands of it, or
                             rows that went to their experts */
    uint8_t batched;      /* 1: dimension 0 is the batch; micro-batch m of the step is m · whole[0] rows further */
    uint16_t micro;
    int32_t layer;        /* -1 none */
    kc_text op;           /* "linear.w", "reduce-scatter gradient" */
    kc_text what;         /* "parameter", "gradient", "moment1", "activation", … */
    kc_text tensor;       /* of gradients and moments: the parameter's */
    uint64_t whole[KC_DIMS_MAX]; /* the logical tensor; unused dimensions are 0 */
    uint64_t first[KC_DIMS_MAX], size[KC_DIMS_MAX]; /* the box of it that the rank holds */
    uint64_t lo, count;
    uint64_t digest;      /* Σ mod 2^64 of mix(place in the step's whole tensor, bits): parts of any layout add up to the whole's */
    double sum, squares;  /* of the finite values, f64, in order */
    double largest;       /* of the finite magnitudes */
    uint64_t nonfinite;   /* values that are not finite */
};
static_assert(sizeof(struct kc_traced) == 208, "contracts have no hidden padding");

struct kc_step_trace {
    struct kc_contract head;
    uint64_t step;            /* the step, from 1 */
    uint64_t begun;           /* steps finished in the state that the run began from */
    uint32_t rank, ranks;
    uint32_t axis[KC_AXES], zero;
    uint32_t micro_batches, pad;
    struct kc_digest spec, shard, exec; /* of the contracts that the run was made by */
    kc_text variant;          /* of the kernels */
    uint32_t pad2;
    struct kc_span rows;      /* struct kc_traced, by instruction */
};

extern const struct kc_layout kc_step_trace_layout;

#endif
