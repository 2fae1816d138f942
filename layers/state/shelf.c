/* shelf.c - see shelf.h. Opens a file once, however many tensors the index has in it. */
#include "shelf.h"

#include "llmc.h"

#include "base/json.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define FILES_MAX 1024

void kc_shelf_free(struct kc_shelf *s)
{
    for (uint32_t i = 0; i < s->count; i++)
        kc_tensor_file_free(&s->file[i]);
    free(s->file);
    json_decref(s->index);
    *s = (struct kc_shelf){0};
}

static int add(struct kc_shelf *s, const char *path, struct kc_error *e)
{
    struct kc_tensor_file *more = realloc(s->file, (s->count + 1) * sizeof *more);
    if (!more)
        return kc_fail(e, -ENOMEM, "no memory to open %s", path);
    s->file = more;
    int r = kc_safetensors_open(path, &s->file[s->count], e);
    s->count += r == 0;
    return r;
}

static int add_llmc(struct kc_shelf *s, const char *path, const struct kc_model_numbers *numbers, struct kc_error *e)
{
    struct kc_model_numbers have;
    s->file = calloc(1, sizeof *s->file);
    int r = s->file ? kc_llmc_open(path, &have, s->file, e) : kc_fail(e, -ENOMEM, "no memory to open %s", path);
    s->count = r == 0;
    return r < 0 ? r : kc_numbers_check(numbers, &have, path, e);
}

static int open_index(struct kc_shelf *s, const char *folder, struct kc_error *e)
{
    char path[4096];
    const char *name, *file;
    json_t *value;
    int r = 0;
    json_object_foreach(s->index, name, value) {
        bool seen = false;
        file = json_string_value(value);
        if (!file || !*file || strchr(file, '/') || file[0] == '.')
            return kc_fail(e, -EBADMSG, "%s: the index names no plain file for tensor %s", folder, name);
        snprintf(path, sizeof path, "%s/%s", folder, file);
        for (uint32_t i = 0; i < s->count; i++)
            seen |= strcmp(s->file[i].path, path) == 0;
        if (seen)
            continue;
        if (s->count == FILES_MAX)
            return kc_fail(e, -E2BIG, "%s: the index names more than %d files", folder, FILES_MAX);
        if ((r = add(s, path, e)) < 0)
            return r;
    }
    return 0;
}

static bool has_torch(const char *folder)
{
    char path[4096];
    struct stat st;
    snprintf(path, sizeof path, "%s/pytorch_model.bin", folder);
    return stat(path, &st) == 0;
}

static int open_folder(struct kc_shelf *s, const char *folder, const struct kc_model_numbers *numbers, struct kc_error *e)
{
    char path[4096];
    struct stat st;
    json_t *json;
    snprintf(path, sizeof path, "%s/snapshots", folder);
    const bool job = stat(path, &st) == 0 && S_ISDIR(st.st_mode);
    snprintf(path, sizeof path, "%s/config.json", folder);
    if (job && stat(path, &st) != 0)
        return kc_fail(e, -ENOENT, "%.300s is a job's folder: name %.300s/snapshots, of which it takes the newest, or one in it",
                       folder, folder);
    int r = kc_config_check(numbers, path, e);
    if (r < 0)
        return r;
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    if (stat(path, &st) == 0)
        return add(s, path, e);
    snprintf(path, sizeof path, "%s/model.safetensors.index.json", folder);
    if (stat(path, &st) != 0)
        return kc_fail(e, -ENOENT, "%s has neither model.safetensors nor model.safetensors.index.json%s", folder,
                       has_torch(folder) ? "; pytorch_model.bin is not read: save the model with safetensors" : "");
    if ((r = kc_storage_read_json(&kc_storage_posix, path, &json, e)) < 0)
        return r;
    s->index = json_incref(json_object_get(json, "weight_map"));
    json_decref(json);
    if (!json_is_object(s->index))
        return kc_fail(e, -EBADMSG, "%s has no weight_map", path);
    return open_index(s, folder, e);
}

int kc_shelf_open(const char *path, const struct kc_model_numbers *numbers, struct kc_shelf *out, struct kc_error *e)
{
    struct kc_shelf s = {0};
    struct stat st;
    int r;
    if (strlen(path) >= 3072)
        return kc_fail(e, -ENAMETOOLONG, "the path is too long: %.200s…", path);
    if (stat(path, &st) != 0)
        return kc_storage_fail(&kc_storage_posix, e, -errno, "open", path, 0);
    r = S_ISDIR(st.st_mode)   ? open_folder(&s, path, numbers, e)
        : kc_llmc_named(path) ? add_llmc(&s, path, numbers, e)
                              : add(&s, path, e);
    if (r < 0)
        kc_shelf_free(&s);
    else
        *out = s;
    return r;
}
