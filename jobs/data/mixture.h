/* mixture.h - which of several files a position is taken from, and which of its samples: a function of the position
 * and the weights alone, so a run goes on at any position, on any layout. */
#ifndef KC_JOBS_DATA_MIXTURE_H
#define KC_JOBS_DATA_MIXTURE_H

#include <stdint.h>

/* sums[0] = 0 ≤ sums[1] ≤ … ≤ sums[files]: file f has the weight sums[f+1] − sums[f]; the last sum is not 0.
 * Position q is sample *index of file *file in that file's own order; every index comes once and in turn. Before
 * every position q file f has been taken q · weight / sum times, up to ⌈log₂ files⌉/2; after a whole sum of
 * positions exactly weight times. O(log files). */
void kc_mixture_at(const uint64_t *sums, uint32_t files, uint64_t position, uint32_t *file, uint64_t *index);

#endif
