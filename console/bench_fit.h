/* bench_fit.h - from measured times to the two figures of a row of comm_costs. Pure. */
#ifndef KC_CONSOLE_BENCH_FIT_H
#define KC_CONSOLE_BENCH_FIT_H

#include <stddef.h>
#include <stdint.h>

struct fit_point {
    double bytes, seconds;
};

/* The latency a step (≥ 0) and the bandwidth that come nearest to the points by seconds = latency ·
 * steps + bytes / bandwidth: least squares of the relative errors, so that small sizes count as
 * much as large ones. `count` ≥ 1, `steps` ≥ 1, all seconds > 0. Without a point that has bytes the
 * bandwidth is as good as none to wait for. */
void bench_fit(const struct fit_point *points, size_t count, uint32_t steps, double *latency_ns,
               double *bytes_per_second);

#endif
