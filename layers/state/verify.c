/* verify.c - reads snapshots without a job: lists, describes, proves. Changes nothing. */
#include "unpack.h"
#include "state_impl.h"

#include "base/print.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t value_bytes(const struct kc_whole *w)
{
    uint64_t bytes = 0;
    for (uint32_t p = 0; p < w->manifest.packs; p++)
        for (uint32_t i = 0; i < w->pack[p].count; i++)
            bytes += kc_extent_bytes(&w->pack[p].extent[i]);
    return bytes;
}

void kc_snapshot_describe(const struct kc_whole *w, struct kc_snapshot_info *out)
{
    *out = (struct kc_snapshot_info){
        .version = w->manifest.version, .step = w->manifest.progress.step, .bytes = w->bytes, .raw_bytes = value_bytes(w),
        .parent = w->parents ? w->parent[0]->manifest.version : 0, .parents = w->parents, .verified = true};
    kc_digest_text(w->manifest.root, out->state_root);
    snprintf(out->path, sizeof out->path, "%s", w->path);
}

static void describe_broken(const char *path, uint64_t version, int code, const struct kc_error *why,
                            struct kc_snapshot_info *out)
{
    *out = (struct kc_snapshot_info){.version = version, .error = code};
    snprintf(out->path, sizeof out->path, "%s", path);
    snprintf(out->reason, sizeof out->reason, "%.*s", (int)sizeof out->reason - 1, why->text);
}

int kc_snapshot_list(const char *directory, struct kc_snapshot_info *out, size_t room, size_t *count,
                     struct kc_error *e)
{
    const struct kc_storage *st = &kc_storage_posix;
    struct kc_catalog c = {0};
    int r = kc_catalog_scan(st, directory, &c, e);
    size_t n = r == 0 ? c.count : 0, skip = n > room ? n - room : 0;
    for (size_t i = skip; i < n; i++) {
        struct kc_error why = {""};
        struct kc_whole *w;
        char path[4096];
        kc_catalog_path(directory, c.version[i], path);
        int code = kc_whole_open(st, path, &w, &why);
        if (code < 0) {
            describe_broken(path, c.version[i], code, &why, &out[i - skip]);
            continue;
        }
        kc_snapshot_describe(w, &out[i - skip]);
        kc_whole_free(st, w);
    }
    kc_catalog_free(&c);
    if (r == 0)
        *count = n;
    return r;
}

static bool has(const struct kc_storage *st, const char *folder, const char *name)
{
    char path[4096 + 64];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    int fd = st->open(st->self, path, O_RDONLY | O_NONBLOCK);
    if (fd >= 0)
        st->close(st->self, fd);
    return fd >= 0;
}

/* What is wrong with the oldest. */
static int take_last(void *e, uint64_t version, const char *why)
{
    (void)version;
    kc_fail(e, -EBADMSG, "%s", why);
    return 0;
}

/* The newest whole version in `folder`, NULL if there is none; *count: how many versions there are. -errno of the folder, or of a
 * version of which it is not known now. */
static int newest_whole(const struct kc_storage *st, const char *folder, struct kc_whole **out, uint32_t *count,
                        struct kc_error *e)
{
    struct kc_catalog c = {0};
    int r = kc_catalog_scan(st, folder, &c, e);
    uint32_t at = *count = r == 0 ? c.count : 0;
    *out = NULL;
    if (r == 0)
        r = kc_catalog_newest(st, folder, &c, 0, &at, take_last, e, out, e);
    kc_catalog_free(&c);
    return r == -ENOENT ? 0 : r;
}

int kc_snapshot_variant(const char *directory, char *out, size_t room)
{
    const struct kc_storage *st = &kc_storage_posix;
    struct kc_error why;
    struct kc_whole *w;
    uint32_t count;
    if (newest_whole(st, directory, &w, &count, &why) < 0 || !w)
        return -ENOENT;
    int n = snprintf(out, room, "%s", w->manifest.variant);
    kc_whole_free(st, w);
    return n >= 0 && (size_t)n < room ? 0 : -ENOSPC;
}

int kc_snapshot_resolve(const struct kc_storage *st, const char *path, char out[4096], struct kc_error *e)
{
    char folder[3072];
    struct kc_whole *w;
    uint32_t count;
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/')
        n--;
    if (n >= sizeof folder)
        return kc_fail(e, -ENAMETOOLONG, "the path is too long: %.200s…", path);
    snprintf(folder, sizeof folder, "%.*s", (int)n, path);
    if (has(st, folder, KC_MANIFEST_NAME) || has(st, folder, "rank-0.pack")) {
        memcpy(out, folder, n + 1);
        return 0;
    }
    int r = newest_whole(st, folder, &w, &count, e);
    if (r == 0 && count == 0 && has(st, folder, "snapshots"))
        return kc_fail(e, -ENOENT, "%.200s is no snapshot: a job's lie in %.200s/snapshots", folder, folder);
    if (r == -ENOTDIR || (r == 0 && count == 0))
        return kc_fail(e, -ENOENT, "%s is no snapshot and holds none", folder);
    if (r == 0 && !w)
        return kc_fail_prefix(e, -EBADMSG, "%.200s holds no whole snapshot", folder);
    if (r == 0)
        snprintf(out, 4096, "%s", w->path);
    kc_whole_free(st, w);
    return r;
}

/* What an extent stores: is it what was written? */
static int check_extent(const struct kc_storage *st, const struct kc_whole *w, uint32_t p, uint32_t i, void *buffer,
                        struct kc_error *e)
{
    const struct kc_extent *x = &w->pack[p].extent[i];
    int r = x->stored > 0 ? kc_pack_fetch(st, &w->pack[p], buffer, x->stored, x->offset, e) : 0;
    if (r == 0 && x->stored > 0)
        r = kc_pack_check_stored(&w->pack[p], i, buffer, e);
    return r < 0 ? kc_fail_prefix(e, r, "%.200s", w->manifest.tensor[x->tensor].name) : 0;
}

/* Of one version all that its packs store, and what lies between. */
static int check_stored(const struct kc_storage *st, const struct kc_whole *w, void *buffer, struct kc_error *e)
{
    int r = 0;
    for (uint32_t p = 0; p < w->manifest.packs && r == 0; p++)
        for (uint32_t i = 0; i < w->pack[p].count && r == 0; i++) {
            r = check_extent(st, w, p, i, buffer, e);
            if (r == 0 && (r = kc_pack_check_gap(st, &w->pack[p], i, e)) < 0)
                kc_fail_prefix(e, r, "%.200s", w->manifest.tensor[w->pack[p].extent[i].tensor].name);
        }
    return r;
}

/* Which extents of a version that it leans on `w` needs, one pack after the other. NULL no memory. */
static bool *needed_of(const struct kc_whole *w, const struct kc_whole *parent)
{
    size_t extents = 0, first = 0;
    for (uint32_t p = 0; p < parent->manifest.packs; p++)
        extents += parent->pack[p].count;
    bool *need = calloc(extents + 1, sizeof *need);
    for (uint32_t p = 0; need && p < w->manifest.packs && p < parent->manifest.packs; p++) {
        for (uint32_t i = 0; i < w->pack[p].count; i++) {
            struct kc_place at = {w, p, i};
            while (kc_extent_leans(kc_place_extent(at))) { /* in each version a pack has the same number */
                at = kc_whole_next(w, at);
                if (at.whole == parent)
                    need[first + at.extent] = true;
            }
        }
        first += parent->pack[p].count;
    }
    return need;
}

/* Of a version that `w` leans on: damage to what `w` needs is an error, other damage (the first) a note. */
static int check_parent(const struct kc_storage *st, const struct kc_whole *w, const struct kc_whole *parent, void *buffer,
                        struct kc_print *notes, struct kc_error *e)
{
    struct kc_error why = {""};
    bool *needed = needed_of(w, parent), *need = needed, whole = true;
    int r = needed ? 0 : kc_fail(e, -ENOMEM, "no memory to verify %s", w->path);
    for (uint32_t p = 0; p < parent->manifest.packs && r == 0; p++)
        for (uint32_t i = 0; i < parent->pack[p].count && r == 0; i++, need++) {
            if (*need)
                r = check_extent(st, parent, p, i, buffer, e);
            else if (whole)
                whole = check_extent(st, parent, p, i, buffer, &why) == 0;
            if (r == 0 && whole)
                whole = kc_pack_check_gap(st, &parent->pack[p], i, &why) == 0;
        }
    if (r == 0 && !whole)
        kc_print(notes, "%sv%08" PRIu64 ", which it leans on, is damaged where this version does not read it: %.250s",
                 notes->length ? "; " : "", parent->manifest.version, why.text);
    free(needed);
    return r;
}

/* All values, with `gaps` what lies between them too; the sums of state_root on the way. */
static int read_all(const struct kc_storage *st, const struct kc_whole *w, bool gaps, struct kc_unpack *unpack, float *buffer,
                    struct kc_root_tensor *t, struct kc_error *e)
{
    struct kc_region region;
    int r = 0;
    for (uint32_t p = 0; p < w->manifest.packs && r == 0; p++)
        for (uint32_t i = 0; i < w->pack[p].count && r == 0; i++) {
            const struct kc_extent *x = &w->pack[p].extent[i];
            const char *name = w->manifest.tensor[x->tensor].name;
            r = kc_unpack_values(unpack, p, i, buffer, e);
            if (r == 0 && gaps)
                r = kc_pack_check_gap(st, &w->pack[p], i, e);
            if (r < 0) {
                kc_fail_prefix(e, r, "%.200s", name);
                break;
            }
            kc_region_make(&w->manifest.tensor[x->tensor].dims, &x->box, &region);
            kc_root_add_box(kc_root_key(name, (enum kc_kind)x->kind), &region, x->lo, buffer, x->hi - x->lo,
                            t[x->tensor].limb[x->kind]);
        }
    return r;
}

static int check_root(const struct kc_storage *st, const struct kc_whole *w, bool gaps, float *buffer, struct kc_error *e)
{
    const struct kc_manifest *m = &w->manifest;
    struct kc_unpack *unpack = NULL;
    struct kc_digest root;
    char have[33], want[33];
    struct kc_root_tensor *t = calloc(m->tensors + 1u, sizeof *t);
    if (!t || kc_unpack_new(st, w, &unpack) < 0) {
        free(t);
        return kc_fail(e, -ENOMEM, "no memory to verify %s", w->path);
    }
    for (uint32_t i = 0; i < m->tensors; i++) {
        t[i].name = m->tensor[i].name;
        t[i].shape = m->tensor[i].shape;
    }
    int r = read_all(st, w, gaps, unpack, buffer, t, e);
    if (r == 0 && kc_root_digest(t, m->tensors, &m->progress, m->seed, &root) < 0)
        r = kc_fail(e, -ENOMEM, "no memory to verify %s", w->path);
    if (r == 0 && !kc_digest_equal(root, m->root)) {
        kc_digest_text(root, have);
        kc_digest_text(m->root, want);
        r = kc_fail(e, -EBADMSG, "%s: the values have state_root %s, the manifest says %s", w->path, have, want);
    }
    kc_unpack_free(unpack);
    free(t);
    return r;
}

enum thorough { STORED, DEEP, VALUES };

static int verify(const struct kc_storage *st, const struct kc_whole *w, enum thorough how, struct kc_print *notes, struct kc_error *e)
{
    float *buffer = malloc(KC_PACK_GRID * sizeof *buffer);
    int r = buffer ? 0 : kc_fail(e, -ENOMEM, "no memory to verify %s", w->path);
    for (uint32_t i = 0; i < w->parents && how != VALUES && r == 0; i++)
        r = check_parent(st, w, w->parent[i], buffer, notes, e);
    if (r == 0)
        r = how == STORED ? check_stored(st, w, buffer, e) : check_root(st, w, how == DEEP, buffer, e);
    free(buffer);
    return r;
}

static int open_and_verify(const char *path, enum thorough how, struct kc_snapshot_info *out, struct kc_error *e)
{
    const struct kc_storage *st = &kc_storage_posix;
    struct kc_whole *w;
    char folder[4096], note[sizeof out->reason] = "";
    struct kc_print notes = {.out = note, .room = sizeof note};
    int r = kc_snapshot_resolve(st, path, folder, e);
    if (r == 0)
        r = kc_whole_open(st, folder, &w, e);
    if (r < 0)
        return r;
    r = verify(st, w, how, &notes, e);
    if (r == 0) {
        kc_snapshot_describe(w, out);
        memcpy(out->reason, note, sizeof note);
    }
    kc_whole_free(st, w);
    return r;
}

int kc_snapshot_verify(const char *path, bool deep, struct kc_snapshot_info *out, struct kc_error *e)
{
    return open_and_verify(path, deep ? DEEP : STORED, out, e);
}

int kc_snapshot_verify_values(const char *path, struct kc_snapshot_info *out, struct kc_error *e)
{
    return open_and_verify(path, VALUES, out, e);
}
