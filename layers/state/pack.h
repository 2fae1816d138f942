/* pack.h - a file of extents: what one rank adds to a snapshot (kc-snapshot(5) has the bytes).
 *
 *   superblock (4 KiB) | extents, each 4 KiB aligned, at most 4 MiB | index | footer
 *
 * Extents are named in global coordinates: tensor, kind, a box of the tensor, a flat range inside the box. Never a bucket,
 * never padding of a layout. pack.c writes, pack_read.c reads. */
#ifndef KC_STATE_PACK_H
#define KC_STATE_PACK_H

#include "map.h"
#include "storage.h"

#include "base/digest.h"

#include <assert.h>

#define KC_PACK_ALIGN 4096
#define KC_PACK_GRID (UINT64_C(1) << 20) /* elements: extents of a box end at its multiples */

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "packs are little-endian and written as they lie in memory");

struct kc_extent {
    uint32_t tensor;        /* number in the manifest's table */
    uint32_t kind;          /* enum kc_kind */
    struct kc_box box;      /* of the tensor, by its dimensions as they are cut; the rest is 0 */
    uint64_t lo, hi;        /* elements of the box, flat, row-major */
    uint64_t offset;        /* bytes in the file */
    struct kc_digest digest;
};
_Static_assert(sizeof(struct kc_extent) == 128, "the index is a format: bump KC_SNAPSHOT_FORMAT and kc-snapshot(5)");

/* Formats of packs, and of the manifests that name them. In the first one every box is a whole tensor and is not written. */
#define KC_SNAPSHOT_FORMAT 2
#define KC_SNAPSHOT_OLDEST 1

/* Which pack this is; stands in the superblock. */
struct kc_pack_head {
    uint32_t rank, ranks;
    uint64_t version, step;
};

struct kc_pack {
    int fd;                 /* -1: closed */
    char path[4096];
    struct kc_pack_head head;
    uint32_t format;
    uint64_t bytes;         /* of the file */
    struct kc_digest index; /* of the index: it stands for the whole pack, as the index has a digest of every extent */
    struct kc_extent *extent;
    uint32_t count;
};

static inline size_t kc_extent_bytes(const struct kc_extent *x)
{
    return (size_t)(x->hi - x->lo) * sizeof(float);
}

/* The extents that the map's rank writes, placed, digests still zero; out->bytes is the file's final length. -ENOMEM. */
int kc_pack_plan(const struct kc_map *m, struct kc_pack *out);
/* Close and free. */
void kc_pack_free(const struct kc_storage *st, struct kc_pack *p);

/* Where the values of an extent lie; < 0 (with e) stops the writing. */
typedef int kc_pack_source(void *arg, const struct kc_extent *x, const float **values, struct kc_error *e);
/* Write a planned pack to a new file: reserve, write, hash from memory, fsync once, read back and compare. Fills
 * digests. On failure the file is closed and removed, and is not tried again: what a failed write or fsync left is
 * not to be trusted. */
int kc_pack_write(const struct kc_storage *st, const char *path, const struct kc_pack_head *head, struct kc_pack *p,
                  kc_pack_source *source, void *arg, struct kc_error *e);

/* Open for reading: superblock, footer and index checked; boxes are not, and of format 1 they are left 0. -EBADMSG damaged
 * or missing (e says what), else -errno. */
int kc_pack_open(const struct kc_storage *st, const char *path, const struct kc_pack_head *head, uint32_t format,
                 struct kc_pack *out, struct kc_error *e);
/* Read extent i into `buffer` (KC_PACK_GRID floats) and compare its digest. -EBADMSG, -EIO. */
int kc_pack_read(const struct kc_storage *st, const struct kc_pack *p, uint32_t i, float *buffer, struct kc_error *e);
/* What lies between extent i and the next thing is zero. -EBADMSG. */
int kc_pack_check_gap(const struct kc_storage *st, const struct kc_pack *p, uint32_t i, struct kc_error *e);

/* ---- what the two share ---- */
#define KC_PACK_FOOTER 48 /* bytes */
struct kc_pack_footer {
    uint64_t index_offset, count, bytes; /* bytes: of the whole file */
    struct kc_digest index;
    char magic[8];
};
_Static_assert(sizeof(struct kc_pack_footer) == KC_PACK_FOOTER, "format: bump KC_SNAPSHOT_FORMAT");
extern const char kc_pack_footer_magic[8];
/* The superblock of that pack. */
void kc_pack_super(unsigned char block[KC_PACK_ALIGN], const struct kc_pack_head *head, uint32_t format);
/* Where what follows extent x begins; where the index begins. */
uint64_t kc_extent_next(const struct kc_extent *x);
uint64_t kc_pack_index_offset(const struct kc_pack *p);

#endif
