/* codec_read.c - values again from what codec.c stored. Trusts none of it: every length is compared with what is left
 * before it is used, and zstd writes to a plane of a chunk, never further. */
#include "codec_impl.h"

#include <errno.h>
#include <string.h>

/* A plane of `n` bytes that is stored at `from`, `left` bytes before the end: where it lies now, or NULL. *used: of those. */
static const unsigned char *get_plane(struct kc_codec *c, size_t k, uint32_t entry, const unsigned char *from, size_t left,
                                      size_t n, size_t *used)
{
    const uint32_t how = entry >> KC_FRAME_SIZE_BITS;
    const size_t bytes = entry & ((1u << KC_FRAME_SIZE_BITS) - 1);
    if (bytes > left)
        return NULL;
    *used = bytes;
    if (how == KC_PLANE_RAW)
        return bytes == n ? from : NULL;
    if (how == KC_PLANE_CONSTANT) {
        if (bytes != 1)
            return NULL;
        memset(c->plane[k], *from, n);
        return c->plane[k];
    }
    if (how != KC_PLANE_ZSTD)
        return NULL;
    return ZSTD_decompressDCtx(c->reader, c->plane[k], n, from, bytes) == n ? c->plane[k] : NULL;
}

static int get_frame(struct kc_codec *c, const struct kc_codec_stored *s, size_t width, unsigned char *values)
{
    const unsigned char *from = s->stored, *base = s->id == KC_CODEC_PLANES ? NULL : s->base;
    unsigned char head[KC_FRAME_HEAD];
    kc_frame_head(head, s->id, width, s->count);
    if (s->bytes < sizeof head || memcmp(from, head, sizeof head) != 0)
        return -EBADMSG;
    size_t at = sizeof head;
    for (uint32_t first = 0; first < s->count; first += KC_CODEC_CHUNK) {
        const size_t n = kc_codec_chunk(s->count, first), skip = first * width;
        const unsigned char *entries = from + at, *plane[KC_PLANES] = {NULL};
        if (s->bytes - at < width * KC_FRAME_PLANE)
            return -EBADMSG;
        at += width * KC_FRAME_PLANE;
        for (size_t k = 0; k < width; k++) {
            uint32_t entry;
            size_t used = 0;
            memcpy(&entry, entries + k * KC_FRAME_PLANE, sizeof entry);
            if (!(plane[k] = get_plane(c, k, entry, from + at, s->bytes - at, n, &used)))
                return -EBADMSG;
            at += used;
        }
        kc_planes_join(s->id, width, values + skip, base ? base + skip : NULL, n, plane);
    }
    return at == s->bytes ? 0 : -EBADMSG;
}

int kc_codec_decode(struct kc_codec *c, const struct kc_codec_stored *s, void *values)
{
    const size_t width = kc_codec_width(s->type, s->count), raw = width * s->count;
    if (!width)
        return -EINVAL;
    switch (s->id) {
    case KC_CODEC_RAW:
        if (s->bytes != raw)
            return -EBADMSG;
        memcpy(values, s->stored, raw);
        return 0;
    case KC_CODEC_CONSTANT:
        if (s->bytes != width)
            return -EBADMSG;
        for (size_t i = 0; i < s->count; i++)
            memcpy((unsigned char *)values + i * width, s->stored, width);
        return 0;
    case KC_CODEC_BASE:
        if (!s->base)
            return -EINVAL;
        if (s->bytes != 0)
            return -EBADMSG;
        if (values != s->base)
            memcpy(values, s->base, raw);
        return 0;
    case KC_CODEC_XOR:
    case KC_CODEC_DIFFERENCE:
        if (!s->base)
            return -EINVAL;
        return get_frame(c, s, width, values);
    case KC_CODEC_PLANES:
        return get_frame(c, s, width, values);
    default:
        return -EBADMSG;
    }
}
