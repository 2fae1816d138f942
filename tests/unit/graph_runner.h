/* graph_runner.h - runs a model graph without any layer: memory per tensor, ops in the graph's order, one rank. For
 * the tests and the bench of jobs: what it computes depends on models and kernels alone. Also lanes with any number
 * of threads. */
#ifndef KC_TESTS_GRAPH_RUNNER_H
#define KC_TESTS_GRAPH_RUNNER_H

#include "jobs/jobs.h"

/* A lane that runs all tiles before enqueue returns; with several workers, on as many threads that race for tiles.
 * Last to first with `backwards` and one worker: the other extreme of "in any order". */
struct test_lane {
    struct kc_lane lane;
    int backwards;
    uint64_t enqueued;
};
void test_lane_init(struct test_lane *l, uint32_t workers);

/* Synthetic spec of a GPT-2; heads, batch etc. may be changed by the caller before the runner is made. */
struct kc_job_spec test_spec(uint32_t layers, uint32_t hidden, uint32_t heads, uint32_t context, uint32_t vocab,
                             uint32_t micro);

/* Make it one of that family: fewer key/value heads than heads, if they are more than one; a head of its own. */
void test_family(struct kc_job_spec *spec, enum kc_family family);

/* A spec with patterns of what is frozen, and of what has adapters, behind it. */
struct test_frozen {
    struct kc_job_spec spec;
    kc_text list[8], targets[8];
    uint32_t used;
    char text[512];
};
void test_freeze(struct test_frozen *s, const char *pattern);
void test_lora(struct test_frozen *s, const char *pattern, uint32_t rank, double alpha);

struct runner {
    const struct kc_job_spec *spec; /* borrowed */
    struct kc_arena arena;
    const struct kc_model_graph *graph;
    struct kc_op_table *table;
    struct test_lane lane;
    void **data;         /* a block per tensor; in-place outputs share their input's */
    float **master, **moment1, **moment2; /* per tensor; parameters only, masters of those in bf16 */
    int in_place;        /* honour in_place */
    void *scratch;
    size_t scratch_bytes;
    double *op_seconds, *op_flops; /* per opcode, summed */
};

/* Builds graph, op table and memory; parameters are zero until graph_runner_init_parameters() or the caller fills
 * them. Returns 0 or -errno. `in_place`: outputs take over the memory of inputs where the graph allows it and nobody
 * reads it later. */
int graph_runner_new(struct runner *r, const struct kc_job_spec *spec, const char *variant, uint32_t workers,
                     int in_place, kc_load_fn *load, void *load_self, struct kc_error *e);
void graph_runner_free(struct runner *r);
void graph_runner_init_parameters(struct runner *r, uint64_t seed);
/* A parameter gets these values, its master too where it has one. */
void graph_runner_set(struct runner *r, int32_t parameter, const float *values);
const struct kc_graph_tensor *graph_runner_tensor(const struct runner *r, int32_t index);
uint64_t graph_runner_elements(const struct runner *r, int32_t index);
/* Index of the tensor with that role and name; -1. */
int32_t graph_runner_find(const struct runner *r, enum kc_role role, const char *name);
/* The ops of a program; EVALUATE and FORWARD load their data too. accumulate: gradients and, in TRAIN, the result are
 * added to; else what first writes them overwrites. EVALUATE always adds to the result. */
enum runner_program { RUN_TRAIN, RUN_EVALUATE, RUN_FORWARD };
int graph_runner_run(struct runner *r, enum runner_program program, int accumulate, uint32_t micro,
                     const struct kc_step_values *step, struct kc_error *e);
int graph_runner_runs(const struct kc_model_graph *g, enum runner_program program, uint32_t op);
/* √Σ g² over all gradients, through the NORM op. */
double graph_runner_gradient_norm(struct runner *r);
/* AdamW on every parameter. */
int graph_runner_update(struct runner *r, const struct kc_step_values *step, struct kc_error *e);

#endif
