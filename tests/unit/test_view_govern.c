/* test_view_govern.c - the view of governance: its parts, what stands at a glance, and what is said where nothing is known. */
#include "screen_rig.h"
#include "suite.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

static void setup(void)
{
    rig_screen_setup();
    rig_press("\r6");
}

static void is_shown(const char *text, bool shown)
{
    char *shot = rig_shot(24, 80, false);
    ck_assert_msg((strstr(shot, text) != NULL) == shown, "%s is%s there:\n%s", text, shown ? " not" : "", shot);
    free(shot);
}

START_TEST(golden)
{
    rig_compare("governance-80x24", 24, 80, false);
    rig_compare("governance-80x24-ascii", 24, 80, true);
    rig_compare("governance-40x10", 10, 40, false);
    rig_compare("governance-130x40", 40, 130, false);
    rig_press("\t");
    rig_compare("governance-ledger-80x24", 24, 80, false);
    rig_press("\t");
    rig_compare("governance-rules-80x24", 24, 80, false);
    rig_press("\t");
    rig_compare("governance-exemptions-80x24", 24, 80, false);
    rig_press("\t");
    rig_compare("governance-policy-80x24", 24, 80, false);
}
END_TEST

/* h and l go the same way as Tab, both ways round; every part has a cursor and a filter of its own. */
START_TEST(parts_go_round)
{
    rig_press("h");
    ck_assert_int_eq(rig_view.govern_part, GOVERN_POLICY);
    rig_press("l\t\t");
    ck_assert_int_eq(rig_view.govern_part, GOVERN_RULES);
    rig_press("/state=broken\r");
    is_shown("call-base", true);
    is_shown("include-comm", false);
    rig_press("\t");
    is_shown("stamp-kc", true);
}
END_TEST

START_TEST(what_is_broken_comes_first_and_is_told_whole)
{
    rig_press("ll");
    is_shown("1 broken, 1 warns, 1 exempt, 1 kept of 4", true);
    is_shown("base calls no other room. libbase.a(file.o):", true);
    is_shown("calls kc_probe_set, which is of shm", true);
}
END_TEST

START_TEST(nothing_known_is_no_figure)
{
    rig_view.borders = NULL;
    rig_view.governance = NULL;
    is_shown("rules       -", true);
    is_shown("Nothing was done yet", true);
    for (int part = 0; part < GOVERN_PARTS; part++) {
        rig_press("\t");
        free(rig_shot(24, 80, false));
    }
}
END_TEST

START_TEST(draws_at_every_size)
{
    for (int part = 0; part < GOVERN_PARTS; part++, rig_press("\t"))
        for (int rows = 1; rows < 60; rows += rows < 26 ? 1 : 7)
            for (int cols = 1; cols < 220; cols += cols < 12 ? 1 : 31)
                free(rig_shot(rows, cols, rows % 2));
}
END_TEST

int main(void)
{
    Suite *s = suite_create("view governance");
    TCase *t = tcase_create("all");
    tcase_add_checked_fixture(t, setup, rig_screen_teardown);
    tcase_add_test(t, golden);
    tcase_add_test(t, parts_go_round);
    tcase_add_test(t, what_is_broken_comes_first_and_is_told_whole);
    tcase_add_test(t, nothing_known_is_no_figure);
    tcase_add_test(t, draws_at_every_size);
    suite_add_tcase(s, t);
    return suite_run(s);
}
