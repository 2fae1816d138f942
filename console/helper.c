/* helper.c */
#include "helper.h"

#include "supervisor/protocol.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define LOOK_MS 200 /* an interrupt just before a wait is seen that late */

void helper_path(const char *program, char *out, size_t room)
{
    char self[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    self[n > 0 ? n : 0] = 0;
    char *slash = strrchr(self, '/');
    snprintf(out, room, "%.*s%s", slash ? (int)(slash - self + 1) : 0, self, program);
}

int helper_start(const char *const *words, const struct kc_home *home, struct helper *out)
{
    char path[PATH_MAX + 16];
    int text[2], wrong[2];
    pid_t parent = getpid(), pid;
    helper_path(words[0], path, sizeof path);
    if (pipe2(text, O_CLOEXEC))
        return -errno;
    if (pipe2(wrong, O_CLOEXEC)) {
        int code = -errno;
        close(text[0]);
        close(text[1]);
        return code;
    }
    pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGTERM);
        if (getppid() != parent)
            _exit(KC_EXIT_SYSTEM);
        dup2(text[1], STDOUT_FILENO);
        dup2(wrong[1], STDERR_FILENO);
        if (home) {
            setenv("KC_HOME", home->home, 1);
            setenv("KC_INSTANCE", home->instance, 1);
        }
        execv(path, (char *const *)(uintptr_t)words);
        int code = errno == ENOENT ? KC_EXIT_NO_OBJECT : KC_EXIT_SYSTEM;
        dprintf(STDERR_FILENO, "%s: %s. `make` builds it beside kc\n", path, strerror(errno));
        _exit(code);
    }
    int code = -errno;
    close(text[1]);
    close(wrong[1]);
    if (pid < 0) {
        close(text[0]);
        close(wrong[0]);
        return code;
    }
    *out = (struct helper){.pid = pid, .name = words[0], .out = text[0], .errors = wrong[0]};
    return 0;
}

/* Reads some complaints; closes where there will be no more. */
static void hear(struct helper *h)
{
    char more[4096];
    ssize_t n = read(h->errors, more, sizeof more);
    size_t room = sizeof h->text - 1 - h->bytes;
    if (n < 0 && errno == EINTR)
        return;
    if (n <= 0) {
        close(h->errors);
        h->errors = -1; /* poll() passes over it */
        return;
    }
    memcpy(h->text + h->bytes, more, (size_t)n < room ? (size_t)n : room);
    h->bytes += (size_t)n < room ? (size_t)n : room;
}

ssize_t helper_read(struct helper *h, char *to, size_t room)
{
    for (;;) {
        struct pollfd p[2] = {{.fd = h->out, .events = POLLIN},
                              {.fd = h->errors, .events = POLLIN}};
        int rc = poll(p, 2, LOOK_MS);
        if (interrupt_seen() || (rc < 0 && errno != EINTR))
            return -1;
        if (rc <= 0)
            continue;
        if (p[1].revents)
            hear(h);
        if (p[0].revents) {
            ssize_t n = read(h->out, to, room);
            if (n >= 0 || errno != EINTR)
                return n;
        }
    }
}

char *helper_read_line(struct helper *h, struct helper_line *l)
{
    memmove(l->text, l->text + l->given, l->used - l->given);
    l->used -= l->given;
    l->given = 0;
    for (;;) {
        char *stop = memchr(l->text, '\n', l->used);
        if (stop) {
            *stop = 0;
            l->given = (size_t)(stop - l->text) + 1;
            return l->text;
        }
        ssize_t n = l->used < sizeof l->text
                        ? helper_read(h, l->text + l->used, sizeof l->text - l->used)
                        : 0;
        if (n <= 0)
            return NULL;
        l->used += (size_t)n;
    }
}

/* With a `code` the last line is the failure. */
static int pass_on(struct session *s, struct helper *h, int status, int code)
{
    static const char own[] = "kc-rank: ", ours[] = "kc: ";
    char *line, *rest = h->text;
    h->text[h->bytes] = 0;
    if (interrupt_seen())
        return session_fail(s, interrupt_code(), "interrupted");
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGINT) /* Ctrl-C is for all of us */
        return session_fail(s, KC_EXIT_INTERRUPTED, "interrupted");
    while (rest && *rest) {
        line = rest;
        rest = strchr(line, '\n');
        if (rest)
            *rest++ = 0;
        line += strncmp(line, own, sizeof own - 1) ? 0 : sizeof own - 1;
        line += strncmp(line, ours, sizeof ours - 1) ? 0 : sizeof ours - 1;
        if (code && (!rest || !*rest))
            return session_fail(s, code, "%s", line);
        session_note(s, "%s", line);
    }
    if (code && WIFSIGNALED(status))
        return session_fail(s, code, "%s was killed by signal %d", h->name, WTERMSIG(status));
    return code ? session_fail(s, code, "%s ended with exit code %d and said nothing", h->name, code)
                : KC_EXIT_OK;
}

void helper_drop(struct helper *h)
{
    kill(h->pid, SIGTERM); /* our child, not waited for yet: no other process */
    close(h->out);
    close(h->errors);
    while (waitpid(h->pid, NULL, 0) < 0 && errno == EINTR)
        ;
}

int helper_end(struct session *s, struct helper *h)
{
    int status = 0;
    close(h->out);
    if (interrupt_seen())
        kill(h->pid, SIGTERM); /* our child, not waited for yet: no other process */
    while (h->errors >= 0)
        hear(h);
    while (waitpid(h->pid, &status, 0) < 0 && errno == EINTR)
        ;
    return pass_on(s, h, status, WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
}
