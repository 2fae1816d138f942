/* pack.h - a file of extents: what one rank adds to a snapshot (kc-snapshot(5) has the bytes).
 *
 *   superblock (4 KiB) | extents, at most 4 MiB of values each | index | footer
 *
 * Extents are named in global coordinates: tensor, kind, a box of the tensor, a flat range inside the box. Never a bucket,
 * never padding of a layout. What is stored of one is its values, coded (codec.h) or not; or nothing, if an earlier version
 * has the same values; or their difference from an earlier version's. pack.c has the plan and what stands around extents,
 * pack_write.c writes, pack_read.c reads what is stored; values come from unpack.h, which knows the earlier versions. */
#ifndef KC_STATE_PACK_H
#define KC_STATE_PACK_H

#include "codec.h"
#include "map.h"
#include "storage.h"

#include "base/digest.h"

#include <assert.h>

#define KC_PACK_ALIGN 4096
#define KC_PACK_GRID (UINT64_C(1) << 20) /* elements: extents of a box end at its multiples */
#define KC_PACK_SMALL 64                 /* where extents that store less than KC_PACK_ALIGN begin: at its multiples */
#define KC_DEPTH_MAX 8                   /* differences that stand on each other */

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "packs are little-endian and written as they lie in memory");

struct kc_extent {
    uint32_t tensor;        /* number in the manifest's table */
    uint32_t kind;          /* enum kc_kind */
    struct kc_box box;      /* of the tensor, by its dimensions as they are cut; the rest is 0 */
    uint64_t lo, hi;        /* elements of the box, flat, row-major */
    uint64_t offset;        /* bytes in the file, of what is stored */
    struct kc_digest digest; /* of the values */
    uint32_t codec;         /* enum kc_codec_id */
    uint32_t depth;         /* differences to undo, until the values are there: at most KC_DEPTH_MAX */
    uint64_t stored;        /* bytes; 0 if the values are those of `origin` */
    struct kc_digest stored_digest; /* of these bytes */
    uint64_t origin;        /* an earlier version, whose extent of the same number, in the pack of the same rank, of the same
                               place, stores something and has the base's values; 0 none is needed */
    struct kc_digest base;  /* of the base's values; 0 without */
    uint64_t zero;
};
_Static_assert(sizeof(struct kc_extent) == 192, "the index is a format: bump KC_SNAPSHOT_FORMAT and kc-snapshot(5)");

/* Formats of packs, and of the manifests that name them. In the first one every box is a whole tensor and is not written; in
 * the first two everything is stored as it is. */
#define KC_SNAPSHOT_FORMAT 3
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
    bool digested;          /* planned, and the extents' digests are known */
    struct kc_meter *meter; /* kc_pack_write() tells it of each extent that is written, and again when it is read back; NULL */
};

static inline size_t kc_extent_bytes(const struct kc_extent *x)
{
    return (size_t)(x->hi - x->lo) * sizeof(float);
}

/* The same tensor's number, kind, box and range. */
bool kc_extent_same_place(const struct kc_extent *a, const struct kc_extent *b);
/* An earlier version is needed to read it. */
static inline bool kc_extent_leans(const struct kc_extent *x)
{
    return x->codec == KC_CODEC_BASE || x->codec == KC_CODEC_XOR || x->codec == KC_CODEC_DIFFERENCE;
}

/* The extents that the map's rank writes, all stored as they are, placed, digests still zero; out->bytes is the file's
 * length then. -ENOMEM. */
int kc_pack_plan(const struct kc_map *m, struct kc_pack *out);
/* Bytes of the values of all extents. */
uint64_t kc_pack_values(const struct kc_pack *p);
/* Close and free. */
void kc_pack_free(const struct kc_storage *st, struct kc_pack *p);
/* A planned pack in memory, of p->bytes bytes: the values lie at the extents' offsets, their digests are in p, all between is
 * zero. Puts in superblock, index and footer, so that the image is a file that kc_pack_open() takes. */
void kc_pack_seal(struct kc_pack *p, const struct kc_pack_head *head, void *image);

/* Where the values of an extent lie; < 0 (with e) stops the writing. They stay until kc_pack_write() returns. */
typedef int kc_pack_source(void *arg, const struct kc_extent *x, const float **values, struct kc_error *e);
/* The version before, as far as it is known. */
struct kc_increment {
    uint64_t version;
    const struct kc_extent *extent; /* its index: one of another place is no base */
    uint32_t count;
    const unsigned char *image; /* its values, as kc_pack_plan() places them; NULL: only their digests are known. They are
                                   compared with these before anything is made to lean on them */
    bool rebase;                /* no differences, nor references to any: what is written leans on nothing that leans */
};
struct kc_coder; /* coder.h */
/* Write a planned pack to a new file: reserve, write, hash from memory, fsync once, read back, decode and compare. Fills in
 * everything of the extents, and p->bytes. `before` NULL: all values are written. `coder` NULL: as they are. On failure the
 * file is closed and removed, and is not tried again: what a failed write or fsync left is not to be trusted. */
int kc_pack_write(const struct kc_storage *st, const char *path, const struct kc_pack_head *head, struct kc_pack *p,
                  kc_pack_source *source, void *arg, const struct kc_increment *before, struct kc_coder *coder,
                  struct kc_error *e);

/* Open for reading: superblock, footer and index checked; boxes are not, and of format 1 they are left 0. -EBADMSG damaged
 * or missing (e says what), else -errno. */
int kc_pack_open(const struct kc_storage *st, const char *path, const struct kc_pack_head *head, uint32_t format,
                 struct kc_pack *out, struct kc_error *e);
/* What is read of a pack, damage or not: -EBADMSG where the file ends or is not there; else what the file system says. */
int kc_pack_read_fail(const struct kc_storage *st, struct kc_error *e, int code, const char *path);
/* `bytes` from `at` on; opens the file for it where it is closed. */
int kc_pack_fetch(const struct kc_storage *st, const struct kc_pack *p, void *out, size_t bytes, uint64_t at, struct kc_error *e);
/* What is stored of extent i, which lies there: is it what was written? And are these its values? -EBADMSG. */
int kc_pack_check_stored(const struct kc_pack *p, uint32_t i, const void *stored, struct kc_error *e);
int kc_pack_check_values(const struct kc_pack *p, uint32_t i, const float *values, struct kc_error *e);
/* What lies between extent i and the next thing is zero. -EBADMSG. */
int kc_pack_check_gap(const struct kc_storage *st, const struct kc_pack *p, uint32_t i, struct kc_error *e);

/* ---- what the halves share ---- */
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
/* Where an extent that stores so many bytes begins, `at` being the end of what stands before it. */
uint64_t kc_extent_place(uint32_t format, uint64_t at, uint64_t stored);
/* Where the index begins; the end of the last extent. */
uint64_t kc_pack_index_offset(const struct kc_pack *p);
/* Index and footer of a pack whose extents are complete; p->bytes and p->index are set. */
void kc_pack_finish(struct kc_pack *p, struct kc_pack_footer *f);

#endif
