/* commit.c - makes a written snapshot the newest one. Position 0 alone runs it; training may be anywhere by then: what the
 * manifest says comes from the mark. */
#include "state_impl.h"

#include "base/clock.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int kc_snapshot_manifest(const struct kc_state *s, struct kc_manifest *m)
{
    m->version = s->attempt.version;
    m->seed = s->spec->seed;
    m->progress = s->attempt.mark.progress;
    m->loss = s->attempt.mark.loss;
    m->grad_norm = s->attempt.mark.grad_norm;
    m->root = s->attempt.root;
    m->spec = s->spec->head.digest;
    m->ranks = m->packs = s->shard->ranks;
    m->zero = s->shard->zero;
    memcpy(m->axis, s->shard->axis, sizeof m->axis);
    kc_model_numbers(s->spec, &m->model);
    m->lora_rank = s->spec->lora_rank, m->lora_alpha = s->spec->lora_alpha;
    m->precision = (enum kc_precision)s->spec->precision;
    m->history = s->attempt.mark.history;
    snprintf(m->variant, sizeof m->variant, "%s", s->variant);
    snprintf(m->plan, sizeof m->plan, "%s", s->plan);
    kc_wall_text(kc_wall(), m->written);
    return kc_manifest_tensors(m, &s->map);
}

/* Give it its name. A version of that number that is in the way goes out of sight just before, and comes back where that fails. */
static int give_name(const struct kc_storage *st, const char *directory, uint64_t version, bool replaces)
{
    char tmp[4096], path[4096], hidden[4096];
    kc_catalog_tmp_path(directory, version, tmp);
    kc_catalog_path(directory, version, path);
    int r = replaces ? kc_catalog_hide(st, directory, version, hidden) : 0;
    if (r < 0)
        return r;
    r = st->rename(st->self, tmp, path);
    if (r < 0 && replaces)
        st->rename(st->self, hidden, path);
    return r;
}

int kc_commit_version(const struct kc_storage *st, const char *directory, struct kc_whole *w, bool replaces, struct kc_error *e)
{
    char tmp[4096], path[4096];
    struct kc_manifest again = {.tensors = 0};
    const uint64_t version = w->manifest.version;
    kc_catalog_tmp_path(directory, version, tmp);
    kc_catalog_path(directory, version, path);
    int r = kc_whole_learn(st, tmp, directory, w, e);
    if (r == 0)
        r = kc_manifest_write(st, tmp, &w->manifest, e);
    if (r == 0)
        r = kc_manifest_read(st, tmp, &again, e);
    bool renamed = false;
    if (r == 0 && ((r = st->sync_folder(st->self, tmp)) < 0 || (r = give_name(st, directory, version, replaces)) < 0 ||
                   (renamed = true, r = st->sync_folder(st->self, directory)) < 0))
        kc_storage_fail(st, e, r, "commit", path, KC_PACK_ALIGN);
    if (r == 0)
        r = kc_catalog_point(st, directory, version, e);
    if (r < 0 && renamed) /* it has its name, but whether that lasts is not known: nobody may choose it */
        kc_catalog_mark_broken(st, path, e->text);
    kc_manifest_free(&again);
    return r;
}

static int commit(struct kc_state *s, struct kc_error *e)
{
    struct kc_whole *w = kc_whole_new();
    int r = w && kc_snapshot_manifest(s, &w->manifest) == 0 ? 0 : kc_fail(e, -ENOMEM, "no memory for a manifest");
    if (r == 0)
        r = kc_commit_version(s->st, s->directory, w, false, e);
    kc_whole_free(s->st, w);
    return r;
}

static void prune(struct kc_state *s)
{
    struct kc_error e = {""};
    struct kc_catalog old = {0};
    int r = kc_catalog_old(s->st, s->directory, s->spec->snapshot_keep, s->spec->snapshot_keep_every, &old, NULL, &e);
    if (r == 0)
        r = kc_catalog_remove(s->st, s->directory, &old, &e);
    kc_catalog_free(&old);
    if (r < 0) /* it is committed all the same */
        snprintf(s->attempt.note, sizeof s->attempt.note, "old snapshots stay: %.*s", 400, e.text);
}

int kc_snapshot_commit(struct kc_state *s, struct kc_error *e)
{
    int r = commit(s, e);
    if (r == 0)
        prune(s);
    return r;
}

void kc_snapshot_discard(struct kc_state *s)
{
    char tmp[4096];
    kc_catalog_tmp_path(s->directory, s->attempt.version, tmp);
    if (s->attempt.version)
        kc_storage_remove_tree(s->st, tmp); /* what stays is removed when the next one is committed */
}
