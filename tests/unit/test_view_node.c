/* test_view_node.c - the view of the node: devices as a list, the one under the cursor told below. */
#include "suite.h"

#include "screen_rig.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void setup(void)
{
    rig_screen_setup();
    rig_view.at = VIEW_NODE;
}

static bool on_screen(const char *text)
{
    char *all = rig_shot(24, 80, false);
    const bool there = strstr(all, text) != NULL;
    free(all);
    return there;
}

START_TEST(devices_their_holders_and_the_machine)
{
    rig_compare("node-80x24", 24, 80, false);
    rig_compare("node-80x24-ascii", 24, 80, true);
    rig_compare("node-40x10", 10, 40, false);
    rig_compare("node-200x50", 50, 200, false);
}
END_TEST

START_TEST(the_device_under_the_cursor_is_told_below)
{
    ck_assert(!on_screen("ECC errors"));
    rig_press("j");
    ck_assert(on_screen("! faulty: marked by hand: ECC errors"));
    rig_press("j");
    ck_assert(on_screen("2 processes on it:"));
    ck_assert(on_screen("pid 4411 of anna, python, 12.0 GiB  not ours"));
    ck_assert(on_screen("pid 4500 of you, kc-rank, -"));
    rig_compare("node-gpu-80x24", 24, 80, false);
}
END_TEST

START_TEST(a_filter_takes_the_names_of_the_verb)
{
    rig_press("/state=faulty");
    view_key(&rig_view, '\r', true);
    ck_assert(on_screen("cpu-1"));
    ck_assert(!on_screen("cuda-0"));
    view_key(&rig_view, 27, true);
    ck_assert(on_screen("cuda-0"));
    rig_press("/busy_ratio>0.9");
    view_key(&rig_view, '\r', true);
    ck_assert(on_screen("cpu-0"));
    ck_assert(!on_screen("cpu-1"));
}
END_TEST

START_TEST(what_is_not_known_is_not_shown_as_if_it_were)
{
    rig_view.node_age = 9.4;
    ck_assert(on_screen("! looked 9.4 s ago"));
    snprintf(rig_view.node_trouble, sizeof rig_view.node_trouble, "no answer within a minute");
    ck_assert(on_screen("! looked 9.4 s ago, and not since: no answer within a minute"));
    rig_view.node = NULL;
    ck_assert(on_screen("! no answer within a minute"));
    rig_view.node_trouble[0] = 0;
    ck_assert(on_screen("Looking at this machine"));
    rig_press("jkg/ ");
}
END_TEST

int main(void)
{
    Suite *s = suite_create("view of the node");
    TCase *t = tcase_create("view of the node");
    tcase_add_checked_fixture(t, setup, rig_screen_teardown);
    tcase_add_test(t, devices_their_holders_and_the_machine);
    tcase_add_test(t, the_device_under_the_cursor_is_told_below);
    tcase_add_test(t, a_filter_takes_the_names_of_the_verb);
    tcase_add_test(t, what_is_not_known_is_not_shown_as_if_it_were);
    suite_add_tcase(s, t);
    return suite_run(s);
}
