/* test_view_log.c - the view of logs: order and times as they are known, the first error pinned, search, follow. */
#include "suite.h"

#include "screen_rig.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void setup(void)
{
    rig_screen_setup();
    rig_view.at = VIEW_LOG;
}

/* What stands in a row of the screen at 80×24. */
static const char *row(int number)
{
    static char line[512];
    char *text = rig_shot(24, 80, false), *at = text;
    for (int i = 0; i < number && at; i++)
        at = strchr(at, '\n') ? strchr(at, '\n') + 1 : NULL;
    snprintf(line, sizeof line, "%.*s", at ? (int)strcspn(at, "\n") : 0, at ? at : "");
    free(text);
    return line;
}

static bool on_screen(const char *text)
{
    char *all = rig_shot(24, 80, false);
    const bool there = strstr(all, text) != NULL;
    free(all);
    return there;
}

START_TEST(the_newest_line_is_at_the_bottom_and_nothing_foreign_reaches_the_screen)
{
    rig_compare("log-80x24", 24, 80, false);
    rig_compare("log-80x24-ascii", 24, 80, true);
    rig_compare("log-40x10", 10, 40, false);
    rig_compare("log-200x50", 50, 200, false);
}
END_TEST

START_TEST(a_line_that_is_read_stays_where_it_is_while_others_come)
{
    rig_press("k");
    ck_assert(on_screen("1 below"));
    ck_assert_ptr_nonnull(strstr(row(22), "* rank 1 straggler"));
    rig_log(1, 11000, "one more");
    ck_assert(on_screen("2 below"));
    ck_assert_ptr_nonnull(strstr(row(22), "* rank 1 straggler"));
    rig_press("G");
    ck_assert(on_screen("follows"));
    ck_assert_ptr_nonnull(strstr(row(22), "one more"));
    rig_press("f");
    rig_log(1, 12000, "held back");
    ck_assert(!on_screen("held back"));
    rig_press("f");
    ck_assert(on_screen("held back"));
    rig_press("g");
    ck_assert_ptr_nonnull(strstr(row(3), "line 0 "));
}
END_TEST

START_TEST(the_first_error_stays_above_when_its_line_has_gone)
{
    rig_log(1, 13000, "RuntimeError: out of memory");
    rig_log(0, 13100, "error: peer 1 is gone");
    ck_assert_ptr_nonnull(strstr(row(3), "first error, rank 1: RuntimeError: out of memory"));
    for (unsigned i = 0; i < 2 * LOG_KEPT; i++)
        rig_log(0, 14000 + i, "and on");
    ck_assert_uint_eq(rig_logs.count, LOG_KEPT);
    ck_assert_ptr_nonnull(strstr(row(3), "first error, rank 1: RuntimeError: out of memory"));
    rig_compare("log-error-80x24", 24, 80, false);
}
END_TEST

START_TEST(a_rank_that_was_killed_printed_nothing_and_is_blamed_all_the_same)
{
    rig_job[0].failure = (struct job_failure){.rank = 1, .step = 17, .reason = "signal"};
    snprintf(rig_job[0].text, sizeof rig_job[0].text, "rank 1 at step 17 in phase forward: killed by someone (signal 9, SIGKILL)");
    rig_log(0, 13100, "error: peer 1 is gone");
    ck_assert_ptr_nonnull(strstr(row(3), "! first failure: rank 1 at step 17 in phase forward: killed by someone"));
    rig_log(1, 13200, "error: its own words");
    ck_assert_ptr_nonnull(strstr(row(3), "first failure: rank 1")); /* the first line is another one's still */
}
END_TEST

START_TEST(what_is_looked_for_is_shown_and_n_and_N_go_on)
{
    rig_press("/LINE 1");
    view_key(&rig_view, '\r', true);
    ck_assert(on_screen("/LINE 1"));
    ck_assert(on_screen(">16:44:05 1| line 19 of a log")); /* the nearest above */
    rig_press("N");
    ck_assert(on_screen(">16:44:05 0| line 18 of a log"));
    rig_press("n");
    ck_assert(on_screen(">16:44:05 1| line 19 of a log"));
    rig_press("n");
    ck_assert_str_eq(rig_view.notice, "no more line with \"LINE 1\"");
    rig_press("NNNNNNNNN"); /* 10 to 18, then 1 */
    rig_press("N");
    ck_assert(on_screen(">16:44:01 1| line 1 of a log"));
    view_key(&rig_view, 27, true); /* Esc takes the search away, then leaves */
    ck_assert_int_eq(rig_view.at, VIEW_LOG);
    ck_assert(!on_screen("/LINE 1"));
    view_key(&rig_view, 27, true);
    ck_assert_int_eq(rig_view.at, VIEW_JOB);
    rig_press("8/nothing like it");
    view_key(&rig_view, '\r', true);
    ck_assert_str_eq(rig_view.notice, "no line with \"nothing like it\"");
}
END_TEST

START_TEST(aside_is_another_rank_and_the_last_is_the_last)
{
    rig_press("l");
    ck_assert_int_eq(rig_view.log_rank, 0);
    ck_assert_str_eq(rig_view.notice, "log of rank 0");
    rig_press("lll");
    ck_assert_int_eq(rig_view.log_rank, 1);
    rig_press("hhh");
    ck_assert_int_eq(rig_view.log_rank, -1);
}
END_TEST

START_TEST(a_time_that_nobody_noted_is_left_out_and_what_cannot_be_read_is_said)
{
    const struct log_line l = {1, 0, "who knows when", 14};
    log_tail_add(&rig_logs, &l);
    ck_assert_str_eq(row(22), "          1| who knows when");
    rig_logs.open = false;
    log_tail_free(&rig_logs);
    ck_assert_ptr_nonnull(strstr(row(2), "Nothing was printed yet."));
    snprintf(rig_logs.trouble, sizeof rig_logs.trouble, "the folder of the job is removed");
    ck_assert_ptr_nonnull(strstr(row(2), "the folder of the job is removed"));
    rig_logs.trouble[0] = 0;
    rig_logs.untimed = true;
    ck_assert_ptr_nonnull(strstr(row(2), "not noted"));
    rig_view.log = NULL;
    rig_press("kjnNfg");
    ck_assert_ptr_nonnull(strstr(row(2), "not read yet"));
}
END_TEST

int main(void)
{
    Suite *s = suite_create("view of logs");
    TCase *t = tcase_create("view of logs");
    tcase_add_checked_fixture(t, setup, rig_screen_teardown);
    tcase_add_test(t, the_newest_line_is_at_the_bottom_and_nothing_foreign_reaches_the_screen);
    tcase_add_test(t, a_line_that_is_read_stays_where_it_is_while_others_come);
    tcase_add_test(t, the_first_error_stays_above_when_its_line_has_gone);
    tcase_add_test(t, a_rank_that_was_killed_printed_nothing_and_is_blamed_all_the_same);
    tcase_add_test(t, what_is_looked_for_is_shown_and_n_and_N_go_on);
    tcase_add_test(t, aside_is_another_rank_and_the_last_is_the_last);
    tcase_add_test(t, a_time_that_nobody_noted_is_left_out_and_what_cannot_be_read_is_said);
    suite_add_tcase(s, t);
    return suite_run(s);
}
