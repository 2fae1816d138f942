/* run_impl.h - the loop of a rank, shared by its files: run.c has the loop, save.c what a
 * snapshot asks of it, restore.c from which one it goes on, nonfinite.c what becomes of a step that is not finite. */
#ifndef KC_GOVERN_RUN_IMPL_H
#define KC_GOVERN_RUN_IMPL_H

#include "govern/control.h"
#include "govern/govern.h"
#include "schedule/schedule.h"
#include "shm/probe.h"
#include "state/state.h"

/* The snapshot under way, and the last that came to an end. */
struct saving {
    enum kc_saving stage;
    uint64_t step;              /* of the state that is saved */
    uint64_t start;             /* kc_now() */
    uint32_t serves;            /* checkpoint requests that it answers */
    struct kc_snapshot_info good; /* the last good one of this incarnation, or what was restored */
    bool has_good;
    bool lost;                  /* the last that was tried failed */
    bool tried;                 /* … and it was of this step, since the wish was agreed */
};

struct loop {
    const struct kc_govern_config *c;
    struct kc_error *e;
    struct kc_run run;          /* of the last program */
    struct kc_wish wish;        /* as last agreed */
    bool ready;                 /* as last agreed: no rank is at work in the background for a snapshot */
    bool trained;
    struct saving saving;
    struct kc_ack ack;          /* leader's answer on the board */
    uint32_t answered;          /* checkpoint requests; what an earlier incarnation was asked for is answered at once by
                                   the step that was restored, which is saved already */
    uint64_t process_seen;
    uint64_t alike;             /* the last step after which replicas were compared and were the same; or that of the beginning */
    uint32_t hunts;             /* steps that were run once more because they were not finite */
    int pause_token;            /* of the wait that is shown while held */
    int32_t peer;
};

uint64_t loop_step(const struct loop *l); /* finished */
int loop_program(struct loop *l, enum kc_program_id id);
/* A line for the rank's log. */
void loop_say(const struct loop *l, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* ---- save.c ---- */
/* Begin a snapshot of the state as it is; run the next program of the one under way, which waits for what is still at work.
 * A snapshot that fails is told and counted; whether training goes on is the policy's to say. */
int save_begin(struct loop *l);
int save_advance(struct loop *l);
/* Leave out the one that is due. */
void save_skip(struct loop *l);
/* A good one of exactly this step exists. */
bool save_is_there(const struct loop *l);
/* The checkpoint that was asked for is answered by the last good one. */
void save_answer(struct loop *l);

/* ---- restore.c ---- */
/* The newest snapshot that can be read to its end; `finite`: that a step which was not finite may go back to. One that turns
 * out damaged is marked by state, the same on all ranks, so that the next choice is the one before it. -ENOENT there is none;
 * when none is left, that is another error: no reason for a fresh start. */
int restore_newest(struct loop *l, bool finite, struct kc_snapshot_info *found);
/* Go back to such a one, and go on behind the samples of the step that was just run. 1, or -errno. */
int restore_go_back(struct loop *l, uint32_t rollbacks);

/* ---- nonfinite.c ---- */
/* A step was not finite, and its update was left out: find out why, tell it, and do what policy says. 0: it counts as trained
 * all the same; 1: the run went back, and goes on behind the samples of that step; -EDOM: policy says no more; -ESHUTDOWN: it
 * does, and another rank is why. */
int nonfinite_by_policy(struct loop *l);

#endif
