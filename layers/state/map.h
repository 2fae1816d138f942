/* map.h - where every element of the state lies on one rank, derived once from the shard plan: tensors and the boxes of
 * them that the rank holds, buckets, the part that it owns. Pure; the list of tensors is the same on all ranks. Nothing here
 * allocates memory for values. */
#ifndef KC_STATE_MAP_H
#define KC_STATE_MAP_H

#include "region.h"

#include "base/error.h"
#include "contracts/shard_plan.h"

#include <stdbool.h>

#define KC_MAP_PAGE                                                                                                  \
    65536 /* buckets start on it: no page, of any usual size, holds two buckets of different classes */

/* What of a parameter is kept in snapshots, all of it f32, in the order of the store vector. The master is the
 * parameter itself where that is f32, and of class KC_STATE_MASTER where it is not. */
enum kc_kind { KC_MASTER, KC_KIND_MOMENT1, KC_KIND_MOMENT2, KC_KIND_COUNT };
extern const char *const kc_kind_name[KC_KIND_COUNT];

struct kc_map_tensor {
    const char *name;  /* borrowed from the plan */
    uint32_t bucket;
    uint64_t offset;   /* elements from the start of its bucket: of the box, which is contiguous there */
    uint64_t total;    /* elements of the whole tensor */
    struct kc_shape shape; /* as in files: joined dimensions are one */
    struct kc_shape dims;  /* as it is cut */
    struct kc_box box;     /* what this rank holds of it; nothing if it does not hold the bucket … */
    struct kc_region region; /* … and the same, to count in: count 0 */
    uint8_t init;
    float init_scale;
};

struct kc_map_bucket {
    uint64_t count, shard;     /* elements */
    enum kc_type type;         /* of its parameters */
    bool sharded[KC_STATES];   /* of the class only the owned shard is kept */
    bool frozen;               /* it has no gradients and no moments */
    uint32_t owner;            /* which of its owners this rank is */
    bool held;                 /* the rank has one of its stages; else it takes no memory */
    bool counts;               /* of the ranks that hold the same it is the one that counts and saves its owner's part */
    size_t at[KC_STATES];      /* bytes from the start of window or private memory (kc_map_private) */
    size_t bytes[KC_STATES];   /* bytes there; of sharded classes the owned shard alone; 0: none */
};

struct kc_map {
    uint32_t tensors, buckets;
    struct kc_map_tensor *tensor; /* parameters, in the order of the plan: their numbers on disk and in the vector */
    struct kc_map_bucket *bucket;
    size_t class_at[KC_STATES], class_bytes[KC_STATES]; /* each class lies in one run */
    uint32_t class_buckets[KC_STATES]; /* that take memory */
    size_t store_at, store_count; /* the store vector in window memory: bytes, u64 elements */
    size_t window_bytes, private_bytes;
};

/* Which memory a class lies in: peers see parameters and gradients, nobody else sees moments and masters. */
static inline bool kc_map_private(enum kc_state_class what)
{
    return what == KC_STATE_MOMENT1 || what == KC_STATE_MOMENT2 || what == KC_STATE_MASTER;
}
/* The class that holds a kind of this tensor. */
enum kc_state_class kc_map_class(const struct kc_map *m, const struct kc_map_tensor *t, enum kc_kind kind);
/* -EINVAL the plan contradicts itself, -ENOMEM; e names the tensor or bucket. */
int kc_map_new(const struct kc_shard_plan *shard, uint32_t rank, struct kc_map *out, struct kc_error *e);
void kc_map_free(struct kc_map *m);
/* The elements of tensor t, in its region's local numbers, that are this rank's share of the bucket (it may be that others
 * own the same); that it keeps of a class; and of which it counts and saves a kind, as no other rank does. */
struct kc_range kc_map_owned(const struct kc_map *m, const struct kc_map_tensor *t);
struct kc_range kc_map_kept(const struct kc_map *m, const struct kc_map_tensor *t, enum kc_state_class what);
struct kc_range kc_map_counted(const struct kc_map *m, const struct kc_map_tensor *t, enum kc_kind kind);

#endif
