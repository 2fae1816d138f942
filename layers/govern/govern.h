/* govern.h - runs a job on one rank: names the programs that schedule runs, publishes what they gave, acts on what all
 * ranks agreed, and leaves with a reason. Holds no tensor and no device; computes nothing. */
#ifndef KC_GOVERN_H
#define KC_GOVERN_H

#include "base/error.h"
#include "contracts/job_spec.h"
#include "govern/startup.h"
#include "shm/names.h"

#include <signal.h>
#include <stdbool.h>

struct kc_executor;
struct kc_probe;
struct kc_state;

struct kc_govern_config {
    const struct kc_job_spec *spec;
    const struct kc_plans *plans;
    const char *variant;        /* of the kernels */
    const char *directory;      /* of the job; snapshots are shown relative to it */
    uint32_t rank, incarnation;
    uint64_t parameters;        /* elements of the model */
    uint64_t samples;           /* whole training samples: an epoch */
    uint64_t validation_samples;
    /* How many targets of the training positions [position, position + rows) are unmasked: a function of the data alone, so
     * all ranks get the same number. -errno, e says which file. */
    int (*count_tokens)(void *data, uint64_t position, uint64_t rows, uint64_t *counted, struct kc_error *e);
    void *data;
    struct kc_digest graph;
    struct kc_state *state;
    struct kc_executor *executor;
    const struct kc_comm_if *comm;    /* the interfaces that schedule was given: their wiring is checked first */
    const struct kc_state_if *state_if;
    const struct kc_op_table *ops;
    struct kc_probe *probe;
    void (*say)(const char *line);    /* a line for the rank's log: what a person reads first when something went wrong */
    const volatile sig_atomic_t *told_to_stop; /* becomes non-zero when this process is asked to end */
};

/* How the run ended. */
struct kc_outcome {
    enum kc_reason reason; /* FINISHED, STOPPED, or what failed */
    int32_t peer;          /* the rank it left because of; -1 */
    uint64_t step;
    uint64_t begun;        /* of a replay: steps finished in the state that it began from */
    bool snapshot_lost;    /* the last snapshot that was tried failed (F35) */
    char root[33];         /* state_root at the end; "" unknown */
};

/* From restored or fresh state to the last step, a stop, or a failure. 0 for FINISHED and STOPPED; else -errno with e, and
 * out->reason says which fault it was. */
int kc_govern_run(const struct kc_govern_config *config, struct kc_outcome *out, struct kc_error *e);

/* Steps of a job once more, apart from it (kc snap prove, kc trace). */
struct kc_replay {
    uint64_t version; /* the snapshot to begin from; 0: the beginning */
    uint64_t until;   /* the last step */
    uint64_t position;/* the sample that it goes on at, where the job's run left some out behind that state; 0: the state's own */
    void (*step)(void *self, uint64_t step, double loss); /* after each */
    void *self;
};
/* The same programs on all ranks, nothing is published or saved. out: step, begun and root. -ENOTSUP this machine can't repeat the
 * bits of what wrote the snapshot, e says why; -EINTR told to stop; else as kc_govern_run(). */
int kc_govern_replay(const struct kc_govern_config *config, const struct kc_replay *replay, struct kc_outcome *out,
                     struct kc_error *e);

/* The reason that stands for an error of a program run. */
enum kc_reason kc_govern_reason(int code);

#endif
