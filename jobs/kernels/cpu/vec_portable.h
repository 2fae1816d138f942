/* vec_portable.h - the words of vec.h through the compiler's own vector types: four floats (SSE2 on x86-64, NEON on
 * aarch64). Included by vec.h only. */
#define W 4
#define STRIP 4 /* rows that fit into registers, two vectors each, with room for their factors */
typedef float vf __attribute__((vector_size(16)));
typedef int32_t vi __attribute__((vector_size(16)));
typedef uint32_t vu __attribute__((vector_size(16)));

VEC_INLINE vf v_all(float x) { return (vf){x, x, x, x}; }
VEC_INLINE vf v_load(const float *p)
{
    vf v;
    memcpy(&v, p, sizeof v);
    return v;
}
VEC_INLINE void v_store(float *p, vf v) { memcpy(p, &v, sizeof v); }
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
/* bf16 is the upper half of an f32. */
VEC_INLINE vf v_load_split(const uint16_t *upper, const uint16_t *lower, size_t n)
{
    vu bits = {0};
    for (size_t i = 0; i < n; i++)
        bits[i] = (uint32_t)upper[i] << 16 | (lower ? lower[i] : 0u);
    return (vf)bits;
}
VEC_INLINE vf v_load_bf16(const uint16_t *p, size_t n) { return v_load_split(p, NULL, n); }
VEC_INLINE void v_store_bf16(uint16_t *p, vf v, size_t n)
{
    const vu bits = (vu)v, nan = (vu)(v != v);
    const vu rounded = (((bits + 0x7fff + (bits >> 16 & 1)) & ~nan) | ((bits | 0x400000) & nan)) >> 16;
    for (size_t i = 0; i < n; i++)
        p[i] = (uint16_t)rounded[i];
}
VEC_INLINE void v_store_split(uint16_t *upper, uint16_t *lower, vf v, size_t n)
{
    const vu bits = (vu)v;
    for (size_t i = 0; i < n; i++) {
        upper[i] = (uint16_t)(bits[i] >> 16);
        lower[i] = (uint16_t)bits[i];
    }
}
VEC_INLINE vf v_fma(vf a, vf b, vf c) { return a * b + c; }
VEC_INLINE vf v_sqrt(vf a) { return (vf){sqrtf(a[0]), sqrtf(a[1]), sqrtf(a[2]), sqrtf(a[3])}; }
VEC_INLINE vf v_choose(vi where, vf yes, vf no) { return (vf)(((vi)yes & where) | ((vi)no & ~where)); }
VEC_INLINE vf v_max(vf a, vf b) { return v_choose((vi)(a > b), a, b); }
VEC_INLINE vf v_min(vf a, vf b) { return v_choose((vi)(a < b), a, b); }
VEC_INLINE vf v_zero_below(vf value, vf a, vf b) { return (vf)((vi)value & ~(vi)(a < b)); }
VEC_INLINE vf v_split(size_t n, vf below, vf above)
{
    const int32_t lanes = n < W ? (int32_t)n : W;
    return v_choose((vi){0, 1, 2, 3} < lanes, below, above);
}
VEC_INLINE float v_sum(vf v) { return (v[0] + v[2]) + (v[1] + v[3]); }
VEC_INLINE float v_largest(vf v)
{
    const float even = v[0] > v[2] ? v[0] : v[2], odd = v[1] > v[3] ? v[1] : v[3];
    return even > odd ? even : odd;
}
VEC_INLINE void v_columns(const float *p, size_t ld, vf column[4])
{
    for (size_t c = 0; c < 4; c++)
        column[c] = (vf){p[c], p[c + ld], p[c + 2 * ld], p[c + 3 * ld]};
}
