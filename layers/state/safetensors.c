/* safetensors.c - see safetensors.h. Trusts no number of a file before it was compared with the file's length. */
#include "safetensors.h"

#include "base/json.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HEADER_MAX UINT64_C(100000000)

/* A JSON integer ≥ 0. */
static int natural(const json_t *v, uint64_t *out)
{
    if (!json_is_integer(v) || json_integer_value(v) < 0)
        return -EINVAL;
    *out = (uint64_t)json_integer_value(v);
    return 0;
}

static int parse_tensor(const char *path, const char *name, const json_t *o, struct kc_file_tensor *out,
                        struct kc_error *e)
{
    const json_t *shape = json_object_get(o, "shape"), *offsets = json_object_get(o, "data_offsets");
    const char *dtype = kc_json_text(o, "dtype", "");
    struct kc_file_tensor t = {.count = 1, .rank = (uint32_t)json_array_size(shape)};
    uint64_t bytes, width = kc_dtype_bytes(dtype, &t.readable);
    if (!json_is_array(shape) || t.rank > KC_FILE_DIMS || json_array_size(offsets) != 2 || !width ||
        natural(json_array_get(offsets, 0), &t.begin) < 0 || natural(json_array_get(offsets, 1), &t.end) < 0)
        return kc_fail(e, -EBADMSG, "%s: tensor %s has no valid dtype, shape and data_offsets (dtype \"%.12s\")",
                       path, name, dtype);
    for (uint32_t d = 0; d < t.rank; d++)
        if (natural(json_array_get(shape, d), &t.size[d]) < 0 || __builtin_mul_overflow(t.count, t.size[d], &t.count))
            return kc_fail(e, -EBADMSG, "%s: tensor %s has no valid shape", path, name);
    if (__builtin_mul_overflow(t.count, width, &bytes) || t.end < t.begin || t.end - t.begin != bytes)
        return kc_fail(e, -EBADMSG, "%s: tensor %s has %llu elements of %s but data_offsets %llu to %llu", path, name,
                       (unsigned long long)t.count, dtype, (unsigned long long)t.begin, (unsigned long long)t.end);
    snprintf(t.dtype, sizeof t.dtype, "%s", dtype);
    t.name = strdup(name);
    *out = t;
    return t.name ? 0 : kc_fail(e, -ENOMEM, "no memory for the header of %s", path);
}

static int by_begin(const void *a, const void *b)
{
    const struct kc_file_tensor *x = a, *y = b;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    return x->end < y->end ? -1 : x->end > y->end; /* empty ones before the one that begins there */
}

/* The buffer has no holes, and the file ends where the last tensor does (F36). */
static int check_lengths(const struct kc_tensor_file *f, uint64_t file_bytes, struct kc_error *e)
{
    uint64_t at = 0;
    for (uint32_t i = 0; i < f->count; i++) {
        if (f->tensor[i].begin != at)
            return kc_fail(e, -EBADMSG, "%s: tensor %s begins at byte %llu of the data, the one before ends at %llu",
                           f->path, f->tensor[i].name, (unsigned long long)f->tensor[i].begin,
                           (unsigned long long)at);
        at = f->tensor[i].end;
    }
    return kc_tensor_file_ends(f, f->data_at + at, file_bytes, e);
}

static int parse_header(struct kc_tensor_file *f, const json_t *header, struct kc_error *e)
{
    const char *name;
    json_t *value;
    f->tensor = calloc(json_object_size(header) + 1, sizeof *f->tensor);
    if (!f->tensor)
        return kc_fail(e, -ENOMEM, "no memory for the header of %s", f->path);
    json_object_foreach((json_t *)header, name, value) {
        if (strcmp(name, "__metadata__") == 0)
            continue;
        int r = parse_tensor(f->path, name, value, &f->tensor[f->count], e);
        if (r < 0)
            return r;
        f->count++;
    }
    qsort(f->tensor, f->count, sizeof *f->tensor, by_begin);
    return 0;
}

static int read_header(struct kc_tensor_file *f, struct kc_error *e)
{
    const struct kc_storage *st = &kc_storage_posix;
    uint64_t bytes, length;
    json_error_t je;
    int r = st->size(st->self, f->fd, &bytes);
    if (r < 0)
        return kc_fail(e, r, "%s is not a regular file", f->path);
    if (bytes < 8)
        return kc_fail(e, -EBADMSG, "%s has %llu bytes; a safetensors file begins with 8", f->path,
                       (unsigned long long)bytes);
    r = kc_storage_read_all(st, f->fd, &length, sizeof length, 0);
    if (r < 0)
        return kc_storage_fail(st, e, r, "read", f->path, 0);
    if (length > HEADER_MAX || length > bytes - 8)
        return kc_fail(
            e, -EBADMSG,
            "%s: its header should have %llu bytes (at most %llu), the file has %llu; it is cut short or no "
            "safetensors file",
            f->path, (unsigned long long)length, (unsigned long long)HEADER_MAX, (unsigned long long)bytes);
    char *text = malloc((size_t)length + 1);
    if (!text)
        return kc_fail(e, -ENOMEM, "no memory for the header of %s", f->path);
    r = kc_storage_read_all(st, f->fd, text, (size_t)length, 8);
    json_t *header =
        r == 0 && length && text[0] == '{' ? json_loadb(text, (size_t)length, JSON_REJECT_DUPLICATES, &je) : NULL;
    free(text);
    f->data_at = 8 + length;
    if (r < 0)
        r = kc_storage_fail(st, e, r, "read", f->path, 0);
    else if (!json_is_object(header))
        r = kc_fail(e, -EBADMSG, "%s: the header is no JSON object, or names a tensor twice", f->path);
    else if ((r = parse_header(f, header, e)) == 0)
        r = check_lengths(f, bytes, e);
    json_decref(header);
    return r;
}

int kc_safetensors_open(const char *path, struct kc_tensor_file *out, struct kc_error *e)
{
    struct kc_tensor_file f = {.fd = kc_storage_posix.open(NULL, path, O_RDONLY | O_NONBLOCK)};
    snprintf(f.path, sizeof f.path, "%s", path);
    if (f.fd < 0)
        return kc_storage_fail(&kc_storage_posix, e, f.fd, "open", path, 0);
    int r = read_header(&f, e);
    if (r < 0)
        kc_tensor_file_free(&f);
    else
        *out = f;
    return r;
}
