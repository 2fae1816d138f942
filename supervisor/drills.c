/* drills.c */
#include "drills.h"

#include <errno.h>
#include <stdlib.h>

void kc_drills_allow(bool allow)
{
    if (allow)
        setenv(KC_DRILLS_VARIABLE, "1", 1);
    else
        unsetenv(KC_DRILLS_VARIABLE);
}

bool kc_drills_allowed(void)
{
    return getenv(KC_DRILLS_VARIABLE) != NULL;
}

int kc_drills_check(const struct kc_job_spec *spec, struct kc_error *e)
{
    if (!spec->inject.count || kc_drills_allowed())
        return 0;
    return kc_fail(e, -EINVAL, "inject: this kcd does not put faults into jobs; leave the field out, or start a kcd of your own "
                   "for drills: kcd --daemon --allow-drills --instance drills");
}
