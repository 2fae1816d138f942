/* pack.c - plans and writes packs. Never retries a file whose write or fsync failed. */
#include "pack.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct super {
    char magic[8]; /* "KCPACK2\n", by the format */
    struct kc_pack_head head;
    struct kc_digest digest; /* of what stands before it */
};
_Static_assert(sizeof(struct super) == 48, "format: bump KC_SNAPSHOT_FORMAT");

const char kc_pack_footer_magic[8] = {'K', 'C', 'P', 'A', 'C', 'K', 'E', '\n'};

static uint64_t align_up(uint64_t at)
{
    return (at + KC_PACK_ALIGN - 1) / KC_PACK_ALIGN * KC_PACK_ALIGN;
}

uint64_t kc_extent_next(const struct kc_extent *x)
{
    return align_up(x->offset + kc_extent_bytes(x));
}

uint64_t kc_pack_index_offset(const struct kc_pack *p)
{
    return p->count ? kc_extent_next(&p->extent[p->count - 1]) : KC_PACK_ALIGN;
}

void kc_pack_super(unsigned char block[KC_PACK_ALIGN], const struct kc_pack_head *head, uint32_t format)
{
    struct super s = {.magic = {'K', 'C', 'P', 'A', 'C', 'K', (char)('0' + format), '\n'}, .head = *head};
    memset(block, 0, KC_PACK_ALIGN);
    s.digest = kc_digest(&s, offsetof(struct super, digest));
    memcpy(block, &s, sizeof s);
}

int kc_pack_plan(const struct kc_map *m, struct kc_pack *out)
{
    struct kc_pack p = {.fd = -1, .format = KC_SNAPSHOT_FORMAT};
    for (int pass = 0; pass < 2; pass++) { /* count, then fill */
        uint64_t at = KC_PACK_ALIGN;
        uint32_t n = 0;
        for (uint32_t k = 0; k < KC_KIND_COUNT; k++)
            for (uint32_t t = 0; t < m->tensors; t++) {
                struct kc_range own = kc_map_counted(m, &m->tensor[t], (enum kc_kind)k);
                for (; own.lo < own.hi; n++) {
                    uint64_t cut = (own.lo / KC_PACK_GRID + 1) * KC_PACK_GRID, to = cut < own.hi ? cut : own.hi;
                    struct kc_extent x = {.tensor = t, .kind = k, .box = m->tensor[t].box, .lo = own.lo, .hi = to,
                                          .offset = at};
                    if (pass)
                        p.extent[n] = x;
                    at = kc_extent_next(&x);
                    own.lo = to;
                }
            }
        p.count = n;
        p.bytes = at + n * sizeof(struct kc_extent) + KC_PACK_FOOTER;
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

/* Superblock, extents, index, footer: all under way together, digests taken while the disk works. Fails by `source` alone;
 * what a write says, kc_writes_end() says again. */
static int start_all(struct kc_writes *w, struct kc_pack *p, unsigned char *block, struct kc_pack_footer *f,
                     kc_pack_source *source, void *arg, struct kc_error *e)
{
    kc_pack_super(block, &p->head, p->format);
    int r = kc_writes_add(w, block, KC_PACK_ALIGN, 0);
    for (uint32_t i = 0; i < p->count && r == 0; i++) {
        const float *values;
        int s = source(arg, &p->extent[i], &values, e);
        if (s < 0)
            return s;
        p->extent[i].digest = kc_digest(values, kc_extent_bytes(&p->extent[i]));
        r = kc_writes_add(w, values, kc_extent_bytes(&p->extent[i]), p->extent[i].offset);
    }
    if (r < 0)
        return 0;
    p->index = kc_digest(p->extent, p->count * sizeof *p->extent);
    *f = (struct kc_pack_footer){.index_offset = kc_pack_index_offset(p), .count = p->count, .bytes = p->bytes,
        .index = p->index};
    memcpy(f->magic, kc_pack_footer_magic, sizeof f->magic);
    if (kc_writes_add(w, p->extent, p->count * sizeof *p->extent, f->index_offset) == 0)
        kc_writes_add(w, f, sizeof *f, p->bytes - sizeof *f);
    return 0;
}

static int write_body(const struct kc_storage *st, struct kc_pack *p, kc_pack_source *source, void *arg,
                      struct kc_error *e)
{
    unsigned char block[KC_PACK_ALIGN];
    struct kc_pack_footer footer;
    struct kc_writes w;
    const int direct = st->open(st->self, p->path, O_WRONLY | O_DIRECT); /* not everywhere; less work where it is */
    int r = kc_writes_begin(&w, st, p->fd, direct, p->count + 3);
    if (r < 0) {
        kc_fail(e, r, "no memory for the writes of %s", p->path);
    } else {
        r = start_all(&w, p, block, &footer, source, arg, e);
        const int written = kc_writes_end(&w); /* in any case: until then the disk reads from here */
        if (r == 0 && written < 0)
            r = kc_storage_fail(st, e, written, "write", p->path, p->bytes);
    }
    if (direct >= 0)
        st->close(st->self, direct);
    return r;
}

/* What the disk now has is what we meant: the index and every extent are read back. */
static int read_back(const struct kc_storage *st, const struct kc_pack *written, struct kc_error *e)
{
    struct kc_pack p = {.fd = -1};
    float *buffer = malloc(KC_PACK_GRID * sizeof *buffer);
    int r = buffer ? kc_pack_open(st, written->path, &written->head, written->format, &p, e)
                   : kc_fail(e, -ENOMEM, "no memory to read %s back", written->path);
    if (r == 0 && !kc_digest_equal(p.index, written->index))
        r = kc_fail(e, -EBADMSG, "%s: the index read back is not the one written", p.path);
    for (uint32_t i = 0; i < p.count && r == 0; i++)
        r = kc_pack_read(st, &p, i, buffer, e);
    free(buffer);
    kc_pack_free(st, &p);
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
