/* tokens.c - maps token files and copies out of them. Every access to mapped pages goes through guard_run(). */
#include "tokens.h"

#include "guard.h"
#include "mapped.h"
#include "mask.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK 4096 /* tokens looked at together: a fixed count, so that the loop is vectorised */

struct kc_tokens {
    struct mapped file;
    uint32_t bytes_each;
    uint64_t count;
};

static const struct format {
    int32_t magic, version;
    uint32_t bytes_each;
} formats[] = {
    {KC_TOKENS_MAGIC, KC_TOKENS_VERSION, 2},
    {KC_TOKENS_MAGIC_LLAMA3, KC_TOKENS_VERSION_LLAMA3, 4},
};

/* Check the header against the formats we know and against the length of the file. */
static int check_header(struct kc_tokens *t, struct kc_error *e)
{
    const struct mapped *m = &t->file;
    const struct format *format = NULL;
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (formats[i].magic == m->magic)
            format = &formats[i];
    if (!format)
        return kc_fail(
            e, -EINVAL,
            "%s: is %s (its first number is %d, expected %d or %d); make one from text with 'kc data prepare'",
            m->path, m->magic == KC_MASK_MAGIC ? "a loss mask and no token file" : "no token file", m->magic,
            KC_TOKENS_MAGIC, KC_TOKENS_MAGIC_LLAMA3);
    if (format->version != m->version)
        return kc_fail(e, -EINVAL,
                       "%s: token file of version %d, this program reads version %d of magic %d; " MAPPED_AGAIN,
                       m->path, m->version, format->version, m->magic);
    t->bytes_each = format->bytes_each;
    t->count = (uint64_t)m->count;
    return mapped_whole(m, format->bytes_each, e);
}

int kc_tokens_open(const char *path, struct kc_tokens **out, struct kc_error *e)
{
    struct kc_tokens *t = calloc(1, sizeof *t);
    if (!t)
        return kc_fail(e, -ENOMEM, "%s: out of memory", path);
    int r = mapped_open(path, &t->file, e);
    if (r == 0)
        r = check_header(t, e);
    if (r < 0) {
        kc_tokens_close(t);
        return r;
    }
    *out = t;
    return 0;
}

struct kc_tokens *kc_tokens_close(struct kc_tokens *t)
{
    if (t)
        mapped_close(&t->file);
    free(t);
    return NULL;
}

int kc_tokens_ready(const struct kc_tokens *t, struct kc_error *e)
{
    return mapped_ready(&t->file, e);
}

int kc_tokens_intact(const struct kc_tokens *t, struct kc_error *e)
{
    return mapped_intact(&t->file, e);
}

uint64_t kc_tokens_count(const struct kc_tokens *t)
{
    return t->count;
}

uint32_t kc_tokens_bytes_each(const struct kc_tokens *t)
{
    return t->bytes_each;
}

const char *kc_tokens_path(const struct kc_tokens *t)
{
    return t->file.path;
}

/* What guarded work knows. Tokens are little-endian in the file; so are the hosts we build for. */
struct copy {
    const struct kc_tokens *t;
    uint64_t first;
    size_t count;
    int32_t *out;
    uint32_t largest;
};

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "token files are read in place");

static void copy_tokens(void *arg)
{
    struct copy *c = arg;
    uint32_t largest = 0;
    if (c->t->bytes_each == 2) {
        const uint16_t *from = (const uint16_t *)(const void *)(c->t->file.map + KC_TOKENS_HEADER) + c->first;
        for (size_t i = 0; i < c->count; i++) {
            c->out[i] = from[i];
            largest = from[i] > largest ? from[i] : largest;
        }
    } else {
        const uint32_t *from = (const uint32_t *)(const void *)(c->t->file.map + KC_TOKENS_HEADER) + c->first;
        for (size_t i = 0; i < c->count; i++) {
            uint32_t v = from[i];
            c->out[i] = (int32_t)v;
            largest = v > largest ? v : largest;
        }
    }
    c->largest = largest;
}

int kc_tokens_copy(const struct kc_tokens *t, uint64_t first, size_t count, int32_t *out, uint32_t *largest,
                   struct kc_error *e)
{
    if (first > t->count || count > t->count - first)
        return kc_fail(e, -ERANGE, "%s: tokens %llu to %llu were asked for, it has %llu", t->file.path,
                       (unsigned long long)first, (unsigned long long)(first + count), (unsigned long long)t->count);
    struct copy c = {.t = t, .first = first, .count = count, .out = out};
    if (guard_run(copy_tokens, &c) < 0)
        return mapped_lost(&t->file, e);
    if (largest)
        *largest = c.largest;
    return 0;
}

void kc_tokens_prefetch(const struct kc_tokens *t, uint64_t first, size_t count)
{
    mapped_prefetch(&t->file, first * t->bytes_each, (uint64_t)count * t->bytes_each);
}

/* Largest token of a block; plain loops of fixed length over two widths, which compilers turn into vector maxima. */
static uint32_t block_max(const struct kc_tokens *t, uint64_t first)
{
    const void *data = t->file.map + KC_TOKENS_HEADER;
    if (t->bytes_each == 2) {
        const uint16_t *from = (const uint16_t *)data + first;
        uint16_t m = 0;
        for (int i = 0; i < BLOCK; i++)
            m = from[i] > m ? from[i] : m;
        return m;
    }
    const uint32_t *from = (const uint32_t *)data + first;
    uint32_t m = 0;
    for (int i = 0; i < BLOCK; i++)
        m = from[i] > m ? from[i] : m;
    return m;
}

static uint32_t token_at(const struct kc_tokens *t, uint64_t i)
{
    const void *data = t->file.map + KC_TOKENS_HEADER;
    return t->bytes_each == 2 ? ((const uint16_t *)data)[i] : ((const uint32_t *)data)[i];
}

struct scan {
    const struct kc_tokens *t;
    uint32_t largest;
    uint64_t where;
};

static void scan_tokens(void *arg)
{
    struct scan *s = arg;
    uint64_t i = 0, block = 0;
    s->largest = token_at(s->t, 0);
    for (; i + BLOCK <= s->t->count; i += BLOCK) {
        uint32_t m = block_max(s->t, i);
        if (m > s->largest) {
            s->largest = m;
            block = i;
        }
    }
    for (; i < s->t->count; i++)
        if (token_at(s->t, i) > s->largest) {
            s->largest = token_at(s->t, i);
            block = i;
        }
    while (token_at(s->t, block) != s->largest)
        block++;
    s->where = block;
}

int kc_tokens_max(const struct kc_tokens *t, uint32_t *largest, uint64_t *where, struct kc_error *e)
{
    struct scan s = {.t = t};
    mapped_prefetch(&t->file, 0, t->file.bytes);
    if (guard_run(scan_tokens, &s) < 0)
        return mapped_lost(&t->file, e);
    int r = kc_tokens_intact(t, e);
    if (r < 0)
        return r;
    *largest = s.largest;
    if (where)
        *where = s.where;
    return 0;
}
