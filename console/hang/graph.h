/* graph.h - who waits for whom, over all groups and messages at once. Pure: sets of ranks, a bit each.
 *
 * A rank waits for all that it waits for, never for one of several; so a circle can't come loose by itself. */
#ifndef KC_CONSOLE_HANG_GRAPH_H
#define KC_CONSOLE_HANG_GRAPH_H

#include "match.h"

struct kc_graph {
    uint64_t edge[KC_RANKS_MAX];  /* that a rank waits for, directly */
    uint64_t reach[KC_RANKS_MAX]; /* and through others */
    uint64_t waiting;             /* ranks that wait for somebody */
    uint64_t roots;               /* that somebody waits for, and that wait for nobody */
    uint64_t circles;             /* ranks that wait for themselves in the end */
};

/* `held`: ranks that go on for nobody's sake, whatever they wait for (dead, stopped): they are roots. `maybe`: count what
 * is not known for certain as well. */
void kc_graph(const struct kc_match *m, uint64_t held, bool maybe, struct kc_graph *out);

/* The ranks that wait for themselves in one circle with `r`, which is one of circles. */
uint64_t kc_graph_circle(const struct kc_graph *g, uint32_t r);
/* A shortest way round from `r` back to it: its ranks in order, at most KC_RANKS_MAX. Returns how many. */
uint32_t kc_graph_round(const struct kc_graph *g, uint32_t r, uint8_t out[KC_RANKS_MAX]);
/* The ranks that wait for `r`, also through others. */
uint64_t kc_graph_victims(const struct kc_graph *g, uint32_t r);

#endif
