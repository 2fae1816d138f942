/* publish.h - private to govern: what a finished step, evaluation or snapshot looks like on the board. */
#ifndef KC_GOVERN_PUBLISH_H
#define KC_GOVERN_PUBLISH_H

#include "govern/govern.h"
#include "schedule/schedule.h"
#include "state/state.h"

struct kc_ack;

void publish_plan(const struct kc_govern_config *c, uint64_t first_step);
void publish_step(const struct kc_govern_config *c, const struct kc_run *run, double seconds);
void publish_evaluation(const struct kc_govern_config *c, uint64_t step, double loss, uint64_t tokens, double seconds);
/* Why a snapshot failed, with paths inside the job's directory if it does not fit otherwise: the numbers come last. */
void publish_reason(const struct kc_govern_config *c, const char *reason, char *out, size_t room);
void publish_snapshot(const struct kc_govern_config *c, const struct kc_snapshot_info *info, double seconds);
/* What the process itself uses; asks the system, so at most once a second. */
void publish_process(const struct kc_govern_config *c, uint64_t *last);

#endif
