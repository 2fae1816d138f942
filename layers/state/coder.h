/* coder.h - what one rank codes packs with: a codec, room for what is coded while the disk takes it, and what coding and
 * writing took so far, by which it is decided whether coding is worth it. One pack at a time. */
#ifndef KC_STATE_CODER_H
#define KC_STATE_CODER_H

#include "codec.h"
#include "codec_rate.h"
#include "map.h"
#include "storage.h"

#include "contracts/job_spec.h"

#define KC_CODER_BUFFERS 4 /* of the largest extent, coded */

struct kc_coder {
    struct kc_codec *codec;
    enum kc_coding coding;
    struct kc_codec_rate rate[KC_KIND_COUNT];
    unsigned char *buffer[KC_CODER_BUFFERS];
    size_t room;                       /* bytes of each */
    uint32_t writes[KC_CODER_BUFFERS]; /* of the pack, that must be done before a buffer is used again */
    uint32_t current;
    size_t used;                       /* of the current one */
};

/* All that is ever allocated; about 20 MiB, of which what is not used is not touched. -ENOMEM. */
int kc_coder_new(struct kc_coder **out);
struct kc_coder *kc_coder_free(struct kc_coder *c);
/* That memory, in bytes. */
size_t kc_coder_bytes(void);

/* A new pack begins: no buffer is in use. */
void kc_coder_begin(struct kc_coder *c);
/* Room to code `count` values, as kc_codec_bound() says; waits for writes of it that are under way. NULL: they failed. */
unsigned char *kc_coder_room(struct kc_coder *c, struct kc_writes *w, uint32_t count);
/* `bytes` of that room were used, and their write is the last that `w` has. */
void kc_coder_used(struct kc_coder *c, const struct kc_writes *w, size_t bytes);

#endif
