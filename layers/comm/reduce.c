/* reduce.c - folds vectors in blocks that stay in the nearest cache; the loops come from reduce_loops.h, the
 * portable build here, the AVX2 build beside it. */
#define LOOPS(name) reduce_portable_##name
#include "reduce_loops.h"

#include <stdalign.h>

#if defined(__x86_64__)
void reduce_avx2_start(struct reduce r, void *accumulator, const void *in, size_t count);
void reduce_avx2_add(struct reduce r, void *out, const void *accumulator, const void *in, size_t count);
void reduce_avx2_finish(struct reduce r, void *out, const void *accumulator, size_t count);
void reduce_avx2_pair(struct reduce r, void *out, const void *const in[2], size_t count);
#define CHOOSE(r, name, ...) ((r).wide ? reduce_avx2_##name(r, __VA_ARGS__) : reduce_portable_##name(r, __VA_ARGS__))
#else
#define CHOOSE(r, name, ...) reduce_portable_##name(r, __VA_ARGS__)
#endif

#define BLOCK 1024 /* elements: accumulators and one source fit the first-level cache */

bool reduce_wide_possible(void)
{
#if defined(__x86_64__)
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#else
    return false;
#endif
}

void reduce_start(struct reduce r, void *accumulator, const void *in, size_t count)
{
    CHOOSE(r, start, accumulator, in, count);
}

void reduce_add(struct reduce r, void *out, const void *accumulator, const void *in, size_t count)
{
    CHOOSE(r, add, out, accumulator, in, count);
}

void reduce_finish(struct reduce r, void *out, const void *accumulator, size_t count)
{
    CHOOSE(r, finish, out, accumulator, count);
}

/* One block of reduce_fold, at byte `at`. */
static void fold_block(struct reduce r, uint32_t outs, void *const out[], uint32_t ins, const void *const in[],
                       size_t at, size_t count)
{
    alignas(64) uint8_t accumulator[BLOCK * 8]; /* room for the widest type */
    uint8_t *first = (uint8_t *)out[0] + at;
    if (ins == 2) {
        const void *two[2] = {(const uint8_t *)in[0] + at, (const uint8_t *)in[1] + at};
        CHOOSE(r, pair, first, two, count);
    } else {
        CHOOSE(r, start, accumulator, (const uint8_t *)in[0] + at, count);
        for (uint32_t i = 1; i < ins; i++)
            CHOOSE(r, add, accumulator, accumulator, (const uint8_t *)in[i] + at, count);
        CHOOSE(r, finish, first, accumulator, count);
    }
    for (uint32_t o = 1; o < outs; o++)
        memcpy((uint8_t *)out[o] + at, first, count * kc_type_bytes[r.type]);
}

void reduce_fold(struct reduce r, uint32_t outs, void *const out[], uint32_t ins, const void *const in[],
                 size_t count)
{
    for (size_t done = 0; done < count; done += BLOCK)
        fold_block(r, outs, out, ins, in, done * kc_type_bytes[r.type], count - done < BLOCK ? count - done : BLOCK);
}
