/* environment.h - what a rank inherits: an allow-list of the supervisor's environment, the spec's "env", and on top,
 * so that nothing can replace them, the keeper's own variables (all named KC_…). */
#ifndef KC_SUPERVISOR_ENVIRONMENT_H
#define KC_SUPERVISOR_ENVIRONMENT_H

#include "contracts/job_spec.h"

#include <stdbool.h>
#include <stddef.h>

/* The allow-list: names, or with a * for anything at one end. kcd(8) prints it. */
#define KC_ENVIRONMENT_LIST                                                                                            \
    "PATH", "HOME", "USER", "LOGNAME", "LANG", "LANGUAGE", "LC_*", "TZ", "TMPDIR", "XDG_RUNTIME_DIR",                  \
        "XDG_CACHE_HOME", "LD_LIBRARY_PATH", "OMP_*", "*SAN_OPTIONS"

bool kc_environment_allowed(const char *name, size_t length);

struct kc_environment {
    char **entry; /* NULL-terminated, "NAME=value" */
    size_t count, room;
};

/* Allowed entries of `from` (an environ), then the spec's, which replace those. -ENOMEM. */
int kc_environment_make(struct kc_environment *env, char *const *from, const struct kc_job_spec *spec);
/* Set one; replaces. -ENOMEM. */
int kc_environment_set(struct kc_environment *env, const char *name, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void kc_environment_free(struct kc_environment *env);

#endif
