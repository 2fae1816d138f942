/* comm_world.h - several ranks over real windows in one test: as threads (one shared mapping of each window, so
 * that the thread sanitizer sees what they share) or as forked processes (each maps for itself). */
#ifndef TESTS_COMM_WORLD_H
#define TESTS_COMM_WORLD_H

#include "comm/comm.h"

#include <stdatomic.h>

struct world {
    uint32_t ranks, slots;
    size_t data_bytes;
    bool spin_short;
    void *arg;
    /* filled by world_run */
    _Atomic int failures;
    char failure[1200]; /* the first one */
    struct kc_probe *probe[KC_RANKS_MAX];
    int fds[KC_RANKS_MAX];
    void *mapped[KC_RANKS_MAX];
};

struct world_rank {
    struct world *world; /* in shared memory */
    uint32_t rank, ranks;
    struct kc_transport *t;
    struct kc_group *all; /* id 0, slot 0: all ranks */
    struct kc_error e;
    void *arg;
};

/* Note a failure and abort the world, so that nobody waits for a rank that has given up. */
void world_fail(struct world_rank *w, const char *format, ...) __attribute__((format(printf, 2, 3)));
#define WORLD_CHECK(w, condition, ...)                                                                               \
    do {                                                                                                             \
        if (!(condition)) {                                                                                          \
            world_fail(w, __VA_ARGS__);                                                                              \
            return;                                                                                                  \
        }                                                                                                            \
    } while (0)

/* Ranks of the next runs that can't read the memory of others, a bit each: as where the kernel forbids it. */
extern uint64_t world_blind;
/* Run `body` as every rank; returns the first failure's text, or NULL. The text lives until the next run. */
const char *world_run(uint32_t ranks, uint32_t slots, size_t data_bytes, bool forked,
                      void (*body)(struct world_rank *), void *arg);

#endif
