/* files.c - parameters from safetensors files with Hugging Face names. What does not fit is listed before a value is
 * read: nothing is loaded in part or in silence (F37). */
#include "safetensors.h"
#include "state_impl.h"

#include "base/json.h"
#include "base/print.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define FILES_MAX 1024
#define PREFIX "transformer."

/* The files of one model. */
struct shelf {
    uint32_t count;
    struct kc_safetensors *file;
    json_t *index; /* tensor → file name; NULL: a single file */
};

/* Where a parameter comes from. */
struct origin {
    bool found;
    uint32_t file, tensor;
};

/* Both namings of GPT-2: the public files leave the prefix out. */
static const char *plain(const char *name)
{
    return strncmp(name, PREFIX, sizeof PREFIX - 1) == 0 ? name + sizeof PREFIX - 1 : name;
}

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

/* Causal masks that the public files keep among the tensors: constants, not parameters. */
static bool is_mask(const char *name)
{
    return strncmp(plain(name), "h.", 2) == 0 &&
           (ends_with(name, ".attn.bias") || ends_with(name, ".attn.masked_bias"));
}

static void shelf_free(struct shelf *s)
{
    for (uint32_t i = 0; i < s->count; i++)
        kc_safetensors_free(&s->file[i]);
    free(s->file);
    json_decref(s->index);
}

static int shelf_add(struct shelf *s, const char *path, struct kc_error *e)
{
    struct kc_safetensors *more = realloc(s->file, (s->count + 1) * sizeof *more);
    if (!more)
        return kc_fail(e, -ENOMEM, "no memory to open %s", path);
    s->file = more;
    int r = kc_safetensors_open(path, &s->file[s->count], e);
    s->count += r == 0;
    return r;
}

static json_t *load_json(const char *path, struct kc_error *e, int *code)
{
    char *text;
    size_t bytes;
    json_error_t je;
    *code = kc_storage_read_file(&kc_storage_posix, path, 64 << 20, &text, &bytes);
    if (*code < 0) {
        kc_storage_fail(&kc_storage_posix, e, *code, "read", path, 0);
        return NULL;
    }
    json_t *json = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &je);
    free(text);
    if (!json_is_object(json)) {
        *code = kc_fail(e, -EBADMSG, "%s is no JSON object: line %d: %s", path, je.line,
                        json ? "not an object" : je.text);
        json_decref(json);
        return NULL;
    }
    return json;
}

/* config.json against the spec: every number that differs, with both values. */
static int check_config(const struct kc_job_spec *spec, const char *folder, struct kc_error *e)
{
    const struct {
        const char *key, *other, *field;
        uint32_t want;
    } rows[] = {{"n_layer", "num_hidden_layers", "model.layers", spec->layers},
                {"n_embd", "hidden_size", "model.hidden", spec->hidden},
                {"n_head", "num_attention_heads", "model.heads", spec->heads},
                {"n_positions", "n_ctx", "model.context", spec->context},
                {"vocab_size", "vocab_size", "model.vocab", spec->vocab}};
    char path[4096], list[512] = "";
    struct kc_print p = {.out = list, .room = sizeof list};
    int r;
    snprintf(path, sizeof path, "%s/config.json", folder);
    json_t *json = load_json(path, e, &r);
    if (!json)
        return r;
    const char *type = kc_json_text(json, "model_type", "");
    if (strcmp(type, kc_family_name[spec->family]) != 0)
        kc_print(&p, "; model_type is \"%s\", model.family \"%s\"", type, kc_family_name[spec->family]);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        long long have = kc_json_integer(json, rows[i].key, kc_json_integer(json, rows[i].other, -1));
        if (have < 0)
            kc_print(&p, "; %s is missing (%s is %u)", rows[i].key, rows[i].field, rows[i].want);
        else if (have != rows[i].want)
            kc_print(&p, "; %s is %lld, %s is %u", rows[i].key, have, rows[i].field, rows[i].want);
    }
    json_decref(json);
    return p.length ? kc_fail(e, -EINVAL, "%s does not fit the spec: %s", path, list + 2) : 0;
}

/* Open every file the index names, each once. */
static int open_index(struct shelf *s, const char *folder, struct kc_error *e)
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
        if ((r = shelf_add(s, path, e)) < 0)
            return r;
    }
    return 0;
}

static int open_folder(struct shelf *s, const struct kc_job_spec *spec, const char *folder, struct kc_error *e)
{
    char path[4096];
    struct stat st;
    int r = check_config(spec, folder, e);
    if (r < 0)
        return r;
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    if (stat(path, &st) == 0)
        return shelf_add(s, path, e);
    snprintf(path, sizeof path, "%s/model.safetensors.index.json", folder);
    if (stat(path, &st) != 0)
        return kc_fail(e, -ENOENT, "%s has neither model.safetensors nor model.safetensors.index.json", folder);
    json_t *json = load_json(path, e, &r);
    if (!json)
        return r;
    s->index = json_incref(json_object_get(json, "weight_map"));
    json_decref(json);
    if (!json_is_object(s->index))
        return kc_fail(e, -EBADMSG, "%s has no weight_map", path);
    return open_index(s, folder, e);
}

/* ---- matching ---- */

static uint32_t find(const struct kc_state *s, const char *name)
{
    uint32_t t = 0;
    while (t < s->map.tensors && strcmp(plain(s->map.tensor[t].name), plain(name)) != 0)
        t++;
    return t;
}

static void print_shape(struct kc_print *p, uint32_t rank, const uint64_t *size)
{
    for (uint32_t d = 0; d < rank; d++)
        kc_print(p, "%s%" PRIu64, d ? ", " : "[", size[d]);
    kc_print(p, rank ? "]" : "[]");
}

/* The number of the tensor that a tied head repeats, or the count of tensors if `name` is not such a head (F38). */
static uint32_t tied_to(const struct kc_state *s, const char *name)
{
    return strcmp(plain(name), "lm_head.weight") == 0 ? find(s, "wte.weight") : s->map.tensors;
}

static void match_one(const struct kc_state *s, const struct kc_file_tensor *x, struct origin here,
                      struct origin *from, struct origin *head, struct kc_print *p)
{
    uint32_t t = find(s, x->name);
    struct origin *slot = t < s->map.tensors ? &from[t] : head;
    if (t == s->map.tensors && is_mask(x->name))
        return;
    if (t == s->map.tensors && (t = tied_to(s, x->name)) == s->map.tensors) {
        kc_print(p, "; unexpected %s", x->name);
        return;
    }
    const struct kc_map_tensor *m = &s->map.tensor[t];
    if (slot->found)
        kc_print(p, "; twice %s", x->name);
    if (!x->readable)
        kc_print(p, "; type of %s: %s", x->name, x->dtype);
    if (x->rank != m->rank || memcmp(x->size, m->size, m->rank * sizeof m->size[0]) != 0) {
        kc_print(p, "; shape of %s: ", x->name);
        print_shape(p, x->rank, x->size);
        kc_print(p, ", the model has ");
        print_shape(p, m->rank, m->size);
    }
    *slot = here;
}

/* All differences, in one line. */
static int match(const struct kc_state *s, const struct shelf *shelf, const char *path, struct origin *from,
                 struct origin *head, struct kc_error *e)
{
    char list[800] = "";
    struct kc_print p = {.out = list, .room = sizeof list};
    const char *name;
    json_t *value;
    for (uint32_t t = 0; t < s->map.tensors; t++)
        from[t].found = false;
    for (uint32_t f = 0; f < shelf->count; f++)
        for (uint32_t i = 0; i < shelf->file[f].count; i++) {
            const struct kc_file_tensor *x = &shelf->file[f].tensor[i];
            const char *file = strrchr(shelf->file[f].path, '/');
            if (shelf->index && strcmp(kc_json_text(shelf->index, x->name, ""), file + 1) != 0)
                kc_print(&p, "; the index does not name %s in %s", x->name, file + 1);
            match_one(s, x, (struct origin){true, f, i}, from, head, &p);
        }
    if (shelf->index)
        json_object_foreach(shelf->index, name, value) {
            uint32_t t = find(s, name);
            if (t < s->map.tensors && from[t].found &&
                strcmp(shelf->file[from[t].file].tensor[from[t].tensor].name, name) != 0)
                kc_print(&p, "; the index names %s, its file does not have it", name);
        }
    for (uint32_t t = 0; t < s->map.tensors; t++)
        if (!from[t].found)
            kc_print(&p, "; missing %s", s->map.tensor[t].name);
    if (p.length == 0)
        return 0;
    return kc_fail(e, -EINVAL, "%.160s does not fit the model: %s%s", path, list + 2,
                   p.length >= sizeof list ? " …" : "");
}

#define CHUNK (1u << 16)

static int read_chunk(const struct shelf *shelf, struct origin from, uint64_t at, uint64_t n, float *out,
                      struct kc_error *e)
{
    return kc_safetensors_read(&shelf->file[from.file], from.tensor, at, n, out, e);
}

/* One tensor into state. A head that is stored beside it must be the same values, or it is another model. */
static int load_tensor(struct kc_state *s, const struct shelf *shelf, uint32_t t, struct origin from,
                       struct origin head, float *values, struct kc_error *e)
{
    const struct kc_map_tensor *m = &s->map.tensor[t];
    float *again = values + CHUNK;
    int r = 0;
    for (uint64_t at = 0; at < m->count && r == 0; at += CHUNK) {
        uint64_t n = m->count - at < CHUNK ? m->count - at : CHUNK;
        r = read_chunk(shelf, from, at, n, values, e);
        if (r == 0)
            kc_values_put(s, KC_MASTER, t, at, n, values);
        if (r == 0 && head.found && (r = read_chunk(shelf, head, at, n, again, e)) == 0 &&
            memcmp(again, values, n * sizeof *again) != 0)
            r = kc_fail(e, -EINVAL, "%s: %s has other values than %s; this family ties the two",
                        shelf->file[head.file].path, shelf->file[head.file].tensor[head.tensor].name, m->name);
    }
    return r;
}

static int load(struct kc_state *s, const struct shelf *shelf, const char *path, struct kc_error *e)
{
    const struct origin none = {false, 0, 0};
    struct origin head = none, *from = calloc(s->map.tensors + 1u, sizeof *from);
    float *values = malloc(2 * CHUNK * sizeof *values);
    int r = from && values ? match(s, shelf, path, from, &head, e)
                           : kc_fail(e, -ENOMEM, "no memory to read %s", path);
    for (uint32_t t = 0; t < s->map.tensors && r == 0; t++)
        r = load_tensor(s, shelf, t, from[t], t == tied_to(s, "lm_head.weight") ? head : none, values, e);
    free(values);
    free(from);
    return r;
}

int kc_values_from_file(struct kc_state *s, const char *path, struct kc_error *e)
{
    struct shelf shelf = {0};
    struct stat st;
    int r;
    if (strlen(path) >= 3072)
        return kc_fail(e, -ENAMETOOLONG, "the path is too long: %.200s…", path);
    if (stat(path, &st) != 0)
        return kc_storage_fail(&kc_storage_posix, e, -errno, "open", path, 0);
    r = S_ISDIR(st.st_mode) ? open_folder(&shelf, s->spec, path, e) : shelf_add(&shelf, path, e);
    if (r == 0)
        r = load(s, &shelf, path, e);
    shelf_free(&shelf);
    return r;
}
