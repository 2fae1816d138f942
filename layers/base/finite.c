/* finite.c */
#include "base/finite.h"

#include <math.h>
#include <string.h>

#define BLOCK 1024

int64_t kc_find_nonfinite(const float *data, uint64_t count)
{
    /* exponent all ones: adding one to it carries into the sign bit, which the mask has cleared */
    for (uint64_t at = 0; at < count; at += BLOCK) {
        uint32_t any = 0, bits[BLOCK];
        uint64_t n = count - at < BLOCK ? count - at : BLOCK;
        if (n < BLOCK)
            memset(bits, 0, sizeof bits);
        memcpy(bits, data + at, n * sizeof *bits);
        for (int i = 0; i < BLOCK; i++)
            any |= (bits[i] & UINT32_C(0x7fffffff)) + UINT32_C(0x00800000);
        if (!(any & UINT32_C(0x80000000)))
            continue;
        for (uint64_t i = 0; i < n; i++)
            if (!isfinite(data[at + i]))
                return (int64_t)(at + i);
    }
    return -1;
}
