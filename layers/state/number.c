/* number.c - see number.h. No state, no libm except the correctly rounded square root. The same lanes are compiled for
 * the registers that the processor has; that changes how fast they are, not what they give. */
#include "number.h"

#include "number_lanes.h"

#include <string.h>

void kc_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    struct lanes_words c = {(vu){0} + counter[0], (vu){0} + counter[1], (vu){0} + counter[2], (vu){0} + counter[3]};
    lanes_philox(&c, key[0], key[1]);
    const vu word[4] = {c.w0, c.w1, c.w2, c.w3};
    for (int i = 0; i < 4; i++)
        out[i] = (uint32_t)word[i][0];
}

double kc_number_log(double x)
{
    vd in = (vd){0} + x, out;
    lanes_log(&in, &out);
    return out[0];
}

void kc_number_turn(double turns, double *sine, double *cosine)
{
    vd in = (vd){0} + turns, s, c;
    lanes_turn(&in, &s, &c);
    *sine = s[0];
    *cosine = c[0];
}

uint64_t kc_number_name(const char *text)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    for (; *text; text++)
        h = (h ^ (uint8_t)*text) * UINT64_C(0x100000001b3);
    return h;
}

/* Values 2·pair … 2·pair + 2·LANES·blocks − 1. */
typedef void normals_fn(uint64_t pair, uint64_t blocks, uint64_t stream, uint64_t seed, double scale, float *out);

LANE_INLINE void normals(uint64_t pair, uint64_t blocks, uint64_t stream, uint64_t seed, double scale, float *out)
{
    for (uint64_t b = 0; b < blocks; b++)
        lanes_normal(pair + b * LANES, stream, seed, scale, out + b * 2 * LANES);
}

static void normals_plain(uint64_t pair, uint64_t blocks, uint64_t stream, uint64_t seed, double scale, float *out)
{
    normals(pair, blocks, stream, seed, scale, out);
}

#ifdef __x86_64__
__attribute__((target("avx2"))) static void normals_avx2(uint64_t pair, uint64_t blocks, uint64_t stream,
                                                         uint64_t seed, double scale, float *out)
{
    normals(pair, blocks, stream, seed, scale, out);
}

__attribute__((target("avx512f,avx512dq"))) static void normals_avx512(uint64_t pair, uint64_t blocks,
                                                                       uint64_t stream, uint64_t seed, double scale,
                                                                       float *out)
{
    normals(pair, blocks, stream, seed, scale, out);
}
#endif

static normals_fn *normals_best(void)
{
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq"))
        return normals_avx512;
    if (__builtin_cpu_supports("avx2"))
        return normals_avx2;
#endif
    return normals_plain;
}

void kc_number_normal(uint64_t seed, const char *purpose, const char *name, uint64_t first, uint64_t count,
                      double scale, float *out)
{
    uint64_t stream = kc_number_name(purpose) * UINT64_C(0x9E3779B97F4A7C15) ^ kc_number_name(name);
    normals_fn *run = normals_best();
    while (count > 0) {
        uint64_t skip = first % 2, blocks = skip ? 0 : count / (2 * LANES);
        if (blocks) {
            run(first / 2, blocks, stream, seed, scale, out);
            first += blocks * 2 * LANES;
            out += blocks * 2 * LANES;
            count -= blocks * 2 * LANES;
            continue;
        }
        float part[2 * LANES]; /* an end of the range that is no whole block */
        uint64_t n = 2 * LANES - skip < count ? 2 * LANES - skip : count;
        run(first / 2, 1, stream, seed, scale, part);
        memcpy(out, part + skip, n * sizeof *out);
        first += n;
        out += n;
        count -= n;
    }
}
