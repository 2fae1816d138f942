/* dump.c - written under another name beside its own, then renamed. */
#include "dump.h"

#include "gather.h"
#include "looks.h"
#include "report.h"
#include "take.h"

#include "console/session.h"

#include "base/file.h"
#include "shm/reader.h"

#include <errno.h>
#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOOKS_MAX (32u << 20)

/* ---- what is in it ---------------------------------------------------------------------------------------------------------- */

static int put_json(const char *path, const json_t *o)
{
    char *text = o ? json_dumps(o, KC_JSON_FLAGS) : NULL;
    int code = text ? kc_file_replace(path, text, strlen(text)) : -ENOMEM;
    free(text);
    return code;
}

static int put_board(const char *path, const struct kc_dump *d)
{
    return d->board ? kc_reader_save(d->board, path, NULL) : 0;
}

static int put_looks(const char *path, const struct kc_dump *d)
{
    json_t *looks = kc_looks_json(d->evidence);
    int code = put_json(path, looks);
    json_decref(looks);
    return code;
}

static int put_verdict(const char *path, const struct kc_dump *d)
{
    return put_json(path, d->answer);
}

static int put_text(const char *path, const struct kc_dump *d)
{
    struct draft draft;
    FILE *f = draft_open(&draft);
    if (f)
        kc_report_text(d->evidence, d->diagnosis, f);
    return draft_save(&draft, path);
}

/* What could not be had is not there; the rest stands without it. */
static void put_stacks(const char *folder, const struct kc_dump *d)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%.*s/stacks.txt", PATH_MAX - 16, folder);
    if (d->stacks && d->board && !d->evidence->saved)
        kc_take_write(d->board, d->evidence->job, path, KC_DUMP_STACKS, NULL);
}

static int fill(const char *folder, const struct kc_dump *d, struct kc_error *e)
{
    static const struct {
        const char *name;
        int (*put)(const char *path, const struct kc_dump *d);
    } files[] = {{"board", put_board}, {"looks.json", put_looks}, {"verdict.json", put_verdict}, {"verdict.txt", put_text}};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char path[PATH_MAX];
        snprintf(path, sizeof path, "%.*s/%s", PATH_MAX - 16, folder, files[i].name);
        int code = files[i].put(path, d);
        if (code < 0)
            return kc_fail(e, code, "%s: %s", path, strerror(-code));
    }
    put_stacks(folder, d);
    return 0;
}

/* ---- whole or not at all ------------------------------------------------------------------------------------------------------ */

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)st, (void)type, (void)at;
    remove(path);
    return 0;
}

/* The folder that a path lies in is made. */
static int make_parent(const char *path)
{
    char parent[PATH_MAX];
    snprintf(parent, sizeof parent, "%s", path);
    char *slash = strrchr(parent, '/');
    if (!slash || slash == parent)
        return 0;
    *slash = 0;
    return kc_make_dirs(parent);
}

int kc_dump_write(const char *path, const struct kc_dump *d, struct kc_error *e)
{
    char whole[PATH_MAX], folder[PATH_MAX];
    struct stat st;
    int n = snprintf(whole, sizeof whole, "%s", path);
    while (n > 1 && n < (int)sizeof whole && whole[n - 1] == '/')
        whole[--n] = 0;
    if (n < 1 || n + 32 > (int)sizeof whole)
        return kc_fail(e, -ENAMETOOLONG, "%.80s…: the path is too long", path);
    if (lstat(whole, &st) == 0)
        return kc_fail(e, -EEXIST, "%s is there already; name a folder that is not", whole);
    snprintf(folder, sizeof folder, "%.*s.tmp.%d", (int)sizeof folder - 32, whole, (int)getpid());
    int code = make_parent(whole);
    if (code == 0 && mkdir(folder, 0700) < 0)
        code = -errno;
    if (code < 0)
        return kc_fail(e, code, "%s: %s", whole, strerror(-code));
    code = fill(folder, d, e);
    if (code == 0 && rename(folder, whole) < 0)
        code = kc_fail(e, -errno, "%s: %s", whole, strerror(errno));
    if (code < 0)
        nftw(folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
    else
        kc_sync_parent(whole);
    return code;
}

/* ---- and back ------------------------------------------------------------------------------------------------------------------ */

int kc_dump_read(const char *path, struct kc_evidence **out, struct kc_error *e)
{
    char file[PATH_MAX], *text = NULL;
    struct kc_reader *r = NULL;
    size_t bytes = 0;
    snprintf(file, sizeof file, "%.*s/board", (int)sizeof file - 16, path);
    int code = kc_reader_open(file, &r, e);
    if (code < 0)
        return code;
    code = kc_gather_board(r, out, e);
    kc_reader_free(r);
    if (code < 0)
        return code;
    snprintf(file, sizeof file, "%.*s/looks.json", (int)sizeof file - 16, path);
    if (kc_file_read(file, LOOKS_MAX, &text, &bytes) < 0)
        return 0; /* the board alone tells less, but nothing wrong */
    json_t *looks = json_loadb(text, bytes, 0, NULL);
    free(text);
    code = kc_looks_put(looks, *out, e);
    json_decref(looks);
    if (code < 0) {
        kc_evidence_free(*out);
        *out = NULL;
        return kc_fail_prefix(e, code, "%s", file);
    }
    return 0;
}
