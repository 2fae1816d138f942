/* cgroup.c - reads /proc/self/cgroup and /proc/self/mountinfo (proc(5), cgroups(7)). A container often sees a path
 * that does not exist below its own mount point; then the mount point itself is its group. */
#include "cgroup.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Is `name` one of the comma-separated words of list[0 … length-1]? */
static bool listed(const char *list, size_t length, const char *name)
{
    size_t n = strlen(name);
    for (size_t i = 0; i <= length;) {
        const char *comma = memchr(list + i, ',', length - i);
        size_t word = comma ? (size_t)(comma - list) - i : length - i;
        if (word == n && memcmp(list + i, name, n) == 0)
            return true;
        i += word + 1;
    }
    return false;
}

/* From "N:controllers:path" lines: the path of a version 1 controller, or of the version 2 hierarchy ("0::path"). */
static bool own_path(const char *text, int version, const char *controller, char *out, size_t room)
{
    for (const char *line = text; *line;) {
        const char *end = strchr(line, '\n'), *a = strchr(line, ':'), *b = a ? strchr(a + 1, ':') : NULL;
        if (!end)
            end = line + strlen(line);
        if (b && b < end) {
            size_t names = (size_t)(b - a - 1), length = (size_t)(end - b - 1);
            bool match = version == 2 ? names == 0 && line[0] == '0' : listed(a + 1, names, controller);
            if (match && length < room) {
                memcpy(out, b + 1, length);
                out[length] = 0;
                return true;
            }
        }
        line = *end ? end + 1 : end;
    }
    return false;
}

/* One line of mountinfo: is it the mount of that hierarchy? Then its root and mount point. */
static bool mount_line(char *line, int version, const char *controller, char **top, char **point)
{
    char *field[6], *save = NULL, *type, *options = NULL;
    char *dash = strstr(line, " - ");
    if (!dash)
        return false;
    *dash = 0;
    for (int i = 0; i < 6; i++)
        if (!(field[i] = strtok_r(i ? NULL : line, " ", &save)))
            return false;
    type = strtok_r(dash + 3, " ", &save);
    strtok_r(NULL, " ", &save);
    options = strtok_r(NULL, " ", &save);
    if (!type || strcmp(type, version == 2 ? "cgroup2" : "cgroup") != 0)
        return false;
    if (version == 1 && !(options && listed(options, strlen(options), controller)))
        return false;
    *top = field[3];
    *point = field[4];
    return true;
}

static bool find_mount(char *text, int version, const char *controller, char **top, char **point)
{
    for (char *line = text, *next; line && *line; line = next) {
        next = strchr(line, '\n');
        if (next)
            *next++ = 0;
        if (mount_line(line, version, controller, top, point))
            return true;
    }
    return false;
}

static int find_version(const char *root, pid_t pid, const char *controller, int version, struct cgroup *out)
{
    char text[SMALL_FILE], path[sizeof out->path], file[64], who[16] = "self", *top, *point;
    if (pid)
        snprintf(who, sizeof who, "%d", (int)pid);
    if (machine_read(root, text, sizeof text, "/proc/%s/cgroup", who) < 0 ||
        !own_path(text, version, controller, path, sizeof path))
        return -ENOENT;
    if (machine_read(root, text, sizeof text, "/proc/self/mountinfo") < 0 ||
        !find_mount(text, version, controller, &top, &point))
        return -ENOENT;
    struct cgroup c = {.version = version};
    if (strlen(point) >= sizeof c.mount)
        return -ENAMETOOLONG;
    memcpy(c.mount, point, strlen(point) + 1);
    /* the mount may begin inside the hierarchy: what stands above it is not ours to see */
    size_t above = strcmp(top, "/") == 0 ? 0 : strlen(top);
    if (strncmp(path, top, above) == 0 && (path[above] == '/' || path[above] == 0))
        memcpy(c.path, path + above, strlen(path + above) + 1);
    if (strcmp(c.path, "/") == 0)
        c.path[0] = 0;
    const char *probe = version == 2 ? "cgroup.procs" : "tasks";
    if (machine_read(root, file, sizeof file, "%s%s/%s", c.mount, c.path, probe) < 0)
        c.path[0] = 0;
    *out = c;
    return 0;
}

int cgroup_find_of(const char *root, pid_t pid, const char *controller, struct cgroup *out)
{
    char names[4096];
    struct cgroup c;
    if (find_version(root, pid, controller, 1, out) == 0)
        return 0;
    int r = find_version(root, pid, controller, 2, &c);
    /* on hybrid hosts the version 2 tree exists without controllers */
    if (r < 0 || machine_read(root, names, sizeof names, "%s/cgroup.controllers", c.mount) < 0)
        return -ENOENT;
    for (char *p = names; *p; p++)
        *p = *p == ' ' || *p == '\n' ? ',' : *p;
    if (!listed(names, strlen(names), controller))
        return -ENOENT;
    *out = c;
    return 0;
}

int cgroup_find(const char *root, const char *controller, struct cgroup *out)
{
    return cgroup_find_of(root, 0, controller, out);
}

bool cgroup_up(struct cgroup *c)
{
    char *slash = strrchr(c->path, '/');
    if (!slash)
        return false;
    *slash = 0;
    return true;
}
