/* drills.h - may jobs of this kcd put faults into their own ranks (kcd --allow-drills)? Said once, by an environment variable that
 * keepers and ranks inherit; what the user's environment says of it counts nothing. */
#ifndef KC_SUPERVISOR_DRILLS_H
#define KC_SUPERVISOR_DRILLS_H

#include "base/error.h"
#include "contracts/job_spec.h"

#include <stdbool.h>

#define KC_DRILLS_VARIABLE "KC_DRILLS"

/* kcd, as it begins. */
void kc_drills_allow(bool allow);
bool kc_drills_allowed(void);
/* -EINVAL: the spec puts in faults, and that is not allowed here. */
int kc_drills_check(const struct kc_job_spec *spec, struct kc_error *e);

#endif
