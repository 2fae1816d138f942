/* fleet.h - a job of any layout in one test: plans of the real strategy and schedule, kernels of the real op table, ranks as
 * threads over a communication that has every primitive and lets the last to come do it for all, and a state that is plain
 * memory. Values of parameters follow from name and place in the whole tensor, so that every layout begins alike. */
#ifndef KC_TESTS_FLEET_H
#define KC_TESTS_FLEET_H

#include "base/arena.h"
#include "contracts/job_spec.h"
#include "jobs/jobs.h"
#include "schedule/schedule.h"

struct fleet_rank;
struct fleet {
    struct kc_job_spec spec;
    struct kc_arena arena[5]; /* graph, devices, costs, shard plan, communication plan */
    const struct kc_model_graph *graph;
    const struct kc_shard_plan *shard;
    const struct kc_comm_plan *comm;
    const struct kc_exec_plan *plan[KC_RANKS_MAX];
    struct fleet_rank *rank;
    void *world;
};

/* Six layers, a step of eight sequences, one rank. gpt2's head is tied, that of others as asked. */
struct kc_job_spec fleet_small(enum kc_family family, uint32_t tied);
/* The same over a pipeline and a data axis, in so many micro-batches a rank. */
struct kc_job_spec fleet_cut(struct kc_job_spec s, enum kc_pipeline order, uint32_t stages, uint32_t chunks, uint32_t data,
                             uint32_t micros);
/* The plans of `spec` alone; 0, or what strategy, schedule or the proof says. */
int fleet_plan(struct fleet *r, const struct kc_job_spec *spec, struct kc_error *e);
/* And ranks that can run. Fails the test on error. */
void fleet_make(struct fleet *r, const struct kc_job_spec *spec);
void fleet_free(struct fleet *r);

struct fleet_step {
    double loss, norm, tokens;
};
/* One optimizer step, the same on all ranks; fails the test where a rank fails or ranks differ. */
struct fleet_step fleet_train(struct fleet *r, uint64_t step);
/* The tallies of the last step, the same on all ranks; *count of them. */
const double *fleet_tallies(const struct fleet *r, uint64_t *count);
/* The mean loss of one evaluation of a micro-batch. */
double fleet_evaluate(struct fleet *r);
/* The parameters in whole tensors, in the order of the model, put together from all ranks; those that hold the same must have the same bits. Returns how many, the caller frees *out. */
size_t fleet_parameters(struct fleet *r, float **out);

#endif
