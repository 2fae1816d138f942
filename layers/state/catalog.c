/* catalog.c - see catalog.h. Decides by what the directory holds, never by what was remembered. */
#include "catalog.h"

#include "cover.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void kc_catalog_path(const char *directory, uint64_t version, char out[4096])
{
    snprintf(out, 4096, "%s/v%08" PRIu64, directory, version);
}

void kc_catalog_tmp_path(const char *directory, uint64_t version, char out[4096])
{
    snprintf(out, 4096, "%s/tmp.v%08" PRIu64, directory, version);
}

void kc_catalog_pack_path(const char *folder, uint32_t rank, char *out, size_t room)
{
    snprintf(out, room, "%s/rank-%u.pack", folder, rank);
}

/* "v" and digits only, 8 at least; 0 for anything else. */
static uint64_t version_of(const char *name)
{
    uint64_t v = 0;
    size_t n = strlen(name);
    if (name[0] != 'v' || n < 9 || n > 19)
        return 0;
    for (const char *c = name + 1; *c; c++) {
        if (*c < '0' || *c > '9')
            return 0;
        v = v * 10 + (uint64_t)(*c - '0');
    }
    return v;
}

static int see_version(void *arg, const char *name)
{
    struct kc_catalog *c = arg;
    uint64_t v = version_of(name), half = strncmp(name, "tmp.", 4) == 0 ? version_of(name + 4) : 0;
    if (v && c->count == KC_CATALOG_MAX)
        return -E2BIG;
    if (v)
        c->version[c->count++] = v;
    v = v > half ? v : half;
    c->highest = v > c->highest ? v : c->highest;
    return 0;
}

static int ascending(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

int kc_catalog_scan(const struct kc_storage *st, const char *directory, struct kc_catalog *out, struct kc_error *e)
{
    out->count = 0;
    out->highest = 0;
    int r = st->list(st->self, directory, see_version, out);
    if (r < 0 && r != -ENOENT)
        return kc_storage_fail(st, e, r, "list", directory, 0);
    qsort(out->version, out->count, sizeof out->version[0], ascending);
    return 0;
}

/* ---- a whole version ---- */

/* Format 1 writes no boxes: all are whole tensors. */
static void complete(struct kc_pack *p, const struct kc_manifest *m)
{
    for (uint32_t i = 0; i < p->count && p->format == 1; i++)
        if (p->extent[i].tensor < m->tensors)
            memcpy(p->extent[i].box.size, m->tensor[p->extent[i].tensor].dims.size, sizeof p->extent[i].box.size);
}

/* Lengths and digests must be the manifest's (or become them, while it is made), and cover every element once. */
int kc_whole_packs(const struct kc_storage *st, const char *folder, struct kc_whole *w, bool learn,
                   struct kc_error *e)
{
    struct kc_manifest *m = &w->manifest;
    int r = 0;
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

static int refuse_marked(const struct kc_storage *st, const char *path, struct kc_error *e)
{
    char mark[4096], *why;
    size_t bytes;
    if ((size_t)snprintf(mark, sizeof mark, "%s/BROKEN", path) >= sizeof mark)
        return kc_fail(e, -ENAMETOOLONG, "%s: the path is too long", path);
    int r = kc_storage_read_file(st, mark, 4096, &why, &bytes);
    if (r == -ENOENT)
        return 0;
    if (r < 0)
        return kc_fail(e, -EBADMSG, "%s is marked broken", path);
    why[strcspn(why, "\n")] = 0;
    r = kc_fail(e, -EBADMSG, "%s is marked broken: %s", path, why);
    free(why);
    return r;
}

struct kc_whole *kc_whole_new(void)
{
    struct kc_whole *w = calloc(1, sizeof *w);
    for (int i = 0; w && i < KC_RANKS_MAX; i++)
        w->pack[i].fd = -1;
    return w;
}

int kc_whole_open(const struct kc_storage *st, const char *path, struct kc_whole **out, struct kc_error *e)
{
    struct kc_whole *w = kc_whole_new();
    if (!w)
        return kc_fail(e, -ENOMEM, "no memory to open %s", path);
    snprintf(w->path, sizeof w->path, "%s", path);
    int r = refuse_marked(st, path, e);
    if (r == 0)
        r = kc_manifest_read(st, path, &w->manifest, e);
    const char *name = strrchr(path, '/');
    uint64_t named = version_of(name ? name + 1 : path);
    if (r == 0 && named && named != w->manifest.version)
        r = kc_fail(e, -EBADMSG, "%s holds the manifest of version %" PRIu64, path, w->manifest.version);
    if (r == 0)
        r = kc_whole_packs(st, path, w, false, e);
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
    for (int i = 0; i < KC_RANKS_MAX; i++)
        kc_pack_free(st, &w->pack[i]);
    kc_manifest_free(&w->manifest);
    free(w);
}

/* ---- changing the directory ---- */

int kc_catalog_make(const struct kc_storage *st, const char *directory, struct kc_error *e)
{
    char parent[4096];
    snprintf(parent, sizeof parent, "%s", directory);
    char *slash = strrchr(parent, '/');
    if (slash)
        *slash = 0;
    int r = st->make_folder(st->self, directory);
    if (r == 0 || r == -EEXIST)
        r = st->sync_folder(st->self, !slash ? "." : parent[0] ? parent : "/");
    return r < 0 ? kc_storage_fail(st, e, r, "make", directory, KC_PACK_ALIGN) : 0;
}

void kc_catalog_mark_broken(const struct kc_storage *st, const char *path, const char *why)
{
    char mark[4096];
    if ((size_t)snprintf(mark, sizeof mark, "%s/BROKEN", path) < sizeof mark)
        kc_storage_write_file(st, mark, why, strlen(why)); /* -EEXIST: a peer was faster */
}

int kc_catalog_lock(const struct kc_storage *st, const char *directory)
{
    char path[4096];
    if ((size_t)snprintf(path, sizeof path, "%s/LOCK", directory) >= sizeof path)
        return -ENAMETOOLONG;
    int fd = st->open(st->self, path, O_RDWR | O_CREAT);
    if (fd < 0)
        return fd;
    int r = st->lock(st->self, fd);
    if (r < 0) {
        st->close(st->self, fd);
        return r;
    }
    return fd;
}

struct leftovers {
    const struct kc_storage *st;
    const char *directory;
};

static int clean_one(void *arg, const char *name)
{
    const struct leftovers *l = arg;
    char path[4096];
    if (strncmp(name, "tmp.", 4) != 0 ||
        (size_t)snprintf(path, sizeof path, "%s/%s", l->directory, name) >= sizeof path)
        return 0;
    int r = kc_storage_remove_tree(l->st, path);
    return r == -ENOTDIR ? l->st->remove(l->st->self, path) : r;
}

/* That a version was renamed out of sight must last before any of it goes: a half-removed version must not look like one,
 * after a power cut neither. */
static int remove_hidden(const struct kc_storage *st, const char *directory)
{
    struct leftovers l = {st, directory};
    int r = st->sync_folder(st->self, directory);
    return r < 0 ? r : st->list(st->self, directory, clean_one, &l);
}

static int see_leftover(void *arg, const char *name)
{
    *(bool *)arg |= strncmp(name, "tmp.", 4) == 0;
    return 0;
}

int kc_catalog_clean(const struct kc_storage *st, const char *directory)
{
    bool any = false;
    int r = st->list(st->self, directory, see_leftover, &any);
    return r < 0 || !any ? r : remove_hidden(st, directory);
}

int kc_catalog_point(const struct kc_storage *st, const char *directory, uint64_t version, struct kc_error *e)
{
    char tmp[4096], path[4096], text[32];
    int n = snprintf(text, sizeof text, "v%08" PRIu64 "\n", version);
    if ((size_t)snprintf(tmp, sizeof tmp, "%s/tmp.CURRENT", directory) >= sizeof tmp)
        return kc_fail(e, -ENAMETOOLONG, "%s: the path is too long", directory);
    snprintf(path, sizeof path, "%s/CURRENT", directory);
    int r = kc_storage_write_file(st, tmp, text, (size_t)n);
    if (r == 0)
        r = st->rename(st->self, tmp, path);
    if (r == 0)
        r = st->sync_folder(st->self, directory);
    return r < 0 ? kc_storage_fail(st, e, r, "update", path, (uint64_t)n) : 0;
}

static int hide(const struct kc_storage *st, const char *directory, uint64_t version)
{
    char path[4096], tmp[4096];
    kc_catalog_path(directory, version, path);
    if ((size_t)snprintf(tmp, sizeof tmp, "%s/tmp.old.%" PRIu64, directory, version) >= sizeof tmp)
        return -ENAMETOOLONG;
    return st->rename(st->self, path, tmp);
}

static bool is_whole(const struct kc_storage *st, const char *directory, uint64_t version)
{
    char path[4096];
    struct kc_whole *w;
    kc_catalog_path(directory, version, path);
    if (kc_whole_open(st, path, &w, NULL) < 0)
        return false;
    kc_whole_free(st, w);
    return true;
}

int kc_catalog_old(const struct kc_storage *st, const char *directory, uint32_t keep, uint64_t every, struct kc_catalog *out,
                   struct kc_error *e)
{
    int r = kc_catalog_scan(st, directory, out, e);
    uint32_t kept = 0, from = r == 0 ? out->count : 0;
    keep = keep ? keep : 1;
    while (from > 0 && kept < keep)
        kept += is_whole(st, directory, out->version[--from]);
    out->count = 0;
    for (uint32_t i = 0; i < from && kept == keep; i++)
        if (!every || out->version[i] % every != 0)
            out->version[out->count++] = out->version[i];
    return r;
}

int kc_catalog_remove(const struct kc_storage *st, const char *directory, const struct kc_catalog *old, struct kc_error *e)
{
    int r = 0;
    for (uint32_t i = 0; i < old->count && r == 0; i++)
        r = hide(st, directory, old->version[i]);
    if (r == 0 && old->count > 0)
        r = remove_hidden(st, directory);
    return r < 0 ? kc_storage_fail(st, e, r, "remove old versions of", directory, 0) : 0;
}
