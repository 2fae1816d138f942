/* vec.h - vectors of W floats: eight in files compiled with AVX2 and FMA, four elsewhere (SSE2 on x86-64, NEON on
 * aarch64, through the compiler's vector types). Every kernel is written once over these words, in body_*.h, and
 * compiled once a variant.
 *
 * Elementwise kernels handle the last elements of a run with the same vector operations, so a value does not depend
 * on where in a run it stands. */
#ifndef KC_KERNELS_VEC_H
#define KC_KERNELS_VEC_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define VEC_INLINE static inline __attribute__((always_inline, unused))

#if defined(__AVX2__) && defined(__FMA__)

#include <immintrin.h>
#define W 8
typedef __m256 vf;
typedef int32_t vi __attribute__((vector_size(32)));

VEC_INLINE vf v_all(float x) { return _mm256_set1_ps(x); }
VEC_INLINE vf v_load(const float *p) { return _mm256_loadu_ps(p); }
VEC_INLINE void v_store(float *p, vf v) { _mm256_storeu_ps(p, v); }
VEC_INLINE vf v_fma(vf a, vf b, vf c) { return _mm256_fmadd_ps(a, b, c); }
VEC_INLINE vf v_sqrt(vf a) { return _mm256_sqrt_ps(a); }
/* Not a number in b is kept. */
VEC_INLINE vf v_max(vf a, vf b) { return _mm256_max_ps(a, b); }
VEC_INLINE vf v_min(vf a, vf b) { return _mm256_min_ps(a, b); }
/* a where a < b is not true, else 0. */
VEC_INLINE vf v_zero_below(vf value, vf a, vf b) { return _mm256_andnot_ps(_mm256_cmp_ps(a, b, _CMP_LT_OQ), value); }

#else

#define W 4
typedef float vf __attribute__((vector_size(16)));
typedef int32_t vi __attribute__((vector_size(16)));

VEC_INLINE vf v_all(float x) { return (vf){x, x, x, x}; }
VEC_INLINE vf v_load(const float *p)
{
    vf v;
    memcpy(&v, p, sizeof v);
    return v;
}
VEC_INLINE void v_store(float *p, vf v) { memcpy(p, &v, sizeof v); }
VEC_INLINE vf v_fma(vf a, vf b, vf c) { return a * b + c; }
VEC_INLINE vf v_sqrt(vf a) { return (vf){sqrtf(a[0]), sqrtf(a[1]), sqrtf(a[2]), sqrtf(a[3])}; }
VEC_INLINE vf v_max(vf a, vf b)
{
    vi larger = (vi)(a > b);
    return (vf)(((vi)a & larger) | ((vi)b & ~larger));
}
VEC_INLINE vf v_min(vf a, vf b)
{
    vi smaller = (vi)(a < b);
    return (vf)(((vi)a & smaller) | ((vi)b & ~smaller));
}
VEC_INLINE vf v_zero_below(vf value, vf a, vf b) { return (vf)((vi)value & ~(vi)(a < b)); }

#endif

/* The first n (1 … W) floats; the other lanes are `fill` and are not written back. */
VEC_INLINE vf v_load_part(const float *p, size_t n, float fill)
{
    float lanes[W];
    for (size_t i = 0; i < W; i++)
        lanes[i] = i < n ? p[i] : fill;
    return v_load(lanes);
}
VEC_INLINE void v_store_part(float *p, vf v, size_t n)
{
    float lanes[W];
    v_store(lanes, v);
    memcpy(p, lanes, n * sizeof *p);
}
VEC_INLINE vf v_get(const float *p, size_t lanes, float fill)
{
    return lanes == W ? v_load(p) : v_load_part(p, lanes, fill);
}
VEC_INLINE void v_put(float *p, size_t lanes, vf v)
{
    if (lanes == W)
        v_store(p, v);
    else
        v_store_part(p, v, lanes);
}
/* Run the statement for i = 0, W, 2W … below n with `lanes` = W, and once more for a rest; W is a constant in the
 * loop, so only the rest pays for being short. */
#define V_EACH(n, ...)                  \
    do {                                \
        size_t i = 0;                   \
        for (; i + W <= (n); i += W) {  \
            const size_t lanes = W;     \
            __VA_ARGS__;                \
        }                               \
        if (i < (n)) {                  \
            const size_t lanes = (n)-i; \
            __VA_ARGS__;                \
        }                               \
    } while (0)

/* Lanes in a fixed order, neighbours first. */
VEC_INLINE float v_sum(vf v)
{
    float x[W];
    v_store(x, v);
    for (int step = 1; step < W; step *= 2)
        for (int i = 0; i < W; i += 2 * step)
            x[i] += x[i + step];
    return x[0];
}
VEC_INLINE float v_first(vf v)
{
    float x[W];
    v_store(x, v);
    return x[0];
}
VEC_INLINE float v_largest(vf v)
{
    float x[W];
    v_store(x, v);
    for (int i = 1; i < W; i++)
        x[0] = x[i] > x[0] ? x[i] : x[0];
    return x[0];
}

/* e^x within 2 units in the last place for −86.6 ≤ x ≤ 88.3; below 0, above the value at 88.3; not a number stays.
 * Reduction by ln 2 in two parts and the polynomial of Cephes expf (Moshier). Adding 1.5·2^23 rounds x/ln 2 to an
 * integer that then stands in the low bits, ready to be shifted into the exponent. */
VEC_INLINE vf v_exp(vf x)
{
    const vf magic = v_all(12582912.f), low = v_all(-86.6f);
    vf c = v_max(low, v_min(v_all(88.3f), x));
    vf shifted = v_fma(c, v_all(1.44269504088896341f), magic);
    vf n = shifted - magic;
    vf r = v_fma(n, v_all(-0.693359375f), c);
    r = v_fma(n, v_all(2.12194440e-4f), r);
    vf p = v_all(1.9875691500e-4f);
    p = v_fma(p, r, v_all(1.3981999507e-3f));
    p = v_fma(p, r, v_all(8.3334519073e-3f));
    p = v_fma(p, r, v_all(4.1665795894e-2f));
    p = v_fma(p, r, v_all(1.6666665459e-1f));
    p = v_fma(p, r, v_all(5.0000001201e-1f));
    p = v_fma(p, r * r, r) + v_all(1.f);
    vf y = (vf)((vi)p + ((vi)shifted << 23));
    return v_zero_below(y, x, low);
}

/* 1/x for 1 ≤ x < 2^120, within 2 units in the last place: an estimate from the exponent's bits and three steps of
 * Newton. Faster than the divider beside wide matrix products, and the same bits on every maker's processor, which
 * the estimate instructions do not promise. */
VEC_INLINE vf v_reciprocal(vf x)
{
    vi bits = (vi){0} + 0x7ef311c3 - (vi)x;
    vf y = (vf)bits;
    const vf one = v_all(1.f);
    for (int step = 0; step < 3; step++)
        y = v_fma(v_fma(-x, y, one), y, y);
    return y;
}

#endif
