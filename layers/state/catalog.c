/* catalog.c - see catalog.h. Decides by what the directory holds, never by what was remembered. */
#include "catalog.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void kc_catalog_path(const char *directory, uint64_t version, char out[4096])
{
    snprintf(out, 4096, "%s/v%08" PRIu64, directory, version);
}

void kc_catalog_tmp_path(const char *directory, uint64_t version, char out[4096])
{
    snprintf(out, 4096, "%s/tmp.v%08" PRIu64, directory, version);
}

void kc_catalog_pack_path(const char *folder, uint32_t rank, char *out, size_t room)
{
    snprintf(out, room, "%s/rank-%u.pack", folder, rank);
}

uint64_t kc_catalog_version(const char *name)
{
    uint64_t v = 0;
    size_t n = strlen(name);
    if (name[0] != 'v' || n < 9 || n > 19)
        return 0;
    for (const char *c = name + 1; *c; c++) {
        if (*c < '0' || *c > '9')
            return 0;
        v = v * 10 + (uint64_t)(*c - '0');
    }
    return v;
}

uint64_t kc_aside_version(const char *name)
{
    const size_t n = sizeof KC_ASIDE - 1;
    return strncmp(name, KC_ASIDE, n) == 0 ? kc_catalog_version(name + n) : 0;
}

static int see_version(void *arg, const char *name)
{
    struct kc_catalog *c = arg;
    uint64_t v = kc_catalog_version(name), half = strncmp(name, "tmp.", 4) == 0 ? kc_catalog_version(name + 4)
                                                                                      : kc_aside_version(name);
    if (v && c->count == c->room) {
        const uint32_t room = 2 * c->room + 64;
        uint64_t *more = realloc(c->version, room * sizeof *more);
        if (!more)
            return -ENOMEM;
        c->version = more;
        c->room = room;
    }
    if (v)
        c->version[c->count++] = v;
    v = v > half ? v : half;
    c->highest = v > c->highest ? v : c->highest;
    return 0;
}

static int ascending(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

int kc_catalog_scan(const struct kc_storage *st, const char *directory, struct kc_catalog *out, struct kc_error *e)
{
    out->count = 0;
    out->highest = 0;
    int r = st->list(st->self, directory, see_version, out);
    if (r < 0 && r != -ENOENT)
        return kc_storage_fail(st, e, r, "list", directory, 0);
    if (out->count)
        qsort(out->version, out->count, sizeof out->version[0], ascending);
    return 0;
}

void kc_catalog_free(struct kc_catalog *c)
{
    free(c->version);
    *c = (struct kc_catalog){0};
}

bool kc_catalog_passes(int code)
{
    return code == -EBADMSG || code == -EIO;
}

int kc_catalog_newest(const struct kc_storage *st, const char *directory, const struct kc_catalog *c, uint32_t from, uint32_t *at,
                      kc_passed *passed, void *arg, struct kc_whole **out, struct kc_error *e)
{
    for (uint32_t i = *at; i-- > from;) {
        struct kc_error why = {""};
        char path[4096];
        kc_catalog_path(directory, c->version[i], path);
        int r = kc_whole_open(st, path, out, &why);
        if (r == 0)
            *at = i;
        if (r < 0 && !kc_catalog_passes(r))
            kc_fail(e, r, "%s", why.text);
        if (r == 0 || !kc_catalog_passes(r))
            return r;
        r = passed ? passed(arg, c->version[i], why.text) : 0;
        if (r < 0)
            return r;
    }
    return -ENOENT;
}

/* ---- changing the directory ---- */

int kc_catalog_make(const struct kc_storage *st, const char *directory, struct kc_error *e)
{
    char parent[4096];
    snprintf(parent, sizeof parent, "%s", directory);
    char *slash = strrchr(parent, '/');
    if (slash)
        *slash = 0;
    int r = st->make_folder(st->self, directory);
    if (r == 0 || r == -EEXIST)
        r = st->sync_folder(st->self, !slash ? "." : parent[0] ? parent : "/");
    return r < 0 ? kc_storage_fail(st, e, r, "make", directory, KC_PACK_ALIGN) : 0;
}

void kc_catalog_mark_broken(const struct kc_storage *st, const char *path, const char *why)
{
    char mark[4096];
    if ((size_t)snprintf(mark, sizeof mark, "%s/BROKEN", path) < sizeof mark)
        kc_storage_write_file(st, mark, why, strlen(why)); /* -EEXIST: a peer was faster */
}

int kc_catalog_lock(const struct kc_storage *st, const char *directory)
{
    char path[4096];
    if ((size_t)snprintf(path, sizeof path, "%s/LOCK", directory) >= sizeof path)
        return -ENAMETOOLONG;
    int fd = st->open(st->self, path, O_RDWR | O_CREAT);
    if (fd < 0)
        return fd;
    int r = st->lock(st->self, fd);
    if (r < 0) {
        st->close(st->self, fd);
        return r;
    }
    return fd;
}

struct leftovers {
    const struct kc_storage *st;
    const char *directory;
};

static int clean_one(void *arg, const char *name)
{
    const struct leftovers *l = arg;
    char path[4096];
    if (strncmp(name, "tmp.", 4) != 0 ||
        (size_t)snprintf(path, sizeof path, "%s/%s", l->directory, name) >= sizeof path)
        return 0;
    int r = kc_storage_remove_tree(l->st, path);
    return r == -ENOTDIR ? l->st->remove(l->st->self, path) : r;
}

/* That a version was renamed out of sight must last before any of it goes: a half-removed version must not look like one,
 * after a power cut neither. */
static int remove_hidden(const struct kc_storage *st, const char *directory)
{
    struct leftovers l = {st, directory};
    int r = st->sync_folder(st->self, directory);
    return r < 0 ? r : st->list(st->self, directory, clean_one, &l);
}

static int see_leftover(void *arg, const char *name)
{
    *(bool *)arg |= strncmp(name, "tmp.", 4) == 0;
    return 0;
}

int kc_catalog_clean(const struct kc_storage *st, const char *directory)
{
    bool any = false;
    int r = st->list(st->self, directory, see_leftover, &any);
    return r < 0 || !any ? r : remove_hidden(st, directory);
}

int kc_catalog_point(const struct kc_storage *st, const char *directory, uint64_t version, struct kc_error *e)
{
    char tmp[4096], path[4096], text[32];
    int n = snprintf(text, sizeof text, "v%08" PRIu64 "\n", version);
    if ((size_t)snprintf(tmp, sizeof tmp, "%s/tmp.CURRENT", directory) >= sizeof tmp)
        return kc_fail(e, -ENAMETOOLONG, "%s: the path is too long", directory);
    snprintf(path, sizeof path, "%s/CURRENT", directory);
    int r = kc_storage_write_file(st, tmp, text, (size_t)n);
    if (r == -EEXIST && (r = st->remove(st->self, tmp)) == 0) /* of a dead attempt */
        r = kc_storage_write_file(st, tmp, text, (size_t)n);
    if (r == 0)
        r = st->rename(st->self, tmp, path);
    if (r == 0)
        r = st->sync_folder(st->self, directory);
    return r < 0 ? kc_storage_fail(st, e, r, "update", path, (uint64_t)n) : 0;
}

int kc_catalog_hide(const struct kc_storage *st, const char *directory, uint64_t version, char hidden[4096])
{
    char path[4096];
    kc_catalog_path(directory, version, path);
    if ((size_t)snprintf(hidden, 4096, "%s/tmp.old.%" PRIu64, directory, version) >= 4096)
        return -ENAMETOOLONG;
    return st->rename(st->self, path, hidden);
}

/* 1: whole, and *finite its last loss; 0: damaged, so not. What says nothing of it (no memory, no descriptor, a read that failed)
 * is returned: what goes by such an answer is gone for ever. */
static int is_whole(const struct kc_storage *st, const char *directory, uint64_t version, bool *finite, struct kc_error *e)
{
    char path[4096];
    struct kc_whole *w;
    kc_catalog_path(directory, version, path);
    int r = kc_whole_open(st, path, &w, e);
    if (r < 0)
        return r == -EBADMSG ? 0 : r;
    *finite = kc_manifest_finite(&w->manifest);
    kc_whole_free(st, w);
    return 1;
}

static uint32_t find(const struct kc_catalog *c, uint64_t version)
{
    const uint64_t *at = c->count ? bsearch(&version, c->version, c->count, sizeof *at, ascending) : NULL;
    return at ? (uint32_t)(at - c->version) : c->count;
}

/* Why a version of a catalog stays, if it does. */
struct stay {
    bool rule;        /* retention says so … */
    uint32_t leaning; /* … or so many that stay lean on it … */
    uint64_t newest;  /* … of which this is the newest */
};

static bool stays(const struct stay *s)
{
    return s->rule || s->leaning > 0;
}

/* Mark what a version that stays leans on; its manifest names all of them. One that is damaged needs nothing. */
static int keep_parents(const struct kc_storage *st, const char *directory, const struct kc_catalog *c, uint32_t i, struct stay *stay,
                        struct kc_error *e)
{
    char path[4096];
    struct kc_manifest *m = calloc(1, sizeof *m);
    if (!m)
        return kc_fail(e, -ENOMEM, "no memory for the list of snapshots");
    kc_catalog_path(directory, c->version[i], path);
    int r = kc_manifest_read(st, path, m, e);
    if (r == 0) {
        for (uint32_t k = 0; k < m->parents; k++) {
            struct stay *parent = &stay[find(c, m->parent[k].version)];
            parent->newest = parent->leaning++ ? parent->newest : c->version[i];
        }
        kc_manifest_free(m);
    }
    free(m);
    return r == -EBADMSG ? 0 : r;
}

/* stay[c->count + 1]: from the newest back to the `keep`th that is whole; 0: there are not so many. */
static int keep_newest(const struct kc_storage *st, const char *directory, const struct kc_catalog *c, uint32_t keep,
                       struct stay *stay, struct kc_error *e)
{
    uint32_t whole = 0, i = c->count;
    bool finite;
    int r = 0;
    while (i > 0 && whole < keep && r >= 0) {
        stay[--i].rule = true;
        r = is_whole(st, directory, c->version[i], &finite, e);
        whole += r > 0;
    }
    return r < 0 ? r : whole == keep;
}

/* The newest that a run could go back to, however old: whole, and its last loss was finite. */
static int keep_finite(const struct kc_storage *st, const char *directory, const struct kc_catalog *c, struct stay *stay,
                       struct kc_error *e)
{
    bool found = false;
    int r = 0;
    for (uint32_t i = c->count; i-- > 0 && !found && r >= 0;) {
        r = is_whole(st, directory, c->version[i], &found, e);
        stay[i].rule |= found;
    }
    return r < 0 ? r : 0;
}

/* What is to stay; 1: the others may go, 0: none may. */
static int mark_kept(const struct kc_storage *st, const char *directory, const struct kc_catalog *c, uint32_t keep, uint64_t every,
                     struct stay *stay, struct kc_error *e)
{
    int r = keep_newest(st, directory, c, keep ? keep : 1, stay, e);
    if (r <= 0)
        return r;
    r = keep_finite(st, directory, c, stay, e);
    for (uint32_t i = 0; i < c->count; i++)
        stay[i].rule |= every && c->version[i] % every == 0;
    for (uint32_t i = c->count; i-- > 0 && r == 0;) /* parents are older: each is marked before its turn */
        if (stays(&stay[i]))
            r = keep_parents(st, directory, c, i, stay, e);
    return r < 0 ? r : 1;
}

/* What goes of `all` becomes *all; what stays for others alone, `held`. */
static void part(struct kc_catalog *all, const struct stay *stay, struct kc_held *held)
{
    const uint32_t count = all->count;
    all->count = 0;
    for (uint32_t i = 0; i < count; i++) {
        const uint64_t version = all->version[i];
        if (!stays(&stay[i]))
            all->version[all->count++] = version;
        else if (held && !stay[i].rule)
            held->row[held->count++] = (struct kc_prune_held){version, stay[i].newest, stay[i].leaning};
    }
}

int kc_catalog_old(const struct kc_storage *st, const char *directory, uint32_t keep, uint64_t every, struct kc_catalog *out,
                   struct kc_held *held, struct kc_error *e)
{
    int r = kc_catalog_scan(st, directory, out, e);
    const uint32_t count = r == 0 ? out->count : 0;
    struct stay *stay = calloc(count + 1u, sizeof *stay);
    out->count = 0;
    if (held)
        *held = (struct kc_held){.row = calloc(count + 1u, sizeof *held->row)};
    if (r == 0 && (!stay || (held && !held->row)))
        r = kc_fail(e, -ENOMEM, "no memory for the list of snapshots");
    if (r < 0) {
        free(stay);
        return r;
    }
    out->count = count;
    r = mark_kept(st, directory, out, keep, every, stay, e);
    if (r > 0)
        part(out, stay, held);
    else
        out->count = 0;
    free(stay);
    return r < 0 ? r : 0;
}

int kc_catalog_remove(const struct kc_storage *st, const char *directory, const struct kc_catalog *old, struct kc_error *e)
{
    char hidden[4096];
    int r = 0;
    for (uint32_t i = old->count; i-- > 0 && r == 0;) { /* what leans before what it leans on, after a power cut too */
        r = kc_catalog_hide(st, directory, old->version[i], hidden);
        if (r == 0 && i > 0)
            r = st->sync_folder(st->self, directory);
    }
    if (r == 0 && old->count > 0)
        r = remove_hidden(st, directory);
    return r < 0 ? kc_storage_fail(st, e, r, "remove old versions of", directory, 0) : 0;
}
