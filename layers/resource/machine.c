/* machine.c */
#include "machine.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static long read_path(const char *path, char *out, size_t room)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return -errno;
    size_t have = 0;
    long r = 0;
    while (have < room - 1) {
        ssize_t n = read(fd, out + have, room - 1 - have);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            r = -errno;
        if (n <= 0)
            break;
        have += (size_t)n;
    }
    close(fd);
    out[have] = 0;
    return r < 0 ? r : (long)have;
}

static int build_path(const char *root, char *out, const char *format, va_list list)
{
    int n = snprintf(out, PATH_MAX, "%s", root ? root : "");
    if (n >= PATH_MAX)
        return -ENAMETOOLONG;
    int m = vsnprintf(out + n, (size_t)(PATH_MAX - n), format, list);
    return m < 0 || m >= PATH_MAX - n ? -ENAMETOOLONG : 0;
}

long machine_read(const char *root, char *out, size_t room, const char *format, ...)
{
    char path[PATH_MAX];
    va_list list;
    va_start(list, format);
    int r = build_path(root, path, format, list);
    va_end(list);
    return r < 0 ? r : read_path(path, out, room);
}

int machine_number(const char *root, uint64_t *out, const char *format, ...)
{
    char path[PATH_MAX], text[64], *end;
    va_list list;
    va_start(list, format);
    int r = build_path(root, path, format, list);
    va_end(list);
    long n = r < 0 ? r : read_path(path, text, sizeof text);
    if (n < 0)
        return (int)n;
    if (!isdigit((unsigned char)text[0]))
        return -EINVAL;
    *out = strtoull(text, &end, 10);
    return 0;
}

bool machine_keyed(const char *text, const char *key, uint64_t *out)
{
    size_t length = strlen(key);
    for (const char *line = text; line && *line; line = strchr(line, '\n'), line += line != NULL) {
        const char *p = line + length;
        if (strncmp(line, key, length) != 0)
            continue;
        while (*p == ' ' || *p == '\t' || *p == ':')
            p++;
        if (!isdigit((unsigned char)*p))
            return false;
        *out = strtoull(p, NULL, 10);
        return true;
    }
    return false;
}

#define FIRST_PIDS "pid:[4026531836]" /* PROC_PID_INIT_INO, include/linux/proc_ns.h */

bool machine_first_pids(const char *root)
{
    char path[PATH_MAX], name[64];
    if ((size_t)snprintf(path, sizeof path, "%s/proc/self/ns/pid", root ? root : "") >= sizeof path)
        return false;
    const ssize_t n = readlink(path, name, sizeof name - 1);
    name[n > 0 ? n : 0] = 0;
    return strcmp(name, FIRST_PIDS) == 0;
}
