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

/* Steps in which ranks wait for each other: direct publishes and then reads (2); a ring passes n − 1 times, for all-reduce
 * twice (reduce-scatter, then all-gather); a tree has ⌈log2 n⌉ levels, for all-reduce twice (up, then down). */
static inline double kc_comm_cost_ns(const struct kc_comm_cost *row, uint32_t ranks, uint64_t bytes)
{
    uint32_t steps = ranks < 2 ? 0 : 2;
    if (row->algorithm == KC_RING && ranks > 1)
        steps = (ranks - 1) * (row->primitive == KC_ALL_REDUCE ? 2 : 1);
    if (row->algorithm == KC_TREE && ranks > 1)
        steps = (32 - (uint32_t)__builtin_clz(ranks - 1)) * (row->primitive == KC_ALL_REDUCE ? 2 : 1);
    return row->latency_ns * steps + (double)bytes / row->bytes_per_second * 1e9;
}

extern const struct kc_layout kc_comm_costs_layout;

#endif
