/* spec.c - reads a spec by the table spec.def. Stops at the first fault: one line, with the full path of every field
 * concerned. Reads no other file: whether the data fits is asked in jobs/data/check.h. */
#include "govern/spec.h"

#include "base/file.h"
#include "base/suggest.h"
#include "spec_impl.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum kind { NAME, U32, U64, REAL, BOOL, TOKEN_OR_NULL, PATTERNS, PATH_OR_NULL, FILES, FILE_OR_NULL, ENVIRONMENT, INJECTIONS, ENUMERATION };

struct row {
    const char *path;
    size_t member;
    enum kind kind;
    const char *const *names; /* ENUMERATION */
    uint32_t names_count;
    bool required;
    double low, high, otherwise;
};

/* KIND_##kind turns a row's kind into three members; only ENUM names its words. */
#define FIELD(path, member, kind, required, low, high, otherwise)                                                      \
    {path, offsetof(struct kc_job_spec, member), KIND_##kind, required, low, high, otherwise},
#define KIND_NAME NAME, NULL, 0
#define KIND_U32 U32, NULL, 0
#define KIND_U64 U64, NULL, 0
#define KIND_REAL REAL, NULL, 0
#define KIND_BOOL BOOL, NULL, 0
#define KIND_TOKEN_OR_NULL TOKEN_OR_NULL, NULL, 0
#define KIND_PATTERNS PATTERNS, NULL, 0
#define KIND_PATH_OR_NULL PATH_OR_NULL, NULL, 0
#define KIND_FILES FILES, NULL, 0
#define KIND_FILE_OR_NULL FILE_OR_NULL, NULL, 0
#define KIND_ENVIRONMENT ENVIRONMENT, NULL, 0
#define KIND_INJECTIONS INJECTIONS, NULL, 0
#define KIND_ENUM(names, count) ENUMERATION, names, count

static const struct row rows[] = {
#include "spec.def"
};
#define ROWS (sizeof rows / sizeof rows[0])

/* Fields that not every family has, and for whom one is required. */
#define OF(family) (1u << KC_FAMILY_##family)
static const struct {
    const char *path;
    uint32_t families, required;
} of_family[] = {
    {"model.kv_heads", OF(LLAMA) | OF(MOE), 0},
    {"model.ffn", OF(LLAMA) | OF(MOE), OF(LLAMA) | OF(MOE)},
    {"model.tied", OF(LLAMA) | OF(MOE), 0},
    {"model.rope_theta", OF(LLAMA) | OF(MOE), 0},
    {"model.rms_eps", OF(LLAMA) | OF(MOE), 0},
    {"model.experts", OF(MOE), OF(MOE)},
    {"model.top_k", OF(MOE), OF(MOE)},
    {"model.balance", OF(MOE), 0},
};

static const json_t *find(const json_t *root, const char *path)
{
    char part[64];
    while (root) {
        size_t n = strcspn(path, ".");
        snprintf(part, sizeof part, "%.*s", (int)n, path);
        root = json_object_get(root, part);
        if (!path[n])
            return root;
        path += n + 1;
    }
    return NULL;
}

const char *spec_shown(const json_t *value, char room[64])
{
    char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(9));
    snprintf(room, 64, strlen(text ? text : "") > 60 ? "%.57s..." : "%s", text ? text : "?");
    free(text);
    return room;
}

static int bad_range(struct reader *r, const struct row *row, const json_t *value)
{
    char room[64];
    const char *what = row->kind == REAL ? "number" : "whole number";
    return kc_fail(r->e, -EINVAL, "%s is %s: it must be a %s from %.15g to %.15g", row->path, spec_shown(value, room), what,
                   row->low, row->high);
}

static int read_number(struct reader *r, const struct row *row, const json_t *value, void *at)
{
    if (row->kind == REAL) {
        double v = json_number_value(value);
        if (!json_is_number(value) || !(v >= row->low && v <= row->high))
            return bad_range(r, row, value);
        memcpy(at, &v, sizeof v);
        return 0;
    }
    if (!json_is_integer(value))
        return bad_range(r, row, value);
    json_int_t v = json_integer_value(value);
    if (v < (json_int_t)row->low || (double)v > row->high)
        return bad_range(r, row, value);
    if (row->kind == U64)
        memcpy(at, &(uint64_t){(uint64_t)v}, sizeof(uint64_t));
    else
        memcpy(at, &(uint32_t){(uint32_t)v}, sizeof(uint32_t));
    return 0;
}

/* May this field have the value? All of its enum, but of the algorithms only those that the field's primitive has. */
static bool offered(const struct row *row, uint32_t value)
{
    if (row->names != kc_choice_name || value == KC_CHOICE_AUTO)
        return true;
    size_t primitive = (row->member - offsetof(struct kc_job_spec, algorithm)) / sizeof(uint32_t);
    return kc_primitive_algorithms[primitive] >> (value - KC_CHOICE_AUTO - 1) & 1;
}

static int read_enum(struct reader *r, const struct row *row, const json_t *value, void *at)
{
    char all[256] = "", room[64];
    const char *text = json_string_value(value), *names[32];
    uint32_t count = 0;
    for (uint32_t i = 0; i < row->names_count && count < sizeof names / sizeof *names; i++) {
        if (!offered(row, i))
            continue;
        if (text && strcmp(text, row->names[i]) == 0) {
            memcpy(at, &i, sizeof i);
            return 0;
        }
        size_t n = strlen(all);
        snprintf(all + n, sizeof all - n, "%s%s", n ? ", " : "", row->names[i]);
        names[count++] = row->names[i];
    }
    const char *near = text ? kc_suggest(text, names, count) : NULL;
    return kc_fail(r->e, -EINVAL, "%s is %s: it must be one of %s%s%s%s", row->path, spec_shown(value, room), all,
                   near ? "; did you mean \"" : "", near ? near : "", near ? "\"?" : "");
}

static int read_name(struct reader *r, const struct row *row, const json_t *value, void *at)
{
    const char *text = json_string_value(value);
    size_t n = text ? strlen(text) : 0;
    char room[64];
    bool good = n >= 1 && n <= 40;
    for (size_t i = 0; i < n; i++)
        good = good && (islower((unsigned char)text[i]) || isdigit((unsigned char)text[i]) || text[i] == '-');
    if (!good)
        return kc_fail(r->e, -EINVAL,
                       "%s is %s: it must be 1 to 40 characters of a-z, 0-9 and '-' (the job's id appends a number)",
                       row->path, spec_shown(value, room));
    kc_text t = kc_contract_text(r->arena, text);
    memcpy(at, &t, sizeof t);
    return 0;
}

int spec_read_path(struct reader *r, const char *what, const json_t *value, bool or_null, kc_text *out)
{
    const char *text = json_string_value(value);
    char full[PATH_MAX], room[64];
    if (or_null && json_is_null(value))
        return 0;
    if (!text || !*text)
        return kc_fail(r->e, -EINVAL, "%s is %s: it must be the path of a file%s", what, spec_shown(value, room),
                       or_null ? ", or null" : "");
    int n = snprintf(full, sizeof full, "%s%s%s", *text == '/' ? "" : r->directory, *text == '/' ? "" : "/", text);
    if (n < 0 || (size_t)n >= sizeof full)
        return kc_fail(r->e, -EINVAL, "%s is longer than %d bytes as an absolute path", what, PATH_MAX - 1);
    *out = kc_contract_text(r->arena, full);
    return 0;
}

static bool variable_name(const char *s)
{
    if (!isalpha((unsigned char)*s) && *s != '_')
        return false;
    for (; *s; s++)
        if (!isalnum((unsigned char)*s) && *s != '_')
            return false;
    return true;
}

static int read_env(struct reader *r, const struct row *row, const json_t *value)
{
    char room[64];
    const char *key;
    json_t *item;
    if (!json_is_object(value))
        return kc_fail(r->e, -EINVAL, "%s is %s: it must be an object of texts", row->path, spec_shown(value, room));
    struct kc_spec_env *list =
        kc_contract_array(r->arena, &r->spec->env, json_object_size(value), sizeof(struct kc_spec_env));
    size_t i = 0;
    json_object_foreach((json_t *)value, key, item) {
        if (!variable_name(key) || strncmp(key, "KC_", 3) == 0)
            return kc_fail(r->e, -EINVAL, "env.%s: a variable is named with A-Z, a-z, 0-9 and '_', and KC_… is ours",
                           key);
        if (!json_is_string(item))
            return kc_fail(r->e, -EINVAL, "env.%s is %s: it must be a text", key, spec_shown(item, room));
        if (!list)
            return -ENOSPC;
        list[i].name = kc_contract_text(r->arena, key);
        list[i++].value = kc_contract_text(r->arena, json_string_value(item));
    }
    return 0;
}

static void set_default(struct reader *r, const struct row *row)
{
    char *at = (char *)r->spec + row->member;
    if (row->kind == REAL)
        memcpy(at, &row->otherwise, sizeof(double));
    else if (row->kind == U64)
        memcpy(at, &(uint64_t){(uint64_t)row->otherwise}, sizeof(uint64_t));
    else if (row->kind == U32 || row->kind == BOOL || row->kind == ENUMERATION || row->kind == TOKEN_OR_NULL)
        memcpy(at, &(uint32_t){(uint32_t)row->otherwise}, sizeof(uint32_t));
}

static bool family_has(uint32_t family, const char *path, bool *required)
{
    for (size_t i = 0; i < sizeof of_family / sizeof *of_family; i++)
        if (strcmp(of_family[i].path, path) == 0) {
            *required = of_family[i].required >> family & 1;
            return of_family[i].families >> family & 1;
        }
    return true;
}

static int read_row(struct reader *r, const struct row *row)
{
    const json_t *value = find(r->root, row->path);
    void *at = (char *)r->spec + row->member;
    bool required = row->required;
    char room[64];
    if (!family_has(r->spec->family, row->path, &required))
        return !value ? 0 : kc_fail(r->e, -EINVAL, "%s is a field that model.family \"%s\" does not have: leave it out",
                                    row->path, kc_family_name[r->spec->family]);
    if (!value && required)
        return kc_fail(r->e, -EINVAL, "%s is missing; kc-job(5) shows a whole spec", row->path);
    if (!value) {
        set_default(r, row);
        return 0;
    }
    switch (row->kind) {
    case TOKEN_OR_NULL:
        if (json_is_null(value)) {
            set_default(r, row);
            return 0;
        } /* fall through */
    case U32:
    case U64:
    case REAL:
        return read_number(r, row, value, at);
    case ENUMERATION:
        return read_enum(r, row, value, at);
    case NAME:
        return read_name(r, row, value, at);
    case PATTERNS:
        return spec_read_patterns(r, row->path, value, at);
    case PATH_OR_NULL:
        return spec_read_path(r, row->path, value, true, at);
    case FILES:
    case FILE_OR_NULL:
        return spec_read_files(r, row->path, value, row->kind == FILES, at);
    case ENVIRONMENT:
        return read_env(r, row, value);
    case INJECTIONS:
        return spec_read_injections(r, row->path, value, at);
    case BOOL:
        if (!json_is_boolean(value))
            return kc_fail(r->e, -EINVAL, "%s is %s: it must be true or false", row->path, spec_shown(value, room));
        memcpy(at, &(uint32_t){json_is_true(value)}, sizeof(uint32_t));
        return 0;
    }
    return -EINVAL;
}

/* Is `path` a field, or an object that holds fields? */
static int known(const char *path)
{
    size_t n = strlen(path);
    for (size_t i = 0; i < ROWS; i++) {
        if (strcmp(rows[i].path, path) == 0)
            return 1;
        if (strncmp(rows[i].path, path, n) == 0 && rows[i].path[n] == '.')
            return 2;
    }
    return 0;
}

/* The field or object that a mistyped path most likely means: compared whole, and by its last part alone. NULL: none. */
static const char *nearest(const char *path, const char *key)
{
    static const char *const objects[] = {"model", "model.init", "lora", "data", "batch", "optimizer", "lr_schedule",
                                          "parallel", "parallel.algorithms", "snapshot", "evaluate", "policy", "stop", "log"};
    enum { OBJECTS = sizeof objects / sizeof *objects };
    const char *whole[ROWS + OBJECTS], *last[ROWS];
    for (size_t i = 0; i < ROWS; i++) {
        const char *dot = strrchr(rows[i].path, '.');
        whole[i] = rows[i].path;
        last[i] = dot ? dot + 1 : rows[i].path;
    }
    memcpy(whole + ROWS, objects, sizeof objects);
    const char *near = kc_suggest(path, whole, ROWS + OBJECTS);
    if (near && strncmp(near, path, strlen(path)) == 0) /* the beginning of the name, in its place */
        return near;
    for (size_t i = 0; i < ROWS; i++) /* the right name in the wrong place */
        if (strcmp(last[i], key) == 0)
            return rows[i].path;
    if (!near && (near = kc_suggest(key, last, ROWS)))
        for (size_t i = 0; i < ROWS; i++)
            if (last[i] == near)
                return rows[i].path;
    return near;
}

static int refuse_unknown(struct reader *r, const json_t *object, const char *prefix)
{
    const char *key;
    json_t *item;
    char path[192], room[64];
    json_object_foreach((json_t *)object, key, item) {
        snprintf(path, sizeof path, "%s%s%.100s", prefix, *prefix ? "." : "", key);
        int what = known(path);
        if (what == 2 && !json_is_object(item))
            return kc_fail(r->e, -EINVAL, "%s is %s: it must be an object", path, spec_shown(item, room));
        if (what == 2) {
            int code = refuse_unknown(r, item, path);
            if (code < 0)
                return code;
        }
        if (what)
            continue;
        const char *near = nearest(path, key);
        return kc_fail(r->e, -EINVAL, "%s is no field of a spec%s%s (kc-job(5) lists all)", path,
                       near ? "; the nearest is " : "", near ? near : "");
    }
    return 0;
}

static int check_documents(const struct kc_job_spec *s, struct kc_error *e)
{
    bool masked = s->documents == KC_DOCUMENTS_MASKED, token = s->end_of_text != KC_NO_TOKEN;
    if (masked && !token)
        return kc_fail(e, -EINVAL, "data.documents is masked, but data.end_of_text is missing: name the token that documents "
                       "begin with (50256 for GPT-2's vocabulary)");
    if (token && !masked)
        return kc_fail(e, -EINVAL, "data.end_of_text is %u, but data.documents is %s: it has a meaning with masked alone",
                       s->end_of_text, kc_documents_name[s->documents]);
    if (token && s->end_of_text >= s->vocab)
        return kc_fail(e, -EINVAL, "data.end_of_text is %u, but model.vocab is %u: it must be a token of the vocabulary",
                       s->end_of_text, s->vocab);
    return 0;
}

static int check_lora(const struct kc_job_spec *s, struct kc_error *e)
{
    if (s->lora_rank && !s->lora_targets.count)
        return kc_fail(e, -EINVAL, "lora.rank is %llu, but lora.targets is missing: name the weights that get adapters, such as "
                       "[\"%s\"]", (unsigned long long)s->lora_rank, s->family == KC_FAMILY_GPT2 ? "*.c_attn.weight" : "*.[qv]_proj.weight");
    if (!s->lora_rank && (s->lora_targets.count || s->lora_alpha > 0))
        return kc_fail(e, -EINVAL, "lora.%s is given, but lora.rank is missing or 0: it says how wide adapters are, such as 8",
                       s->lora_targets.count ? "targets" : "alpha");
    return 0;
}

/* What follows from other fields. */
static void fill_in(struct kc_job_spec *s)
{
    if (s->kv_heads == 0)
        s->kv_heads = s->heads;
    if (s->lora_alpha == 0)
        s->lora_alpha = (double)s->lora_rank;
    if (s->family == KC_FAMILY_GPT2) {
        s->ffn = 4 * s->hidden;
        s->tied = 1;
    }
}

/* Combinations: every number of the equation, and a value that would do (F48). */
static int check_together(const struct kc_job_spec *s, struct kc_error *e)
{
    int code = spec_check_parallel(s, e);
    if (code < 0)
        return code;
    if (s->hidden % s->heads) {
        uint32_t heads = s->heads;
        while (s->hidden % heads)
            heads--;
        return kc_fail(e, -EINVAL, "model.heads is %u, which does not divide model.hidden = %u: model.heads %u would do",
                       s->heads, s->hidden, heads);
    }
    if (s->heads % s->kv_heads) {
        uint32_t heads = s->kv_heads;
        while (s->heads % heads)
            heads--;
        return kc_fail(e, -EINVAL,
                       "model.kv_heads is %u, which does not divide model.heads = %u: model.kv_heads %u would do",
                       s->kv_heads, s->heads, heads);
    }
    if (s->top_k > s->experts)
        return kc_fail(e, -EINVAL, "model.top_k is %u, but model.experts is %u: a token has as many experts at most",
                       s->top_k, s->experts);
    if (s->rope_theta > 0 && s->hidden / s->heads % 2)
        return kc_fail(e, -EINVAL,
                       "model.heads is %u of model.hidden = %u, so a head is %u wide; to turn pairs of numbers by their "
                       "position the width must be even",
                       s->heads, s->hidden, s->hidden / s->heads);
    if (s->evaluate_every && !s->validation.count)
        return kc_fail(e, -EINVAL,
                       "evaluate.every is %llu, but data.validation is missing: name a token file or set evaluate.every to 0",
                       (unsigned long long)s->evaluate_every);
    if ((code = check_lora(s, e)) < 0 || (code = spec_check_injections(s, e)) < 0)
        return code;
    if (s->hang_ceiling < s->hang_floor)
        return kc_fail(e, -EINVAL, "policy.hang_ceiling_seconds is %g, but policy.hang_floor_seconds is %g: it must be as much at "
                       "least", s->hang_ceiling, s->hang_floor);
    return check_documents(s, e);
}

int kc_spec_parse(const char *text, const char *directory, struct kc_arena *arena, const struct kc_job_spec **out,
                  struct kc_error *e)
{
    json_error_t at;
    json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, &at);
    int code = 0;
    if (!root)
        return kc_fail(e, -EINVAL, "line %d, column %d: %s. A spec is one JSON object, as kc-job(5) shows", at.line, at.column,
                       at.text);
    struct reader r = {.root = root, .directory = directory, .arena = arena, .e = e};
    if (!json_is_object(root)) {
        code = kc_fail(e, -EINVAL, "a spec is a JSON object");
        goto out;
    }
    r.spec = kc_contract_begin(arena, KC_CONTRACT_JOB_SPEC, KC_JOB_SPEC_VERSION, sizeof *r.spec);
    if (!r.spec) {
        code = kc_fail(e, -ENOSPC, "no memory for a spec");
        goto out;
    }
    code = refuse_unknown(&r, root, "");
    for (size_t i = 0; code == 0 && i < ROWS; i++)
        code = read_row(&r, &rows[i]);
    if (code == 0) {
        fill_in(r.spec);
        code = check_together(r.spec, e);
    }
    if (code == 0 && (code = kc_contract_seal(arena)) < 0)
        kc_fail(e, code, "the spec is too large: %zu bytes in memory, %zu are there", arena->need, arena->size);
    if (code == 0)
        *out = r.spec;
out:
    json_decref(root);
    return code;
}

int kc_spec_load(const char *path, struct kc_arena *arena, const struct kc_job_spec **out, struct kc_error *e)
{
    char full[PATH_MAX], *text;
    size_t bytes;
    int code;
    if (!realpath(path, full))
        return kc_fail(e, -errno, "%s: %s", path, strerror(errno));
    code = kc_file_read(full, KC_SPEC_BYTES_MAX, &text, &bytes);
    if (code < 0)
        return kc_fail(e, code == -EFBIG ? -EINVAL : code, "%s: %s", path,
                       code == -EFBIG ? "larger than 1 MiB, which no spec is" : strerror(-code));
    if (strlen(text) != bytes)
        code = kc_fail(e, -EINVAL, "%s: has a zero byte, which no spec has", path);
    *strrchr(full, '/') = 0;
    if (code == 0 && (code = kc_spec_parse(text, full, arena, out, e)) < 0)
        kc_fail_prefix(e, code, "%s", path);
    free(text);
    return code;
}

static json_t *row_json(const struct kc_job_spec *s, const struct row *row)
{
    const char *at = (const char *)s + row->member;
    uint32_t small;
    uint64_t large;
    double real;
    memcpy(&small, at, sizeof small);
    switch (row->kind) {
    case REAL:
        memcpy(&real, at, sizeof real);
        return json_real(real);
    case U64:
        memcpy(&large, at, sizeof large);
        return json_integer((json_int_t)large);
    case TOKEN_OR_NULL:
        return small == KC_NO_TOKEN ? json_null() : json_integer(small);
    case U32:
        return json_integer(small);
    case BOOL:
        return json_boolean(small);
    case ENUMERATION:
        return json_string(row->names[small]);
    case NAME:
    case PATH_OR_NULL:
        return small ? json_string(KC_TEXT(s, small)) : json_null();
    case PATTERNS:
        return spec_patterns_json(s, *(const struct kc_span *)(const void *)at);
    case FILES:
    case FILE_OR_NULL:
        return spec_files_json(s, *(const struct kc_span *)(const void *)at);
    case INJECTIONS:
        return spec_injections_json(s, *(const struct kc_span *)(const void *)at);
    case ENVIRONMENT:
        break;
    }
    json_t *env = json_object();
    const struct kc_spec_env *list = KC_AT(s, struct kc_spec_env, s->env);
    for (uint32_t i = 0; i < s->env.count; i++)
        json_object_set_new(env, KC_TEXT(s, list[i].name), json_string(KC_TEXT(s, list[i].value)));
    return env;
}

struct json_t *kc_spec_json(const struct kc_job_spec *spec)
{
    json_t *root = json_object();
    for (size_t i = 0; i < ROWS; i++) {
        json_t *at = root;
        const char *path = rows[i].path;
        char part[64];
        bool required;
        if (!family_has(spec->family, path, &required))
            continue;
        for (size_t n = strcspn(path, "."); path[n]; n = strcspn(path, ".")) {
            snprintf(part, sizeof part, "%.*s", (int)n, path);
            json_t *next = json_object_get(at, part);
            if (!next)
                json_object_set_new(at, part, next = json_object());
            at = next;
            path += n + 1;
        }
        json_object_set_new(at, path, row_json(spec, &rows[i]));
    }
    return root;
}
