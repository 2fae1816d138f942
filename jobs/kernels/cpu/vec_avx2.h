/* vec_avx2.h - the words of vec.h for AVX2 and FMA: eight floats. Included by vec.h only. */
#include <immintrin.h>

#define W 8
#define STRIP 4 /* rows that fit into registers, two vectors each, with room for their factors */
typedef __m256 vf;
typedef uint32_t vu __attribute__((vector_size(32)));

/* All bits set in lanes below n. */
VEC_INLINE __m256i v_first_lanes(size_t n)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n < W ? (int)n : W), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
VEC_INLINE vf v_all(float x) { return _mm256_set1_ps(x); }
VEC_INLINE vf v_load(const float *p) { return _mm256_loadu_ps(p); }
VEC_INLINE void v_store(float *p, vf v) { _mm256_storeu_ps(p, v); }
VEC_INLINE vf v_split(size_t n, vf below, vf above)
{
    return _mm256_blendv_ps(above, below, _mm256_castsi256_ps(v_first_lanes(n)));
}
VEC_INLINE vf v_load_part(const float *p, size_t n, float fill)
{
    return v_split(n, _mm256_maskload_ps(p, v_first_lanes(n)), v_all(fill));
}
VEC_INLINE void v_store_part(float *p, vf v, size_t n) { _mm256_maskstore_ps(p, v_first_lanes(n), v); }
/* bf16 is the upper half of an f32. */
VEC_INLINE __m128i v_load_halves(const uint16_t *p, size_t n)
{
    uint16_t lanes[W] = {0};
    if (n < W)
        memcpy(lanes, p, n * sizeof *p);
    return _mm_loadu_si128((const __m128i *)(n < W ? lanes : p));
}
/* The low halves of eight numbers below 65536. */
VEC_INLINE void v_store_halves(uint16_t *p, __m256i v, size_t n)
{
    const __m128i packed = _mm_packus_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    uint16_t lanes[W];
    _mm_storeu_si128((__m128i *)(n < W ? lanes : p), packed);
    if (n < W)
        memcpy(p, lanes, n * sizeof *p);
}
VEC_INLINE vf v_load_bf16(const uint16_t *p, size_t n)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(v_load_halves(p, n)), 16));
}
VEC_INLINE void v_store_bf16(uint16_t *p, vf v, size_t n)
{
    const __m256i bits = _mm256_castps_si256(v), one = _mm256_set1_epi32(1);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), one);
    const __m256i rounded = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
    const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
    v_store_halves(p, _mm256_srli_epi32(_mm256_blendv_epi8(rounded, quiet, nan), 16), n);
}
VEC_INLINE vf v_load_split(const uint16_t *upper, const uint16_t *lower, size_t n)
{
    const __m256i low = _mm256_cvtepu16_epi32(v_load_halves(lower, n));
    return _mm256_or_ps(v_load_bf16(upper, n), _mm256_castsi256_ps(low));
}
VEC_INLINE void v_store_split(uint16_t *upper, uint16_t *lower, vf v, size_t n)
{
    const __m256i bits = _mm256_castps_si256(v);
    v_store_halves(upper, _mm256_srli_epi32(bits, 16), n);
    v_store_halves(lower, _mm256_and_si256(bits, _mm256_set1_epi32(0xffff)), n);
}
VEC_INLINE vf v_fma(vf a, vf b, vf c) { return _mm256_fmadd_ps(a, b, c); }
VEC_INLINE vf v_sqrt(vf a) { return _mm256_sqrt_ps(a); }
VEC_INLINE vf v_max(vf a, vf b) { return _mm256_max_ps(a, b); }
VEC_INLINE vf v_min(vf a, vf b) { return _mm256_min_ps(a, b); }
VEC_INLINE vf v_zero_below(vf value, vf a, vf b) { return _mm256_andnot_ps(_mm256_cmp_ps(a, b, _CMP_LT_OQ), value); }
VEC_INLINE float v_sum(vf v)
{
    __m128 half = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    half = _mm_add_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_add_ss(half, _mm_shuffle_ps(half, half, 1)));
}
VEC_INLINE float v_largest(vf v)
{
    __m128 half = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    half = _mm_max_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_max_ss(half, _mm_shuffle_ps(half, half, 1)));
}

VEC_INLINE vf v_halves(const float *p, size_t ld)
{
    return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(p)), _mm_loadu_ps(p + 4 * ld), 1);
}
VEC_INLINE void v_columns(const float *p, size_t ld, vf column[4])
{
    const vf a = v_halves(p, ld), b = v_halves(p + ld, ld), c = v_halves(p + 2 * ld, ld),
             d = v_halves(p + 3 * ld, ld);
    const __m256d ab = _mm256_castps_pd(_mm256_unpacklo_ps(a, b)), cd = _mm256_castps_pd(_mm256_unpacklo_ps(c, d));
    const __m256d AB = _mm256_castps_pd(_mm256_unpackhi_ps(a, b)), CD = _mm256_castps_pd(_mm256_unpackhi_ps(c, d));
    column[0] = _mm256_castpd_ps(_mm256_unpacklo_pd(ab, cd));
    column[1] = _mm256_castpd_ps(_mm256_unpackhi_pd(ab, cd));
    column[2] = _mm256_castpd_ps(_mm256_unpacklo_pd(AB, CD));
    column[3] = _mm256_castpd_ps(_mm256_unpackhi_pd(AB, CD));
}
