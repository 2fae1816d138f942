/* test_view_job.c - the view of one job: whole screens, its keys, every size. */
#include "tests/unit/screen_rig.h"
#include "tests/unit/suite.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void setup(void)
{
    rig_screen_setup();
    rig_view.at = VIEW_JOB;
}

static void has(int rows, int cols, const char *text, bool there)
{
    char *screen = rig_shot(rows, cols, true);
    ck_assert_msg((strstr(screen, text) != NULL) == there, "%s\"%s\" in:\n%s", there ? "no " : "", text, screen);
    free(screen);
}

START_TEST(screens_are_as_they_were)
{
    rig_compare("job-80x24", 24, 80, false);
    rig_compare("job-80x24-ascii", 24, 80, true);
    rig_compare("job-40x10", 10, 40, false);
    rig_compare("job-120x40", 40, 120, false);
    static const uint32_t choices[] = {300, 100, 200, 200, 512, 96, 32, 160};
    rig_job[0].loads = loads_new(180, 2, 4, choices);
    rig_compare("job-experts-80x24", 24, 80, false);
    free(rig_job[0].loads);
    rig_job[0].loads = NULL;
    snprintf(rig_job[0].layout, sizeof rig_job[0].layout, "8 ranks: data 2 tensor 2 with sequence pipeline 2, zero 1, order interleaved "
             "of 2 chunks, recompute full of 1 layer a stage");
    rig_compare("job-layout-80x24", 24, 80, false);
    rig_job[0].planned = false; /* of another host: nobody knows */
    rig_compare("job-unplanned-80x24", 24, 80, false);
    rig_job[0].planned = true;
}
END_TEST

START_TEST(charts_are_as_they_were)
{
    for (uint64_t s = 50; s <= 150; s += 50) {
        rig_history.evaluation[rig_history.evaluations].step = s;
        rig_history.evaluation[rig_history.evaluations++].loss = 2.4 + 40 / (double)s;
    }
    rig_press("ye+");
    rig_compare("job-log-zoom-80x24", 24, 80, false);
    rig_compare("job-log-zoom-80x24-ascii", 24, 80, true);
    rig_press("-yxx");
    rig_compare("job-rate-80x24", 24, 80, false);
}
END_TEST

/* In a small window the other curves stand in place of the loss, in a large one beside it or below. */
START_TEST(x_shows_the_other_curves)
{
    has(24, 80, "gradient norm  last", false);
    rig_press("x");
    has(24, 80, "gradient norm  last", true);
    has(24, 80, "loss  last", false);
    rig_press("x");
    has(24, 80, "learning rate  last", true);
    rig_press("x");
    has(24, 80, "loss  last", true);
    static const int sizes[2][2] = {{30, 130}, {50, 70}};
    for (int i = 0; i < 2; i++) {
        const int rows = sizes[i][0], cols = sizes[i][1];
        has(rows, cols, "gradient norm  last", true);
        has(rows, cols, "loss  last", true);
        rig_press("x");
        has(rows, cols, "learning rate  last", true);
        rig_press("x");
        has(rows, cols, "learning rate", false);
        has(rows, cols, "gradient norm", false);
        has(rows, cols, "loss  last", true);
        rig_press("x");
    }
}
END_TEST

START_TEST(zoom_goes_in_and_out_and_says_where_it_ends)
{
    rig_press("-");
    ck_assert_str_eq(rig_view.notice, "this is the whole run");
    rig_press("h");
    ck_assert_ptr_nonnull(strstr(rig_view.notice, "whole run"));
    has(24, 80, "  steps ", false);
    rig_press("=");
    has(24, 80, "  steps 151-300", false); /* 180 of 300: the halves are of 75 */
    has(24, 100, "  steps 76-225", true);
    rig_press("h");
    has(24, 100, "  steps 1-150", true);
    rig_press("h");
    ck_assert_ptr_nonnull(strstr(rig_view.notice, "no further"));
    rig_press("l-");
    has(24, 100, "  steps ", false);
}
END_TEST

/* Where a step's time goes is told while there are steps. */
START_TEST(what_is_over_has_no_split)
{
    has(24, 80, "rank 0 step 440 ms", true);
    has(24, 80, "[ffff", true);
    rig_job[0].state = KC_JOB_PAUSED;
    has(24, 80, "last step 440 ms: data 2.0, forward 131", true); /* it makes none now */
    rig_job[0].state = KC_JOB_RUNNING;
    rig_job[0].hangs = 41;
    has(24, 80, "last step 440 ms: data 2.0, forward 131", true);
    has(24, 30, "last step 440 ms", true);
    rig_job[0].hangs = NAN;
    rig_job[0].state = KC_JOB_FINISHED;
    has(24, 80, "step 440 ms", false);
    has(24, 80, "[ffff", false);
    has(24, 80, "ranks: none runs\n3 ranks", true); /* and no line is left empty */
}
END_TEST

START_TEST(the_last_events_are_told_where_there_is_room)
{
    has(24, 80, "* 16:44:29 rank 0 snapshot", false);
    has(40, 80, "* 16:44:29 rank 0 snapshot at step 100", true);
    rig_view.replay.on = true;
    rig_view.replay.wall = rig_events.line[3].wall + 1;
    has(40, 80, "16:44:22", true);
    has(40, 80, "16:44:29", false); /* it is not yet */
}
END_TEST

START_TEST(progress_is_told)
{
    has(24, 80, "] 60.0%", true);
    rig_job[0].step = 300;
    has(24, 80, "] 100.0%", true);
    rig_job[0].step = -1;
    has(24, 80, "%", false);
}
END_TEST

/* 1024 letters: in a grid where there is room, else counted. */
START_TEST(many_ranks_are_letters_or_counts)
{
    struct job_rank *many = calloc(1024, sizeof *many);
    for (int i = 0; i < 1024; i++) {
        many[i] = rig_rank[i % 2];
        many[i].rank = i;
    }
    many[1023].letter = '?';
    rig_job[0].rank = many;
    rig_job[0].ranks_known = 1024;
    has(24, 80, "ranks: 1 ?, 512 b, 511 c", true);
    has(50, 200, "bcbcbcbc bcbcbc", true);
    has(50, 200, "bcbcbcb?", true);
    for (int rows = 1; rows <= 100; rows += rows < 60 ? 1 : 9)
        for (int cols = 1; cols <= 300; cols += 7)
            free(rig_shot(rows, cols, (rows + cols) % 2));
    free(many);
}
END_TEST

START_TEST(a_job_without_steps_says_so)
{
    history_clear(&rig_history);
    has(24, 80, "loss: no step yet", true);
    rig_job[0].steps = 0;
    rig_press("+y-lhxe");
    free(rig_shot(24, 80, false));
}
END_TEST

int main(void)
{
    Suite *s = suite_create("view job");
    TCase *t = tcase_create("view job");
    tcase_add_checked_fixture(t, setup, rig_screen_teardown);
    tcase_set_timeout(t, 60);
    tcase_add_test(t, screens_are_as_they_were);
    tcase_add_test(t, charts_are_as_they_were);
    tcase_add_test(t, x_shows_the_other_curves);
    tcase_add_test(t, zoom_goes_in_and_out_and_says_where_it_ends);
    tcase_add_test(t, what_is_over_has_no_split);
    tcase_add_test(t, the_last_events_are_told_where_there_is_room);
    tcase_add_test(t, progress_is_told);
    tcase_add_test(t, many_ranks_are_letters_or_counts);
    tcase_add_test(t, a_job_without_steps_says_so);
    suite_add_tcase(s, t);
    return suite_run(s);
}
