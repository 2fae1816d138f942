/* permute.h - a random-looking order of n things that needs no table: a pure function of (seed, epoch, n, index). */
#ifndef KC_JOBS_DATA_PERMUTE_H
#define KC_JOBS_DATA_PERMUTE_H

#include <stdint.h>

/* Where `index` (< n, n ≥ 1) goes: for fixed seed, epoch and n a bijection of 0 … n−1. Part of what a seed means:
 * changing it changes every shuffled run (a test holds known values). */
uint64_t kc_permute(uint64_t seed, uint64_t epoch, uint64_t n, uint64_t index);

#endif
