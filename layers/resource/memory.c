/* memory.c - memory and processor time that this process may still have: of the machine, and of its control
 * groups. */
#include "cgroup.h"
#include "machine.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

/* One group's limit and use. Page cache that the kernel may drop (inactive file pages) counts as room: it is given
 * back before anything is refused. */
static bool group_memory(const char *root, const struct cgroup *c, uint64_t *limit, uint64_t *used)
{
    char stat[SMALL_FILE];
    uint64_t cache = 0;
    const bool v2 = c->version == 2;
    const char *max = v2 ? "memory.max" : "memory.limit_in_bytes";
    if (machine_number(root, limit, "%s%s/%s", c->mount, c->path, max) < 0)
        return false;
    if (machine_number(root, used, "%s%s/%s", c->mount, c->path, v2 ? "memory.current" : "memory.usage_in_bytes") < 0)
        return false;
    if (machine_read(root, stat, sizeof stat, "%s%s/memory.stat", c->mount, c->path) > 0)
        machine_keyed(stat, v2 ? "inactive_file" : "total_inactive_file", &cache);
    *used -= cache < *used ? cache : *used;
    return true;
}

int kc_resource_memory(const char *root, struct kc_memory *out)
{
    char text[SMALL_FILE];
    struct kc_memory m = {0};
    struct cgroup c;
    long n = machine_read(root, text, sizeof text, "/proc/meminfo");
    if (n < 0)
        return (int)n;
    if (!machine_keyed(text, "MemTotal", &m.total) || !machine_keyed(text, "MemAvailable", &m.available))
        return -EINVAL;
    m.total *= 1024;
    m.available *= 1024;
    if (cgroup_find(root, "memory", &c) == 0)
        do {
            uint64_t limit, used;
            if (!group_memory(root, &c, &limit, &used) || limit >= m.total)
                continue; /* version 1 writes "no limit" as a number larger than any machine */
            uint64_t room = limit > used ? limit - used : 0;
            if (!m.limited || room < m.headroom) {
                m.limited = true;
                m.limit = limit;
                m.used = used;
                m.headroom = room;
            }
        } while (cgroup_up(&c));
    *out = m;
    return 0;
}

uint64_t kc_memory_room(const struct kc_memory *m)
{
    return m->limited && m->headroom < m->available ? m->headroom : m->available;
}

double kc_resource_quota(const char *root)
{
    struct cgroup c;
    double least = 0;
    if (cgroup_find(root, "cpu", &c) < 0)
        return 0;
    do {
        uint64_t quota = 0, period = 0;
        char text[64];
        if (c.version == 1) {
            if (machine_number(root, &quota, "%s%s/cpu.cfs_quota_us", c.mount, c.path) < 0 ||
                machine_number(root, &period, "%s%s/cpu.cfs_period_us", c.mount, c.path) < 0)
                continue; /* -1: no quota */
        } else if (machine_read(root, text, sizeof text, "%s%s/cpu.max", c.mount, c.path) < 0 ||
                   sscanf(text, "%" SCNu64 " %" SCNu64, &quota, &period) != 2) {
            continue; /* "max 100000" */
        }
        if (period && quota && (least == 0 || (double)quota / (double)period < least))
            least = (double)quota / (double)period;
    } while (cgroup_up(&c));
    return least;
}
