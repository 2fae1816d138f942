/* test_view_snapshots.c - the view of snapshots: what is shown, at each size, and what is said of what is broken or not known. */
#include "screen_rig.h"
#include "suite.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

static void setup(void)
{
    rig_screen_setup();
    rig_press("\r5"); /* of the first job */
}

static void is_shown(const char *text, bool shown)
{
    char *shot = rig_shot(24, 80, false);
    ck_assert_msg((strstr(shot, text) != NULL) == shown, "%s is%s there:\n%s", text, shown ? " not" : "", shot);
    free(shot);
}

START_TEST(golden)
{
    rig_under_way();
    rig_compare("snapshots-80x24", 24, 80, false);
    rig_compare("snapshots-80x24-ascii", 24, 80, true);
    rig_compare("snapshots-40x10", 10, 40, false);
    rig_compare("snapshots-130x40", 40, 130, false);
}
END_TEST

START_TEST(broken_ones_and_old_looks_say_so)
{
    is_shown("1 BROKEN", true);
    is_shown("none is under way", true);
    is_shown("seen", false);
    rig_view.now = UINT64_C(100000000000);
    rig_view.kept.came = rig_view.now - UINT64_C(95000000000);
    is_shown("seen 1 min 35 s ago", true);
    rig_view.kept.trouble = "the disk does not answer";
    is_shown("the disk does not answer", true);
}
END_TEST

/* A board without its keeper says what was. */
START_TEST(what_was_under_way_when_the_keeper_died_is_not_told_as_if_it_were)
{
    rig_under_way();
    is_shown("writing step 160", true);
    rig_job[0].keeper_alive = false;
    is_shown("writing step 160", false);
    is_shown("its keeper is gone: whether one is under way is not known", true);
}
END_TEST

/* Nothing of another job is shown as this one's. */
START_TEST(what_is_not_known_yet_is_not_shown)
{
    ((struct chain *)rig_view.kept.chain)->id[0] = 'x';
    is_shown("are being looked at", true);
    is_shown("BROKEN", false);
    memset(&rig_view.kept, 0, sizeof rig_view.kept); /* before the first look */
    is_shown("are being looked at", true);
}
END_TEST

START_TEST(the_cursor_is_on_a_version_and_the_filter_by_the_verbs_names)
{
    rig_press("j");
    ck_assert_str_eq(rig_view.list[VIEW_SNAPSHOTS].cursor, "1 memory");
    rig_press("/tier=elsewhere\r");
    is_shown("BROKEN  ", false);
    ck_assert_str_eq(rig_view.list[VIEW_SNAPSHOTS].wanted, "tier=elsewhere");
    struct list_source s;
    ck_assert(view_source_snapshots(&rig_view, &s));
    ck_assert_uint_eq(list_row(&rig_view.list[VIEW_SNAPSHOTS], &s), 3);
}
END_TEST

START_TEST(draws_at_every_size)
{
    rig_under_way();
    for (int rows = 1; rows < 60; rows += rows < 26 ? 1 : 7)
        for (int cols = 1; cols < 220; cols += cols < 12 ? 1 : 23)
            free(rig_shot(rows, cols, rows % 2));
}
END_TEST

int main(void)
{
    Suite *s = suite_create("view snapshots");
    TCase *t = tcase_create("all");
    tcase_add_checked_fixture(t, setup, rig_screen_teardown);
    tcase_add_test(t, golden);
    tcase_add_test(t, broken_ones_and_old_looks_say_so);
    tcase_add_test(t, what_was_under_way_when_the_keeper_died_is_not_told_as_if_it_were);
    tcase_add_test(t, what_is_not_known_yet_is_not_shown);
    tcase_add_test(t, the_cursor_is_on_a_version_and_the_filter_by_the_verbs_names);
    tcase_add_test(t, draws_at_every_size);
    suite_add_tcase(s, t);
    return suite_run(s);
}
