/* copy.h - the state as it was at a mark, in memory: an object for each rank, and how all of them are read.
 *
 * The keeper makes a memfd for every rank and holds it until the job ends, so copies outlive the ranks. An object is
 *
 *   header (4 KiB) | slots, each: room for a pack | room for a manifest (in the object of position 0 alone)
 *
 * A slot has room for one copy. Its pack is what pack.h describes, every extent raw, so all that reads versions on disk
 * reads copies too, through kc_copies_storage(). A copy is whole if kc_whole_open() says so, and never because of a word in
 * a header. copy.c is the rank's side, copy_read.c everybody's, copy_save.c writes one out. */
#ifndef KC_STATE_COPY_H
#define KC_STATE_COPY_H

#include "catalog.h"
#include "state.h"

#define KC_COPY_LAYOUT 1 /* raise it when anything below changes */
#define KC_COPY_MAGIC "KCCOPY\n"
#define KC_COPY_HEAD 4096
#define KC_COPY_SLOTS KC_COPIES_MAX
#define KC_COPY_DIRECTORY "memory:" /* paths of the storage: memory:/v00000005/rank-0.pack */

/* What an object must be like; a restart with the same plan has the same. */
struct kc_copy_shape {
    uint32_t rank, ranks, slots, unused;
    uint64_t pack_bytes, manifest_bytes; /* room in a slot, multiples of 4 KiB; manifest_bytes 0 but at position 0 */
    struct kc_digest plan;               /* of the shard plan */
};

/* ---- the format ---- */
struct kc_copy_slot {
    _Atomic uint64_t generation;     /* + 1 whenever a copy begins: what a reader holds is another's then */
    _Atomic uint64_t version;        /* 0: none. Set when a copy begins, before any byte of it. */
    _Atomic uint64_t step;
    _Atomic uint64_t pack_bytes;     /* 0 until the pack is complete: written last, release */
    _Atomic uint64_t manifest_bytes; /* the same of the manifest */
    _Atomic uint64_t broken;         /* bytes of `why`; > 0: found damaged, never to be read again. Position 0's alone. */
    char why[464];
};
struct kc_copy_head {
    char magic[8];
    uint64_t layout;
    struct kc_copy_shape shape;
    struct kc_digest digest;         /* of what stands before it */
    char unused[512 - 80];
    struct kc_copy_slot slot[KC_COPY_SLOTS];
    char rest[KC_COPY_HEAD - 512 * (1 + KC_COPY_SLOTS)];
};
_Static_assert(sizeof(struct kc_copy_slot) == 512 && sizeof(struct kc_copy_head) == KC_COPY_HEAD, "raise KC_COPY_LAYOUT");
/* Bytes of the whole object; 0: no such object can be. */
uint64_t kc_copy_bytes(const struct kc_copy_shape *s);
/* Where the pack of a slot begins; its manifest follows pack_bytes later. */
uint64_t kc_copy_at(const struct kc_copy_shape *s, uint32_t slot);

/* ---- the rank's own object ---- */
struct kc_copy;
/* What the object of a rank must be like, by the plan that the map is of. -ENOMEM. */
int kc_copy_shape_of(const struct kc_map *m, const struct kc_shard_plan *shard, uint32_t rank, uint32_t slots,
                     struct kc_copy_shape *out);
/* Make `fd` an object of this shape and map it. One that is so already keeps its copies; any other is cleared. `room`:
 * bytes of memory that are free (0: unknown). -ENOMEM it needs more than that beyond what it has; -EINVAL the shape; -errno.
 * The descriptor stays the caller's. */
int kc_copy_make(int fd, const struct kc_copy_shape *shape, uint64_t room, struct kc_copy **out, struct kc_error *e);
void kc_copy_free(struct kc_copy *c); /* NULL is fine; the copies stay */
/* Have every page, so that copying meets none that is new: takes as long as a copy. From any thread, at any time. -ENOMEM. */
int kc_copy_touch(struct kc_copy *c);
/* Begin a copy: the slot that does not hold version `keep` (the newest that is known whole; 0: none), else the older one.
 * What it held is no copy any more when this returns, on any rank that has called it or not. Returns the slot. */
uint32_t kc_copy_begin(struct kc_copy *c, uint64_t version, uint64_t step, uint64_t keep);
/* Memory of the slot's pack: shape.pack_bytes, on a border of 4 KiB. */
unsigned char *kc_copy_pack(struct kc_copy *c, uint32_t slot);
/* The pack is complete, index and footer too: others may read it. */
void kc_copy_seal(struct kc_copy *c, uint32_t slot, uint64_t bytes);
/* The slot in which that version's pack is complete; KC_COPY_SLOTS: none. */
uint32_t kc_copy_find(const struct kc_copy *c, uint64_t version);
/* The newest version that any slot has or had begun; whoever names a new version goes beyond it. */
uint64_t kc_copy_highest(const struct kc_copy *c);

/* ---- the objects of a job, read ---- */
/* Another plan's are as good as none. `plan` NULL: any, but the same in all. Otherwise as kc_copies_open(). */
int kc_copies_open_plan(const int *fds, uint32_t ranks, const struct kc_digest *plan, struct kc_copies **out,
                        struct kc_error *e);
/* Read-only, but that kc_catalog_mark_broken() works where the descriptors can be written. -ESTALE: the slot was taken for a
 * newer copy while it was read. From any thread; lives as long as the copies. */
const struct kc_storage *kc_copies_storage(const struct kc_copies *c);
/* Versions that have a manifest, newest first; how many. They may not be whole. */
uint32_t kc_copies_versions(const struct kc_copies *c, uint64_t version[KC_COPY_SLOTS]);
/* The newest whole copy (version 0), or that one; kc_whole_free() with kc_copies_storage(). `why`, of `room` bytes, takes a
 * line about every one that was passed over. -ENOENT none is whole; -ENOMEM, -EIO: it is not known. */
int kc_copies_whole(const struct kc_copies *c, uint64_t version, char *why, size_t room, struct kc_whole **out,
                    struct kc_error *e);
/* Position 0, when the packs of all ranks are complete: proves them, fills the manifest's pack rows and puts it into the slot
 * of m->version. From here on the copy is whole. -EBADMSG, -ENOSPC the manifest is too long, -ENOMEM. */
int kc_copies_commit(const struct kc_copies *c, struct kc_copy *own, struct kc_manifest *m, struct kc_error *e);
/* Values of an extent where they lie, for who writes a copy out; valid as long as the copies. Not compared with anything.
 * -EBADMSG it lies outside; -EPERM the object could shrink under us. */
int kc_copies_values(struct kc_copies *c, uint64_t version, uint32_t rank, const struct kc_extent *x, const float **values,
                     struct kc_error *e);

#endif
