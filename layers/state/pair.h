/* pair.h - the values of one snapshot, or of two side by side, whatever layouts wrote them, in bounded memory: the extents of
 * the first are taken one after the other, those of the second that lie under one are kept for the next. */
#ifndef KC_STATE_PAIR_H
#define KC_STATE_PAIR_H

#include "catalog.h"
#include "unpack.h"

struct kc_pair_place {
    uint32_t pack, extent;
};

/* A snapshot, its extents in the order of tensor and kind. */
struct kc_side {
    const struct kc_storage *st;
    struct kc_whole *w;
    struct kc_unpack *unpack;
    uint32_t *start; /* of tensor * KC_KIND_COUNT + kind in place; one more at the end */
    struct kc_pair_place *place;
};
/* `path` as in kc_snapshot_verify(), and errors of kc_whole_open(); -ENOMEM. */
int kc_side_open(const struct kc_storage *st, const char *path, struct kc_side *out, struct kc_error *e);
void kc_side_close(struct kc_side *s);
static inline uint32_t kc_side_key(uint32_t tensor, uint32_t kind)
{
    return tensor * KC_KIND_COUNT + kind;
}
static inline bool kc_side_has(const struct kc_side *s, uint32_t key)
{
    return s->start[key + 1] > s->start[key];
}
const struct kc_extent *kc_side_extent(const struct kc_side *s, struct kc_pair_place at);
/* One extent, verified; the tensor is named in e. */
int kc_side_read(const struct kc_side *s, struct kc_pair_place at, float *values, struct kc_error *e);

#define KC_PAIR_KEPT 16 /* extents of the second: as many cut one of the first, mostly */

struct kc_pair {
    struct kc_side a, b; /* b.w NULL: there is one alone */
    struct kc_pair_kept {
        struct kc_pair_place at;
        uint64_t used; /* 0: nothing is in it */
        float *values;
    } kept[KC_PAIR_KEPT];
    uint64_t clock, bytes_read;
    float *values; /* an extent of a */
};
/* Each by its storage and path; b NULL: a alone. Errors of kc_side_open(). */
int kc_pair_open(const struct kc_storage *st_a, const char *a, const struct kc_storage *st_b, const char *b, struct kc_pair *out,
                 struct kc_error *e);
void kc_pair_close(struct kc_pair *p);

/* What both have of elements that follow each other; b NULL where the second is not walked. */
typedef void kc_pair_run(void *arg, const float *a, const float *b, uint64_t count);
#define KC_PAIR_ALONE UINT32_MAX
/* All elements of a's key, each once; key_b: the same tensor, of the same shape, and kind in b, or KC_PAIR_ALONE. */
int kc_pair_walk(struct kc_pair *p, uint32_t key_a, uint32_t key_b, kc_pair_run *run, void *arg, struct kc_error *e);
/* Are the extents of both the same, with the same digests? Then nothing has to be read. */
bool kc_pair_same(const struct kc_pair *p, uint32_t key_a, uint32_t key_b);
/* The number of a tensor, UINT32_MAX if there is none; `guess`: where it is likely to be. */
uint32_t kc_pair_tensor(const struct kc_manifest *m, const char *name, uint32_t guess);

#endif
