/* scratch.h - steps of a job once more, apart from it: in a folder below $KC_HOME that is gone afterwards, by kc-rank --task
 * replay, which takes only time that nobody else wants. Nothing of the job is written; its snapshots are linked, so that a
 * job that goes on and removes them takes nothing away. */
#ifndef KC_CONSOLE_SCRATCH_H
#define KC_CONSOLE_SCRATCH_H

#include "model.h"
#include "session.h"
#include "snapshots.h"

#include "contracts/job_spec.h"

#include <limits.h>

struct scratch {
    struct session *s;
    char folder[PATH_MAX];
    int held;               /* its lock, which a folder whose kc is dead does not have */
    char id[JOB_ID_ROOM];
    struct snapshots list;  /* of the job, as they were when it was opened */
};

/* What is run, and what comes of it. */
struct scratch_run {
    uint64_t version; /* to begin from; 0 the beginning */
    uint64_t until;   /* the last step */
    uint64_t position;/* scratch_position() */
    uint64_t trace;   /* the step that is kept (scratch_trace); 0 none */
    bool (*step)(void *self, uint64_t step, double loss); /* after each; loss NaN: not finite; false: that is enough */
    void *self;
    bool whole;       /* out: it came to `until` */
    uint64_t begun;   /* out, whole: steps finished in the state that it began from */
    char root[33];    /* out, whole: state_root at the end */
};

/* All return an exit code and have told why if it is not 0. */

/* Make the folder: the job's spec, table of costs and whole snapshots. What the ranks of another copy would need is compared with
 * free memory first. On failure nothing is left, and what a kc left that was
 * killed goes as well. */
int scratch_open(struct session *s, const struct job *j, struct scratch *out);
/* Can the spec of the job repeat the bits of what wrote this snapshot: is it the same layout? */
int scratch_same_layout(const struct scratch *sc, const struct kc_snapshot_info *of);
/* Samples that the job left out between two snapshots because a step was not finite (policy rollback): where it then went on
 * from `from` (NULL: the beginning), or 0 where it left none out. `to` NULL: not known, 0. */
int scratch_position(const struct scratch *sc, const struct kc_snapshot_info *from, const struct kc_snapshot_info *to, uint64_t *out);
int scratch_run(struct scratch *sc, struct scratch_run *run);
/* Where a run with `trace` left the trace. */
void scratch_trace(const struct scratch *sc, char *out, size_t room);
void scratch_close(struct scratch *sc); /* zeroed is fine */

#endif
