/* cut_rig.h - runs the plans of strategy without any other layer: all ranks in one thread, op by op, with real kernels and
 * collectives that are a few lines each. What it computes depends on models, kernels and strategy alone. */
#ifndef KC_TESTS_CUT_RIG_H
#define KC_TESTS_CUT_RIG_H

#include "contracts/comm_plan.h"
#include "contracts/shard_plan.h"
#include "tests/unit/graph_runner.h"

#define CUT_RANKS_MAX 16

struct cut_rig {
    struct kc_job_spec spec;
    struct kc_arena arena[5];
    const struct kc_model_graph *graph;
    const struct kc_shard_plan *shard;
    const struct kc_comm_plan *comm;
    struct kc_op_table *table;
    struct test_lane lane;
    void **data[CUT_RANKS_MAX];      /* by tensor: its box, of what is in no bucket; parameters and gradients in buckets: */
    float **gradient[CUT_RANKS_MAX], **parameter[CUT_RANKS_MAX]; /* by bucket, f32 */
    unsigned char *written[CUT_RANKS_MAX];
    void *scratch;
    size_t scratch_bytes;
    double sent;                     /* bytes that rank 0 sent in collectives of activations, for each micro-batch */
};

/* Plans for the spec, and memory; parameters follow from their names and elements alone, whatever the layout. -errno of the
 * plans. precision fp32 alone. */
int cut_rig_new(struct cut_rig *r, const struct kc_job_spec *spec, struct kc_error *e);
/* The plans alone: nothing can be run. */
int cut_rig_plan(struct cut_rig *r, const struct kc_job_spec *spec, struct kc_error *e);
void cut_rig_free(struct cut_rig *r);

struct cut_result {
    double loss, tokens, norm;
};
/* A step up to the reduced gradients: all micro-batches; loss sum, tokens and gradient norm as AGREE would sum them. Fails the
 * test on an error. evaluate: forward alone, no norm. */
struct cut_result cut_rig_step(struct cut_rig *r, int evaluate);
/* The reduced gradient of a parameter, put together from the ranks that count it; every element must be counted once. To be
 * freed. */
float *cut_rig_gradient(const struct cut_rig *r, int32_t parameter);

#endif
