/* test_view_ranks.c - the ranks of a job: a letter each up to 1024 of them, table, tree; filter, cursor, what is said of the
 * one under it. */
#include "console/screen/ranks.h"
#include "tests/unit/board_make.h"
#include "tests/unit/screen_rig.h"
#include "tests/unit/suite.h"

#include "console/report.h"
#include "shm/reader.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct job large, thousand; /* thousand: made once, since its board is large */

/* The job of a board that never ran. */
static struct job read_made(const struct board_wish *w)
{
    char path[] = "/tmp/kc-view-ranks-XXXXXX";
    struct kc_error e = {""};
    struct kc_reader *r = NULL;
    struct job j;
    int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    close(fd);
    ck_assert_msg(board_make_file(w, path, &e) == 0, "%s", e.text);
    ck_assert_msg(kc_reader_open(path, &r, &e) == 0, "%s", e.text);
    ck_assert_msg(job_of_board(r, &j, &e) == 0, "%s", e.text);
    kc_reader_free(r);
    unlink(path);
    return j;
}

static void make_thousand(void)
{
    struct board_wish w = board_wish(1024);
    w.nodes = 128;
    board_set_parse(&w.hung, "77");
    board_set_parse(&w.slow, "260");
    board_set_parse(&w.failed, "900");
    board_set_parse(&w.torn_rank, "5");
    w.torn = 1u << BOARD_TORN_IDENTITY;
    w.stuck_seconds = 12;
    thousand = read_made(&w);
}

static void free_thousand(void)
{
    job_free(&thousand);
}

/* In the place of quickstart-2. */
static void show(const struct job *j)
{
    large = *j;
    rig_model = (struct model){&large, 1};
    rig_view.at = VIEW_RANKS;
}

static void setup(void)
{
    rig_screen_setup();
    rig_view.at = VIEW_RANKS;
    rig_view.rank = 1;
}

START_TEST(the_ranks_are_as_they_were)
{
    rig_compare("ranks-80x24", 24, 80, false);
    rig_compare("ranks-40x10", 10, 40, false);
    show(&thousand);
    rig_view.rank = 77;
    rig_compare("ranks-1024-80x24", 24, 80, false);
    rig_compare("ranks-1024-40x10", 10, 40, false);
    rig_compare("ranks-1024-200x50", 50, 200, false);
    rig_press("t");
    rig_compare("ranks-tree-80x24", 24, 80, false);
    rig_press("w");
    rig_compare("ranks-table-80x24-ascii", 24, 80, true);
    rig_press("w/wait=all_reduce rank>=64\r");
    rig_compare("ranks-filtered-80x24", 24, 80, false);
}
END_TEST

/* ---- the grid -------------------------------------------------------------------------------------------------- */

/* 1..1024 ranks on 1..300 columns: each has a cell of its own within them, in the order of the ranks. */
START_TEST(every_rank_has_its_place)
{
    static struct job_rank rank[1024];
    static struct ranks_place place[1024];
    struct job j = {.rank = rank};
    for (int per = 1; per <= 24; per += 7)
        for (int count = 1; count <= 1024; count += count < 20 ? 3 : 251)
            for (int cols = 1; cols <= 300; cols += cols < 30 ? 1 : 23) {
                for (int i = 0; i < count; i++)
                    rank[i].node = i / per;
                j.ranks_known = (size_t)count;
                const int lines = ranks_layout(&j, cols, place);
                for (int i = 0; i < count; i++) {
                    ck_assert(place[i].col >= RANKS_LABEL && place[i].line < lines);
                    ck_assert(place[i].col < cols || cols <= RANKS_LABEL);
                    ck_assert(i == 0 || place[i].line > place[i - 1].line ||
                              (place[i].line == place[i - 1].line && place[i].col > place[i - 1].col));
                }
            }
}
END_TEST

START_TEST(a_thousand_ranks_take_sixteen_lines)
{
    static struct ranks_place place[1024];
    show(&thousand);
    ck_assert_int_eq(ranks_layout(&large, 80, place), 16);
    /* eight a node, eight nodes a line */
    ck_assert(place[77].line == 1 && place[77].col == 6 + 9 + 5);
    ck_assert(place[1023].line == 15 && place[1023].col == 6 + 7 * 9 + 7);
}
END_TEST

START_TEST(keys_go_about_the_grid)
{
    show(&thousand);
    rig_view.rank = 0;
    free(rig_shot(24, 80, false));
    rig_press("jl");
    ck_assert_int_eq(rig_view.rank, 65);
    rig_press("jjkh");
    ck_assert_int_eq(rig_view.rank, 128);
    rig_press("G");
    ck_assert_int_eq(rig_view.rank, 1023);
    rig_press("jl");
    ck_assert_int_eq(rig_view.rank, 1023);
    rig_press("gkh");
    ck_assert_int_eq(rig_view.rank, 0);
    free(rig_shot(24, 40, false)); /* as the screen is now: 27 letters a line, three groups */
    rig_press("j");
    ck_assert_int_eq(rig_view.rank, 24);
}
END_TEST

START_TEST(enter_leads_to_the_log_of_the_rank)
{
    rig_press("\r");
    ck_assert_int_eq(rig_view.at, VIEW_LOG);
    ck_assert_int_eq(rig_view.log_rank, 1);
}
END_TEST

/* ---- what is said ---------------------------------------------------------------------------------------------- */

static void says(int rank, const char *want)
{
    rig_view.rank = rank;
    char *text = rig_shot(24, 80, true);
    ck_assert_msg(strstr(text, want) != NULL, "\"%s\" is not in\n%s", want, text);
    free(text);
}

START_TEST(what_is_dead_or_torn_is_said_in_its_place)
{
    show(&thousand);
    says(77, "rank 77 n9");
    says(77, "rank 77 n9  H running, data");
    says(5, "rank 5 n0  ? ?, ");
    says(5, "torn: ");
    says(900, "last words: ");
    large.keeper_alive = false;
    says(3, "its keeper is gone: this is what the board last showed");
}
END_TEST

START_TEST(a_rank_that_lags_or_is_silent_has_a_letter)
{
    struct board_wish w = board_wish(16);
    board_set_parse(&w.slow, "9");
    struct job j = read_made(&w);
    show(&j);
    says(9, "straggler: score ");
    ck_assert_int_eq(report_letter(&large, &large.rank[9]), '~');
    large.rank[3].age = 12;
    large.rank[3].state = KC_RANK_RUNNING;
    large.rank[3].wait.what = KC_WAIT_NONE;
    says(3, "no heartbeat 12.0 s");
    ck_assert_int_eq(report_letter(&large, &large.rank[3]), 'H');
    large.step_seconds = 60; /* where a step takes as long it may compute */
    ck_assert_int_ne(report_letter(&large, &large.rank[3]), 'H');
    job_free(&j);
}
END_TEST

/* How long comes first, so what 80 columns cut off is at most the end of a long group's name. */
START_TEST(a_wait_fits_80_columns)
{
    rig_rank[1].wait = (struct job_wait){.what = KC_WAIT_REDUCE_SCATTER, .group = "data.0", .sequence = 1052, .seconds = 41};
    says(0, " 41.0 s reduce-scatter data.0#1052");
}
END_TEST

/* ---- filter, sort, forms --------------------------------------------------------------------------------------- */

/* Ranks that the view shows, as its own list has them. */
static size_t shown(void)
{
    struct list_source s;
    size_t n = 0;
    ck_assert(view_source_ranks(&rig_view, &s));
    for (size_t i = 0; i < s.rows; i++)
        n += list_shows(&rig_view.list[VIEW_RANKS], &s, i);
    return n;
}

static const struct {
    const char *text;
    size_t ranks;
    int first; /* where the cursor goes from rank 0 */
} filters[] = {
    {"rank>=64", 960, 64}, {"node=9", 8, 72}, {"state=hung", 1, 77}, {"state=failed", 1, 900}, {"state=torn", 1, 5},
    {"wait=data", 1, 77}, {"rank<8 node=0", 7, 0}, {"rank>=2000", 0, 0},
};

START_TEST(ranks_are_filtered)
{
    show(&thousand);
    rig_view.rank = 0;
    rig_press("/");
    rig_press(filters[_i].text);
    rig_press("\r");
    ck_assert_uint_eq(shown(), filters[_i].ranks);
    free(rig_shot(24, 80, false));
    ck_assert_int_eq(rig_view.rank, filters[_i].first);
    rig_press("\033");
    ck_assert_uint_eq(shown(), 1024);
}
END_TEST

/* In the grid one walks over those that the filter leaves; the others are blanks. */
START_TEST(the_grid_walks_over_what_is_shown)
{
    show(&thousand);
    rig_view.rank = 0;
    free(rig_shot(24, 80, false));
    rig_press("/node=2\rl");
    ck_assert_int_eq(rig_view.rank, 17);
    rig_press("hh");
    ck_assert_int_eq(rig_view.rank, 16);
    rig_press("G");
    ck_assert_int_eq(rig_view.rank, 23);
    char *text = rig_shot(24, 80, true);
    ck_assert_ptr_nonnull(strstr(text, "\n  /node=2  8 of 1024\n"));
    ck_assert_ptr_nonnull(strstr(text, "\nn8\nn16\n"));
    free(text);
}
END_TEST

START_TEST(a_table_sorts_and_the_cursor_stays_on_its_rank)
{
    rig_rank[0].metric[KC_METRIC_MEMORY_BYTES] = 1e9;
    rig_rank[1].metric[KC_METRIC_MEMORY_BYTES] = 2e9;
    rig_press("wsssssss"); /* the seventh column */
    ck_assert_str_eq(rig_view.notice, "sorted by MEM, the largest first");
    char *text = rig_shot(24, 130, true);
    ck_assert_ptr_nonnull(strstr(text, "\n>    1 c running"));
    ck_assert(strstr(text, "    1 c running") < strstr(text, "    0 b running"));
    free(text);
}
END_TEST

/* A node opens when the cursor comes to it. */
START_TEST(the_tree_opens_the_node_of_the_cursor)
{
    struct list_source s;
    show(&thousand);
    rig_view.rank = 16; /* the first of node 2 */
    rig_press("t");
    ck_assert(ranks_tree_source(&rig_view, &s));
    ck_assert_uint_eq(s.rows, 128 + 8);
    rig_press("kk"); /* past its node's row, to the row of node 1, which opens */
    ck_assert_int_eq(rig_view.rank, 8);
    rig_press("jj");
    ck_assert_int_eq(rig_view.rank, 9);
    rig_press("s");
    ck_assert_ptr_nonnull(strstr(rig_view.notice, "a tree stands by its nodes"));
    rig_press("/state=hung\r"); /* nodes without one go, too */
    free(rig_shot(24, 80, false));
    ck_assert(ranks_tree_source(&rig_view, &s));
    ck_assert_uint_eq(s.rows, 2);
    rig_press("t");
    ck_assert_int_eq(rig_view.ranks.form, RANKS_GRID);
}
END_TEST

START_TEST(every_size_is_drawn)
{
    show(&thousand);
    for (int form = 0; form < 4; form++) {
        rig_view.ranks.form = (enum ranks_form)(form % 3);
        if (form == 3)
            rig_press("/node<3\r");
        for (int rows = 1; rows <= 60; rows += rows < 9 ? 2 : 17)
            for (int cols = 1; cols <= 240; cols += 34) {
                rig_view.rank = (rows * 131 + cols) % 1024;
                free(rig_shot(rows, cols, cols % 2));
            }
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("view ranks");
    TCase *t = tcase_create("ranks");
    tcase_add_unchecked_fixture(t, make_thousand, free_thousand);
    tcase_add_checked_fixture(t, setup, rig_screen_teardown);
    tcase_add_test(t, the_ranks_are_as_they_were);
    tcase_add_test(t, every_rank_has_its_place);
    tcase_add_test(t, a_thousand_ranks_take_sixteen_lines);
    tcase_add_test(t, keys_go_about_the_grid);
    tcase_add_test(t, enter_leads_to_the_log_of_the_rank);
    tcase_add_test(t, what_is_dead_or_torn_is_said_in_its_place);
    tcase_add_test(t, a_rank_that_lags_or_is_silent_has_a_letter);
    tcase_add_test(t, a_wait_fits_80_columns);
    tcase_add_loop_test(t, ranks_are_filtered, 0, (int)(sizeof filters / sizeof *filters));
    tcase_add_test(t, the_grid_walks_over_what_is_shown);
    tcase_add_test(t, a_table_sorts_and_the_cursor_stays_on_its_rank);
    tcase_add_test(t, the_tree_opens_the_node_of_the_cursor);
    tcase_add_test(t, every_size_is_drawn);
    suite_add_tcase(s, t);
    return suite_run(s);
}
