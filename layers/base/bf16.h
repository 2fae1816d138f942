/* bf16.h - the upper half of an IEEE 754 single: the same exponents, 8 bits of fraction. One rounding for all, so that
 * what one room rounds another finds again bit for bit. */
#ifndef KC_BASE_BF16_H
#define KC_BASE_BF16_H

#include <stdint.h>
#include <string.h>

/* To nearest, ties to even; what is too large becomes infinite, not a number stays not a number (made quiet). */
static inline uint16_t kc_bf16_from_float(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if ((bits & 0x7fffffff) > 0x7f800000)
        return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* Exact. */
static inline float kc_bf16_to_float(uint16_t half)
{
    uint32_t bits = (uint32_t)half << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

#endif
