/* The table of what verbs answer with --json: it has every verb, its types are types, and none of its rows stands there in vain.
 * That answers are as it says is held by tests/flow/kc_schema.py. */
#include "suite.h"

#include "console/command.h"
#include "console/schema.h"

#include <errno.h>
#include <string.h>

static struct kc_error error;

static json_t *schema(const char *verb)
{
    json_t *o = NULL;
    error.text[0] = 0;
    ck_assert_msg(schema_of(verb, &o, &error) == 0, "%s: %s", verb, error.text);
    return o;
}

/* Each verb answers, but the one that is a screen; and what answers is a verb. */
START_TEST(every_verb_has_a_schema)
{
    for (size_t i = 0; i < commands_count; i++)
        if (strcmp(commands[i].verb, "watch"))
            json_decref(schema(commands[i].verb));
    const char *verb;
    for (size_t i = 0; (verb = schema_verb(i)); i++)
        ck_assert_msg(command_find(verb) || !strcmp(verb, "error") || !strcmp(verb, "on-event"), "\"%s\" is no verb", verb);
    json_t *none = NULL;
    ck_assert_int_eq(schema_of("watch", &none, &error), -ENOENT);
    ck_assert_ptr_null(none);
}
END_TEST

/* By hand from schemas/: what a member, one that may be left out, one that may be unknown and a list of objects become. */
START_TEST(a_row_becomes_a_property)
{
    json_t *o = schema("snap ls"), *defs = json_object_get(o, "$defs"), *row = json_object_get(defs, "snapshot"), *want;
    ck_assert_str_eq(json_string_value(json_object_get(o, "$schema")), "https://json-schema.org/draft/2020-12/schema");
    want = json_loads("{\"type\":\"array\",\"items\":{\"$ref\":\"#/$defs/snapshot\"},\"description\":\"on disk\"}", 0, NULL);
    ck_assert(json_equal(json_object_get(json_object_get(o, "properties"), "snapshots"), want));
    json_decref(want);
    want = json_loads("{\"type\":[\"integer\",\"null\"]}", 0, NULL);
    ck_assert(json_equal(json_object_get(json_object_get(row, "properties"), "step"), want));
    json_decref(want);
    want = json_loads("{\"anyOf\":[{\"$ref\":\"#/$defs/cost\"},{\"type\":\"null\"}]}", 0, NULL);
    ck_assert(json_equal(json_object_get(json_object_get(row, "properties"), "cost"), want));
    json_decref(want);
    json_t *other = schema("snap diff");
    bool version = false, path = false;
    size_t i;
    json_t *name;
    json_array_foreach(json_object_get(json_object_get(json_object_get(other, "$defs"), "snapshot_id"), "required"), i, name) {
        version |= !strcmp(json_string_value(name), "version");
        path |= !strcmp(json_string_value(name), "path");
    }
    ck_assert(version && !path);
    json_decref(other);
    want = json_loads("{\"const\":\"kc.snap.ls/1\",\"description\":\"what this is, and which version of it\"}", 0, NULL);
    ck_assert(json_equal(json_object_get(json_object_get(o, "properties"), "schema"), want));
    json_decref(want);
    json_decref(o);
}
END_TEST

#define ANSWER(verb, text)
#define OBJECT(name, text) name,
#define MEMBER(key, type, text)
#define METRICS(of_job)
#define WORDS(name, words, count) name,
static const char *const parts[] = {
#include "console/schemas/all.def"
};

START_TEST(no_part_stands_there_in_vain)
{
    json_t *used = json_object();
    const char *verb;
    for (size_t i = 0; (verb = schema_verb(i)); i++) {
        json_t *o = schema(verb);
        json_object_update(used, json_object_get(o, "$defs"));
        json_decref(o);
    }
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        ck_assert_msg(json_object_get(used, parts[i]), "no answer has a %s", parts[i]);
        for (size_t k = 0; k < i; k++)
            if (!strcmp(parts[i], parts[k]))
                ck_abort_msg("two rows are called %s", parts[i]);
    }
    json_decref(used);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("schema");
    TCase *t = tcase_create("table");
    tcase_add_test(t, every_verb_has_a_schema);
    tcase_add_test(t, a_row_becomes_a_property);
    tcase_add_test(t, no_part_stands_there_in_vain);
    suite_add_tcase(s, t);
    return suite_run(s);
}
