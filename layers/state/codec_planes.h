/* codec_planes.h - words made of values (codec.h says how), as planes: plane k has byte k of every word. Pure. */
#ifndef KC_STATE_CODEC_PLANES_H
#define KC_STATE_CODEC_PLANES_H

#include "codec.h"

#define KC_PLANES 4 /* of the widest element */

/* `n` elements of `width` bytes to `width` planes of n bytes. id: planes, xor or difference; base only for the latter two.
 * What a plane points to overlaps nothing. */
void kc_planes_split(enum kc_codec_id id, size_t width, const void *values, const void *base, size_t n,
                     unsigned char *const plane[KC_PLANES]);
/* The inverse. `values` may be `base`. */
void kc_planes_join(enum kc_codec_id id, size_t width, void *values, const void *base, size_t n,
                    const unsigned char *const plane[KC_PLANES]);

#endif
