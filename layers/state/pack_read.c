/* pack_read.c - opens packs and reads them. Trusts no byte before its digest was compared. */
#include "pack.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Damage is -EBADMSG; what the file system said of its own stays. */
int kc_pack_read_fail(const struct kc_storage *st, struct kc_error *e, int code, const char *path)
{
    if (code == -ENOENT)
        return kc_fail(e, -EBADMSG, "%s is missing", path);
    if (code == -ENODATA)
        return kc_fail(e, -EBADMSG, "%s ends before its data does", path);
    return kc_storage_fail(st, e, code, "read", path, 0);
}

/* Is what the entry says of codec, bytes and origin possible? Origins are older, so a chain of them ends. */
static bool is_possible(const struct kc_pack *p, const struct kc_extent *x)
{
    static const struct kc_digest none;
    const uint64_t values = kc_extent_bytes(x);
    const bool leans = kc_extent_leans(x);
    if (x->zero || x->depth > KC_DEPTH_MAX || (leans && (x->origin == 0 || x->origin >= p->head.version)))
        return false;
    if (!leans && (x->origin || x->depth || !kc_digest_equal(x->base, none)))
        return false;
    switch (x->codec) {
    case KC_CODEC_RAW:
        return x->stored == values && kc_digest_equal(x->stored_digest, x->digest);
    case KC_CODEC_CONSTANT:
        return x->stored == sizeof(float);
    case KC_CODEC_BASE:
        return x->stored == 0 && kc_digest_equal(x->base, x->digest) && kc_digest_equal(x->stored_digest, none);
    case KC_CODEC_PLANES:
        return x->stored > 0 && x->stored < values;
    case KC_CODEC_XOR:
    case KC_CODEC_DIFFERENCE:
        return x->stored > 0 && x->stored < values && x->depth > 0;
    default:
        return false;
    }
}

static int check_extents(struct kc_pack *p, struct kc_error *e)
{
    uint64_t at = KC_PACK_ALIGN;
    for (uint32_t i = 0; i < p->count; i++) {
        const struct kc_extent *x = &p->extent[i];
        if (x->lo >= x->hi || x->hi - x->lo > KC_PACK_GRID || !is_possible(p, x))
            return kc_fail(e, -EBADMSG, "%s: the entry of extent %u says what cannot be", p->path, i);
        const uint64_t place = kc_extent_place(p->format, at, x->stored);
        if (x->offset != place)
            return kc_fail(e, -EBADMSG, "%s: extent %u lies at %llu, not at %llu", p->path, i,
                           (unsigned long long)x->offset, (unsigned long long)place);
        at = x->offset + x->stored;
    }
    return 0;
}

/* An extent of format 1, of a whole tensor, and of format 2. */
struct extent_1 {
    uint32_t tensor, kind;
    uint64_t lo, hi, offset;
    struct kc_digest digest;
};
_Static_assert(sizeof(struct extent_1) == 48, "format 1 is as it was");
#define EXTENT_2 128 /* bytes: of format 3 what stands before the codec */
_Static_assert(offsetof(struct kc_extent, codec) == EXTENT_2, "format 2 is as it was");

static size_t entry_bytes(const struct kc_pack *p)
{
    return p->format == 1 ? sizeof(struct extent_1) : p->format == 2 ? EXTENT_2 : sizeof(struct kc_extent);
}

/* Entry i of the index as it stands in the file. */
static void take_entry(const struct kc_pack *p, const void *index, uint32_t i, struct kc_extent *x)
{
    const struct extent_1 *old = index;
    if (p->format == 1)
        *x = (struct kc_extent){.tensor = old[i].tensor, .kind = old[i].kind, .lo = old[i].lo, .hi = old[i].hi,
            .offset = old[i].offset, .digest = old[i].digest};
    else
        memcpy(x, (const char *)index + i * entry_bytes(p), entry_bytes(p));
    if (p->format < 3) {
        x->stored = kc_extent_bytes(x);
        x->stored_digest = x->digest;
    }
}

static int read_extents(const struct kc_storage *st, struct kc_pack *p, const struct kc_pack_footer *f, struct kc_error *e)
{
    const size_t bytes = p->count * entry_bytes(p);
    void *index = malloc(bytes + 1);
    p->extent = calloc(p->count + 1u, sizeof *p->extent);
    int r = index && p->extent ? 0 : kc_fail(e, -ENOMEM, "no memory for the index of %s", p->path);
    if (r == 0 && (r = kc_storage_read_all(st, p->fd, index, bytes, f->index_offset)) < 0)
        r = kc_pack_read_fail(st, e, r, p->path);
    if (r == 0)
        p->index = kc_digest(index, bytes);
    for (uint32_t i = 0; i < p->count && r == 0; i++)
        take_entry(p, index, i, &p->extent[i]);
    free(index);
    if (r == 0 && !kc_digest_equal(p->index, f->index))
        r = kc_fail(e, -EBADMSG, "%s: the index is damaged", p->path);
    if (r == 0)
        r = check_extents(p, e);
    if (r == 0 && kc_pack_index_offset(p) != f->index_offset)
        r = kc_fail(e, -EBADMSG, "%s: the index is not where the extents end", p->path);
    return r;
}

/* Superblock, footer, index → p. */
static int read_index(const struct kc_storage *st, struct kc_pack *p, struct kc_error *e)
{
    unsigned char block[KC_PACK_ALIGN], expected[KC_PACK_ALIGN];
    struct kc_pack_footer f;
    int r = st->size(st->self, p->fd, &p->bytes);
    if (r == 0 && p->bytes < sizeof block + sizeof f)
        return kc_fail(e, -EBADMSG, "%s has %llu bytes, too short for a pack", p->path, (unsigned long long)p->bytes);
    if (r == 0)
        r = kc_storage_read_all(st, p->fd, block, sizeof block, 0);
    if (r == 0)
        r = kc_storage_read_all(st, p->fd, &f, sizeof f, p->bytes - sizeof f);
    if (r < 0)
        return kc_pack_read_fail(st, e, r, p->path);
    kc_pack_super(expected, &p->head, p->format);
    if (memcmp(block, expected, sizeof block) != 0)
        return kc_fail(e, -EBADMSG, "%s: the superblock is damaged or of another snapshot or rank", p->path);
    if (memcmp(f.magic, kc_pack_footer_magic, sizeof f.magic) != 0 || f.bytes != p->bytes)
        return kc_fail(e, -EBADMSG, "%s: no footer at its end (%llu bytes): cut short or bytes behind it", p->path,
                       (unsigned long long)p->bytes);
    if (f.count > UINT32_MAX || f.index_offset > p->bytes || f.count * entry_bytes(p) > p->bytes ||
        f.index_offset + f.count * entry_bytes(p) + sizeof f != p->bytes)
        return kc_fail(e, -EBADMSG, "%s: the footer does not fit the file", p->path);
    p->count = (uint32_t)f.count;
    return read_extents(st, p, &f, e);
}

int kc_pack_open(const struct kc_storage *st, const char *path, const struct kc_pack_head *head, uint32_t format,
                 struct kc_pack *out, struct kc_error *e)
{
    struct kc_pack p = {.head = *head, .format = format};
    snprintf(p.path, sizeof p.path, "%s", path);
    p.fd = st->open(st->self, path, O_RDONLY);
    if (p.fd < 0)
        return kc_pack_read_fail(st, e, p.fd, path);
    int r = read_index(st, &p, e);
    if (r < 0)
        kc_pack_free(st, &p);
    else
        *out = p;
    return r;
}

int kc_pack_fetch(const struct kc_storage *st, const struct kc_pack *p, void *out, size_t bytes, uint64_t at, struct kc_error *e)
{
    const int own = p->fd < 0 ? st->open(st->self, p->path, O_RDONLY) : -1, fd = p->fd < 0 ? own : p->fd;
    int r = fd < 0 ? fd : kc_storage_read_all(st, fd, out, bytes, at);
    if (own >= 0)
        st->close(st->self, own);
    return r < 0 ? kc_pack_read_fail(st, e, r, p->path) : 0;
}

static int damaged(const struct kc_pack *p, uint32_t i, struct kc_error *e)
{
    const struct kc_extent *x = &p->extent[i];
    return kc_fail(e, -EBADMSG, "%s: the extent at byte %llu is damaged (elements %llu to %llu of the %s of tensor %u)", p->path,
                   (unsigned long long)x->offset, (unsigned long long)x->lo, (unsigned long long)x->hi,
                   x->kind < KC_KIND_COUNT ? kc_kind_name[x->kind] : "?", x->tensor);
}

int kc_pack_check_stored(const struct kc_pack *p, uint32_t i, const void *stored, struct kc_error *e)
{
    const struct kc_extent *x = &p->extent[i];
    return kc_digest_equal(kc_digest(stored, x->stored), x->stored_digest) ? 0 : damaged(p, i, e);
}

int kc_pack_check_values(const struct kc_pack *p, uint32_t i, const float *values, struct kc_error *e)
{
    const struct kc_extent *x = &p->extent[i];
    return kc_digest_equal(kc_digest(values, kc_extent_bytes(x)), x->digest) ? 0 : damaged(p, i, e);
}

int kc_pack_check_gap(const struct kc_storage *st, const struct kc_pack *p, uint32_t i, struct kc_error *e)
{
    unsigned char gap[KC_PACK_ALIGN];
    const uint64_t from = p->extent[i].offset + p->extent[i].stored,
                   to = i + 1 < p->count ? p->extent[i + 1].offset : kc_pack_index_offset(p);
    int r = to > from ? kc_pack_fetch(st, p, gap, (size_t)(to - from), from, e) : 0;
    for (size_t k = 0; r == 0 && k < to - from; k++)
        if (gap[k])
            return kc_fail(e, -EBADMSG, "%s: byte %llu, between extents, is not zero", p->path,
                           (unsigned long long)(from + k));
    return r;
}
