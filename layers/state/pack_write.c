/* pack_write.c - writes packs: each extent in the fewest bytes that are worth their time, and what was written proven by
 * reading it. Never retries a file whose write or fsync failed. */
#include "coder.h"
#include "meter.h"
#include "pack.h"

#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MEASURED_PART 16               /* of a large pack this part is written first, as it is, to see what the disk takes */
#define SMALL_EXTENT (UINT64_C(16) << 10) /* bytes */
#define LARGE_PACK (UINT64_C(128) << 20) /* bytes: of a smaller one the fsync says it, and comes behind all coding */

struct writing {
    const struct kc_storage *st;
    struct kc_pack *p;
    kc_pack_source *source;
    void *arg;
    const struct kc_increment *before;
    struct kc_coder *coder;
    struct kc_writes writes;
    uint64_t at;           /* end of what was placed */
    uint64_t plain;        /* end of the extents so far where all are stored as they are: places in the base's image */
    uint64_t stored;       /* bytes handed to the disk */
    bool large;
    uint64_t measured;     /* bytes that are written before anything is coded; 0 when they are */
    uint64_t begun, blocked; /* kc_now() at the first write; nanoseconds in which the disk held us up */
};

static double seconds_since(uint64_t from)
{
    return (double)(kc_now() - from) / (double)KC_SECOND;
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

/* ---- the base ---- */

static const struct kc_extent *base_of(const struct kc_increment *b, const struct kc_pack *p, uint32_t i)
{
    return b && i < b->count && kc_extent_same_place(&b->extent[i], &p->extent[i]) ? &b->extent[i] : NULL;
}

/* The version that stores what the base's extent has the values of. */
static uint64_t origin_of(const struct kc_increment *b, const struct kc_extent *base)
{
    return base->codec == KC_CODEC_BASE ? base->origin : b->version;
}

/* It has the values of its base, which may be referred to. */
static bool is_unchanged(const struct kc_increment *b, const struct kc_extent *base, const struct kc_extent *x)
{
    return base && kc_digest_equal(base->digest, x->digest) && !(b->rebase && base->depth > 0);
}

/* Its values, if something may differ from them: not where they are no longer what was saved. */
static const void *values_of(const struct kc_increment *b, const struct kc_extent *base, uint64_t plain)
{
    if (!base || !b->image || b->rebase || base->depth >= KC_DEPTH_MAX)
        return NULL;
    const void *values = b->image + plain;
    return kc_digest_equal(kc_digest(values, kc_extent_bytes(base)), base->digest) ? values : NULL;
}

static void refer(const struct kc_increment *b, const struct kc_extent *base, struct kc_extent *x)
{
    x->codec = KC_CODEC_BASE;
    x->stored = 0;
    x->stored_digest = (struct kc_digest){0};
    x->origin = origin_of(b, base);
    x->depth = base->depth;
    x->base = x->digest;
}

/* Bytes at most: what changed, as it is. Where digests are not known yet, all. */
static uint64_t most_bytes(const struct kc_pack *p, const struct kc_increment *b)
{
    uint64_t at = KC_PACK_ALIGN;
    if (!p->digested || !b)
        return p->bytes;
    for (uint32_t i = 0; i < p->count; i++) {
        const struct kc_extent *x = &p->extent[i];
        if (!is_unchanged(b, base_of(b, p, i), x))
            at = kc_extent_place(p->format, at, kc_extent_bytes(x)) + kc_extent_bytes(x);
    }
    return (at + KC_PACK_ALIGN - 1) / KC_PACK_ALIGN * KC_PACK_ALIGN + p->count * sizeof *p->extent + KC_PACK_FOOTER;
}

/* ---- one extent ---- */

static int add(struct writing *w, const void *data, size_t bytes, uint64_t at)
{
    const uint64_t from = kc_now();
    int r = kc_writes_add(&w->writes, data, bytes, at);
    w->blocked += kc_now() - from;
    w->stored += bytes;
    return r;
}

/* Which codecs may be tried now. What is small says nothing about a rate. */
static uint32_t allowed(struct writing *w, const struct kc_extent *x)
{
    const uint32_t all = KC_CODEC_ALL & ~(1u << KC_CODEC_BASE);
    struct kc_codec_rate *rate = &w->coder->rate[x->kind];
    if (w->coder->coding != KC_CODING_AUTO)
        return w->coder->coding == KC_CODING_ALWAYS ? all : all & KC_CODEC_CHEAP;
    if (w->measured)
        return all & KC_CODEC_CHEAP;
    if (kc_extent_bytes(x) < SMALL_EXTENT)
        return kc_codec_rate_cost(rate, w->large) < 1 ? all : all & KC_CODEC_CHEAP;
    return kc_codec_rate_next(rate, all, w->large, kc_extent_bytes(x));
}

/* Processor time: while others run instead of us, the disk works all the same. */
static double processor_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* How the values are stored, to *out; false: a write before failed. */
static bool code(struct writing *w, const struct kc_extent *x, const float *values, const struct kc_extent *base, uint64_t plain,
                 struct kc_codec_result *out)
{
    const uint32_t count = (uint32_t)(x->hi - x->lo), may = allowed(w, x);
    const bool tries = (may & ~KC_CODEC_CHEAP) != 0;
    const bool leans = tries && (w->coder->coding == KC_CODING_ALWAYS ||
                                 kc_codec_rate_cost(&w->coder->rate[x->kind], w->large) < 1); /* a trial leans on nothing */
    const uint64_t from = kc_now();
    unsigned char *room = kc_coder_room(w->coder, &w->writes, count);
    w->blocked += kc_now() - from;
    if (!room)
        return false;
    const double began = processor_seconds();
    const struct kc_codec_job job = {.values = values, .base = leans ? values_of(w->before, base, plain) : NULL, .type = KC_F32,
        .count = count, .allowed = may};
    if (kc_codec_encode(w->coder->codec, &job, room, kc_codec_bound(KC_F32, count), out) < 0)
        *out = (struct kc_codec_result){.id = KC_CODEC_RAW, .stored = values, .bytes = kc_extent_bytes(x)};
    if (tries && kc_extent_bytes(x) >= SMALL_EXTENT)
        kc_codec_rate_coded(&w->coder->rate[x->kind], kc_extent_bytes(x), out->bytes, processor_seconds() - began);
    return true;
}

/* What the disk took for the first part of a large pack. */
static void measure(struct writing *w)
{
    if (!w->measured || w->stored < w->measured)
        return;
    const uint64_t from = kc_now();
    kc_writes_until(&w->writes, w->writes.count);
    w->blocked += kc_now() - from;
    for (int k = 0; k < KC_KIND_COUNT; k++)
        kc_codec_rate_written(&w->coder->rate[k], w->stored, seconds_since(w->begun));
    w->measured = 0;
}

/* The values of extent i, in the best way that is worth it now. Returns what the disk says. */
static int store(struct writing *w, uint32_t i, const float *values, const struct kc_extent *base, uint64_t plain)
{
    struct kc_extent *x = &w->p->extent[i];
    struct kc_codec_result out = {.id = KC_CODEC_RAW, .stored = values, .bytes = kc_extent_bytes(x)};
    const struct kc_increment *b = w->before;
    if (w->coder && !code(w, x, values, base, plain, &out))
        return -EIO;
    x->codec = out.id;
    x->stored = out.bytes;
    x->stored_digest = out.id == KC_CODEC_RAW ? x->digest : kc_digest(out.stored, out.bytes);
    x->offset = kc_extent_place(w->p->format, w->at, x->stored);
    w->at = x->offset + x->stored;
    if (kc_extent_leans(x)) {
        x->origin = origin_of(b, base);
        x->depth = base->depth + 1;
        x->base = base->digest;
    }
    int r = add(w, out.stored, out.bytes, x->offset);
    if (w->coder && out.stored != values)
        kc_coder_used(w->coder, &w->writes, out.bytes);
    measure(w);
    return r;
}

/* < 0: the source failed; else *disk is what the disk said. */
static int write_extent(struct writing *w, uint32_t i, int *disk, struct kc_error *e)
{
    struct kc_extent *x = &w->p->extent[i];
    const struct kc_extent *base = base_of(w->before, w->p, i);
    const uint64_t plain = kc_extent_place(w->p->format, w->plain, kc_extent_bytes(x));
    const float *values;
    int r = w->source(w->arg, x, &values, e);
    if (r < 0)
        return r;
    w->plain = plain + kc_extent_bytes(x);
    if (!w->p->digested)
        x->digest = kc_digest(values, kc_extent_bytes(x));
    if (is_unchanged(w->before, base, x)) {
        refer(w->before, base, x);
        x->offset = w->at;
    } else {
        *disk = store(w, i, values, base, plain);
    }
    kc_meter_add(w->p->meter, kc_extent_bytes(x));
    return 0;
}

/* ---- the whole file ---- */

/* Superblock, extents, index, footer: all under way together, digests taken and values coded while the disk works. Fails by
 * `source` alone; what a write says, kc_writes_end() says again. */
static int start_all(struct writing *w, unsigned char *block, struct kc_pack_footer *f, struct kc_error *e)
{
    struct kc_pack *p = w->p;
    kc_pack_super(block, &p->head, p->format);
    w->begun = kc_now();
    int disk = add(w, block, KC_PACK_ALIGN, 0);
    for (uint32_t i = 0; i < p->count && disk == 0; i++) {
        int r = write_extent(w, i, &disk, e);
        if (r < 0)
            return r;
    }
    if (disk < 0)
        return 0;
    kc_pack_finish(p, f);
    if (add(w, p->extent, p->count * sizeof *p->extent, f->index_offset) == 0)
        add(w, f, sizeof *f, p->bytes - sizeof *f);
    return 0;
}

static int write_body(struct writing *w, struct kc_error *e)
{
    unsigned char block[KC_PACK_ALIGN];
    struct kc_pack_footer footer;
    struct kc_pack *p = w->p;
    const int direct = w->st->open(w->st->self, p->path, O_WRONLY | O_DIRECT); /* not everywhere; less work where it is */
    int r = kc_writes_begin(&w->writes, w->st, p->fd, direct, p->count + 3);
    if (r < 0) {
        kc_fail(e, r, "no memory for the writes of %s", p->path);
    } else {
        r = start_all(w, block, &footer, e);
        const uint64_t from = kc_now();
        const int written = kc_writes_end(&w->writes); /* in any case: until then the disk reads from here */
        w->blocked += kc_now() - from;
        if (r == 0 && written < 0)
            r = kc_storage_fail(w->st, e, written, "write", p->path, p->bytes);
    }
    if (direct >= 0)
        w->st->close(w->st->self, direct);
    return r;
}

static int sync_file(struct writing *w, struct kc_error *e)
{
    const uint64_t from = kc_now();
    int r = w->st->sync(w->st->self, w->p->fd);
    w->blocked += kc_now() - from;
    if (r < 0)
        return kc_storage_fail(w->st, e, r, "fsync", w->p->path, w->p->bytes);
    /* of a pack of which no part was measured: the disk was at least as fast as it held us up */
    for (int k = 0; w->coder && !w->large && k < KC_KIND_COUNT; k++)
        kc_codec_rate_written(&w->coder->rate[k], w->stored, (double)w->blocked / (double)KC_SECOND);
    return 0;
}

/* ---- is it there? ---- */

/* Extent i as it was read back: the bytes that were meant, and values that are those that were saved. */
static int prove(const struct writing *w, const struct kc_pack *p, uint32_t i, const void *stored, uint64_t plain, struct kc_error *e)
{
    const struct kc_extent *x = &p->extent[i];
    int r = kc_pack_check_stored(p, i, stored, e);
    if (r < 0 || x->codec == KC_CODEC_RAW)
        return r;
    const struct kc_codec_stored s = {.id = (enum kc_codec_id)x->codec, .base = kc_extent_leans(x) ? w->before->image + plain : NULL,
        .type = KC_F32, .count = (uint32_t)(x->hi - x->lo), .stored = stored, .bytes = x->stored};
    float *values = (float *)(void *)w->coder->buffer[1];
    const double began = processor_seconds();
    const int code = kc_codec_decode(w->coder->codec, &s, values);
    if (kc_extent_bytes(x) >= SMALL_EXTENT)
        kc_codec_rate_decoded(&w->coder->rate[x->kind], kc_extent_bytes(x), processor_seconds() - began);
    if (code < 0)
        return kc_fail(e, -EBADMSG, "%s: the extent at byte %llu does not decode", p->path, (unsigned long long)x->offset);
    return kc_pack_check_values(p, i, values, e);
}

/* What the disk now has is what we meant: the index and every extent are read back. */
static int read_back(const struct writing *w, struct kc_error *e)
{
    struct kc_pack p = {.fd = -1};
    const struct kc_pack *meant = w->p;
    void *own = w->coder ? NULL : malloc(KC_PACK_GRID * sizeof(float)), *buffer = w->coder ? w->coder->buffer[0] : own;
    uint64_t plain = KC_PACK_ALIGN;
    int r = buffer ? kc_pack_open(w->st, meant->path, &meant->head, meant->format, &p, e)
                   : kc_fail(e, -ENOMEM, "no memory to read %s back", meant->path);
    if (r == 0 && !kc_digest_equal(p.index, meant->index))
        r = kc_fail(e, -EBADMSG, "%s: the index read back is not the one written", p.path);
    for (uint32_t i = 0; i < p.count && r == 0; i++) {
        const struct kc_extent *x = &p.extent[i];
        plain = kc_extent_place(p.format, plain, kc_extent_bytes(x));
        if (x->stored > 0 && (r = kc_pack_fetch(w->st, &p, buffer, x->stored, x->offset, e)) == 0)
            r = prove(w, &p, i, buffer, plain, e);
        plain += kc_extent_bytes(x);
        kc_meter_add(meant->meter, kc_extent_bytes(x));
    }
    free(own);
    kc_pack_free(w->st, &p);
    return r;
}

static int write_file(struct writing *w, struct kc_error *e)
{
    const struct kc_storage *st = w->st;
    struct kc_pack *p = w->p;
    const uint64_t reserved = p->bytes = most_bytes(p, w->before);
    int r = reserve(st, p, e);
    w->large = reserved >= LARGE_PACK;
    w->measured = w->coder && w->large ? reserved / MEASURED_PART : 0;
    if (r == 0)
        r = write_body(w, e);
    if (r == 0 && p->bytes < reserved && (r = st->cut(st->self, p->fd, p->bytes)) < 0)
        r = kc_storage_fail(st, e, r, "cut", p->path, p->bytes);
    if (r == 0)
        r = sync_file(w, e);
    if (r == 0) {
        st->forget(st->self, p->fd); /* so that the disk is read, not the cache; a hint that may fail */
        r = read_back(w, e);
    }
    return r;
}

int kc_pack_write(const struct kc_storage *st, const char *path, const struct kc_pack_head *head, struct kc_pack *p,
                  kc_pack_source *source, void *arg, const struct kc_increment *before, struct kc_coder *coder,
                  struct kc_error *e)
{
    struct writing w = {.st = st, .p = p, .source = source, .arg = arg, .before = before, .coder = coder,
        .at = KC_PACK_ALIGN, .plain = KC_PACK_ALIGN};
    snprintf(p->path, sizeof p->path, "%s", path);
    p->head = *head;
    p->fd = st->open(st->self, path, O_RDWR | O_CREAT | O_EXCL);
    if (p->fd < 0) {
        int code = p->fd;
        p->fd = -1;
        return kc_storage_fail(st, e, code, "create", path, p->bytes);
    }
    if (coder)
        kc_coder_begin(coder);
    int r = write_file(&w, e);
    int c = st->close(st->self, p->fd);
    p->fd = -1;
    if (r == 0 && c < 0)
        r = kc_storage_fail(st, e, c, "close", path, p->bytes);
    if (r < 0)
        st->remove(st->self, path); /* free the space now; a failure here is cleaned up with the folder */
    return r;
}
