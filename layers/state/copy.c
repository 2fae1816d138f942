/* copy.c - the rank's side of its copies: makes the object, hands out slots. Reads nothing that it did not write itself but
 * the header, and believes that only if all of it is as expected. */
#include "copy.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

struct kc_copy {
    int fd;
    struct kc_copy_shape shape;
    struct kc_copy_head *head; /* the whole object is mapped behind it */
    uint64_t bytes;
};

/* ---- the format ---- */

#define MOST (UINT64_C(1) << 46) /* bytes of a slot: more is no shape but a mistake */

uint64_t kc_copy_at(const struct kc_copy_shape *s, uint32_t slot)
{
    return KC_COPY_HEAD + slot * (s->pack_bytes + s->manifest_bytes);
}

uint64_t kc_copy_bytes(const struct kc_copy_shape *s)
{
    if (s->slots == 0 || s->slots > KC_COPY_SLOTS || s->ranks == 0 || s->ranks > KC_RANKS_MAX || s->rank >= s->ranks ||
        s->pack_bytes == 0 || s->pack_bytes > MOST || s->manifest_bytes > MOST || s->pack_bytes % KC_PACK_ALIGN != 0 ||
        s->manifest_bytes % KC_PACK_ALIGN != 0 || (s->manifest_bytes == 0) != (s->rank != 0))
        return 0;
    return kc_copy_at(s, s->slots);
}

static uint64_t manifest_room(uint32_t tensors)
{
    const uint64_t bytes = (UINT64_C(512) << 10) + tensors * UINT64_C(512); /* the loss history; a name and its sizes */
    return (bytes + KC_PACK_ALIGN - 1) / KC_PACK_ALIGN * KC_PACK_ALIGN;
}

int kc_copy_shape_of(const struct kc_map *m, const struct kc_shard_plan *shard, uint32_t rank, uint32_t slots,
                     struct kc_copy_shape *out)
{
    struct kc_pack p;
    int r = kc_pack_plan(m, &p);
    if (r < 0)
        return r;
    *out = (struct kc_copy_shape){.rank = rank, .ranks = shard->ranks, .slots = slots,
        .pack_bytes = (p.bytes + KC_PACK_ALIGN - 1) / KC_PACK_ALIGN * KC_PACK_ALIGN,
        .manifest_bytes = rank == 0 ? manifest_room(m->tensors) : 0, .plan = shard->head.digest};
    kc_pack_free(&kc_storage_posix, &p);
    return 0;
}

size_t kc_state_copy_bytes(const struct kc_shard_plan *shard, uint32_t rank, uint32_t copies)
{
    struct kc_copy_shape shape;
    struct kc_map m;
    size_t bytes = 0;
    if (copies == 0 || kc_map_new(shard, rank, &m, NULL) < 0)
        return 0;
    if (kc_copy_shape_of(&m, shard, rank, copies, &shape) == 0)
        bytes = kc_copy_bytes(&shape);
    kc_map_free(&m);
    return bytes;
}

static void fill_head(struct kc_copy_head *h, const struct kc_copy_shape *shape)
{
    memcpy(h->magic, KC_COPY_MAGIC, sizeof h->magic);
    h->layout = KC_COPY_LAYOUT;
    h->shape = *shape;
    h->digest = kc_digest(h, offsetof(struct kc_copy_head, digest));
}

/* ---- making ---- */

static bool is_so(const struct kc_copy_head *h, const struct kc_copy_shape *shape)
{
    struct kc_copy_head want;
    fill_head(&want, shape);
    return memcmp(h, &want, offsetof(struct kc_copy_head, unused)) == 0;
}

/* Memory that the kernel does not have kills somebody when it is touched: ask before. */
static int check_room(uint64_t bytes, const struct stat *st, uint64_t room, struct kc_error *e)
{
    const uint64_t held = (uint64_t)st->st_blocks * 512;
    if (room == 0 || held >= bytes || bytes - held <= room)
        return 0;
    return kc_fail(e, -ENOMEM,
                   "the copies in memory of one rank need %.1f MiB more, %.1f MiB are free: lower snapshot.copies, or use "
                   "fewer ranks on this machine",
                   (double)(bytes - held) / 0x1p20, (double)room / 0x1p20);
}

static int take(struct kc_copy *c, uint64_t room, struct kc_error *e)
{
    struct stat st;
    if (fstat(c->fd, &st) != 0 || !S_ISREG(st.st_mode))
        return kc_fail(e, errno ? -errno : -EINVAL, "no memory object for the copies: %s", strerror(errno));
    int r = check_room(c->bytes, &st, room, e);
    if (r < 0)
        return r;
    /* It is never made smaller: a reader may have mapped it. */
    if ((uint64_t)st.st_size < c->bytes && ftruncate(c->fd, (off_t)c->bytes) != 0)
        return kc_fail(e, -errno, "no %.1f MiB for the copies in memory: %s", (double)c->bytes / 0x1p20, strerror(errno));
    fcntl(c->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_SEAL); /* nor closed to the next incarnation */
    void *p = mmap(NULL, c->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, c->fd, 0);
    if (p == MAP_FAILED)
        return kc_fail(e, -errno, "the copies in memory, %.1f MiB: %s", (double)c->bytes / 0x1p20, strerror(errno));
    c->head = p;
    madvise(p, c->bytes, MADV_HUGEPAGE); /* a wish */
    return 0;
}

/* Whatever it held: gone, and its memory given back. */
static int clear(struct kc_copy *c, struct kc_error *e)
{
    struct stat st;
    if (fstat(c->fd, &st) != 0 ||
        fallocate(c->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, st.st_size) != 0)
        return kc_fail(e, -errno, "the memory object for the copies can't be cleared: %s", strerror(errno));
    fill_head(c->head, &c->shape);
    return 0;
}

int kc_copy_make(int fd, const struct kc_copy_shape *shape, uint64_t room, struct kc_copy **out, struct kc_error *e)
{
    const uint64_t bytes = kc_copy_bytes(shape);
    if (bytes == 0)
        return kc_fail(e, -EINVAL, "rank %u of %u can't have %u copies of %llu + %llu bytes", shape->rank, shape->ranks,
                       shape->slots, (unsigned long long)shape->pack_bytes, (unsigned long long)shape->manifest_bytes);
    struct kc_copy *c = calloc(1, sizeof *c);
    if (!c)
        return kc_fail(e, -ENOMEM, "no memory for the copies");
    *c = (struct kc_copy){.fd = fd, .shape = *shape, .bytes = bytes};
    int r = take(c, room, e);
    if (r == 0 && !is_so(c->head, shape))
        r = clear(c, e);
    if (r < 0)
        kc_copy_free(c);
    else
        *out = c;
    return r;
}

void kc_copy_free(struct kc_copy *c)
{
    if (c && c->head)
        munmap(c->head, c->bytes);
    free(c);
}

int kc_copy_touch(struct kc_copy *c)
{
    if (madvise(c->head, c->bytes, MADV_POPULATE_WRITE) == 0)
        return 0;
    if (errno == EINVAL) /* older kernels: memory at least, though not yet mapped */
        return fallocate(c->fd, FALLOC_FL_KEEP_SIZE, 0, (off_t)c->bytes) == 0 ? 0 : -errno;
    return -errno;
}

/* ---- slots ---- */

static uint64_t get(const _Atomic uint64_t *word)
{
    return atomic_load_explicit(word, memory_order_acquire);
}

static void set(_Atomic uint64_t *word, uint64_t value)
{
    atomic_store_explicit(word, value, memory_order_release);
}

static uint32_t choose_slot(const struct kc_copy *c, uint64_t keep)
{
    const struct kc_copy_slot *s = c->head->slot;
    if (c->shape.slots == 1)
        return 0;
    const uint64_t a = get(&s[0].version), b = get(&s[1].version);
    if (keep && (a == keep) != (b == keep))
        return a == keep;
    return a > b;
}

uint32_t kc_copy_begin(struct kc_copy *c, uint64_t version, uint64_t step, uint64_t keep)
{
    const uint32_t slot = choose_slot(c, keep);
    struct kc_copy_slot *s = &c->head->slot[slot];
    set(&s->manifest_bytes, 0);
    set(&s->pack_bytes, 0);
    set(&s->version, 0);
    set(&s->generation, get(&s->generation) + 1);
    set(&s->broken, 0);
    set(&s->step, step);
    set(&s->version, version);
    atomic_thread_fence(memory_order_release); /* before any byte of the copy: kc_copies_storage() looks again */
    return slot;
}

unsigned char *kc_copy_pack(struct kc_copy *c, uint32_t slot)
{
    return (unsigned char *)c->head + kc_copy_at(&c->shape, slot);
}

void kc_copy_seal(struct kc_copy *c, uint32_t slot, uint64_t bytes)
{
    set(&c->head->slot[slot].pack_bytes, bytes <= c->shape.pack_bytes ? bytes : 0);
}

uint32_t kc_copy_find(const struct kc_copy *c, uint64_t version)
{
    uint32_t i = 0;
    while (i < c->shape.slots && (get(&c->head->slot[i].version) != version || get(&c->head->slot[i].pack_bytes) == 0))
        i++;
    return i < c->shape.slots ? i : KC_COPY_SLOTS;
}

uint64_t kc_copy_highest(const struct kc_copy *c)
{
    uint64_t highest = 0;
    for (uint32_t i = 0; i < c->shape.slots; i++) {
        const uint64_t version = get(&c->head->slot[i].version);
        highest = version > highest ? version : highest;
    }
    return highest;
}

int kc_copies_commit(const struct kc_copies *all, struct kc_copy *c, struct kc_manifest *m, struct kc_error *e)
{
    const struct kc_storage *st = kc_copies_storage(all);
    struct kc_copy_slot *s = c->head->slot;
    char path[4096], *text = NULL;
    size_t bytes = 0;
    uint32_t slot = 0;
    while (slot < c->shape.slots && get(&s[slot].version) != m->version)
        slot++;
    if (slot == c->shape.slots || c->shape.manifest_bytes == 0)
        return kc_fail(e, -EINVAL, "no slot has version %llu, or this rank takes no manifest",
                       (unsigned long long)m->version);
    kc_catalog_path(KC_COPY_DIRECTORY, m->version, path);
    struct kc_whole *w = kc_whole_of(m);
    if (!w)
        return kc_fail(e, -ENOMEM, "no memory for a manifest");
    int r = kc_whole_learn(st, path, KC_COPY_DIRECTORY, w, e);
    if (r == 0)
        memcpy(m->pack, w->manifest.pack, sizeof m->pack);
    kc_whole_free_of(st, w, m);
    if (r == 0 && (r = kc_manifest_text(m, &text, &bytes)) < 0)
        kc_fail(e, r, "no memory for a manifest");
    if (r == 0 && bytes > c->shape.manifest_bytes)
        r = kc_fail(e, -ENOSPC, "the manifest of the copy has %zu bytes, its room %llu", bytes,
                    (unsigned long long)c->shape.manifest_bytes);
    if (r == 0) {
        memcpy(kc_copy_pack(c, slot) + c->shape.pack_bytes, text, bytes);
        set(&s[slot].manifest_bytes, bytes);
    }
    free(text);
    return r;
}
