/* diff.c - how the values of two snapshots differ, whatever layouts wrote them; pair.c reads them. */
#include "pair.h"
#include "state_impl.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct sums {
    uint64_t changed;
    double largest, square, of_a;
};

static void add_run(void *arg, const float *a, const float *b, uint64_t count)
{
    struct sums *t = arg;
    for (uint64_t i = 0; i < count; i++) {
        const double by = (double)b[i] - (double)a[i], size = fabs(by);
        t->largest = size > t->largest ? size : t->largest;
        t->square += by * by;
        t->of_a += (double)a[i] * (double)a[i];
        t->changed += memcmp(&a[i], &b[i], sizeof *a) != 0;
    }
}

static int compare_values(struct kc_pair *p, uint32_t key_a, uint32_t key_b, struct kc_diff_row *row, struct kc_error *e)
{
    struct sums t = {0};
    if (kc_pair_same(p, key_a, key_b))
        return 0;
    int r = kc_pair_walk(p, key_a, key_b, add_run, &t, e);
    row->changed = t.changed;
    row->largest = t.largest;
    row->relative = t.square == 0 ? 0 : t.of_a > 0 ? sqrt(t.square / t.of_a) : NAN;
    row->is = t.changed ? KC_DIFFERS : KC_SAME;
    return r;
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
static int compare_tensor(struct kc_pair *d, uint32_t i, struct kc_snapshot_diff *out, struct kc_error *e)
{
    const struct kc_manifest *a = &d->a.w->manifest, *b = &d->b.w->manifest;
    const uint32_t j = kc_pair_tensor(b, a->tensor[i].name, i);
    int r = 0;
    for (uint32_t k = 0; k < KC_KIND_COUNT && r == 0; k++) {
        const uint32_t key_a = kc_side_key(i, k), key_b = kc_side_key(j, k);
        const bool in_a = kc_side_has(&d->a, key_a), in_b = j != UINT32_MAX && kc_side_has(&d->b, key_b);
        if (!in_a && !in_b)
            continue;
        const bool both = in_a && in_b, shape = both && kc_shape_equal(&a->tensor[i].shape, &b->tensor[j].shape);
        if (add_row(out, &a->tensor[i], k, shape ? KC_SAME : both ? KC_OTHER_SHAPE : in_a ? KC_ONLY_A : KC_ONLY_B) < 0)
            return kc_fail(e, -ENOMEM, "no memory to compare snapshots");
        if (shape)
            r = compare_values(d, key_a, key_b, &out->row[out->rows - 1], e);
    }
    return r;
}

/* Tensors that b alone has. */
static int add_others(struct kc_pair *d, struct kc_snapshot_diff *out, struct kc_error *e)
{
    const struct kc_manifest *a = &d->a.w->manifest, *b = &d->b.w->manifest;
    for (uint32_t j = 0; j < b->tensors; j++)
        for (uint32_t k = 0; k < KC_KIND_COUNT && kc_pair_tensor(a, b->tensor[j].name, j) == UINT32_MAX; k++)
            if (kc_side_has(&d->b, kc_side_key(j, k)) && add_row(out, &b->tensor[j], k, KC_ONLY_B) < 0)
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

static int compare(struct kc_pair *d, struct kc_snapshot_diff *out, struct kc_error *e)
{
    const uint32_t tensors = d->a.w->manifest.tensors;
    int r = 0;
    out->row = calloc((size_t)(tensors + d->b.w->manifest.tensors + 1u) * KC_KIND_COUNT, sizeof *out->row);
    if (!out->row)
        return kc_fail(e, -ENOMEM, "no memory to compare snapshots");
    kc_snapshot_describe(d->a.w, &out->a);
    kc_snapshot_describe(d->b.w, &out->b);
    for (uint32_t i = 0; i < tensors && r == 0; i++)
        r = compare_tensor(d, i, out, e);
    if (r == 0)
        r = add_others(d, out, e);
    qsort(out->row, out->rows, sizeof *out->row, by_difference);
    out->same = strcmp(out->a.state_root, out->b.state_root) == 0 && (out->rows == 0 || out->row[0].is == KC_SAME);
    out->bytes_read = d->bytes_read;
    return r;
}

int kc_snapshot_compare(const char *path_a, const char *path_b, struct kc_snapshot_diff **out, struct kc_error *e)
{
    struct kc_pair p;
    int r = kc_pair_open(&kc_storage_posix, path_a, &kc_storage_posix, path_b, &p, e);
    if (r < 0)
        return r;
    struct kc_snapshot_diff *made = calloc(1, sizeof *made);
    r = made ? compare(&p, made, e) : kc_fail(e, -ENOMEM, "no memory to compare snapshots");
    if (r == 0)
        *out = made;
    else
        kc_snapshot_diff_free(made);
    kc_pair_close(&p);
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
