/* use.c - how busy the machine and its devices are, and who uses them. What drivers tell is their kind's; whose a process is
 * stands in /proc, where a driver's pid means that process only in the first pid namespace. */
#include "machine.h"
#include "pool.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static void find_owner(const char *root, struct kc_device_user *u)
{
    char path[PATH_MAX], name[64];
    struct stat st;
    if ((size_t)snprintf(path, sizeof path, "%s/proc/%" PRId32, root, u->pid) >= sizeof path || stat(path, &st) != 0)
        return; /* hidden (hidepid), or it has ended */
    u->uid = st.st_uid;
    if (machine_read(root, name, sizeof name, "/proc/%" PRId32 "/comm", u->pid) > 0) {
        name[strcspn(name, "\n")] = 0;
        snprintf(u->name, sizeof u->name, "%.31s", name);
    }
}

void kc_pool_use(const struct kc_pool *p, size_t index, struct kc_device_use *out)
{
    const struct kc_device *d = &p->devices.at[index];
    const struct kc_device_kind *kind = pool_kind(p, d->kind);
    memset(out, 0, sizeof *out);
    if (!kind || !kind->use)
        return;
    kind->use(&p->machine, d, out);
    for (uint32_t i = 0; i < out->users && i < KC_USERS_MAX && machine_first_pids(p->root); i++)
        find_owner(p->root, &out->user[i]);
}

/* "cpu3 user nice system idle iowait irq softirq steal …", proc(5); guest time is part of user time. */
static bool take_ticks(const char *line, struct kc_cpu_ticks *out)
{
    uint64_t t[8] = {0};
    uint32_t cpu;
    if (strncmp(line, "cpu ", 4) == 0 /* all of them together */ || sscanf(line, "cpu%" SCNu32 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64
                     " %" SCNu64, &cpu, &t[0], &t[1], &t[2], &t[3], &t[4], &t[5], &t[6], &t[7]) < 5)
        return false;
    *out = (struct kc_cpu_ticks){.cpu = cpu};
    for (size_t i = 0; i < 8; i++)
        out->all += t[i];
    out->busy = out->all - t[3] - t[4];
    return true;
}

int kc_resource_ticks(const char *root, struct kc_cpu_ticks *out, size_t room)
{
    char *text = malloc(SMALL_FILE);
    const long n = text ? machine_read(root, text, SMALL_FILE, "/proc/stat") : -ENOMEM;
    int count = 0;
    const char *line = text, *end;
    for (; n > 0 && (size_t)count < room && (end = strchr(line, '\n')); line = end + 1)
        count += take_ticks(line, &out[count]);
    free(text);
    return n < 0 ? (int)n : count;
}

int kc_resource_load(const char *root, double out[3])
{
    char text[128];
    double load[3];
    const long n = machine_read(root, text, sizeof text, "/proc/loadavg");
    if (n < 0)
        return (int)n;
    if (sscanf(text, "%lf %lf %lf", &load[0], &load[1], &load[2]) != 3)
        return -EINVAL;
    memcpy(out, load, sizeof load);
    return 0;
}
