/* cover.c - see cover.h. The boxes of a tensor must be disjoint and as large as the tensor together; the ranges of a box
 * must follow each other from its first element to its last. */
#include "cover.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int by_place(const void *a, const void *b)
{
    const struct kc_extent *x = *(const struct kc_extent *const *)a, *y = *(const struct kc_extent *const *)b;
    if (x->kind != y->kind)
        return x->kind < y->kind ? -1 : 1;
    if (x->tensor != y->tensor)
        return x->tensor < y->tensor ? -1 : 1;
    for (int d = 0; d < KC_DIMS_MAX; d++) {
        if (x->box.first[d] != y->box.first[d])
            return x->box.first[d] < y->box.first[d] ? -1 : 1;
        if (x->box.size[d] != y->box.size[d])
            return x->box.size[d] < y->box.size[d] ? -1 : 1;
    }
    return x->lo < y->lo ? -1 : x->lo > y->lo;
}

static bool same_tensor(const struct kc_extent *x, const struct kc_extent *y)
{
    return x->kind == y->kind && x->tensor == y->tensor;
}

static bool same_box(const struct kc_box *a, const struct kc_box *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}

static bool box_fits(const struct kc_box *b, const struct kc_shape *dims)
{
    for (uint32_t d = 0; d < KC_DIMS_MAX; d++) {
        const uint64_t size = d < dims->rank ? dims->size[d] : 0;
        if (b->first[d] > size || b->size[d] > size - b->first[d])
            return false;
    }
    return true;
}

static bool overlap(const struct kc_box *a, const struct kc_box *b, uint32_t rank)
{
    for (uint32_t d = 0; d < rank; d++)
        if (a->first[d] >= b->first[d] + b->size[d] || b->first[d] >= a->first[d] + a->size[d])
            return false;
    return true;
}

/* The extents of one tensor and kind, sorted: x[0] … x[n - 1]. */
struct part {
    const struct kc_extent *const *x;
    size_t n;
    const struct kc_manifest_tensor *tensor;
};

static int fail_at(const struct part *p, uint64_t element, struct kc_error *e)
{
    return kc_fail(e, -EBADMSG, "the packs do not hold element %llu of %llu of the %s of %s exactly once",
                   (unsigned long long)element, (unsigned long long)p->tensor->count, kc_kind_name[p->x[0]->kind],
                   p->tensor->name);
}

/* The ranges of the box of x[*at], from its first element to its last; *at: behind them. */
static int check_box(const struct part *p, size_t *at, struct kc_region *r, struct kc_error *e)
{
    const struct kc_box *box = &p->x[*at]->box;
    uint64_t next = 0, run;
    if (!box_fits(box, &p->tensor->dims))
        return kc_fail(e, -EBADMSG, "the packs hold a box of %s that does not lie in it", p->tensor->name);
    kc_region_make(&p->tensor->dims, box, r);
    for (; *at < p->n && same_box(&p->x[*at]->box, box) && p->x[*at]->lo == next && p->x[*at]->hi <= r->count; ++*at)
        next = p->x[*at]->hi;
    const bool more = *at < p->n && same_box(&p->x[*at]->box, box);
    if (next == r->count && !more)
        return 0;
    next = more && p->x[*at]->lo < next ? p->x[*at]->lo : next; /* the first that is there twice, or not at all */
    return next < r->count ? fail_at(p, kc_region_global(r, next, &run), e)
                           : kc_fail(e, -EBADMSG, "the packs hold elements behind the end of a box of %s", p->tensor->name);
}

static int check_tensor(const struct part *p, struct kc_error *e)
{
    const struct kc_box *box[KC_COVER_BOXES];
    struct kc_region r;
    uint32_t boxes = 0;
    uint64_t covered = 0;
    for (size_t at = 0; at < p->n;) {
        if (boxes == KC_COVER_BOXES)
            return kc_fail(e, -EBADMSG, "the packs cut %s into more than %d boxes", p->tensor->name, KC_COVER_BOXES);
        box[boxes] = &p->x[at]->box;
        int code = check_box(p, &at, &r, e);
        if (code < 0)
            return code;
        for (uint32_t i = 0; i < boxes; i++)
            if (overlap(box[i], box[boxes], p->tensor->dims.rank))
                return kc_fail(e, -EBADMSG, "the packs hold elements of the %s of %s more than once: two boxes meet",
                               kc_kind_name[p->x[0]->kind], p->tensor->name);
        covered += r.count;
        boxes++;
    }
    if (covered != p->tensor->count)
        return kc_fail(e, -EBADMSG, "the packs hold %llu of %llu elements of the %s of %s", (unsigned long long)covered,
                       (unsigned long long)p->tensor->count, kc_kind_name[p->x[0]->kind], p->tensor->name);
    return 0;
}

/* All tensors and kinds in the order of the extents: none may be left out but those that have no element, and the moments of
 * what was frozen. */
static int check_all(const struct kc_manifest *m, const struct kc_extent *const *sorted, size_t n, struct kc_error *e)
{
    size_t i = 0;
    for (uint32_t k = 0; k < KC_KIND_COUNT; k++)
        for (uint32_t t = 0; t < m->tensors; t++) {
            const struct kc_extent want = {.kind = k, .tensor = t};
            struct part p = {.x = sorted + i, .tensor = &m->tensor[t]};
            while (i < n && same_tensor(sorted[i], &want))
                i++, p.n++;
            if (p.n == 0 && k != KC_MASTER && m->tensor[t].frozen)
                continue;
            if (p.n == 0 && m->tensor[t].count)
                return kc_fail(e, -EBADMSG, "the packs do not hold the %s of %s", kc_kind_name[k], m->tensor[t].name);
            int r = check_tensor(&p, e);
            if (r < 0)
                return r;
        }
    return i == n ? 0
                  : kc_fail(e, -EBADMSG, "the packs hold elements of tensor %u (%u) that the manifest does not name",
                            sorted[i]->tensor, sorted[i]->kind);
}

int kc_cover_check(const struct kc_manifest *m, const struct kc_pack *packs, struct kc_error *e)
{
    size_t n = 0;
    for (uint32_t i = 0; i < m->packs; i++)
        n += packs[i].count;
    const struct kc_extent **sorted = calloc(n + 1, sizeof *sorted);
    if (!sorted)
        return kc_fail(e, -ENOMEM, "no memory to check what the packs hold");
    n = 0;
    for (uint32_t i = 0; i < m->packs; i++)
        for (uint32_t k = 0; k < packs[i].count; k++)
            sorted[n++] = &packs[i].extent[k];
    qsort(sorted, n, sizeof *sorted, by_place);
    int r = check_all(m, sorted, n, e);
    free(sorted);
    return r;
}
