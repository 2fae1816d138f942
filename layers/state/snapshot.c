/* snapshot.c - writes a snapshot: begin, write, commit. Nothing here changes training state, and no failure here is
 * one of training: it is remembered, agreed on and told. */
#include "state_impl.h"

#include "base/clock.h"
#include "base/finite.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- begin ---- */

static void unlock(struct kc_state *s)
{
    if (s->attempt.lock >= 0)
        s->st->close(s->st->self, s->attempt.lock);
    s->attempt.lock = -1;
}

/* Its own entry is made durable once by every process: who made it may have been killed before. */
static int make_directory(struct kc_state *s, struct kc_error *e)
{
    char parent[sizeof s->directory];
    int r = s->st->make_folder(s->st->self, s->directory);
    if (r == -EEXIST && s->durable)
        return 0;
    snprintf(parent, sizeof parent, "%s", s->directory);
    char *slash = strrchr(parent, '/');
    if (slash)
        *slash = 0;
    if (r == 0 || r == -EEXIST)
        r = s->st->sync_folder(s->st->self, !slash ? "." : parent[0] ? parent : "/");
    s->durable = r == 0;
    return r < 0 ? kc_storage_fail(s->st, e, r, "make", s->directory, KC_PACK_ALIGN) : 0;
}

/* Position 0: a new version number, its folder, and the right to write here. */
static int begin(struct kc_state *s, struct kc_error *e)
{
    char tmp[4096];
    struct kc_attempt *a = &s->attempt;
    struct kc_catalog *c = malloc(sizeof *c);
    int r = c ? make_directory(s, e) : kc_fail(e, -ENOMEM, "no memory for the list of snapshots");
    if (r == 0) {
        a->lock = kc_catalog_lock(s->st, s->directory);
        r = a->lock < 0 ? a->lock : 0;
        if (r == -EWOULDBLOCK)
            kc_fail(e, r, "somebody else writes snapshots to %s", s->directory);
        else if (r < 0)
            kc_storage_fail(s->st, e, r, "lock", s->directory, KC_PACK_ALIGN);
    }
    if (r == 0) {
        kc_catalog_clean(s->st, s->directory); /* what cannot be removed now is tried again next time */
        r = kc_catalog_scan(s->st, s->directory, c, e);
    }
    if (r == 0) {
        a->version = c->highest + 1;
        kc_catalog_tmp_path(s->directory, a->version, tmp);
        r = s->st->make_folder(s->st->self, tmp);
        if (r < 0)
            kc_storage_fail(s->st, e, r, "make", tmp, KC_PACK_ALIGN);
    }
    free(c);
    return r;
}

void kc_verb_snapshot_begin(struct kc_state *s)
{
    struct kc_error e = {""};
    int r = 0;
    unlock(s); /* of a program that was broken off */
    s->attempt = (struct kc_attempt){.stage = KC_STAGE_BEGUN, .lock = -1, .step = s->progress.step};
    if (!s->storage)
        r = kc_fail(&e, -ENOTSUP, "this run has no directory for snapshots");
    else if (s->rank == 0)
        r = begin(s, &e);
    if (r < 0)
        kc_attempt_fail(s, r, e.text);
    kc_agree_put(s, r, s->rank == 0 ? s->attempt.version : 0);
}

/* ---- write ---- */

static int source(void *arg, const struct kc_extent *x, const float **values, struct kc_error *e)
{
    const struct kc_state *s = arg;
    const float *v = kc_state_tensor(s, (enum kc_kind)x->kind, x->tensor) + x->lo;
    int64_t bad = kc_find_nonfinite(v, x->hi - x->lo);
    uint64_t run;
    if (bad >= 0)
        return kc_fail(e, -EDOM,
                       "%s of %s is not finite at element %" PRIu64 " after step %" PRIu64
                       "; such a state never replaces a snapshot",
                       kc_kind_name[x->kind], s->map.tensor[x->tensor].name, kc_region_global(&s->map.tensor[x->tensor].region, x->lo + (uint64_t)bad, &run),
                       s->progress.step);
    *values = v;
    return 0;
}

static int write_pack(struct kc_state *s, uint64_t *bytes, struct kc_error *e)
{
    char tmp[4096], path[4096 + 32];
    struct kc_pack pack;
    const struct kc_pack_head head = {s->rank, s->shard->ranks, s->attempt.version, s->progress.step};
    if (kc_pack_plan(&s->map, &pack) < 0)
        return kc_fail(e, -ENOMEM, "no memory for the index of a snapshot");
    kc_catalog_tmp_path(s->directory, s->attempt.version, tmp);
    kc_catalog_pack_path(tmp, s->rank, path, sizeof path);
    int r = kc_pack_write(s->st, path, &head, &pack, source, s, e);
    *bytes = pack.bytes;
    kc_pack_free(s->st, &pack);
    return r;
}

void kc_verb_snapshot_write(struct kc_state *s)
{
    struct kc_attempt *a = &s->attempt;
    struct kc_error e = {""};
    uint64_t bytes = 0;
    kc_agree_settle(s);
    int r = a->error;
    if (!r && (r = write_pack(s, &bytes, &e)) < 0)
        kc_attempt_fail(s, r, e.text);
    a->stage = KC_STAGE_WRITTEN;
    kc_agree_put(s, r, r < 0 ? 0 : bytes);
}

/* ---- commit ---- */

static int fill_manifest(const struct kc_state *s, struct kc_manifest *m)
{
    m->version = s->attempt.version;
    m->seed = s->spec->seed;
    m->progress = s->progress;
    m->loss = s->loss;
    m->grad_norm = s->grad_norm;
    m->root = s->root;
    m->spec = s->spec->head.digest;
    m->ranks = m->packs = s->shard->ranks;
    m->zero = s->shard->zero;
    memcpy(m->axis, s->shard->axis, sizeof m->axis);
    kc_model_numbers(s->spec, &m->model);
    m->precision = (enum kc_precision)s->spec->precision;
    m->history = s->history;
    snprintf(m->variant, sizeof m->variant, "%s", s->variant);
    snprintf(m->plan, sizeof m->plan, "%s", s->plan);
    kc_wall_text(kc_wall(), m->written);
    return kc_manifest_tensors(m, &s->map);
}

/* The order is the protocol: packs proven, manifest, rename, pointer, each durable before the next; then the old may
 * go. */
static int commit(struct kc_state *s, struct kc_error *e)
{
    char tmp[4096], path[4096];
    struct kc_manifest again = {.tensors = 0};
    struct kc_whole *w = calloc(1, sizeof *w);
    kc_catalog_tmp_path(s->directory, s->attempt.version, tmp);
    kc_catalog_path(s->directory, s->attempt.version, path);
    for (int i = 0; w && i < KC_RANKS_MAX; i++)
        w->pack[i].fd = -1;
    int r = w && fill_manifest(s, &w->manifest) == 0 ? 0 : kc_fail(e, -ENOMEM, "no memory for a manifest");
    if (r == 0)
        r = kc_whole_packs(s->st, tmp, w, true, e);
    if (r == 0)
        r = kc_manifest_write(s->st, tmp, &w->manifest, e);
    if (r == 0)
        r = kc_manifest_read(s->st, tmp, &again, e);
    bool renamed = false;
    if (r == 0 &&
        ((r = s->st->sync_folder(s->st->self, tmp)) < 0 || (r = s->st->rename(s->st->self, tmp, path)) < 0 ||
         (renamed = true, r = s->st->sync_folder(s->st->self, s->directory)) < 0))
        kc_storage_fail(s->st, e, r, "commit", path, KC_PACK_ALIGN);
    if (r == 0)
        r = kc_catalog_point(s->st, s->directory, s->attempt.version, e);
    if (r < 0 && renamed) /* it has its name, but whether that lasts is not known: nobody may choose it */
        kc_catalog_mark_broken(s->st, path, e->text);
    kc_manifest_free(&again);
    kc_whole_free(s->st, w);
    return r;
}

static void prune(struct kc_state *s)
{
    struct kc_error e = {""};
    struct kc_catalog *old = malloc(sizeof *old);
    int r = old ? kc_catalog_old(s->st, s->directory, s->spec->snapshot_keep, s->spec->snapshot_keep_every, old, &e)
                : kc_fail(&e, -ENOMEM, "no memory for the list of snapshots");
    if (r == 0)
        r = kc_catalog_remove(s->st, s->directory, old, &e);
    free(old);
    if (r < 0) /* it is committed all the same */
        snprintf(s->attempt.note, sizeof s->attempt.note, "old snapshots stay: %.*s", 400, e.text);
}

static void discard(struct kc_state *s)
{
    char tmp[4096];
    kc_catalog_tmp_path(s->directory, s->attempt.version, tmp);
    if (s->attempt.version)
        kc_storage_remove_tree(s->st, tmp); /* what stays is removed before the next one begins */
}

void kc_verb_snapshot_commit(struct kc_state *s)
{
    struct kc_attempt *a = &s->attempt;
    struct kc_error e = {""};
    kc_agree_settle(s);
    int r = a->error;
    if (!r && s->root_part)
        r = kc_verb_root_close(s, &e);
    if (!r && !s->root_known)
        r = kc_fail(&e, -EINVAL, "the program commits a snapshot without its state_root");
    if (!r && s->rank == 0)
        r = commit(s, &e);
    if (r < 0)
        kc_attempt_fail(s, r, e.text);
    if (s->rank == 0 && s->storage) {
        if (r == 0)
            prune(s);
        else
            discard(s);
        unlock(s);
    }
    a->stage = KC_STAGE_COMMITTED;
    kc_agree_put(s, r, 0);
}

/* After the last sum: what all ranks now know. */
static void conclude(struct kc_state *s)
{
    const struct kc_attempt *a = &s->attempt;
    uint64_t failures = s->last.failures;
    struct kc_snapshot_info *i = &s->last;
    *i = (struct kc_snapshot_info){.version = a->version, .step = a->step, .bytes = a->bytes, .error = a->error};
    if (a->version)
        kc_catalog_path(s->directory, a->version, i->path);
    if (a->error) {
        i->failures = failures + 1;
        i->bytes = 0;
        snprintf(i->reason, sizeof i->reason, "snapshot at step %" PRIu64 " failed: %.*s", a->step, 440, a->reason);
    } else {
        i->verified = true;
        kc_digest_text(s->root, i->state_root);
        snprintf(i->reason, sizeof i->reason, "%s", a->note);
    }
}

int kc_verb_store_agree(struct kc_state *s, struct kc_error *e)
{
    struct kc_attempt *a = &s->attempt;
    kc_agree_settle(s);
    if (a->stage == KC_STAGE_READ)
        return a->error ? kc_restore_failed(s, e) : 0;
    if (a->stage == KC_STAGE_COMMITTED) {
        conclude(s);
        a->stage = KC_STAGE_IDLE;
    }
    return 0;
}

void kc_state_last_snapshot(const struct kc_state *s, struct kc_snapshot_info *out)
{
    *out = s->last;
}
