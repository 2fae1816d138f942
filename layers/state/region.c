/* region.c - see region.h. Integers alone; nothing is allocated. */
#include "region.h"

#include <errno.h>

int kc_shape_elements(const struct kc_shape *s, uint64_t *out)
{
    uint64_t n = 1;
    for (uint32_t d = 0; d < s->rank; d++)
        if (__builtin_mul_overflow(n, s->size[d], &n) || n > UINT64_MAX / 16)
            return -EOVERFLOW;
    *out = n;
    return 0;
}

void kc_region_make(const struct kc_shape *whole, const struct kc_box *box, struct kc_region *out)
{
    struct kc_region r = {.total = 1, .count = 1};
    for (uint32_t d = 0; d < whole->rank; d++) {
        const uint64_t size = whole->size[d];
        r.total *= size;
        r.count *= box->size[d];
        if (r.rank && box->first[d] == 0 && box->size[d] == size) {
            r.whole[r.rank - 1] *= size;
            r.first[r.rank - 1] *= size;
            r.size[r.rank - 1] *= size;
        } else {
            r.whole[r.rank] = size;
            r.first[r.rank] = box->first[d];
            r.size[r.rank++] = box->size[d];
        }
    }
    if (r.rank == 0) /* a tensor without dimensions has one element */
        r = (struct kc_region){.rank = 1, .whole = {1}, .size = {1}, .total = 1, .count = 1};
    *out = r;
}

uint64_t kc_region_global(const struct kc_region *r, uint64_t local, uint64_t *run)
{
    uint64_t at = 0, stride = 1;
    *run = r->size[r->rank - 1] - local % r->size[r->rank - 1];
    for (uint32_t d = r->rank; d-- > 0;) {
        at += (r->first[d] + local % r->size[d]) * stride;
        local /= r->size[d];
        stride *= r->whole[d];
    }
    return at;
}

uint64_t kc_region_below(const struct kc_region *r, uint64_t global)
{
    uint64_t below = 0, inside = r->total, rest = r->count;
    if (global >= r->total || rest == 0)
        return rest;
    for (uint32_t d = 0; d < r->rank; d++) {
        inside /= r->whole[d];
        rest /= r->size[d];
        const uint64_t at = global / inside;
        global %= inside;
        if (at < r->first[d])
            return below;
        if (at >= r->first[d] + r->size[d])
            return below + r->size[d] * rest;
        below += (at - r->first[d]) * rest;
    }
    return below;
}

bool kc_region_meet(const struct kc_region *a, struct kc_range in_a, const struct kc_region *b, struct kc_range in_b,
                    struct kc_overlap *out)
{
    while (in_a.lo < in_a.hi) {
        uint64_t run_a, run_b;
        const uint64_t in_tensor = kc_region_global(a, in_a.lo, &run_a);
        uint64_t at = kc_region_below(b, in_tensor);
        at = at > in_b.lo ? at : in_b.lo;
        if (at >= in_b.hi)
            return false;
        const uint64_t there = kc_region_global(b, at, &run_b);
        if (there > in_tensor) { /* the next that b has: from there on in a */
            in_a.lo = kc_region_below(a, there);
            if (in_a.lo >= in_a.hi || kc_region_global(a, in_a.lo, &run_a) != there)
                continue;
        }
        uint64_t n = run_a < run_b ? run_a : run_b;
        n = n < in_a.hi - in_a.lo ? n : in_a.hi - in_a.lo;
        n = n < in_b.hi - at ? n : in_b.hi - at;
        *out = (struct kc_overlap){in_a.lo, at, n};
        return true;
    }
    return false;
}
