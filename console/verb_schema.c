/* verb_schema.c - the JSON Schema of what a verb answers with --json, or those of all verbs, as files. */
#include "schema.h"
#include "session.h"
#include "verbs.h"

#include "base/file.h"
#include "base/suggest.h"
#include "supervisor/protocol.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define FORM (JSON_INDENT(2))
#define SCHEMAS_MOST 128

static int list(struct session *s)
{
    json_t *o = session_envelope(s), *all = json_array();
    const char *verb;
    char name[64];
    for (size_t i = 0; (verb = schema_verb(i)); i++) {
        schema_name(verb, name, sizeof name);
        json_array_append_new(all, json_pack("{s:s,s:s}", "verb", verb, "schema", name));
        if (!s->json)
            fprintf(s->out, "%-24s %s\n", name, verb);
    }
    json_object_set_new(o, "schemas", all);
    if (s->json)
        return session_emit(s, o);
    json_decref(o);
    return KC_EXIT_OK;
}

/* DIR/snap.ls.json. Returns an exit code. */
static int write_one(struct session *s, const char *folder, const char *verb)
{
    char path[PATH_MAX], name[64];
    json_t *schema = NULL;
    struct kc_error e = {""};
    schema_name(verb, name, sizeof name);
    int rc = schema_of(verb, &schema, &e);
    char *text = rc ? NULL : json_dumps(schema, FORM);
    json_decref(schema);
    if (!rc && !text)
        rc = kc_fail(&e, -ENOMEM, "no memory for the schema of %s", verb);
    snprintf(path, sizeof path, "%s/%.*s.json", folder, (int)strcspn(name + 3, "/"), name + 3);
    if (!rc && (rc = kc_file_replace(path, text, strlen(text))))
        kc_fail(&e, rc, "%s: %s", path, strerror(-rc));
    free(text);
    return rc ? session_fail(s, session_code(rc), "%s", e.text) : KC_EXIT_OK;
}

static int write_all(struct session *s, const char *folder)
{
    const char *verb;
    size_t n = 0;
    int code = KC_EXIT_OK;
    if (mkdir(folder, 0777) && errno != EEXIST)
        return session_fail(s, session_code(-errno), "%s: %s", folder, strerror(errno));
    for (; !code && (verb = schema_verb(n)); n++)
        code = write_one(s, folder, verb);
    if (code)
        return code;
    if (!s->json) {
        fprintf(s->out, "%zu schemas in %s\n", n, folder);
        return session_written(s);
    }
    json_t *o = session_envelope(s);
    json_object_set_new(o, "path", session_text(folder));
    json_object_set_new(o, "files", json_integer((json_int_t)n));
    return session_emit(s, o);
}

static int no_schema(struct session *s, const char *verb)
{
    const char *names[SCHEMAS_MOST];
    size_t n = 0;
    while (n < SCHEMAS_MOST && (names[n] = schema_verb(n)))
        n++;
    const char *near = kc_suggest(verb, names, n);
    if (near)
        return session_fail(s, KC_EXIT_NO_OBJECT, "no schema of %s. Did you mean `kc schema %s`?", verb, near);
    return session_fail(s, KC_EXIT_NO_OBJECT, "no schema of %s. `kc schema` lists those that there are", verb);
}

static int print_one(struct session *s, const char *verb)
{
    json_t *schema = NULL;
    struct kc_error e = {""};
    int rc = schema_of(verb, &schema, &e);
    if (rc == -ENOENT)
        return no_schema(s, verb);
    if (rc)
        return session_fail(s, KC_EXIT_SYSTEM, "%s", e.text);
    if (s->json) {
        json_t *o = session_envelope(s);
        json_object_set_new(o, "verb", json_string(verb));
        json_object_set_new(o, "json_schema", schema);
        return session_emit(s, o);
    }
    char *text = json_dumps(schema, FORM);
    json_decref(schema);
    if (!text)
        return session_fail(s, KC_EXIT_SYSTEM, "no memory for the schema of %s", verb);
    fprintf(s->out, "%s\n", text);
    free(text);
    return KC_EXIT_OK;
}

int verb_schema(struct session *s, const struct arguments *a)
{
    const char *folder = a->option[OPTION_OUT];
    char verb[160];
    if (a->words && folder)
        return session_fail(s, KC_EXIT_USAGE, "--out writes the schemas of all verbs: name none");
    if (folder)
        return write_all(s, folder);
    if (!a->words)
        return list(s);
    snprintf(verb, sizeof verb, "%.70s%s%.70s", a->word[0], a->words > 1 ? " " : "", a->words > 1 ? a->word[1] : "");
    return print_one(s, verb);
}
