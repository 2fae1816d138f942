/* unpack.c - see unpack.h. */
#include "unpack.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHAIN = KC_DEPTH_MAX + 2 /* a reference, and the one that all differences stand on */, WINDOWS = CHAIN };

/* Bytes of a pack that were read. */
struct window {
    const struct kc_pack *pack; /* NULL: nothing */
    uint64_t from, bytes, used;
    unsigned char *data;
    size_t room;
};

struct kc_unpack {
    const struct kc_storage *st;
    const struct kc_whole *w;
    struct kc_codec *codec;
    struct window window[WINDOWS];
    bool *need;            /* of the pack that is read: of each version, that one first, which extents are */
    uint32_t needs;        /* extents of a version there; 0: it was not said */
    uint64_t clock, reads, bytes;
    const char *blamed;
};

int kc_unpack_new(const struct kc_storage *st, const struct kc_whole *w, struct kc_unpack **out)
{
    struct kc_unpack *r = calloc(1, sizeof *r);
    if (!r || kc_codec_new(&r->codec) < 0) {
        free(r);
        return -ENOMEM;
    }
    r->st = st;
    r->w = w;
    r->blamed = w->path;
    *out = r;
    return 0;
}

struct kc_unpack *kc_unpack_free(struct kc_unpack *r)
{
    if (!r)
        return NULL;
    for (int i = 0; i < WINDOWS; i++)
        free(r->window[i].data);
    kc_codec_free(r->codec);
    free(r->need);
    free(r);
    return NULL;
}

/* ---- what is read together ---- */

uint64_t kc_unpack_run(const struct kc_pack *p, const bool *wanted, uint32_t i, uint64_t most)
{
    const uint64_t from = p->extent[i].offset;
    uint64_t end = from + p->extent[i].stored;
    for (uint32_t k = i + 1; k < p->count; k++) {
        const struct kc_extent *x = &p->extent[k];
        if (x->offset - end > KC_READ_GAP || x->offset + x->stored - from > most)
            break;
        if (wanted[k])
            end = x->offset + x->stored;
    }
    return end - from;
}

void kc_unpack_estimate(const struct kc_pack *p, const bool *wanted, uint64_t *reads, uint64_t *bytes)
{
    uint64_t end = 0;
    for (uint32_t i = 0; i < p->count; i++) {
        const struct kc_extent *x = &p->extent[i];
        if (!wanted[i] || x->stored == 0 || x->offset + x->stored <= end)
            continue;
        const uint64_t run = kc_unpack_run(p, wanted, i, KC_READ_MOST);
        end = x->offset + run;
        *bytes += run;
        ++*reads;
    }
}

/* The number of a version among that one (0) and those it leans on. */
static uint32_t number_of(const struct kc_unpack *r, const struct kc_whole *version)
{
    uint32_t n = 0;
    while (version != r->w && n < r->w->parents && r->w->parent[n] != version)
        n++;
    return version == r->w ? 0 : n + 1;
}

int kc_unpack_want(struct kc_unpack *r, uint32_t pack, const bool *wanted)
{
    const uint32_t count = r->w->pack[pack].count;
    bool *need = calloc((size_t)count * (r->w->parents + 1u) + 1, sizeof *need);
    if (!need)
        return -ENOMEM;
    for (uint32_t i = 0; i < count; i++) {
        struct kc_place at = {r->w, pack, i};
        need[i] = wanted[i];
        while (wanted[i] && kc_extent_leans(kc_place_extent(at))) {
            at = kc_whole_next(r->w, at);
            need[(size_t)number_of(r, at.whole) * count + i] = true;
        }
    }
    free(r->need);
    r->need = need;
    r->needs = count;
    return 0;
}

static uint64_t run_of(const struct kc_unpack *r, struct kc_place at)
{
    const struct kc_pack *p = &at.whole->pack[at.pack];
    struct kc_pack as_far = *p; /* an older version may have more extents than were asked for */
    as_far.count = p->count < r->needs ? p->count : r->needs;
    return kc_unpack_run(&as_far, r->need + (size_t)number_of(r, at.whole) * r->needs, at.extent,
                         r->w->parents ? KC_READ_MOST / 4 : KC_READ_MOST);
}

/* ---- reading ---- */

static struct window *oldest(struct kc_unpack *r)
{
    struct window *w = r->window;
    for (int i = 1; i < WINDOWS; i++)
        if (r->window[i].used < w->used)
            w = &r->window[i];
    return w;
}

static int fill(struct kc_unpack *r, struct window *w, struct kc_place at, struct kc_error *e)
{
    const struct kc_pack *p = &at.whole->pack[at.pack];
    const struct kc_extent *x = kc_place_extent(at);
    const uint64_t bytes = r->needs ? run_of(r, at) : x->stored;
    w->pack = NULL;
    if (bytes > w->room) {
        free(w->data);
        w->data = malloc(bytes);
        w->room = w->data ? bytes : 0;
    }
    if (!w->data)
        return kc_fail(e, -ENOMEM, "no memory to read %s", p->path);
    int code = kc_pack_fetch(r->st, p, w->data, bytes, x->offset, e);
    if (code < 0)
        return code;
    r->reads++;
    r->bytes += bytes;
    w->pack = p;
    w->from = x->offset;
    w->bytes = bytes;
    return 0;
}

/* What an extent stores, which is something, and is what was written. */
static int fetch(struct kc_unpack *r, struct kc_place at, const unsigned char **stored, struct kc_error *e)
{
    const struct kc_pack *p = &at.whole->pack[at.pack];
    const struct kc_extent *x = kc_place_extent(at);
    struct window *w = r->needs ? NULL : r->window;
    for (int i = 0; i < WINDOWS && r->needs && !w; i++)
        if (r->window[i].pack == p && x->offset >= r->window[i].from &&
            x->offset + x->stored <= r->window[i].from + r->window[i].bytes)
            w = &r->window[i];
    if (!w || !r->needs) {
        w = w ? w : oldest(r);
        int code = fill(r, w, at, e);
        if (code < 0)
            return code;
    }
    w->used = ++r->clock;
    *stored = w->data + (x->offset - w->from);
    return kc_pack_check_stored(p, at.extent, *stored, e);
}

static int decode(struct kc_unpack *r, struct kc_place at, float *values, struct kc_error *e)
{
    const struct kc_extent *x = kc_place_extent(at);
    struct kc_codec_stored s = {.id = (enum kc_codec_id)x->codec, .base = kc_extent_leans(x) ? values : NULL, .type = KC_F32,
        .count = (uint32_t)(x->hi - x->lo), .bytes = x->stored};
    const unsigned char *stored = NULL;
    int code = x->stored ? fetch(r, at, &stored, e) : 0;
    s.stored = stored;
    if (code == 0 && kc_codec_decode(r->codec, &s, values) < 0)
        code = kc_fail(e, -EBADMSG, "%s: what the extent at byte %llu stores is no code", at.whole->pack[at.pack].path,
                       (unsigned long long)x->offset);
    if (code == -EBADMSG)
        r->blamed = at.whole->path;
    return code;
}

int kc_unpack_values(struct kc_unpack *r, uint32_t pack, uint32_t extent, float *out, struct kc_error *e)
{
    struct kc_place chain[CHAIN + 1] = {{r->w, pack, extent}};
    uint32_t n = 0;
    int code = 0;
    r->blamed = r->w->path;
    while (kc_extent_leans(kc_place_extent(chain[n])) && n < CHAIN) {
        chain[n + 1] = kc_whole_next(r->w, chain[n]);
        n++;
    }
    for (uint32_t i = n + 1; i-- > 0 && code == 0;)
        code = decode(r, chain[i], out, e);
    const struct kc_extent *x = kc_place_extent(chain[0]);
    return code == 0 && x->codec != KC_CODEC_RAW ? kc_pack_check_values(&r->w->pack[pack], extent, out, e) : code;
}

const char *kc_unpack_blamed(const struct kc_unpack *r)
{
    return r->blamed;
}

void kc_unpack_counts(const struct kc_unpack *r, uint64_t *reads, uint64_t *bytes)
{
    *reads = r->reads;
    *bytes = r->bytes;
}
