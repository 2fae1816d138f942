/* progress.h - how far training is: progress, learning rate (a function of the step alone), and the loss history. */
#ifndef KC_STATE_PROGRESS_H
#define KC_STATE_PROGRESS_H

#include "state.h"

/* When full, neighbours are averaged and the resolution halves: the whole run always fits. */
struct kc_history {
    uint64_t stride;      /* steps a point stands for; a power of two */
    uint32_t count;
    uint64_t first;       /* the step before the first point */
    uint64_t open_steps;  /* steps after the last point, not yet a whole one … */
    double open_sum;      /* … and the sum of their losses */
    double point[KC_HISTORY_POINTS]; /* mean loss of the steps (first + i·stride, first + (i+1)·stride] */
};

void kc_history_clear(struct kc_history *h, uint64_t first);
void kc_history_add(struct kc_history *h, double loss);

#endif
