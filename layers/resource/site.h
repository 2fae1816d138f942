/* site.h - where a machine stands: rack and network switch, from a file that people write (README.md). */
#ifndef KC_RESOURCE_SITE_H
#define KC_RESOURCE_SITE_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>

struct site_place {
    char rack[64], leaf[64]; /* "" unknown */
};

/* Read the whole file, refuse what is not understood, and look the node up (not in it: both unknown). A file that is
 * missing is an error only if `must`. -EINVAL with one line, -errno. */
int site_read(const char *path, const char *node, bool must, struct site_place *out, struct kc_error *e);

#endif
