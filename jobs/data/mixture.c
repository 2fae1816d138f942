/* mixture.c - halves the list of files until one is left. At each halving the positions are dealt to the two sides
 * as evenly as whole numbers can: before position q the left side has had its share of q, rounded to nearest (a
 * Beatty sequence: S. Beatty, Problem 3173, Amer. Math. Monthly 33, 1926). All in whole numbers, so every machine
 * says the same. */
#include "mixture.h"

/* How many of the first q positions go to a side with `part` of `whole`. */
static uint64_t dealt(uint64_t q, uint64_t part, uint64_t whole)
{
    return (uint64_t)(((unsigned __int128)q * part + whole / 2) / whole);
}

void kc_mixture_at(const uint64_t *sums, uint32_t files, uint64_t position, uint32_t *file, uint64_t *index)
{
    uint32_t low = 0, high = files;
    uint64_t q = position;
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        uint64_t part = sums[middle] - sums[low], whole = sums[high] - sums[low];
        uint64_t left = dealt(q, part, whole);
        if (dealt(q + 1, part, whole) > left) {
            high = middle;
            q = left;
        } else {
            low = middle;
            q -= left;
        }
    }
    *file = low;
    *index = q;
}
