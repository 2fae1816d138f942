/* copy_rig.c - see copy_rig.h. Values come from rig_value(), not from a state. */
#include "copy_rig.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

bool copy_rig_wrong;
uint32_t copy_rig_poisoned;

void copy_rig_open(const struct rig *r, int fds[RIG_RANKS])
{
    for (uint32_t i = 0; i < r->ranks; i++) {
        char name[32];
        snprintf(name, sizeof name, "kc-copy.rig.%u", i);
        fds[i] = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
        ck_assert_int_ge(fds[i], 0);
    }
}

void copy_rig_close(const struct rig *r, int fds[RIG_RANKS])
{
    for (uint32_t i = 0; i < r->ranks; i++)
        close(fds[i]);
}

struct kc_copy_shape copy_rig_shape(const struct rig *r, uint32_t rank)
{
    struct kc_copy_shape s;
    struct kc_map m;
    ck_assert_int_eq(kc_map_new(r->plan, rank, &m, NULL), 0);
    ck_assert_int_eq(kc_copy_shape_of(&m, r->plan, rank, 2, &s), 0);
    kc_map_free(&m);
    return s;
}

static uint64_t fill_values(const struct kc_map *m, unsigned char *to, struct kc_pack *p, uint64_t step)
{
    for (uint32_t i = 0; i < p->count; i++) {
        struct kc_extent *x = &p->extent[i];
        float *values = (float *)(void *)(to + x->offset);
        for (uint64_t k = x->lo; k < x->hi; k++) {
            uint64_t run;
            values[k - x->lo] =
                rig_value(x->tensor, (int)x->kind, kc_region_global(&m->tensor[x->tensor].region, k, &run), step - 1);
        }
        if (copy_rig_wrong && i == 0)
            values[0]++;
        for (uint32_t k = 0; k < copy_rig_poisoned && i == 0; k++)
            values[k] = k % 2 ? -INFINITY : NAN;
        x->digest = kc_digest(values, kc_extent_bytes(x));
    }
    const struct kc_pack_head head = p->head;
    kc_pack_seal(p, &head, to);
    return p->bytes;
}

static void fill_rank(struct rig *r, uint32_t rank, struct kc_copy *c, uint64_t version, uint64_t keep,
                      enum copy_rig_until until)
{
    struct kc_map m;
    struct kc_pack p;
    const uint64_t step = rig_step(r, rank);
    const uint32_t slot = kc_copy_begin(c, version, step, keep);
    ck_assert_int_eq(kc_map_new(r->plan, rank, &m, NULL), 0);
    ck_assert_int_eq(kc_pack_plan(&m, &p), 0);
    p.head = (struct kc_pack_head){rank, r->ranks, version, step};
    const uint64_t bytes = fill_values(&m, kc_copy_pack(c, slot), &p, step);
    if (until != COPY_RIG_BEGUN)
        kc_copy_seal(c, slot, bytes);
    kc_pack_free(&kc_storage_posix, &p);
    kc_map_free(&m);
}

static int commit(struct rig *r, const int fds[RIG_RANKS], struct kc_copy *own, uint64_t version, struct kc_error *e)
{
    struct kc_manifest m = {.version = version, .seed = r->spec->seed, .loss = 1, .grad_norm = 1.5,
        .ranks = r->ranks, .packs = r->ranks, .zero = r->plan->zero, .history.stride = 1,
        .precision = (enum kc_precision)r->spec->precision, .variant = "portable", .written = "2026-01-01T00:00:00Z"};
    struct kc_map map;
    struct kc_copies *all;
    char root[33];
    rig_root(r, root);
    ck_assert_int_eq(kc_digest_parse(root, &m.root), 0);
    kc_state_progress(r->state[0], &m.progress);
    memcpy(m.axis, r->plan->axis, sizeof m.axis);
    snprintf(m.plan, sizeof m.plan, "%s", rig_plan_text);
    ck_assert_int_eq(kc_map_new(r->plan, 0, &map, NULL), 0);
    ck_assert_int_eq(kc_manifest_tensors(&m, &map), 0);
    kc_map_free(&map);
    int code = kc_copies_open_plan(fds, r->ranks, &r->plan->head.digest, &all, e);
    if (code == 0) {
        code = kc_copies_commit(all, own, &m, e);
        kc_copies_free(all);
    }
    kc_manifest_free(&m);
    return code;
}

int copy_rig_fill(struct rig *r, const int fds[RIG_RANKS], uint64_t version, uint64_t keep, enum copy_rig_until until,
                  struct kc_error *e)
{
    struct kc_copy *own[RIG_RANKS];
    int code = 0;
    for (uint32_t i = 0; i < r->ranks; i++) {
        const struct kc_copy_shape shape = copy_rig_shape(r, i);
        ck_assert_msg(kc_copy_make(fds[i], &shape, 0, &own[i], e) == 0, "%s", e->text);
        fill_rank(r, i, own[i], version, keep, until);
    }
    if (until == COPY_RIG_WHOLE)
        code = commit(r, fds, own[0], version, e);
    for (uint32_t i = 0; i < r->ranks; i++)
        kc_copy_free(own[i]);
    return code;
}

int copy_rig_newest(const struct rig *r, const int fds[RIG_RANKS], char line[1024])
{
    struct kc_copies *c;
    struct kc_whole *w;
    struct kc_error e = {""};
    char why[512] = "";
    int code = kc_copies_open(fds, r->ranks, &c, &e);
    if (code == 0) {
        code = kc_copies_whole(c, 0, why, sizeof why, &w, &e);
        if (code == 0) {
            code = (int)w->manifest.version;
            kc_whole_free(kc_copies_storage(c), w);
        }
        kc_copies_free(c);
    }
    snprintf(line, 1024, "%.500s%.500s", why, e.text);
    ck_assert_msg(!strchr(line, '\n'), "%s", line);
    return code;
}

void copy_rig_flip(const int fds[RIG_RANKS], uint32_t rank, uint64_t at)
{
    unsigned char byte;
    ck_assert_int_eq(pread(fds[rank], &byte, 1, (off_t)at), 1);
    byte ^= 0x40;
    ck_assert_int_eq(pwrite(fds[rank], &byte, 1, (off_t)at), 1);
}
