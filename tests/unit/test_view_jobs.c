/* test_view_jobs.c - the list of jobs: what it shows of each, what it says of dead ones, filter and selection. */
#include "tests/unit/screen_rig.h"
#include "tests/unit/suite.h"

#include "console/text.h"
#include "console/trend.h"

#include <check.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A house in which much goes on. */
static struct job many[8];

static struct named_trend curves[2] = {{.id = "quickstart-2", .trend = {.count = 4, .loss = {4, 3, 2.5, 2}}},
                                       {.id = "back-2", .trend = {.count = 3, .loss = {1, NAN, 2}}}};
static const struct trends trends = {.of = curves, .count = 2};

static struct job *name_job(int i, const char *id, int state, int64_t step)
{
    struct job *j = &many[i];
    job_clear(j, id, "/home/jobs");
    j->state = state;
    j->step = step;
    j->steps = 20000;
    j->ranks = 8;
    return j;
}

static void fill_many(void)
{
    many[0] = rig_job[0];
    struct job *j = name_job(1, "gpt-124m-with-a-long-name-17", KC_JOB_RUNNING, 10234);
    j->board = true; /* its keeper is gone */
    j->loss = 3.2871;
    j = name_job(2, "llama-small-1", KC_JOB_QUEUED, -1);
    j->queue = 2;
    snprintf(j->waits, sizeof j->waits, "waits for 8 cores: 2 are free, gpt-124m-17 has 6");
    j = name_job(3, "stuck-4", KC_JOB_RUNNING, 700);
    j->board = j->keeper_alive = true;
    j->loss = 12.345678;
    j->hangs = 41;
    j->snapshot.step = 600;
    snprintf(j->hang_text, sizeof j->hang_text, "rank 3 is stopped");
    j = name_job(4, "back-2", KC_JOB_RUNNING, 19999);
    j->board = j->keeper_alive = true;
    j->restarts = 1;
    j->snapshot.step = 19000;
    snprintf(j->text, sizeof j->text, "rank 1 was killed by someone (signal 9) at step 17 in backward");
    j = name_job(5, "other-node-1", KC_JOB_RUNNING, 5);
    j->board_error = -EPROTO;
    snprintf(j->board_text, sizeof j->board_text, "its board is of version 6, this kc reads 8; use the kc it was started with");
    many[6] = rig_job[2];
    many[7] = rig_job[3];
    rig_model = (struct model){many, 8};
    rig_view.trends = &trends;
}

START_TEST(the_list_is_as_it_was)
{
    rig_compare("jobs-80x24", 24, 80, false);
    rig_compare("jobs-40x10", 10, 40, false);
    fill_many();
    rig_compare("jobs-many-80x24", 24, 80, false);
    rig_compare("jobs-many-80x24-ascii", 24, 80, true);
    rig_compare("jobs-many-40x10", 10, 40, false);
    rig_compare("jobs-many-200x50", 50, 200, false);
    rig_press("jj"); /* below the list: what the row has no room for */
    rig_compare("jobs-queued-80x24", 24, 80, false);
    rig_press("/state=running loss<10\rsss S");
    rig_compare("jobs-filtered-80x24", 24, 80, false);
}
END_TEST

static const struct {
    double seconds;
    const char *text;
} brief[] = {{NAN, "-"}, {0.2, "<1s"}, {1, "1s"}, {59.9, "59s"}, {133, "2m13s"}, {599, "9m59s"}, {600, "10m"}, {3599, "59m"},
             {11400, "3h10m"}, {35999, "9h59m"}, {36000, "10h"}, {172799, "47h"}, {172800, "2d0h"}, {860000, "9d22h"},
             {864000, "10d"}, {1e30, "11574d"}};

START_TEST(how_long_fits_five_columns)
{
    char text[32];
    ck_assert_str_eq(text_brief(brief[_i].seconds, text, sizeof text), brief[_i].text);
    ck_assert(strlen(text) <= 5 || brief[_i].seconds > 1e8);
}
END_TEST

/* Job and state of the row under the cursor. */
static void under_cursor(const char *want)
{
    char *text = rig_shot(24, 80, true), *at = strstr(text, "\n>");
    ck_assert_ptr_nonnull(at);
    ck_assert_msg(!strncmp(at + 1, want, strlen(want)), "%s", at);
    free(text);
}

START_TEST(what_is_not_so_any_more_is_not_said)
{
    fill_many();
    rig_press("j");
    under_cursor("> gpt-124m-~g-name-17 ? no keeper   51%");
    rig_press("jjjj");
    under_cursor("> other-node-1        ? no board");
    rig_press("/state=hangs\r");
    under_cursor("> stuck-4  ");
    rig_press("/\x15last~*killed*\r");
    under_cursor("> back-2  ");
    rig_press("j");
    under_cursor("> tiny-1  ");
}
END_TEST

/* What is done is done to what one sees. */
START_TEST(a_job_that_the_filter_hides_is_not_selected)
{
    fill_many();
    ck_assert_str_eq(view_job(&rig_view)->id, "quickstart-2");
    rig_press("/state=queued\ra");
    ck_assert_str_eq(rig_view.act.target[0].id, "llama-small-1");
    rig_view.mode = MODE_NORMAL;
    rig_press("/\x15step>1000000\r");
    rig_press("a");
    ck_assert_int_eq(rig_view.mode, MODE_NORMAL);
    ck_assert_str_eq(rig_view.notice, "the filter leaves no job; Esc shows all");
    rig_press("\r");
    ck_assert_int_eq(rig_view.at, VIEW_JOBS);
    rig_press("\033");
    ck_assert(!rig_view.list[VIEW_JOBS].filtered);
    rig_press("\r");
    ck_assert_int_eq(rig_view.at, VIEW_JOB);
}
END_TEST

/* What is typed behind a filter is another term of it. */
START_TEST(a_filter_is_added_to)
{
    fill_many();
    rig_press("/state=running\r/loss<10\r");
    ck_assert_str_eq(rig_view.notice, "");
    ck_assert_str_eq(rig_view.list[VIEW_JOBS].wanted, "state=running loss<10");
}
END_TEST

static bool shows(int cols, bool ascii, const char *text)
{
    char *screen = rig_shot(24, cols, ascii);
    const bool there = strstr(screen, text) != NULL;
    free(screen);
    return there;
}

/* What stands below the list has a sign where it is cut; its signs are letters where there are no others. */
START_TEST(what_is_said_below_is_cut_with_a_sign)
{
    fill_many();
    snprintf(many[2].waits, sizeof many[2].waits, "waits for 2 ranks \303\227 1 core: %0*d", 80, 7);
    rig_press("jj");
    ck_assert(shows(80, true, "waits for 2 ranks x 1 core: 000"));
    ck_assert(shows(80, true, "0000~\n"));
    ck_assert(shows(80, false, "0000\342\200\246\n"));
    ck_assert(shows(80, true, "-/20000"));
}
END_TEST

/* kcd asks for no devices before it is a job's turn, and then has no reason to tell. */
START_TEST(a_job_behind_another_says_which)
{
    fill_many();
    many[2].waits[0] = 0;
    rig_press("jj");
    ck_assert(shows(80, true, "waits for devices")); /* whose turn is before it is not known */
    many[1].state = KC_JOB_QUEUED;
    many[1].board = false;
    many[1].queue = 1;
    ck_assert(shows(80, true, "waits for its turn, behind gpt-124m-with-a-long-name-17"));
    rig_press("\r");
    ck_assert(shows(80, true, "queued: waits for its turn, behind gpt-124m-with-a-long-name-17"));
}
END_TEST

/* A job that is looked at stays the one that is looked at, though the list would not show it any more. */
START_TEST(a_filter_does_not_change_the_job_one_is_in)
{
    fill_many();
    rig_press("/state=running\r\r");
    ck_assert_int_eq(rig_view.at, VIEW_JOB);
    many[0].state = KC_JOB_FINISHED;
    for (int cols = 80; cols <= 200; cols += 120) {
        free(rig_shot(50, cols, false));
        ck_assert_str_eq(rig_view.selected, "quickstart-2");
    }
}
END_TEST

START_TEST(a_wrong_filter_is_a_notice)
{
    rig_press("/stat=running\r");
    ck_assert_str_eq(rig_view.notice, "there is no column \"stat\". Did you mean state?");
    rig_view.at = VIEW_HELP;
    rig_press("/");
    ck_assert_int_eq(rig_view.mode, MODE_NORMAL);
}
END_TEST

START_TEST(every_size_is_drawn)
{
    fill_many();
    rig_press("/running\r ");
    for (int rows = 1; rows <= 60; rows += 3)
        for (int cols = 1; cols <= 240; cols += 7)
            free(rig_shot(rows, cols, cols % 2));
}
END_TEST

int main(void)
{
    Suite *s = suite_create("view jobs");
    TCase *t = tcase_create("jobs");
    tcase_add_checked_fixture(t, rig_screen_setup, rig_screen_teardown);
    tcase_add_test(t, the_list_is_as_it_was);
    tcase_add_loop_test(t, how_long_fits_five_columns, 0, (int)(sizeof brief / sizeof *brief));
    tcase_add_test(t, what_is_not_so_any_more_is_not_said);
    tcase_add_test(t, a_job_that_the_filter_hides_is_not_selected);
    tcase_add_test(t, a_filter_does_not_change_the_job_one_is_in);
    tcase_add_test(t, a_filter_is_added_to);
    tcase_add_test(t, what_is_said_below_is_cut_with_a_sign);
    tcase_add_test(t, a_job_behind_another_says_which);
    tcase_add_test(t, a_wrong_filter_is_a_notice);
    tcase_add_test(t, every_size_is_drawn);
    suite_add_tcase(s, t);
    return suite_run(s);
}
