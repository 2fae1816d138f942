/* graph.c - sets of at most 64 ranks are words, so all of this is a few thousand steps. */
#include "graph.h"

#include <string.h>

/* In an operation that all have come to nobody waits for an arrival; but who can't go on holds up those that are in it. */
static void inside(const struct kc_match *m, uint64_t held, struct kc_graph *g)
{
    for (uint32_t i = 0; i < m->count; i++) {
        const struct kc_match_op *o = &m->op[i];
        const uint64_t stuck = (o->open | o->cut) & held;
        for (KC_EACH(r, o->open & ~held))
            g->edge[r] |= stuck;
    }
}

static void close_over(struct kc_graph *g)
{
    memcpy(g->reach, g->edge, sizeof g->reach);
    for (uint32_t k = 0; k < KC_RANKS_MAX; k++)
        for (uint32_t r = 0; r < KC_RANKS_MAX; r++)
            if (g->reach[r] >> k & 1)
                g->reach[r] |= g->reach[k];
}

void kc_graph(const struct kc_match *m, uint64_t held, bool maybe, struct kc_graph *out)
{
    uint64_t wanted = 0;
    memset(out, 0, sizeof *out);
    for (uint32_t r = 0; r < KC_RANKS_MAX; r++)
        if (!(held >> r & 1))
            out->edge[r] = m->stands[r] | (maybe ? m->maybe[r] : 0);
    inside(m, held, out);
    close_over(out);
    for (uint32_t r = 0; r < KC_RANKS_MAX; r++) {
        wanted |= out->edge[r];
        out->waiting |= out->edge[r] ? KC_BIT(r) : 0;
        out->circles |= out->reach[r] & KC_BIT(r);
    }
    out->roots = wanted & ~out->waiting;
}

uint64_t kc_graph_circle(const struct kc_graph *g, uint32_t r)
{
    uint64_t circle = 0;
    for (KC_EACH(k, g->reach[r]))
        circle |= g->reach[k] & KC_BIT(r) ? KC_BIT(k) : 0;
    return circle;
}

uint32_t kc_graph_round(const struct kc_graph *g, uint32_t r, uint8_t out[KC_RANKS_MAX])
{
    uint8_t from[KC_RANKS_MAX] = {0}, queue[KC_RANKS_MAX];
    uint64_t seen = 0;
    uint32_t head = 0, tail = 0, count = 0, last = r;
    queue[tail++] = (uint8_t)r;
    while (head < tail) { /* breadth first, until somebody waits for r again */
        last = queue[head++];
        if (g->edge[last] >> r & 1)
            break;
        for (KC_EACH(k, g->edge[last] & ~seen & ~KC_BIT(r))) {
            seen |= KC_BIT(k);
            from[k] = (uint8_t)last;
            queue[tail++] = (uint8_t)k;
        }
    }
    for (uint32_t k = last; k != r; k = from[k])
        count++;
    for (uint32_t k = last, i = count; i > 0; k = from[k])
        out[i--] = (uint8_t)k;
    out[0] = (uint8_t)r;
    return count + 1;
}

uint64_t kc_graph_victims(const struct kc_graph *g, uint32_t r)
{
    uint64_t victims = 0;
    for (uint32_t k = 0; k < KC_RANKS_MAX; k++)
        if (k != r && g->reach[k] >> r & 1)
            victims |= KC_BIT(k);
    return victims;
}
