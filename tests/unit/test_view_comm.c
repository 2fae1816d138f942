/* test_view_comm.c - the view of communication: whole screens, what is said of what stands, every size. */
#include "tests/unit/screen_rig.h"
#include "tests/unit/screen_rig_comm.h"
#include "tests/unit/suite.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void show(int ranks, int hung)
{
    rig_comm_fill(ranks, hung);
    rig_view.comms = &rig_comms;
}

static void setup(void)
{
    rig_screen_setup();
    rig_view.at = VIEW_COMM;
}

static void has(int rows, int cols, const char *text, bool there)
{
    char *screen = rig_shot(rows, cols, true);
    ck_assert_msg((strstr(screen, text) != NULL) == there, "%s\"%s\" in:\n%s", there ? "no " : "", text, screen);
    free(screen);
}

START_TEST(screens_are_as_they_were)
{
    rig_compare("comm-80x24", 24, 80, false);
    rig_compare("comm-40x10", 10, 40, false);
    rig_compare("comm-200x50", 50, 200, false);
    show(4, 3);
    rig_compare("comm-stands-80x24", 24, 80, false);
    rig_compare("comm-stands-80x24-ascii", 24, 80, true);
    rig_compare("comm-stands-40x10", 10, 40, false);
}
END_TEST

/* Who has not come, and to which number each of them came, is told of the channel under the cursor. */
START_TEST(what_stands_is_told)
{
    has(24, 80, " stands ", false);
    show(4, 3);
    has(24, 80, "data.0 #6649 all-reduce f32 sum stands 12.0 s: 1/2 came, 0 done, not rank 2", true);
    rig_press("j");
    has(24, 80, "data.1 #6649 all-reduce f32 sum stands 12.0 s: 1/2 came, 0 done, not rank 3", true);
    has(24, 80, "not there: rank 3 at 6648", true);
    rig_comms.now += 105 * KC_SECOND;
    has(24, 80, "1m57s", true); /* whole, in its column */
}
END_TEST

START_TEST(rows_are_chosen_and_sorted)
{
    struct kc_error e = {""};
    struct list_source s;
    show(16, 5);
    ck_assert(view_kinds[VIEW_COMM].source(&rig_view, &s));
    ck_assert_uint_eq(s.rows, 2 + 8 + 1);
    ck_assert_msg(list_filter(&rig_view.list[VIEW_COMM], &s, "stands_seconds>1", &e) == 0, "%s", e.text);
    has(24, 80, "tensor.2", true);
    has(24, 80, "data.1", true);
    has(24, 80, "tensor.1 ", false);
    rig_press("jj");
    has(24, 80, "tensor.2 #6649 all-gather f32 stands ", true);
}
END_TEST

/* Nothing is shown as if it were known. */
START_TEST(what_is_not_there_is_said)
{
    rig_comms.unread = 2;
    has(24, 80, "2 of 4 ranks could not be read", true);
    rig_comms.unread = 0;
    rig_comms.left = true;
    has(24, 80, "its keeper is dead", true);
    rig_view.comms = NULL;
    has(24, 80, "Its board is not there", true);
    snprintf(rig_view.comms_trouble, sizeof rig_view.comms_trouble, "the board is of another version");
    has(24, 80, "the board is of another version", true);
    rig_model.count = 0;
    has(24, 80, "The job is gone.", true);
}
END_TEST

START_TEST(it_is_drawn_at_every_size)
{
    static const int ranks[] = {2, 64, 1024};
    for (int k = 0; k < 3; k++) {
        show(ranks[k], ranks[k] - 1);
        rig_shot_sizes();
    }
}
END_TEST

static void add_tests(TCase *c)
{
    tcase_add_checked_fixture(c, setup, rig_screen_teardown);
    tcase_add_test(c, screens_are_as_they_were);
    tcase_add_test(c, what_stands_is_told);
    tcase_add_test(c, rows_are_chosen_and_sorted);
    tcase_add_test(c, what_is_not_there_is_said);
    tcase_add_test(c, it_is_drawn_at_every_size);
}

int main(void)
{
    Suite *suite = suite_create("view comm");
    TCase *c = tcase_create("view comm");
    add_tests(c);
    suite_add_tcase(suite, c);
    return suite_run(suite);
}
