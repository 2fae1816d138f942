/* sheet.c - see sheet.h. The format is huggingface/safetensors': u64 length of the header, JSON, one buffer without holes. */
#include "sheet.h"

#include "adapters.h"
#include "json_file.h"
#include "names.h"

#include "base/bf16.h"
#include "base/json.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DATA_ALIGN 4096

static void file_name(const struct kc_sheet *s, uint32_t file, char out[64])
{
    if (s->files == 1)
        snprintf(out, 64, "%s.safetensors", s->of == KC_SHEET_ADAPTERS ? "adapter_model" : "model");
    else
        snprintf(out, 64, "model-%05u-of-%05u.safetensors", file + 1, s->files);
}

static int place(struct kc_sheet *s, uint64_t file_bytes, struct kc_error *e)
{
    uint32_t file = 0;
    for (uint32_t t = 0, n = 0; t < s->manifest->tensors; t++) {
        const struct kc_manifest_tensor *m = &s->manifest->tensor[t];
        const uint32_t parts = s->first_part[t + 1] - s->first_part[t];
        for (uint32_t i = 0; i < parts; i++, n++) {
            struct kc_sheet_part *p = &s->part[n];
            *p = (struct kc_sheet_part){.tensor = t, .part = i, .count = m->count / parts};
            file += s->of == KC_SHEET_MODEL && s->data_bytes[file] > 0 && s->data_bytes[file] + p->count * s->width > file_bytes;
            if (file == KC_SHEET_FILES)
                return kc_fail(e, -E2BIG, "the model would be in more than %d files: let them be larger", KC_SHEET_FILES);
            p->file = file;
            p->begin = s->data_bytes[file];
            s->data_bytes[file] += p->count * s->width;
        }
    }
    s->files = file + 1;
    return 0;
}

static uint32_t parts_of(const struct kc_sheet *s, uint32_t t)
{
    const struct kc_manifest_tensor *m = &s->manifest->tensor[t];
    return kc_adapter_named(m->name) == (s->of == KC_SHEET_ADAPTERS) ? kc_name_parts(m->name, &m->shape) : 0;
}

static void part_name(const struct kc_sheet *s, const struct kc_sheet_part *p, char out[KC_TENSOR_NAME_MAX])
{
    char name[KC_TENSOR_NAME_MAX];
    kc_name_part(s->manifest->tensor[p->tensor].name, p->part, name);
    snprintf(out, KC_TENSOR_NAME_MAX, "%s%.*s", s->of == KC_SHEET_ADAPTERS ? "base_model.model." : "", KC_TENSOR_NAME_MAX - 32, name);
}

int kc_sheet_plan(const struct kc_manifest *manifest, enum kc_sheet_of of, bool bf16, uint64_t file_bytes, struct kc_sheet *out, struct kc_error *e)
{
    *out = (struct kc_sheet){.of = of, .manifest = manifest, .width = bf16 ? 2 : 4};
    for (int i = 0; i < KC_SHEET_FILES; i++)
        out->fd[i] = -1;
    out->first_part = calloc(manifest->tensors + 1u, sizeof *out->first_part);
    for (uint32_t t = 0; out->first_part && t < manifest->tensors; t++)
        out->first_part[t + 1] = out->first_part[t] + parts_of(out, t);
    out->parts = out->first_part ? out->first_part[manifest->tensors] : 0;
    out->part = calloc(out->parts + 1u, sizeof *out->part);
    if (!out->first_part || !out->part)
        return kc_fail(e, -ENOMEM, "no memory to lay out %u tensors", out->parts);
    return place(out, file_bytes, e);
}

void kc_sheet_free(struct kc_sheet *s, const struct kc_storage *st)
{
    for (int i = 0; i < KC_SHEET_FILES; i++)
        if (s->fd[i] >= 0)
            st->close(st->self, s->fd[i]);
    free(s->first_part);
    free(s->part);
}

/* ---- headers ---- */

static json_t *part_json(const struct kc_sheet *s, const struct kc_sheet_part *p)
{
    const struct kc_manifest_tensor *m = &s->manifest->tensor[p->tensor];
    struct kc_shape shape;
    json_t *sizes = json_array();
    kc_name_part_shape(m->name, &m->shape, &shape);
    for (uint32_t d = 0; d < shape.rank; d++)
        json_array_append_new(sizes, json_integer((json_int_t)shape.size[d]));
    return json_pack("{s:s, s:o, s:[I, I]}", "dtype", s->width == 2 ? "BF16" : "F32", "shape", sizes, "data_offsets",
                     (json_int_t)p->begin, (json_int_t)(p->begin + p->count * s->width));
}

/* The header's text, filled up with blanks so that the data begins on a page: who maps the file reads whole ones; free(). */
static char *header_text(const struct kc_sheet *s, uint32_t file, uint64_t *length)
{
    char name[KC_TENSOR_NAME_MAX];
    json_t *json = json_pack("{s:{s:s}}", "__metadata__", "format", "pt");
    for (uint32_t i = 0; i < s->parts; i++)
        if (s->part[i].file == file) {
            part_name(s, &s->part[i], name);
            json_object_set_new(json, name, part_json(s, &s->part[i]));
        }
    char *text = json ? json_dumps(json, JSON_COMPACT) : NULL;
    json_decref(json);
    const size_t n = text ? strlen(text) : 0, whole = (n + 8 + DATA_ALIGN - 1) / DATA_ALIGN * DATA_ALIGN - 8;
    char *out = text ? realloc(text, whole + 1) : NULL;
    if (!out) {
        free(text);
        return NULL;
    }
    memset(out + n, ' ', whole - n);
    *length = whole;
    return out;
}

static int create_file(struct kc_sheet *s, const struct kc_storage *st, const char *folder, uint32_t file,
                       struct kc_error *e)
{
    char name[64], path[4096];
    uint64_t length;
    char *header = header_text(s, file, &length);
    if (!header)
        return kc_fail(e, -ENOMEM, "no memory for the header of a safetensors file");
    file_name(s, file, name);
    snprintf(path, sizeof path, "%.4000s/%s", folder, name);
    s->data_at[file] = 8 + length;
    const uint64_t bytes = s->data_at[file] + s->data_bytes[file];
    int r = s->fd[file] = st->open(st->self, path, O_RDWR | O_CREAT | O_EXCL);
    if (r >= 0)
        r = st->reserve(st->self, s->fd[file], bytes);
    if (r == -EOPNOTSUPP || r == -ENOSYS) /* a file system without reservation: what does not fit fails when it is written */
        r = 0;
    if (r == 0)
        r = kc_storage_write_all(st, s->fd[file], &length, sizeof length, 0);
    if (r == 0)
        r = kc_storage_write_all(st, s->fd[file], header, length, 8);
    s->bytes += bytes;
    free(header);
    return r < 0 ? kc_storage_fail(st, e, r, "write", path, bytes) : 0;
}

int kc_sheet_create(struct kc_sheet *s, const struct kc_storage *st, const char *folder, struct kc_error *e)
{
    int r = 0;
    for (uint32_t i = 0; i < s->files && r == 0; i++)
        r = create_file(s, st, folder, i, e);
    return r;
}

/* ---- values ---- */

static int put_run(const struct kc_sheet *s, const struct kc_storage *st, const struct kc_sheet_part *p, uint64_t first,
                   uint64_t count, const float *values)
{
    uint16_t half[1024];
    const uint64_t at = s->data_at[p->file] + p->begin;
    int r = 0;
    if (s->width == 4)
        return kc_storage_write_all(st, s->fd[p->file], values, count * 4, at + first * 4);
    for (uint64_t done = 0; done < count && r == 0; done += 1024) {
        const uint64_t n = count - done < 1024 ? count - done : 1024;
        for (uint64_t i = 0; i < n; i++)
            half[i] = kc_bf16_from_float(values[done + i]);
        r = kc_storage_write_all(st, s->fd[p->file], half, n * 2, at + (first + done) * 2);
    }
    return r;
}

int kc_sheet_put(const struct kc_sheet *s, const struct kc_storage *st, uint32_t tensor, uint64_t first, uint64_t count,
                 const float *values)
{
    const struct kc_sheet_part *part = &s->part[s->first_part[tensor]];
    int r = 0;
    while (count > 0 && r == 0) { /* a run may go on in the next part */
        const uint64_t i = first / part->count, at = first % part->count;
        const uint64_t n = part->count - at < count ? part->count - at : count;
        r = put_run(s, st, &part[i], at, n, values);
        first += n;
        values += n;
        count -= n;
    }
    return r;
}

/* ---- the end ---- */

static int write_index(const struct kc_sheet *s, const struct kc_storage *st, const char *folder, struct kc_error *e)
{
    char name[KC_TENSOR_NAME_MAX], file[64];
    uint64_t total = 0;
    json_t *map = json_object();
    for (uint32_t i = 0; i < s->parts; i++) {
        part_name(s, &s->part[i], name);
        file_name(s, s->part[i].file, file);
        json_object_set_new(map, name, json_string(file));
        total += s->part[i].count * s->width;
    }
    json_t *json = json_pack("{s:{s:I}, s:o}", "metadata", "total_size", (json_int_t)total, "weight_map", map);
    return kc_json_write(st, folder, "model.safetensors.index.json", json, e);
}

int kc_sheet_finish(struct kc_sheet *s, const struct kc_storage *st, const char *folder, struct kc_error *e)
{
    char name[64], path[4096];
    for (uint32_t i = 0; i < s->files; i++) {
        int r = st->sync(st->self, s->fd[i]), c = st->close(st->self, s->fd[i]);
        s->fd[i] = -1;
        file_name(s, i, name);
        snprintf(path, sizeof path, "%.4000s/%s", folder, name);
        if (r < 0 || c < 0)
            return kc_storage_fail(st, e, r < 0 ? r : c, "write", path, s->data_bytes[i]);
    }
    return s->files > 1 ? write_index(s, st, folder, e) : 0;
}
