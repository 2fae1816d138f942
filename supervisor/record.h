/* record.h - jobs/<id>/state.json: what must be known about a job after any crash. Replaced whole and durably. One
 * writer at a time: the keeper while it lives, kcd before and after. */
#ifndef KC_SUPERVISOR_RECORD_H
#define KC_SUPERVISOR_RECORD_H

#include "failure.h"
#include "process.h"

#include "base/arena.h"
#include "base/error.h"
#include "base/home.h"
#include "base/json.h"
#include "contracts/job_spec.h"
#include "contracts/types.h"

#include <stdbool.h>
#include <stdint.h>

#define KC_ID_ROOM (KC_ID_MAX + 1)
#define KC_UNSAVED_ROOM (KC_ERROR_TEXT + 400) /* why a record can't be written, with what it would say */

/* A fault with its reason, as often as ranks were started again after it. */
#define KC_CAUSES 16
struct kc_cause {
    enum kc_fault fault;
    enum kc_reason reason;
    uint32_t count;
};

struct kc_record {
    char id[KC_ID_ROOM], name[KC_NAME_MAX + 1];
    char host[65], instance[KC_INSTANCE_ROOM], boot[40];
    char directory[PATH_MAX];    /* of the job; not in the file */
    enum kc_job_state state;
    uint64_t created, queued, since; /* kc_wall() */
    struct kc_process keeper;    /* pid 0: none */
    char token[KC_TOKEN_ROOM];   /* of the ranks' environment */
    uint32_t ranks;              /* of the job */
    uint32_t asked_ranks;        /* of the spec as it was, if it goes on with fewer; 0 */
    char device[160];            /* the faulty device that it lost last, and what is wrong with it; "" none */
    char waits[KC_ERROR_TEXT];   /* queued: why its devices are not to be had now; "" they are, or nobody looked yet */
    struct kc_process rank[KC_RANKS_MAX];
    uint32_t incarnation;        /* ranks started so often, from 1 */
    uint32_t restarts;           /* by policy, in all */
    uint32_t fruitless;          /* restarts since the newest snapshot moved on */
    struct kc_cause cause[KC_CAUSES]; /* and of those, how many of each cause; a count of 0 is free */
    uint32_t same;               /* times in a row that the same step failed with the same reason */
    bool unbegun;                /* kcd has started a keeper that has not started its ranks yet */
    pid_t lost;                  /* keeper that was lost last; 0: none. For people: it may be anybody's pid by now */
    uint64_t step, steps;        /* done; wanted */
    uint64_t snapshot_step;      /* of the newest snapshot known; 0 */
    double seconds;              /* trained, pauses left out */
    uint64_t restart_wall;       /* kc_wall() when its ranks are started again; 0: nothing waits for that */
    char restart_why[56];        /* if so: "third crash without progress" */
    bool hold, stop;             /* wanted: pause before the next step; end */
    int exit_code;               /* once ended */
    struct kc_verdict failure;   /* the newest fault: first failure of its incarnation */
};

/* Read <directory>/state.json. -ENOENT none, -EINVAL not a record, with one line. */
int kc_record_read(const char *directory, struct kc_record *out, struct kc_error *e);
/* Replace it. -errno with one line. */
int kc_record_write(const struct kc_record *record, struct kc_error *e);
/* Bytes of an arena that holds any spec; what is not touched costs nothing. */
#define KC_SPEC_ARENA ((size_t)4 << 20)
/* Load <directory>/spec.json into a new arena, owned by the caller on success. -errno with one line. */
int kc_record_spec(const char *directory, struct kc_arena *arena, const struct kc_job_spec **out, struct kc_error *e);
/* {rank, step, phase, reason, text, followers, oom}, rank null if no rank is to blame, oom null if nobody was killed; or null
 * (new reference). */
json_t *kc_record_failure(const struct kc_verdict *verdict);
/* Of the incarnation that ended the job, if it failed: faults that it survived are not what it ended of. */
json_t *kc_record_first_failure(const struct kc_record *record);
/* Ranks are started again after it: the how manieth time without progress, from 1. */
uint32_t kc_record_cause(struct kc_record *record, enum kc_fault fault, enum kc_reason reason);
/* A newer snapshot was committed: earlier restarts are paid for. */
void kc_record_progress(struct kc_record *record);
/* Has the job ended (its state's row says so)? */
bool kc_record_ended(const struct kc_record *record);

#endif
