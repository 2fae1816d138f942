/* pick.c - works on the candidates in the order of the pool: first units of cores before their siblings, so cores are
 * shared by two ranks only when there are no others. */
#include "pick.h"

static size_t free_in(const struct candidate *c, size_t count, int64_t numa)
{
    size_t n = 0;
    for (size_t i = 0; i < count; i++)
        n += !c[i].taken && c[i].numa == numa;
    return n;
}

#define NO_NODE INT64_MIN

/* The node for the next rank, as the number of one of its candidates: where the rank before is, if all ranks still to
 * come fit there too; else the tightest that fits them; else the roomiest. */
static size_t choose_node(const struct candidate *c, size_t count, size_t rest, int64_t before)
{
    size_t best = count, best_free = 0;
    bool stay = before != NO_NODE && free_in(c, count, before) >= rest;
    for (size_t i = 0; i < count; i++) {
        size_t n = c[i].taken ? 0 : free_in(c, count, c[i].numa);
        if (n == 0 || (stay && c[i].numa != before))
            continue;
        bool fits = n >= rest, best_fits = best_free >= rest;
        bool better = best == count || (fits && (!best_fits || n < best_free)) || (!best_fits && n > best_free);
        if (better) {
            best = i;
            best_free = n;
        }
    }
    return best;
}

void pick_own(struct candidate *c, size_t count, uint32_t ranks, uint32_t units, size_t *out)
{
    int64_t numa = NO_NODE;
    for (uint32_t r = 0; r < ranks; r++) {
        uint32_t have = 0;
        while (have < units) {
            size_t rest = have ? units - have : (size_t)(ranks - r) * units;
            numa = c[choose_node(c, count, rest, numa)].numa;
            for (size_t i = 0; i < count && have < units; i++) {
                if (c[i].taken || c[i].numa != numa)
                    continue;
                c[i].taken = true;
                out[(size_t)r * units + have++] = i;
            }
        }
    }
}

void pick_shared(struct candidate *c, size_t count, uint32_t ranks, uint32_t units, size_t *out)
{
    size_t next = 0, total = (size_t)ranks * units;
    for (int used = 0; used < 2 && next < total; used++)
        for (size_t i = 0; i < count && next < total; i++)
            if (c[i].used == used)
                out[next++] = i;
    for (size_t k = next; k < total; k++)
        out[k] = out[k - next];
}
