/* bench_fit.c */
#include "bench_fit.h"

#include <string.h>

#define NO_BYTES 1e12 /* bytes a second where nothing was sent */
#define ALLOWED  1.1  /* what is named may take so much of the best */
#define MARGIN   1.01 /* a changed figure decides by a hundredth */
#define ROUNDS   256

void bench_fit(struct fit_way *way)
{
    struct fit_point small = way->point[0], large = way->point[way->count - 1];
    double wide = large.bytes - small.bytes, byte = 0, latency;
    if (wide > 0)
        byte = (large.seconds - small.seconds) / wide;
    latency = small.seconds - small.bytes * byte;
    if (latency < small.seconds / 2 || (wide <= 0 && small.bytes > 0)) {
        latency = small.seconds / 2;
        byte = (large.seconds - latency) / large.bytes;
    }
    if (byte <= 1 / NO_BYTES) { /* larger was no slower: noise; all is latency */
        latency = small.seconds;
        byte = 1 / NO_BYTES;
    }
    way->latency_ns = latency * 1e9 / way->steps;
    way->bytes_per_second = 1 / byte;
}

/* What the table says that a size takes: kc_comm_cost_ns(). */
static double cost(const struct fit_way *w, double bytes)
{
    return w->latency_ns * w->steps + bytes / w->bytes_per_second * 1e9;
}

/* Of all ways at one size: the one that the table names, and the one that was measured best. */
static void look(const struct fit_way *ways, size_t count, size_t size, size_t *named, size_t *best)
{
    *named = *best = 0;
    for (size_t i = 1; i < count; i++) {
        double bytes = ways[i].point[size].bytes;
        if (cost(&ways[i], bytes) < cost(&ways[*named], bytes))
            *named = i;
        if (ways[i].point[size].seconds < ways[*best].point[size].seconds)
            *best = i;
    }
}

/* How far the names are from the measured best, over all sizes; and the worst of them. */
static double regret(const struct fit_way *ways, size_t count, double *worst, size_t *at)
{
    double sum = 0;
    *worst = 1;
    *at = 0;
    for (size_t size = 0; size < ways[0].count; size++) {
        size_t named, best;
        look(ways, count, size, &named, &best);
        double ratio = ways[named].point[size].seconds / ways[best].point[size].seconds;
        sum += ratio > ALLOWED ? ratio - ALLOWED : 0;
        if (ratio > *worst)
            *worst = ratio, *at = size;
    }
    return sum;
}

/* One figure of the way such that `bytes` cost `ns`, if one does that. */
static void move(struct fit_way *w, int latency, double bytes, double ns)
{
    double moving = bytes / w->bytes_per_second * 1e9, waiting = w->latency_ns * w->steps;
    double rest = latency ? ns - moving : ns - waiting;
    if (rest > 0 && latency)
        w->latency_ns = rest / w->steps;
    else if (rest > 0 && bytes > 0)
        w->bytes_per_second = bytes / (rest * 1e-9);
}

/* Let the best of a size be what is named there: it becomes cheaper than the named one, or what is cheaper than it
 * becomes dearer, by latency or by bandwidth. */
static void change(struct fit_way *ways, size_t count, size_t size, int others, int latency)
{
    size_t named, best;
    look(ways, count, size, &named, &best);
    double bytes = ways[best].point[size].bytes, least = cost(&ways[best], bytes) * MARGIN;
    if (!others)
        move(&ways[best], latency, bytes, cost(&ways[named], bytes) / MARGIN);
    for (size_t i = 0; others && i < count; i++)
        if (i != best && cost(&ways[i], bytes) < least)
            move(&ways[i], latency, bytes, least);
}

/* The change that mends most; 0 if none helps. */
static int mend(struct fit_way *ways, size_t count)
{
    struct fit_way tried[FIT_WAYS], found[FIT_WAYS];
    double worst, first, least;
    size_t at, bytes = count * sizeof *ways;
    least = first = regret(ways, count, &worst, &at);
    for (size_t size = 0; size < ways[0].count; size++)
        for (int k = 0; k < 4; k++) {
            memcpy(tried, ways, bytes);
            change(tried, count, size, k / 2, k % 2);
            double now = regret(tried, count, &worst, &at);
            if (now < least) {
                least = now;
                memcpy(found, tried, bytes);
            }
        }
    if (least < first)
        memcpy(ways, found, bytes);
    return least < first;
}

double bench_fit_agree(struct fit_way *ways, size_t count, size_t *at)
{
    double worst = 1;
    size_t size = 0;
    for (int i = 0; i < ROUNDS && regret(ways, count, &worst, &size) > 0 && mend(ways, count); i++)
        ;
    regret(ways, count, &worst, &size);
    if (at)
        *at = size;
    return worst;
}
