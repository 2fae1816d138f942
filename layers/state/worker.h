/* worker.h - a thread that does one piece of work at a time, for who does not want to stand and wait for it. */
#ifndef KC_STATE_WORKER_H
#define KC_STATE_WORKER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

struct kc_worker {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake, done;
    void (*work)(void *arg); /* under the lock: what is under way; NULL: nothing */
    void *arg;
    _Atomic bool busy;       /* from kc_worker_run() until the work is done */
    bool made, end;
    void (*begin)(void *self); /* the thread's first act; NULL: none */
    void *self;
    int nice;
};

/* `begin` says on which processors it runs; `nice` how far it stands back behind threads that do not (0: not at all). -ENOMEM. */
int kc_worker_start(struct kc_worker *w, int nice, void (*begin)(void *self), void *self);
/* Waits for the work under way. One that was never started is fine. */
void kc_worker_stop(struct kc_worker *w);
/* Waits for the work under way, gives it the next. */
void kc_worker_run(struct kc_worker *w, void (*work)(void *arg), void *arg);
void kc_worker_wait(struct kc_worker *w);
static inline bool kc_worker_idle(const struct kc_worker *w)
{
    return !atomic_load_explicit(&w->busy, memory_order_acquire);
}

#endif
