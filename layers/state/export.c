/* export.c - a snapshot's parameters as safetensors with Hugging Face names, and config.json. Everything is written into a
 * folder beside, which gets its name when it is whole: a folder of that name is an export, or it is not there. */
#include "adapters.h"
#include "along.h"
#include "export.h"
#include "sheet.h"
#include "state_impl.h"

#include "base/json.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME_ROW(id, name, extra) name,
const char *const kc_export_name[KC_EXPORTS] = {KC_EXPORT_TABLE(NAME_ROW)};

static int refuse_any(void *arg, const char *name)
{
    (void)arg, (void)name;
    return -ENOTEMPTY;
}

int kc_export_free_folder(const struct kc_storage *st, const char *out, struct kc_error *e)
{
    int r = st->list(st->self, out, refuse_any, NULL);
    if (r == 0 || r == -ENOENT)
        return 0;
    return r == -ENOTEMPTY ? kc_fail(e, r, "%s is not empty: name a new folder, nothing is written over", out)
                           : kc_storage_fail(st, e, r, "write to", out, 0);
}

/* One tensor, extent by extent; each is verified before any of it is written. */
static int put_tensor(const struct kc_side *side, const struct kc_sheet *s, uint32_t tensor, const struct kc_adapter *adapter,
                      float *buffer, struct kc_error *e)
{
    const struct kc_manifest_tensor *m = &side->w->manifest.tensor[tensor];
    const uint32_t key = kc_side_key(tensor, KC_MASTER);
    for (uint32_t i = side->start[key]; i < side->start[key + 1]; i++) {
        const struct kc_extent *x = kc_side_extent(side, side->place[i]);
        struct kc_region box;
        int r = kc_side_read(side, side->place[i], buffer, e), written = 0;
        if (r < 0)
            return r;
        kc_region_make(&m->dims, &x->box, &box);
        for (uint64_t at = x->lo, run; at < x->hi && written == 0; at += run) {
            const uint64_t first = kc_region_global(&box, at, &run);
            run = run < x->hi - at ? run : x->hi - at;
            kc_adapter_add(adapter, first, run, buffer + (at - x->lo));
            written = kc_sheet_put(s, side->st, tensor, first, run, buffer + (at - x->lo));
        }
        if (written < 0)
            return kc_storage_fail(side->st, e, written, "write", m->name, 0);
    }
    return 0;
}

/* All masters that the sheet has; a model's have in them what its adapters add. */
static int put_values(const struct kc_side *side, const struct kc_sheet *s, struct kc_error *e)
{
    float *buffer = malloc(KC_PACK_GRID * sizeof *buffer);
    int r = buffer ? 0 : kc_fail(e, -ENOMEM, "no memory to read %s", side->w->path);
    for (uint32_t t = 0; t < side->w->manifest.tensors && r == 0; t++) {
        struct kc_adapter adapter = {0};
        if (s->first_part[t + 1] == s->first_part[t])
            continue;
        if (s->of == KC_SHEET_MODEL)
            r = kc_adapter_load(side, t, &adapter, e);
        if (r == 0)
            r = put_tensor(side, s, t, &adapter, buffer, e);
        kc_adapter_free(&adapter);
    }
    free(buffer);
    return r;
}

/* `out` becomes the first of these that has tokenizer files: `path` itself, its tokenizer folder, the one beside it. */
static bool look_along(const struct kc_storage *st, const char *path, char out[4096])
{
    char up[4096];
    const char *slash = strrchr(path, '/');
    snprintf(up, sizeof up, "%.*s", slash ? (int)(slash - path) : 1, slash ? path : ".");
    const char *const base[] = {path, path, up}, *const inside[] = {"", "/" KC_ALONG_FOLDER, "/" KC_ALONG_FOLDER};
    for (int i = 0; i < 3; i++) {
        snprintf(out, 4096, "%.4000s%s", base[i], inside[i]);
        if (kc_along_any(st, out))
            return true;
    }
    return false;
}

/* The folder that tokenizer files are taken from, "" none. */
static int find_along(const struct kc_storage *st, const struct kc_whole *w, const struct kc_export *c, char out[4096],
                      struct kc_error *e)
{
    if (c->tokenizer && !kc_along_any(st, c->tokenizer))
        return kc_fail(e, -ENOENT, "%s has no files of a tokenizer: tokenizer.json, tokenizer_config.json, vocab.json and merges.txt "
                       "are such", c->tokenizer);
    if (c->tokenizer)
        snprintf(out, 4096, "%s", c->tokenizer);
    else if (!look_along(st, w->path, out) && !(c->origin && *c->origin && look_along(st, c->origin, out)))
        *out = 0;
    return 0;
}

static int write_files(const struct kc_storage *st, const struct kc_side *side, const struct kc_export *c, const char *folder,
                       struct kc_export_info *out, struct kc_error *e)
{
    const struct kc_whole *w = side->w;
    const enum kc_sheet_of of = c->adapters ? KC_SHEET_ADAPTERS : KC_SHEET_MODEL;
    char along[4096];
    uint32_t copied = 0;
    int found = find_along(st, w, c, along, e);
    if (found < 0)
        return found;
    json_t *tokens = *along ? kc_along_tokens(st, along) : NULL;
    struct kc_sheet *s = calloc(1, sizeof *s);
    int r = s ? kc_sheet_plan(&w->manifest, of, c->bf16, c->file_bytes, s, e) : kc_fail(e, -ENOMEM, "no memory to export");
    if (r == 0)
        r = c->adapters ? kc_peft_write(st, folder, &w->manifest, c->origin, e)
                        : kc_config_write(st, folder, &w->manifest.model, c->bf16, tokens, e);
    if (r == 0 && *along)
        r = kc_along_copy(st, along, folder, false, &copied, e);
    if (r == 0)
        r = kc_sheet_create(s, st, folder, e);
    if (r == 0)
        r = put_values(side, s, e);
    if (r == 0)
        r = kc_sheet_finish(s, st, folder, e);
    if (r == 0)
        *out = (struct kc_export_info){.version = w->manifest.version, .step = w->manifest.progress.step, .files = s->files,
            .tensors = s->parts, .bytes = s->bytes, .copied = copied};
    json_decref(tokens);
    if (s)
        kc_sheet_free(s, st);
    free(s);
    return r;
}

int kc_export_begin(const struct kc_storage *st, const char *folder, const char *what, char tmp[4096], struct kc_error *e)
{
    snprintf(tmp, 4096, "%.4000s.tmp", folder);
    int r = st->make_folder(st->self, tmp);
    if (r == -EEXIST)
        return kc_fail(e, r, "%s is there: another %s writes it, or one was broken off. Remove it", tmp, what);
    return r < 0 ? kc_storage_fail(st, e, r, "make", tmp, 0) : 0;
}

int kc_export_settle(const struct kc_storage *st, const char *tmp, const char *name, bool folder, struct kc_error *e)
{
    char parent[4096];
    snprintf(parent, sizeof parent, "%.4000s", name);
    char *slash = strrchr(parent, '/');
    if (slash)
        slash[slash == parent] = 0;
    int r = folder ? st->sync_folder(st->self, tmp) : 0;
    if (r == 0)
        r = st->rename(st->self, tmp, name);
    if (r == 0)
        r = st->sync_folder(st->self, slash ? parent : ".");
    return r < 0 ? kc_storage_fail(st, e, r, "write", name, 0) : 0;
}

static int write_folder(const struct kc_storage *st, const struct kc_side *side, const struct kc_export *c, const char *folder,
                        struct kc_export_info *out, struct kc_error *e)
{
    char tmp[4096];
    if (c->adapters && side->w->manifest.lora_rank == 0)
        return kc_fail(e, -ENOTSUP, "%s has no adapters: its job's spec had no lora", side->w->path);
    int r = kc_export_begin(st, folder, "export", tmp, e);
    if (r < 0)
        return r;
    r = write_files(st, side, c, tmp, out, e);
    if (r == 0)
        r = kc_export_settle(st, tmp, folder, true, e);
    if (r < 0)
        kc_storage_remove_tree(st, tmp); /* what stays is told by the next export */
    return r;
}

int kc_export_name_of(const char *name, char out[3072], struct kc_error *e)
{
    size_t n = strlen(name);
    while (n > 1 && name[n - 1] == '/')
        n--;
    if (n == 0 || n >= 3072)
        return kc_fail(e, n ? -ENAMETOOLONG : -EINVAL, "%.200s is no name for a file or folder", name);
    snprintf(out, 3072, "%.*s", (int)n, name);
    return 0;
}

int kc_snapshot_export(const char *path, const struct kc_export *c, struct kc_export_info *out, struct kc_error *e)
{
    const struct kc_storage *st = c->storage ? c->storage : &kc_storage_posix;
    struct kc_side s;
    char folder[3072];
    int r = kc_export_name_of(c->out, folder, e);
    if (r == 0 && c->format == KC_EXPORT_SAFETENSORS)
        r = kc_export_free_folder(st, folder, e);
    if (r == 0)
        r = kc_side_open(st, path, &s, e);
    if (r < 0)
        return r;
    r = c->format == KC_EXPORT_LLMC ? kc_export_llmc(st, &s, c, folder, out, e) : write_folder(st, &s, c, folder, out, e);
    kc_side_close(&s);
    return r;
}
