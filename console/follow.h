/* follow.h - waiting for a job: until it ends or a condition holds, looking every 15 ms, so that the answer comes
 * within 50 ms of the fact. The job is only looked at. */
#ifndef KC_CONSOLE_FOLLOW_H
#define KC_CONSOLE_FOLLOW_H

#include "condition.h"
#include "session.h"

#define FOLLOW_NS (15 * KC_MILLISECOND)

/* Waits; `c` NULL: until the job ends. `limit_ns` 0: for ever. `progress`: lines about its steps on s->out meanwhile.
 * On KC_EXIT_OK and KC_EXIT_FALSE *out is the job as it then was (job_free). Exit codes as `kc wait`; told. */
int follow_job(struct session *s, const char *id, const struct filter *c, uint64_t limit_ns, bool progress,
               struct job *out);
/* The exit code that an ended job's outcome stands for: finished and stopped 0, failed and interrupted 1. */
int outcome_code(const struct job *j);
/* "500ms", "60s", "10m", "2h", a bare number is seconds. -EINVAL. */
int duration_parse(const char *text, uint64_t *ns, struct kc_error *e);

#endif
