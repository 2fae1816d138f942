/* team.c - see team.h. One round a grid: the leader publishes tile, argument and count, raises `round`, works along,
 * and waits until every worker has reported that round. So a worker can never take a tile of an old grid. */
#include "team.h"

#include "base/thread.h"

#include "progress.h"

#include "shm/probe.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct worker {
    struct kc_team *team;
    uint32_t number; /* 1 …; the leader is 0 */
    pthread_t thread;
    struct kc_progress_word reported __attribute__((aligned(64))); /* the last round it has finished */
};

struct kc_team {
    struct kc_lane lane;
    struct kc_probe *probe;
    uint32_t spins, workers; /* without the leader */
    /* The grid of this round. Written by the leader before it raises `round`, read by workers after they saw it. */
    void (*tile)(void *argument, uint32_t index, uint32_t worker);
    unsigned char argument[KC_LANE_ARG_MAX] __attribute__((aligned(64)));
    uint32_t tiles, rounds;
    _Atomic uint32_t next __attribute__((aligned(64))); /* the next tile that nobody has */
    struct kc_progress_word round __attribute__((aligned(64)));
    struct worker worker[];
};

static void work(struct kc_team *t, uint32_t number)
{
    uint32_t index;
    while ((index = atomic_fetch_add_explicit(&t->next, 1, memory_order_relaxed)) < t->tiles)
        t->tile(t->argument, index, number);
}

static void *worker_main(void *argument)
{
    struct worker *w = argument;
    struct kc_team *t = w->team;
    kc_thread_name("kc-compute");
    for (uint32_t round = 1;; round++) {
        if (!kc_progress_spin(&t->round, round, t->spins))
            kc_progress_sleep(&t->round, round);
        if (kc_progress_failed(&t->round))
            return NULL;
        work(t, w->number);
        kc_progress_set(&w->reported, round);
    }
}

static int team_enqueue(struct kc_lane *lane, void (*tile)(void *, uint32_t, uint32_t), const void *argument,
                        size_t bytes, uint32_t tiles)
{
    struct kc_team *t = lane->self;
    if (bytes > KC_LANE_ARG_MAX)
        return -EINVAL;
    memcpy(t->argument, argument, bytes);
    t->tile = tile;
    t->tiles = tiles;
    if (t->workers == 0 || tiles < 2) {
        for (uint32_t i = 0; i < tiles; i++)
            tile(t->argument, i, 0);
        return 0;
    }
    atomic_store_explicit(&t->next, 0, memory_order_relaxed);
    kc_progress_set(&t->round, ++t->rounds);
    work(t, 0);
    for (uint32_t i = 0; i < t->workers; i++) {
        if (kc_progress_spin(&t->worker[i].reported, t->rounds, t->spins))
            continue;
        int token = kc_probe_wait_begin(t->probe, KC_WAIT_TEAM, KC_NO_GROUP, 0);
        kc_progress_sleep(&t->worker[i].reported, t->rounds);
        kc_probe_wait_end(t->probe, token);
    }
    return 0;
}

int kc_team_new(uint32_t threads, uint32_t spins, struct kc_probe *probe, struct kc_team **out)
{
    if (threads == 0)
        return -EINVAL;
    size_t bytes = sizeof(struct kc_team) + (threads - 1) * sizeof(struct worker);
    struct kc_team *t = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (!t)
        return -ENOMEM;
    memset(t, 0, bytes);
    t->lane = (struct kc_lane){.self = t, .workers = threads, .enqueue = team_enqueue};
    t->probe = probe;
    t->spins = spins;
    int r = 0;
    for (uint32_t i = 0; i < threads - 1 && r == 0; i++) {
        t->worker[i].team = t;
        t->worker[i].number = i + 1;
        r = kc_thread_start(&t->worker[i].thread, worker_main, &t->worker[i]);
        t->workers += r == 0;
    }
    if (r < 0) {
        kc_team_free(t);
        return r;
    }
    *out = t;
    return 0;
}

void kc_team_free(struct kc_team *t)
{
    if (!t)
        return;
    kc_progress_fail(&t->round);
    for (uint32_t i = 0; i < t->workers; i++)
        pthread_join(t->worker[i].thread, NULL);
    free(t);
}

struct kc_lane *kc_team_lane(struct kc_team *t)
{
    return &t->lane;
}
