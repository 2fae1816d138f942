/* pack.c - plans packs, and makes what stands around extents: in a file, or in memory. */
#include "pack.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct super {
    char magic[8]; /* "KCPACK3\n", by the format */
    struct kc_pack_head head;
    struct kc_digest digest; /* of what stands before it */
};
_Static_assert(sizeof(struct super) == 48, "format: bump KC_SNAPSHOT_FORMAT");

const char kc_pack_footer_magic[8] = {'K', 'C', 'P', 'A', 'C', 'K', 'E', '\n'};

static uint64_t align_up(uint64_t at, uint64_t unit)
{
    return (at + unit - 1) / unit * unit;
}

/* Before format 3 every extent began on a page of its own. */
uint64_t kc_extent_place(uint32_t format, uint64_t at, uint64_t stored)
{
    return align_up(at, format < 3 || stored >= KC_PACK_ALIGN ? KC_PACK_ALIGN : stored ? KC_PACK_SMALL : 1);
}

uint64_t kc_pack_index_offset(const struct kc_pack *p)
{
    const struct kc_extent *last = p->count ? &p->extent[p->count - 1] : NULL;
    return last ? align_up(last->offset + last->stored, KC_PACK_ALIGN) : KC_PACK_ALIGN;
}

bool kc_extent_same_place(const struct kc_extent *a, const struct kc_extent *b)
{
    return memcmp(a, b, offsetof(struct kc_extent, offset)) == 0;
}

void kc_pack_super(unsigned char block[KC_PACK_ALIGN], const struct kc_pack_head *head, uint32_t format)
{
    struct super s = {.magic = {'K', 'C', 'P', 'A', 'C', 'K', (char)('0' + format), '\n'}, .head = *head};
    memset(block, 0, KC_PACK_ALIGN);
    s.digest = kc_digest(&s, offsetof(struct super, digest));
    memcpy(block, &s, sizeof s);
}

uint64_t kc_pack_values(const struct kc_pack *p)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < p->count; i++)
        bytes += kc_extent_bytes(&p->extent[i]);
    return bytes;
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
                    struct kc_extent x = {.tensor = t, .kind = k, .box = m->tensor[t].box, .lo = own.lo, .hi = to};
                    x.stored = kc_extent_bytes(&x);
                    x.offset = kc_extent_place(p.format, at, x.stored);
                    if (pass)
                        p.extent[n] = x;
                    at = x.offset + x.stored;
                    own.lo = to;
                }
            }
        p.count = n;
        if (!pass && !(p.extent = calloc(n + 1, sizeof *p.extent)))
            return -ENOMEM;
    }
    p.bytes = kc_pack_index_offset(&p) + p.count * sizeof(struct kc_extent) + KC_PACK_FOOTER;
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

void kc_pack_finish(struct kc_pack *p, struct kc_pack_footer *f)
{
    const uint64_t index = kc_pack_index_offset(p);
    p->index = kc_digest(p->extent, p->count * sizeof *p->extent);
    p->bytes = index + p->count * sizeof *p->extent + sizeof *f;
    *f = (struct kc_pack_footer){.index_offset = index, .count = p->count, .bytes = p->bytes, .index = p->index};
    memcpy(f->magic, kc_pack_footer_magic, sizeof f->magic);
}

void kc_pack_seal(struct kc_pack *p, const struct kc_pack_head *head, void *image)
{
    struct kc_pack_footer f;
    unsigned char *at = image;
    p->head = *head;
    for (uint32_t i = 0; i < p->count; i++)
        p->extent[i].stored_digest = p->extent[i].digest;
    kc_pack_finish(p, &f);
    kc_pack_super(at, head, p->format);
    memcpy(at + f.index_offset, p->extent, p->count * sizeof *p->extent);
    memcpy(at + p->bytes - sizeof f, &f, sizeof f);
}
