/* life.c - the table. */
#include "life.h"

#include <stddef.h>

#define NAME_ROW(id, name, help) name,
const char *const kc_life_event_name[KC_LIFE_EVENTS] = {KC_LIFE_EVENT_TABLE(NAME_ROW)};
const char *const kc_life_action_name[KC_LIFE_ACTIONS] = {KC_LIFE_ACTION_TABLE(NAME_ROW)};

#define Q KC_JOB_QUEUED
#define S KC_JOB_STARTING
#define R KC_JOB_RUNNING
#define P KC_JOB_PAUSED
#define T KC_JOB_STOPPING
#define A KC_JOB_RESTARTING
#define F KC_JOB_FINISHED
#define O KC_JOB_STOPPED
#define X KC_JOB_FAILED
#define I KC_JOB_INTERRUPTED
#define DEPENDS KC_JOB_STATES /* DECIDE, CONCLUDE and RECOVER choose */

#define NOT_ENDED "has not ended; stop it first (kc stop)"
#define TOLD_HELD "is held before its first step"
/* What happens to a job whatever it was doing when its machinery went away. */
#define LOST_ROWS                                                                                                      \
    [KC_LIFE_KEEPER_LOST] = {KC_DO_RECOVER, DEPENDS, NULL}, [KC_LIFE_REBOOTED] = {KC_DO_INTERRUPT, I, NULL}
/* A job that has ended: the same answers for all four, except to resume. */
#define ENDED_ROWS(state)                                                                                              \
    [KC_LIFE_PAUSE] = {KC_DO_REFUSE, state, "has ended"},                                                              \
    [KC_LIFE_CHECKPOINT] = {KC_DO_REFUSE, state, "has ended; nothing of it is in memory"},                             \
    [KC_LIFE_STOP] = {KC_DO_ALREADY, state, "has ended already"},                                                      \
    [KC_LIFE_REMOVE] = {KC_DO_DELETE, state, NULL}, [KC_LIFE_KEEPER_LOST] = {KC_DO_NOTHING, state, NULL},              \
    [KC_LIFE_REBOOTED] = {KC_DO_NOTHING, state, NULL}

/* KC_JOB_UNKNOWN has no row: no job is ever in it. */
static const struct kc_life_cell table[KC_JOB_STATES][KC_LIFE_EVENTS] = {
    [Q] = {
        [KC_LIFE_LEASED] = {KC_DO_LAUNCH, S, NULL},
        [KC_LIFE_PAUSE] = {KC_DO_MARK_HOLD, Q, "is queued; it will hold before its first step"},
        [KC_LIFE_RESUME] = {KC_DO_CLEAR_HOLD, Q, "is queued already; it starts when its devices are free"},
        [KC_LIFE_CHECKPOINT] = {KC_DO_REFUSE, Q, "is queued: nothing of it is in memory that could be saved"},
        [KC_LIFE_STOP] = {KC_DO_END_QUEUED, O, NULL},
        [KC_LIFE_REMOVE] = {KC_DO_REFUSE, Q, NOT_ENDED},
        LOST_ROWS,
    },
    [S] = {
        [KC_LIFE_READY] = {KC_DO_RUN, R, NULL},
        [KC_LIFE_HELD] = {KC_DO_NOTE_HELD, P, NULL},
        [KC_LIFE_PAUSE] = {KC_DO_HOLD, S, TOLD_HELD},
        [KC_LIFE_RESUME] = {KC_DO_RELEASE, S, "is starting already"},
        [KC_LIFE_CHECKPOINT] = {KC_DO_SAVE, S, NULL},
        [KC_LIFE_STOP] = {KC_DO_AGREE_STOP, T, NULL},
        [KC_LIFE_REMOVE] = {KC_DO_REFUSE, S, NOT_ENDED},
        [KC_LIFE_RANK_LOST] = {KC_DO_END_GROUP, A, NULL},
        [KC_LIFE_RANK_FATAL] = {KC_DO_END_GROUP, T, NULL},
        [KC_LIFE_ALL_LEFT] = {KC_DO_KEEP, T, NULL},
        [KC_LIFE_KEPT] = {KC_DO_CONCLUDE, DEPENDS, NULL},
        LOST_ROWS,
    },
    [R] = {
        [KC_LIFE_READY] = {KC_DO_NOTHING, R, NULL},
        [KC_LIFE_HELD] = {KC_DO_NOTE_HELD, P, NULL},
        [KC_LIFE_PAUSE] = {KC_DO_HOLD, R, NULL},
        [KC_LIFE_RESUME] = {KC_DO_RELEASE, R, "is running already"},
        [KC_LIFE_CHECKPOINT] = {KC_DO_SAVE, R, NULL},
        [KC_LIFE_STOP] = {KC_DO_AGREE_STOP, T, NULL},
        [KC_LIFE_REMOVE] = {KC_DO_REFUSE, R, NOT_ENDED},
        [KC_LIFE_RANK_LOST] = {KC_DO_END_GROUP, A, NULL},
        [KC_LIFE_RANK_FATAL] = {KC_DO_END_GROUP, T, NULL},
        [KC_LIFE_ALL_LEFT] = {KC_DO_KEEP, T, NULL},
        [KC_LIFE_KEPT] = {KC_DO_CONCLUDE, DEPENDS, NULL},
        LOST_ROWS,
    },
    [P] = {
        [KC_LIFE_READY] = {KC_DO_NOTHING, P, NULL},
        [KC_LIFE_HELD] = {KC_DO_NOTHING, P, NULL},
        [KC_LIFE_PAUSE] = {KC_DO_ALREADY, P, "is paused already"},
        [KC_LIFE_RESUME] = {KC_DO_RELEASE, R, NULL},
        [KC_LIFE_CHECKPOINT] = {KC_DO_SAVE, P, NULL},
        [KC_LIFE_STOP] = {KC_DO_AGREE_STOP, T, NULL},
        [KC_LIFE_REMOVE] = {KC_DO_REFUSE, P, NOT_ENDED},
        [KC_LIFE_RANK_LOST] = {KC_DO_END_GROUP, A, NULL},
        [KC_LIFE_RANK_FATAL] = {KC_DO_END_GROUP, T, NULL},
        [KC_LIFE_ALL_LEFT] = {KC_DO_KEEP, T, NULL},
        [KC_LIFE_KEPT] = {KC_DO_CONCLUDE, DEPENDS, NULL},
        LOST_ROWS,
    },
    [T] = {
        [KC_LIFE_READY] = {KC_DO_NOTHING, T, NULL},
        [KC_LIFE_HELD] = {KC_DO_NOTHING, T, NULL},
        [KC_LIFE_PAUSE] = {KC_DO_REFUSE, T, "is stopping"},
        [KC_LIFE_RESUME] = {KC_DO_REFUSE, T, "is stopping; resume it when it has stopped"},
        [KC_LIFE_CHECKPOINT] = {KC_DO_SAVE, T, NULL},
        [KC_LIFE_STOP] = {KC_DO_JOIN_STOP, T, NULL},
        [KC_LIFE_REMOVE] = {KC_DO_REFUSE, T, NOT_ENDED},
        [KC_LIFE_RANK_LOST] = {KC_DO_END_GROUP, T, NULL},
        [KC_LIFE_RANK_FATAL] = {KC_DO_END_GROUP, T, NULL},
        [KC_LIFE_ALL_LEFT] = {KC_DO_KEEP, T, NULL},
        [KC_LIFE_GROUP_GONE] = {KC_DO_KEEP, T, NULL},
        [KC_LIFE_KEPT] = {KC_DO_CONCLUDE, DEPENDS, NULL},
        LOST_ROWS,
    },
    [A] = {
        [KC_LIFE_READY] = {KC_DO_NOTHING, A, NULL},
        [KC_LIFE_HELD] = {KC_DO_NOTHING, A, NULL},
        [KC_LIFE_PAUSE] = {KC_DO_HOLD, A, TOLD_HELD},
        [KC_LIFE_RESUME] = {KC_DO_RELEASE, A, "is restarting already"},
        [KC_LIFE_CHECKPOINT] = {KC_DO_SAVE, A, NULL},
        [KC_LIFE_STOP] = {KC_DO_JOIN_STOP, T, NULL}, /* the group is being ended anyway */
        [KC_LIFE_REMOVE] = {KC_DO_REFUSE, A, NOT_ENDED},
        [KC_LIFE_RANK_LOST] = {KC_DO_FOLD, A, NULL},
        [KC_LIFE_RANK_FATAL] = {KC_DO_FOLD, T, NULL},
        [KC_LIFE_GROUP_GONE] = {KC_DO_KEEP, A, NULL},
        [KC_LIFE_KEPT] = {KC_DO_DECIDE, DEPENDS, NULL},
        LOST_ROWS,
    },
    [F] = {[KC_LIFE_RESUME] = {KC_DO_REFUSE, F, "has finished; start a new job with more steps"}, ENDED_ROWS(F)},
    [O] = {[KC_LIFE_RESUME] = {KC_DO_REQUEUE, Q, NULL}, ENDED_ROWS(O)},
    [X] = {[KC_LIFE_RESUME] = {KC_DO_REQUEUE, Q, NULL}, ENDED_ROWS(X)},
    [I] = {[KC_LIFE_RESUME] = {KC_DO_REQUEUE, Q, NULL}, ENDED_ROWS(I)},
};

const struct kc_life_cell *kc_life_cell(unsigned state, unsigned event)
{
    static const struct kc_life_cell bug = {KC_DO_BUG, KC_JOB_STATES, NULL};
    return state < KC_JOB_STATES && event < KC_LIFE_EVENTS ? &table[state][event] : &bug;
}

bool kc_grace_over(struct kc_grace *g, uint64_t passed, bool saving)
{
    if (saving && g->pardon > passed) {
        g->pardon -= passed;
        return false;
    }
    g->left -= passed < g->left ? passed : g->left;
    return g->left == 0;
}
