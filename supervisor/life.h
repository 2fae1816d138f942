/* life.h - the life cycle of a job: one table, state × event → action and next state. Pure data: the keeper looks up
 * what it must do for a living job, kcd for one that waits or has ended, and both do exactly what the cell says. An
 * empty cell is a bug and is logged with both names. */
#ifndef KC_SUPERVISOR_LIFE_H
#define KC_SUPERVISOR_LIFE_H

#include "base/clock.h"
#include "shm/names.h"

#include <stdbool.h>
#include <stdint.h>

/* id, name, what it says */
#define KC_LIFE_EVENT_TABLE(X)                                                                                         \
    X(LEASED, "leased", "the job's devices are leased and its keeper can start")                                       \
    X(READY, "ready", "every rank is set up and trains")                                                               \
    X(HELD, "held", "all ranks are held at the same step")                                                             \
    X(PAUSE, "pause", "asked to hold")                                                                                 \
    X(RESUME, "resume", "asked to go on")                                                                              \
    X(CHECKPOINT, "checkpoint", "asked for a snapshot")                                                                \
    X(STOP, "stop", "asked to save and end; a rank that agrees a stop of its own counts too")                          \
    X(REMOVE, "remove", "asked to forget the job and its files")                                                       \
    X(RANK_LOST, "rank-lost", "a rank died, left with an error, or aborted the group")                                 \
    X(RANK_FATAL, "rank-fatal", "the same, and policy will not start the job again")                                   \
    X(ALL_LEFT, "all-left", "every rank ended well")                                                                   \
    X(GROUP_GONE, "group-gone", "after a loss: nothing of this incarnation is left")                                   \
    X(KEPT, "kept", "the copy in memory is on disk, or was given up, or there is none")                                \
    X(KEEPER_LOST, "keeper-lost", "the keeper ended before its job did, and its ranks are gone")                       \
    X(REBOOTED, "rebooted", "the machine has booted since the job was last seen")
#define KC_LIFE_EVENT_ROW(id, name, help) KC_LIFE_##id,
enum kc_life_event { KC_LIFE_EVENT_TABLE(KC_LIFE_EVENT_ROW) KC_LIFE_EVENTS };

/* id, name, what is done */
#define KC_LIFE_ACTION_TABLE(X)                                                                                        \
    X(BUG, "bug", "this cannot happen: log both names, change nothing")                                                \
    X(NOTHING, "nothing", "nothing to do")                                                                             \
    X(ALREADY, "already", "answer ok with the note")                                                                   \
    X(REFUSE, "refuse", "answer no with the note")                                                                     \
    X(LAUNCH, "launch", "start the keeper")                                                                            \
    X(RUN, "run", "note that training began")                                                                          \
    X(MARK_HOLD, "mark-hold", "remember that it must hold before its first step; answer at once")                      \
    X(CLEAR_HOLD, "clear-hold", "forget that; answer at once")                                                         \
    X(HOLD, "hold", "raise the pause level; answer when held")                                                         \
    X(NOTE_HELD, "note-held", "answer who asked to pause; clocks stop")                                                \
    X(RELEASE, "release", "lower the pause level; answer when the ranks go on")                                        \
    X(SAVE, "save", "raise the checkpoint count; answer when the snapshot is committed")                               \
    X(JOIN_STOP, "join-stop", "answer when the job has ended")                                                         \
    X(AGREE_STOP, "agree-stop", "raise the stop level, TERM and CONT the ranks; answer when the job has ended")        \
    X(END_QUEUED, "end-queued", "leave the queue; nothing ever ran")                                                   \
    X(END_GROUP, "end-group", "tell the peers, TERM and CONT, after the grace KILL, until nothing is left")            \
    X(FOLD, "fold", "one more followed; the first failure stands")                                                     \
    X(KEEP, "keep", "write a copy in memory that the disk lacks to it, by a child; it is gone when we are")            \
    X(DECIDE, "decide", "name the first failure, ask the policy: start again or fail")                                 \
    X(CONCLUDE, "conclude", "write the result; the job has ended")                                                     \
    X(RECOVER, "recover", "a new keeper reads what the ranks left and decides")                                        \
    X(REQUEUE, "requeue", "queue it again, from its newest verified snapshot")                                         \
    X(DELETE, "delete", "remove its files; its id stays used")                                                         \
    X(INTERRUPT, "interrupt", "write that it was interrupted")
#define KC_LIFE_ACTION_ROW(id, name, help) KC_DO_##id,
enum kc_life_action { KC_LIFE_ACTION_TABLE(KC_LIFE_ACTION_ROW) KC_LIFE_ACTIONS };
extern const char *const kc_life_event_name[KC_LIFE_EVENTS], *const kc_life_action_name[KC_LIFE_ACTIONS];

/* next: the state after the action; KC_JOB_STATES where the action decides. */
struct kc_life_cell {
    enum kc_life_action action;
    enum kc_job_state next;
    const char *note; /* for a person, continues "job 'x' …"; NULL */
};

/* How long a snapshot may hold up the end of a group that was asked to stop. The largest one of this machine's memory
 * is through in that time even on a slow disk; beyond it the writer hangs, and would hold its devices for ever. */
#define KC_SNAPSHOT_PARDON (30 * 60 * KC_SECOND)
/* What is left of a group's time, in nanoseconds. */
struct kc_grace {
    uint64_t left, pardon; /* until KILL; while a snapshot is written */
};
/* `passed` more. True: it is over. Time in which `saving` is true counts against the pardon first. */
bool kc_grace_over(struct kc_grace *grace, uint64_t passed, bool saving);

/* Never NULL; out-of-range arguments are the BUG cell. */
const struct kc_life_cell *kc_life_cell(unsigned state, unsigned event);

#endif
