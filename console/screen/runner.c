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

int runner_start(struct runner *r, const char *statement)
{
    char line[1024];
    const char *word[STATEMENT_WORDS + 2];
    size_t count = 0;
    int fd;
    struct kc_error e = {""};
    runner_free(r);
    r->code = 2;
    snprintf(line, sizeof line, "%s", statement);
    if (words_split(line, word + 1, STATEMENT_WORDS, &count, &e)) {
        say(r, e.text);
        return -EINVAL;
    }
    word[0] = "kc";
    word[count + 1] = NULL;
    const char **from = count && !strcmp(word[1], "kc") ? word + 1 : word; /* typed with its name */
    pid_t pid = child_start(from, true, false, &fd);
    if (pid < 0)
        return (int)pid;
    r->pid = pid;
    r->fd = fd;
    return 0;
}

void runner_read(struct runner *r)
{
    char buffer[4096];
    int status = 0;
    if (!r->pid)
        return;
    ssize_t n;
    while ((n = read(r->fd, buffer, sizeof buffer)) > 0)
        lines_feed(&r->lines, "", buffer, (size_t)n);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    /* It has closed its output: it ends now. */
    pid_t rc = waitpid(r->pid, &status, 0);
    lines_flush(&r->lines, "");
    r->code = rc != r->pid ? 10 : WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    close(r->fd);
    r->fd = -1;
    r->pid = 0;
}

void runner_interrupt(struct runner *r)
{
    if (r->pid)
        kill(r->pid, SIGINT);
}

/* Nothing of a job hangs on it, but it may have something of its own to clean up (kc bench). */
static void end(struct runner *r)
{
    char buffer[4096];
    uint64_t late = kc_now() + GRACE_NS;
    kill(r->pid, SIGINT);
    while (waitpid(r->pid, NULL, WNOHANG) == 0) {
        struct pollfd p = {.fd = r->fd, .events = POLLIN};
        if (kc_now() > late)
            kill(r->pid, SIGKILL);
        poll(&p, 1, 10);
        if (read(r->fd, buffer, sizeof buffer) == 0) /* closed: its end is near */
            poll(NULL, 0, 1);
    }
    close(r->fd);
}

void runner_free(struct runner *r)
{
    if (r->pid)
        end(r);
    lines_free(&r->lines);
    *r = (struct runner){.fd = -1};
}
