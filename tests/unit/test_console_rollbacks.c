/* test_console_rollbacks.c - where a job went back, from events.jsonl: to the step that is asked about, and the first later one. */
#include "console/rollbacks.h"
#include "console_home.h"
#include "tests/unit/suite.h"

#include <check.h>
#include <stdio.h>

static struct console_home home;

static void setup(void)
{
    console_home_make(&home);
}

static void teardown(void)
{
    console_home_remove(&home);
}

static struct rollbacks read_from(uint64_t step)
{
    char directory[200];
    struct rollbacks r;
    struct kc_error e = {""};
    snprintf(directory, sizeof directory, "%s/jobs/demo-1", home.path);
    ck_assert_msg(rollbacks_read(directory, step, &r, &e) == 0, "%s", e.text);
    return r;
}

START_TEST(no_file_is_no_rollback)
{
    const struct rollbacks r = read_from(0);
    ck_assert(!r.at && r.next == UINT64_MAX);
}
END_TEST

START_TEST(the_step_itself_and_the_first_later_one_are_told)
{
    console_home_write(&home, "jobs/demo-1/events.jsonl",
                       "{\"event\":\"rollback\",\"rank\":0,\"step\":30,\"version\":3}\n"
                       "{\"event\":\"rollback\",\"rank\":1,\"step\":20,\"version\":2}\n"
                       "{\"event\":\"nonfinite\",\"rank\":1,\"step\":10}\n"
                       "no JSON\n"
                       "{\"event\":\"rollback\",\"rank\":0,\"step\":5}");
    ck_assert(!read_from(10).at && read_from(10).next == 20);
    ck_assert(read_from(20).at && read_from(20).next == 30);
    ck_assert(!read_from(25).at && read_from(25).next == 30);
    ck_assert(read_from(30).at && read_from(30).next == UINT64_MAX);
    ck_assert_msg(!read_from(5).at, "that line is being written");
}
END_TEST

int main(void)
{
    Suite *s = suite_create("console rollbacks");
    TCase *t = tcase_create("rollbacks");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, no_file_is_no_rollback);
    tcase_add_test(t, the_step_itself_and_the_first_later_one_are_told);
    suite_add_tcase(s, t);
    return suite_run(s);
}
