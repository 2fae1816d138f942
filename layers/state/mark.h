/* mark.h - copy before write. At a mark every chunk of what this rank saves is left to copy; the copier walks them in the order
 * in which the optimizer will want to write them, and a ticket first copies what the copier has not reached. So the copy is the
 * state at the mark, whoever writes when, and who writes waits for what he writes alone. */
#ifndef KC_STATE_MARK_H
#define KC_STATE_MARK_H

#include "pack.h"

#include <stdatomic.h>

#define KC_MARK_CHUNK (UINT64_C(256) << 10) /* bytes, at most: as long as a ticket may have to wait for the copier */

struct kc_meter;
struct kc_state;

struct kc_chunk {
    const unsigned char *from; /* of the state */
    uint64_t to;               /* in the pack's image: bytes from its start */
    uint64_t bytes;
};

enum kc_chunk_stage { KC_CHUNK_LEFT, KC_CHUNK_COPYING, KC_CHUNK_COPIED };

struct kc_marking {
    struct kc_chunk *chunk;          /* by bucket, then class */
    uint32_t count;
    uint32_t *first[KC_STATES];      /* by bucket: its chunks of the class are [first, end) */
    uint32_t *end[KC_STATES];
    unsigned char *image;
    /* enum kc_chunk_stage by chunk: left → copying by a compare and swap, whose winner copies and stores copied (release).
     * Nobody writes the state of a chunk that is not copied. */
    _Atomic uint8_t *stage;
    /* Chunks that are not copied yet. Stored last when a mark begins; 0: tickets have nothing to do. */
    _Atomic uint32_t left;
    _Atomic uint64_t stall, by_tickets; /* ns that tickets took for it; bytes that they copied */
};

/* The chunks of a pack of the state. -ENOMEM. */
int kc_marking_new(const struct kc_state *s, const struct kc_pack *plan, struct kc_marking *out);
void kc_marking_free(struct kc_marking *m);
/* From here on what tickets write was copied to `image` before. No ticket is open, no walk under way. */
void kc_marking_begin(struct kc_marking *m, unsigned char *image);
/* All of the class's bucket is copied when it returns. From any thread; two never have the same bucket open. */
void kc_marking_copy_first(struct kc_marking *m, enum kc_state_class what, uint32_t bucket);
/* The copier: until everything is copied, or *stop. `meter`: told of each chunk. */
void kc_marking_walk(struct kc_marking *m, const _Atomic bool *stop, struct kc_meter *meter);

static inline void kc_marking_before(struct kc_marking *m, enum kc_state_class what, uint32_t bucket)
{
    if (atomic_load_explicit(&m->left, memory_order_acquire) > 0)
        kc_marking_copy_first(m, what, bucket);
}

#endif
