/* spent.h - the spec that a job runs by, and what it has used up of the limits that its policy sets. */
#ifndef KC_CONSOLE_SPENT_H
#define KC_CONSOLE_SPENT_H

#include "model.h"

#include "base/arena.h"
#include "contracts/job_spec.h"
#include "govern/policy.h"

struct spent {
    struct kc_arena arena;
    const struct kc_job_spec *spec; /* NULL: it can't be read */
    struct kc_policy_history history; /* unknown is none */
};
void spent_read(const struct job *j, struct spent *out);
void spent_free(struct spent *s);

#endif
