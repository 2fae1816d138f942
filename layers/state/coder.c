/* coder.c - see coder.h. Buffers are filled in turn; small extents share one. */
#include "coder.h"

#include "pack.h"

#include <errno.h>
#include <stdlib.h>

static size_t buffer_bytes(void)
{
    const size_t bound = kc_codec_bound(KC_F32, KC_PACK_GRID);
    return (bound + KC_PACK_ALIGN - 1) / KC_PACK_ALIGN * KC_PACK_ALIGN;
}

int kc_coder_new(struct kc_coder **out)
{
    struct kc_coder *c = calloc(1, sizeof *c);
    int r = c ? kc_codec_new(&c->codec) : -ENOMEM;
    if (r == 0 && !(c->buffer[0] = aligned_alloc(KC_PACK_ALIGN, KC_CODER_BUFFERS * buffer_bytes())))
        r = -ENOMEM;
    if (r < 0) {
        kc_coder_free(c);
        return r;
    }
    c->room = buffer_bytes();
    for (uint32_t i = 1; i < KC_CODER_BUFFERS; i++)
        c->buffer[i] = c->buffer[0] + i * c->room;
    *out = c;
    return 0;
}

struct kc_coder *kc_coder_free(struct kc_coder *c)
{
    if (c) {
        kc_codec_free(c->codec);
        free(c->buffer[0]);
    }
    free(c);
    return NULL;
}

size_t kc_coder_bytes(void)
{
    return KC_CODER_BUFFERS * buffer_bytes() + (UINT32_C(2) << 20);
}

void kc_coder_begin(struct kc_coder *c)
{
    for (uint32_t i = 0; i < KC_CODER_BUFFERS; i++)
        c->writes[i] = 0;
    c->current = 0;
    c->used = 0;
}

unsigned char *kc_coder_room(struct kc_coder *c, struct kc_writes *w, uint32_t count)
{
    if (c->room - c->used < kc_codec_bound(KC_F32, count)) {
        c->current = (c->current + 1) % KC_CODER_BUFFERS;
        c->used = 0;
        if (kc_writes_until(w, c->writes[c->current]) < 0)
            return NULL;
    }
    return c->buffer[c->current] + c->used;
}

void kc_coder_used(struct kc_coder *c, const struct kc_writes *w, size_t bytes)
{
    const size_t end = c->used + bytes;
    c->used = (end + KC_PACK_ALIGN - 1) / KC_PACK_ALIGN * KC_PACK_ALIGN;
    c->used = c->used < c->room ? c->used : c->room;
    c->writes[c->current] = w->count;
}
