/* agreement.c - the store vector: what this rank puts in before a sum over all ranks, and what it reads after it.
 *
 * [0] failures: one in the low 16 bits, errno from bit 16, rank + 1 from bit 40. If a single rank failed, all know
 *     which one and why; if several did, how many. From bit 56: position 0 says that the copy in memory is whole.
 * [1] a number with a one at bit 48 for every rank that gave it (so also a sum of a sum can be read): the version
 *     that position 0 chose, one made of the version a rank restores, the bytes a rank wrote.
 * [2…] limbs of state_root (root.h), by tensor, then by kind. */
#include "state_impl.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GIVEN (UINT64_C(1) << 48)
#define WHOLE (UINT64_C(1) << 56)

/* Whoever has one of several numbers must see from the sum that they are several: of 4, 5 and 6 the middle one would not. */
static uint64_t scattered(uint64_t version)
{
    uint64_t z = version * UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (z ^ (z >> 31)) >> 24 | 1; /* 40 bits: those of all ranks are below GIVEN */
}
_Static_assert(KC_RANKS_MAX <= 256, "their sum is below GIVEN");

void kc_agree_chosen(struct kc_state *s, int error)
{
    kc_agree_put(s, error, scattered(s->attempt.version));
}

void kc_agree_put(struct kc_state *s, int error, uint64_t value)
{
    s->store[0] = error ? 1 | (uint64_t)-error << 16 | (uint64_t)(s->rank + 1) << 40 : 0;
    s->store[0] |= s->attempt.whole ? WHOLE : 0;
    s->store[1] = value ? value | GIVEN : 0;
    s->attempt.pending = true;
}

void kc_attempt_fail(struct kc_state *s, int error, const char *reason)
{
    if (s->attempt.error)
        return;
    s->attempt.error = error;
    snprintf(s->attempt.reason, sizeof s->attempt.reason, "%.*s", (int)sizeof s->attempt.reason - 1, reason);
}

static void read_failures(struct kc_state *s, uint64_t word)
{
    char text[256];
    uint64_t count = word & 0xffff;
    if (count == 0)
        return;
    int code = (int)(word >> 16 & 0xffffff), rank = (int)(word >> 40) - 1;
    if (count > 1) {
        code /= (int)count; /* right if all failed alike, which is how disks fill up */
        if (code != ENOSPC && code != EDQUOT && code != EBADMSG && code != EDOM)
            code = EIO;
        snprintf(text, sizeof text, "%" PRIu64 " ranks failed: %s; their logs say why", count, strerror(code));
    } else {
        snprintf(text, sizeof text, "rank %d failed: %s; its log says why", rank, strerror(code));
    }
    kc_attempt_fail(s, code ? -code : -EIO, text);
}

void kc_agree_settle(struct kc_state *s)
{
    struct kc_attempt *a = &s->attempt;
    if (!a->pending)
        return;
    uint64_t given = s->store[1] >> 48, sum = s->store[1] & (GIVEN - 1);
    a->pending = false;
    a->own = a->error != 0;
    a->differ = a->stage == KC_STAGE_READ && sum != scattered(a->version) * given;
    if (s->store[0] >= WHOLE)
        s->copied = a->version;
    read_failures(s, s->store[0] % WHOLE);
    if (a->error)
        return;
    if (a->stage == KC_STAGE_BEGUN) {
        a->version = given ? sum / given : 0;
        if (!a->version)
            kc_attempt_fail(s, -EPROTO, "position 0 named no version: the program has no sum after begin");
    } else if (a->stage == KC_STAGE_WRITTEN) {
        a->bytes = sum;
    } else if (a->stage == KC_STAGE_READ && (!given || a->differ)) {
        kc_attempt_fail(s, -EAGAIN, "ranks chose different snapshots to restore");
    }
}

void kc_verb_root_part(struct kc_state *s)
{
    if (!s->attempt.pending)
        s->store[0] = s->store[1] = 0;
    for (uint32_t t = 0; t < s->map.tensors; t++)
        for (int k = 0; k < KC_KIND_COUNT; k++) {
            const struct kc_map_tensor *m = &s->map.tensor[t];
            const struct kc_range own = kc_map_counted(&s->map, m, (enum kc_kind)k);
            uint64_t *limb = s->store + 2 + 4 * ((size_t)t * KC_KIND_COUNT + (size_t)k);
            memset(limb, 0, 4 * sizeof *limb);
            if (own.lo < own.hi)
                kc_root_add_box(kc_root_key(m->name, (enum kc_kind)k), &m->region, own.lo,
                                kc_state_tensor(s, (enum kc_kind)k, t) + own.lo, own.hi - own.lo, limb);
        }
    s->root_part = true;
    s->root_known = false;
}

/* The root that the summed vector has the parts of. */
static int root_of(const struct kc_state *s, const struct kc_progress *progress, struct kc_digest *out)
{
    struct kc_root_tensor *t = calloc(s->map.tensors + 1u, sizeof *t);
    if (!t)
        return -ENOMEM;
    for (uint32_t i = 0; i < s->map.tensors; i++) {
        const struct kc_map_tensor *m = &s->map.tensor[i];
        t[i].name = m->name;
        t[i].shape = m->shape;
        memcpy(t[i].limb, s->store + 2 + 4 * (size_t)KC_KIND_COUNT * i, sizeof t[i].limb);
        for (int k = 0; k < KC_KIND_COUNT; k++)
            kc_root_normalise(t[i].limb[k]);
    }
    int r = kc_root_digest(t, s->map.tensors, progress, s->spec->seed, out);
    free(t);
    return r;
}

/* Of what a snapshot copied: a failure is the snapshot's. What it copied may be what the state still is. */
static void close_copied(struct kc_state *s)
{
    struct kc_attempt *a = &s->attempt;
    kc_agree_settle(s);
    s->root_part = false;
    a->aside = s->spec->keep_nonfinite && a->error == -EDOM;
    if (a->error && !a->aside)
        return;
    int r = root_of(s, &a->mark.progress, &a->root);
    if (r < 0) {
        kc_attempt_fail(s, r, "no memory for state_root");
        return;
    }
    a->root_known = true;
    if (!a->moved) {
        s->root = a->root;
        s->root_known = true;
    }
}

int kc_verb_root_close(struct kc_state *s, struct kc_error *e)
{
    if (!s->root_part)
        return kc_fail(e, -EINVAL, "the program closes state_root without its parts");
    if (s->attempt.stage == KC_STAGE_COPIED) {
        close_copied(s);
        return 0;
    }
    int r = root_of(s, &s->progress, &s->root);
    s->root_part = false;
    s->root_known = r == 0;
    return r < 0 ? kc_fail(e, r, "no memory for state_root") : 0;
}
