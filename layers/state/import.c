/* import.c - a model from elsewhere as a snapshot: what a run of one rank would save before its first step. */
#include "along.h"
#include "config.h"
#include "export.h"
#include "json_file.h"
#include "llmc.h"
#include "state_impl.h"

#include "base/json.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define ST (&kc_storage_posix)

static int look(const char *path, struct kc_model_numbers *m, struct kc_error *e)
{
    char config[4096];
    struct kc_tensor_file file;
    struct stat st;
    if (stat(path, &st) != 0)
        return kc_storage_fail(ST, e, -errno, "open", path, 0);
    if (S_ISDIR(st.st_mode)) {
        snprintf(config, sizeof config, "%.4000s/config.json", path);
        return kc_config_read(config, m, e);
    }
    if (!kc_llmc_named(path))
        return kc_fail(e, -EINVAL, "%s does not say what model it is: name the folder with config.json that it is in, or a model "
                       "file of llm.c", path);
    int r = kc_llmc_open(path, m, &file, e);
    if (r == 0)
        kc_tensor_file_free(&file);
    return r;
}

int kc_weights_model(const char *path, struct json_t **model, struct kc_error *e)
{
    struct kc_model_numbers m;
    int r = look(path, &m, e);
    if (r < 0)
        return r;
    json_t *o = kc_numbers_json(&m);
    if (!o)
        return kc_fail(e, -ENOMEM, "no memory for the model of %s", path);
    *model = o;
    return 0;
}

/* One rank's sums are its own vector. */
static int save(struct kc_state *s, struct kc_snapshot_info *info, struct kc_error *e)
{
    static int (*const program[])(struct kc_state *, struct kc_error *) = {
        kc_verb_snapshot_begin, kc_verb_store_agree, kc_verb_snapshot_mark, kc_verb_snapshot_copied, kc_verb_root_close,
        kc_verb_snapshot_write, kc_verb_snapshot_written, kc_verb_snapshot_commit, kc_verb_snapshot_committed, kc_verb_store_agree};
    int r = 0;
    for (size_t i = 0; i < sizeof program / sizeof program[0] && r == 0; i++)
        r = program[i](s, e);
    if (r < 0)
        return r;
    kc_state_last_snapshot(s, info);
    return info->error ? kc_fail(e, info->error, "%s", info->reason) : 0;
}

static int write_model(const struct kc_job_spec *spec, const char *folder, struct kc_error *e)
{
    struct kc_model_numbers m;
    kc_model_numbers(spec, &m);
    return kc_json_write(ST, folder, "model.json", json_pack("{s:o}", "model", kc_numbers_json(&m)), e);
}

static int copy_along(const char *from, const char *folder, uint32_t *copied, struct kc_error *e)
{
    char path[4096];
    *copied = 0;
    if (!kc_along_any(ST, from))
        return 0;
    snprintf(path, sizeof path, "%.4000s/" KC_ALONG_FOLDER, folder);
    int r = ST->make_folder(ST->self, path);
    if (r < 0)
        return kc_storage_fail(ST, e, r, "make", path, 0);
    r = kc_along_copy(ST, from, path, true, copied, e);
    if (r == 0 && (r = ST->sync_folder(ST->self, path)) < 0)
        kc_storage_fail(ST, e, r, "write", path, 0);
    return r;
}

static int fill(const struct kc_job_spec *spec, const struct kc_shard_plan *shard, const char *folder,
                struct kc_snapshot_info *info, uint32_t *copied, struct kc_error *e)
{
    struct kc_state_config config = {.spec = spec, .shard = shard, .guard = KC_GUARD_COUNT, .directory = folder};
    struct kc_state *s = NULL;
    int r = copy_along(KC_TEXT(spec, spec->init_from), folder, copied, e);
    if (r == 0)
        r = write_model(spec, folder, e);
    if (r == 0)
        r = kc_state_new(&config, &s, e);
    if (r == 0)
        r = kc_state_init(s, e);
    if (r == 0)
        r = save(s, info, e);
    kc_state_free(s);
    return r;
}

/* What fill() may have left. */
static void discard(const char *folder)
{
    char path[4096];
    snprintf(path, sizeof path, "%.4000s/" KC_ALONG_FOLDER, folder);
    kc_storage_remove_tree(ST, path);
    kc_catalog_clean(ST, folder);
    kc_catalog_path(folder, 1, path);
    kc_storage_remove_tree(ST, path);
    kc_storage_remove_tree(ST, folder);
}

int kc_snapshot_import(const struct kc_job_spec *spec, const struct kc_shard_plan *shard, const char *out,
                       struct kc_snapshot_info *info, uint32_t *copied, struct kc_error *e)
{
    char folder[3072], tmp[4096];
    int r = kc_export_name_of(out, folder, e);
    if (r == 0)
        r = kc_export_free_folder(ST, folder, e);
    if (r < 0)
        return r;
    if ((r = kc_export_begin(ST, folder, "import", tmp, e)) < 0)
        return r;
    r = fill(spec, shard, tmp, info, copied, e);
    if (r == 0)
        r = kc_export_settle(ST, tmp, folder, true, e);
    if (r < 0)
        discard(tmp);
    else
        kc_catalog_path(folder, info->version, info->path);
    return r;
}
