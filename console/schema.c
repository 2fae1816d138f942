/* schema.c - rows of the table → JSON Schema. A name of an object becomes a $ref, and the object a member of $defs. */
#include "schema.h"

#include "borders.h"
#include "chain.h"
#include "comms.h"
#include "governance.h"

#include "contracts/exec_plan.h"
#include "contracts/step_trace.h"
#include "contracts/types.h"
#include "shm/names.h"
#include "state/state.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum row_kind { ROW_ANSWER, ROW_OBJECT, ROW_MEMBER, ROW_METRICS, ROW_WORDS };

static const struct row {
    enum row_kind kind;
    const char *name, *type, *text;
    const char *const *words;
    int count; /* of words; of metrics: 1 those of a job, 0 of a rank */
} rows[] = {
#define ANSWER(verb, text) {ROW_ANSWER, verb, NULL, text, NULL, 0},
#define OBJECT(name, text) {ROW_OBJECT, name, NULL, text, NULL, 0},
#define MEMBER(key, type, text) {ROW_MEMBER, key, type, text, NULL, 0},
#define METRICS(of_job) {ROW_METRICS, "", NULL, "", NULL, of_job},
#define WORDS(name, words, count) {ROW_WORDS, name, NULL, "", words, count},
#include "console/schemas/all.def"
#undef ANSWER
#undef OBJECT
#undef MEMBER
#undef METRICS
#undef WORDS
};
#define ROWS (sizeof rows / sizeof rows[0])

/* One schema while it is made. */
struct making {
    json_t *defs;
    struct kc_error *e;
};

void schema_name(const char *verb, char *out, size_t room)
{
    snprintf(out, room, "kc.%s/1", verb);
    for (char *p = out; *p; p++)
        if (*p == ' ')
            *p = '.';
}

const char *schema_verb(size_t n)
{
    const char *before = "";
    for (size_t i = 0; i < ROWS; i++) {
        if (rows[i].kind != ROW_ANSWER || !strcmp(rows[i].name, before))
            continue; /* another answer of the same verb follows it */
        before = rows[i].name;
        if (n-- == 0)
            return before;
    }
    return NULL;
}

static const struct row *find(const char *name, size_t length)
{
    for (size_t i = 0; i < ROWS; i++)
        if ((rows[i].kind == ROW_OBJECT || rows[i].kind == ROW_WORDS) && strlen(rows[i].name) == length &&
            !strncmp(rows[i].name, name, length))
            return &rows[i];
    return NULL;
}

/* ---- types ----------------------------------------------------------------------------------------------------- */

static json_t *type_json(struct making *m, const char **at);
static json_t *object_json(struct making *m, const struct row *head);

static json_t *basic_json(const char *name, size_t length)
{
    static const char *const basic[] = {"integer", "number", "boolean"};
    for (size_t i = 0; i < sizeof basic / sizeof *basic; i++)
        if (strlen(basic[i]) == length && !strncmp(basic[i], name, length))
            return json_pack("{s:s}", "type", basic[i]);
    if (length == 4 && !strncmp(name, "text", length))
        return json_pack("{s:s}", "type", "string");
    if (length == 4 && !strncmp(name, "time", length))
        return json_pack("{s:s,s:s}", "type", "string", "format", "date-time");
    if (length == 3 && !strncmp(name, "any", length))
        return json_object();
    return NULL;
}

static json_t *words_json(const struct row *row)
{
    json_t *all = json_array();
    for (int i = 0; i < row->count; i++)
        if (row->words[i])
            json_array_append_new(all, json_string(row->words[i]));
    return json_pack("{s:o}", "enum", all);
}

/* A name: of something basic, or of a row. */
static json_t *named_json(struct making *m, const char *name, size_t length)
{
    json_t *basic = basic_json(name, length);
    const struct row *row = basic ? NULL : find(name, length);
    if (basic)
        return basic;
    if (!row) {
        kc_fail(m->e, -EINVAL, "no row of the schemas is called %.*s", (int)length, name);
        return NULL;
    }
    if (!json_object_get(m->defs, row->name)) {
        json_object_set_new(m->defs, row->name, json_null()); /* it may name itself */
        json_t *made = row->kind == ROW_WORDS ? words_json(row) : object_json(m, row);
        if (!made)
            return NULL;
        json_object_set_new(m->defs, row->name, made);
    }
    char ref[96];
    snprintf(ref, sizeof ref, "#/$defs/%s", row->name);
    return json_pack("{s:s}", "$ref", ref);
}

/* Between brackets. */
static json_t *inside_json(struct making *m, const char **at, char close)
{
    ++*at;
    json_t *inside = type_json(m, at);
    if (inside && *(*at)++ == close)
        return inside;
    if (inside)
        kc_fail(m->e, -EINVAL, "a type of the schemas lacks its %c", close);
    json_decref(inside);
    return NULL;
}

static json_t *single_json(struct making *m, const char **at)
{
    const char *begin = *at;
    json_t *inside;
    if (*begin == '[') {
        inside = inside_json(m, at, ']');
        return inside ? json_pack("{s:s,s:o}", "type", "array", "items", inside) : NULL;
    }
    if (*begin == '{') {
        inside = inside_json(m, at, '}');
        return inside ? json_pack("{s:s,s:o}", "type", "object", "additionalProperties", inside) : NULL;
    }
    if (*begin == '\'') {
        size_t n = strcspn(begin + 1, "'");
        *at += n + 2;
        return json_pack("{s:s%}", "const", begin + 1, n);
    }
    size_t n = strcspn(begin, "]}|?");
    *at += n;
    return named_json(m, begin, n);
}

/* x, x? or x|y…; moves *at behind it. */
static json_t *type_json(struct making *m, const char **at)
{
    json_t *any = json_array(), *one = single_json(m, at);
    while (one && (**at == '|' || **at == '?')) {
        json_array_append_new(any, one);
        one = *(*at)++ == '|' ? single_json(m, at) : json_pack("{s:s}", "type", "null");
    }
    if (!one || json_array_size(any) == 0) {
        json_decref(any);
        return one;
    }
    json_array_append_new(any, one);
    const json_t *type = json_object_get(json_array_get(any, 0), "type");
    if (json_array_size(any) == 2 && json_is_string(type) && json_object_get(one, "type")) { /* the usual: a basic one or null */
        json_t *o = json_incref(json_array_get(any, 0)), *types = json_pack("[O,O]", type, json_object_get(one, "type"));
        json_object_set_new(o, "type", types);
        json_decref(any);
        return o;
    }
    return json_pack("{s:o}", "anyOf", any);
}

/* ---- objects --------------------------------------------------------------------------------------------------- */

static void add(json_t *properties, json_t *required, const char *key, json_t *type, const char *text, bool always)
{
    if (*text)
        json_object_set_new(type, "description", json_string(text));
    json_object_set_new(properties, key, type);
    if (always)
        json_array_append_new(required, json_string(key));
}

static void add_metrics(json_t *properties, json_t *required, bool of_job)
{
    for (int i = 0; i < KC_METRICS; i++)
        if ((kc_metric_row[i].owner == KC_OWNER_SUPERVISOR) == of_job)
            add(properties, required, kc_metric_row[i].key, json_pack("{s:[s,s]}", "type", "number", "null"), kc_metric_row[i].help, true);
}

/* The members of the rows behind `head`. -EINVAL. */
static int add_members(struct making *m, const struct row *head, json_t *o, json_t *properties, json_t *required)
{
    for (const struct row *row = head + 1; row < rows + ROWS && (row->kind == ROW_MEMBER || row->kind == ROW_METRICS); row++) {
        const char *at = row->type;
        char key[64];
        const size_t n = strcspn(row->name, "?");
        if (row->kind == ROW_METRICS) {
            add_metrics(properties, required, row->count);
            continue;
        }
        json_t *type = type_json(m, &at);
        if (!type || *at) {
            if (type)
                kc_fail(m->e, -EINVAL, "a type of the schemas goes on behind its end");
            json_decref(type);
            return kc_fail_prefix(m->e, -EINVAL, "%s.%s", head->name, row->name);
        }
        snprintf(key, sizeof key, "%.*s", (int)n, row->name);
        if (!strcmp(key, "*"))
            json_object_set_new(o, "additionalProperties", type);
        else
            add(properties, required, key, type, row->text, !row->name[n]);
    }
    return 0;
}

static json_t *object_json(struct making *m, const struct row *head)
{
    json_t *o = json_pack("{s:s}", "type", "object"), *properties = json_object(), *required = json_array();
    if (*head->text)
        json_object_set_new(o, "description", json_string(head->text));
    if (head->kind == ROW_ANSWER) {
        char name[64];
        schema_name(head->name, name, sizeof name);
        add(properties, required, "schema", json_pack("{s:s}", "const", name), "what this is, and which version of it", true);
        if (strcmp(head->name, "on-event"))
            add(properties, required, "generated_at", json_pack("{s:s,s:s}", "type", "string", "format", "date-time"), "", true);
    }
    const int rc = add_members(m, head, o, properties, required);
    json_object_set_new(o, "properties", properties);
    json_object_set_new(o, "required", required);
    if (rc == 0)
        return o;
    json_decref(o);
    return NULL;
}

int schema_of(const char *verb, json_t **out, struct kc_error *e)
{
    struct kc_error ours = {""};
    struct making m = {.defs = json_object(), .e = e ? e : &ours};
    json_t *answers = json_array(), *o;
    char title[96], id[96];
    int rc = 0;
    for (size_t i = 0; i < ROWS && rc == 0; i++) {
        json_t *one = rows[i].kind == ROW_ANSWER && !strcmp(rows[i].name, verb) ? object_json(&m, &rows[i]) : json_true();
        if (one && !json_is_true(one))
            json_array_append_new(answers, one);
        rc = one ? 0 : -EINVAL;
    }
    if (rc == 0 && json_array_size(answers) == 0)
        rc = kc_fail(e, -ENOENT, "no verb \"%.60s\" answers with an object of its own", verb);
    if (rc == 0) {
        snprintf(title, sizeof title, !strcmp(verb, "on-event") ? "kcd --on-event" : "kc %s --json", verb);
        schema_name(verb, id, sizeof id);
        o = json_pack("{s:s,s:o,s:s}", "$schema", "https://json-schema.org/draft/2020-12/schema", "$id",
                      json_sprintf("urn:kuangchao:schema:%s", id), "title", strcmp(verb, "error") ? title : "any verb with --json that fails");
        if (json_array_size(answers) == 1)
            json_object_update(o, json_array_get(answers, 0));
        else
            json_object_set(o, "anyOf", answers);
        if (json_object_size(m.defs))
            json_object_set(o, "$defs", m.defs);
        *out = o;
    }
    json_decref(answers);
    json_decref(m.defs);
    return rc;
}
