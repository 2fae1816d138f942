/* preview.c - what a restore would do: which version, why not a newer one, what every rank would read of it. Decides by the same
 * functions as the restore itself, and changes nothing: no mark, no lock, nothing tidied. */
#include "state_impl.h"
#include "unpack.h"

#include "base/print.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A rank of the layout that is asked about, as far as choosing and reading need one: it has no memory. */
static struct kc_state *imagine(const struct kc_restore_question *q, uint32_t rank, struct kc_error *e)
{
    struct kc_state *s = calloc(1, sizeof *s);
    if (!s) {
        kc_fail(e, -ENOMEM, "no memory to look at a restore");
        return NULL;
    }
    s->spec = q->spec;
    s->shard = q->shard;
    s->rank = rank;
    s->st = &kc_storage_posix;
    snprintf(s->variant, sizeof s->variant, "%s", q->variant ? q->variant : "");
    snprintf(s->plan, sizeof s->plan, "%s", q->plan ? q->plan : "");
    if (kc_map_new(q->shard, rank, &s->map, e) < 0) {
        free(s);
        return NULL;
    }
    return s;
}

static void forget(struct kc_state *s)
{
    if (s)
        kc_map_free(&s->map);
    free(s);
}

static int pass_over(void *arg, uint64_t version, const char *why)
{
    struct kc_restore_view *v = arg;
    struct kc_restore_passed *more = realloc(v->passed, (v->passed_count + 1) * sizeof *more);
    if (!more)
        return -ENOMEM;
    v->passed = more;
    more[v->passed_count].version = version;
    snprintf(more[v->passed_count++].why, sizeof more->why, "%.*s", (int)sizeof more->why - 1, why);
    return 0;
}

/* Newest first, or that one. */
static int choose(const struct kc_restore_question *q, const struct kc_catalog *c, struct kc_restore_view *v, struct kc_whole **out,
                  struct kc_error *e)
{
    uint32_t from = 0, at = c->count;
    if (q->version) {
        while (from < c->count && c->version[from] != q->version)
            from++;
        at = from < c->count ? from + 1 : from;
    }
    int r = kc_catalog_newest(&kc_storage_posix, q->directory, c, from, &at, pass_over, v, out, e);
    if (r == 0 || r != -ENOENT)
        return r == -ENOMEM ? kc_fail(e, r, "no memory to look at a restore") : r;
    if (v->passed_count)
        return kc_fail(e, -EBADMSG, "none of the %u snapshot%s in %s is whole: v%08" PRIu64 " is passed over: %s", v->passed_count,
                       kc_plural(v->passed_count),
                       q->directory, v->passed[0].version, v->passed[0].why);
    return q->version ? kc_fail(e, -ENOENT, "%s has no snapshot v%08" PRIu64, q->directory, q->version)
                      : kc_fail(e, -ENOENT, "%s has no snapshot", q->directory);
}

/* That one, 0, and those that it leans on. */
static const struct kc_whole *version(const struct kc_whole *w, uint32_t number)
{
    return number ? w->parent[number - 1] : w;
}

/* Reads of one pack and of those that its extents lean on, which have the same number in each version. */
static int count_reads(const struct kc_whole *w, uint32_t p, const bool *wanted, struct kc_restore_rank *out, struct kc_error *e)
{
    const uint32_t versions = w->parents + 1, count = w->pack[p].count;
    bool *need = calloc((size_t)versions * (count + 1u), sizeof *need);
    if (!need)
        return kc_fail(e, -ENOMEM, "no memory to look at a restore");
    for (uint32_t i = 0; i < count; i++) {
        struct kc_place at = {w, p, i};
        bool more = wanted[i];
        while (more) {
            uint32_t v = 0;
            while (v < w->parents && version(w, v) != at.whole)
                v++;
            need[(size_t)v * (count + 1u) + i] = true;
            more = kc_extent_leans(kc_place_extent(at));
            at = more ? kc_whole_next(w, at) : at;
        }
    }
    for (uint32_t v = 0; v < versions; v++) {
        const uint64_t before = out->reads;
        const struct kc_whole *of = version(w, v);
        if (p >= of->manifest.packs)
            continue;
        struct kc_pack pack = of->pack[p];
        pack.count = pack.count < count ? pack.count : count;
        kc_unpack_estimate(&pack, need + (size_t)v * (count + 1u), &out->reads, &out->read_bytes);
        out->files += out->reads > before;
    }
    free(need);
    return 0;
}

/* What one rank reads, extent by extent as kc_values_read() does. */
static int count_rank(const struct kc_restore_question *q, const struct kc_whole *w, const uint32_t *where, uint32_t rank,
                      struct kc_restore_rank *out, struct kc_error *e)
{
    struct kc_state *s = imagine(q, rank, e);
    int r = s ? 0 : -EINVAL;
    for (uint32_t p = 0; p < w->manifest.packs && r == 0; p++) {
        const struct kc_pack *pack = &w->pack[p];
        bool *wanted = calloc(pack->count + 1u, sizeof *wanted);
        r = wanted ? 0 : kc_fail(e, -ENOMEM, "no memory to look at a restore");
        for (uint32_t i = 0; i < pack->count && r == 0; i++) {
            const struct kc_extent *x = &pack->extent[i];
            wanted[i] = kc_values_want(s, w, x, where[x->tensor], true);
            out->extents += wanted[i];
            out->bytes += wanted[i] ? kc_extent_bytes(x) : 0;
        }
        if (r == 0)
            r = count_reads(w, p, wanted, out, e);
        free(wanted);
    }
    forget(s);
    return r;
}

/* Does the job take it, and will its bits be the same? */
static int judge(const struct kc_restore_question *q, const struct kc_whole *w, struct kc_restore_view *v, struct kc_error *e)
{
    struct kc_error why = {""};
    struct kc_state *s = imagine(q, 0, e);
    struct kc_print notes = {.out = v->bits, .room = sizeof v->bits};
    uint32_t *where = NULL;
    if (!s)
        return -EINVAL;
    int r = kc_restore_fits(s, w, &why);
    v->fits = r == 0;
    snprintf(v->why, sizeof v->why, "%.*s", (int)sizeof v->why - 1, why.text);
    v->info.bits_change = kc_restore_bits_change(s, &w->manifest, &notes);
    r = v->fits ? kc_values_match(s, &w->manifest, &where, e) : 0;
    for (uint32_t i = 0; i < q->shard->ranks && v->fits && r == 0; i++)
        r = count_rank(q, w, where, i, &v->rank[i], e);
    free(where);
    forget(s);
    return r;
}

static int look(const struct kc_restore_question *q, const struct kc_whole *w, struct kc_restore_view *v, struct kc_error *e)
{
    const struct kc_manifest *m = &w->manifest;
    v->rank = calloc(q->shard->ranks, sizeof *v->rank);
    v->ranks = q->shard->ranks;
    if (!v->rank)
        return kc_fail(e, -ENOMEM, "no memory to look at a restore");
    kc_snapshot_describe(w, &v->info);
    v->wrote_ranks = m->ranks;
    v->wrote_zero = m->zero;
    memcpy(v->wrote_axis, m->axis, sizeof v->wrote_axis);
    v->tokens = m->progress.tokens;
    v->position = m->progress.position;
    v->same_layout = m->ranks == q->shard->ranks && m->zero == q->shard->zero && !memcmp(m->axis, q->shard->axis, sizeof m->axis);
    for (uint32_t p = 0; p < m->packs; p++)
        for (uint32_t i = 0; i < w->pack[p].count; i++)
            v->all_bytes += kc_extent_bytes(&w->pack[p].extent[i]);
    return judge(q, w, v, e);
}

int kc_restore_look(const struct kc_restore_question *q, struct kc_restore_view **out, struct kc_error *e)
{
    struct kc_catalog c = {0};
    struct kc_restore_view *v = calloc(1, sizeof *v);
    struct kc_whole *w = NULL;
    int r = v ? 0 : kc_fail(e, -ENOMEM, "no memory to look at a restore");
    if (r == 0 && q->one)
        r = kc_whole_open(&kc_storage_posix, q->directory, &w, e);
    else if (r == 0 && (r = kc_catalog_scan(&kc_storage_posix, q->directory, &c, e)) == 0)
        r = choose(q, &c, v, &w, e);
    if (r == 0)
        r = look(q, w, v, e);
    kc_whole_free(&kc_storage_posix, w);
    kc_catalog_free(&c);
    if (r < 0)
        kc_restore_view_free(v);
    else
        *out = v;
    return r;
}

void kc_restore_view_free(struct kc_restore_view *v)
{
    if (v) {
        free(v->passed);
        free(v->rank);
    }
    free(v);
}
