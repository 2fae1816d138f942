/* pack.c - writes and reads packs. Never retries a file whose write or fsync failed. */
#include "pack.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct super {
    char magic[8]; /* "KCPACK1\n" */
    struct kc_pack_head head;
    struct kc_digest digest; /* of what stands before it */
};

struct footer {
    uint64_t index_offset, count, bytes; /* bytes: of the whole file */
    struct kc_digest index;
    char magic[8]; /* "KCPACKE\n" */
};
_Static_assert(sizeof(struct super) == 48 && sizeof(struct footer) == 48, "format: bump KC_SNAPSHOT_FORMAT");

static const char super_magic[8] = {'K', 'C', 'P', 'A', 'C', 'K', '1', '\n'};
static const char footer_magic[8] = {'K', 'C', 'P', 'A', 'C', 'K', 'E', '\n'};

static uint64_t align_up(uint64_t at)
{
    return (at + KC_PACK_ALIGN - 1) / KC_PACK_ALIGN * KC_PACK_ALIGN;
}

/* Where extent i ends and the next thing begins. */
static uint64_t extent_next(const struct kc_extent *x)
{
    return align_up(x->offset + kc_extent_bytes(x));
}

static uint64_t index_offset(const struct kc_pack *p)
{
    return p->count ? extent_next(&p->extent[p->count - 1]) : KC_PACK_ALIGN;
}

static void super_fill(unsigned char block[KC_PACK_ALIGN], const struct kc_pack_head *head)
{
    struct super s = {.head = *head};
    memset(block, 0, KC_PACK_ALIGN);
    memcpy(s.magic, super_magic, sizeof s.magic);
    s.digest = kc_digest(&s, offsetof(struct super, digest));
    memcpy(block, &s, sizeof s);
}

int kc_pack_plan(const struct kc_map *m, uint32_t owner, struct kc_pack *out)
{
    struct kc_pack p = {.fd = -1};
    for (int pass = 0; pass < 2; pass++) { /* count, then fill */
        uint64_t at = KC_PACK_ALIGN;
        uint32_t n = 0;
        for (uint32_t k = 0; k < KC_KIND_COUNT; k++)
            for (uint32_t t = 0; t < m->tensors; t++) {
                uint64_t lo, hi;
                kc_map_owned(m, &m->tensor[t], owner, &lo, &hi);
                for (; lo < hi; n++) {
                    uint64_t cut = (lo / KC_PACK_GRID + 1) * KC_PACK_GRID, to = cut < hi ? cut : hi;
                    struct kc_extent x = {.tensor = t, .kind = k, .lo = lo, .hi = to, .offset = at};
                    if (pass)
                        p.extent[n] = x;
                    at = extent_next(&x);
                    lo = to;
                }
            }
        p.count = n;
        p.bytes = at + n * sizeof(struct kc_extent) + sizeof(struct footer);
        if (!pass && !(p.extent = calloc(n + 1, sizeof *p.extent)))
            return -ENOMEM;
    }
    *out = p;
    return 0;
}

void kc_pack_free(const struct kc_storage *st, struct kc_pack *p)
{
    if (p->fd >= 0)
        st->close(st->self, p->fd);
    free(p->extent);
    *p = (struct kc_pack){.fd = -1};
}

static int reserve(const struct kc_storage *st, struct kc_pack *p, struct kc_error *e)
{
    uint64_t room;
    char folder[sizeof p->path];
    int r = st->reserve(st->self, p->fd, p->bytes);
    if (r != -EOPNOTSUPP && r != -ENOSYS)
        return r < 0 ? kc_storage_fail(st, e, r, "reserve", p->path, p->bytes) : 0;
    snprintf(folder, sizeof folder, "%s", p->path); /* a file system without reservation: ask, and write */
    *strrchr(folder, '/') = 0;
    if (st->free_bytes(st->self, folder, &room) == 0 && room < p->bytes)
        return kc_storage_fail(st, e, -ENOSPC, "write", p->path, p->bytes);
    return 0;
}

static int write_body(const struct kc_storage *st, struct kc_pack *p, kc_pack_source *source, void *arg,
                      struct kc_error *e)
{
    unsigned char block[KC_PACK_ALIGN];
    super_fill(block, &p->head);
    int r = kc_storage_write_all(st, p->fd, block, sizeof block, 0);
    for (uint32_t i = 0; i < p->count && r == 0; i++) {
        const float *values;
        r = source(arg, &p->extent[i], &values, e);
        if (r < 0)
            return r;
        p->extent[i].digest = kc_digest(values, kc_extent_bytes(&p->extent[i]));
        r = kc_storage_write_all(st, p->fd, values, kc_extent_bytes(&p->extent[i]), p->extent[i].offset);
    }
    p->index = kc_digest(p->extent, p->count * sizeof *p->extent);
    struct footer f = {.index_offset = index_offset(p), .count = p->count, .bytes = p->bytes, .index = p->index};
    memcpy(f.magic, footer_magic, sizeof f.magic);
    if (r == 0)
        r = kc_storage_write_all(st, p->fd, p->extent, p->count * sizeof *p->extent, f.index_offset);
    if (r == 0)
        r = kc_storage_write_all(st, p->fd, &f, sizeof f, p->bytes - sizeof f);
    return r < 0 ? kc_storage_fail(st, e, r, "write", p->path, p->bytes) : 0;
}

static int read_index(const struct kc_storage *st, struct kc_pack *p, struct kc_error *e);

/* What the disk now has is what we meant: the index and every extent are read back. */
static int read_back(const struct kc_storage *st, const struct kc_pack *written, struct kc_error *e)
{
    struct kc_pack p = {.fd = written->fd, .head = written->head};
    float *buffer = malloc(KC_PACK_GRID * sizeof *buffer);
    memcpy(p.path, written->path, sizeof p.path);
    int r = buffer ? read_index(st, &p, e) : kc_fail(e, -ENOMEM, "no memory to read %s back", p.path);
    if (r == 0 && !kc_digest_equal(p.index, written->index))
        r = kc_fail(e, -EBADMSG, "%s: the index read back is not the one written", p.path);
    for (uint32_t i = 0; i < p.count && r == 0; i++)
        r = kc_pack_read(st, &p, i, buffer, e);
    free(buffer);
    free(p.extent);
    return r;
}

int kc_pack_write(const struct kc_storage *st, const char *path, const struct kc_pack_head *head, struct kc_pack *p,
                  kc_pack_source *source, void *arg, struct kc_error *e)
{
    snprintf(p->path, sizeof p->path, "%s", path);
    p->head = *head;
    p->fd = st->open(st->self, path, O_RDWR | O_CREAT | O_EXCL);
    if (p->fd < 0) {
        int code = p->fd;
        p->fd = -1;
        return kc_storage_fail(st, e, code, "create", path, p->bytes);
    }
    int r = reserve(st, p, e);
    if (r == 0)
        r = write_body(st, p, source, arg, e);
    if (r == 0 && (r = st->sync(st->self, p->fd)) < 0)
        r = kc_storage_fail(st, e, r, "fsync", path, p->bytes);
    if (r == 0) {
        st->forget(st->self, p->fd); /* so that the disk is read, not the cache; a hint that may fail */
        r = read_back(st, p, e);
    }
    int c = st->close(st->self, p->fd);
    p->fd = -1;
    if (r == 0 && c < 0)
        r = kc_storage_fail(st, e, c, "close", path, p->bytes);
    if (r < 0)
        st->remove(st->self, path); /* free the space now; a failure here is cleaned up with the folder */
    return r;
}

/* Damage is -EBADMSG; what the file system said of its own stays. */
static int read_fail(const struct kc_storage *st, struct kc_error *e, int r, const char *path)
{
    if (r == -ENOENT)
        return kc_fail(e, -EBADMSG, "%s is missing", path);
    if (r == -ENODATA)
        return kc_fail(e, -EBADMSG, "%s ends before its data does", path);
    return kc_storage_fail(st, e, r, "read", path, 0);
}

static int check_extents(struct kc_pack *p, struct kc_error *e)
{
    uint64_t at = KC_PACK_ALIGN;
    for (uint32_t i = 0; i < p->count; i++) {
        const struct kc_extent *x = &p->extent[i];
        if (x->offset != at || x->lo >= x->hi || x->hi - x->lo > KC_PACK_GRID)
            return kc_fail(e, -EBADMSG, "%s: extent %u lies at %llu, not at %llu, or has no right size", p->path, i,
                           (unsigned long long)x->offset, (unsigned long long)at);
        at = extent_next(x);
    }
    return 0;
}

/* Superblock, footer, index → p. */
static int read_index(const struct kc_storage *st, struct kc_pack *p, struct kc_error *e)
{
    unsigned char block[KC_PACK_ALIGN], expected[KC_PACK_ALIGN];
    struct footer f;
    int r = st->size(st->self, p->fd, &p->bytes);
    if (r == 0 && p->bytes < sizeof block + sizeof f)
        return kc_fail(e, -EBADMSG, "%s has %llu bytes, too short for a pack", p->path, (unsigned long long)p->bytes);
    if (r == 0)
        r = kc_storage_read_all(st, p->fd, block, sizeof block, 0);
    if (r == 0)
        r = kc_storage_read_all(st, p->fd, &f, sizeof f, p->bytes - sizeof f);
    if (r < 0)
        return read_fail(st, e, r, p->path);
    super_fill(expected, &p->head);
    if (memcmp(block, expected, sizeof block) != 0)
        return kc_fail(e, -EBADMSG, "%s: the superblock is damaged or of another snapshot or rank", p->path);
    if (memcmp(f.magic, footer_magic, sizeof f.magic) != 0 || f.bytes != p->bytes)
        return kc_fail(e, -EBADMSG, "%s: no footer at its end (%llu bytes): cut short or bytes behind it", p->path,
                       (unsigned long long)p->bytes);
    if (f.count > UINT32_MAX || f.index_offset > p->bytes || f.count * sizeof *p->extent > p->bytes ||
        f.index_offset + f.count * sizeof *p->extent + sizeof f != p->bytes)
        return kc_fail(e, -EBADMSG, "%s: the footer does not fit the file", p->path);
    p->count = (uint32_t)f.count;
    p->extent = calloc(p->count + 1u, sizeof *p->extent);
    if (!p->extent)
        return kc_fail(e, -ENOMEM, "no memory for the index of %s", p->path);
    r = kc_storage_read_all(st, p->fd, p->extent, p->count * sizeof *p->extent, f.index_offset);
    if (r < 0)
        return read_fail(st, e, r, p->path);
    p->index = kc_digest(p->extent, p->count * sizeof *p->extent);
    if (!kc_digest_equal(p->index, f.index))
        return kc_fail(e, -EBADMSG, "%s: the index is damaged", p->path);
    r = check_extents(p, e);
    if (r == 0 && index_offset(p) != f.index_offset)
        r = kc_fail(e, -EBADMSG, "%s: the index is not where the extents end", p->path);
    return r;
}

int kc_pack_open(const struct kc_storage *st, const char *path, const struct kc_pack_head *head, struct kc_pack *out,
                 struct kc_error *e)
{
    struct kc_pack p = {.head = *head};
    snprintf(p.path, sizeof p.path, "%s", path);
    p.fd = st->open(st->self, path, O_RDONLY);
    if (p.fd < 0)
        return read_fail(st, e, p.fd, path);
    int r = read_index(st, &p, e);
    if (r < 0)
        kc_pack_free(st, &p);
    else
        *out = p;
    return r;
}

int kc_pack_read(const struct kc_storage *st, const struct kc_pack *p, uint32_t i, float *buffer, struct kc_error *e)
{
    const struct kc_extent *x = &p->extent[i];
    int r = kc_storage_read_all(st, p->fd, buffer, kc_extent_bytes(x), x->offset);
    if (r < 0)
        return read_fail(st, e, r, p->path);
    if (!kc_digest_equal(kc_digest(buffer, kc_extent_bytes(x)), x->digest))
        return kc_fail(e, -EBADMSG,
                       "%s: the extent at byte %llu is damaged (elements %llu to %llu of the %s of tensor %u)",
                       p->path, (unsigned long long)x->offset, (unsigned long long)x->lo, (unsigned long long)x->hi,
                       x->kind < KC_KIND_COUNT ? kc_kind_name[x->kind] : "?", x->tensor);
    return 0;
}

int kc_pack_check_gap(const struct kc_storage *st, const struct kc_pack *p, uint32_t i, struct kc_error *e)
{
    unsigned char gap[KC_PACK_ALIGN];
    uint64_t from = p->extent[i].offset + kc_extent_bytes(&p->extent[i]), to = extent_next(&p->extent[i]);
    int r = kc_storage_read_all(st, p->fd, gap, (size_t)(to - from), from);
    if (r < 0)
        return read_fail(st, e, r, p->path);
    for (size_t k = 0; k < to - from; k++)
        if (gap[k])
            return kc_fail(e, -EBADMSG, "%s: byte %llu, between extents, is not zero", p->path,
                           (unsigned long long)(from + k));
    return 0;
}

static int by_place(const void *a, const void *b)
{
    const struct kc_extent *x = *(const struct kc_extent *const *)a, *y = *(const struct kc_extent *const *)b;
    if (x->kind != y->kind)
        return x->kind < y->kind ? -1 : 1;
    if (x->tensor != y->tensor)
        return x->tensor < y->tensor ? -1 : 1;
    return x->lo < y->lo ? -1 : x->lo > y->lo;
}

/* Sorted extents against the tensors: each must begin where the one before ended. */
static int walk_cover(const struct kc_extent *const *sorted, size_t n, uint32_t tensors, const uint64_t *elements,
                      const char *const *names, struct kc_error *e)
{
    size_t i = 0;
    for (uint32_t k = 0; k < KC_KIND_COUNT; k++)
        for (uint32_t t = 0; t < tensors; t++) {
            uint64_t at = 0;
            for (; i < n && sorted[i]->kind == k && sorted[i]->tensor == t && sorted[i]->lo == at; i++)
                at = sorted[i]->hi;
            if (at != elements[t])
                return kc_fail(e, -EBADMSG, "the packs do not hold element %llu of %llu of the %s of %s exactly once",
                               (unsigned long long)at, (unsigned long long)elements[t], kc_kind_name[k], names[t]);
        }
    return i == n ? 0
                  : kc_fail(e, -EBADMSG, "the packs hold elements of tensor %u (%u) that the manifest does not name",
                            sorted[i]->tensor, sorted[i]->kind);
}

int kc_pack_cover(const struct kc_pack *packs, uint32_t count, uint32_t tensors, const uint64_t *elements,
                  const char *const *names, struct kc_error *e)
{
    size_t n = 0;
    for (uint32_t i = 0; i < count; i++)
        n += packs[i].count;
    const struct kc_extent **sorted = calloc(n + 1, sizeof *sorted);
    if (!sorted)
        return kc_fail(e, -ENOMEM, "no memory to check what the packs hold");
    n = 0;
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t k = 0; k < packs[i].count; k++)
            sorted[n++] = &packs[i].extent[k];
    qsort(sorted, n, sizeof *sorted, by_place);
    int r = walk_cover(sorted, n, tensors, elements, names, e);
    free(sorted);
    return r;
}
