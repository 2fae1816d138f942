/* vec.h - vectors of W floats. Every kernel is written once over these words, in body_*.h, and compiled once a
 * variant; which words, the compiler's flags say. Each of the three files has
 *
 *   v_all(x)                   x in all lanes
 *   v_load, v_store            W floats, any address
 *   v_load_part(p, n, fill)    the first n (1 … W) floats, `fill` in the other lanes; memory behind is not touched
 *   v_store_part(p, v, n)      the first n lanes
 *   v_load_bf16(p, n)          the first n (1 … W) of bf16 numbers, 0 in the other lanes
 *   v_store_bf16(p, v, n)      rounded to nearest, ties to even, not a number stays (base/bf16.h)
 *   v_load_split, v_store_split   n floats, their upper and their lower halves apart
 *   v_fma, v_sqrt              a·b + c
 *   v_max, v_min               not a number in b is kept
 *   v_zero_below(v, a, b)      v where a < b is not true, else 0
 *   v_split(n, below, above)   lanes < n of `below`, the others of `above`; n may be more than W
 *   v_sum, v_largest           of all lanes, in a fixed order
 *   v_columns(p, ld, c)        c[j], lane r = p[r·ld + j] for four columns j of W rows
 *
 * Elementwise kernels handle the last elements of a run with the same vector operations, so a value does not depend
 * on where in a run it stands. */
#ifndef KC_KERNELS_VEC_H
#define KC_KERNELS_VEC_H

#include <assert.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define VEC_INLINE static inline __attribute__((always_inline, unused))

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)
#include "vec_avx512.h"
#elif defined(__AVX2__) && defined(__FMA__)
#include "vec_avx2.h"
#else
#include "vec_portable.h"
#endif

VEC_INLINE vf v_get_f32(const float *p, size_t lanes, float fill)
{
    return lanes == W ? v_load(p) : v_load_part(p, lanes, fill);
}
VEC_INLINE void v_put_f32(float *p, size_t lanes, vf v)
{
    if (lanes == W)
        v_store(p, v);
    else
        v_store_part(p, v, lanes);
}
VEC_INLINE vf v_get_bf16(const uint16_t *p, size_t lanes, float fill)
{
    return lanes == W ? v_load_bf16(p, W) : v_split(lanes, v_load_bf16(p, lanes), v_all(fill));
}
VEC_INLINE void v_put_bf16(uint16_t *p, size_t lanes, vf v)
{
    v_store_bf16(p, v, lanes);
}
/* f32 or bf16, as the pointer says; what is computed with is f32. */
#define v_get(p, lanes, fill) _Generic(*(p), float: v_get_f32, uint16_t: v_get_bf16)((p), (lanes), (fill))
#define v_put(p, lanes, v) _Generic(*(p), float: v_put_f32, uint16_t: v_put_bf16)((p), (lanes), (v))
/* Without rounding: of a bf16, the lower half is kept elsewhere. */
VEC_INLINE vf v_get_whole(const float *p, const float *lower, size_t lanes)
{
    (void)lower;
    return v_get_f32(p, lanes, 0);
}
VEC_INLINE void v_put_whole(float *p, float *lower, size_t lanes, vf v)
{
    (void)lower;
    v_put_f32(p, lanes, v);
}
VEC_INLINE vf v_get_split(const uint16_t *p, const uint16_t *lower, size_t lanes)
{
    return v_load_split(p, lower, lanes);
}
VEC_INLINE void v_put_split(uint16_t *p, uint16_t *lower, size_t lanes, vf v)
{
    v_store_split(p, lower, v, lanes);
}
#define v_get_exact(p, lower, lanes) _Generic(*(p), float: v_get_whole, uint16_t: v_get_split)((p), (lower), (lanes))
#define v_put_exact(p, lower, lanes, v) \
    _Generic(*(p), float: v_put_whole, uint16_t: v_put_split)((p), (lower), (lanes), (v))
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

/* e^x within 2 units in the last place for −86.6 ≤ x ≤ 88.3; below 0, above the value at 88.3; not a number stays.
 * Reduction by ln 2 in two parts and the polynomial of Cephes expf (Moshier). Adding 1.5·2^23 rounds x/ln 2 to an
 * integer that then stands in the low bits, ready to be shifted into the exponent. */
VEC_INLINE vf v_exp(vf x)
{
    const vf magic = v_all(12582912.f);
    vf c = v_min(v_all(88.3f), x);
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
    vf y = (vf)((vu)p + ((vu)shifted << 23));
    return v_zero_below(y, x, v_all(-86.6f)); /* whatever came out above */
}

/* 1/x for 1 ≤ x < 2^120, within 2 units in the last place: an estimate from the exponent's bits and three steps of
 * Newton. Faster than the divider beside wide matrix products, and the same bits on every maker's processor, which
 * the estimate instructions do not promise. */
VEC_INLINE vf v_reciprocal(vf x)
{
    vf y = (vf)(0x7ef311c3 - (vu)x);
    const vf one = v_all(1.f);
    for (int step = 0; step < 3; step++)
        y = v_fma(v_fma(-x, y, one), y, y);
    return y;
}

#endif
