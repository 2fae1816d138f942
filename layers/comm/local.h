/* local.h - one rank's end of the transport over memory windows: the mappings, who sleeps, and how to wake. */
#ifndef COMM_LOCAL_H
#define COMM_LOCAL_H

#include "comm/comm.h"
#include "shm/probe.h"
#include "window.h"

struct slot; /* group.h */

struct peer {
    void *window;
    size_t window_bytes; /* 0: not mapped by us */
    uint8_t *data;
    size_t data_bytes;   /* checked against the file's size once, never read from shared memory again */
    _Atomic uint32_t *sleepers;
    int32_t pid;
};

/* What a rank knows of its node. Fixed after construction, but for `slot`, which kc_group_new fills. */
struct kc_transport {
    uint32_t rank, ranks, slots;
    bool spin_short;
    bool wide; /* the processor has what reduce_avx2.c needs */
    uint64_t generation;
    uint64_t token; /* peers try whether they can read our memory here */
    uint64_t reach; /* ranks whose own memory we can read, a bit each */
    size_t data_at;
    const _Atomic uint64_t *abort;
    struct kc_probe *probe;
    struct slot *slot[KC_COMM_SLOTS_MAX];
    struct peer peer[KC_RANKS_MAX];
};

/* 0, or the code of the abort. */
static inline uint64_t transport_aborted(const struct kc_transport *t)
{
    return atomic_load_explicit(t->abort, memory_order_acquire);
}

/* Wake a rank if one of its threads sleeps. Call behind transport_fence(). */
static inline void transport_ring(const struct kc_transport *t, uint32_t rank)
{
    if (atomic_load(t->peer[rank].sleepers))
        kc_probe_bell_ring(t->probe, rank);
}

static inline void transport_fence(void)
{
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wtsan" /* it does not see the fence; what it needs to see is the release */
#endif
    atomic_thread_fence(memory_order_seq_cst);
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif
}

/* Store what peers may wait for, and all that was written before it. Who sleeps on it must be rung for afterwards,
 * behind a fence that orders this before the look at their `sleepers`. */
static inline void transport_publish(_Atomic uint64_t *word, uint64_t value)
{
    atomic_store_explicit(word, value, memory_order_release);
}

/* Going to sleep: begin, look once more at all that is waited for, sleep if it still is not there, end. */
uint32_t transport_sleep_begin(const struct kc_transport *t);
void transport_sleep(const struct kc_transport *t, uint32_t seen, uint64_t deadline); /* ≤ 200 ms */
void transport_sleep_end(const struct kc_transport *t);

#endif
