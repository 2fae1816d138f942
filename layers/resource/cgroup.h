/* cgroup.h - where this process stands in the control groups, version 1 and 2. */
#ifndef KC_RESOURCE_CGROUP_H
#define KC_RESOURCE_CGROUP_H

#include "machine.h"

#include <limits.h>
#include <sys/types.h>

/* A controller's folder for this process: `mount` + `path`, path below the mount point; cut `path` at its last '/'
 * to get the parent, until it is empty. */
struct cgroup {
    char mount[1024], path[1024];
    int version; /* 1 or 2 */
};

/* "memory" or "cpu". -ENOENT: no such controller here. */
int cgroup_find(const char *root, const char *controller, struct cgroup *out);
/* The same of another process that sees the same mounts; pid 0: of this one. */
int cgroup_find_of(const char *root, pid_t pid, const char *controller, struct cgroup *out);
/* Go to the parent. false: was at the mount point. */
bool cgroup_up(struct cgroup *c);

#endif
