/* codec.h - codes the values of one extent without loss, in the fewest bytes of a few ways.
 *
 * The fractions of trained values are noise and no code shortens them; their exponents take few values and code to a third
 * (ZipNN, arXiv 2411.05239). Beside an earlier version of the same elements, values that hardly moved leave small
 * differences (FM-Delta, NeurIPS 2024), and values that did not move leave nothing. Everything works on bits: what is not a
 * number, −0 and subnormals come back as they were.
 *
 * What is stored, by codec; numbers are little-endian, as values are in packs:
 *   raw         the values
 *   constant    one element; all are that
 *   base        nothing; all are those of the base
 *   planes      a frame of the words rotate(x)
 *   xor         a frame of the words rotate(x ^ b), b of the base
 *   difference  a frame of the words zigzag(order(x) − order(b))
 * with rotate(x) = x turned left by one bit, so that the exponent fills the highest byte and the sign is the lowest bit;
 * order(x) = ~x where the sign is set, else x with it set: integers in the order of the numbers; zigzag(d) = 2d where d ≥ 0
 * as a signed word, else −2d − 1.
 *
 * A frame (version 1):
 *   byte 0    version                          byte 4    elements, 4 bytes
 *   byte 1    codec (enum kc_codec_id)         byte 8    chunks, of KC_CODEC_CHUNK elements each, the last of what remains
 *   byte 2    bytes of an element, 4 or 2
 *   byte 3    0
 * A chunk: for each byte of a word, the lowest first, 4 bytes: how that byte's plane is stored << 24 | bytes stored; then
 * the planes in that order. A plane is byte k of every word: raw (enum kc_plane_how), one byte that all are, or a zstd
 * frame (RFC 8878). The frame ends with its last chunk.
 *
 * Nothing here detects that a bit of a fraction was turned: an extent's digest is of its values, and decides. */
#ifndef KC_STATE_CODEC_H
#define KC_STATE_CODEC_H

#include "contracts/types.h"

#define KC_CODEC_VERSION 1
#define KC_CODEC_BYTES (UINT32_C(4) << 20)  /* of an extent's values, at most */
#define KC_CODEC_CHUNK (UINT32_C(128) << 10) /* elements: a plane of them is what zstd codes at once */

/* Numbers are format: append only. */
#define KC_CODEC_TABLE(X)                                                                                              \
    X(CODEC_RAW, "raw", 0) X(CODEC_CONSTANT, "constant", 0) X(CODEC_PLANES, "planes", 0) X(CODEC_XOR, "xor", 0)        \
    X(CODEC_DIFFERENCE, "difference", 0) X(CODEC_BASE, "base", 0)
enum kc_codec_id { KC_CODEC_TABLE(KC_ENUM_ROW) KC_CODECS };
extern const char *const kc_codec_name[KC_CODECS];
enum kc_plane_how { KC_PLANE_RAW, KC_PLANE_CONSTANT, KC_PLANE_ZSTD };

/* Sets of codecs: bits 1 << enum kc_codec_id. */
#define KC_CODEC_ALL ((1u << KC_CODECS) - 1)
/* Those that only compare: where values differ they end at the first that does. */
#define KC_CODEC_CHEAP (1u << KC_CODEC_RAW | 1u << KC_CODEC_CONSTANT | 1u << KC_CODEC_BASE)

struct kc_codec_job {
    const void *values; /* `count` elements */
    const void *base;   /* as many of the same type, or NULL */
    enum kc_type type;  /* KC_F32, KC_BF16 */
    uint32_t count;     /* > 0, at most KC_CODEC_BYTES of them */
    uint32_t allowed;   /* set */
};

struct kc_codec_result {
    enum kc_codec_id id;
    const void *stored; /* borrowed: `out`, or `values` where raw won and nothing was copied */
    size_t bytes;
};

struct kc_codec_stored {
    enum kc_codec_id id;
    const void *base;
    enum kc_type type;
    uint32_t count;
    const void *stored;
    size_t bytes;
};

/* What coding works with: two contexts of zstd and the planes of a chunk, about 2 MiB, for one thread at a time. Nothing
 * is allocated after it. -ENOMEM. */
struct kc_codec;
int kc_codec_new(struct kc_codec **out);
struct kc_codec *kc_codec_free(struct kc_codec *c);

/* Bytes that `out` must have to code `count` elements. 0: no type or count that can be coded. */
size_t kc_codec_bound(enum kc_type type, uint32_t count);

/* Code by the best of the allowed, which a sample of the values tells: raw if nothing saves a 32nd, planes if a base
 * saves no 32nd more. If raw is not allowed, the best of the others, longer than the values or not. The same input gives
 * the same bytes with the same libzstd.
 * -EINVAL type, count, or no allowed codec is possible; -ENOSPC room below kc_codec_bound(). */
int kc_codec_encode(struct kc_codec *c, const struct kc_codec_job *job, void *out, size_t room,
                    struct kc_codec_result *result);

/* The values again, to `values`, which may be the base (a chain is undone in place) but not otherwise overlap anything.
 * Whatever is stored, nothing outside what is given is read or written. -EBADMSG it is damaged (values are undefined then);
 * -EINVAL type, count, or a base is needed and not given. */
int kc_codec_decode(struct kc_codec *c, const struct kc_codec_stored *s, void *values);

#endif
