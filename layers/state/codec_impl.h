/* codec_impl.h - what the halves of the codec share: codec.c (which way, and frames written), codec_read.c (frames read). */
#ifndef KC_STATE_CODEC_IMPL_H
#define KC_STATE_CODEC_IMPL_H

#include "codec.h"
#include "codec_planes.h"

/* Contexts in memory given to them, which allocate nothing later; and literals by Huffman codes alone. Since 1.4. */
#define ZSTD_STATIC_LINKING_ONLY
#include <zstd.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "entries of planes are written as they lie in memory");

#define KC_FRAME_HEAD 8 /* bytes; and of a plane's entry in a chunk: */
#define KC_FRAME_PLANE 4
#define KC_FRAME_SIZE_BITS 24 /* of that entry: the rest says how */

struct kc_codec {
    ZSTD_CCtx *writer;
    ZSTD_DCtx *reader;
    unsigned char *plane[KC_PLANES]; /* KC_CODEC_CHUNK bytes each */
    unsigned char *trial;            /* room for what zstd makes of a sample */
};

/* Bytes of an element, 0: not a type that is coded, or a count that is none. */
size_t kc_codec_width(enum kc_type type, uint32_t count);

static inline uint32_t kc_codec_chunk(uint32_t count, uint32_t first)
{
    return count - first < KC_CODEC_CHUNK ? count - first : KC_CODEC_CHUNK;
}

/* The first bytes of a frame. */
static inline void kc_frame_head(unsigned char head[KC_FRAME_HEAD], enum kc_codec_id id, size_t width, uint32_t count)
{
    head[0] = KC_CODEC_VERSION;
    head[1] = (unsigned char)id;
    head[2] = (unsigned char)width;
    head[3] = 0;
    for (int i = 0; i < 4; i++)
        head[4 + i] = (unsigned char)(count >> 8 * i);
}

#endif
