/* trace_compare.h - where two traces differ first. Pure but for the memory that it allocates.
 *
 * If both ran the same instructions on the same parts, every row is compared bit by bit, by its digest. Else what the ranks
 * of each hold of a tensor at the end is joined by place, where that gives the tensor once and whole, and the figures
 * of both are compared: a sum of values is as large as √(count · Σx²) at most, of which a share is what may differ. */
#ifndef KC_CONSOLE_TRACE_COMPARE_H
#define KC_CONSOLE_TRACE_COMPARE_H

#include "trace_file.h"

#include <stdbool.h>

#define TRACE_TOLERANCE 1e-4

/* One side of what differs. */
struct trace_side {
    const struct kc_traced *row; /* the first of its parts; borrowed from the trace */
    uint32_t rank, parts;
    uint64_t count, digest, nonfinite;
    double sum, squares, largest; /* of all parts together */
};
struct trace_difference {
    bool same;
    bool bits;          /* compared bit by bit */
    double tolerance;   /* NaN: bits */
    uint32_t compared;  /* rows, or tensors */
    uint32_t left_out;  /* tensors that only one has, or that its parts do not give once and whole */
    uint32_t differ;
    double relative;    /* how far the first is off, as a share; NaN: by bits */
    struct trace_side a, b; /* the first in the order of A's instructions, of ranks the lowest */
};

/* tolerance NaN: bits where they can be compared, else TRACE_TOLERANCE; a number: figures in any case, within it. -ENOMEM. */
int trace_compare(const struct trace *a, const struct trace *b, double tolerance, struct trace_difference *out);

#endif
