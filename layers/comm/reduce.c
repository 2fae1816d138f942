/* reduce.c - folds vectors in blocks that stay in the nearest cache; the loops come from reduce_loops.h, the
 * portable build here, the AVX2 build beside it. */
#define LOOPS(name) reduce_portable_##name
#include "reduce_loops.h"

#include "stream.h"

#include <stdalign.h>

#if defined(__x86_64__)
void reduce_avx2_start(struct reduce r, void *accumulator, const void *in, size_t count);
void reduce_avx2_add(struct reduce r, void *out, const void *accumulator, const void *in, size_t count);
void reduce_avx2_finish(struct reduce r, void *out, const void *accumulator, size_t count);
void reduce_avx2_pair(struct reduce r, void *const out[2], const void *const in[2], size_t count);
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

void reduce_join(struct reduce r, void *sum, const void *more, size_t count)
{
    if (r.type == KC_BF16)
        r.type = KC_F32; /* what its accumulators are */
    CHOOSE(r, add, sum, sum, more, count);
}

void reduce_finish(struct reduce r, void *out, const void *accumulator, size_t count)
{
    CHOOSE(r, finish, out, accumulator, count);
}

/* Is this destination one of the sources? Then its lines are in the caches already. */
static bool in_place(const void *out, uint32_t ins, const void *const in[])
{
    for (uint32_t i = 0; i < ins; i++) {
        if (in[i] == out)
            return true;
    }
    return false;
}

/* One block of reduce_fold, at byte `at`. */
static void fold_block(struct reduce r, uint32_t outs, void *const out[], uint32_t ins, const void *const in[],
                       size_t at, size_t count)
{
    alignas(64) uint8_t accumulator[BLOCK * 8]; /* room for the widest type */
    size_t bytes = count * kc_type_bytes[r.type];
    uint8_t *first = r.past ? accumulator : (uint8_t *)out[0] + at;
    uint32_t written = !r.past; /* destinations that hold the result */
    if (ins == 2) {
        const void *two[2] = {(const uint8_t *)in[0] + at, (const uint8_t *)in[1] + at};
        /* Two destinations at once where they are the sources. Apart, four streams at the same offset of their pages
         * get in each other's way: then the result is copied while it is near. */
        bool both = outs == 2 && in_place(out[0], ins, in) && in_place(out[1], ins, in);
        void *const to[2] = {first, both && !r.past ? (uint8_t *)out[1] + at : NULL};
        CHOOSE(r, pair, to, two, count);
        written += to[1] != NULL;
    } else {
        CHOOSE(r, start, accumulator, (const uint8_t *)in[0] + at, count);
        for (uint32_t i = 1; i < ins; i++)
            CHOOSE(r, add, accumulator, accumulator, (const uint8_t *)in[i] + at, count);
        CHOOSE(r, finish, first, accumulator, count);
    }
    for (uint32_t o = written; o < outs; o++) {
        if (r.past && !in_place(out[o], ins, in))
            stream_copy((uint8_t *)out[o] + at, first, bytes, r.wide);
        else
            memcpy((uint8_t *)out[o] + at, first, bytes);
    }
}

void reduce_fold(struct reduce r, uint32_t outs, void *const out[], uint32_t ins, const void *const in[],
                 size_t count)
{
    for (size_t done = 0; done < count; done += BLOCK)
        fold_block(r, outs, out, ins, in, done * kc_type_bytes[r.type], count - done < BLOCK ? count - done : BLOCK);
    if (r.past)
        stream_end(r.wide);
}
