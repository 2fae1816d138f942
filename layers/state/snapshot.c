/* snapshot.c - the verbs of a snapshot: begin, mark, copied, write, written, commit, committed. Nothing here changes training
 * state, and no failure here is one of training: it is remembered, agreed on and told. */
#include "state_impl.h"

#include "coder.h"

#include "base/clock.h"
#include "base/finite.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Programs run their verbs in this order; one that comes at another time is of a program that is wrong. */
static int expect(const struct kc_state *s, enum kc_stage stage, const char *verb, struct kc_error *e)
{
    return s->attempt.stage == stage ? 0 : kc_fail(e, -EPROTO, "%s: the snapshot is at stage %d, not %d", verb,
                                                   (int)s->attempt.stage, (int)stage);
}

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
    if (s->durable && s->st->make_folder(s->st->self, s->directory) == -EEXIST)
        return 0;
    const int r = kc_catalog_make(s->st, s->directory, e);
    s->durable = r == 0;
    return r;
}

/* Position 0: a new version number, its folder, and the right to write here. Nothing is removed here, where all ranks wait: a
 * leftover keeps its number. */
static int begin(struct kc_state *s, struct kc_error *e)
{
    char tmp[4096];
    struct kc_attempt *a = &s->attempt;
    const uint64_t copies = s->copy ? kc_copy_highest(s->copy) : 0; /* no version ever stands for two states */
    struct kc_catalog c = {0};
    int r = make_directory(s, e);
    if (r == 0) {
        a->lock = kc_catalog_lock(s->st, s->directory);
        r = a->lock < 0 ? a->lock : 0;
        if (r == -EWOULDBLOCK)
            kc_fail(e, r, "somebody else writes snapshots to %s", s->directory);
        else if (r < 0)
            kc_storage_fail(s->st, e, r, "lock", s->directory, KC_PACK_ALIGN);
    }
    if (r == 0)
        r = kc_catalog_scan(s->st, s->directory, &c, e);
    if (r == 0) {
        a->version = (c.highest > copies ? c.highest : copies) + 1;
        kc_catalog_tmp_path(s->directory, a->version, tmp);
        r = s->st->make_folder(s->st->self, tmp);
        if (r < 0)
            kc_storage_fail(s->st, e, r, "make", tmp, KC_PACK_ALIGN);
    }
    kc_catalog_free(&c);
    return r;
}

/* Position 0 names it: a number that no copy in memory has either. */
int kc_verb_snapshot_begin(struct kc_state *s, struct kc_error *e)
{
    struct kc_error own = {""};
    int r = 0;
    if (s->attempt.stage > KC_STAGE_BEGUN && s->attempt.stage < KC_STAGE_READ)
        return kc_fail(e, -EBUSY, "the snapshot of step %" PRIu64 " is under way", s->attempt.step);
    unlock(s); /* of a program that was broken off */
    s->attempt = (struct kc_attempt){.stage = KC_STAGE_BEGUN, .lock = -1, .step = s->progress.step};
    if (!s->storage)
        r = kc_fail(&own, -ENOTSUP, "this run has no directory for snapshots");
    else if (s->rank == 0)
        r = begin(s, &own);
    if (r == 0 && s->rank == 0 && s->background)
        kc_background_take(s); /* before any rank writes into that slot: there is a sum between */
    if (r < 0)
        kc_attempt_fail(s, r, own.text);
    kc_agree_put(s, r, s->rank == 0 ? s->attempt.version : 0);
    return 0;
}

int kc_verb_snapshot_mark(struct kc_state *s, struct kc_error *e)
{
    struct kc_attempt *a = &s->attempt;
    int r = expect(s, KC_STAGE_BEGUN, "mark", e);
    if (r < 0)
        return r;
    kc_agree_settle(s);
    a->mark = (struct kc_mark){.progress = s->progress, .loss = s->loss, .grad_norm = s->grad_norm, .history = s->history};
    a->moved = false;
    a->stage = KC_STAGE_COPYING;
    if (s->background && !a->error) {
        if (s->rank != 0)
            kc_background_take(s);
        kc_background_mark(s);
    }
    return 0;
}

/* ---- what the stages do: beside the lanes, or where the verb stands if there is no room for a copy ---- */

static void start(struct kc_state *s, void (*work)(struct kc_state *s))
{
    const uint64_t from = kc_now();
    if (s->background) {
        kc_background_run(s, work);
    } else {
        work(s);
        s->attempt.write_ns += kc_now() - from;
    }
}

/* The work that the stage before started is done; its failure is this rank's. */
static void finish(struct kc_state *s)
{
    struct kc_attempt *a = &s->attempt;
    if (s->background)
        kc_background_wait(s->background);
    if (a->code < 0)
        kc_attempt_fail(s, a->code, a->said.text);
}

void kc_snapshot_settle(struct kc_state *s)
{
    if (s->background)
        kc_background_wait(s->background);
}

/* ---- copied ---- */

/* Without a copy what is saved is the state itself: it must be what it was. */
static int check_unmoved(const struct kc_state *s, struct kc_error *e)
{
    return s->attempt.moved ? kc_fail(e, -ESTALE, "training went on before the snapshot was written, and nothing kept a copy")
                            : 0;
}

/* A state that is to be kept aside is looked at before anything is written. */
static int check_finite(const struct kc_state *s, struct kc_error *e)
{
    for (uint32_t t = 0; t < s->map.tensors && s->spec->keep_nonfinite; t++)
        for (uint32_t k = 0; k < KC_KIND_COUNT; k++) {
            const struct kc_range own = kc_map_counted(&s->map, &s->map.tensor[t], (enum kc_kind)k);
            const struct kc_extent x = {.tensor = t, .kind = k, .lo = own.lo, .hi = own.hi};
            const int64_t bad = own.lo < own.hi ? kc_find_nonfinite(kc_state_tensor(s, (enum kc_kind)k, t) + own.lo, own.hi - own.lo)
                                                : -1;
            if (bad >= 0)
                return kc_snapshot_not_finite(s, &x, (uint64_t)bad, e);
        }
    return 0;
}

/* The root parts of what will be saved: taken with the copy, or now. */
static void root_parts(struct kc_state *s)
{
    struct kc_attempt *a = &s->attempt;
    struct kc_background *b = s->background;
    if (!b) {
        a->code = check_unmoved(s, &a->said);
        if (a->code == 0)
            a->code = check_finite(s, &a->said);
        kc_verb_root_part(s);
        return;
    }
    kc_background_wait(b);
    a->code = b->code;
    a->said = b->said;
    memcpy(s->store + 2, b->limb, (s->map.store_count - 2) * sizeof *s->store);
}

int kc_verb_snapshot_copied(struct kc_state *s, struct kc_error *e)
{
    struct kc_attempt *a = &s->attempt;
    int r = expect(s, KC_STAGE_COPYING, "copied", e);
    if (r < 0)
        return r;
    a->stage = KC_STAGE_COPIED;
    if (!a->error)
        root_parts(s);
    finish(s);
    s->root_part = true; /* of a snapshot that failed nobody reads them */
    kc_agree_put(s, a->error, 0);
    return 0;
}

/* ---- write ---- */

int kc_snapshot_not_finite(const struct kc_state *s, const struct kc_extent *x, uint64_t element, struct kc_error *e)
{
    uint64_t run;
    return kc_fail(e, -EDOM,
                   "%s of %s is not finite at element %" PRIu64 " after step %" PRIu64
                   "; such a state never replaces a snapshot",
                   kc_kind_name[x->kind], s->map.tensor[x->tensor].name,
                   kc_region_global(&s->map.tensor[x->tensor].region, x->lo + element, &run), s->attempt.step);
}

/* Of the state itself. */
static int live_source(void *arg, const struct kc_extent *x, const float **values, struct kc_error *e)
{
    const struct kc_state *s = arg;
    const float *v = kc_state_tensor(s, (enum kc_kind)x->kind, x->tensor) + x->lo;
    int64_t bad = s->attempt.aside ? -1 : kc_find_nonfinite(v, x->hi - x->lo);
    if (bad >= 0)
        return kc_snapshot_not_finite(s, x, (uint64_t)bad, e);
    *values = v;
    return 0;
}

/* Of the copy, which was looked at when it was made. `file` is the pack on disk, whose extents have places of their own. */
struct copied {
    const struct kc_background *from;
    const struct kc_pack *file;
};

static int copied_source(void *arg, const struct kc_extent *x, const float **values, struct kc_error *e)
{
    const struct copied *c = arg;
    if (atomic_load(&c->from->stop))
        return kc_fail(e, -ECANCELED, "the rank ends");
    *values = (const float *)(const void *)(c->from->image + c->from->pack.extent[x - c->file->extent].offset);
    return 0;
}

static int write_from(struct kc_state *s, struct kc_pack *pack, kc_pack_source *source, void *arg, struct kc_error *e)
{
    char tmp[4096], path[4096 + 32];
    struct kc_increment before;
    const struct kc_pack_head head = {s->rank, s->shard->ranks, s->attempt.version, s->attempt.step};
    kc_catalog_tmp_path(s->directory, s->attempt.version, tmp);
    kc_catalog_pack_path(tmp, s->rank, path, sizeof path);
    const bool leans = !s->attempt.aside && kc_increment_of(s, &before);
    const uint32_t slot = leans && s->background ? kc_copy_find(s->copy, before.version) : KC_COPY_SLOTS;
    if (slot != KC_COPY_SLOTS && slot != s->background->slot)
        before.image = kc_copy_pack(s->copy, slot); /* nobody takes it before this one is whole */
    pack->meter = &s->meter;
    kc_meter_begin(&s->meter, 2 * kc_pack_values(pack));
    int r = kc_pack_write(s->st, path, &head, pack, source, arg, leans ? &before : NULL, s->coder, e);
    s->attempt.written = pack->bytes;
    if (r == 0 && !s->attempt.aside)
        kc_increment_written(s, pack);
    return r;
}

static void write_live(struct kc_state *s)
{
    struct kc_attempt *a = &s->attempt;
    struct kc_pack pack = {.fd = -1};
    if ((a->code = check_unmoved(s, &a->said)) < 0)
        return;
    a->code = kc_pack_plan(&s->map, &pack) < 0 ? kc_fail(&a->said, -ENOMEM, "no memory for the index of a snapshot")
                                               : write_from(s, &pack, live_source, s, &a->said);
    kc_pack_free(s->st, &pack);
}

/* Position 0, when all packs of the copy are complete: from here on it is whole. */
static int commit_copy(struct kc_state *s, struct kc_error *e)
{
    struct kc_copies *all;
    struct kc_manifest m = {.tensors = 0};
    int r = kc_copies_open_plan(s->copy_fd, s->shard->ranks, &s->shard->head.digest, &all, e);
    if (r < 0)
        return r;
    r = kc_snapshot_manifest(s, &m) < 0 ? kc_fail(e, -ENOMEM, "no memory for a manifest")
                                        : kc_copies_commit(all, s->copy, &m, e);
    kc_manifest_free(&m);
    kc_copies_free(all);
    return r;
}

static void write_copy(struct kc_state *s)
{
    struct kc_attempt *a = &s->attempt;
    const struct kc_background *b = s->background;
    struct kc_pack file = {.fd = -1};
    struct kc_error why = {""};
    const bool commits = s->rank == 0 && !a->aside;
    const int r = commits ? commit_copy(s, &why) : 0;
    if (r == -ENOSPC || r == -ENOMEM) { /* then there is none: the one on disk does not need it */
        snprintf(a->note, sizeof a->note, "no copy in memory: %.400s", why.text);
    } else if (r < 0) {
        a->code = kc_fail(&a->said, r, "the copy in memory: %s", why.text);
        return;
    }
    a->whole = commits && r == 0;
    if (kc_pack_plan(&s->map, &file) < 0) {
        a->code = kc_fail(&a->said, -ENOMEM, "no memory for the index of a snapshot");
        return;
    }
    memcpy(file.extent, b->pack.extent, file.count * sizeof *file.extent);
    file.digested = true;
    a->code = write_from(s, &file, copied_source, &(struct copied){b, &file}, &a->said);
    kc_pack_free(s->st, &file);
}

int kc_verb_snapshot_write(struct kc_state *s, struct kc_error *e)
{
    int r = expect(s, KC_STAGE_COPIED, "write", e);
    if (r < 0)
        return r;
    kc_agree_settle(s);
    s->attempt.stage = KC_STAGE_WRITING;
    if (!s->attempt.error || s->attempt.aside)
        start(s, s->background ? write_copy : write_live);
    return 0;
}

int kc_verb_snapshot_written(struct kc_state *s, struct kc_error *e)
{
    struct kc_attempt *a = &s->attempt;
    int r = expect(s, KC_STAGE_WRITING, "written", e);
    if (r < 0)
        return r;
    finish(s);
    a->stage = KC_STAGE_WRITTEN;
    kc_agree_put(s, a->error, a->error ? 0 : a->written);
    return 0;
}

/* ---- commit ---- */

/* At position 0. */
static void commit(struct kc_state *s)
{
    struct kc_attempt *a = &s->attempt;
    if (!a->error)
        a->code = kc_snapshot_commit(s, &a->said);
    if (a->aside)
        kc_snapshot_end_aside(s);
    else if (a->error || a->code < 0)
        kc_snapshot_discard(s);
    if (a->lock >= 0)
        kc_catalog_clean(s->st, s->directory); /* what cannot be removed now is tried again next time */
    unlock(s);
}

int kc_verb_snapshot_commit(struct kc_state *s, struct kc_error *e)
{
    struct kc_attempt *a = &s->attempt;
    int r = expect(s, KC_STAGE_WRITTEN, "commit", e);
    if (r < 0)
        return r;
    kc_agree_settle(s);
    a->stage = KC_STAGE_COMMITTING;
    kc_meter_end(&s->meter);
    if (!a->error && !a->root_known)
        kc_attempt_fail(s, -EINVAL, "the program commits a snapshot without its state_root");
    if (s->rank == 0 && s->storage)
        start(s, commit);
    return 0;
}

int kc_verb_snapshot_committed(struct kc_state *s, struct kc_error *e)
{
    int r = expect(s, KC_STAGE_COMMITTING, "committed", e);
    if (r < 0)
        return r;
    finish(s);
    s->attempt.stage = KC_STAGE_COMMITTED;
    kc_agree_put(s, s->attempt.error, 0);
    return 0;
}

/* Of the values of all ranks. */
static uint64_t raw_bytes(const struct kc_map *m)
{
    uint64_t elements = 0;
    for (uint32_t t = 0; t < m->tensors; t++)
        elements += m->tensor[t].total * (m->bucket[m->tensor[t].bucket].frozen ? 1 : KC_KIND_COUNT);
    return elements * sizeof(float);
}

/* After the last sum: what all ranks now know. */
static void conclude(struct kc_state *s)
{
    const struct kc_attempt *a = &s->attempt;
    uint64_t failures = s->last.failures;
    struct kc_increment before;
    struct kc_snapshot_info *i = &s->last;
    *i = (struct kc_snapshot_info){.version = a->version, .step = a->step, .bytes = a->bytes, .error = a->error,
                                   .stall_seconds = (double)a->stall * 1e-9, .raw_bytes = raw_bytes(&s->map),
                                   .parent = kc_increment_of(s, &before) ? before.version : 0, .pack_bytes = a->written,
                                   .copy_seconds = NAN, .write_seconds = (double)a->write_ns * 1e-9,
                                   .disk_rate = s->coder ? kc_codec_rate_device(&s->coder->rate[KC_MASTER]) : NAN};
    if (s->background)
        kc_background_tell(s->background, i);
    if (a->version)
        kc_catalog_path(s->directory, a->version, i->path);
    if (a->error) {
        i->failures = failures + 1;
        i->bytes = i->parent = 0;
        snprintf(i->reason, sizeof i->reason, "snapshot at step %" PRIu64 " failed: %.*s%s%.*s", a->step, 360, a->reason,
                 a->note[0] ? "; " : "", 80, a->note);
    } else {
        i->verified = true;
        kc_digest_text(a->root, i->state_root);
        snprintf(i->reason, sizeof i->reason, "%s", a->note);
    }
    kc_increment_concluded(s);
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

bool kc_state_idle(const struct kc_state *s)
{
    return !s->background || kc_background_idle(s->background);
}

bool kc_state_background(const struct kc_state *s)
{
    return s->background != NULL;
}
