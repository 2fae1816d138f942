/* process.c - who a process is: its pid and the time it started, since a pid alone is used again. */
#include "process.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static ssize_t read_text(const char *path, char *text, size_t room)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    ssize_t n;
    do
        n = read(fd, text, room - 1);
    while (n < 0 && errno == EINTR);
    int r = n < 0 ? -errno : 0;
    close(fd);
    if (r < 0)
        return r;
    text[n] = 0;
    return n;
}

/* proc(5): field 3 is the state, field 22 the start time; the name in field 2 may hold anything, also ')'. */
static int read_stat(uint32_t pid, char *state, uint64_t *start)
{
    char path[40], text[1024];
    snprintf(path, sizeof path, "/proc/%u/stat", pid);
    if (read_text(path, text, sizeof text) <= 0)
        return -ESRCH;
    const char *p = strrchr(text, ')');
    if (!p || p[1] != ' ' || !p[2])
        return -ESRCH;
    *state = p[2];
    p += 2;
    for (int field = 3; field < 22; field++) {
        p = strchr(p, ' ');
        if (!p)
            return -ESRCH;
        p++;
    }
    *start = strtoull(p, NULL, 10);
    return 0;
}

int kc_process_start(uint32_t pid, uint64_t *start)
{
    char state;
    return read_stat(pid, &state, start);
}

int kc_process_is(uint32_t pid, uint64_t start)
{
    char state;
    uint64_t now;
    if (pid == 0 || read_stat(pid, &state, &now) < 0)
        return 0;
    return now == start && state != 'Z' && state != 'X';
}

void process_boot(char out[40])
{
    char text[64];
    memset(out, 0, 40);
    if (read_text("/proc/sys/kernel/random/boot_id", text, sizeof text) > 0)
        memcpy(out, text, strcspn(text, "\n") < 39 ? strcspn(text, "\n") : 39);
}

uint64_t process_pid_namespace(void)
{
    struct stat st;
    return stat("/proc/self/ns/pid", &st) == 0 ? (uint64_t)st.st_ino : 0;
}
