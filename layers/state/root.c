/* root.c - the arithmetic of state_root. Reads what it is given; allocates for the last digest only. */
#include "root.h"

#include "number.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* The rounds of "moremur" (Pelle Evensen, 2019), a bijection of 64 bits, with a second output from its middle. */
#define C1 UINT64_C(0x3C79AC492BA7B653)
#define C2 UINT64_C(0x1C69B3F74AC4AE35)
#define C3 UINT64_C(0x9FB21C651E98DF25)

uint64_t kc_root_key(const char *name, enum kc_kind kind)
{
    uint64_t x = kc_number_name(name) + (uint64_t)(kind + 1) * UINT64_C(0x9E3779B97F4A7C15);
    x = (x ^ x >> 27) * C1;
    x = (x ^ x >> 33) * C2;
    return x ^ x >> 27;
}

void kc_root_normalise(uint64_t limb[4])
{
    uint64_t carry = 0;
    for (int i = 0; i < 4; i++) {
        carry += limb[i];
        limb[i] = carry & UINT32_MAX;
        carry >>= 32;
    }
}

/* Elements whose index has the same high half; `key` knows that half. Sums without a carry chain: of the low word
 * both the sum modulo 2^64 and the sum of its high halves, from which its low halves follow; of the high word the
 * sum modulo 2^64 is all that counts. */
static void add_run(uint64_t key, uint32_t first, const uint32_t *bits, size_t count, uint64_t limb[4])
{
    uint64_t low_sum = 0, low_upper = 0, high_sum = 0;
    for (size_t i = 0; i < count; i++) {
        uint64_t z = ((uint64_t)(first + (uint32_t)i) << 32 | bits[i]) ^ key;
        uint64_t a = (z ^ z >> 27) * C1;
        a ^= a >> 33;
        uint64_t low = a * C2, high = a * C3;
        low ^= low >> 27;
        low_sum += low;
        low_upper += low >> 32;
        high_sum += high ^ high >> 32;
    }
    limb[0] += low_sum - (low_upper << 32);
    limb[1] += low_upper;
    limb[2] += high_sum & UINT32_MAX;
    limb[3] += high_sum >> 32;
    kc_root_normalise(limb);
}

void kc_root_add(uint64_t key, uint64_t first, const float *values, uint64_t count, uint64_t limb[4])
{
    uint32_t bits[1024]; /* floats are read as bits through a copy: aliasing rules, and it stays in cache */
    while (count > 0) {
        uint64_t to_wrap = (UINT64_C(1) << 32) - (first & UINT32_MAX);
        size_t n = count < 1024 ? (size_t)count : 1024;
        n = n < to_wrap ? n : (size_t)to_wrap;
        memcpy(bits, values, n * sizeof *bits);
        add_run(key + (first >> 32) * UINT64_C(0xD1B54A32D192ED03), (uint32_t)first, bits, n, limb);
        first += n;
        values += n;
        count -= n;
    }
}

void kc_root_add_box(uint64_t key, const struct kc_region *r, uint64_t lo, const float *values, uint64_t count,
                     uint64_t limb[4])
{
    while (count > 0) {
        uint64_t run, first = kc_region_global(r, lo, &run), n = run < count ? run : count;
        kc_root_add(key, first, values, n, limb);
        lo += n;
        values += n;
        count -= n;
    }
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct kc_root_tensor *)a)->name, ((const struct kc_root_tensor *)b)->name);
}

static unsigned char *put(unsigned char *at, const void *data, size_t bytes)
{
    memcpy(at, data, bytes);
    return at + bytes;
}

static unsigned char *put_tensor(unsigned char *at, const struct kc_root_tensor *t)
{
    uint32_t length = (uint32_t)strlen(t->name);
    at = put(at, &length, 4);
    at = put(at, t->name, length);
    at = put(at, &t->shape.rank, 4);
    at = put(at, t->shape.size, 8 * (size_t)t->shape.rank);
    for (int k = 0; k < KC_KIND_COUNT; k++)
        for (int i = 0; i < 4; i++) {
            uint32_t limb = (uint32_t)t->limb[k][i];
            at = put(at, &limb, 4);
        }
    return at;
}

int kc_root_digest(struct kc_root_tensor *t, uint32_t count, const struct kc_progress *progress, uint64_t seed,
                   struct kc_digest *out)
{
    static const char tag[16] = "kc-state-root-1";
    size_t room = sizeof tag + 4 * sizeof(uint64_t);
    for (uint32_t i = 0; i < count; i++)
        room += 4 + strlen(t[i].name) + 4 + 8 * KC_DIMS_MAX + 16 * KC_KIND_COUNT;
    unsigned char *data = malloc(room), *at = data;
    if (!data)
        return -ENOMEM;
    qsort(t, count, sizeof *t, by_name);
    at = put(at, tag, sizeof tag);
    for (uint32_t i = 0; i < count; i++)
        at = put_tensor(at, &t[i]);
    const uint64_t tail[4] = {progress->step, progress->tokens, progress->position, seed};
    at = put(at, tail, sizeof tail);
    *out = kc_digest(data, (size_t)(at - data));
    free(data);
    return 0;
}
