/* bench_fit.h - from measured times to the two figures of a row of comm_costs. Pure. */
#ifndef KC_CONSOLE_BENCH_FIT_H
#define KC_CONSOLE_BENCH_FIT_H

#include <stddef.h>
#include <stdint.h>

struct fit_point {
    double bytes, seconds;
};

#define FIT_WAYS 8

/* One algorithm of a primitive: its times, by rising size, and the figures that stand for them. */
struct fit_way {
    struct fit_point point[32];
    size_t count;
    uint32_t steps;
    double latency_ns, bytes_per_second;
};

/* The latency a step and the bandwidth of seconds = latency · steps + bytes / bandwidth: the line
 * through the smallest size, which fixes the latency, and the largest, which fixes the bandwidth.
 * The latency is at least half of what the smallest took. `count` ≥ 1, `steps` ≥ 1, all seconds > 0.
 * Without a size that has bytes the bandwidth is as good as none to wait for. */
void bench_fit(struct fit_way *way);

/* Two figures are few: at sizes between, the cheapest by them may be one that was measured slower.
 * Changes figures of the ways (all of the same sizes, each with what bench_fit() made of it) until
 * at each size the one that the table would name, the first of the cheapest, took at most 1.1 of what the
 * best did, or until no change helps. At most FIT_WAYS of them. Returns the largest such ratio that is left, and
 * in *at (may be NULL) the index of its size. */
double bench_fit_agree(struct fit_way *ways, size_t count, size_t *at);

#endif
