/* control.h - what the agreed word of a step asks for. Pure: all ranks see the same vector, so all decide the same. */
#ifndef KC_GOVERN_CONTROL_H
#define KC_GOVERN_CONTROL_H

#include "contracts/types.h"
#include "shm/names.h"

#include <stdbool.h>
#include <stdint.h>

/* What a rank puts into AGREE, and what it reads out of it. */
struct kc_wish {
    bool pause, stop;
    uint32_t checkpoints; /* requests counted so far */
};

/* Read the agreed vector (KC_AGREES doubles). A stop is a stop vote of any rank, or the control word's. */
struct kc_wish kc_wish_read(const double *agreed);

/* What to do next, between two steps. A snapshot under way is led through its stages by the same vector, so that all ranks
 * run the same program at the same step. */
#define KC_NEXT_TABLE(X)                                                                                               \
    X(NEXT_TRAIN, "train", "")                                                                                         \
    X(NEXT_BEGIN, "begin", "")     /* a snapshot of this step */                                                       \
    X(NEXT_ADVANCE, "advance", "") /* the next program of the snapshot under way; it waits for what is still at work */\
    X(NEXT_SKIP, "skip", "")       /* leave out the snapshot that is due */                                            \
    X(NEXT_ANSWER, "answer", "")   /* the checkpoint that was asked for is there already */                            \
    X(NEXT_HOLD, "hold", "")       /* stay at this step until the wish changes */                                      \
    X(NEXT_LEAVE, "leave", "")     /* stopped, or all steps are done */
enum kc_next { KC_NEXT_TABLE(KC_ENUM_ROW) KC_NEXTS };
extern const char *const kc_next_name[KC_NEXTS];
struct kc_next_input {
    struct kc_wish wish;
    uint64_t step, steps;     /* finished, wanted */
    uint64_t every;           /* snapshot.every */
    uint32_t answered;        /* checkpoint requests answered */
    bool wait;                /* snapshot.busy: the one that is due waits for the one under way */
    bool trained;             /* the step was trained, and it is not decided yet whether a snapshot is due */
    bool saved;               /* a good snapshot of exactly this step exists */
    bool tried;               /* one of exactly this step has failed since the wish was agreed */
    enum kc_saving saving;    /* stage of the snapshot under way … */
    uint64_t saving_step;     /* … and its step */
    bool ready;               /* nothing is at work for that stage any more, on any rank */
};
enum kc_next kc_next_decide(const struct kc_next_input *in);

#endif
