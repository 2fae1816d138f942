/* whole.c - see whole.h. */
#include "whole.h"

#include "catalog.h"
#include "cover.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- one version, without those that it leans on ---- */

/* Format 1 writes no boxes: all are whole tensors. */
static void complete(struct kc_pack *p, const struct kc_manifest *m)
{
    for (uint32_t i = 0; i < p->count && p->format == 1; i++)
        if (p->extent[i].tensor < m->tensors)
            memcpy(p->extent[i].box.size, m->tensor[p->extent[i].tensor].dims.size, sizeof p->extent[i].box.size);
}

/* Lengths and digests must be the manifest's (or become them, while it is made), and cover every element once. */
static int open_packs(const struct kc_storage *st, const char *folder, struct kc_whole *w, bool learn, struct kc_error *e)
{
    struct kc_manifest *m = &w->manifest;
    int r = 0;
    w->pack = calloc(m->packs + 1u, sizeof *w->pack);
    if (!w->pack)
        return kc_fail(e, -ENOMEM, "no memory to open %s", folder);
    for (w->packs = 0; w->packs < m->packs; w->packs++)
        w->pack[w->packs].fd = -1;
    w->bytes = 0;
    for (uint32_t i = 0; i < m->packs && r == 0; i++) {
        const struct kc_pack_head head = {i, m->packs, m->version, m->progress.step};
        char path[4096];
        kc_catalog_pack_path(folder, i, path, sizeof path);
        r = kc_pack_open(st, path, &head, learn ? KC_SNAPSHOT_FORMAT : m->format, &w->pack[i], e);
        if (r < 0)
            break;
        complete(&w->pack[i], m);
        w->bytes += w->pack[i].bytes;
        if (learn) {
            m->pack[i].bytes = w->pack[i].bytes;
            m->pack[i].extents = w->pack[i].count;
            m->pack[i].index = w->pack[i].index;
        } else if (m->pack[i].bytes != w->pack[i].bytes || m->pack[i].extents != w->pack[i].count ||
                   !kc_digest_equal(m->pack[i].index, w->pack[i].index)) {
            r = kc_fail(e, -EBADMSG, "%s has %" PRIu64 " bytes, the manifest says %" PRIu64 ", or another digest",
                        path, w->pack[i].bytes, m->pack[i].bytes);
        }
    }
    return r == 0 ? kc_cover_check(m, w->pack, e) : r;
}

bool kc_whole_says_nothing(int code)
{
    return code == -ENOMEM || code == -EMFILE || code == -ENFILE || code == -EIO;
}

static int refuse_marked(const struct kc_storage *st, const char *path, struct kc_error *e)
{
    char mark[4096], *why;
    size_t bytes;
    if ((size_t)snprintf(mark, sizeof mark, "%s/BROKEN", path) >= sizeof mark)
        return kc_fail(e, -ENAMETOOLONG, "%s: the path is too long", path);
    int r = kc_storage_read_file(st, mark, 4096, &why, &bytes);
    if (r == -ENOENT)
        return 0;
    if (kc_whole_says_nothing(r))
        return kc_storage_fail(st, e, r, "read", mark, 0);
    if (r < 0)
        return kc_fail(e, -EBADMSG, "%s is marked broken", path);
    why[strcspn(why, "\n")] = 0;
    r = kc_fail(e, -EBADMSG, "%s is marked broken: %s", path, why);
    free(why);
    return r;
}

struct kc_whole *kc_whole_new(void)
{
    return calloc(1, sizeof(struct kc_whole));
}

static int open_alone(const struct kc_storage *st, const char *path, struct kc_whole **out, struct kc_error *e)
{
    struct kc_whole *w = kc_whole_new();
    if (!w)
        return kc_fail(e, -ENOMEM, "no memory to open %s", path);
    snprintf(w->path, sizeof w->path, "%s", path);
    int r = refuse_marked(st, path, e);
    if (r == 0)
        r = kc_manifest_read(st, path, &w->manifest, e);
    const char *name = strrchr(path, '/');
    uint64_t named = kc_catalog_version(name ? name + 1 : path);
    if (r == 0 && named && named != w->manifest.version)
        r = kc_fail(e, -EBADMSG, "%s holds the manifest of version %" PRIu64, path, w->manifest.version);
    if (r == 0)
        r = open_packs(st, path, w, false, e);
    if (r < 0)
        kc_whole_free(st, w);
    else
        *out = w;
    return r;
}

void kc_whole_free(const struct kc_storage *st, struct kc_whole *w)
{
    if (!w)
        return;
    for (uint32_t i = 0; i < w->packs; i++)
        kc_pack_free(st, &w->pack[i]);
    for (uint32_t i = 0; i < w->parents; i++)
        kc_whole_free(st, w->parent[i]);
    free(w->parent);
    free(w->pack);
    kc_manifest_free(&w->manifest);
    free(w);
}

struct kc_whole *kc_whole_of(const struct kc_manifest *lent)
{
    struct kc_whole *w = kc_whole_new();
    if (w)
        w->manifest = *lent;
    return w;
}

void kc_whole_free_of(const struct kc_storage *st, struct kc_whole *w, const struct kc_manifest *lent)
{
    if (!w)
        return;
    if (w->manifest.parent != lent->parent) /* it learned its own */
        free(w->manifest.parent);
    w->manifest = (struct kc_manifest){0};
    kc_whole_free(st, w);
}

/* ---- what it leans on ---- */

static const struct kc_whole *version_of(const struct kc_whole *w, uint64_t version)
{
    for (uint32_t i = 0; i < w->parents; i++)
        if (w->parent[i]->manifest.version == version)
            return w->parent[i];
    return NULL;
}

struct kc_place kc_whole_next(const struct kc_whole *w, struct kc_place at)
{
    return (struct kc_place){version_of(w, kc_place_extent(at)->origin), at.pack, at.extent};
}

/* Does y, of version b, have the values that x, of version a, leans on? */
static bool carries(const struct kc_whole *a, const struct kc_extent *x, const struct kc_whole *b, const struct kc_extent *y)
{
    struct kc_extent same_number = *y;
    same_number.tensor = x->tensor;
    return kc_extent_same_place(x, &same_number) && y->codec != KC_CODEC_BASE && kc_digest_equal(y->digest, x->base) &&
           y->depth + (x->codec != KC_CODEC_BASE) == x->depth &&
           strcmp(a->manifest.tensor[x->tensor].name, b->manifest.tensor[y->tensor].name) == 0;
}

/* The chain behind an extent, to its end. */
static int check_chain(const struct kc_whole *w, uint32_t pack, uint32_t extent, struct kc_error *e)
{
    struct kc_place at = {w, pack, extent}, next;
    for (; kc_extent_leans(kc_place_extent(at)); at = next) {
        const struct kc_extent *x = kc_place_extent(at);
        next = kc_whole_next(w, at);
        if (next.whole && pack < next.whole->manifest.packs && extent < next.whole->pack[pack].count &&
            carries(at.whole, x, next.whole, kc_place_extent(next)))
            continue;
        return kc_fail(e, -EBADMSG, "%s: extent %u of pack %u needs one of version %" PRIu64 " that is not there", at.whole->path,
                       extent, pack, x->origin);
    }
    return 0;
}

static int check_chains(const struct kc_whole *w, struct kc_error *e)
{
    for (uint32_t p = 0; p < w->manifest.packs; p++)
        for (uint32_t i = 0; i < w->pack[p].count; i++) {
            int r = check_chain(w, p, i, e);
            if (r < 0)
                return r;
        }
    return 0;
}

/* Open one more; its files are closed, as there may be more of them than a process may have open. */
static int add_parent(const struct kc_storage *st, const char *directory, uint64_t version, struct kc_whole *w,
                      struct kc_error *e)
{
    char path[4096];
    struct kc_whole *p;
    struct kc_whole **more = realloc(w->parent, (w->parents + 1u) * sizeof *more);
    if (!more)
        return kc_fail(e, -ENOMEM, "no memory to open %s", directory);
    w->parent = more;
    kc_catalog_path(directory, version, path);
    int r = open_alone(st, path, &p, e);
    if (r < 0)
        return kc_fail_prefix(e, r, "v%08" PRIu64 " needs v%08" PRIu64, w->manifest.version, version);
    for (uint32_t i = 0; i < p->manifest.packs; i++) {
        st->close(st->self, p->pack[i].fd);
        p->pack[i].fd = -1;
    }
    w->parent[w->parents++] = p;
    return 0;
}

/* The folder that a version's folder is in. */
static void directory_of(const char *path, char out[4096])
{
    snprintf(out, 4096, "%s", path);
    char *slash = strrchr(out, '/');
    if (!slash)
        snprintf(out, 4096, ".");
    else
        slash[slash == out] = 0;
}

int kc_whole_open_blame(const struct kc_storage *st, const char *path, struct kc_whole **out, bool *own, struct kc_error *e)
{
    struct kc_whole *w;
    char directory[4096];
    int r = open_alone(st, path, &w, e);
    *own = r < 0;
    if (r < 0)
        return r;
    directory_of(path, directory);
    for (uint32_t i = 0; i < w->manifest.parents && r == 0; i++) {
        r = add_parent(st, directory, w->manifest.parent[i].version, w, e);
        if (r == 0 && !kc_digest_equal(w->parent[i]->manifest.digest, w->manifest.parent[i].manifest))
            r = kc_fail(e, -EBADMSG, "%s is not the version that v%08" PRIu64 " was made beside", w->parent[i]->path,
                        w->manifest.version);
    }
    if (r == 0)
        r = check_chains(w, e);
    if (r < 0)
        kc_whole_free(st, w);
    else
        *out = w;
    return r;
}

int kc_whole_open(const struct kc_storage *st, const char *path, struct kc_whole **out, struct kc_error *e)
{
    bool own;
    return kc_whole_open_blame(st, path, out, &own, e);
}

/* ---- a version that is being made ---- */

static int newer_first(const void *a, const void *b)
{
    const uint64_t x = (*(struct kc_whole *const *)a)->manifest.version, y = (*(struct kc_whole *const *)b)->manifest.version;
    return x < y ? 1 : x > y ? -1 : 0;
}

/* All that an extent names, and all that these lean on themselves: so each of them stays whole as long as this one. */
static int gather(const struct kc_storage *st, const char *directory, struct kc_whole *w, struct kc_error *e)
{
    uint64_t last = 0;
    int r = 0;
    for (uint32_t p = 0; p < w->manifest.packs; p++)
        for (uint32_t i = 0; i < w->pack[p].count && r == 0; i++) {
            const uint64_t origin = w->pack[p].extent[i].origin;
            if (origin && origin != last && !version_of(w, origin))
                r = add_parent(st, directory, origin, w, e);
            last = origin ? origin : last;
        }
    for (uint32_t i = 0; i < w->parents && r == 0; i++)
        for (uint32_t k = 0; k < w->parent[i]->manifest.parents && r == 0; k++) {
            const uint64_t version = w->parent[i]->manifest.parent[k].version;
            if (!version_of(w, version))
                r = add_parent(st, directory, version, w, e);
        }
    if (w->parents > 0)
        qsort(w->parent, w->parents, sizeof(struct kc_whole *), newer_first);
    return r;
}

int kc_whole_learn(const struct kc_storage *st, const char *folder, const char *directory, struct kc_whole *w, struct kc_error *e)
{
    struct kc_manifest *m = &w->manifest;
    snprintf(w->path, sizeof w->path, "%s", folder);
    int r = open_packs(st, folder, w, true, e);
    if (r == 0)
        r = gather(st, directory, w, e);
    if (r == 0)
        r = check_chains(w, e);
    if (r == 0 && !(m->parent = calloc(w->parents + 1u, sizeof *m->parent)))
        r = kc_fail(e, -ENOMEM, "no memory for a manifest");
    for (m->parents = 0; r == 0 && m->parents < w->parents; m->parents++) {
        m->parent[m->parents].version = w->parent[m->parents]->manifest.version;
        m->parent[m->parents].manifest = w->parent[m->parents]->manifest.digest;
    }
    return r;
}
