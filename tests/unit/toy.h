/* toy.h - a small model for tests of strategy and schedule: tied embedding, layers of y = x·w + b (element by
 * element), head and cross entropy, with a spec, devices and costs to go with it. Its opcodes are its own: layers see
 * numbers. */
#ifndef KC_TESTS_TOY_H
#define KC_TESTS_TOY_H

#include "base/arena.h"
#include "contracts/comm_costs.h"
#include "contracts/comm_plan.h"
#include "contracts/device_view.h"
#include "contracts/job_spec.h"
#include "contracts/model_graph.h"
#include "contracts/op_table.h"
#include "contracts/shard_plan.h"

#include <stdatomic.h>
#include <stdbool.h>

enum toy_opcode {
    TOY_LOAD,
    TOY_EMBED_F,
    TOY_EMBED_W,
    TOY_AFFINE_F,
    TOY_AFFINE_I,
    TOY_AFFINE_W,
    TOY_HEAD_F,
    TOY_HEAD_I,
    TOY_HEAD_W,
    TOY_LOSS_F,
    TOY_LOSS_I,
    TOY_OPCODES,
    TOY_UPDATE = TOY_OPCODES,
    TOY_NORM,
    TOY_TABLE
};

struct toy_shape {
    uint32_t ranks, zero, layers, hidden, vocab, context, micro, sequences;
    double latency_ns; /* of the cost table: decides the size of buckets */
    enum kc_precision precision;
    uint32_t algorithm; /* enum kc_choice, for every primitive of the spec */
};

struct toy {
    struct toy_shape shape;
    struct kc_arena arena[6];
    const struct kc_job_spec *spec;
    const struct kc_model_graph *graph;
    const struct kc_device_view *devices;
    const struct kc_comm_costs *costs;
    const struct kc_shard_plan *shard; /* toy_plan() */
    const struct kc_comm_plan *comm;
};

/* Everything but the plans; fails the test on error. */
void toy_make(struct toy *t, struct toy_shape shape);
/* toy_make() and the plans of strategy. */
void toy_plan(struct toy *t, struct toy_shape shape);
void toy_free(struct toy *t);
/* `n` devices of one machine; a cost table in which a ring has twice the bandwidth. */
const struct kc_device_view *toy_devices(uint32_t n, struct kc_arena *arena);
const struct kc_comm_costs *toy_costs(double latency_ns, struct kc_arena *arena);
/* The graph with the data-sharded rule of one opcode left out. */
const struct kc_model_graph *toy_graph(const struct kc_job_spec *spec, enum toy_opcode without,
                                       struct kc_arena *arena);

/* Real kernels for it, over `tiles` on a lane. LOAD makes tokens from (step, row), so that all layouts see the same
 * batch. */
struct toy_context {
    const struct kc_shard_plan *shard;
    uint32_t rank;
    int fail_at; /* step at which `fail_op` answers -EIO; -1 never */
    uint16_t fail_op;
    bool fails_late; /* an op failed on the lane, after its enqueue had returned */
    const _Atomic uint32_t *fail_after; /* not before this word is set; NULL: at once */
    int poison_at; /* step at which this rank's affine weight gradients become not a number; -1 never */
    _Atomic uint32_t ran[TOY_TABLE]; /* calls of each op so far */
};
void toy_ops(struct kc_op ops[TOY_TABLE]);
int toy_failed(void *self, struct kc_error *e);

#endif
