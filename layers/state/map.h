/* map.h - where every element of the state lies, derived once from the shard plan: tensors, buckets, the owned part.
 * Pure; the same on all ranks except for `owner`. Nothing here allocates memory for values. */
#ifndef KC_STATE_MAP_H
#define KC_STATE_MAP_H

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
    uint32_t rank;
    uint64_t offset;   /* elements from the start of its bucket */
    uint64_t count;    /* elements */
    uint64_t size[KC_DIMS_MAX];
    uint8_t init;
    float init_scale;
};

struct kc_map_bucket {
    uint64_t count, shard;     /* elements */
    enum kc_type type;         /* of its parameters */
    size_t at[KC_STATES];      /* bytes from the start of window or private memory (kc_map_private) */
    size_t bytes[KC_STATES];   /* bytes there; of private classes with zero ≥ 1 the owned shard alone; 0: none */
};

struct kc_map {
    uint32_t tensors, buckets;
    uint32_t owner;            /* this rank's number among the owners of every bucket */
    bool sharded;              /* private classes: only the owned shard is kept */
    struct kc_map_tensor *tensor; /* parameters, in the order of the plan: their numbers on disk and in the vector */
    struct kc_map_bucket *bucket;
    size_t class_at[KC_STATES], class_bytes[KC_STATES]; /* each class lies in one run */
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
/* -EINVAL the plan contradicts itself, -ENOTSUP a parameter is cut, -ENOMEM; e names the tensor or bucket. */
int kc_map_new(const struct kc_shard_plan *shard, uint32_t rank, struct kc_map *out, struct kc_error *e);
void kc_map_free(struct kc_map *m);
/* The elements [*lo, *hi) of tensor t (its own flat numbers) that this owner has; empty: lo == hi. */
void kc_map_owned(const struct kc_map *m, const struct kc_map_tensor *t, uint32_t owner, uint64_t *lo, uint64_t *hi);

#endif
