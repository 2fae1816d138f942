/* number_lanes.h - the arithmetic of number.c on eight values at once. Included by number.c alone.
 *
 * Vectors of the compiler, no intrinsics: each lane is the same sequence of IEEE operations on every processor, so the
 * bits do not depend on how wide its registers are. Pointers instead of values: how a vector is passed would depend on
 * them. */
#ifndef KC_STATE_NUMBER_LANES_H
#define KC_STATE_NUMBER_LANES_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#define LANES 8
typedef double vd __attribute__((vector_size(64)));
typedef uint64_t vu __attribute__((vector_size(64)));

#define LANE_INLINE static inline __attribute__((always_inline))

struct lanes_words {
    vu w0, w1, w2, w3; /* lanes hold 32 bits */
};

LANE_INLINE void lanes_philox(struct lanes_words *c, uint32_t k0, uint32_t k1)
{
    for (int i = 0; i < 10; i++) {
        vu a = c->w0 * UINT64_C(0xD2511F53), b = c->w2 * UINT64_C(0xCD9E8D57);
        c->w0 = (b >> 32) ^ c->w1 ^ k0;
        c->w2 = (a >> 32) ^ c->w3 ^ k1;
        c->w1 = b & UINT32_MAX;
        c->w3 = a & UINT32_MAX;
        k0 += 0x9E3779B9u; /* golden ratio */
        k1 += 0xBB67AE85u; /* √3 − 1 */
    }
}

/* high·2^21 + low for high < 2^32, low < 2^21: exact. An integer below 2^52 under the exponent of 2^52 is that number
 * plus 2^52. */
LANE_INLINE void lanes_real(const vu *high, const vu *low, vd *out)
{
    const vu base = (vu){0} + UINT64_C(0x4330000000000000);
    *out = ((vd)(*high | base) - 0x1p52) * 0x1p21 + ((vd)(*low | base) - 0x1p52);
}

/* log x = e·ln 2 + 2·artanh s, s = (m − 1)/(m + 1), x = m·2^e with m in [√½, √2): |s| < 0.172, eleven terms reach
 * 2^-53. For normal x. */
LANE_INLINE void lanes_log(const vd *x, vd *out)
{
    static const double ln2_high = 0x1.62e42fee00000p-1, ln2_low = 0x1.a39ef35793c76p-33;
    const vu base = (vu){0} + UINT64_C(0x4330000000000000);
    vu bits = (vu)*x, half = (vu){0} + UINT64_C(0x3fe0000000000000);
    vd m = (vd)((bits & UINT64_C(0x000fffffffffffff)) | half); /* in [½, 1) */
    vd e = ((vd)(bits >> 52 | base) - 0x1p52) - 1022;
    vu small = (vu)(m < 0.70710678118654752);
    m = (vd)(((vu)(m * 2) & small) | ((vu)m & ~small));
    e -= (vd)((vu)((vd){0} + 1) & small);
    vd s = (m - 1) / (m + 1), t = s * s, sum = {0};
    for (int k = 21; k >= 3; k -= 2)
        sum = t * (1.0 / k + sum);
    *out = e * ln2_high + (2 * s + (2 * s * sum + e * ln2_low));
}

/* Reduce to the nearest quarter turn, then Taylor series on [−π/4, π/4]: the first term left out is below 2^-54. */
LANE_INLINE void lanes_turn(const vd *turns, vd *sine, vd *cosine)
{
    vd quarter = *turns * 4, up = quarter + 0.5; /* quarter is exact */
    vu q = {0};
    for (int i = 1; i <= 4; i++)
        q -= (vu)(up >= (double)i);
    const vu base = (vu){0} + UINT64_C(0x4330000000000000);
    vd x = (quarter - ((vd)(q | base) - 0x1p52)) * 1.5707963267948966, t = x * x;
    vd s = x + x * t * (-1.0 / 6 + t * (1.0 / 120 + t * (-1.0 / 5040 + t * (1.0 / 362880 + t * (-1.0 / 39916800 +
           t * (1.0 / 6227020800.0 + t * (-1.0 / 1307674368000.0)))))));
    vd c = 1 + t * (-0.5 + t * (1.0 / 24 + t * (-1.0 / 720 + t * (1.0 / 40320 + t * (-1.0 / 3628800 +
           t * (1.0 / 479001600.0 + t * (-1.0 / 87178291200.0 + t * (1.0 / 20922789888000.0))))))));
    const vu swap = -(q & 1);
    vu a = ((vu)c & swap) | ((vu)s & ~swap), b = ((vu)s & swap) | ((vu)c & ~swap);
    *sine = (vd)(a ^ (q & 2) << 62);         /* turns two and three: below 0 */
    *cosine = (vd)(b ^ ((q + 1) & 2) << 62); /* one and two */
}

/* Two independent normal values for each counter: 53-bit uniforms u in (0, 1] and v in [0, 1), Box and Muller (1958).
 * `pair` is the first counter. */
LANE_INLINE void lanes_normal(uint64_t pair, uint64_t stream, uint64_t seed, double scale, float out[2 * LANES])
{
    vu n = (vu){0, 1, 2, 3, 4, 5, 6, 7} + pair;
    struct lanes_words c = {.w0 = n & UINT32_MAX, .w1 = n >> 32};
    c.w2 = (n ^ n) + (stream & UINT32_MAX);
    c.w3 = (n ^ n) + (stream >> 32);
    lanes_philox(&c, (uint32_t)seed, (uint32_t)(seed >> 32));
    c.w1 >>= 11;
    c.w3 >>= 11;
    vd u, v, radius, sine, cosine;
    lanes_real(&c.w0, &c.w1, &u);
    lanes_real(&c.w2, &c.w3, &v);
    u = (u + 1) * 0x1p-53;
    v *= 0x1p-53;
    lanes_log(&u, &radius);
    lanes_turn(&v, &sine, &cosine);
    double root[LANES], z[2][LANES];
    radius *= -2;
    memcpy(root, &radius, sizeof root);
    for (int i = 0; i < LANES; i++)
        root[i] = sqrt(root[i]);
    memcpy(&radius, root, sizeof root);
    cosine = radius * cosine * scale;
    sine = radius * sine * scale;
    memcpy(z[0], &cosine, sizeof z[0]);
    memcpy(z[1], &sine, sizeof z[1]);
    for (int i = 0; i < LANES; i++) {
        out[2 * i] = (float)z[0][i];
        out[2 * i + 1] = (float)z[1][i];
    }
}

#endif
