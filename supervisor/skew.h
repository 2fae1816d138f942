/* skew.h - which rank is late for what all do together, and is that its own doing. Pure: from samples to figures, without a
 * clock, a board or a file.
 *
 * After a collective all ranks show the same time, so neither its duration nor that of a step names anybody (F25). Two things
 * do. When a rank arrives at a collective, behind the middle of those that take part: that is its lateness, but a rank that
 * waits for a slow one in one group is late in the next without being slow. And what a rank needs for a step without standing
 * still for others, its busy time: that is compared between ranks that do the same work, those of one pipeline stage. A rank is
 * a straggler where its busy time says so and it is later than others as well. What a rank stays longer inside a collective
 * than the others once the last has come (it may have been stopped there) is its own time, too.
 *
 * The score is the busy time of the middle rank (of an even number the faster of the two) over a rank's own, medians both, at
 * most 1. So none is named when all are equally slow, and not the many when one alone is fast. A rank that is alone in its
 * stage has nobody to be compared with: its slowing down against its own best is, with that of the other stages; and nobody
 * needs many times what the others do by plan, since stages are cut to be alike. */
#ifndef KC_SUPERVISOR_SKEW_H
#define KC_SUPERVISOR_SKEW_H

#include "contracts/types.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KC_SKEW_WINDOW 16   /* samples that a median is taken of */
#define KC_SKEW_LEAST 8     /* samples of a rank before anything is said */
#define KC_SKEW_HOLD 16     /* samples before an alarm begins or ends: on a busy machine a median wavers */
#define KC_SKEW_PLAIN 2     /* before it begins where the score is below half of the threshold */
#define KC_SKEW_UNEVEN 4    /* so many times what any other needs no plan gives to a stage */
#define KC_SKEW_WARM 3      /* samples at the beginning that say nothing */
#define KC_SKEW_FLOOR 0.002 /* seconds of a step that are worth an alarm */
#define KC_SKEW_BACK 0.05   /* so much above the threshold an alarm is over */

/* Parts of a busy time: where a rank needs more than others. */
#define KC_SKEW_PART_TABLE(X)                                                                                          \
    X(DATA, "data") X(FORWARD, "forward") X(BACKWARD, "backward") X(OPTIMIZER, "the optimizer") X(STATE, "state")      \
    X(COMM, "communication") X(REST, "between the programs")
#define KC_SKEW_PART_ROW(id, name) KC_SKEW_##id,
enum kc_skew_part { KC_SKEW_PART_TABLE(KC_SKEW_PART_ROW) KC_SKEW_PARTS };
extern const char *const kc_skew_part_name[KC_SKEW_PARTS];

/* Rings of samples; `count` of all that came. */
struct kc_skew_samples {
    double value[KC_SKEW_WINDOW];
    uint64_t count;
};
struct kc_skew_rank {
    uint64_t step, operations;     /* at the last sample */
    double inside;                 /* seconds that it stayed longer than others in the operations compared since then */
    uint32_t stays;                /* these operations */
    struct kc_skew_samples busy, part[KC_SKEW_PARTS], late;
    double best;                   /* least median of a whole window so far; 0: none yet */
    uint64_t compared;             /* operations */
    uint64_t turned;               /* samples there were when it became what `alarm` does not say; 0: it did not */
    bool alarm;
};
struct kc_skew {
    uint32_t ranks, stages;
    double threshold;              /* 0: no alarm */
    struct kc_skew_rank rank[KC_RANKS_MAX];
};

/* When a rank came to an operation of a group. */
struct kc_skew_arrival {
    uint32_t group, rank;
    uint32_t members;              /* of the group */
    uint64_t sequence;
    uint64_t at, done;             /* any clock, in nanoseconds; done: when the operation was over for it */
};

struct kc_skew_pace {
    double busy, late;             /* medians in seconds; NaN: not known yet */
    double reference;              /* what its score compares its busy time with; NaN */
    double score;                  /* NaN: not known yet */
    uint64_t compared;
    bool alarm, changed;           /* changed: by this judgement */
    enum kc_skew_part most;        /* where most of what it needs more is; meaningful while score < 1 */
};

/* Begin a new incarnation. The ranks of a stage are neighbours, as the mesh has it (pipeline is its slowest axis). */
void kc_skew_begin(struct kc_skew *s, uint32_t ranks, uint32_t stages, double threshold);
/* The busy time of a rank's last finished step, by parts; of communication what was none of waiting. `operations`: that it has
 * finished in all. A step that was given already is ignored. After the arrivals that have come until then. */
void kc_skew_step(struct kc_skew *s, uint32_t rank, uint64_t step, uint64_t operations, const double part[KC_SKEW_PARTS]);
/* Arrivals that have come since the last time, in any order; sorts them. An operation counts if all its members are there. */
void kc_skew_arrivals(struct kc_skew *s, struct kc_skew_arrival *all, size_t count);
/* What is to be said of every rank now. */
void kc_skew_judge(struct kc_skew *s, struct kc_skew_pace out[KC_RANKS_MAX]);

#endif
