/* condition.h - what `kc wait --for` waits for: figures of a job compared with values, joined by `and`. A figure
 * that is unknown makes its comparison false, never an error: it may become known. */
#ifndef KC_CONSOLE_CONDITION_H
#define KC_CONSOLE_CONDITION_H

#include "model.h"

#define CONDITION_TERMS 8

/* One row a figure: name, and where it is read. */
enum figure {
    FIGURE_STATE,
    FIGURE_STEP,
    FIGURE_LOSS,
    FIGURE_VALIDATION_LOSS,
    FIGURE_TOKENS_PER_SECOND,
    FIGURE_GRAD_NORM,
    FIGURE_LR,
    FIGURE_RESTARTS,
    FIGURE_EXPERT_IMBALANCE,
    FIGURES
};
enum compare { COMPARE_EQ, COMPARE_NE, COMPARE_LT, COMPARE_LE, COMPARE_GT, COMPARE_GE, COMPARES };

struct condition {
    int count;
    struct {
        enum figure figure;
        enum compare how;
        double value; /* FIGURE_STATE: enum kc_job_state */
    } term[CONDITION_TERMS];
};

/* -EINVAL: e has the place, the nearest known name, an example. */
int condition_parse(const char *text, struct condition *out, struct kc_error *e);
bool condition_holds(const struct condition *c, const struct job *j);

#endif
