/* export.c - a snapshot's parameters as safetensors with Hugging Face names, and config.json. Everything is written into a
 * folder beside, which gets its name when it is whole: a folder of that name is an export, or it is not there. */
#include "sheet.h"
#include "state_impl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int refuse_any(void *arg, const char *name)
{
    (void)arg, (void)name;
    return -ENOTEMPTY;
}

/* The folder that is asked for may be there, but empty. */
static int check_out(const struct kc_storage *st, const char *out, struct kc_error *e)
{
    int r = st->list(st->self, out, refuse_any, NULL);
    if (r == 0 || r == -ENOENT)
        return 0;
    return r == -ENOTEMPTY ? kc_fail(e, r, "%s is not empty: name a new folder, nothing is written over", out)
                           : kc_storage_fail(st, e, r, "write to", out, 0);
}

/* All masters, extent by extent; each is verified before any of it is written. */
static int put_values(const struct kc_storage *st, const struct kc_whole *w, const struct kc_sheet *s, struct kc_error *e)
{
    float *buffer = malloc(KC_PACK_GRID * sizeof *buffer);
    int r = buffer ? 0 : kc_fail(e, -ENOMEM, "no memory to read %s", w->path);
    for (uint32_t p = 0; p < w->manifest.packs && r == 0; p++)
        for (uint32_t i = 0; i < w->pack[p].count && r == 0; i++) {
            const struct kc_extent *x = &w->pack[p].extent[i];
            struct kc_region box;
            int written = 0;
            if (x->kind != KC_MASTER || (r = kc_pack_read(st, &w->pack[p], i, buffer, e)) < 0)
                continue;
            kc_region_make(&w->manifest.tensor[x->tensor].dims, &x->box, &box);
            for (uint64_t at = x->lo, run; at < x->hi && written == 0; at += run) {
                const uint64_t first = kc_region_global(&box, at, &run);
                run = run < x->hi - at ? run : x->hi - at;
                written = kc_sheet_put(s, st, x->tensor, first, run, buffer + (at - x->lo));
            }
            if (written < 0)
                r = kc_storage_fail(st, e, written, "write", w->manifest.tensor[x->tensor].name, 0);
        }
    free(buffer);
    return r;
}

static int write_files(const struct kc_storage *st, const struct kc_whole *w, const struct kc_export *c, const char *folder,
                       struct kc_export_info *out, struct kc_error *e)
{
    struct kc_sheet *s = calloc(1, sizeof *s);
    int r = s ? kc_sheet_plan(&w->manifest, c->bf16, c->file_bytes, s, e) : kc_fail(e, -ENOMEM, "no memory to export");
    if (r == 0)
        r = kc_config_write(st, folder, &w->manifest.model, c->bf16, e);
    if (r == 0)
        r = kc_sheet_create(s, st, folder, e);
    if (r == 0)
        r = put_values(st, w, s, e);
    if (r == 0)
        r = kc_sheet_finish(s, st, folder, e);
    if (r == 0)
        *out = (struct kc_export_info){.version = w->manifest.version, .step = w->manifest.progress.step, .files = s->files,
            .tensors = s->parts, .bytes = s->bytes};
    if (s)
        kc_sheet_free(s, st);
    free(s);
    return r;
}

static int write_folder(const struct kc_storage *st, const struct kc_whole *w, const struct kc_export *c, const char *folder,
                        struct kc_export_info *out, struct kc_error *e)
{
    char tmp[4096], parent[4096];
    snprintf(tmp, sizeof tmp, "%.4000s.tmp", folder);
    snprintf(parent, sizeof parent, "%.4000s", folder);
    char *slash = strrchr(parent, '/');
    if (slash)
        slash[slash == parent] = 0;
    int r = st->make_folder(st->self, tmp);
    if (r == -EEXIST)
        return kc_fail(e, r, "%s is there: another export writes it, or one was broken off. Remove it", tmp);
    if (r < 0)
        return kc_storage_fail(st, e, r, "make", tmp, 0);
    r = write_files(st, w, c, tmp, out, e);
    if (r == 0 && ((r = st->sync_folder(st->self, tmp)) < 0 || (r = st->rename(st->self, tmp, folder)) < 0 ||
                   (r = st->sync_folder(st->self, slash ? parent : ".")) < 0))
        kc_storage_fail(st, e, r, "write", folder, 0);
    if (r < 0)
        kc_storage_remove_tree(st, tmp); /* what stays is told by the next export */
    return r;
}

int kc_snapshot_export(const char *path, const struct kc_export *c, struct kc_export_info *out, struct kc_error *e)
{
    const struct kc_storage *st = c->storage ? c->storage : &kc_storage_posix;
    struct kc_whole *w = NULL;
    char from[4096], folder[3072];
    size_t n = strlen(c->out);
    while (n > 1 && c->out[n - 1] == '/')
        n--;
    if (n == 0 || n >= sizeof folder)
        return kc_fail(e, n ? -ENAMETOOLONG : -EINVAL, "%.200s is no name for a folder", c->out);
    snprintf(folder, sizeof folder, "%.*s", (int)n, c->out);
    int r = check_out(st, folder, e);
    if (r == 0)
        r = kc_snapshot_resolve(st, path, from, e);
    if (r == 0)
        r = kc_whole_open(st, from, &w, e);
    if (r == 0)
        r = write_folder(st, w, c, folder, out, e);
    kc_whole_free(st, w);
    return r;
}
