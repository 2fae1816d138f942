/* spec_files.c - the files of data.train and data.validation, with their weights and masks. */
#include "spec_impl.h"

#include "base/suggest.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define FILES_MAX  4096
#define WEIGHT_MAX 1e6

static const char *const keys[] = {"path", "weight", "mask"};
#define KEYS (sizeof keys / sizeof *keys)

static int refuse_keys(struct reader *r, const char *what, const json_t *value, bool many)
{
    const char *key;
    json_t *item;
    json_object_foreach((json_t *)value, key, item) {
        bool good = false;
        for (size_t i = 0; i < KEYS; i++)
            good |= strcmp(key, keys[i]) == 0;
        const char *near = good ? NULL : kc_suggest(key, keys, KEYS);
        if (!good)
            return kc_fail(r->e, -EINVAL, "%s.%.60s is no field of a file: path, weight and mask are%s%s%s", what,
                           key, near ? "; did you mean \"" : "", near ? near : "", near ? "\"?" : "");
        if (!many && strcmp(key, "weight") == 0)
            return kc_fail(r->e, -EINVAL, "%s.weight: one file is read in file order, a weight has no meaning", what);
    }
    return 0;
}

static int read_weight(struct reader *r, const char *what, const json_t *value, double *out)
{
    char room[64];
    double weight = json_number_value(value);
    if (!json_is_number(value) || !(weight >= 0 && weight <= WEIGHT_MAX))
        return kc_fail(r->e, -EINVAL, "%s.weight is %s: it must be a number from 0 to %.0f", what,
                       spec_shown(value, room), WEIGHT_MAX);
    *out = weight;
    return 0;
}

static int read_file(struct reader *r, const char *what, const json_t *value, bool many, struct kc_spec_file *out)
{
    char part[192];
    out->weight = KC_WEIGHT_BY_SIZE;
    if (!json_is_object(value))
        return spec_read_path(r, what, value, false, &out->path);
    int code = refuse_keys(r, what, value, many);
    if (code < 0)
        return code;
    const json_t *path = json_object_get(value, "path"), *mask = json_object_get(value, "mask"),
                 *weight = json_object_get(value, "weight");
    if (!path)
        return kc_fail(r->e, -EINVAL, "%s has no path; a file is \"train.bin\" or {\"path\":\"train.bin\",…}", what);
    snprintf(part, sizeof part, "%s.path", what);
    code = spec_read_path(r, part, path, false, &out->path);
    snprintf(part, sizeof part, "%s.mask", what);
    if (code == 0 && mask)
        code = spec_read_path(r, part, mask, true, &out->mask);
    return code == 0 && weight ? read_weight(r, what, weight, &out->weight) : code;
}

/* All files have a weight or none has, and something is left to train on. */
static int check_weights(struct reader *r, const char *what, const struct kc_spec_file *list, size_t count)
{
    double sum = 0;
    size_t given = 0;
    for (size_t i = 0; i < count; i++) {
        given += list[i].weight >= 0;
        sum += list[i].weight;
    }
    if (given && given < count)
        return kc_fail(r->e, -EINVAL,
                       "%s: %zu of %zu files have a weight: give one to all, or to none (each then counts "
                       "by its size)",
                       what, given, count);
    if (given && !(sum >= 1e-6))
        return kc_fail(r->e, -EINVAL,
                       "%s: the weights of its %zu file%s sum to %g: nothing to train on; give one of at "
                       "least 0.000001",
                       what, count, count == 1 ? "" : "s", sum);
    return 0;
}

int spec_read_files(struct reader *r, const char *what, const json_t *value, bool many, struct kc_span *out)
{
    char part[128], room[64];
    if (!many && json_is_null(value))
        return 0;
    bool list = many && json_is_array(value);
    size_t count = list ? json_array_size(value) : 1;
    if (!json_is_string(value) && !json_is_object(value) && !list)
        return kc_fail(r->e, -EINVAL, "%s is %s: it must be the path of a file, {\"path\":…}%s", what,
                       spec_shown(value, room), many ? ", or a list of these" : ", or null");
    if (count == 0 || count > FILES_MAX)
        return kc_fail(r->e, -EINVAL, "%s lists %zu files: it must be 1 to %d", what, count, FILES_MAX);
    struct kc_spec_file *file = kc_contract_array(r->arena, out, count, sizeof *file);
    if (!file)
        return -ENOSPC;
    for (size_t i = 0; i < count; i++) {
        snprintf(part, sizeof part, list ? "%s[%zu]" : "%s", what, i);
        int code = read_file(r, part, list ? json_array_get(value, i) : value, many, &file[i]);
        if (code < 0)
            return code;
    }
    return check_weights(r, what, file, count);
}

static json_t *file_json(const struct kc_job_spec *spec, const struct kc_spec_file *file)
{
    if (!file->mask && file->weight < 0)
        return json_string(KC_TEXT(spec, file->path));
    json_t *o = json_pack("{s:s}", "path", KC_TEXT(spec, file->path));
    if (file->weight >= 0)
        json_object_set_new(o, "weight", json_real(file->weight));
    if (file->mask)
        json_object_set_new(o, "mask", json_string(KC_TEXT(spec, file->mask)));
    return o;
}

json_t *spec_files_json(const struct kc_job_spec *spec, struct kc_span files)
{
    const struct kc_spec_file *list = KC_AT(spec, struct kc_spec_file, files);
    if (files.count == 0)
        return json_null();
    if (files.count == 1)
        return file_json(spec, list);
    json_t *all = json_array();
    for (uint32_t i = 0; i < files.count; i++)
        json_array_append_new(all, file_json(spec, &list[i]));
    return all;
}
