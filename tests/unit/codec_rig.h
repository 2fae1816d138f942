/* codec_rig.h - what the tests of the codec share: a codec, values, and a trip there and back. */
#ifndef KC_TESTS_CODEC_RIG_H
#define KC_TESTS_CODEC_RIG_H

#include "state/codec.h"

#define ONLY(id) (1u << KC_CODEC_##id)
#define FRAMED 3 /* codecs that make frames */
extern const enum kc_codec_id codec_framed[FRAMED];

/* The one that all below use; made and freed by a fixture. */
extern struct kc_codec *codec;
void codec_begin(void);
void codec_end(void);

size_t codec_width(enum kc_type type);
/* A copy in memory of exactly that size, so that a sanitizer sees a byte before or after it. */
void *codec_copy(const void *data, size_t bytes);
/* Normal values by name; the same in bf16. */
float *codec_normal(const char *name, uint32_t count, double scale);
uint16_t *codec_rounded(const float *v, uint32_t count);

/* There and back, bit for bit; also in place of the base. What was stored, in memory of its own; its base is `base`. */
struct kc_codec_stored codec_round_trip(const void *values, const void *base, enum kc_type type, uint32_t count,
                                       uint32_t allowed);
/* Into new memory of the values' size. */
int codec_decoded(const struct kc_codec_stored *s, void **values);
void codec_forget(struct kc_codec_stored *s);

#endif
