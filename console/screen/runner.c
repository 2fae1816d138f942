/* runner.c */
#include "runner.h"

#include "console/command.h"
#include "console/words.h"

#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
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

static void child(int out, const char **word)
{
    struct sigaction plain = {.sa_handler = SIG_DFL};
    static const int reset[] = {SIGTERM, SIGINT, SIGHUP, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGWINCH, SIGTSTP};
    int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
    for (size_t i = 0; i < sizeof reset / sizeof reset[0]; i++)
        sigaction(reset[i], &plain, NULL);
    setpgid(0, 0); /* a Ctrl-C on the terminal is for the screen */
    if (nothing < 0 || dup2(nothing, STDIN_FILENO) < 0 || dup2(out, STDOUT_FILENO) < 0 ||
        dup2(out, STDERR_FILENO) < 0)
        _exit(10);
    execv("/proc/self/exe", (char *const *)(uintptr_t)word);
    _exit(10);
}

int runner_start(struct runner *r, const char *statement)
{
    char line[1024];
    const char *word[STATEMENT_WORDS + 2];
    size_t count = 0;
    int pipes[2];
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
    if (pipe2(pipes, O_CLOEXEC))
        return -errno;
    pid_t pid = fork();
    if (pid == 0)
        child(pipes[1], from);
    int error = errno;
    close(pipes[1]);
    if (pid < 0) {
        close(pipes[0]);
        return -error;
    }
    fcntl(pipes[0], F_SETFL, O_NONBLOCK);
    r->pid = pid;
    r->fd = pipes[0];
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
