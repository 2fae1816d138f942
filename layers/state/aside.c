/* aside.c - a state that is not finite, kept for who wants to know why: nonfinite.vN, beside the versions and never one of them.
 * No restore chooses it, nothing leans on it, and there is one at most. */
#include "state_impl.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct sweep {
    const struct kc_storage *st;
    const char *directory;
    char found[4096]; /* the newest; "" none */
    uint64_t version;
    bool hide;
};

static int see(void *arg, const char *name)
{
    struct sweep *w = arg;
    char path[4096], tmp[4096];
    const uint64_t version = kc_aside_version(name);
    if (!version || (size_t)snprintf(path, sizeof path, "%s/%s", w->directory, name) >= sizeof path)
        return 0;
    if (w->hide && (size_t)snprintf(tmp, sizeof tmp, "%s/tmp.old.%s", w->directory, name) < sizeof tmp)
        return w->st->rename(w->st->self, path, tmp);
    if (version > w->version) {
        w->version = version;
        memcpy(w->found, path, sizeof path);
    }
    return 0;
}

static void path_of(const struct kc_state *s, char out[4096])
{
    snprintf(out, 4096, "%.3072s/" KC_ASIDE "v%08" PRIu64, s->directory, s->attempt.version);
}

/* The packs lie in the attempt's folder. The one before is hidden first: what is kept is the newest, or
 * nothing. */
static int set_aside(struct kc_state *s, struct kc_error *e)
{
    char tmp[4096], path[4096];
    struct sweep old = {.st = s->st, .directory = s->directory, .hide = true};
    struct kc_whole *w = kc_whole_new();
    kc_catalog_tmp_path(s->directory, s->attempt.version, tmp);
    path_of(s, path);
    int r = w && kc_snapshot_manifest(s, &w->manifest) == 0 ? 0 : kc_fail(e, -ENOMEM, "no memory for a manifest");
    if (r == 0)
        r = kc_whole_learn(s->st, tmp, s->directory, w, e);
    if (r == 0)
        r = kc_manifest_write(s->st, tmp, &w->manifest, e);
    if (r == 0 && ((r = s->st->sync_folder(s->st->self, tmp)) < 0 ||
                   (r = s->st->list(s->st->self, s->directory, see, &old)) < 0 ||
                   (r = s->st->rename(s->st->self, tmp, path)) < 0 ||
                   (r = s->st->sync_folder(s->st->self, s->directory)) < 0))
        kc_storage_fail(s->st, e, r, "keep", path, 0);
    kc_whole_free(s->st, w);
    return r;
}

/* At position 0. The snapshot has failed, whatever comes of this. */
void kc_snapshot_end_aside(struct kc_state *s)
{
    struct kc_attempt *a = &s->attempt;
    struct kc_error e = {""};
    char path[4096];
    path_of(s, path);
    a->code = 0;
    if (set_aside(s, &e) == 0) {
        snprintf(a->note, sizeof a->note, "it is kept as %s", strrchr(path, '/') + 1);
        return;
    }
    snprintf(a->note, sizeof a->note, "and could not be kept aside: %.300s", e.text);
    kc_snapshot_discard(s);
}

int kc_snapshot_aside(const char *directory, struct kc_snapshot_info *out, struct kc_error *e)
{
    const struct kc_storage *st = &kc_storage_posix;
    struct sweep w = {.st = st, .directory = directory};
    struct kc_whole *whole;
    int r = st->list(st->self, directory, see, &w);
    if (r == -ENOENT || (r == 0 && !w.version))
        return kc_fail(e, -ENOENT, "%s has no state that is not finite", directory);
    if (r < 0)
        return kc_storage_fail(st, e, r, "list", directory, 0);
    if ((r = kc_whole_open(st, w.found, &whole, e)) < 0)
        return r;
    kc_snapshot_describe(whole, out);
    snprintf(out->reason, sizeof out->reason, "not finite; kept for a look, never restored");
    kc_whole_free(st, whole);
    return 0;
}
