/* test_console_drill.c - a drill is right when all that was asked for came, and its row says what did not. */
#include "console/drill.h"

#include "base/file.h"
#include "tests/unit/suite.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const set_text =
    "{\"schema\":\"kc.drills/1\",\"base\":{\"steps\":16,\"model\":{\"vocab\":256,\"layers\":2},\"policy\":{\"on_crash\":\"stop\"}},"
    "\"layouts\":{\"two\":{\"ranks\":2},\"four\":{\"ranks\":4,\"model\":{\"layers\":4}}},\"drills\":["
    "{\"name\":\"a-exit\",\"layout\":\"four\",\"inject\":[{\"what\":\"exit\",\"step\":7}],\"verdict\":\"dead-peer\",\"ranks\":[2],"
    "\"root\":\"same\",\"spec\":{\"policy\":{\"max_restarts\":1}}},"
    "{\"name\":\"a-stop\",\"layout\":\"two\",\"inject\":[],\"verdict\":[\"stopped\",\"missing\"],\"end\":\"stands\"},"
    "{\"name\":\"b-slow\",\"layout\":\"two\",\"inject\":[],\"event\":\"straggler\",\"without\":\"hang\"}%s]}";

static struct drill_set set;
static struct kc_error error;

/* Read the set with `more` drills, those that fit `only`. */
static int read_set(const char *more, const char *only)
{
    char path[] = "/tmp/kc-drills-XXXXXX", text[4096];
    int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    const int n = snprintf(text, sizeof text, set_text, more);
    ck_assert_int_eq(write(fd, text, (size_t)n), n);
    close(fd);
    error = (struct kc_error){""};
    int code = drill_set_read(path, only, &set, &error);
    unlink(path);
    return code;
}

START_TEST(a_drill_is_the_base_with_its_layout_and_its_own_over_it)
{
    ck_assert_msg(read_set("", NULL) == 0, "%s", error.text);
    ck_assert_uint_eq(set.count, 3);
    const json_t *s = set.drill[0].spec;
    ck_assert_str_eq(kc_json_text(s, "name", ""), "a-exit");
    ck_assert_int_eq(kc_json_integer(s, "ranks", 0), 4);
    ck_assert_int_eq(kc_json_integer(json_object_get(s, "model"), "layers", 0), 4);
    ck_assert_int_eq(kc_json_integer(json_object_get(s, "model"), "vocab", 0), 256);
    ck_assert_str_eq(kc_json_text(json_object_get(s, "policy"), "on_crash", ""), "stop");
    ck_assert_int_eq(kc_json_integer(json_object_get(s, "policy"), "max_restarts", 0), 1);
    ck_assert_uint_eq(json_array_size(json_object_get(s, "inject")), 1);
    ck_assert_int_eq(kc_json_integer(json_object_get(set.drill[1].spec, "model"), "layers", 0), 2);
    /* what changes no number changes not what it is compared with */
    char *a = drill_numbers(set.drill[1].spec), *b = drill_numbers(set.drill[2].spec), *c = drill_numbers(s);
    ck_assert_str_eq(a, b);
    ck_assert_str_ne(a, c);
    free(a), free(b), free(c);
    drill_set_free(&set);
}
END_TEST

START_TEST(drills_are_chosen_by_name)
{
    ck_assert_int_eq(read_set("", "a-*"), 0);
    ck_assert_uint_eq(set.count, 2);
    drill_set_free(&set);
    ck_assert_int_eq(read_set("", "b-slow,a-exit"), 0);
    ck_assert_uint_eq(set.count, 2);
    drill_set_free(&set);
    ck_assert_int_eq(read_set("", "c*"), -EINVAL);
    ck_assert(strstr(error.text, "no drill whose name fits"));
}
END_TEST

static const struct {
    const char *drill, *says;
} bad[] = {{",{}", "drills[3] has no name"},
           {",{\"name\":\"x\"}", "drill x has no inject"},
           {",{\"name\":\"x\",\"inject\":[],\"layout\":\"six\"}", "drill x: its layout is \"six\", which the set does not have"},
           {",{\"name\":\"x\",\"inject\":[],\"layout\":\"two\",\"end\":\"soon\"}", "it must be finished, failed or stands"},
           {",{\"name\":\"x\",\"inject\":[],\"layout\":\"two\",\"verdit\":\"a\"}", "\"verdit\" is no field of a drill"},
           {",{\"name\":\"x\",\"inject\":[],\"layout\":\"two\",\"ranks\":3}", "ranks must be a list"},
           {",{\"name\":\"x\",\"inject\":[],\"layout\":\"two\",\"root\":\"other\"}", "root is \"other\""},
           {",{\"name\":\"../x\",\"inject\":[]}", "drills[3].name is \"../x\""},
           {",{\"name\":\"x\",\"inject\":[],\"layout\":\"two\",\"seconds\":-1}", "seconds must be a number above 0"},
           {"],\"tokens\":-1,\"more\":[", "tokens must be a whole number from 1"},
           {",", "line 1, column"}};

START_TEST(a_set_that_is_wrong_is_told_in_one_line)
{
    ck_assert_int_eq(read_set(bad[_i].drill, NULL), -EINVAL);
    ck_assert_msg(strstr(error.text, bad[_i].says) != NULL, "%s", error.text);
}
END_TEST

#define SET(member, text) snprintf(member, sizeof member, "%s", text)

/* All as it must be for a-exit. */
static struct drill_seen good(void)
{
    struct drill_seen s = {.injected = true, .end = "finished", .root = "abc", .verdicts = 1};
    s.verdict[0] = (struct drill_said){.word = "dead-peer", .rank = {2}, .ranks = 1};
    return s;
}

static void judge(const struct drill *d, const struct drill_seen *s, const char *why)
{
    char text[300];
    const bool right = drill_judge(d, s, "abc", text, sizeof text);
    ck_assert_msg(right == !*why && strcmp(text, why) == 0, "%s, not %s", text, why);
}

START_TEST(all_that_was_asked_for_must_have_come)
{
    ck_assert_int_eq(read_set("", NULL), 0);
    const struct drill *d = &set.drill[0];
    struct drill_seen s = good();
    judge(d, &s, "");
    s.injected = false;
    judge(d, &s, "the fault did not happen");
    s = good(), s.verdicts = 0;
    judge(d, &s, "no diagnosis");
    s = good(), SET(s.verdict[0].word, "stopped");
    judge(d, &s, "another diagnosis");
    s = good(), s.verdict[0].rank[0] = 1;
    judge(d, &s, "another diagnosis");
    s = good(), s.verdict[0].rank[1] = 3, s.verdict[0].ranks = 2; /* who is blamed beside it is blamed wrongly */
    judge(d, &s, "another diagnosis");
    s = good(), s.verdict[1] = s.verdict[0], s.verdict[1].rank[0] = 3, s.verdicts = 2;
    judge(d, &s, "others are blamed, too");
    s = good(), SET(s.end, "failed");
    judge(d, &s, "it ended failed, not finished");
    s = good(), SET(s.root, "xyz");
    judge(d, &s, "its state is not that of the job without the fault");
    s = good(), s.segments = 1, SET(s.left, "segment x");
    judge(d, &s, "left over: segment x");
    s = good(), SET(s.trouble, "it was not over in time");
    judge(d, &s, "it was not over in time");
    ck_assert(!drill_judge(d, &(struct drill_seen){0}, "", s.left, sizeof s.left));
    drill_set_free(&set);
}
END_TEST

START_TEST(who_stands_is_stopped_and_an_event_may_be_unwanted)
{
    ck_assert_int_eq(read_set("", NULL), 0);
    struct drill_seen s = good();
    SET(s.verdict[0].word, "missing");
    SET(s.end, "stopped");
    judge(&set.drill[1], &s, "");
    SET(s.end, "finished");
    judge(&set.drill[1], &s, "it ended finished, not stands");
    SET(s.event.word, "straggler");
    judge(&set.drill[2], &s, "");
    SET(s.unwanted, "hang");
    judge(&set.drill[2], &s, "event hang");
    drill_set_free(&set);
}
END_TEST

START_TEST(a_row_says_what_was_asked_for_and_what_came)
{
    char text[256];
    ck_assert_int_eq(read_set("", NULL), 0);
    struct drill_seen s = good();
    drill_expected_text(&set.drill[0], text, sizeof text);
    ck_assert_str_eq(text, "dead-peer 2");
    drill_got_text(&set.drill[0], &s, text, sizeof text);
    ck_assert_str_eq(text, "dead-peer 2");
    drill_expected_text(&set.drill[1], text, sizeof text);
    ck_assert_str_eq(text, "stopped|missing");
    drill_expected_text(&set.drill[2], text, sizeof text);
    ck_assert_str_eq(text, "event straggler, no hang");
    drill_got_text(&set.drill[2], &s, text, sizeof text);
    ck_assert_str_eq(text, "event -");
    drill_set_free(&set);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("console_drill");
    TCase *t = tcase_create("drill");
    tcase_add_test(t, a_drill_is_the_base_with_its_layout_and_its_own_over_it);
    tcase_add_test(t, drills_are_chosen_by_name);
    tcase_add_loop_test(t, a_set_that_is_wrong_is_told_in_one_line, 0, sizeof bad / sizeof bad[0]);
    tcase_add_test(t, all_that_was_asked_for_must_have_come);
    tcase_add_test(t, who_stands_is_stopped_and_an_event_may_be_unwanted);
    tcase_add_test(t, a_row_says_what_was_asked_for_and_what_came);
    suite_add_tcase(s, t);
    return suite_run(s);
}
