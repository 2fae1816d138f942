/* codec.c - chooses a codec by a sample and writes it. Knows no file and no clock. */
#include "codec_impl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* A negative level searches for next to no repeats: what it makes of a plane is Huffman codes, faster than level 1 and
 * shorter where nothing repeats. Level 1 is for planes in which most bytes are the same. */
enum { LEVEL_HUFFMAN = -1000, LEVEL_MATCH = 1, LITERALS_HUFFMAN = 1 /* ZSTD_ps_enable, ZSTD_lcm_huffman before 1.5.1 */ };
enum { WINDOWS = 4, SAMPLE_LEAST = 1024, SAMPLE_MOST = 4096 /* elements */, LEAST_GAIN = 32 };
enum how { STORE, HUFFMAN, MATCH }; /* a plane */

struct plan {
    enum kc_codec_id id;
    enum how how[KC_PLANES];
    size_t bytes; /* of the sample, coded */
};

#define NAME_ROW(id, name, extra) name,
const char *const kc_codec_name[KC_CODECS] = {KC_CODEC_TABLE(NAME_ROW)};

static size_t align_up(size_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

int kc_codec_new(struct kc_codec **out)
{
    const size_t head = align_up(sizeof(struct kc_codec)), planes = KC_PLANES * (size_t)KC_CODEC_CHUNK,
                 trial = align_up(ZSTD_COMPRESSBOUND(SAMPLE_MOST)), reader = align_up(ZSTD_estimateDCtxSize()),
                 writer = align_up(larger(ZSTD_estimateCCtxSize(LEVEL_HUFFMAN), ZSTD_estimateCCtxSize(LEVEL_MATCH)));
    unsigned char *m = aligned_alloc(64, head + planes + trial + reader + writer);
    if (!m)
        return -ENOMEM;
    struct kc_codec *c = (struct kc_codec *)m;
    *c = (struct kc_codec){.trial = m + head + planes};
    for (size_t k = 0; k < KC_PLANES; k++)
        c->plane[k] = m + head + k * KC_CODEC_CHUNK;
    c->reader = ZSTD_initStaticDCtx(m + head + planes + trial, reader);
    c->writer = ZSTD_initStaticCCtx(m + head + planes + trial + reader, writer);
    if (!c->reader || !c->writer) {
        free(m);
        return -ENOMEM;
    }
    *out = c;
    return 0;
}

struct kc_codec *kc_codec_free(struct kc_codec *c)
{
    free(c);
    return NULL;
}

size_t kc_codec_width(enum kc_type type, uint32_t count)
{
    size_t width = type == KC_F32 ? 4 : type == KC_BF16 ? 2 : 0;
    return width && count > 0 && count <= KC_CODEC_BYTES / width ? width : 0;
}

size_t kc_codec_bound(enum kc_type type, uint32_t count)
{
    size_t width = kc_codec_width(type, count), chunks = (count + KC_CODEC_CHUNK - 1) / KC_CODEC_CHUNK;
    /* the last part is room for zstd to try in: with less than its bound it takes slower loops */
    return width ? KC_FRAME_HEAD + width * (count + chunks * KC_FRAME_PLANE) + ZSTD_COMPRESSBOUND(KC_CODEC_CHUNK) : 0;
}

/* All elements are the first. */
static int same(const unsigned char *p, size_t width, size_t bytes)
{
    return memcmp(p, p + width, bytes - width) == 0;
}

/* What zstd makes of a plane, or 0: no less than the plane. */
static size_t squeeze(struct kc_codec *c, enum how how, const unsigned char *plane, size_t n, unsigned char *out, size_t room)
{
    ZSTD_CCtx_setParameter(c->writer, ZSTD_c_compressionLevel, how == HUFFMAN ? LEVEL_HUFFMAN : LEVEL_MATCH);
    if (ZSTD_isError(ZSTD_CCtx_setParameter(c->writer, ZSTD_c_literalCompressionMode, how == HUFFMAN ? LITERALS_HUFFMAN : 0)))
        ZSTD_CCtx_setParameter(c->writer, ZSTD_c_compressionLevel, LEVEL_MATCH); /* it is experimental: a library without it */
    size_t got = ZSTD_compress2(c->writer, out, room, plane, n);
    return ZSTD_isError(got) || got >= n ? 0 : got;
}

/* How to store a plane of which this is a sample; its bytes are added to *bytes. */
static enum how choose_plane(struct kc_codec *c, const unsigned char *plane, size_t n, size_t *bytes)
{
    if (same(plane, 1, n)) {
        *bytes += 1;
        return MATCH; /* where a chunk has something else it is rare */
    }
    const size_t room = ZSTD_COMPRESSBOUND(SAMPLE_MOST);
    size_t huffman = squeeze(c, HUFFMAN, plane, n, c->trial, room);
    if (huffman == 0 || huffman > n - n / LEAST_GAIN) {
        *bytes += n;
        return STORE;
    }
    /* repeats are worth their time where a byte takes less than two bits: a Huffman code has at least one */
    size_t match = huffman < n / 4 ? squeeze(c, MATCH, plane, n, c->trial, room) : 0;
    int matches = match > 0 && match < huffman - huffman / 8;
    *bytes += matches ? match : huffman;
    return matches ? MATCH : HUFFMAN;
}

/* Elements of an extent's sample: all of a small one, else a 16th within limits, in WINDOWS parts. */
static uint32_t sample_of(uint32_t count)
{
    uint32_t n = count / 16 < SAMPLE_LEAST ? SAMPLE_LEAST : count / 16 > SAMPLE_MOST ? SAMPLE_MOST : count / 16;
    return count <= SAMPLE_LEAST ? count : n / WINDOWS * WINDOWS;
}

/* Codec `id` tried on windows across the extent. */
static struct plan choose_planes(struct kc_codec *c, const struct kc_codec_job *j, size_t width, enum kc_codec_id id)
{
    struct plan p = {.id = id};
    const uint32_t sample = sample_of(j->count), windows = sample < j->count ? WINDOWS : 1, n = sample / windows;
    for (uint32_t w = 0; w < windows; w++) {
        size_t first = windows > 1 ? (size_t)(j->count - n) / (WINDOWS - 1) * w : 0;
        unsigned char *to[KC_PLANES];
        for (size_t k = 0; k < KC_PLANES; k++)
            to[k] = c->plane[k] + w * n;
        kc_planes_split(id, width, (const unsigned char *)j->values + first * width,
                        id == KC_CODEC_PLANES ? NULL : (const unsigned char *)j->base + first * width, n, to);
    }
    for (size_t k = 0; k < width; k++)
        p.how[k] = choose_plane(c, c->plane[k], sample, &p.bytes);
    return p;
}

/* raw, or the one with planes that makes least of the sample; a base must save a 32nd more, as it must then be there. */
static struct plan choose(struct kc_codec *c, const struct kc_codec_job *j, size_t width)
{
    static const enum kc_codec_id with_planes[] = {KC_CODEC_PLANES, KC_CODEC_XOR, KC_CODEC_DIFFERENCE};
    const size_t raw = width * sample_of(j->count);
    struct plan best = {.id = KC_CODEC_RAW, .bytes = j->allowed & 1u << KC_CODEC_RAW ? raw - raw / LEAST_GAIN : SIZE_MAX};
    for (size_t i = 0; i < sizeof with_planes / sizeof *with_planes; i++) {
        enum kc_codec_id id = with_planes[i];
        if (!(j->allowed & 1u << id) || (id != KC_CODEC_PLANES && !j->base))
            continue;
        struct plan p = choose_planes(c, j, width, id);
        p.bytes += id == KC_CODEC_PLANES ? 0 : p.bytes / LEAST_GAIN;
        if (p.bytes < best.bytes)
            best = p;
    }
    return best;
}

/* Store a plane at `out`, which may be where it lies or before it. Its entry: how << 24 | bytes. */
static uint32_t put_plane(struct kc_codec *c, enum how how, const unsigned char *plane, size_t n, unsigned char *out, size_t room)
{
    if (same(plane, 1, n)) {
        *out = *plane;
        return KC_PLANE_CONSTANT << KC_FRAME_SIZE_BITS | 1;
    }
    size_t got = how == STORE ? 0 : squeeze(c, how, plane, n, out, room);
    if (got > 0)
        return KC_PLANE_ZSTD << KC_FRAME_SIZE_BITS | (uint32_t)got;
    memmove(out, plane, n);
    return KC_PLANE_RAW << KC_FRAME_SIZE_BITS | (uint32_t)n;
}

/* A frame, or its beginning where it is no shorter than `enough`; how long it is. */
static size_t put_frame(struct kc_codec *c, const struct kc_codec_job *j, size_t width, const struct plan *p, unsigned char *out,
                        size_t room, size_t enough)
{
    size_t at = KC_FRAME_HEAD;
    kc_frame_head(out, p->id, width, j->count);
    for (uint32_t first = 0; first < j->count && at < enough; first += KC_CODEC_CHUNK) {
        const size_t n = kc_codec_chunk(j->count, first), skip = first * width;
        unsigned char *entry = out + at, *to[KC_PLANES] = {NULL};
        at += width * KC_FRAME_PLANE;
        /* planes that are stored as they are, up to the first that is not, are made where they belong */
        size_t direct = 0;
        for (size_t k = 0; k < width; k++) {
            to[k] = direct == k && p->how[k] == STORE ? out + at + k * n : c->plane[k];
            direct += to[k] != c->plane[k];
        }
        kc_planes_split(p->id, width, (const unsigned char *)j->values + skip,
                        p->id == KC_CODEC_PLANES ? NULL : (const unsigned char *)j->base + skip, n, to);
        for (size_t k = 0; k < width; k++) {
            uint32_t e = put_plane(c, p->how[k], to[k], n, out + at, room - at);
            memcpy(entry + k * KC_FRAME_PLANE, &e, sizeof e);
            at += e & ((1u << KC_FRAME_SIZE_BITS) - 1);
        }
    }
    return at;
}

int kc_codec_encode(struct kc_codec *c, const struct kc_codec_job *j, void *out, size_t room, struct kc_codec_result *result)
{
    const size_t width = kc_codec_width(j->type, j->count), raw = width * j->count;
    if (!width)
        return -EINVAL;
    if (room < kc_codec_bound(j->type, j->count))
        return -ENOSPC;
    if (j->allowed & 1u << KC_CODEC_BASE && j->base && memcmp(j->values, j->base, raw) == 0) {
        *result = (struct kc_codec_result){.id = KC_CODEC_BASE, .stored = out};
        return 0;
    }
    if (j->allowed & 1u << KC_CODEC_CONSTANT && same(j->values, width, raw)) {
        memcpy(out, j->values, width);
        *result = (struct kc_codec_result){.id = KC_CODEC_CONSTANT, .stored = out, .bytes = width};
        return 0;
    }
    const int raw_allowed = (j->allowed & 1u << KC_CODEC_RAW) != 0;
    struct plan p = choose(c, j, width);
    if (p.id != KC_CODEC_RAW) {
        size_t bytes = put_frame(c, j, width, &p, out, room, raw_allowed ? raw : SIZE_MAX);
        if (bytes < raw || !raw_allowed) {
            *result = (struct kc_codec_result){.id = p.id, .stored = out, .bytes = bytes};
            return 0;
        }
    }
    if (!raw_allowed)
        return -EINVAL;
    *result = (struct kc_codec_result){.id = KC_CODEC_RAW, .stored = j->values, .bytes = raw};
    return 0;
}
