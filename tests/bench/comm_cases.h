/* comm_cases.h - what ours_comm.c and peer_mpi.c both do, so that their figures can be compared: the same sizes,
 * rounds, values, checks and median.
 *
 * `bytes` of a case: all-reduce, broadcast: the vector; send: one message, half of the way there and back;
 * reduce-scatter: the input of a rank; all-gather: the output of a rank; all-to-all: what a rank sends. In and out
 * lie apart. A round is timed by every rank from a barrier to its own end; the round took as long as its slowest
 * rank says. */
#ifndef BENCH_COMM_CASES_H
#define BENCH_COMM_CASES_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define SMALLEST ((size_t)1 << 10)
#define LARGEST ((size_t)256 << 20)
#define ROUNDS_MAX 400
#define ROUNDS_WARM 3

enum what { ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, BROADCAST, ALL_TO_ALL, SEND, BARRIER, WHATS };
static const char *const what_name[WHATS] = {"all-reduce", "all-gather", "reduce-scatter", "broadcast", "all-to-all",
                                             "send",       "barrier"};

static inline int rounds_of(size_t bytes)
{
    return bytes <= 1 << 20 ? ROUNDS_MAX : bytes <= 16 << 20 ? 40 : 9;
}

/* Elements of what one rank gives, and of what it gets. */
static inline size_t in_count(enum what w, size_t bytes, int ranks)
{
    return w == ALL_GATHER ? bytes / 4 / (size_t)ranks : bytes / 4;
}

static inline size_t out_count(enum what w, size_t bytes, int ranks)
{
    return w == REDUCE_SCATTER ? bytes / 4 / (size_t)ranks : bytes / 4;
}

/* Element i of what a rank gives: small whole numbers, so that sums are exact in any order. */
static inline float given(int rank, size_t i)
{
    return (float)(rank + 1 + (int)(i % 61));
}

static inline void fill(float *in, size_t count, int rank)
{
    for (size_t i = 0; i < count; i++)
        in[i] = given(rank, i);
}

static inline float expected(enum what w, size_t bytes, int ranks, int rank, size_t i)
{
    size_t part = bytes / 4 / (size_t)ranks;
    switch (w) {
    case ALL_REDUCE: return (float)ranks * (float)(i % 61) + (float)(ranks * (ranks + 1) / 2);
    case REDUCE_SCATTER: return expected(ALL_REDUCE, bytes, ranks, rank, (size_t)rank * part + i);
    case ALL_GATHER: return given((int)(i / part), i % part);
    case ALL_TO_ALL: return given((int)(i / part), (size_t)rank * part + i % part);
    case SEND: return given((rank ^ 1) < ranks ? rank ^ 1 : rank, i);
    default: return given(0, i);
    }
}

/* 0, or 1 + the first element that is wrong. */
static inline size_t wrong(enum what w, const float *out, size_t bytes, int ranks, int rank)
{
    for (size_t i = 0; w != BARRIER && i < out_count(w, bytes, ranks); i++) {
        if (out[i] != expected(w, bytes, ranks, rank, i))
            return i + 1;
    }
    return 0;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static inline double median(double *values, int count)
{
    qsort(values, (size_t)count, sizeof *values, by_value);
    return values[count / 2];
}

#endif
