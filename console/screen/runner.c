/* runner.c */
#include "runner.h"

#include "child.h"

#include "console/command.h"
#include "console/words.h"

#include "base/clock.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define GRACE_NS (10 * KC_SECOND)

static void say(struct runner *r, const char *text)
{
    lines_feed(&r->lines, "", text, strlen(text));
    lines_feed(&r->lines, "", "\n", 1);
}

/* One of them. -errno: it does not run, and that is told. */
static int start(struct runner *r, const char *statement)
{
    char line[1024];
    const char *word[STATEMENT_WORDS + 2];
    size_t count = 0;
    int fd;
    struct kc_error e = {""};
    snprintf(line, sizeof line, "%s", statement);
    if (words_split(line, word + 1, STATEMENT_WORDS, &count, &e)) {
        say(r, e.text);
        return -EINVAL;
    }
    word[0] = "kc";
    word[count + 1] = NULL;
    const char **from = count && !strcmp(word[1], "kc") ? word + 1 : word; /* typed with its name */
    pid_t pid = child_start(from, true, false, &fd);
    if (pid < 0) {
        say(r, "the system refuses another process or file: try again");
        return (int)pid;
    }
    r->pid = pid;
    r->fd = fd;
    r->began = kc_now();
    if (statements_begin(r->home, statement, r->id))
        r->id[0] = 0; /* a home that can't be written, or another user's: it runs all the same */
    return 0;
}

/* The first line of the queue that can be started. */
static void next(struct runner *r)
{
    while (!r->pid && *r->queue) {
        char statement[1024], title[1040];
        const size_t n = strcspn(r->queue, "\n");
        snprintf(statement, sizeof statement, "%.*s", (int)n, r->queue);
        memmove(r->queue, r->queue + n + (r->queue[n] == '\n'), strlen(r->queue + n + (r->queue[n] == '\n')) + 1);
        snprintf(title, sizeof title, "$ kc %s", statement);
        if (r->several)
            say(r, title);
        if (start(r, statement) && !r->code)
            r->code = 2;
    }
}

void runner_start(struct runner *r, const struct kc_home *home, const char *statements)
{
    runner_free(r);
    r->home = home;
    snprintf(r->queue, sizeof r->queue, "%s", statements);
    r->several = strchr(r->queue, '\n') != NULL;
    next(r);
}

/* It has ended, with this status of waitpid(). */
static void ended(struct runner *r, int status)
{
    const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    lines_flush(&r->lines, "");
    r->code = r->code ? r->code : code;
    if (*r->id)
        statements_end(r->home, r->id, code, (double)(kc_now() - r->began) * 1e-9);
    close(r->fd);
    r->fd = -1;
    r->pid = 0;
}

void runner_read(struct runner *r)
{
    char buffer[4096];
    int status = 10 << 8;
    if (!r->pid)
        return;
    ssize_t n;
    while ((n = read(r->fd, buffer, sizeof buffer)) > 0)
        lines_feed(&r->lines, "", buffer, (size_t)n);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    waitpid(r->pid, &status, 0); /* it has closed its output: it ends now */
    ended(r, status);
    next(r);
}

void runner_interrupt(struct runner *r)
{
    r->queue[0] = 0;
    if (r->pid)
        kill(r->pid, SIGINT);
}

/* Nothing of a job hangs on it, but it may have something of its own to clean up (kc bench). */
static void end(struct runner *r)
{
    char buffer[4096];
    int status = 10 << 8;
    uint64_t late = kc_now() + GRACE_NS;
    kill(r->pid, SIGINT);
    while (waitpid(r->pid, &status, WNOHANG) == 0) {
        struct pollfd p = {.fd = r->fd, .events = POLLIN};
        if (kc_now() > late)
            kill(r->pid, SIGKILL);
        poll(&p, 1, 10);
        if (read(r->fd, buffer, sizeof buffer) == 0) /* closed: its end is near */
            poll(NULL, 0, 1);
    }
    ended(r, status);
}

void runner_free(struct runner *r)
{
    if (r->pid)
        end(r);
    lines_free(&r->lines);
    *r = (struct runner){.fd = -1};
}
