/* stats.c - figures of tensors, from the newest state that there is: the copy in memory where a keeper holds one, else the
 * newest whole version on disk. Reads values once, an extent at a time, each verified; no rank notices. */
#include "copy.h"
#include "pair.h"
#include "state_impl.h"

#include <errno.h>
#include <fnmatch.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define TRIES 8 /* what is read may go meanwhile: a copy is taken for a newer one, a version is pruned */

/* ---- the arithmetic ---- */

/* Of finite values: count, mean, and the sum of squares around it; blocks are put together as by Chan, Golub and LeVeque. */
struct sums {
    uint64_t count, nonfinite;
    double mean, around, square, least, most, largest;
    double by_square, by_largest, before_square; /* of what changed; both values finite */
};

static void add_moments(struct sums *t, const float *v, uint64_t count)
{
    double sum = 0, around = 0;
    uint64_t n = 0;
    for (uint64_t i = 0; i < count; i++)
        if (isfinite(v[i]))
            n++, sum += (double)v[i];
    const double mean = n ? sum / (double)n : 0;
    for (uint64_t i = 0; i < count; i++) {
        const double x = (double)v[i];
        if (!isfinite(x))
            continue;
        around += (x - mean) * (x - mean);
        t->square += x * x;
        t->least = x < t->least ? x : t->least;
        t->most = x > t->most ? x : t->most;
        t->largest = fabs(x) > t->largest ? fabs(x) : t->largest;
    }
    t->nonfinite += count - n;
    if (n == 0)
        return;
    const double all = (double)(t->count + n), by = mean - t->mean;
    t->around += around + by * by * (double)t->count * (double)n / all;
    t->mean += by * (double)n / all;
    t->count += n;
}

static void add_run(void *arg, const float *now, const float *before, uint64_t count)
{
    struct sums *t = arg;
    add_moments(t, now, count);
    for (uint64_t i = 0; before && i < count; i++) {
        const double x = (double)now[i], y = (double)before[i], by = x - y;
        if (!isfinite(x) || !isfinite(y))
            continue;
        t->by_square += by * by;
        t->before_square += y * y;
        t->by_largest = fabs(by) > t->by_largest ? fabs(by) : t->by_largest;
    }
}

static void take_figures(const struct sums *t, bool compared, struct kc_tensor_row *row)
{
    const bool any = t->count > 0;
    row->nonfinite = t->nonfinite;
    row->mean = any ? t->mean : (double)NAN;
    row->deviation = any ? sqrt(t->around / (double)t->count) : (double)NAN;
    row->least = any ? t->least : (double)NAN;
    row->most = any ? t->most : (double)NAN;
    row->largest = any ? t->largest : (double)NAN;
    row->norm = any ? sqrt(t->square) : (double)NAN;
    row->change = compared ? sqrt(t->by_square) : (double)NAN;
    row->change_largest = compared ? t->by_largest : (double)NAN;
    row->change_relative = !compared ? (double)NAN : t->by_square == 0 ? 0 : sqrt(t->by_square / t->before_square);
    if (!isfinite(row->change_relative))
        row->change_relative = (double)NAN; /* it was all 0 */
}

/* ---- one pair of versions ---- */

/* As files have the name, or without what all names of a family begin with. */
static bool fits(const char *pattern, const char *name)
{
    static const char *const begin[] = {"transformer.", "model."};
    if (!*pattern || fnmatch(pattern, name, 0) == 0)
        return true;
    for (size_t i = 0; i < sizeof begin / sizeof begin[0]; i++)
        if (strncmp(name, begin[i], strlen(begin[i])) == 0 && fnmatch(pattern, name + strlen(begin[i]), 0) == 0)
            return true;
    return false;
}

static bool any_fits(const struct kc_manifest *m, const char *pattern)
{
    for (uint32_t t = 0; t < m->tensors; t++)
        if (fits(pattern, m->tensor[t].name))
            return true;
    return false;
}

static int look_at(struct kc_pair *p, uint32_t tensor, uint32_t kind, bool names, struct kc_tensor_view *v, struct kc_error *e)
{
    const struct kc_manifest *m = &p->a.w->manifest;
    const uint32_t key = kc_side_key(tensor, kind);
    const uint32_t other = p->b.w ? kc_pair_tensor(&p->b.w->manifest, m->tensor[tensor].name, tensor) : UINT32_MAX;
    const bool both = other != UINT32_MAX && kc_side_has(&p->b, kc_side_key(other, kind)) &&
                      kc_shape_equal(&m->tensor[tensor].shape, &p->b.w->manifest.tensor[other].shape);
    struct sums t = {.least = (double)INFINITY, .most = -(double)INFINITY};
    if (!kc_side_has(&p->a, key))
        return 0;
    const bool same = both && kc_pair_same(p, key, kc_side_key(other, kind)); /* then it is read once */
    int r = names ? 0 : kc_pair_walk(p, key, both && !same ? kc_side_key(other, kind) : KC_PAIR_ALONE, add_run, &t, e);
    if (r < 0)
        return r;
    struct kc_tensor_row *row = &v->row[v->rows];
    *row = (struct kc_tensor_row){.name = strdup(m->tensor[tensor].name), .kind = kind, .elements = m->tensor[tensor].count,
        .rank = m->tensor[tensor].shape.rank};
    memcpy(row->size, m->tensor[tensor].shape.size, sizeof row->size);
    if (!row->name)
        return kc_fail(e, -ENOMEM, "no memory for the figures of tensors");
    take_figures(&t, both && !names, row);
    v->rows++;
    return 0;
}

static int look(struct kc_pair *p, const char *pattern, bool names, struct kc_tensor_view *v, struct kc_error *e)
{
    const struct kc_manifest *m = &p->a.w->manifest;
    int r = 0;
    v->row = calloc((size_t)m->tensors * KC_KIND_COUNT + 1, sizeof *v->row);
    if (!v->row)
        return kc_fail(e, -ENOMEM, "no memory for the figures of tensors");
    for (uint32_t t = 0; t < m->tensors && r == 0; t++) {
        const bool wanted = fits(pattern, m->tensor[t].name);
        for (uint32_t k = 0; k < KC_KIND_COUNT && wanted && r == 0; k++)
            r = look_at(p, t, k, names, v, e);
    }
    kc_snapshot_describe(p->a.w, &v->info);
    if (p->b.w)
        kc_snapshot_describe(p->b.w, &v->before);
    v->bytes_read = p->bytes_read;
    return r;
}

/* ---- which versions ---- */

struct candidate {
    uint64_t version, step;
    bool memory;
};
#define CANDIDATES 8

static void add(struct candidate list[CANDIDATES], uint32_t *count, struct candidate c)
{
    uint32_t at = *count;
    while (at > 0 && (list[at - 1].version < c.version || (list[at - 1].version == c.version && !list[at - 1].memory && c.memory)))
        at--;
    if (at == CANDIDATES)
        return;
    *count += *count < CANDIDATES;
    memmove(list + at + 1, list + at, (*count - at - 1) * sizeof *list);
    list[at] = c;
}

static void add_copies(const struct kc_copies *c, struct candidate list[CANDIDATES], uint32_t *count)
{
    uint64_t version[KC_COPY_SLOTS];
    for (uint32_t i = 0, n = kc_copies_versions(c, version); i < n; i++) {
        struct kc_error e = {""};
        struct kc_whole *w = NULL;
        if (kc_copies_whole(c, version[i], NULL, 0, &w, &e) < 0)
            continue;
        add(list, count, (struct candidate){version[i], w->manifest.progress.step, true});
        kc_whole_free(kc_copies_storage(c), w);
    }
}

/* The newest two that are whole. */
static int add_disk(const char *directory, struct candidate list[CANDIDATES], uint32_t *count, struct kc_error *e)
{
    struct kc_catalog c = {0};
    int r = kc_catalog_scan(&kc_storage_posix, directory, &c, e);
    uint32_t at = c.count;
    for (int found = 0; r == 0 && found < 2; found++) {
        struct kc_whole *w;
        r = kc_catalog_newest(&kc_storage_posix, directory, &c, 0, &at, NULL, NULL, &w, e);
        if (r < 0)
            break;
        add(list, count, (struct candidate){c.version[at], w->manifest.progress.step, false});
        kc_whole_free(&kc_storage_posix, w);
    }
    kc_catalog_free(&c);
    return r == -ENOENT ? 0 : r;
}

static void path_of(const struct candidate *c, const char *directory, char out[4096])
{
    kc_catalog_path(c->memory ? KC_COPY_DIRECTORY : directory, c->version, out);
}

/* *again: it may be that what was chosen went while it was read. */
static int look_once(const struct kc_tensor_question *q, const struct kc_copies *copies, struct kc_tensor_view *v, bool *again,
                     struct kc_error *e)
{
    struct candidate list[CANDIDATES];
    struct kc_pair p;
    uint32_t count = 0, before = 1;
    char now_path[4096], before_path[4096];
    *again = false;
    if (copies)
        add_copies(copies, list, &count);
    int r = add_disk(q->directory, list, &count, e);
    if (r < 0 && r != -ENOENT)
        return r;
    if (count == 0)
        return kc_fail(e, -ENOENT, "%s has no whole snapshot, and no copy of the state is in memory", q->directory);
    while (before < count && list[before].version == list[0].version)
        before++;
    const struct kc_storage *of[2] = {&kc_storage_posix, copies ? kc_copies_storage(copies) : NULL};
    path_of(&list[0], q->directory, now_path);
    if (before < count)
        path_of(&list[before], q->directory, before_path);
    *again = true;
    r = kc_pair_open(of[list[0].memory], now_path, before < count ? of[list[before].memory] : NULL,
                     before < count ? before_path : NULL, &p, e);
    if (r < 0)
        return r;
    const bool named = any_fits(&p.a.w->manifest, q->pattern);
    r = named ? look(&p, q->pattern, q->names, v, e)
              : kc_fail(e, -ENOENT, "no tensor of %s is called \"%.100s\"; the first is %s", now_path, q->pattern,
                        p.a.w->manifest.tensors ? p.a.w->manifest.tensor[0].name : "none");
    *again = named && r < 0;
    v->info.memory = list[0].memory;
    v->before.memory = before < count && list[before].memory;
    kc_pair_close(&p);
    return r;
}

static void clear(struct kc_tensor_view *v)
{
    for (uint32_t i = 0; v->row && i < v->rows; i++)
        free(v->row[i].name);
    free(v->row);
    memset(v, 0, sizeof *v);
}

int kc_tensor_look(const struct kc_tensor_question *q, struct kc_tensor_view **out, struct kc_error *e)
{
    struct kc_tensor_view *v = calloc(1, sizeof *v);
    struct kc_copies *copies = NULL;
    int r = v ? 0 : kc_fail(e, -ENOMEM, "no memory for the figures of tensors");
    bool again = v != NULL;
    if (v && q->fds)
        kc_copies_open(q->fds, q->ranks, &copies, &(struct kc_error){""}); /* none: the disk has what there is */
    for (int i = copies ? 0 : TRIES; i < TRIES + 2 && again; i++) { /* at last the disk alone */
        clear(v);
        r = look_once(q, i < TRIES ? copies : NULL, v, &again, e);
    }
    kc_copies_free(copies);
    if (r < 0)
        kc_tensor_view_free(v);
    else
        *out = v;
    return r;
}

void kc_tensor_view_free(struct kc_tensor_view *v)
{
    if (v)
        clear(v);
    free(v);
}
