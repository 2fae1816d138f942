/* sample.c */
#include "jobs/sample.h"

#include <math.h>

/* SplitMix64 (Steele, Lea, Flood 2014), used as a hash of its counter. */
static uint64_t mix(uint64_t x)
{
    x += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

uint32_t kc_sample_pick(const float *logits, uint32_t vocab, double temperature, uint64_t seed, uint64_t index)
{
    uint32_t best = 0;
    double sum = 0;
    for (uint32_t v = 1; v < vocab; v++)
        if (logits[v] > logits[best])
            best = v;
    if (temperature <= 0)
        return best;
    for (uint32_t v = 0; v < vocab; v++)
        sum += exp((double)(logits[v] - logits[best]) / temperature);
    double u = (double)(mix(mix(seed) ^ index) >> 11) * 0x1p-53 * sum;
    for (uint32_t v = 0; v < vocab; v++) {
        u -= exp((double)(logits[v] - logits[best]) / temperature);
        if (u < 0)
            return v;
    }
    return best;
}
