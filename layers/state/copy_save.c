/* copy_save.c - writes the newest whole copy in memory to disk when its ranks are gone: the commit of a snapshot, with the
 * copy as source. Every extent is compared before it is written, and read back after. */
#include "state_impl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct save {
    const struct kc_storage *st; /* of the disk */
    const char *directory;
    struct kc_copies *copies;
    struct kc_whole *whole;      /* the copy */
    uint32_t rank;               /* whose pack is being written */
    bool damaged;                /* the copy is: not the disk */
    bool taken;                  /* on disk a damaged version has the copy's number */
};

/* Is there something newer than the copy on disk, or that copy itself? Age is the version's number. *step: of that one; *taken: the
 * copy's number is that of a version which is damaged. What could not be opened for now may be whole: nothing is written then. */
static int compare_disk(struct save *s, bool *newer, uint64_t *step, struct kc_error *e)
{
    const uint64_t version = s->whole->manifest.version;
    struct kc_catalog c = {0};
    int r = kc_catalog_scan(s->st, s->directory, &c, e);
    *newer = s->taken = false;
    for (uint32_t i = r == 0 ? c.count : 0; i-- > 0 && c.version[i] >= version && !*newer && r == 0;) {
        char path[4096];
        struct kc_whole *w;
        kc_catalog_path(s->directory, c.version[i], path);
        s->taken = c.version[i] == version;
        r = kc_whole_open(s->st, path, &w, e);
        if (r == 0) {
            *newer = true;
            *step = w->manifest.progress.step;
            kc_whole_free(s->st, w);
        }
        r = r == -EBADMSG ? 0 : r;
    }
    kc_catalog_free(&c);
    return r;
}

static int source(void *arg, const struct kc_extent *x, const float **values, struct kc_error *e)
{
    struct save *s = arg;
    int r = kc_copies_values(s->copies, s->whole->manifest.version, s->rank, x, values, e);
    if (r == 0 && !kc_digest_equal(kc_digest(*values, kc_extent_bytes(x)), x->digest))
        r = kc_fail(e, -EBADMSG, "%s: the extent at byte %llu is damaged", s->whole->pack[s->rank].path,
                    (unsigned long long)x->offset);
    s->damaged |= r == -EBADMSG;
    return r;
}

static int write_pack(struct save *s, const char *tmp, struct kc_error *e)
{
    const struct kc_pack *from = &s->whole->pack[s->rank];
    char path[4096 + 32];
    struct kc_pack p = {.fd = -1, .format = from->format, .bytes = from->bytes, .count = from->count, .digested = true};
    p.extent = malloc((from->count + 1u) * sizeof *p.extent);
    if (!p.extent)
        return kc_fail(e, -ENOMEM, "no memory to write %s", from->path);
    memcpy(p.extent, from->extent, from->count * sizeof *p.extent);
    kc_catalog_pack_path(tmp, s->rank, path, sizeof path);
    int r = kc_pack_write(s->st, path, &from->head, &p, source, s, NULL, NULL, e);
    kc_pack_free(s->st, &p);
    return r;
}

/* Under the lock. */
static int write_version(struct save *s, struct kc_error *e)
{
    char tmp[4096];
    struct kc_manifest *m = &s->whole->manifest;
    kc_catalog_tmp_path(s->directory, m->version, tmp);
    int r = s->st->make_folder(s->st->self, tmp);
    if (r < 0)
        return kc_storage_fail(s->st, e, r, "make", tmp, KC_PACK_ALIGN);
    for (s->rank = 0; r == 0 && s->rank < m->packs; s->rank++)
        r = write_pack(s, tmp, e);
    if (r == 0) {
        struct kc_whole *w = kc_whole_of(m);
        r = w ? kc_commit_version(s->st, s->directory, w, s->taken, e) : kc_fail(e, -ENOMEM, "no memory for a manifest");
        if (w)
            s->whole->bytes = w->bytes;
        kc_whole_free_of(s->st, w, m);
    }
    if (r < 0)
        kc_storage_remove_tree(s->st, tmp);
    return r;
}

static int write_locked(struct save *s, struct kc_error *e)
{
    int r = kc_catalog_make(s->st, s->directory, e);
    if (r < 0)
        return r;
    const int lock = kc_catalog_lock(s->st, s->directory);
    if (lock == -EWOULDBLOCK)
        return kc_fail(e, lock, "somebody else writes snapshots to %s", s->directory);
    if (lock < 0)
        return kc_storage_fail(s->st, e, lock, "lock", s->directory, KC_PACK_ALIGN);
    kc_catalog_clean(s->st, s->directory);
    r = write_version(s, e);
    if (r == 0 && s->taken)
        kc_catalog_clean(s->st, s->directory); /* of what was in the way */
    s->st->close(s->st->self, lock);
    return r;
}

/* What is to be written, if anything; then written. */
static int save(struct save *s, bool look, struct kc_snapshot_info *out, struct kc_error *e)
{
    const struct kc_storage *memory = kc_copies_storage(s->copies);
    bool newer;
    uint64_t step;
    int r = kc_copies_whole(s->copies, 0, NULL, 0, &s->whole, e);
    if (r < 0)
        return r;
    const struct kc_manifest *m = &s->whole->manifest;
    r = compare_disk(s, &newer, &step, e);
    if (r == 0 && newer)
        r = kc_fail(e, -ENOENT, "the newest snapshot on disk is of step %llu, the copy in memory of step %llu",
                    (unsigned long long)step, (unsigned long long)m->progress.step);
    if (r == 0 && !look)
        r = write_locked(s, e);
    if (s->damaged)
        kc_catalog_mark_broken(memory, s->whole->path, e->text);
    if (r == 0) {
        kc_snapshot_describe(s->whole, out);
        kc_catalog_path(s->directory, m->version, out->path);
    }
    kc_whole_free(memory, s->whole);
    s->whole = NULL;
    return r;
}

int kc_copy_save(const int *fds, uint32_t ranks, const char *directory, const struct kc_storage *storage, bool look,
                 struct kc_snapshot_info *out, struct kc_error *e)
{
    struct save s = {.st = storage, .directory = directory};
    struct kc_disk *disk = NULL;
    int r = storage ? 0 : kc_disk_new(KC_DISK_ANY, &disk);
    if (r < 0)
        return kc_fail(e, r, "no memory to write the copy in memory");
    if (disk)
        s.st = kc_disk_storage(disk);
    r = kc_copies_open(fds, ranks, &s.copies, e);
    for (int i = 0; r == 0 && i <= KC_COPY_SLOTS; i++) {
        s.damaged = false;
        r = save(&s, look, out, e);
        if (!s.damaged)
            break;
        r = 0; /* marked: the next one */
    }
    kc_copies_free(s.copies);
    kc_disk_free(disk);
    return r;
}
