/* What Tab makes of the `:` line, how one types in it, and what Up brings back. */
#include "console_home.h"
#include "screen_rig.h"
#include "suite.h"

#include "console/command.h"
#include "console/complete.h"

#include <ncurses.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct completion found;

/* All that the word before the end of `line` may become, joined by blanks. */
static const char *completed(const char *line)
{
    static char all[8192];
    size_t n = 0;
    all[0] = 0;
    complete_line(line, strlen(line), &rig_model, &found);
    for (int i = 0; i < found.count; i++)
        n += (size_t)snprintf(all + n, sizeof all - n, "%s%s", i ? " " : "", found.word[i]);
    return all;
}

static const struct {
    const char *line, *words;
} cases[] = {
    {"shu", "shutdown"},
    {"st", "start stop stack"},
    {"kc st", "start stop stack"},
    {"snap ex", "export"},
    {"node ", "drain return"},
    {"stop ", "quickstart-2 llama-small-1 quickstart-1 tiny-1"},
    {"stop q", "quickstart-2 quickstart-1"},
    {"stop quickstart-1 ", ""}, /* it takes one */
    {"kc show --at 10m qui", "quickstart-2 quickstart-1"}, /* 10m is the option's value */
    {"stop 'qui", ""},
    {"shutdown --", "--help --json --detach"},
    {"watch --th", "--theme"},
    {"watch --theme ", "dark light mono"},
    {"watch --theme d", "dark"},
    {"batch --on-failure ", "stop continue"},
    {"completion ", "bash zsh fish"},
    {"help sta", "start stack"},
    {"no-such-verb ", ""},
    {"--", ""},
    {"\"open", ""},
};

START_TEST(a_word_becomes_what_the_tables_have)
{
    ck_assert_str_eq(completed(cases[_i].line), cases[_i].words);
}
END_TEST

/* Every verb can be reached by what is proposed, word by word. */
START_TEST(every_verb_is_proposed)
{
    for (size_t i = 0; i < commands_count; i++) {
        char line[128], last[64];
        const char *space = strrchr(commands[i].verb, ' ');
        snprintf(line, sizeof line, "%s", commands[i].verb);
        snprintf(last, sizeof last, "%s", space ? space + 1 : commands[i].verb);
        completed(line);
        bool there = false;
        for (int k = 0; k < found.count; k++)
            there |= !strcmp(found.word[k], last);
        ck_assert_msg(there, "%s", commands[i].verb);
    }
}
END_TEST

START_TEST(files_come_as_they_must_be_typed)
{
    struct console_home home;
    char line[256], wanted[512];
    console_home_make(&home);
    console_home_write(&home, "specs/a spec.json", "{}");
    console_home_write(&home, "specs/b.json", "{}");
    console_home_write(&home, "specs/.hidden", "");
    console_home_write(&home, "specs/folder/c.json", "{}");
    snprintf(line, sizeof line, "start %s/specs/a", home.path);
    snprintf(wanted, sizeof wanted, "%s/specs/a\\ spec.json", home.path);
    ck_assert_str_eq(completed(line), wanted);
    snprintf(line, sizeof line, "check %s/specs/f", home.path);
    snprintf(wanted, sizeof wanted, "%s/specs/folder/", home.path);
    ck_assert_str_eq(completed(line), wanted);
    snprintf(line, sizeof line, "check %s/specs/", home.path);
    completed(line);
    ck_assert_int_eq(found.count, 3);
    console_home_remove(&home);
}
END_TEST

/* The first Tab goes as far as all are the same, others from one to the next. */
START_TEST(tab_completes_and_goes_round)
{
    rig_press(":sto\tq\t");
    ck_assert_str_eq(rig_view.line, "stop quickstart-");
    char *shot = rig_shot(24, 80, false);
    ck_assert_ptr_nonnull(strstr(shot, "\n quickstart-2  quickstart-1\n:stop quickstart-\n"));
    free(shot);
    rig_press("\t");
    ck_assert_str_eq(rig_view.line, "stop quickstart-2");
    rig_press("\t\t");
    ck_assert_str_eq(rig_view.line, "stop quickstart-2");
    rig_press("\t");
    ck_assert_str_eq(rig_view.line, "stop quickstart-1");
    rig_press(" --j\t");
    ck_assert_str_eq(rig_view.line, "stop quickstart-1 --json ");
    rig_press("x\t");
    shot = rig_shot(24, 80, false);
    ck_assert_ptr_nonnull(strstr(shot, "nothing known begins so"));
    free(shot);
    rig_press("\033");
    /* In the middle of a line: what stands behind stays. */
    rig_press(":sto quickstart-1");
    for (int i = 0; i < 13; i++)
        view_key(&rig_view, KEY_LEFT, false);
    rig_press("\t");
    ck_assert_str_eq(rig_view.line, "stop  quickstart-1");
}
END_TEST

START_TEST(tab_in_a_filter_names_what_is_compared)
{
    rig_press("/st\t");
    ck_assert_int_eq(rig_view.mode, MODE_FIND);
    ck_assert_str_eq(rig_view.line, "st"); /* state, step */
    rig_press("a\t");
    ck_assert_str_eq(rig_view.line, "state");
}
END_TEST

START_TEST(one_types_anywhere_in_the_line)
{
    rig_press(":show demo");
    view_key(&rig_view, KEY_LEFT, false);
    view_key(&rig_view, KEY_LEFT, false);
    rig_press("\177x");
    ck_assert_str_eq(rig_view.line, "show dxmo");
    view_key(&rig_view, KEY_DC, false);
    ck_assert_str_eq(rig_view.line, "show dxo");
    rig_press("\001a\005z"); /* ^A, ^E */
    ck_assert_str_eq(rig_view.line, "ashow dxoz");
    rig_press("\027"); /* ^W */
    ck_assert_str_eq(rig_view.line, "ashow ");
    view_key(&rig_view, 0x72c2, true); /* a letter of three bytes is one step */
    view_key(&rig_view, KEY_LEFT, false);
    rig_press("\013"); /* ^K */
    ck_assert_str_eq(rig_view.line, "ashow ");
    rig_press("b\025"); /* ^U */
    ck_assert_str_eq(rig_view.line, "");
    /* Letters that have the numbers of ncurses's keys (U+0104 is KEY_LEFT) are letters. */
    view_key(&rig_view, KEY_LEFT, true);
    ck_assert_str_eq(rig_view.line, "\304\204");
}
END_TEST

/* The cursor is where one types, at every width, however long the line. */
START_TEST(the_cursor_stays_on_the_screen)
{
    rig_press(":");
    for (int i = 0; i < 60; i++)
        rig_press("word ");
    for (int step = 0; step < 310; step++) {
        for (int cols = step % 7 + 1; step % 5 == 0 && cols < 100; cols += 23) {
            struct canvas c;
            ck_assert_int_eq(canvas_new(&c, 5, cols, false), 0);
            view_draw(&rig_view, &c);
            ck_assert_int_eq(c.overlaps, 0);
            ck_assert_int_eq(c.cursor_row, 4);
            ck_assert(c.cursor_col >= 0 && c.cursor_col < cols);
            canvas_free(&c);
        }
        view_key(&rig_view, KEY_LEFT, false);
    }
}
END_TEST

START_TEST(up_brings_back_what_begins_so)
{
    static const char *const run[] = {"ps", "show a-1", "ps --json", "show b-1"};
    for (size_t i = 0; i < 4; i++) {
        typing_set(&rig_view, run[i]);
        typing_remember(&rig_view);
    }
    rig_press(":ps");
    view_key(&rig_view, KEY_UP, false);
    ck_assert_str_eq(rig_view.line, "ps --json");
    view_key(&rig_view, KEY_UP, false);
    ck_assert_str_eq(rig_view.line, "ps");
    view_key(&rig_view, KEY_UP, false);
    ck_assert_str_eq(rig_view.line, "ps");
    view_key(&rig_view, KEY_DOWN, false);
    view_key(&rig_view, KEY_DOWN, false);
    ck_assert_str_eq(rig_view.line, "ps"); /* as it was typed */
    rig_press("\025");
    view_key(&rig_view, KEY_UP, false);
    ck_assert_str_eq(rig_view.line, "show b-1");
}
END_TEST

int main(void)
{
    Suite *s = suite_create("complete");
    TCase *c = tcase_create("complete");
    tcase_add_checked_fixture(c, rig_screen_setup, rig_screen_teardown);
    tcase_add_loop_test(c, a_word_becomes_what_the_tables_have, 0, sizeof cases / sizeof *cases);
    tcase_add_test(c, every_verb_is_proposed);
    tcase_add_test(c, files_come_as_they_must_be_typed);
    tcase_add_test(c, tab_completes_and_goes_round);
    tcase_add_test(c, tab_in_a_filter_names_what_is_compared);
    tcase_add_test(c, one_types_anywhere_in_the_line);
    tcase_add_test(c, the_cursor_stays_on_the_screen);
    tcase_add_test(c, up_brings_back_what_begins_so);
    suite_add_tcase(s, c);
    return suite_run(s);
}
