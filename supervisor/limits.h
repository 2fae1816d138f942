/* limits.h - how long a rank may stand still before the job is said to hang, and whether it does. Pure: fed with what a
 * look at the board shows, it keeps a clock of its own that stands where the caller says so (a pause), learns for each
 * phase the slowest that was seen, and names the rank that keeps the others waiting, if there is one.
 *
 * A rank moves when its step, phase, operations or traces do. One that waits for a peer does not stand of itself: it hangs
 * only when all do, or by the fault of one that waits for none. So a rank that saves to a slow disk hangs by the limit
 * of its snapshot, however long its peers have waited for it. */
#ifndef KC_SUPERVISOR_LIMITS_H
#define KC_SUPERVISOR_LIMITS_H

#include "contracts/types.h"
#include "shm/reader.h"

#include <stdbool.h>
#include <stdint.h>

#define KC_LIMIT_TIMES 5        /* the slowest seen, so often, is the limit */
#define KC_LIMIT_WARM_STEPS 5   /* of a job, before which nothing of its steps counts as usual */
#define KC_LIMIT_WARM_STAYS 3   /* the same for phases that come rarely */
#define KC_LIMIT_RARE 10        /* floors of theirs: what they do depends on a disk, or on much more than a step */
#define KC_LIMIT_LOOK (2 * KC_SECOND) /* as much as one look passes at most: whoever did not look in between, or the
                                       * machine, stood still itself */

/* The longest that a rank stood in a phase (rare ones: the longest stay in it), and how often that was measured. */
struct kc_limit_row {
    uint64_t slowest;
    uint32_t seen;
};
struct kc_limit_rank {
    struct kc_pulse pulse;      /* of the last look */
    uint64_t moved, entered;    /* by the clock: it was last seen to move; it came into its phase */
    bool known;
};
/* It stands still; nobody asks of what. */
struct kc_still {
    int rank;                   /* that stands longest of those that wait for no peer; -1: all wait for each other */
    enum kc_phase phase;        /* it stands in */
    uint64_t step;
    uint64_t seconds_ns, limit; /* so long already; and what is allowed in that phase */
};
struct kc_limits {
    uint64_t floor, ceiling;    /* ns */
    uint64_t clock;             /* ns that counted */
    uint64_t steps;             /* that were seen to be done, of all incarnations */
    struct kc_limit_row row[KC_PHASES];
    struct kc_limit_rank rank[KC_RANKS_MAX];
    uint64_t mutual;            /* ns for which, by the last look, all wait for each other and nobody has moved; 0 */
    bool hangs;                 /* by the last look */
    struct kc_still still;      /* then: who; the longest standing rank else, rank -1 and seconds_ns 0 where all move */
};

/* Ranks begin anew. What was learned stays, zeros are nothing learned. */
void kc_limits_begin(struct kc_limits *l, uint64_t floor, uint64_t ceiling);
/* How long a rank may stand still in a phase, ns; 0: as long as it likes. */
uint64_t kc_limits_of(const struct kc_limits *l, enum kc_phase phase);
/* A look at all `count` ranks, `passed` ns after the one before; 0: the clocks stand. True: `hangs` has changed. */
bool kc_limits_look(struct kc_limits *l, const struct kc_pulse *pulses, uint32_t count, uint64_t passed);

#endif
