/* test_layout.c - where the parts of the screen stand: at every size inside and beside each other; what goes first as it shrinks;
 * what is the worst thing to say. `test_layout long` (make fuzz) draws every view at every size. */
#include "console/screen/panes.h"
#include "console/screen/trouble.h"
#include "screen_rig.h"
#include "suite.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROWS 100
#define COLS 300

static bool longer;

/* ---- the layout, which is of numbers alone ---------------------------------------------------------------------- */

static void claim(unsigned char taken[ROWS][COLS], const struct box *b, int rows, int cols, const char *what)
{
    if (b->rows <= 0)
        return;
    ck_assert_msg(b->row >= 0 && b->col >= 0 && b->cols > 0 && b->row + b->rows <= rows && b->col + b->cols <= cols,
                  "%dx%d: the %s is not inside: row %d, column %d, %d rows, %d columns", cols, rows, what, b->row, b->col, b->rows, b->cols);
    for (int r = b->row; r < b->row + b->rows; r++)
        for (int k = b->col; k < b->col + b->cols; k++)
            ck_assert_msg(!taken[r][k]++, "%dx%d: the %s stands on another part", cols, rows, what);
}

static void claim_all(int rows, int cols, bool beside, bool left, bool log)
{
    static unsigned char taken[ROWS][COLS];
    const struct layout l = layout_make(rows, cols, beside, left, log);
    const struct box first = {0, 0, 1, cols}, trouble = {l.trouble, 0, l.trouble >= 0, cols}, last = {l.last, 0, l.last >= 0, cols};
    memset(taken, 0, sizeof taken);
    claim(taken, &first, rows, cols, "first line");
    claim(taken, &trouble, rows, cols, "second line");
    claim(taken, &last, rows, cols, "last line");
    claim(taken, &l.rule, rows, cols, "rule");
    for (int i = 0; i < PANES; i++) {
        claim(taken, &l.head[i], rows, cols, "head");
        claim(taken, &l.box[i], rows, cols, "part");
    }
    ck_assert_msg(l.box[PANE_MAIN].rows > 0 || rows < 2, "%dx%d: there is no view", cols, rows);
    for (int r = 0; r < rows; r++) /* nothing is left over either */
        for (int k = 0; k < cols; k++)
            ck_assert_msg(taken[r][k], "%dx%d: row %d, column %d belongs to nothing", cols, rows, r, k);
}

START_TEST(parts_fill_the_screen_and_do_not_overlap)
{
    for (int rows = 1; rows <= ROWS; rows += longer || rows < 40 ? 1 : 11)
        for (int cols = 1; cols <= COLS; cols += longer ? 1 : 7)
            for (int want = 0; want < 8; want++)
                claim_all(rows, cols, want & 1, want & 2, want & 4);
}
END_TEST

/* As a window shrinks either way: first the log goes, then the neighbour; what has gone does not come back. */
START_TEST(parts_go_in_the_stated_order)
{
    for (int rows = 1; rows <= ROWS; rows++)
        for (int cols = 1; cols <= COLS; cols += longer ? 1 : 2) {
            const struct layout l = layout_make(rows, cols, true, true, true);
            ck_assert(!l.box[PANE_LOG].rows || l.box[PANE_BESIDE].rows);
            ck_assert(l.trouble < 0 || l.last >= 0);
            ck_assert(!l.box[PANE_BESIDE].rows || l.trouble >= 0);
            for (int down = 0; down < 2; down++) {
                const int r = rows - down, k = cols - !down;
                if (r < 1 || k < 1)
                    continue;
                const struct layout less = layout_make(r, k, true, true, true);
                for (int i = 0; i < PANES; i++)
                    ck_assert_msg(!less.box[i].rows || l.box[i].rows, "%dx%d has a part that %dx%d has not", k, r, cols, rows);
            }
        }
}
END_TEST

/* 200 x 50 has them all: the list is a third, the log eight lines. */
START_TEST(a_large_window_has_all_parts)
{
    const struct layout l = layout_make(50, 200, true, true, true);
    ck_assert_int_eq(l.box[PANE_LOG].rows, 8);
    ck_assert_int_eq(l.box[PANE_LOG].cols, 200);
    ck_assert_int_eq(l.box[PANE_BESIDE].cols, 66);
    ck_assert_int_eq(l.box[PANE_BESIDE].col, 0);
    ck_assert_int_eq(l.box[PANE_MAIN].cols, 133);
    ck_assert_int_gt(layout_make(50, 200, true, false, true).box[PANE_BESIDE].col, 0);
}
END_TEST

/* ---- views in it ------------------------------------------------------------------------------------------------ */

static void shows(int rows, int cols, const char *text, bool there)
{
    char *screen = rig_shot(rows, cols, true);
    ck_assert_msg((strstr(screen, text) != NULL) == there, "%s\"%s\" at %dx%d in:\n%s", there ? "no " : "", text, cols, rows, screen);
    free(screen);
}

START_TEST(the_title_says_what_was_left_out)
{
    rig_view.at = VIEW_JOB;
    shows(10, 100, "(no room: log list chart)", true);
    shows(24, 100, "(no room: log list)", true); /* the second chart is beside the first */
    shows(24, 80, "no room", false);
    shows(50, 110, "(no room: log list)", true); /* the second chart is below the first */
    shows(30, 200, "(no room: log)", true);
    shows(50, 200, "no room", false);
    rig_view.at = VIEW_HELP;
    shows(24, 120, "no room", false);
}
END_TEST

/* What stands beside what: where one came from, or what it leads to. */
START_TEST(neighbours_are_what_one_came_from)
{
    static const struct {
        enum view_id at;
        bool only;
        const char *beside;
    } cases[] = {{VIEW_JOBS, false, " job -"}, {VIEW_JOB, false, " jobs -"}, {VIEW_RANKS, false, " job -"}, {VIEW_COMM, false, " job -"},
                 {VIEW_NODE, false, " jobs -"}, {VIEW_JOB, true, " ranks -"}, {VIEW_RANKS, true, " job -"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rig_view.at = cases[i].at;
        rig_view.only = cases[i].only;
        snprintf(rig_view.selected, sizeof rig_view.selected, "quickstart-2");
        shows(50, 200, cases[i].beside, true);
        shows(50, 200, " log -", cases[i].at != VIEW_NODE);
    }
}
END_TEST

START_TEST(tab_goes_through_the_parts_that_are_there)
{
    rig_view.at = VIEW_JOB;
    rig_press("\t");
    ck_assert_ptr_nonnull(strstr(rig_view.notice, "140 columns"));
    shows(50, 200, "[job]", true);
    rig_press("\t");
    ck_assert_int_eq(view_active(&rig_view), VIEW_JOBS);
    shows(50, 200, "[jobs]", true);
    rig_press("j"); /* moves in the list; the job beside it is the one that it comes to */
    ck_assert_str_eq(rig_view.selected, "llama-small-1");
    ck_assert_int_eq(rig_view.at, VIEW_JOB);
    shows(50, 200, " llama-small-1 > job", true);
    rig_press("\t");
    ck_assert_int_eq(view_active(&rig_view), VIEW_LOG);
    rig_press("\t");
    ck_assert_int_eq(view_active(&rig_view), VIEW_JOB);
    rig_press("\t\033"); /* Esc comes back before it goes up */
    ck_assert_int_eq(view_active(&rig_view), VIEW_JOB);
    rig_press("\t\t\r"); /* Enter in the log: all of the screen */
    ck_assert_int_eq(rig_view.at, VIEW_LOG);
    ck_assert_int_eq(rig_view.pane, PANE_MAIN);
    rig_view.at = VIEW_JOB;
    rig_press("\t");
    free(rig_shot(24, 80, true)); /* it is gone: the keys are where there is something to see */
    ck_assert_int_eq(view_active(&rig_view), VIEW_JOB);
}
END_TEST

/* What is looked up is what stands on the screen. */
START_TEST(what_stands_on_the_screen_is_read)
{
    rig_view.at = VIEW_RANKS;
    free(rig_shot(24, 80, true));
    ck_assert_uint_eq(panes_needs(&rig_view), view_kinds[VIEW_RANKS].needs);
    free(rig_shot(50, 200, true));
    ck_assert_uint_eq(panes_needs(&rig_view), view_kinds[VIEW_RANKS].needs | view_kinds[VIEW_JOB].needs | view_kinds[VIEW_LOG].needs);
}
END_TEST

START_TEST(screens_are_as_they_were)
{
    rig_view.at = VIEW_JOB;
    rig_compare("job-200x50", 50, 200, false);
    rig_press("\t");
    rig_compare("job-list-200x50-ascii", 50, 200, true);
}
END_TEST

/* All views at all sizes, 0 to 1024 ranks. */
START_TEST(every_view_is_drawn_at_every_size)
{
    static const size_t counts[] = {0, 1, 2, 64, 1000, 1024};
    struct job_rank *many = calloc(1024, sizeof *many);
    for (int i = 0; i < 1024; i++) {
        many[i] = rig_rank[i % 2];
        many[i].rank = i;
    }
    rig_job[0].rank = many;
    unsigned n = 0;
    for (int rows = 1; rows <= ROWS; rows += longer ? 1 : rows < 8 ? 2 : 13)
        for (int cols = 1; cols <= COLS; cols += longer ? 1 : 41)
            for (int at = 0; at < VIEWS; at++) {
                rig_view.at = (enum view_id)at;
                rig_view.pane = (enum pane)(n % PANES);
                rig_job[0].ranks_known = counts[n++ % 6];
                free(rig_shot(rows, cols, n % 2));
            }
    free(many);
}
END_TEST

/* ---- the worst thing -------------------------------------------------------------------------------------------- */

static void worst_is(enum trouble_kind kind, const char *text)
{
    const struct trouble t = trouble_worst(&rig_model);
    ck_assert_msg(t.kind == kind, "%d, not %d: %s", t.kind, kind, t.text);
    ck_assert_msg(strstr(t.text, text) != NULL, "%s", t.text);
}

/* Each is worse than all before it, whichever job it is of; said with its owner and the key that shows it. */
START_TEST(the_worst_of_all_jobs_is_said)
{
    worst_is(TROUBLE_NONE, "");
    rig_job[1].restarts = 2;
    worst_is(TROUBLE_RESTARTED, "llama-small-1 was restarted 2 times");
    rig_rank[1].metric[KC_METRIC_STRAGGLER] = 1;
    worst_is(TROUBLE_STRAGGLER, "! quickstart-2: rank 1 is a straggler");
    rig_job[1].failed_saves = 3;
    rig_job[1].failed_step = 50;
    worst_is(TROUBLE_UNSAVED, "! llama-small-1 cannot save: 3 snapshots failed, the last of step 50 (state)  [5] snapshots");
    rig_job[1].restart_in = 8;
    worst_is(TROUBLE_RESTARTING, "! llama-small-1 restarts in 8 s");
    rig_rank[1].torn = true;
    worst_is(TROUBLE_TORN, "! quickstart-2: the board is torn: rank 1  [3] ranks");
    rig_rank[0].wait = (struct job_wait){.what = KC_WAIT_ALL_REDUCE, .group = "world", .sequence = 1, .seconds = 41};
    worst_is(TROUBLE_WAIT, "! quickstart-2: rank 0 has waited in all-reduce world for 41.0 s (comm)  [7] hang");
    rig_job[1].board_error = -5;
    snprintf(rig_job[1].board_text, sizeof rig_job[1].board_text, "its board is of version 3");
    worst_is(TROUBLE_UNREADABLE, "! llama-small-1: its board is of version 3");
    rig_job[0].keeper_alive = false;
    worst_is(TROUBLE_KEEPER, "! quickstart-2 has lost its keeper");
    rig_job[1].board_error = 0;
    rig_job[1].hangs = 41;
    snprintf(rig_job[1].hang_text, sizeof rig_job[1].hang_text, "rank 3 is stopped");
    worst_is(TROUBLE_HANG, "! llama-small-1 hangs for 41.0 s: rank 3 is stopped  [7] hang");
    rig_view.at = VIEW_JOBS;
    shows(24, 100, "! llama-small-1 hangs for 41.0 s", true);
    rig_view.at = VIEW_JOB; /* of this job alone */
    shows(24, 100, "! quickstart-2 has lost its keeper", true);
}
END_TEST

/* What is over is told of where the cursor is. */
START_TEST(what_is_over_is_no_trouble_of_now)
{
    worst_is(TROUBLE_NONE, "");
    rig_view.at = VIEW_JOBS;
    shows(24, 100, "! tiny-1 failed", false);
    snprintf(rig_view.selected, sizeof rig_view.selected, "tiny-1");
    shows(24, 100, "! tiny-1 failed: rank 1 was killed", true);
}
END_TEST

int main(int count, char **word)
{
    longer = count > 1 && !strcmp(word[1], "long");
    Suite *s = suite_create("layout");
    TCase *t = tcase_create("layout");
    tcase_add_checked_fixture(t, rig_screen_setup, rig_screen_teardown);
    tcase_set_timeout(t, longer ? 3600 : 60);
    tcase_add_test(t, parts_fill_the_screen_and_do_not_overlap);
    tcase_add_test(t, parts_go_in_the_stated_order);
    tcase_add_test(t, a_large_window_has_all_parts);
    tcase_add_test(t, the_title_says_what_was_left_out);
    tcase_add_test(t, neighbours_are_what_one_came_from);
    tcase_add_test(t, tab_goes_through_the_parts_that_are_there);
    tcase_add_test(t, what_stands_on_the_screen_is_read);
    tcase_add_test(t, screens_are_as_they_were);
    tcase_add_test(t, every_view_is_drawn_at_every_size);
    tcase_add_test(t, the_worst_of_all_jobs_is_said);
    tcase_add_test(t, what_is_over_is_no_trouble_of_now);
    suite_add_tcase(s, t);
    return suite_run(s);
}
