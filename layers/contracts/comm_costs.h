/* comm_costs.h - what a collective costs between devices of a distance: the table from which strategy names algorithms.
 * Stored figures, never live timing: the same table gives the same plan (DESIGN §7, determinism).
 * Writer: resource. Readers: strategy, govern, engine, supervisor, console. */
#ifndef KC_CONTRACTS_COMM_COSTS_H
#define KC_CONTRACTS_COMM_COSTS_H

#include "base/contract.h"
#include "contracts/types.h"

#define KC_COMM_COSTS_VERSION 1

/* One operation on B payload bytes a rank is estimated at latency_ns · steps + B / bytes_per_second · 1e9 nanoseconds; see
 * kc_comm_cost_ns(). Of the rows that fit (primitive, algorithm, distance, ranks ≤ ranks_max) the first one holds: rows of
 * one kind stand by rising ranks_max. A distance without rows has no transport. The distance of a group is the largest
 * between two of its members. */
struct kc_comm_cost {
    uint8_t primitive, algorithm, distance, pad; /* enums kc_primitive, kc_algorithm, kc_distance */
    uint32_t ranks_max;  /* the row holds for groups up to this size */
    double latency_ns;   /* per operation and step of the algorithm */
    double bytes_per_second; /* payload bytes of one rank over the whole operation */
};

struct kc_comm_costs {
    struct kc_contract head;
    struct kc_span rows; /* struct kc_comm_cost */
};

/* Steps in which ranks wait for each other: an all-reduce has two halves (reduce-scatter, then all-gather), all others one;
 * direct takes one step a half, a ring passes n − 1 times, a tree has ⌈log2 n⌉ levels (an all-reduce goes up, then down). */
static inline uint32_t kc_comm_cost_steps(uint8_t primitive, uint8_t algorithm, uint32_t ranks)
{
    uint32_t halves = primitive == KC_ALL_REDUCE ? 2 : 1;
    if (ranks < 2)
        return 0;
    if (algorithm == KC_TREE)
        return halves * (32 - (uint32_t)__builtin_clz(ranks - 1));
    return algorithm == KC_RING ? halves * (ranks - 1) : halves;
}

static inline double kc_comm_cost_ns(const struct kc_comm_cost *row, uint32_t ranks, uint64_t bytes)
{
    return row->latency_ns * kc_comm_cost_steps(row->primitive, row->algorithm, ranks) +
           (double)bytes / row->bytes_per_second * 1e9;
}

extern const struct kc_layout kc_comm_costs_layout;

#endif
