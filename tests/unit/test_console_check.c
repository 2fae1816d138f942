/* test_console_check.c - data, check and the part of start that comes before anything starts: bad input is told in
 * one line with the fields concerned and exit code 9, and a missing supervisor only after the spec was found good. */
#include "console_home.h"

#include "base/json.h"
#include "supervisor/protocol.h"
#include "tests/unit/suite.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct console_home home;

static const char spec[] =
    "{\"name\":\"tiny\",\"ranks\":1,\"steps\":3,\"seed\":1,"
    "\"model\":{\"family\":\"gpt2\",\"layers\":1,\"hidden\":16,\"heads\":2,\"context\":16,\"vocab\":256,"
    "\"init\":{\"from\":null}},"
    "\"data\":{\"train\":\"data/train.bin\",\"validation\":\"data/val.bin\"},"
    "\"batch\":{\"sequences\":4,\"micro\":2},\"optimizer\":{\"lr\":0.001}}";

/* The spec with `from` replaced by `to`. */
static void write_spec(const char *from, const char *to)
{
    char text[2048], *at;
    snprintf(text, sizeof text, "%s", spec);
    at = from ? strstr(text, from) : NULL;
    ck_assert(!from || at);
    if (from) {
        char rest[2048];
        snprintf(rest, sizeof rest, "%s", at + strlen(from));
        snprintf(at, sizeof text - (size_t)(at - text), "%s%s", to, rest);
    }
    console_home_write(&home, "spec.json", text);
}

static const char *path_of(const char *name)
{
    static char path[512];
    snprintf(path, sizeof path, "%s/%s", home.path, name);
    return path;
}

static void setup(void)
{
    struct console_answer a;
    char text[8192], input[512], out[512];
    console_home_make(&home);
    for (size_t i = 0; i + 1 < sizeof text; i++)
        text[i] = "To be, or not to be, that is the question.\n"[i % 43];
    text[sizeof text - 1] = 0;
    console_home_write(&home, "text.txt", text);
    snprintf(input, sizeof input, "%s", path_of("text.txt"));
    snprintf(out, sizeof out, "%s", path_of("data"));
    CONSOLE_RUN(&a, "data", "prepare", "--out", out, "--validation=0.1", input, "--json");
    ck_assert_msg(a.code == 0, "%s", a.err);
    json_t *o = json_loads(a.out, 0, NULL);
    ck_assert_int_eq(kc_json_integer(o, "train_tokens", 0) + kc_json_integer(o, "validation_tokens", 0), 8191);
    json_decref(o);
    console_answer_free(&a);
    write_spec(NULL, NULL);
}

static void teardown(void)
{
    console_home_remove(&home);
}

START_TEST(a_good_spec_is_planned_and_starts_nothing)
{
    struct console_answer a;
    CONSOLE_RUN(&a, "check", path_of("spec.json"));
    ck_assert_msg(a.code == 0, "%s", a.err);
    ck_assert_ptr_nonnull(strstr(a.out, "no deadlock"));
    ck_assert_ptr_nonnull(strstr(a.out, "communication of a step: none"));
    console_answer_free(&a);
    CONSOLE_RUN(&a, "check", path_of("spec.json"), "--json");
    json_t *o = json_loads(a.out, 0, NULL);
    ck_assert(json_is_object(json_object_get(o, "shard_plan")) && json_is_object(json_object_get(o, "comm_plan")));
    ck_assert_int_gt(kc_json_integer(json_object_get(o, "memory"), "node_bytes", 0), 0);
    ck_assert_int_eq(kc_json_integer(json_object_get(o, "spec"), "steps", 0), 3);
    json_decref(o);
    console_answer_free(&a);
    ck_assert_int_ne(access(path_of("jobs"), F_OK), 0);
    ck_assert_int_ne(access(path_of("run"), F_OK), 0);
}
END_TEST

/* bf16: half of the bytes of parameters, and masters, which fp32 does not have. */
START_TEST(memory_is_told_by_what_it_is_for)
{
    static const char family[] = "\"family\":\"gpt2\",\"layers\":1";
    static const char from[] = "\"seed\":1,\"model\":{\"family\":\"gpt2\",\"layers\":1,\"hidden\":16";
    static const char *const parts[] = {"parameters_bytes", "gradients_bytes", "moments_bytes", "masters_bytes",
                                        "work_bytes", "communication_bytes", "copies_bytes", "program_bytes"};
    long long parameters[2], masters[2], moments[2], gradients[2];
    for (int i = 0; i < 2; i++) {
        struct console_answer a;
        char to[128]; /* a model whose buckets are large against a page */
        snprintf(to, sizeof to, "\"seed\":1,\"precision\":\"%s\",\"model\":{%s,\"hidden\":256", i ? "bf16" : "fp32", family);
        write_spec(from, to);
        CONSOLE_RUN(&a, "check", path_of("spec.json"), "--json");
        ck_assert_msg(a.code == 0, "%s", a.err);
        json_t *o = json_loads(a.out, 0, NULL), *memory = json_object_get(o, "memory");
        parameters[i] = kc_json_integer(memory, "parameters_bytes", -1);
        gradients[i] = kc_json_integer(memory, "gradients_bytes", -1);
        moments[i] = kc_json_integer(memory, "moments_bytes", -1);
        masters[i] = kc_json_integer(memory, "masters_bytes", -1);
        long long sum = 0;
        for (size_t p = 0; p < sizeof parts / sizeof *parts; p++)
            sum += kc_json_integer(memory, parts[p], -1);
        ck_assert_int_eq(sum, kc_json_integer(memory, "rank_bytes", 0)); /* nothing is unnamed */
        json_t *bucket = json_array_get(json_object_get(json_object_get(o, "shard_plan"), "buckets"), 0);
        ck_assert_str_eq(kc_json_text(bucket, "type", ""), i ? "bf16" : "f32");
        json_decref(o);
        console_answer_free(&a);
        CONSOLE_RUN(&a, "check", path_of("spec.json"));
        ck_assert_ptr_nonnull(strstr(a.out, i ? "memory of a rank\n" : " 43.5 MiB")); /* program and libraries */
        console_answer_free(&a);
    }
    ck_assert(gradients[1] == gradients[0] && moments[1] == moments[0] && moments[0] == 2 * gradients[0]);
    ck_assert(masters[0] == 0 && masters[1] == gradients[1]);
    ck_assert(parameters[0] == gradients[0] && parameters[1] < parameters[0] * 6 / 10);
    write_spec(NULL, NULL);
}
END_TEST

START_TEST(bad_input_is_exit_9_before_anything_starts)
{
    static const struct {
        const char *from, *to, *told;
    } cases[] = {
        {"\"steps\":3", "\"steps\":3,\"stpes\":4", "stpes"},
        {"\"vocab\":256", "\"vocab\":60", "data.train"},
        {"data/train.bin", "data/none.bin", "data.train"},
        {"data/train.bin", "text.txt", "data.train"},
        {"\"from\":null", "\"from\":\"none.safetensors\"", "model.init.from"},
        {"\"from\":null", "\"from\":\"text.txt\"", "model.init.from"},
        {"\"ranks\":1", "\"ranks\":2", "ranks"},
        {"\"heads\":2", "\"heads\":3", "model.heads"},
    };
    static const char *const verbs[] = {"check", "start"};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (int verb = 0; verb < 2; verb++) {
            struct console_answer a;
            write_spec(cases[i].from, cases[i].to);
            CONSOLE_RUN(&a, verbs[verb], path_of("spec.json"));
            ck_assert_msg(a.code == KC_EXIT_INVALID, "%s: %d: %s", cases[i].to, a.code, a.err);
            ck_assert_msg(strstr(a.err, cases[i].told), "%s: %s", cases[i].to, a.err);
            ck_assert_msg(strstr(a.err, path_of("spec.json")), "names no spec: %s", a.err);
            ck_assert_msg(strchr(a.err, '\n') == a.err + strlen(a.err) - 1, "one line, not: %s", a.err);
            console_answer_free(&a);
        }
}
END_TEST

START_TEST(what_is_no_spec_is_told_with_what_would_do)
{
    static const struct {
        const char *path;
        int code;
    } cases[] = {{"/nowhere.json", KC_EXIT_NO_OBJECT}, {"/tmp", KC_EXIT_INVALID}, {"/dev/null", KC_EXIT_INVALID}};
    struct console_answer a;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        CONSOLE_RUN(&a, "check", cases[i].path);
        ck_assert_msg(a.code == cases[i].code, "%d %s", a.code, a.err);
        ck_assert_msg(strstr(a.err, "jobs/examples/quickstart.json is one"), "%s", a.err);
        console_answer_free(&a);
    }
    CONSOLE_RUN(&a, "data", "info", "/nowhere.bin");
    ck_assert_msg(strstr(a.err, "kc data prepare"), "%s", a.err);
    console_answer_free(&a);
    CONSOLE_RUN(&a, "boundary", "doc", "--root", "/nowhere");
    ck_assert_msg(strstr(a.err, "--root DIR"), "%s", a.err);
    console_answer_free(&a);
}
END_TEST

START_TEST(a_good_spec_without_kcd_is_exit_3)
{
    struct console_answer a;
    CONSOLE_RUN(&a, "start", path_of("spec.json"));
    ck_assert_int_eq(a.code, KC_EXIT_ABSENT);
    ck_assert_ptr_nonnull(strstr(a.err, "kcd --daemon"));
    console_answer_free(&a);
}
END_TEST

START_TEST(data_info_tells_what_was_prepared)
{
    struct console_answer a;
    CONSOLE_RUN(&a, "data", "info", path_of("data/train.bin"), "--json");
    json_t *o = json_loads(a.out, 0, NULL);
    ck_assert_int_eq(kc_json_integer(o, "magic", 0), 20240520);
    ck_assert_int_eq(kc_json_integer(o, "token_bytes", 0), 2);
    ck_assert_int_eq(json_integer_value(json_array_get(json_object_get(o, "first_tokens"), 0)), 'T');
    json_decref(o);
    console_answer_free(&a);
    CONSOLE_RUN(&a, "data", "info", path_of("text.txt"));
    ck_assert_int_eq(a.code, KC_EXIT_INVALID);
    console_answer_free(&a);
    CONSOLE_RUN(&a, "data", "prepare", "--tokenizer", "bite", "--out", "/tmp", path_of("text.txt"));
    ck_assert_int_eq(a.code, KC_EXIT_USAGE);
    ck_assert_ptr_nonnull(strstr(a.err, "Did you mean byte"));
    console_answer_free(&a);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("console check");
    TCase *t = tcase_create("check");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_set_timeout(t, 30);
    tcase_add_test(t, a_good_spec_is_planned_and_starts_nothing);
    tcase_add_test(t, memory_is_told_by_what_it_is_for);
    tcase_add_test(t, bad_input_is_exit_9_before_anything_starts);
    tcase_add_test(t, what_is_no_spec_is_told_with_what_would_do);
    tcase_add_test(t, a_good_spec_without_kcd_is_exit_3);
    tcase_add_test(t, data_info_tells_what_was_prepared);
    suite_add_tcase(s, t);
    return suite_run(s);
}
