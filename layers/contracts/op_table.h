/* op_table.h - the kernels of one device kind, and the lane they are enqueued on. Opcodes are numbers to everyone but
 * jobs. Functions cross once, at construction.
 * Writer: jobs (table), schedule (lanes). Readers: schedule, govern, trace, engine, console, drill. */
#ifndef KC_CONTRACTS_OP_TABLE_H
#define KC_CONTRACTS_OP_TABLE_H

#include "base/error.h"
#include "contracts/types.h"

#define KC_SCRATCH_MIN 4096   /* bytes every call has, also those without a graph op */
#define KC_LANE_ARG_MAX 1024  /* bytes of an enqueue's argument */

/* A tensor as an op sees it: local sizes, row-major, contiguous. data NULL: operand left out. */
struct kc_view {
    void *data;
    uint8_t type, rank;
    uint64_t size[KC_DIMS_MAX];
    uint64_t first[KC_DIMS_MAX]; /* where it begins in the logical tensor, of which it is a box */
};

/* Values that change from step to step, the same on all ranks. */
struct kc_step_values {
    uint64_t step;       /* from 0 */
    uint64_t tokens;     /* of the whole step, all ranks and micro-batches, those that the loss mask leaves out not counted;
                            train: at least 1, evaluate: 0, not known */
    double lr;
    double scale;        /* gradients are sums over tokens: × scale = 1/tokens · clip factor. Set by AGREE. */
    double beta1_power, beta2_power; /* β^(step+1), for bias correction */
    uint64_t sample_first; /* LOAD: position q of the first sample of this step (train) or its index (evaluate) */
    uint32_t rows;       /* LOAD, evaluate: rows of the micro-batch over all ranks that are real; the rest is masked */
    uint32_t evaluate;   /* 1: LOAD reads validation data in file order */
};

/* A lane: a FIFO of work with a team of threads behind it. enqueue() may run the work at once or later; nothing but an
 * event says that it is complete. */
struct kc_lane {
    void *self;
    uint32_t workers; /* 1 … threads of the rank */
    /* Call tile(arg, index, worker) once for every index in [0, tiles), in any order, on any worker. What a tile computes
     * must not depend on which worker runs it or on how many there are. FIFO: no tile of a later enqueue starts before
     * all tiles of the earlier ones are complete, so an op may enqueue partial sums and then their sum. arg is copied
     * (bytes ≤ KC_LANE_ARG_MAX). -ENOMEM queue full, -ESHUTDOWN. */
    int (*enqueue)(struct kc_lane *lane, void (*tile)(void *arg, uint32_t index, uint32_t worker), const void *arg,
                   size_t bytes, uint32_t tiles);
};

/* The three ops that strategy and schedule call without a graph op. All work on any run of elements, f32 but for a
 * bf16 parameter.
 * update (opcode_update): in {gradient}, out {parameter, moment1, moment2, master}, read and written; attr {beta1, beta2,
 *   eps, weight decay (0: none)}. Uses step->lr, scale, beta1_power, beta2_power. The master is left out where the
 *   parameter is f32; where it is bf16, the master is updated and the parameter becomes the master, rounded.
 * add (opcode_add): in {run}, out {run}, added to when accumulate is set.
 * norm (opcode_norm): in {run}, out {f64, one element}: Σ x², added when accumulate is set; not a number or infinite if
 *   any x is. */
struct kc_op_call {
    uint16_t opcode;
    uint8_t accumulate; /* 1: outputs of role GRADIENT and RESULT are added to; 0: overwritten. Others: overwritten always. */
    uint8_t inputs, outputs;
    const struct kc_view *in, *out;
    const double *attr; /* static attributes of the plan */
    uint32_t attrs;
    uint32_t micro;     /* micro-batch of the step */
    void *scratch;      /* ONE block, shared by all tiles of this call (partial sums, by chunk); 64-byte aligned; may be
                           reused by the next call on the same lane. What a tile needs alone is on its own stack. */
    size_t scratch_bytes; /* at least what the graph op asked for, and never under KC_SCRATCH_MIN */
    const struct kc_step_values *step; /* lives until the program ends */
};

struct kc_op {
    uint16_t id;
    const char *name;
    /* Enqueue the op's work on the lane; returns before it is complete. -EINVAL shapes it does not take, -EIO input
     * data lost (a file that shrank), e says which. */
    int (*enqueue)(void *self, const struct kc_op_call *call, struct kc_lane *lane, struct kc_error *e);
};

struct kc_op_table {
    void *self;             /* jobs' context: loader, kernel variants */
    const char *device;     /* "cpu" */
    const char *variant;    /* "avx512+…", "portable+…": part of the plan, kept in snapshots */
    const struct kc_op *ops;/* indexed by id */
    uint32_t count;
    /* 0, or the first error that an op met on the lane, after its enqueue had returned. To be asked when a program is
     * complete: nobody enqueues behind its last op, who could be told. */
    int (*failed)(void *self, struct kc_error *e);
};

#endif
