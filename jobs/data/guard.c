/* guard.c - the one place that handles SIGBUS for mapped files. The handler touches thread-local data and jumps;
 * it takes no lock and allocates nothing. */
#include "guard.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <ucontext.h>

static _Thread_local sigjmp_buf *volatile landing; /* where this thread's guarded work returns to; NULL outside */

/* The handler before ours. Two slots: a new one is written beside the old one and then published, because a SIGBUS
 * may arrive in another thread at any time. */
static struct sigaction before[2];
static _Atomic int current;
static _Atomic bool standing; /* ours was installed at least once */
static pthread_mutex_t install_lock = PTHREAD_MUTEX_INITIALIZER;

static void on_bus(int number, siginfo_t *info, void *context)
{
    if (landing) {
        /* The jump leaves the handler without the kernel's return path, which would restore the mask. Done here,
         * where it costs nothing until something is lost, and not in sigsetjmp(), where it would be a system call
         * a time. */
        pthread_sigmask(SIG_SETMASK, &((ucontext_t *)context)->uc_sigmask, NULL);
        siglongjmp(*landing, 1);
    }
    /* Not ours: put back who was here before us and run the instruction again. The kernel then calls that handler itself, with
     * its mask and flags. A signal that somebody sent does not come again by itself. */
    sigaction(SIGBUS, &before[atomic_load(&current)], NULL);
    if (info->si_code <= 0)
        raise(number);
}

static bool is_ours(const struct sigaction *s)
{
    return (s->sa_flags & SA_SIGINFO) && s->sa_sigaction == on_bus;
}

int guard_renew(void)
{
    struct sigaction now;
    if (sigaction(SIGBUS, NULL, &now) != 0)
        return -errno;
    if (is_ours(&now))
        return 0;
    pthread_mutex_lock(&install_lock);
    int r = sigaction(SIGBUS, NULL, &now) == 0 ? 0 : -errno;
    if (r == 0 && !is_ours(&now)) {
        int next = 1 - atomic_load(&current);
        before[next] = now;
        atomic_store(&current, next);
        /* ONSTACK: if the thread has a signal stack, the handler before us expects to run on it. */
        struct sigaction ours = {.sa_sigaction = on_bus, .sa_flags = SA_SIGINFO | SA_ONSTACK};
        sigemptyset(&ours.sa_mask);
        r = sigaction(SIGBUS, &ours, NULL) == 0 ? 0 : -errno;
    }
    if (r == 0)
        atomic_store(&standing, true);
    pthread_mutex_unlock(&install_lock);
    return r;
}

int guard_run(void (*work)(void *arg), void *arg)
{
    sigjmp_buf here;
    int r = atomic_load(&standing) ? 0 : guard_renew();
    if (r < 0)
        return r;
    if (sigsetjmp(here, 0) != 0) {
        landing = NULL;
        return -EIO;
    }
    landing = &here;
    work(arg);
    landing = NULL;
    return 0;
}
