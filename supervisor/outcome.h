/* outcome.h - jobs/<id>/result.json: how a job ended. Written whole before anybody can see the end state elsewhere.
 */
#ifndef KC_SUPERVISOR_OUTCOME_H
#define KC_SUPERVISOR_OUTCOME_H

#include "record.h"

#include <stdbool.h>

/* What the record does not know. NaN and an empty root are unknown: null. */
struct kc_outcome {
    double loss, validation_loss;
    char state_root[33];
};

extern const struct kc_outcome kc_outcome_unknown;

/* {state, exit_code, step, loss, validation_loss, state_root, seconds, first_failure}, the last null unless the job
 * failed. -errno with one line. */
int kc_outcome_write(const struct kc_record *record, const struct kc_outcome *outcome, struct kc_error *e);
/* Remove that of an earlier end: the job goes on. */
void kc_outcome_clear(const char *job_directory);

#endif
