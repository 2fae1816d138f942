/* thread.c - a thread's start block holds its signal stack: kernels may borrow the stack pointer for other things, and a
 * fault must still find room to be told. */
#include "base/thread.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

struct start {
    void *(*run)(void *);
    void *arg;
    unsigned char signal_stack[64 << 10];
};

static void *begin(void *block)
{
    struct start *s = block;
    const stack_t on = {.ss_sp = s->signal_stack, .ss_size = sizeof s->signal_stack}, off = {.ss_flags = SS_DISABLE};
    sigaltstack(&on, NULL);
    void *result = s->run(s->arg);
    sigaltstack(&off, NULL);
    free(s);
    return result;
}

void kc_thread_name(const char *name)
{
    char cut[16];
    snprintf(cut, sizeof cut, "%.15s", name);
    pthread_setname_np(pthread_self(), cut);
}

int kc_thread_start(pthread_t *thread, void *(*run)(void *), void *arg)
{
    const int taken[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, KC_THREAD_ASK};
    sigset_t block, before;
    struct start *s = malloc(sizeof *s);
    if (!s)
        return -ENOMEM;
    s->run = run;
    s->arg = arg;
    sigfillset(&block);
    for (unsigned i = 0; i < sizeof taken / sizeof *taken; i++)
        sigdelset(&block, taken[i]);
    pthread_sigmask(SIG_SETMASK, &block, &before);
    int r = pthread_create(thread, NULL, begin, s);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (r != 0)
        free(s);
    return -r;
}
