/* process.c - reads /proc; every read is bounded, a process that vanishes meanwhile is simply not there. */
#include "process.h"

#include "base/file.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define ENVIRON_MAX (1u << 20) /* of an environment; the token is put at its front */

/* Up to room - 1 bytes of a file of /proc, NUL-terminated. Length, or -errno. */
static ssize_t read_some(const char *path, char *out, size_t room)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    size_t have = 0;
    while (have < room - 1) {
        ssize_t n = read(fd, out + have, room - 1 - have);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && have == 0) {
            ssize_t r = -errno;
            close(fd);
            return r;
        }
        if (n <= 0)
            break;
        have += (size_t)n;
    }
    close(fd);
    out[have] = 0;
    return (ssize_t)have;
}

struct stat_fields {
    char state;
    pid_t parent, session;
    uint64_t start;
};

/* Fields 3, 4, 6 and 22. The name (field 2) may hold anything, so counting begins at the last ')'. */
static int read_stat(pid_t pid, struct stat_fields *out)
{
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    ssize_t n = read_some(path, text, sizeof text);
    if (n < 0)
        return n == -ENOENT ? -ESRCH : (int)n;
    const char *p = strrchr(text, ')');
    if (!p || p[1] != ' ')
        return -ESRCH;
    p += 2;
    struct stat_fields f = {.state = *p};
    for (int field = 3; field <= 22; field++) {
        if (field == 4)
            f.parent = (pid_t)strtol(p, NULL, 10);
        if (field == 6)
            f.session = (pid_t)strtol(p, NULL, 10);
        if (field == 22)
            f.start = strtoull(p, NULL, 10);
        p = strchr(p, ' ');
        if (!p)
            return -ESRCH;
        p++;
    }
    *out = f;
    return 0;
}

int kc_process_identify(pid_t pid, struct kc_process *out)
{
    struct stat_fields f;
    int r = read_stat(pid, &f);
    if (r == 0)
        *out = (struct kc_process){.pid = pid, .start = f.start};
    return r;
}

static int open_pidfd(pid_t pid)
{
    int fd = (int)syscall(SYS_pidfd_open, pid, 0); /* always close-on-exec */
    return fd < 0 ? -errno : fd;
}

int kc_process_open(struct kc_process p)
{
    struct kc_process now;
    if (p.pid <= 1)
        return -ESRCH;
    int fd = open_pidfd(p.pid);
    if (fd < 0)
        return fd;
    /* The descriptor holds whoever had the pid at that moment; was it the one we mean? */
    if (kc_process_identify(p.pid, &now) != 0 || now.start != p.start) {
        close(fd);
        return -ESRCH;
    }
    return fd;
}

bool kc_process_ended(int pidfd)
{
    struct pollfd p = {.fd = pidfd, .events = POLLIN};
    return poll(&p, 1, 0) == 1;
}

int kc_boot_id(char out[40])
{
    char text[64];
    ssize_t n = read_some("/proc/sys/kernel/random/boot_id", text, sizeof text);
    if (n < 0)
        return (int)n;
    size_t length = strcspn(text, "\n");
    if (length >= 40)
        return -EINVAL;
    memcpy(out, text, length);
    out[length] = 0;
    return 0;
}

int kc_token_make(char out[KC_TOKEN_ROOM])
{
    uint64_t half[2];
    if (getrandom(half, sizeof half, 0) != (ssize_t)sizeof half)
        return -errno;
    snprintf(out, KC_TOKEN_ROOM, "%016llx%016llx", (unsigned long long)half[0], (unsigned long long)half[1]);
    return 0;
}

static bool carries_token(pid_t pid, const char *token, char *scratch)
{
    char path[64], wanted[KC_TOKEN_ROOM + 16];
    snprintf(path, sizeof path, "/proc/%d/environ", (int)pid);
    ssize_t n = read_some(path, scratch, ENVIRON_MAX);
    size_t length = (size_t)snprintf(wanted, sizeof wanted, "KC_TOKEN=%s", token) + 1; /* its NUL belongs to it */
    if (n < (ssize_t)length)
        return false;
    for (const char *p = scratch, *end = scratch + n; p < end; p += strnlen(p, (size_t)(end - p)) + 1)
        if ((size_t)(end - p) >= length && memcmp(p, wanted, length) == 0)
            return true;
    return false;
}

int kc_process_signal(pid_t pid, int signal)
{
    return pid <= 1 ? -ESRCH : kill(pid, signal) == 0 ? 0 : -errno;
}

int kc_process_signal_group(pid_t leader, int signal)
{
    return leader <= 1 ? -ESRCH : kill(-leader, signal) == 0 ? 0 : -errno;
}

/* By what processes are known as ours; any mark is enough. */
struct marks {
    const char *token;     /* NULL: none */
    const pid_t *sessions;
    size_t sessions_count;
    pid_t parent;          /* 0: none */
    uint64_t since;        /* with parent */
    const pid_t *spared;
    size_t spared_count;
};

/* Never 0 and 1, which are no session and no process of ours. */
static bool among(pid_t pid, const pid_t *list, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (list[i] > 1 && list[i] == pid)
            return true;
    return false;
}

/* Is it one of those? A descriptor for it then, else -1. */
static int match(pid_t pid, const struct marks *m, char *scratch)
{
    struct stat_fields f;
    int fd = open_pidfd(pid); /* first, so that what we then read is about the process that the descriptor means */
    if (fd < 0)
        return -1;
    if (read_stat(pid, &f) == 0 && f.state != 'Z' && f.state != 'X' &&
        (among(f.session, m->sessions, m->sessions_count) ||
         (m->parent && f.parent == m->parent && f.start >= m->since && !among(pid, m->spared, m->spared_count)) ||
         (m->token && *m->token && carries_token(pid, m->token, scratch))))
        return fd;
    close(fd);
    return -1;
}

static int signal_marked(const struct marks *m, int signal)
{
    DIR *proc = opendir("/proc");
    if (!proc)
        return -errno;
    char *scratch = malloc(ENVIRON_MAX);
    if (!scratch) {
        closedir(proc);
        return -ENOMEM;
    }
    int found = 0;
    for (struct dirent *d; (d = readdir(proc));) {
        struct stat st;
        if (!isdigit((unsigned char)d->d_name[0]) || fstatat(dirfd(proc), d->d_name, &st, 0) != 0 ||
            (geteuid() != 0 && st.st_uid != geteuid()))
            continue;
        pid_t pid = (pid_t)strtol(d->d_name, NULL, 10);
        if (pid <= 1 || pid == getpid())
            continue;
        int fd = match(pid, m, scratch);
        if (fd < 0)
            continue;
        found++;
        if (signal)
            syscall(SYS_pidfd_send_signal, fd, signal, NULL, 0);
        close(fd);
    }
    free(scratch);
    closedir(proc);
    return found;
}

int kc_process_signal_all(const char *token, const pid_t *sessions, size_t count, int signal)
{
    struct marks m = {.token = token, .sessions = sessions, .sessions_count = count};
    return signal_marked(&m, signal);
}

int kc_process_signal_children(uint64_t since, const pid_t *spared, size_t count, int signal)
{
    struct marks m = {.parent = getpid(), .since = since, .spared = spared, .spared_count = count};
    return signal_marked(&m, signal);
}

void kc_signals_restore(void)
{
    struct sigaction plain = {.sa_handler = SIG_DFL};
    sigset_t none;
    for (int s = 1; s < NSIG; s++)
        sigaction(s, &plain, NULL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

void kc_program_find(const char *variable, const char *program, char *out, size_t room)
{
    const char *given = getenv(variable);
    if (given && *given) {
        snprintf(out, room, "%s", given);
        return;
    }
    ssize_t n = readlink("/proc/self/exe", out, room - 16);
    char *slash = NULL;
    if (n > 0) {
        out[n] = 0;
        slash = strrchr(out, '/');
    }
    if (slash)
        memcpy(slash + 1, program, strlen(program) + 1);
    else
        snprintf(out, room, "%s", program);
}
