/* probe_impl.h - what a probe is, for the files of this room that implement it. */
#ifndef KC_SHM_PROBE_IMPL_H
#define KC_SHM_PROBE_IMPL_H

#include "record.h"
#include "shm/board.h"
#include "shm/probe.h"
#include "shm/segment.h"

/* An anonymous board, shared by the probes of a process. */
struct private_board {
    struct kc_job_segment *board;
    size_t bytes;
    _Atomic uint32_t users;
};

/* In the rank's own memory: a lock or a claim that lies here dies with it. */
struct kc_probe {
    struct kc_job_segment *board;
    struct kc_rank_slot *slot;
    struct kc_leader_area *leader;  /* rank 0; else NULL */
    struct kc_segment segment;      /* fd -1: private */
    struct private_board *shared;   /* private; else NULL */
    uint32_t rank, ranks, incarnation;
    int keeper;                     /* pidfd; -1: none, or the kernel has none */
    uint32_t keeper_pid;            /* 0: none */
    uint64_t keeper_start;
    uint64_t first_op, first_event; /* of this incarnation */
    _Atomic uint32_t waits_taken;   /* a bit per wait slot that a thread of ours owns */
    _Atomic uint32_t words_said;
};

/* status = step << 16 | phase << 8 | state */
#define STATUS_STATE(s) ((uint32_t)(s) & 0xff)
#define STATUS_PHASE(s) ((uint32_t)((s) >> 8) & 0xff)
#define STATUS_STEP(s) ((s) >> 16)

/* Change the part of the status word under `mask`; returns the word before. Async-signal-safe. */
uint64_t probe_status(struct kc_probe *p, uint64_t mask, uint64_t value);

/* Metric blocks, for ranks and keeper alike. */
void metric_set(struct kc_metric_block *b, uint32_t m, double value);
void metric_add(struct kc_metric_block *b, uint32_t m, double amount);
void metric_unset(struct kc_metric_block *b, uint32_t m);
void metric_clear(struct kc_metric_block *b);

/* Doorbells, for ranks and keeper alike. */
void bell_ring(struct kc_bell *b);
/* CAS from 0; returns what stands then. */
uint64_t abort_once(struct kc_job_segment *board, uint32_t rank, enum kc_reason reason);

#endif
