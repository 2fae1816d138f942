/* step.h - one program, and one step, of this rank: what a run and a replay have in common. Nothing is published here, and
 * nothing is decided. */
#ifndef KC_GOVERN_STEP_H
#define KC_GOVERN_STEP_H

#include "govern/govern.h"

#include "schedule/schedule.h"

/* Optimizer steps finished. */
uint64_t step_finished(const struct kc_govern_config *c);
/* Run a program with this rank's votes. Of a group that was ended, e says by whom, and *peer is the rank. Errors of
 * kc_executor_run(). */
int step_program(const struct kc_govern_config *c, enum kc_program_id id, struct kc_run *run, int32_t *peer,
                 struct kc_error *e);
/* The values of the next step, its tokens apart. */
struct kc_step_values step_values_next(const struct kc_govern_config *c);
/* Train one step: its tokens are counted before and compared after. state does not know it yet: step_finish(). */
int step_train(const struct kc_govern_config *c, struct kc_run *run, int32_t *peer, struct kc_error *e);
void step_finish(const struct kc_govern_config *c, const struct kc_run *run);

#endif
