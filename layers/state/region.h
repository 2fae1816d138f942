/* region.h - a box of a tensor, and its elements counted in two ways: by their place in the tensor (global) and by their
 * place in the box (local), both flat and row-major. The two orders agree, so the elements of any global range that lie
 * in a box are a range of its local numbers. Pure. */
#ifndef KC_STATE_REGION_H
#define KC_STATE_REGION_H

#include "contracts/shard_plan.h"

#include <stdbool.h>

struct kc_shape {
    uint32_t rank;
    uint64_t size[KC_DIMS_MAX];
};
/* The product of the sizes; -EOVERFLOW where it is no number of floats that memory could have. */
int kc_shape_elements(const struct kc_shape *s, uint64_t *out);
static inline bool kc_shape_equal(const struct kc_shape *a, const struct kc_shape *b)
{
    for (uint32_t d = 0; d < a->rank && d < b->rank; d++)
        if (a->size[d] != b->size[d])
            return false;
    return a->rank == b->rank;
}

/* Dimensions that the box has whole are one with the dimension before: what is left are runs of elements that follow each
 * other in both countings, `size` of the last dimension long. */
struct kc_region {
    uint32_t rank;
    uint64_t whole[KC_DIMS_MAX], first[KC_DIMS_MAX], size[KC_DIMS_MAX];
    uint64_t total, count; /* elements of the tensor, of the box */
};
/* `box` lies in `whole`, the number of whose elements fits 64 bits. */
void kc_region_make(const struct kc_shape *whole, const struct kc_box *box, struct kc_region *out);
/* The global number of element `local` < count; *run: so many from it on follow each other in both countings. */
uint64_t kc_region_global(const struct kc_region *r, uint64_t local, uint64_t *run);
/* How many elements of the box have a global number below `global`: the local number of the first that has not. */
uint64_t kc_region_below(const struct kc_region *r, uint64_t global);

/* A range of local numbers of a region. */
struct kc_range {
    uint64_t lo, hi;
};
/* A run of elements that two regions have: their local numbers in each. */
struct kc_overlap {
    uint64_t a, b, count;
};
/* The first elements that are in range `in_a` of a and in range `in_b` of b; false if there are none. To find all: go on
 * with in_a.lo = out->a + out->count. */
bool kc_region_meet(const struct kc_region *a, struct kc_range in_a, const struct kc_region *b, struct kc_range in_b,
                    struct kc_overlap *out);

#endif
