/* ids.h - a job's id and directory: jobs/<name>-<n>, claimed by mkdir (so also between nodes that share a KC_HOME)
 * and never given twice: a removed job leaves an empty file jobs/.removed/<id>, of which the highest of each name is
 * kept. */
#ifndef KC_SUPERVISOR_IDS_H
#define KC_SUPERVISOR_IDS_H

#include "base/error.h"

#include <stddef.h>

/* Claim the next id of `name`; its directory is made. -errno with one line. */
int kc_id_claim(const char *home, const char *name, char *id, size_t room, struct kc_error *e);
/* Remember the id, then remove its directory with all that is in it. -ENOENT there is none, else -errno with one
 * line. */
int kc_id_remove(const char *home, const char *id, struct kc_error *e);

#endif
