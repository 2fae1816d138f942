/* any.h - numbers at random, the same ones after the same seed: splitmix64 (Steele, Lea, Flood 2014). */
#ifndef KC_TESTS_ANY_H
#define KC_TESTS_ANY_H

#include <stdint.h>

static uint64_t any_seed;

/* 0 … below - 1. */
static inline uint64_t any(uint64_t below)
{
    uint64_t z = any_seed += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (z ^ (z >> 31)) % below;
}

#endif
