/* child.c */
#include "child.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <unistd.h>

#define CODE_SYSTEM 10

static bool allowed;

void child_allow(void)
{
    allowed = true;
}

static void become(int out, const char *const *word, bool complaints, bool bound, pid_t parent)
{
    struct sigaction plain = {.sa_handler = SIG_DFL};
    static const int reset[] = {SIGTERM, SIGINT, SIGHUP, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGWINCH, SIGTSTP};
    const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
    const int nowhere = complaints ? out : open("/dev/null", O_WRONLY | O_CLOEXEC);
    for (size_t i = 0; i < sizeof reset / sizeof reset[0]; i++)
        sigaction(reset[i], &plain, NULL);
    setpgid(0, 0);
    if (bound && (prctl(PR_SET_PDEATHSIG, SIGTERM) || getppid() != parent))
        _exit(CODE_SYSTEM);
    if (nothing < 0 || nowhere < 0 || dup2(nothing, STDIN_FILENO) < 0 || dup2(out, STDOUT_FILENO) < 0 ||
        dup2(nowhere, STDERR_FILENO) < 0)
        _exit(CODE_SYSTEM);
    execv("/proc/self/exe", (char *const *)(uintptr_t)word);
    _exit(CODE_SYSTEM);
}

pid_t child_start(const char *const *word, bool complaints, bool bound, int *fd)
{
    int pipes[2];
    const pid_t parent = getpid();
    if (!allowed)
        return -ENOSYS;
    if (pipe2(pipes, O_CLOEXEC))
        return -errno;
    pid_t pid = fork();
    if (pid == 0)
        become(pipes[1], word, complaints, bound, parent);
    int error = errno;
    close(pipes[1]);
    if (pid < 0) {
        close(pipes[0]);
        return -error;
    }
    fcntl(pipes[0], F_SETFL, O_NONBLOCK);
    *fd = pipes[0];
    return pid;
}
