/* digest.h - 128-bit fingerprints (XXH3-128, xxHash specification 0.1.1), for finding differences, not for secrets. */
#ifndef KC_BASE_DIGEST_H
#define KC_BASE_DIGEST_H

#include <stddef.h>
#include <stdint.h>

struct kc_digest {
    uint64_t low, high;
};

struct kc_digest kc_digest(const void *data, size_t bytes);
int kc_digest_equal(struct kc_digest a, struct kc_digest b);
/* 32 lower-case hex digits, high half first, and a NUL. */
void kc_digest_text(struct kc_digest d, char out[33]);
/* The inverse. -EINVAL if it is not exactly 32 hex digits. */
int kc_digest_parse(const char *text, struct kc_digest *out);

#endif
