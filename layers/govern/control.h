/* control.h - what the agreed word of a step asks for. Pure: all ranks see the same vector, so all decide the same. */
#ifndef KC_GOVERN_CONTROL_H
#define KC_GOVERN_CONTROL_H

#include <stdbool.h>
#include <stdint.h>

/* What a rank puts into AGREE, and what it reads out of it. */
struct kc_wish {
    bool pause, stop;
    uint32_t checkpoints; /* requests counted so far */
};

/* Read the agreed vector (KC_AGREES doubles). A stop is a stop vote of any rank, or the control word's. */
struct kc_wish kc_wish_read(const double *agreed);

/* What to do at the end of step `step` of `steps`, in this order: leave, save, hold, train. */
struct kc_orders {
    bool save;   /* write a snapshot now */
    bool answer; /* it is (also) for a checkpoint request */
    bool hold;   /* stay at this step until the wish changes */
    bool leave;  /* end: stopped, or all steps done */
};
struct kc_orders_input {
    struct kc_wish wish;
    uint64_t step, steps;     /* finished, wanted */
    uint64_t every;           /* snapshot.every */
    uint32_t answered;        /* checkpoint requests answered */
    bool trained;             /* a step was trained since the last look (false: held, or before the first step) */
    bool saved;               /* a good snapshot of exactly this step exists */
};
struct kc_orders kc_orders_decide(const struct kc_orders_input *in);

#endif
