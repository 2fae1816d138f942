/* disk_threads.c - writes under way in threads: a ring of writes, taken in order. */
#include "disk.h"

#include "base/thread.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>

#define THREADS 4

struct pool {
    pthread_t thread[THREADS];
    uint32_t threads;
    pthread_mutex_t lock;
    pthread_cond_t work, done; /* there is something to take or to end for; a write is done */
    struct kc_write *ring[KC_DISK_DEPTH];
    uint64_t put, taken, finished;
    int failed;                /* first error since the last wait */
    bool end;
};

static ssize_t write_one(const struct kc_write *w)
{
    const size_t bytes = w->bytes < KC_WRITE_MOST ? w->bytes : KC_WRITE_MOST;
    return kc_storage_posix.write(NULL, w->fd, w->data, bytes, w->at);
}

static void *run(void *arg)
{
    struct pool *p = arg;
    kc_thread_name("kc-disk");
    pthread_mutex_lock(&p->lock);
    for (;;) {
        while (p->taken == p->put && !p->end)
            pthread_cond_wait(&p->work, &p->lock);
        if (p->taken == p->put)
            break;
        struct kc_write *w = p->ring[p->taken++ % KC_DISK_DEPTH];
        pthread_mutex_unlock(&p->lock);
        const ssize_t n = write_one(w);
        pthread_mutex_lock(&p->lock);
        w->result = n;
        w->done = true;
        if (n < 0 && !p->failed)
            p->failed = (int)n;
        p->finished++;
        pthread_cond_signal(&p->done);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

static void pool_close(void *self)
{
    struct pool *p = self;
    pthread_mutex_lock(&p->lock);
    p->end = true;
    pthread_cond_broadcast(&p->work);
    pthread_mutex_unlock(&p->lock);
    for (uint32_t i = 0; i < p->threads; i++)
        pthread_join(p->thread[i], NULL);
    pthread_cond_destroy(&p->done);
    pthread_cond_destroy(&p->work);
    pthread_mutex_destroy(&p->lock);
    free(p);
}

static int pool_open(void **self)
{
    struct pool *p = calloc(1, sizeof *p);
    int r = p ? 0 : -ENOMEM;
    if (!p)
        return r;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->work, NULL);
    pthread_cond_init(&p->done, NULL);
    while (p->threads < THREADS && (r = kc_thread_start(&p->thread[p->threads], run, p)) == 0)
        p->threads++;
    if (p->threads == 0) { /* one is enough */
        pool_close(p);
        return r;
    }
    *self = p;
    return 0;
}

static int pool_submit(void *self, struct kc_write *w)
{
    struct pool *p = self;
    pthread_mutex_lock(&p->lock);
    while (p->put - p->finished >= KC_DISK_DEPTH)
        pthread_cond_wait(&p->done, &p->lock);
    p->ring[p->put++ % KC_DISK_DEPTH] = w;
    const int failed = p->failed;
    pthread_cond_signal(&p->work);
    pthread_mutex_unlock(&p->lock);
    return failed;
}

static void pool_wait(void *self)
{
    struct pool *p = self;
    pthread_mutex_lock(&p->lock);
    while (p->finished < p->put)
        pthread_cond_wait(&p->done, &p->lock);
    p->failed = 0;
    pthread_mutex_unlock(&p->lock);
}

static void pool_wait_for(void *self, const struct kc_write *w)
{
    struct pool *p = self;
    pthread_mutex_lock(&p->lock);
    while (!w->done)
        pthread_cond_wait(&p->done, &p->lock);
    pthread_mutex_unlock(&p->lock);
}

const struct kc_way kc_way_threads = {
    .name = "threads", .open = pool_open, .submit = pool_submit, .wait = pool_wait, .wait_for = pool_wait_for,
    .close = pool_close};
