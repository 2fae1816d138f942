/* root.h - state_root: a fingerprint of the training state that no layout can change (kc-snapshot(5) has the
 * definition).
 *
 * Per tensor and kind: the sum modulo 2^128 of mix(name, kind, global index, bits) over all elements. A sum does not
 * care in what order or on which rank its parts are taken, so owners add their parts and one reduction makes the
 * whole. Parts travel as four 32-bit limbs in u64, so that adding up to 2^32 of them cannot overflow. */
#ifndef KC_STATE_ROOT_H
#define KC_STATE_ROOT_H

#include "map.h"
#include "state.h"

#include "base/digest.h"

/* What `name` and `kind` put into the mix of their elements. */
uint64_t kc_root_key(const char *name, enum kc_kind kind);
/* Add the elements first … first + count - 1 of a tensor to limb[4] (normalised: each below 2^32). */
void kc_root_add(uint64_t key, uint64_t first, const float *values, uint64_t count, uint64_t limb[4]);
/* Limbs of any size → each below 2^32, modulo 2^128. */
void kc_root_normalise(uint64_t limb[4]);

/* The same for elements `lo` … lo + count - 1 of a box. */
void kc_root_add_box(uint64_t key, const struct kc_region *r, uint64_t lo, const float *values, uint64_t count,
                     uint64_t limb[4]);

struct kc_root_tensor {
    const char *name;
    struct kc_shape shape; /* as in files */
    uint64_t limb[KC_KIND_COUNT][4]; /* normalised */
};
/* The digest over the tensors in the order of their names (`t` is sorted), and progress and seed. -ENOMEM. */
int kc_root_digest(struct kc_root_tensor *t, uint32_t count, const struct kc_progress *progress, uint64_t seed,
                   struct kc_digest *out);

#endif
