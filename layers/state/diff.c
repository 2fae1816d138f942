/* diff.c - how the values of two snapshots differ, whatever layouts wrote them. Memory is bounded by a few extents: those of
 * the first are taken one after the other, those of the second that lie under one are kept for the next. */
#include "state_impl.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define KEPT 16 /* extents of the second: as many cut one of the first, mostly */

struct place {
    uint32_t pack, extent;
};

/* One snapshot, its extents in the order of tensor and kind. */
struct side {
    struct kc_whole *w;
    uint32_t *start; /* of tensor * KC_KIND_COUNT + kind in place; one more at the end */
    struct place *place;
};

struct kept {
    struct place at;
    uint64_t used; /* 0: nothing is in it */
    float *values;
};

struct diff {
    struct side a, b;
    struct kept kept[KEPT];
    uint64_t clock, bytes_read;
    float *values; /* an extent of a */
};

struct sums {
    uint64_t changed;
    double largest, square, of_a;
};

static const struct kc_extent *extent_at(const struct side *s, struct place at)
{
    return &s->w->pack[at.pack].extent[at.extent];
}

static uint32_t key_of(const struct kc_extent *x)
{
    return x->tensor * KC_KIND_COUNT + x->kind;
}

/* Counted, summed, put: a sort that leaves the order of packs. */
static int side_sort(struct side *s)
{
    const struct kc_manifest *m = &s->w->manifest;
    const uint32_t keys = m->tensors * KC_KIND_COUNT;
    size_t extents = 0;
    for (uint32_t p = 0; p < m->packs; p++)
        extents += s->w->pack[p].count;
    s->start = calloc(keys + 2u, sizeof *s->start);
    s->place = calloc(extents + 1, sizeof *s->place);
    if (!s->start || !s->place)
        return -ENOMEM;
    for (uint32_t p = 0; p < m->packs; p++)
        for (uint32_t i = 0; i < s->w->pack[p].count; i++)
            s->start[key_of(&s->w->pack[p].extent[i]) + 2]++;
    for (uint32_t k = 2; k < keys + 2; k++)
        s->start[k] += s->start[k - 1];
    for (uint32_t p = 0; p < m->packs; p++)
        for (uint32_t i = 0; i < s->w->pack[p].count; i++)
            s->place[s->start[key_of(&s->w->pack[p].extent[i]) + 1]++] = (struct place){p, i};
    return 0;
}

static int side_open(const struct kc_storage *st, const char *path, struct side *s, struct kc_error *e)
{
    char folder[4096];
    int r = kc_snapshot_resolve(st, path, folder, e);
    if (r == 0)
        r = kc_whole_open(st, folder, &s->w, e);
    if (r == 0 && side_sort(s) < 0)
        r = kc_fail(e, -ENOMEM, "no memory for the index of %s", folder);
    return r;
}

static void side_close(const struct kc_storage *st, struct side *s)
{
    kc_whole_free(st, s->w);
    free(s->start);
    free(s->place);
}

static int read_extent(const struct kc_storage *st, struct diff *d, const struct side *s, struct place at, float *values,
                       struct kc_error *e)
{
    const struct kc_extent *x = extent_at(s, at);
    int r = kc_pack_read(st, &s->w->pack[at.pack], at.extent, values, e);
    d->bytes_read += r == 0 ? kc_extent_bytes(x) : 0;
    return r < 0 ? kc_fail_prefix(e, r, "%.200s", s->w->manifest.tensor[x->tensor].name) : 0;
}

/* The values of an extent of b: kept, or read in the place of the one that was used longest ago. */
static int extent_of_b(const struct kc_storage *st, struct diff *d, struct place at, const float **values, struct kc_error *e)
{
    struct kept *oldest = d->kept;
    for (struct kept *k = d->kept; k < d->kept + KEPT; k++) {
        if (k->used && k->at.pack == at.pack && k->at.extent == at.extent) {
            k->used = ++d->clock;
            *values = k->values;
            return 0;
        }
        oldest = k->used < oldest->used ? k : oldest;
    }
    oldest->used = 0;
    if (!oldest->values && !(oldest->values = malloc(KC_PACK_GRID * sizeof(float))))
        return kc_fail(e, -ENOMEM, "no memory to compare snapshots");
    int r = read_extent(st, d, &d->b, at, oldest->values, e);
    if (r < 0)
        return r;
    *oldest = (struct kept){at, ++d->clock, oldest->values};
    *values = oldest->values;
    return 0;
}

static void add_run(const float *a, const float *b, uint64_t count, struct sums *t)
{
    for (uint64_t i = 0; i < count; i++) {
        const double by = (double)b[i] - (double)a[i], size = fabs(by);
        t->largest = size > t->largest ? size : t->largest;
        t->square += by * by;
        t->of_a += (double)a[i] * (double)a[i];
        t->changed += memcmp(&a[i], &b[i], sizeof *a) != 0;
    }
}

/* Extent `at` of a against all of b that hold elements of it. */
static int compare_extent(const struct kc_storage *st, struct diff *d, struct place at, const struct place *in_b, uint32_t count,
                          struct sums *t, struct kc_error *e)
{
    const struct kc_extent *x = extent_at(&d->a, at);
    struct kc_region a, b;
    kc_region_make(&d->a.w->manifest.tensor[x->tensor].dims, &x->box, &a);
    int r = read_extent(st, d, &d->a, at, d->values, e);
    for (uint32_t i = 0; i < count && r == 0; i++) {
        const struct kc_extent *y = extent_at(&d->b, in_b[i]);
        const float *values = NULL;
        struct kc_overlap o;
        kc_region_make(&d->b.w->manifest.tensor[y->tensor].dims, &y->box, &b);
        struct kc_range left = {x->lo, x->hi}, other = {y->lo, y->hi};
        for (; r == 0 && kc_region_meet(&a, left, &b, other, &o); left.lo = o.a + o.count) {
            if (!values)
                r = extent_of_b(st, d, in_b[i], &values, e);
            if (r == 0)
                add_run(d->values + (o.a - x->lo), values + (o.b - y->lo), o.count, t);
        }
    }
    return r;
}

/* The same extents with the same digests: nothing has to be read. */
static bool same_extents(const struct diff *d, const struct place *a, const struct place *b, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        const struct kc_extent *x = extent_at(&d->a, a[i]), *y = extent_at(&d->b, b[i]);
        if (memcmp(&x->box, &y->box, sizeof x->box) != 0 || x->lo != y->lo || x->hi != y->hi ||
            !kc_digest_equal(x->digest, y->digest) ||
            !kc_shape_equal(&d->a.w->manifest.tensor[x->tensor].dims, &d->b.w->manifest.tensor[y->tensor].dims))
            return false;
    }
    return true;
}

static int compare_values(const struct kc_storage *st, struct diff *d, uint32_t key_a, uint32_t key_b, struct kc_diff_row *row,
                          struct kc_error *e)
{
    const struct place *a = d->a.place + d->a.start[key_a], *b = d->b.place + d->b.start[key_b];
    const uint32_t in_a = d->a.start[key_a + 1] - d->a.start[key_a], in_b = d->b.start[key_b + 1] - d->b.start[key_b];
    struct sums t = {0};
    int r = 0;
    if (in_a == in_b && same_extents(d, a, b, in_a))
        return 0;
    for (uint32_t i = 0; i < in_a && r == 0; i++)
        r = compare_extent(st, d, a[i], b, in_b, &t, e);
    row->changed = t.changed;
    row->largest = t.largest;
    row->relative = t.square == 0 ? 0 : t.of_a > 0 ? sqrt(t.square / t.of_a) : NAN;
    row->is = t.changed ? KC_DIFFERS : KC_SAME;
    return r;
}

static uint32_t find_tensor(const struct kc_manifest *m, const char *name, uint32_t guess)
{
    if (guess < m->tensors && strcmp(m->tensor[guess].name, name) == 0)
        return guess;
    for (uint32_t i = 0; i < m->tensors; i++)
        if (strcmp(m->tensor[i].name, name) == 0)
            return i;
    return UINT32_MAX;
}

static bool has_values(const struct side *s, uint32_t key)
{
    return s->start[key + 1] > s->start[key];
}

static int add_row(struct kc_snapshot_diff *out, const struct kc_manifest_tensor *t, uint32_t kind, enum kc_difference is)
{
    char *name = strdup(t->name);
    if (!name)
        return -ENOMEM;
    out->row[out->rows++] = (struct kc_diff_row){.name = name, .kind = kind, .is = is, .elements = t->count};
    return 0;
}

/* Tensor i of a, all kinds. */
static int compare_tensor(const struct kc_storage *st, struct diff *d, uint32_t i, struct kc_snapshot_diff *out, struct kc_error *e)
{
    const struct kc_manifest *a = &d->a.w->manifest, *b = &d->b.w->manifest;
    const uint32_t j = find_tensor(b, a->tensor[i].name, i);
    int r = 0;
    for (uint32_t k = 0; k < KC_KIND_COUNT && r == 0; k++) {
        const uint32_t key_a = i * KC_KIND_COUNT + k, key_b = j * KC_KIND_COUNT + k;
        const bool in_a = has_values(&d->a, key_a), in_b = j != UINT32_MAX && has_values(&d->b, key_b);
        if (!in_a && !in_b)
            continue;
        const bool both = in_a && in_b, shape = both && kc_shape_equal(&a->tensor[i].shape, &b->tensor[j].shape);
        if (add_row(out, &a->tensor[i], k, shape ? KC_SAME : both ? KC_OTHER_SHAPE : in_a ? KC_ONLY_A : KC_ONLY_B) < 0)
            return kc_fail(e, -ENOMEM, "no memory to compare snapshots");
        if (shape)
            r = compare_values(st, d, key_a, key_b, &out->row[out->rows - 1], e);
    }
    return r;
}

/* Tensors that b alone has. */
static int add_others(struct diff *d, struct kc_snapshot_diff *out, struct kc_error *e)
{
    const struct kc_manifest *a = &d->a.w->manifest, *b = &d->b.w->manifest;
    for (uint32_t j = 0; j < b->tensors; j++)
        for (uint32_t k = 0; k < KC_KIND_COUNT && find_tensor(a, b->tensor[j].name, j) == UINT32_MAX; k++)
            if (has_values(&d->b, j * KC_KIND_COUNT + k) && add_row(out, &b->tensor[j], k, KC_ONLY_B) < 0)
                return kc_fail(e, -ENOMEM, "no memory to compare snapshots");
    return 0;
}

static int by_difference(const void *p, const void *q)
{
    const struct kc_diff_row *a = p, *b = q;
    if (a->is != b->is)
        return (a->is > b->is) - (a->is < b->is);
    if (a->largest != b->largest)
        return a->largest < b->largest ? 1 : -1;
    int n = strcmp(a->name, b->name);
    return n ? n : (a->kind > b->kind) - (a->kind < b->kind);
}

static int compare(const struct kc_storage *st, struct diff *d, struct kc_snapshot_diff *out, struct kc_error *e)
{
    const uint32_t tensors = d->a.w->manifest.tensors;
    int r = 0;
    out->row = calloc((size_t)(tensors + d->b.w->manifest.tensors + 1u) * KC_KIND_COUNT, sizeof *out->row);
    d->values = malloc(KC_PACK_GRID * sizeof *d->values);
    if (!out->row || !d->values)
        return kc_fail(e, -ENOMEM, "no memory to compare snapshots");
    kc_snapshot_describe(d->a.w, &out->a);
    kc_snapshot_describe(d->b.w, &out->b);
    for (uint32_t i = 0; i < tensors && r == 0; i++)
        r = compare_tensor(st, d, i, out, e);
    if (r == 0)
        r = add_others(d, out, e);
    qsort(out->row, out->rows, sizeof *out->row, by_difference);
    out->same = strcmp(out->a.state_root, out->b.state_root) == 0 && (out->rows == 0 || out->row[0].is == KC_SAME);
    out->bytes_read = d->bytes_read;
    return r;
}

int kc_snapshot_compare(const char *path_a, const char *path_b, struct kc_snapshot_diff **out, struct kc_error *e)
{
    const struct kc_storage *st = &kc_storage_posix;
    struct diff d = {0};
    struct kc_snapshot_diff *made = calloc(1, sizeof *made);
    int r = made ? side_open(st, path_a, &d.a, e) : kc_fail(e, -ENOMEM, "no memory to compare snapshots");
    if (r == 0)
        r = side_open(st, path_b, &d.b, e);
    if (r == 0)
        r = compare(st, &d, made, e);
    if (r == 0)
        *out = made;
    else
        kc_snapshot_diff_free(made);
    for (int i = 0; i < KEPT; i++)
        free(d.kept[i].values);
    free(d.values);
    side_close(st, &d.a);
    side_close(st, &d.b);
    return r;
}

void kc_snapshot_diff_free(struct kc_snapshot_diff *d)
{
    for (uint32_t i = 0; d && i < d->rows; i++)
        free(d->row[i].name);
    if (d)
        free(d->row);
    free(d);
}
