/* number.c - see number.h. No state, no libm except the correctly rounded square root. */
#include "number.h"

#include <math.h>
#include <string.h>

static void philox_round(uint32_t c[4], const uint32_t k[2])
{
    uint64_t a = UINT64_C(0xD2511F53) * c[0], b = UINT64_C(0xCD9E8D57) * c[2];
    uint32_t n[4] = {(uint32_t)(b >> 32) ^ c[1] ^ k[0], (uint32_t)b, (uint32_t)(a >> 32) ^ c[3] ^ k[1], (uint32_t)a};
    memcpy(c, n, sizeof n);
}

void kc_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    uint32_t c[4], k[2] = {key[0], key[1]};
    memcpy(c, counter, sizeof c);
    for (int i = 0; i < 10; i++) {
        philox_round(c, k);
        k[0] += 0x9E3779B9u; /* golden ratio */
        k[1] += 0xBB67AE85u; /* √3 − 1 */
    }
    memcpy(out, c, sizeof c);
}

/* log x = e·ln 2 + 2·artanh s, s = (m − 1)/(m + 1), x = m·2^e with m in [√½, √2): |s| < 0.172, eleven terms reach
 * 2^-53. */
double kc_number_log(double x)
{
    static const double ln2_high = 0x1.62e42fee00000p-1, ln2_low = 0x1.a39ef35793c76p-33;
    int e;
    double m = frexp(x, &e); /* exact */
    if (m < 0.70710678118654752) {
        m *= 2;
        e--;
    }
    double s = (m - 1) / (m + 1), t = s * s, sum = 0;
    for (int k = 21; k >= 3; k -= 2)
        sum = t * (1.0 / k + sum);
    return e * ln2_high + (2 * s + (2 * s * sum + e * ln2_low));
}

/* Reduce to the nearest quarter turn, then Taylor series on [−π/4, π/4]: the first term left out is below 2^-54. */
void kc_number_turn(double turns, double *sine, double *cosine)
{
    double quarter = turns * 4; /* exact */
    int q = (int)(quarter + 0.5);
    double x = (quarter - q) * 1.5707963267948966, t = x * x;
    double s = x + x * t * (-1.0 / 6 + t * (1.0 / 120 + t * (-1.0 / 5040 + t * (1.0 / 362880 + t * (-1.0 / 39916800 +
               t * (1.0 / 6227020800.0 + t * (-1.0 / 1307674368000.0)))))));
    double c = 1 + t * (-0.5 + t * (1.0 / 24 + t * (-1.0 / 720 + t * (1.0 / 40320 + t * (-1.0 / 3628800 +
               t * (1.0 / 479001600.0 + t * (-1.0 / 87178291200.0 + t * (1.0 / 20922789888000.0))))))));
    static const int swap[4] = {0, 1, 0, 1}, negate_s[4] = {0, 0, 1, 1}, negate_c[4] = {0, 1, 1, 0};
    double a = swap[q & 3] ? c : s, b = swap[q & 3] ? s : c;
    *sine = negate_s[q & 3] ? -a : a;
    *cosine = negate_c[q & 3] ? -b : b;
}

uint64_t kc_number_name(const char *text)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    for (; *text; text++)
        h = (h ^ (uint8_t)*text) * UINT64_C(0x100000001b3);
    return h;
}

/* Two independent normal values from one counter: 53-bit uniforms u in (0, 1] and v in [0, 1), Box and Muller
 * (1958). */
static void normal_pair(const uint32_t word[4], double out[2])
{
    double u = (double)((((uint64_t)word[0] << 32 | word[1]) >> 11) + 1) * 0x1p-53;
    double v = (double)(((uint64_t)word[2] << 32 | word[3]) >> 11) * 0x1p-53;
    double s, c, radius = sqrt(-2 * kc_number_log(u));
    kc_number_turn(v, &s, &c);
    out[0] = radius * c;
    out[1] = radius * s;
}

void kc_number_normal(uint64_t seed, const char *purpose, const char *name, uint64_t first, uint64_t count,
                      double scale, float *out)
{
    uint64_t stream = kc_number_name(purpose) * UINT64_C(0x9E3779B97F4A7C15) ^ kc_number_name(name);
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    uint64_t last = first + count;
    for (uint64_t pair = first / 2; pair * 2 < last; pair++) {
        const uint32_t counter[4] = {(uint32_t)pair, (uint32_t)(pair >> 32), (uint32_t)stream,
                                     (uint32_t)(stream >> 32)};
        uint32_t word[4];
        double z[2];
        kc_philox(counter, key, word);
        normal_pair(word, z);
        for (int i = 0; i < 2; i++)
            if (pair * 2 + (uint64_t)i >= first && pair * 2 + (uint64_t)i < last)
                out[pair * 2 + (uint64_t)i - first] = (float)(z[i] * scale);
    }
}
