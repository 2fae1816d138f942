/* thread.c */
#include "base/thread.h"

#include <signal.h>

int kc_thread_start(pthread_t *thread, void *(*run)(void *), void *arg)
{
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
    sigset_t block, before;
    sigfillset(&block);
    for (unsigned i = 0; i < sizeof faults / sizeof *faults; i++)
        sigdelset(&block, faults[i]);
    pthread_sigmask(SIG_SETMASK, &block, &before);
    int r = pthread_create(thread, NULL, run, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return -r;
}
