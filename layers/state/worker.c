/* worker.c - a thread that sleeps until there is work. */
#include "worker.h"

#include "base/thread.h"

#include <sys/resource.h>

static void *run(void *arg)
{
    struct kc_worker *w = arg;
    if (w->begin)
        w->begin(w->self);
    if (w->nice)
        setpriority(PRIO_PROCESS, 0, w->nice); /* of this thread alone, on Linux; a wish */
    pthread_mutex_lock(&w->lock);
    for (;;) {
        while (!w->work && !w->end)
            pthread_cond_wait(&w->wake, &w->lock);
        if (!w->work)
            break;
        pthread_mutex_unlock(&w->lock);
        w->work(w->arg); /* it stays there until it is done: nobody else changes it */
        pthread_mutex_lock(&w->lock);
        w->work = NULL;
        atomic_store_explicit(&w->busy, false, memory_order_release);
        pthread_cond_broadcast(&w->done);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

int kc_worker_start(struct kc_worker *w, int nice, void (*begin)(void *self), void *self)
{
    *w = (struct kc_worker){.begin = begin, .self = self, .nice = nice};
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->wake, NULL);
    pthread_cond_init(&w->done, NULL);
    int r = kc_thread_start(&w->thread, run, w);
    if (r < 0) {
        pthread_cond_destroy(&w->done);
        pthread_cond_destroy(&w->wake);
        pthread_mutex_destroy(&w->lock);
    }
    w->made = r == 0;
    return r;
}

void kc_worker_stop(struct kc_worker *w)
{
    if (!w->made)
        return;
    pthread_mutex_lock(&w->lock);
    w->end = true;
    pthread_cond_signal(&w->wake);
    pthread_mutex_unlock(&w->lock);
    pthread_join(w->thread, NULL);
    pthread_cond_destroy(&w->done);
    pthread_cond_destroy(&w->wake);
    pthread_mutex_destroy(&w->lock);
    w->made = false;
}

void kc_worker_run(struct kc_worker *w, void (*work)(void *arg), void *arg)
{
    pthread_mutex_lock(&w->lock);
    while (w->work)
        pthread_cond_wait(&w->done, &w->lock);
    w->work = work;
    w->arg = arg;
    atomic_store_explicit(&w->busy, true, memory_order_release);
    pthread_cond_signal(&w->wake);
    pthread_mutex_unlock(&w->lock);
}

void kc_worker_wait(struct kc_worker *w)
{
    pthread_mutex_lock(&w->lock);
    while (w->work)
        pthread_cond_wait(&w->done, &w->lock);
    pthread_mutex_unlock(&w->lock);
}
