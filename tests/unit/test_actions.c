/* What is done from the screen: to what, after which question, and when not at all. */
#include "screen_rig.h"
#include "suite.h"

#include <ncurses.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool seen(const char *text)
{
    char *shot = rig_shot(24, 80, false);
    const bool yes = strstr(shot, text) != NULL;
    free(shot);
    return yes;
}

static enum view_request enter(void)
{
    return view_key(&rig_view, '\r', true);
}

/* The menu has one row for each statement; what it will run is what is shown. */
START_TEST(marked_rows_are_acted_on_together_and_shown_before)
{
    for (int i = 0; i < 4; i++)
        rig_job[i].state = KC_JOB_RUNNING;
    rig_job[2].state = KC_JOB_FINISHED;
    rig_press("   a"); /* the first three: a mark moves on */
    ck_assert_int_eq(rig_view.act.targets, 3);
    rig_compare("menu-marked-80x24", 24, 80, false);
    rig_press("j");
    ck_assert_int_eq(enter(), REQUEST_NONE); /* pause alone would not ask: three do */
    ck_assert_int_eq(rig_view.mode, MODE_CONFIRM);
    rig_compare("question-marked-80x24", 24, 80, false);
    ck_assert_int_eq(enter(), REQUEST_NONE); /* Enter is no answer */
    ck_assert_int_eq(rig_view.mode, MODE_NORMAL);
    rig_press("aj\ry");
    ck_assert_int_eq(enter(), REQUEST_RUN);
    ck_assert_str_eq(rig_view.run, "pause quickstart-2\npause llama-small-1");
    ck_assert(seen("$ 2 statements"));
}
END_TEST

/* rm of several wants their number, of one its id; its name, which others have, or y does for neither. */
START_TEST(the_gravest_want_more_than_a_key)
{
    for (int i = 0; i < 4; i++)
        rig_job[i].state = KC_JOB_FINISHED;
    rig_press("Gajjjjj\r");
    ck_assert(seen("Type the job's id, tiny-1, and Enter"));
    rig_press("y");
    ck_assert_int_eq(enter(), REQUEST_NONE);
    rig_press("ajjjjj\rtiny");
    ck_assert_int_eq(enter(), REQUEST_NONE);
    rig_press("ajjjjj\rtiny-1");
    ck_assert_int_eq(enter(), REQUEST_RUN);
    ck_assert_str_eq(rig_view.run, "rm tiny-1");
    rig_view.mode = MODE_NORMAL;
    rig_press("g  ajjjjj\r");
    ck_assert(seen("Type 2 jobs and Enter"));
    rig_press("y");
    ck_assert_int_eq(enter(), REQUEST_NONE);
    rig_press("ajjjjj\r2 jobs");
    ck_assert_int_eq(enter(), REQUEST_RUN);
    ck_assert_str_eq(rig_view.run, "rm quickstart-2\nrm llama-small-1");
}
END_TEST

/* F50: rows move and marks go while the menu is open: it is about what it was opened for. */
START_TEST(f50_targets_are_fixed_when_the_menu_opens)
{
    rig_press(" ja"); /* marked, and moved on */
    rig_view.list[VIEW_JOBS].marks = 0;
    snprintf(rig_view.selected, sizeof rig_view.selected, "tiny-1");
    struct job other = rig_job[0];
    rig_job[0] = rig_job[3];
    rig_job[3] = other;
    rig_press("jjjj\ry");
    ck_assert_int_eq(enter(), REQUEST_RUN);
    ck_assert_str_eq(rig_view.run, "stop quickstart-2");
}
END_TEST

/* A job that is gone meanwhile gets no statement. */
START_TEST(what_is_gone_is_left_out)
{
    rig_press("ajjjj");
    rig_model.job++;
    rig_model.count--;
    ck_assert_int_eq(enter(), REQUEST_NONE);
    ck_assert_int_eq(rig_view.mode, MODE_NORMAL);
    ck_assert_str_eq(rig_view.notice, "kc stop quickstart-2: the job is gone");
    rig_model.job--;
}
END_TEST

static const struct {
    const char *typed;
    bool changes;
} statements[] = {
    {"stop quickstart-2", true}, {"kc pause quickstart-2", true}, {"rm quickstart-1", true}, {"shutdown", true},
    {"start spec.json", true}, {"snap prune quickstart-1", true}, {"node drain cpu0", true}, {"batch file", true},
    {"show quickstart-2", false}, {"snap prune quickstart-1 --dry-run", false}, {"stop --help", false}, {"help rm", false},
    {"snap verify quickstart-1", false}, {"nonsense", false},
};

START_TEST(a_screen_that_only_looks_changes_nothing)
{
    rig_view.leave = LEAVE_NEVER;
    rig_press("a");
    ck_assert_int_eq(rig_view.mode, MODE_NORMAL);
    ck_assert_ptr_nonnull(strstr(rig_view.notice, "--readonly"));
    rig_press(":");
    rig_press(statements[_i].typed);
    const enum view_request r = enter();
    ck_assert_int_eq(r, statements[_i].changes ? REQUEST_NONE : REQUEST_RUN);
    ck_assert_int_eq(rig_view.mode, statements[_i].changes ? MODE_NORMAL : MODE_OUTPUT);
    ck_assert(!statements[_i].changes || strstr(rig_view.notice, "this screen only looks (--readonly)"));
}
END_TEST

/* Nobody acts on another user's job by accident; --readonly=no is the way. */
START_TEST(another_users_job_is_only_looked_at)
{
    rig_view.user = 1000;
    rig_job[0].owner = 1001;
    rig_press("aj");
    ck_assert(seen("another user's (--readonly=no may)"));
    ck_assert_int_eq(enter(), REQUEST_NONE);
    ck_assert_ptr_nonnull(strstr(rig_view.notice, "another user's"));
    rig_press(":stop quickstart-2");
    ck_assert_int_eq(enter(), REQUEST_NONE);
    ck_assert_int_eq(rig_view.mode, MODE_NORMAL);
    ck_assert_ptr_nonnull(strstr(rig_view.notice, "quickstart-2 is another user's"));
    rig_press(":show quickstart-2");
    ck_assert_int_eq(enter(), REQUEST_RUN);
    rig_view.mode = MODE_NORMAL;
    rig_view.leave = LEAVE_ALWAYS;
    rig_press("aj");
    ck_assert_int_eq(enter(), REQUEST_RUN);
    ck_assert_str_eq(rig_view.run, "pause quickstart-2");
    rig_view.mode = MODE_NORMAL;
    rig_view.leave = LEAVE_AUTO;
    rig_job[0].owner = 1000;
    rig_press("aj");
    ck_assert_int_eq(enter(), REQUEST_RUN);
}
END_TEST

/* Statements of all rows of the table are ones that kc takes, and what is typed asks as much as the menu. */
START_TEST(every_action_is_a_statement)
{
    static const char *const target[] = {[ON_JOB] = "quickstart-1", [ON_SNAPSHOT] = "quickstart-1/3", [ON_DEVICE] = "cpu0"};
    for (int i = 0; i < ACTIONS; i++) {
        const struct action_row *r = &action_rows[i];
        char line[160];
        snprintf(line, sizeof line, "%s %s%s", r->verb, target[r->on], r->behind);
        rig_view.mode = MODE_NORMAL;
        rig_press(":");
        rig_press(line);
        ck_assert_int_eq(enter(), r->tier == TIER_NONE ? REQUEST_RUN : REQUEST_NONE);
        ck_assert_int_eq(rig_view.mode, r->tier == TIER_NONE ? MODE_OUTPUT : MODE_CONFIRM);
        if (r->tier != TIER_NONE)
            ck_assert_int_eq(rig_view.act.tier, r->tier);
    }
}
END_TEST

/* The menu of snapshots names JOB/VERSION; a row that is no version has nothing done to it. */
START_TEST(a_menu_of_snapshots_is_about_versions)
{
    char statement[512], why[128];
    int left;
    rig_view.act = (struct action_choice){.menu = MENU_SNAPSHOT, .at = -1, .targets = 2, .job = {"quickstart-2"},
                                          .target = {{"quickstart-2/7"}, {"quickstart-2/copy of rank 0"}}};
    ck_assert_int_eq(actions_statements(&rig_view, ACTION_SNAP_DEEP, statement, sizeof statement, &left, why, sizeof why), 1);
    ck_assert_str_eq(statement, "snap verify quickstart-2/7 --deep");
    ck_assert_int_eq(left, 1);
    ck_assert_str_eq(why, "it is no version on the disk");
    ck_assert_int_eq(actions_statements(&rig_view, ACTION_SNAP_PRUNE, statement, sizeof statement, &left, why, sizeof why), 1);
    ck_assert_str_eq(statement, "snap prune quickstart-2");
}
END_TEST

/* In the view itself: the row under the cursor is the version that is named. */
START_TEST(a_row_of_the_snapshots_is_a_version)
{
    struct list_source s;
    char id[LIST_ID], wanted[LIST_ID + 64];
    rig_view.at = VIEW_SNAPSHOTS;
    free(rig_shot(24, 80, false));
    ck_assert(view_source_snapshots(&rig_view, &s));
    size_t disk = 0;
    for (size_t row = 0; row < s.rows; row++) {
        s.id(s.self, row, id);
        snprintf(rig_view.list[VIEW_SNAPSHOTS].cursor, LIST_ID, "%s", id);
        rig_view.mode = MODE_NORMAL;
        rig_press("aj");
        const enum view_request r = enter();
        snprintf(wanted, sizeof wanted, "snap show quickstart-2/%s", id);
        const bool version = !id[strspn(id, "0123456789")];
        ck_assert_int_eq(r, version ? REQUEST_RUN : REQUEST_NONE);
        ck_assert(!version || !strcmp(rig_view.run, wanted));
        disk += version;
    }
    ck_assert_uint_gt(disk, 0);
}
END_TEST

/* More than fit on the screen: as many as do, and how many more. */
START_TEST(a_long_question_is_drawn_at_every_size)
{
    rig_view.act = (struct action_choice){.menu = MENU_JOB, .at = 0, .targets = LIST_MARKS, .statements = LIST_MARKS, .left = 3,
                                          .tier = TIER_YES, .shown = "hold all ranks at the same step"};
    size_t n = 0;
    for (int i = 0; i < LIST_MARKS; i++)
        n += (size_t)snprintf(rig_view.act.statement + n, sizeof rig_view.act.statement - n, "%spause a-job-with-a-long-name-%d",
                              i ? "\n" : "", i);
    for (int rows = 1; rows < 80; rows += 3)
        for (int cols = 1; cols < 120; cols += 7)
            for (int mode = 0; mode < 2; mode++) {
                rig_view.mode = mode ? MODE_MENU : MODE_CONFIRM;
                free(rig_shot(rows, cols, false));
            }
    rig_view.mode = MODE_CONFIRM;
    ck_assert(seen("... and 47 more"));
    ck_assert(seen("Type y and Enter"));
}
END_TEST

int main(void)
{
    Suite *s = suite_create("actions");
    TCase *c = tcase_create("actions");
    tcase_add_checked_fixture(c, rig_screen_setup, rig_screen_teardown);
    tcase_add_test(c, marked_rows_are_acted_on_together_and_shown_before);
    tcase_add_test(c, the_gravest_want_more_than_a_key);
    tcase_add_test(c, f50_targets_are_fixed_when_the_menu_opens);
    tcase_add_test(c, what_is_gone_is_left_out);
    tcase_add_loop_test(c, a_screen_that_only_looks_changes_nothing, 0, sizeof statements / sizeof *statements);
    tcase_add_test(c, another_users_job_is_only_looked_at);
    tcase_add_test(c, every_action_is_a_statement);
    tcase_add_test(c, a_menu_of_snapshots_is_about_versions);
    tcase_add_test(c, a_row_of_the_snapshots_is_a_version);
    tcase_add_test(c, a_long_question_is_drawn_at_every_size);
    suite_add_tcase(s, c);
    return suite_run(s);
}
