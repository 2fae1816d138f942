/* test_screens.c - every view of the table, of the example world, at the sizes that people have, with and without UTF-8, against
 * golden screens (tests/screen/views); and the role of each cell, which is all that colour can say: where a terminal has none, the
 * letters of the same screen must do. */
#include "screen_rig.h"
#include "suite.h"

#include <check.h>
#include <stdio.h>

static const struct {
    int rows, cols;
} sizes[] = {{24, 80}, {10, 40}, {50, 200}};

START_TEST(every_view_is_as_it_was)
{
    char name[128];
    rig_view.at = (enum view_id)_i;
    for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++)
        for (int ascii = 0; ascii < 2; ascii++) {
            snprintf(name, sizeof name, "views/%s-%dx%d%s", view_kinds[_i].name, sizes[k].cols, sizes[k].rows, ascii ? "-ascii" : "");
            rig_compare(name, sizes[k].rows, sizes[k].cols, ascii != 0);
        }
}
END_TEST

START_TEST(what_every_cell_means_is_as_it_was)
{
    char name[128];
    rig_view.at = (enum view_id)_i;
    snprintf(name, sizeof name, "views/%s-80x24-roles", view_kinds[_i].name);
    rig_compare_roles(name, 24, 80);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("screens");
    TCase *t = tcase_create("views");
    tcase_add_checked_fixture(t, rig_screen_setup, rig_screen_teardown);
    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, every_view_is_as_it_was, 0, VIEWS);
    tcase_add_loop_test(t, what_every_cell_means_is_as_it_was, 0, VIEWS);
    suite_add_tcase(s, t);
    return suite_run(s);
}
