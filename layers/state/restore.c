/* restore.c - chooses a snapshot and reads it. A choice is a function of what the directory holds, so that all ranks
 * choose the same without a word; that they did is compared in the program's first sum. */
#include "adapters.h"
#include "state_impl.h"

#include "base/print.h"
#include "shm/probe.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What another version is tried for. A failed read may be gone the next time, so it leaves no mark. */
/* `path`: of the version that is damaged, which may be one that another leans on. */
static void mark(struct kc_state *s, const struct kc_storage *st, const char *path, const char *why)
{
    const char *name = strrchr(path, '/');
    kc_catalog_mark_broken(st, path, why);
    if (s->rank == 0)
        kc_probe_event(s->probe, KC_EVENT_SNAPSHOT_BROKEN, kc_catalog_version(name ? name + 1 : path), 0, why);
}

int kc_restore_failed(struct kc_state *s, struct kc_error *e)
{
    const struct kc_attempt *a = &s->attempt;
    /* A rank that chose after another had met damage and left its mark reads an older version, which is not to blame. */
    const bool blamed = a->own || !a->differ;
    const bool on_disk = s->chosen_st == s->st; /* in memory a mark always lasts */
    if (blamed && on_disk && (kc_catalog_passes(a->error) || a->error == -EBADE))
        s->damaged[s->damages++ % KC_DAMAGED_KEPT] = a->version;
    return kc_fail(e, a->error, "restore: %s", a->reason);
}

static bool is_known_damaged(const struct kc_state *s, uint64_t version)
{
    bool known = false;
    for (uint32_t i = 0; i < s->damages && i < KC_DAMAGED_KEPT; i++)
        known |= s->damaged[i] == version;
    return known;
}

/* Moments of what was frozen are not there, and of what is frozen now they would be lost. */
static int check_frozen(const struct kc_state *s, const struct kc_whole *w, const uint32_t *where, struct kc_error *e)
{
    for (uint32_t i = 0; i < w->manifest.tensors; i++) {
        const struct kc_manifest_tensor *t = &w->manifest.tensor[i];
        const bool frozen = s->map.bucket[s->map.tensor[where[i]].bucket].frozen;
        if (t->frozen != frozen)
            return kc_fail(e, -EINVAL,
                           "%s: %s was %s, and by the spec's freeze it is %s now. Set freeze back, or take only its values "
                           "with model.init.from",
                           w->path, t->name, t->frozen ? "frozen" : "trained", frozen ? "frozen" : "trained");
    }
    return 0;
}

int kc_restore_fits(const struct kc_state *s, const struct kc_whole *w, struct kc_error *e)
{
    uint32_t *where;
    int r = kc_adapters_check(s, &w->manifest, false, e);
    if (r < 0)
        return kc_fail_prefix(e, r, "%.200s", w->path);
    r = kc_values_match(s, &w->manifest, &where, e);
    if (r < 0)
        return kc_fail_prefix(e, r, "%.200s", w->path);
    r = check_frozen(s, w, where, e);
    free(where);
    if (r < 0)
        return r;
    if (w->manifest.seed != s->spec->seed)
        return kc_fail(e, -EINVAL,
                       "%s was trained with seed %" PRIu64 ", the spec says %" PRIu64 ": the order of the data would "
                       "change. Set seed back, or take only its values with model.init.from",
                       w->path, w->manifest.seed, s->spec->seed);
    return 0;
}

/* Newest first (or that one) until one is whole. `notes` collects what was passed over. */
static int choose(struct kc_state *s, const struct kc_catalog *c, uint64_t version, struct kc_print *notes,
                  struct kc_whole **out, struct kc_error *e)
{
    uint32_t seen = 0;
    for (uint32_t i = c->count; i-- > 0;) {
        char path[4096];
        bool own = false;
        if (version && c->version[i] != version)
            continue;
        seen++;
        kc_catalog_path(s->directory, c->version[i], path);
        const bool known = is_known_damaged(s, c->version[i]); /* then what is damaged has its mark, if one could be made */
        int r = known ? kc_fail(e, -EBADMSG, "%s was found damaged by a restore", path)
                      : kc_whole_open_blame(s->st, path, out, &own, e);
        if (r == 0)
            return kc_restore_fits(s, *out, e);
        if (!kc_catalog_passes(r))
            return r;
        if (own && r == -EBADMSG) /* what it leans on is marked when it is tried itself */
            mark(s, s->st, path, e->text);
        kc_print(notes, "%spassed over v%08" PRIu64 ": %s", notes->length ? "; " : "", c->version[i], e->text);
        if (version)
            return -EBADMSG;
    }
    if (seen)
        return kc_fail(e, -EBADMSG, "none of the %u snapshot%s in %s is whole; %s", seen, kc_plural(seen), s->directory, notes->out);
    return version ? kc_fail(e, -ENOENT, "%s has no snapshot v%08" PRIu64, s->directory, version)
                   : kc_fail(e, -ENOENT, "%s has no snapshot", s->directory);
}

/* Position 0 removes what dead attempts left; if somebody else holds the lock, it is not dead. */
static void tidy(struct kc_state *s)
{
    int lock = s->rank == 0 ? kc_catalog_lock(s->st, s->directory) : -1;
    if (lock < 0)
        return;
    kc_catalog_clean(s->st, s->directory);
    s->st->close(s->st->self, lock);
}

bool kc_restore_bits_change(const struct kc_state *s, const struct kc_manifest *m, struct kc_print *notes)
{
    const size_t before = notes->length;
    const char *precision = kc_precision_name[s->spec->precision], *wrote = kc_precision_name[m->precision];
    if (m->precision != s->spec->precision) {
        kc_print(notes, "%swritten in %s, this run is in %s: bits will change", before ? "; " : "", wrote, precision);
        return true;
    }
    if (strcmp(m->variant, s->variant) != 0)
        kc_print(notes, "%swritten with %s kernels, this run has %s: bits will change", before ? "; " : "", m->variant,
                 s->variant);
    if (m->plan[0] && s->plan[0] && strcmp(m->plan, s->plan) != 0 && m->zero == s->shard->zero &&
        memcmp(m->axis, s->shard->axis, sizeof m->axis) == 0)
        kc_print(notes, "%swritten with the plan %s, this run has %s: bits will change", notes->length ? "; " : "",
                 m->plan, s->plan);
    return notes->length > before;
}

/* The newest version on disk, or that one; *out NULL on failure. */
static int choose_on_disk(struct kc_state *s, uint64_t version, struct kc_print *notes, struct kc_whole **out,
                          struct kc_error *e)
{
    struct kc_catalog c = {0};
    int r = kc_catalog_scan(s->st, s->directory, &c, e);
    if (r == 0 && c.highest)
        tidy(s);
    if (r == 0)
        r = choose(s, &c, version, notes, out, e);
    kc_catalog_free(&c);
    if (r < 0) {
        kc_whole_free(s->st, *out);
        *out = NULL;
    }
    return r;
}

/* The newest whole copy in memory (or that one), read through `copies`; NULL if there is none. What was found damaged is told.
 * Where it is not known whether there is one this rank fails: it would choose otherwise than its peers. */
static int choose_in_memory(struct kc_state *s, uint64_t version, struct kc_print *notes, struct kc_copies **copies,
                            struct kc_whole **out, struct kc_error *e)
{
    struct kc_error own = {""};
    char why[400] = "";
    int r = kc_copies_open_plan(s->copy_fd, s->shard->ranks, &s->shard->head.digest, copies, &own);
    if (r == -EBADMSG)
        snprintf(why, sizeof why, "passed over the copies in memory: %.300s", own.text);
    if (r == 0)
        r = kc_copies_whole(*copies, version, why, sizeof why, out, &own);
    if (r == 0 && kc_restore_fits(s, *out, &own) < 0) {
        snprintf(why, sizeof why, "passed over the copy in memory: %.300s", own.text);
        kc_whole_free(kc_copies_storage(*copies), *out);
        *out = NULL;
    }
    if (why[0])
        kc_print(notes, "%s%s", notes->length ? "; " : "", why);
    return r < 0 && r != -ENOENT && r != -EBADMSG ? kc_fail(e, r, "%s", own.text) : 0;
}

static void forget_chosen(struct kc_state *s)
{
    kc_whole_free(s->chosen_st, s->chosen);
    kc_copies_free(s->copies);
    s->chosen = NULL;
    s->copies = NULL;
    s->chosen_st = s->st;
}

/* One is the other, written: whoever has the one needs to save nothing. */
static bool same_state(const struct kc_whole *a, const struct kc_whole *b)
{
    return a->manifest.version == b->manifest.version && a->manifest.progress.step == b->manifest.progress.step &&
           kc_digest_equal(a->manifest.root, b->manifest.root);
}

/* Age is the version's number: after a rollback two states may be of one step. Of the same number the one in memory: nothing is
 * faster. */
static bool is_before(const struct kc_manifest *disk, const struct kc_manifest *copy)
{
    return disk->version != copy->version ? disk->version < copy->version : disk->progress.step <= copy->progress.step;
}

int kc_state_choose(struct kc_state *s, uint64_t version, struct kc_snapshot_info *out, struct kc_error *e)
{
    bool saved = false;
    char notes[sizeof out->reason] = "";
    struct kc_print p = {.out = notes, .room = sizeof notes};
    struct kc_error local = {""};
    struct kc_whole *w = NULL, *copy = NULL;
    struct kc_copies *copies = NULL;
    e = e ? e : &local;
    if (!s->storage)
        return kc_fail(e, -ENOENT, "this run has no directory for snapshots");
    kc_snapshot_settle(s);
    forget_chosen(s);
    struct kc_error why = {""};
    int r = choose_on_disk(s, version, &p, &w, e);
    const int unknown = s->copy ? choose_in_memory(s, version, &p, &copies, &copy, &why) : 0;
    if (unknown < 0) {
        kc_whole_free(s->st, w);
        kc_copies_free(copies);
        return kc_fail(e, unknown, "%s", why.text);
    }
    if (copy && (r < 0 || is_before(&w->manifest, &copy->manifest))) { /* also where the disk says nothing any more */
        saved = r == 0 && same_state(copy, w);
        kc_whole_free(s->st, w);
        s->chosen = copy;
        s->copies = copies;
        s->chosen_st = kc_copies_storage(copies);
    } else {
        if (copy)
            kc_whole_free(kc_copies_storage(copies), copy);
        kc_copies_free(copies);
        if (r < 0)
            return r;
        s->chosen = w;
        s->chosen_st = s->st;
    }
    const bool bits_change = kc_restore_bits_change(s, &s->chosen->manifest, &p);
    kc_snapshot_describe(s->chosen, out);
    snprintf(out->reason, sizeof out->reason, "%s", notes);
    out->bits_change = bits_change;
    out->memory = s->copies != NULL;
    out->saved = saved;
    return 0;
}

static void doubt_copies(struct kc_state *s, uint64_t step, const char *why)
{
    struct kc_copies *copies;
    struct kc_error e;
    uint64_t version[KC_COPY_SLOTS];
    char path[4096];
    if (!s->copy || kc_copies_open_plan(s->copy_fd, s->shard->ranks, &s->shard->head.digest, &copies, &e) < 0)
        return;
    for (uint32_t i = 0, n = kc_copies_versions(copies, version); i < n; i++) {
        struct kc_whole *w = NULL;
        kc_catalog_path(KC_COPY_DIRECTORY, version[i], path);
        if (kc_copies_whole(copies, version[i], NULL, 0, &w, &e) == 0 && w->manifest.progress.step > step)
            kc_catalog_mark_broken(kc_copies_storage(copies), path, why);
        kc_whole_free(kc_copies_storage(copies), w);
    }
    kc_copies_free(copies);
}

void kc_state_doubt(struct kc_state *s, uint64_t step, const char *why)
{
    struct kc_catalog c = {0};
    struct kc_error e;
    char path[4096];
    kc_snapshot_settle(s);
    if (s->rank != 0 || !s->storage)
        return;
    doubt_copies(s, step, why);
    if (kc_catalog_scan(s->st, s->directory, &c, &e) < 0)
        c.count = 0;
    for (uint32_t i = c.count; i-- > 0;) {
        struct kc_whole *w;
        kc_catalog_path(s->directory, c.version[i], path);
        if (kc_whole_open(s->st, path, &w, &e) < 0)
            continue;
        if (w->manifest.progress.step > step)
            mark(s, s->st, path, why);
        kc_whole_free(s->st, w);
    }
    kc_catalog_free(&c);
}

/* The version on disk before that one; 0: none. */
static int version_before(const struct kc_state *s, uint64_t version, uint64_t *out, struct kc_error *e)
{
    struct kc_catalog c = {0};
    int r = kc_catalog_scan(s->st, s->directory, &c, e);
    *out = 0;
    for (uint32_t i = 0; r == 0 && i < c.count && c.version[i] < version; i++)
        *out = c.version[i];
    kc_catalog_free(&c);
    return r;
}

int kc_state_choose_finite(struct kc_state *s, struct kc_snapshot_info *out, struct kc_error *e)
{
    uint64_t before;
    bool damaged = false;
    int r = kc_state_choose(s, 0, out, e);
    while (r == 0 && !kc_manifest_finite(&s->chosen->manifest)) {
        uint64_t version = out->version;
        do { /* broken ones are passed over, as among the newest */
            r = version_before(s, version, &before, e);
            version = before;
            if (r == 0 && !before)
                return damaged ? kc_fail(e, -EBADMSG, "%s has no whole snapshot with a finite loss", s->directory)
                               : kc_fail(e, -ENOENT, "%s has no snapshot with a finite loss", s->directory);
            if (r == 0)
                r = kc_state_choose(s, before, out, e);
            damaged |= r == -EBADMSG;
        } while (r == -EBADMSG);
    }
    return r;
}

static void take_progress(struct kc_state *s, const struct kc_manifest *m)
{
    s->progress = m->progress;
    s->progress.restarts++;
    s->loss = m->loss;
    s->grad_norm = m->grad_norm;
    s->history = m->history;
    s->root_known = s->root_part = false;
}

int kc_verb_restore_read(struct kc_state *s, struct kc_error *e)
{
    char blamed[4096];
    struct kc_error own = {""};
    if (!s->chosen)
        return kc_fail(e, -EINVAL, "the restore program runs before a snapshot was chosen");
    kc_snapshot_settle(s);
    s->attempt = (struct kc_attempt){.stage = KC_STAGE_READ, .lock = s->attempt.lock,
        .version = s->chosen->manifest.version, .step = s->chosen->manifest.progress.step};
    kc_guard_all(s, true);
    kc_values_clear(s);
    int r = kc_values_read(s, s->chosen_st, s->chosen, true, blamed, &own);
    kc_guard_all(s, false);
    take_progress(s, &s->chosen->manifest);
    for (uint32_t b = 0; b < s->map.buckets; b++)
        for (int k = 0; k < KC_STATES; k++)
            atomic_fetch_add_explicit(&s->version[k][b], 1, memory_order_release);
    if (r == -EBADMSG || (r == -EIO && s->chosen_st != s->st)) /* who fails to read one on disk keeps that to itself */
        mark(s, s->chosen_st, blamed, own.text);
    if (r < 0)
        kc_attempt_fail(s, r, own.text);
    kc_agree_chosen(s, r);
    return 0;
}

int kc_verb_restore_close(struct kc_state *s, struct kc_error *e)
{
    struct kc_attempt *a = &s->attempt;
    char have[33], want[33];
    if (a->stage != KC_STAGE_READ || !s->chosen)
        return kc_fail(e, -EINVAL, "the restore program closes without having read");
    kc_agree_settle(s);
    if (!a->error && s->root_part) {
        int r = kc_verb_root_close(s, e);
        if (r < 0)
            return r;
    }
    if (!a->error && !(s->root_known && kc_digest_equal(s->root, s->chosen->manifest.root))) {
        struct kc_error why;
        kc_state_root_text(s, have);
        kc_digest_text(s->chosen->manifest.root, want);
        kc_fail(&why, -EBADE, "state_root of %s is %s after the load, its manifest says %s", s->chosen->path,
                have[0] ? have : "unknown", want);
        kc_attempt_fail(s, -EBADE, why.text);
        mark(s, s->chosen_st, s->chosen->path, why.text);
    }
    a->stage = KC_STAGE_IDLE;
    if (s->copies && !a->error)
        s->copied = a->version;
    if (!a->error)
        kc_increment_restored(s, s->chosen);
    const int r = a->error ? kc_restore_failed(s, e) : 0;
    forget_chosen(s);
    return r;
}
