/* digest.c - wraps the library, so that one file knows it. */
#include "base/digest.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

struct kc_digest kc_digest(const void *data, size_t bytes)
{
    XXH128_hash_t h = XXH3_128bits(data, bytes);
    return (struct kc_digest){.low = h.low64, .high = h.high64};
}

int kc_digest_equal(struct kc_digest a, struct kc_digest b)
{
    return a.low == b.low && a.high == b.high;
}

void kc_digest_text(struct kc_digest d, char out[33])
{
    snprintf(out, 33, "%016llx%016llx", (unsigned long long)d.high, (unsigned long long)d.low);
}

int kc_digest_parse(const char *text, struct kc_digest *out)
{
    uint64_t half[2] = {0, 0};
    if (strlen(text) != 32)
        return -EINVAL;
    for (int i = 0; i < 32; i++) {
        char c = text[i];
        int v = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
        if (v < 0)
            return -EINVAL;
        half[i / 16] = half[i / 16] << 4 | (uint64_t)v;
    }
    *out = (struct kc_digest){.high = half[0], .low = half[1]};
    return 0;
}
