/* engine.h - the composition root: builds the layers of one rank in order, and hands each what it may use. Contains no
 * logic of its own: every decision is some layer's. */
#ifndef KC_ENGINE_H
#define KC_ENGINE_H

#include "base/error.h"
#include "contracts/job_spec.h"
#include "govern/govern.h"

#include <stdbool.h>

struct kc_engine;
struct kc_probe;

struct kc_engine_config {
    const struct kc_job_spec *spec; /* borrowed, must outlive the engine */
    uint32_t rank, incarnation;
    const char *leases;             /* of all ranks: kc_leases_format() */
    const char *allowed;            /* cpus that the process may run on beside its lease, for what works in the background;
                                       NULL, "": it stays where the rank is */
    const int *window_fds;          /* one a rank; ranks 1: NULL makes a private one */
    const int *copy_fds;            /* one a rank, which hold copies of the state as long as the keeper lives; NULL: none */
    const char *directory;          /* of the job, for snapshots and for showing paths; NULL: no storage */
    struct kc_probe *probe;
    bool load;                      /* open the training data */
    bool drills;                    /* do what the spec injects */
    uint64_t trace_step;            /* keep what memory holds in this step, from 1 (kc_engine_trace); 0: in none */
};

/* Resource view → graph → plans (proved) → memory check → transport and groups → state → kernels → executor. On failure
 * nothing is left; *reason says whose fault it was. */
int kc_engine_new(const struct kc_engine_config *config, struct kc_engine **out, enum kc_reason *reason,
                  struct kc_error *e);
void kc_engine_free(struct kc_engine *engine);

/* Hand the rank to governance and let it run to its end. */
int kc_engine_govern(struct kc_engine *engine, const volatile sig_atomic_t *told_to_stop, struct kc_outcome *out,
                     struct kc_error *e);

/* Let it run steps of a job again, and nothing else. */
int kc_engine_replay(struct kc_engine *engine, const volatile sig_atomic_t *told_to_stop, const struct kc_replay *replay,
                     struct kc_outcome *out, struct kc_error *e);
/* What was kept of trace_step, once a run or replay that began after `begun` steps has done it; lives as long as the engine.
 * -ENOENT it has not, -ENOMEM. */
struct kc_step_trace;
int kc_engine_trace(struct kc_engine *engine, uint64_t begun, const struct kc_step_trace **out, struct kc_error *e);

/* For tasks that only go forward: set values by the spec (model.init.from), then feed tokens. */
int kc_engine_init(struct kc_engine *engine, struct kc_error *e);
/* Run the model over tokens[0 … count), count ≤ context; logits: (vocab) after the last one, whatever type they had. */
int kc_engine_forward(struct kc_engine *engine, const int32_t *tokens, uint32_t count, float *logits,
                      struct kc_error *e);

#endif
