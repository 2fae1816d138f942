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
/* What step_program() says of `code`, of a program that was run otherwise. */
int step_shut(const struct kc_govern_config *c, int code, int32_t *peer, struct kc_error *e);
/* All ranks agreed that the run fails, and another one is why: leave because of it, when it has said so. -ESHUTDOWN with e. */
int step_follow(const struct kc_govern_config *c, uint32_t rank, enum kc_reason reason, int32_t *peer, struct kc_error *e);
/* The values of the next step, its tokens apart. */
struct kc_step_values step_values_next(const struct kc_govern_config *c);
/* Train one step: its tokens are counted before and compared after. */
int step_train(const struct kc_govern_config *c, struct kc_run *run, int32_t *peer, struct kc_error *e);
/* The replicas' digests do not cancel, which they did after step `alike`: find out, together with all ranks, who holds other bits of
 * which parameter, and say so in an event; no snapshot of a later step is used again. -EUCLEAN with e on those that hold other bits,
 * and where nobody can say who that is on all; -ESHUTDOWN on the others; or the error of a program. */
int step_replicas_differ(const struct kc_govern_config *c, struct kc_run *run, uint64_t alike, int32_t *peer, struct kc_error *e);
/* state counts the step that step_train() trained. */
void step_finish(const struct kc_govern_config *c, const struct kc_run *run);

#endif
