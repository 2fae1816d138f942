/* permute.c - a Feistel network over the smallest even number of bits that holds n, walked until it lands below n.
 *
 * M. Luby, C. Rackoff, "How to construct pseudorandom permutations from pseudorandom functions" (SIAM J. Comput.
 * 17, 1988): a Feistel network is a bijection whatever its round function is. J. Black, P. Rogaway, "Ciphers with
 * arbitrary finite domains" (CT-RSA 2002): applying a bijection of a larger set again until the value falls into
 * the smaller one is a bijection of the smaller one. The set has less than 4·n members, so the expected walk is
 * under four steps. The round function is the finaliser of splitmix64 (Steele, Lea, Flood, OOPSLA 2014). */
#include "permute.h"

#define ROUNDS 8

static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

uint64_t kc_permute(uint64_t seed, uint64_t epoch, uint64_t n, uint64_t index)
{
    if (n < 2)
        return 0;
    unsigned bits = 64 - (unsigned)__builtin_clzll(n - 1), half = (bits + 1) / 2;
    uint64_t mask = (UINT64_C(1) << half) - 1;
    uint64_t key = mix(mix(seed + UINT64_C(0x9e3779b97f4a7c15)) ^ (epoch * UINT64_C(0xd1342543de82ef95) + 1));
    uint64_t x = index;
    do {
        uint64_t left = x >> half, right = x & mask;
        for (uint64_t round = 1; round <= ROUNDS; round++) {
            uint64_t next = left ^ (mix(right ^ mix(key + round * UINT64_C(0x9e3779b97f4a7c15))) & mask);
            left = right;
            right = next;
        }
        x = left << half | right;
    } while (x >= n);
    return x;
}
