/* pair.c - see pair.h. */
#include "pair.h"

#include "state_impl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- one side ---- */

const struct kc_extent *kc_side_extent(const struct kc_side *s, struct kc_pair_place at)
{
    return &s->w->pack[at.pack].extent[at.extent];
}

static uint32_t key_of(const struct kc_extent *x)
{
    return kc_side_key(x->tensor, x->kind);
}

/* Counted, summed, put: a sort that leaves the order of packs. */
static int sort(struct kc_side *s)
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
            s->place[s->start[key_of(&s->w->pack[p].extent[i]) + 1]++] = (struct kc_pair_place){p, i};
    return 0;
}

int kc_side_open(const struct kc_storage *st, const char *path, struct kc_side *out, struct kc_error *e)
{
    struct kc_side s = {.st = st};
    char folder[4096];
    int r = kc_snapshot_resolve(st, path, folder, e);
    if (r == 0)
        r = kc_whole_open(st, folder, &s.w, e);
    if (r == 0 && (sort(&s) < 0 || kc_unpack_new(st, s.w, &s.unpack) < 0))
        r = kc_fail(e, -ENOMEM, "no memory for the index of %s", folder);
    if (r < 0)
        kc_side_close(&s);
    else
        *out = s;
    return r;
}

void kc_side_close(struct kc_side *s)
{
    kc_unpack_free(s->unpack);
    if (s->w)
        kc_whole_free(s->st, s->w);
    free(s->start);
    free(s->place);
    *s = (struct kc_side){.st = s->st};
}

int kc_side_read(const struct kc_side *s, struct kc_pair_place at, float *values, struct kc_error *e)
{
    int r = kc_unpack_values(s->unpack, at.pack, at.extent, values, e);
    return r < 0 ? kc_fail_prefix(e, r, "%.200s", s->w->manifest.tensor[kc_side_extent(s, at)->tensor].name) : 0;
}

/* ---- two ---- */

int kc_pair_open(const struct kc_storage *st_a, const char *a, const struct kc_storage *st_b, const char *b, struct kc_pair *out,
                 struct kc_error *e)
{
    struct kc_pair p = {.values = malloc(KC_PACK_GRID * sizeof *p.values)};
    int r = p.values ? kc_side_open(st_a, a, &p.a, e) : kc_fail(e, -ENOMEM, "no memory to read %s", a);
    if (r == 0 && b)
        r = kc_side_open(st_b, b, &p.b, e);
    if (r < 0)
        kc_pair_close(&p);
    else
        *out = p;
    return r;
}

void kc_pair_close(struct kc_pair *p)
{
    for (int i = 0; i < KC_PAIR_KEPT; i++)
        free(p->kept[i].values);
    free(p->values);
    kc_side_close(&p->a);
    kc_side_close(&p->b);
}

static int read_extent(struct kc_pair *p, const struct kc_side *s, struct kc_pair_place at, float *values, struct kc_error *e)
{
    int r = kc_side_read(s, at, values, e);
    p->bytes_read += r == 0 ? kc_extent_bytes(kc_side_extent(s, at)) : 0;
    return r;
}

/* The values of an extent of b: kept, or read in the place of the one that was used longest ago. */
static int extent_of_b(struct kc_pair *p, struct kc_pair_place at, const float **values, struct kc_error *e)
{
    struct kc_pair_kept *oldest = p->kept;
    for (struct kc_pair_kept *k = p->kept; k < p->kept + KC_PAIR_KEPT; k++) {
        if (k->used && k->at.pack == at.pack && k->at.extent == at.extent) {
            k->used = ++p->clock;
            *values = k->values;
            return 0;
        }
        oldest = k->used < oldest->used ? k : oldest;
    }
    oldest->used = 0;
    if (!oldest->values && !(oldest->values = malloc(KC_PACK_GRID * sizeof(float))))
        return kc_fail(e, -ENOMEM, "no memory to compare snapshots");
    int r = read_extent(p, &p->b, at, oldest->values, e);
    if (r < 0)
        return r;
    *oldest = (struct kc_pair_kept){at, ++p->clock, oldest->values};
    *values = oldest->values;
    return 0;
}

/* The extent of a in p->values against all of b that hold elements of it. */
static int walk_under(struct kc_pair *p, const struct kc_extent *x, uint32_t key_b, kc_pair_run *run, void *arg, struct kc_error *e)
{
    const struct kc_pair_place *in_b = p->b.place + p->b.start[key_b];
    const uint32_t count = p->b.start[key_b + 1] - p->b.start[key_b];
    struct kc_region a, b;
    int r = 0;
    kc_region_make(&p->a.w->manifest.tensor[x->tensor].dims, &x->box, &a);
    for (uint32_t i = 0; i < count && r == 0; i++) {
        const struct kc_extent *y = kc_side_extent(&p->b, in_b[i]);
        const float *values = NULL;
        struct kc_overlap o;
        kc_region_make(&p->b.w->manifest.tensor[y->tensor].dims, &y->box, &b);
        struct kc_range left = {x->lo, x->hi}, other = {y->lo, y->hi};
        for (; r == 0 && kc_region_meet(&a, left, &b, other, &o); left.lo = o.a + o.count) {
            if (!values)
                r = extent_of_b(p, in_b[i], &values, e);
            if (r == 0)
                run(arg, p->values + (o.a - x->lo), values + (o.b - y->lo), o.count);
        }
    }
    return r;
}

int kc_pair_walk(struct kc_pair *p, uint32_t key_a, uint32_t key_b, kc_pair_run *run, void *arg, struct kc_error *e)
{
    int r = 0;
    for (uint32_t i = p->a.start[key_a]; i < p->a.start[key_a + 1] && r == 0; i++) {
        const struct kc_extent *x = kc_side_extent(&p->a, p->a.place[i]);
        r = read_extent(p, &p->a, p->a.place[i], p->values, e);
        if (r == 0 && key_b == KC_PAIR_ALONE)
            run(arg, p->values, NULL, x->hi - x->lo);
        else if (r == 0)
            r = walk_under(p, x, key_b, run, arg, e);
    }
    return r;
}

bool kc_pair_same(const struct kc_pair *p, uint32_t key_a, uint32_t key_b)
{
    const uint32_t count = p->a.start[key_a + 1] - p->a.start[key_a];
    if (p->b.start[key_b + 1] - p->b.start[key_b] != count)
        return false;
    for (uint32_t i = 0; i < count; i++) {
        const struct kc_extent *x = kc_side_extent(&p->a, p->a.place[p->a.start[key_a] + i]),
                               *y = kc_side_extent(&p->b, p->b.place[p->b.start[key_b] + i]);
        if (memcmp(&x->box, &y->box, sizeof x->box) != 0 || x->lo != y->lo || x->hi != y->hi ||
            !kc_digest_equal(x->digest, y->digest) ||
            !kc_shape_equal(&p->a.w->manifest.tensor[x->tensor].dims, &p->b.w->manifest.tensor[y->tensor].dims))
            return false;
    }
    return true;
}

uint32_t kc_pair_tensor(const struct kc_manifest *m, const char *name, uint32_t guess)
{
    if (guess < m->tensors && strcmp(m->tensor[guess].name, name) == 0)
        return guess;
    for (uint32_t i = 0; i < m->tensors; i++)
        if (strcmp(m->tensor[i].name, name) == 0)
            return i;
    return UINT32_MAX;
}
