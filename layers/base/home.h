/* home.h - where a user's jobs live: one directory that may be shared by several nodes (NFS), with what belongs to one
 * node under run/<host>/, and of its instances under run/<host>/<instance>/. Devices are the node's: all instances of one
 * home lease them in one place, so that none takes a core that another holds.
 *
 *   <home>/jobs/<id>/                         a job's files (kc-job(5))
 *   <home>/models/<name>/                     an imported model: a folder of snapshots (kc(1))
 *   <home>/history                            what was run on kc's screen (kc(1))
 *   <home>/run/<host>/<instance>/kcd.sock     the supervisor answers here (supervisor/protocol.h)
 *   <home>/run/<host>/<instance>/kcd.lock     held with flock() by the living supervisor
 *   <home>/run/<host>/<instance>/<id>.sock    a job's keeper answers here
 *   <home>/run/<host>/devices/<host>/         a lock file per leased device */
#ifndef KC_BASE_HOME_H
#define KC_BASE_HOME_H

#include "base/error.h"

#include <limits.h>

#define KC_INSTANCE_ROOM 49 /* [a-z0-9-]{1,48} and a NUL */

struct kc_home {
    char home[PATH_MAX - 256]; /* absolute */
    char node[PATH_MAX - 176]; /* <home>/run/<host> */
    char run[PATH_MAX - 96];   /* <home>/run/<host>/<instance> */
    char host[65];
    char instance[KC_INSTANCE_ROOM];
};

/* Work the paths out; nothing is made. `home` NULL: $KC_HOME, else $XDG_STATE_HOME/kuangchao, else
 * ~/.local/state/kuangchao. `instance` NULL: $KC_INSTANCE, else "default". -EINVAL, -ENAMETOOLONG, with one line. */
int kc_home_find(const char *home, const char *instance, struct kc_home *out, struct kc_error *e);

#endif
