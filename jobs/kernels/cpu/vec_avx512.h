/* vec_avx512.h - the words of vec.h for AVX-512 F, BW, DQ and VL: sixteen floats; a rest of a run goes through masks,
 * in one instruction. Included by vec.h only. */
#include <immintrin.h>

#define W 16
#define STRIP 8 /* rows that fit into registers, two vectors each, with room for their factors */
typedef __m512 vf;
typedef uint32_t vu __attribute__((vector_size(64)));

VEC_INLINE __mmask16 v_first_lanes(size_t n)
{
    return n < W ? (__mmask16)((1u << n) - 1) : (__mmask16)0xffff;
}
VEC_INLINE vf v_all(float x) { return _mm512_set1_ps(x); }
VEC_INLINE vf v_load(const float *p) { return _mm512_loadu_ps(p); }
VEC_INLINE void v_store(float *p, vf v) { _mm512_storeu_ps(p, v); }
VEC_INLINE vf v_load_part(const float *p, size_t n, float fill)
{
    return _mm512_mask_loadu_ps(v_all(fill), v_first_lanes(n), p);
}
VEC_INLINE void v_store_part(float *p, vf v, size_t n) { _mm512_mask_storeu_ps(p, v_first_lanes(n), v); }
/* bf16 is the upper half of an f32: every second half-word. One permutation spreads or collects them, which costs
 * less than widening or narrowing and a shift. */
VEC_INLINE __m512i v_spread(__m256i halves, __mmask32 where)
{
    const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i index = _mm512_or_si512(lane, _mm512_slli_epi32(lane, 16));
    return _mm512_maskz_permutexvar_epi16(where, index, _mm512_castsi256_si512(halves));
}
VEC_INLINE __m256i v_collect(__m512i bits, int upper)
{
    const __m512i even = _mm512_setr_epi32(0x20000, 0x60004, 0xa0008, 0xe000c, 0x120010, 0x160014, 0x1a0018,
                                           0x1e001c, 0, 0, 0, 0, 0, 0, 0, 0);
    const __m512i index = _mm512_add_epi16(even, _mm512_set1_epi16((short)upper));
    return _mm512_castsi512_si256(_mm512_permutexvar_epi16(index, bits));
}
#define UPPER_HALVES 0xaaaaaaaau
#define LOWER_HALVES 0x55555555u

VEC_INLINE __m256i v_load_halves(const uint16_t *p, size_t n)
{
    return n == W ? _mm256_loadu_si256((const __m256i *)p) : _mm256_maskz_loadu_epi16(v_first_lanes(n), p);
}
VEC_INLINE void v_store_halves(uint16_t *p, __m256i halves, size_t n)
{
    if (n == W)
        _mm256_storeu_si256((__m256i *)p, halves);
    else
        _mm256_mask_storeu_epi16(p, v_first_lanes(n), halves);
}
VEC_INLINE vf v_load_bf16(const uint16_t *p, size_t n)
{
    return _mm512_castsi512_ps(v_spread(v_load_halves(p, n), UPPER_HALVES));
}
VEC_INLINE void v_store_bf16(uint16_t *p, vf v, size_t n)
{
    const __m512i bits = _mm512_castps_si512(v);
    const __mmask16 odd = _mm512_test_epi32_mask(bits, _mm512_set1_epi32(0x10000));
    const __mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
    __m512i rounded = _mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff));
    rounded = _mm512_mask_add_epi32(rounded, odd, rounded, _mm512_set1_epi32(1));
    rounded = _mm512_mask_or_epi32(rounded, nan, bits, _mm512_set1_epi32(0x400000));
    v_store_halves(p, v_collect(rounded, 1), n);
}
VEC_INLINE vf v_load_split(const uint16_t *upper, const uint16_t *lower, size_t n)
{
    return _mm512_castsi512_ps(_mm512_or_si512(v_spread(v_load_halves(upper, n), UPPER_HALVES),
                                               v_spread(v_load_halves(lower, n), LOWER_HALVES)));
}
VEC_INLINE void v_store_split(uint16_t *upper, uint16_t *lower, vf v, size_t n)
{
    v_store_halves(upper, v_collect(_mm512_castps_si512(v), 1), n);
    v_store_halves(lower, v_collect(_mm512_castps_si512(v), 0), n);
}
VEC_INLINE vf v_fma(vf a, vf b, vf c) { return _mm512_fmadd_ps(a, b, c); }
VEC_INLINE vf v_sqrt(vf a) { return _mm512_sqrt_ps(a); }
VEC_INLINE vf v_max(vf a, vf b) { return _mm512_max_ps(a, b); }
VEC_INLINE vf v_min(vf a, vf b) { return _mm512_min_ps(a, b); }
VEC_INLINE vf v_zero_below(vf value, vf a, vf b)
{
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(a, b, _CMP_NLT_UQ), value);
}
VEC_INLINE vf v_split(size_t n, vf below, vf above) { return _mm512_mask_blend_ps(v_first_lanes(n), above, below); }
VEC_INLINE float v_sum(vf v) { return _mm512_reduce_add_ps(v); }
VEC_INLINE float v_largest(vf v) { return _mm512_reduce_max_ps(v); }

VEC_INLINE vf v_quarters(const float *p, size_t ld)
{
    vf v = _mm512_castps128_ps512(_mm_loadu_ps(p));
    v = _mm512_insertf32x4(v, _mm_loadu_ps(p + 4 * ld), 1);
    v = _mm512_insertf32x4(v, _mm_loadu_ps(p + 8 * ld), 2);
    return _mm512_insertf32x4(v, _mm_loadu_ps(p + 12 * ld), 3);
}
VEC_INLINE void v_columns(const float *p, size_t ld, vf column[4])
{
    const vf a = v_quarters(p, ld), b = v_quarters(p + ld, ld), c = v_quarters(p + 2 * ld, ld),
             d = v_quarters(p + 3 * ld, ld);
    const __m512d ab = _mm512_castps_pd(_mm512_unpacklo_ps(a, b)), cd = _mm512_castps_pd(_mm512_unpacklo_ps(c, d));
    const __m512d AB = _mm512_castps_pd(_mm512_unpackhi_ps(a, b)), CD = _mm512_castps_pd(_mm512_unpackhi_ps(c, d));
    column[0] = _mm512_castpd_ps(_mm512_unpacklo_pd(ab, cd));
    column[1] = _mm512_castpd_ps(_mm512_unpackhi_pd(ab, cd));
    column[2] = _mm512_castpd_ps(_mm512_unpacklo_pd(AB, CD));
    column[3] = _mm512_castpd_ps(_mm512_unpackhi_pd(AB, CD));
}
