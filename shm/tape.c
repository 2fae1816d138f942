/* tape.c - the code of a recording's frames: entries to bytes and back, pressed by zstd. Pure; reads believe nothing. */
#include "tape.h"

#include <errno.h>
#include <string.h>

/* A context in memory that is given to it: the keeper keeps none. Since 1.4. */
#define ZSTD_STATIC_LINKING_ONLY
#include <zstd.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "heads and words are written as they lie in memory");

#define LEVEL 3

struct kc_digest kc_tape_digest(const struct kc_tape_frame *f, const void *stored)
{
    /* two digests in one: what is stored may lie elsewhere than its head */
    struct {
        unsigned char head[offsetof(struct kc_tape_frame, digest)];
        struct kc_digest body;
    } all;
    memcpy(all.head, f, sizeof all.head);
    all.body = kc_digest(stored, f->stored);
    return kc_digest(&all, sizeof all);
}

/* ---- numbers ---- */

static unsigned char *put_number(unsigned char *p, uint64_t v)
{
    for (; v >= 0x80; v >>= 7)
        *p++ = (unsigned char)(v | 0x80);
    *p++ = (unsigned char)v;
    return p;
}

/* NULL: it does not end. */
static const unsigned char *get_number(const unsigned char *p, const unsigned char *end, uint64_t *v)
{
    *v = 0;
    for (unsigned shift = 0; p < end && shift < 64; shift += 7) {
        *v |= (uint64_t)(*p & 0x7f) << shift;
        if (!(*p++ & 0x80))
            return p;
    }
    return NULL;
}

static uint64_t zigzag(uint64_t difference)
{
    return difference << 1 ^ (0 - (difference >> 63));
}

static uint64_t unzigzag(uint64_t v)
{
    return v >> 1 ^ (0 - (v & 1));
}

/* ---- entries ---- */

unsigned char *kc_tape_put(struct kc_tape_walk *w, unsigned char *p, uint64_t offset, const uint64_t *word, size_t words)
{
    p = put_number(p, zigzag(offset / 8 - w->end));
    p = put_number(p, words);
    w->end = offset / 8 + words;
    if (words > KC_TAPE_SHORT) {
        memcpy(p, word, words * 8);
        return p + words * 8;
    }
    uint64_t *last = w->last[words];
    for (size_t i = 0; i < words; i++) {
        p = put_number(p, zigzag(word[i] - last[i]));
        last[i] = word[i];
    }
    return p;
}

/* The words of one entry. NULL: they do not end. */
static const unsigned char *get_words(struct kc_tape_walk *w, const unsigned char *p, const unsigned char *end,
                                      uint64_t *to, uint64_t words)
{
    if (words > KC_TAPE_SHORT) {
        if ((uint64_t)(end - p) / 8 < words)
            return NULL;
        memcpy(to, p, words * 8);
        return p + words * 8;
    }
    uint64_t *last = w->last[words], v;
    for (size_t i = 0; i < words; i++) {
        p = get_number(p, end, &v);
        if (!p)
            return NULL;
        to[i] = last[i] += unzigzag(v);
    }
    return p;
}

int kc_tape_apply(const unsigned char *raw, size_t bytes, void *board, uint64_t board_bytes)
{
    struct kc_tape_walk w = {0};
    const unsigned char *p = raw, *end = raw + bytes;
    const uint64_t most = board_bytes / 8;
    while (p < end) {
        uint64_t at, words;
        p = get_number(p, end, &at);
        p = p ? get_number(p, end, &words) : NULL;
        if (!p)
            return -EBADMSG;
        at = unzigzag(at) + w.end;
        if (words == 0 || words > most || at > most - words)
            return -EBADMSG;
        p = get_words(&w, p, end, (uint64_t *)board + at, words);
        if (!p)
            return -EBADMSG;
        w.end = at + words;
    }
    return 0;
}

/* ---- zstd ---- */

size_t kc_tape_press_memory(void)
{
    return ZSTD_estimateCCtxSize(LEVEL);
}

size_t kc_tape_press_bound(size_t raw)
{
    return ZSTD_compressBound(raw);
}

size_t kc_tape_press(void *memory, const void *raw, size_t bytes, void *to, size_t room)
{
    ZSTD_CCtx *c = ZSTD_initStaticCCtx(memory, kc_tape_press_memory());
    if (!c)
        return 0;
    ZSTD_CCtx_setParameter(c, ZSTD_c_compressionLevel, LEVEL);
    ZSTD_CCtx_setParameter(c, ZSTD_c_contentSizeFlag, 0);
    const size_t n = ZSTD_compress2(c, to, room, raw, bytes); /* with tables as small as it is */
    return ZSTD_isError(n) ? 0 : n;
}

int kc_tape_unpress(const void *stored, size_t bytes, void *to, size_t raw)
{
    const size_t n = ZSTD_decompress(to, raw, stored, bytes);
    return ZSTD_isError(n) || n != raw ? -EBADMSG : 0;
}
