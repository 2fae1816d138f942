/* test_console_screen.c - the screen as a pure function of what it shows: whole screens against golden ones
 * (tests/screen, KC_GOLDEN=write makes them anew, to be read before they are kept), every size, every key. */
#include "console/screen/terminal.h"
#include "tests/unit/screen_rig.h"
#include "tests/unit/suite.h"

#include <check.h>
#include <fcntl.h>
#include <locale.h>
#include <math.h>
#include <ncurses.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- golden screens -------------------------------------------------------------------------------------------- */

START_TEST(screens_are_as_they_were)
{
    rig_view.at = VIEW_HELP;
    rig_compare("help-80x24", 24, 80, false);
}
END_TEST

/* The time is on the first line of every screen, however narrow. */
static void replay_at(uint32_t moment, bool wrong)
{
    rig_view.replay.on = rig_view.only = true;
    rig_view.replay.wall = UINT64_C(1764472360100000000); /* 2025-11-30T03:12:40.100Z */
    rig_view.replay.last = rig_view.replay.wall + UINT64_C(83400000000);
    rig_view.replay.at = moment;
    rig_view.replay.of = 4321;
    rig_view.replay.wrong = wrong;
    snprintf(rig_view.selected, sizeof rig_view.selected, "quickstart-2");
}

START_TEST(replays_are_as_they_were)
{
    replay_at(1233, false);
    rig_view.at = VIEW_JOB;
    rig_compare("replay-job-80x24", 24, 80, false);
    rig_compare("replay-job-40x10", 10, 40, false);
    rig_view.at = VIEW_RANKS;
    replay_at(1233, true);
    rig_compare("replay-ranks-80x24", 24, 80, false);
    for (int at = VIEW_JOB; at < VIEWS; at++)
        for (int rows = 1; rows <= 60; rows += 3)
            for (int cols = 1; cols <= 130; cols += 3) {
                rig_view.at = (enum view_id)at;
                char *text = rig_shot(rows, cols, cols % 2);
                ck_assert_msg(at == VIEW_HELP || cols < 16 || strstr(text, "03:12:40.1Z"), "%dx%d: %s", cols, rows, text);
                free(text);
            }
}
END_TEST

START_TEST(a_replay_walks_and_acts_on_nothing)
{
    static const struct {
        char key;
        enum replay_walk walk;
    } keys[] = {{'[', REPLAY_BACK}, {']', REPLAY_FORTH}, {'{', REPLAY_MINUTE_BACK}, {'}', REPLAY_MINUTE_FORTH},
                {'<', REPLAY_WRONG_BACK}, {'>', REPLAY_WRONG_FORTH}, {'0', REPLAY_FIRST}, {'$', REPLAY_LAST}};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) { /* without a replay there is one time alone */
        ck_assert_int_eq(view_key(&rig_view, keys[i].key, true), REQUEST_NONE);
        ck_assert_ptr_nonnull(strstr(rig_view.notice, "kc replay"));
    }
    replay_at(5, false);
    for (int at = VIEW_JOB; at < VIEWS; at++)
        for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
            rig_view.at = (enum view_id)at;
            ck_assert_int_eq(view_key(&rig_view, keys[i].key, true), REQUEST_WALK);
            ck_assert_int_eq(rig_view.replay.walk, keys[i].walk);
        }
    rig_view.at = VIEW_JOB;
    for (const char *key = "a:1"; *key; key++) {
        ck_assert_int_eq(view_key(&rig_view, *key, true), REQUEST_NONE);
        ck_assert_int_eq(rig_view.mode, MODE_NORMAL);
        ck_assert_int_eq(rig_view.at, VIEW_JOB);
        ck_assert(rig_view.notice[0]);
    }
}
END_TEST

START_TEST(overlays_are_as_they_were)
{
    rig_press("a");
    rig_compare("menu-80x24", 24, 80, false);
    rig_press("jjjj\r");
    rig_compare("question-80x24", 24, 80, false);
    rig_press("yes\r");
    rig_view.output_running = false;
    rig_compare("output-80x24", 24, 80, false);
    rig_press("q:show quick");
    rig_compare("line-80x24", 24, 80, false);
}
END_TEST

/* The job of a bench is its own: Esc ends it. */
START_TEST(a_statement_that_runs_says_what_esc_does)
{
    static const struct {
        const char *typed, *says;
    } cases[] = {{":bench step\r", "Esc ends the bench"},
                 {":kc bench comm\r", "Esc ends the bench"},
                 {":wait quickstart-2\r", "Esc stops looking, the job goes on"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rig_press(cases[i].typed);
        rig_view.output_running = true;
        char *text = rig_shot(24, 80, false);
        ck_assert_msg(strstr(text, cases[i].says) != NULL, "%s", text);
        ck_assert(i == 2 || !strstr(text, "goes on"));
        free(text);
        rig_view.output_running = false;
        rig_press("q");
    }
}
END_TEST

START_TEST(an_empty_house_says_what_to_type)
{
    rig_model.count = 0;
    rig_view.kcd = 0;
    rig_compare("empty-80x24", 24, 80, false);
    rig_view.at = VIEW_JOB;
    free(rig_shot(24, 80, false));
    rig_view.at = VIEW_RANKS;
    free(rig_shot(24, 80, false));
}
END_TEST

/* ---- properties ------------------------------------------------------------------------------------------------ */

/* F51: works at every size, with and without UTF-8; no cell is written twice, nothing lies outside. */
START_TEST(f51_every_size_is_drawn_without_overlap)
{
    static const enum view_mode modes[] = {MODE_NORMAL, MODE_LINE, MODE_MENU, MODE_CONFIRM, MODE_OUTPUT};
    rig_view.act = (struct action_choice){.targets = 1, .statements = 1, .at = -1, .shown = action_rows[ACTION_REMOVE].shown,
                                          .tier = TIER_ID, .target = {{"quickstart-2"}}};
    snprintf(rig_view.act.statement, sizeof rig_view.act.statement, "rm quickstart-2");
    snprintf(rig_view.run, sizeof rig_view.run, "%s", "wait quickstart-2 --for 'step>=200'");
    for (int at = 0; at < VIEWS; at++)
        for (size_t mode = 0; mode < sizeof modes / sizeof modes[0]; mode++)
            for (int rows = 1; rows <= 100; rows += rows < 30 ? 1 : 7)
                for (int cols = 1; cols <= 200; cols += cols < 90 ? 3 : 11) {
                    rig_view.at = (enum view_id)at;
                    rig_view.mode = modes[mode];
                    rig_view.selected[0] = 0;
                    free(rig_shot(rows, cols, (rows + cols) % 2));
                }
}
END_TEST

/* F25: a straggler is told on every view of its rig_job, and beside what it does itself. */
START_TEST(f25_a_straggler_is_told_on_every_view_of_its_job)
{
    for (int i = 0; i < 2; i++)
        rig_rank[i].wait.what = KC_WAIT_NONE;
    rig_rank[1].metric[KC_METRIC_STRAGGLER] = 1;
    rig_rank[1].metric[KC_METRIC_PACE_SCORE] = 0.5;
    rig_rank[1].metric[KC_METRIC_LATE_SECONDS] = 0.02;
    rig_rank[1].busy = 0.04;
    rig_view.rank = 0;
    for (int at = 0; at < 2; at++) {
        rig_view.at = at ? VIEW_RANKS : VIEW_JOB;
        char *text = rig_shot(24, 100, false);
        ck_assert_msg(strstr(text, "rank 1 is a straggler: score 0.50, needs 40 ms of its own for a step"), "%s", text);
        ck_assert_msg(!at || strstr(text, " straggler: score 0.50, needs 40 m"), "%s", text);
        free(text);
    }
}
END_TEST

/* F51: nothing in LANG=C is beyond ASCII. */
START_TEST(f51_ascii_is_ascii)
{
    for (int at = 0; at < VIEWS; at++) {
        rig_view.at = (enum view_id)at;
        char *text = rig_shot(24, 80, true);
        for (const char *p = text; *p; p++)
            ck_assert_msg(*p == '\n' || (*p >= 0x20 && *p < 0x7f), "view %d has %#x", at, (unsigned char)*p);
        free(text);
    }
}
END_TEST

START_TEST(foreign_text_reaches_no_cell_unclean)
{
    snprintf(rig_job[0].text, sizeof rig_job[0].text, "evil \033[2J\007 \302\233");
    rig_job[0].state = KC_JOB_FAILED;
    snprintf(rig_job[0].model, sizeof rig_job[0].model, "\033]0;x\007");
    for (int at = 0; at < VIEWS; at++) {
        struct canvas c;
        rig_view.at = (enum view_id)at;
        ck_assert_int_eq(canvas_new(&c, 24, 80, false), 0);
        view_draw(&rig_view, &c);
        for (int i = 0; i < 24 * 80; i++)
            ck_assert(c.cell[i].code == 0 ||
                      (c.cell[i].code >= 0x20 && !(c.cell[i].code >= 0x7f && c.cell[i].code < 0xa0)));
        canvas_free(&c);
    }
}
END_TEST

/* ---- keys ------------------------------------------------------------------------------------------------------ */

/* F49: no single key in any view asks for anything to be run; stop wants yes. */
START_TEST(f49_no_single_key_changes_a_job)
{
    for (int at = 0; at < VIEWS; at++)
        for (int code = 0; code < 0x400; code++)
            for (int character = 0; character < 2; character++) {
                rig_view.at = (enum view_id)at;
                rig_view.mode = MODE_NORMAL;
                ck_assert_int_ne(view_key(&rig_view, code, character != 0), REQUEST_RUN);
            }
    rig_view.at = VIEW_JOBS;
    rig_view.mode = MODE_NORMAL;
    memset(rig_view.list, 0, sizeof rig_view.list); /* sorted and marked by then */
    rig_view.selected[0] = 0;
    rig_press("ajjjj\r");
    ck_assert_int_eq(rig_view.mode, MODE_CONFIRM);
    rig_press("\r");
    ck_assert_int_eq(rig_view.mode, MODE_NORMAL); /* Enter alone is no answer */
    ck_assert_ptr_nonnull(strstr(rig_view.notice, "nothing was done"));
    rig_press("ajjjj\ryes");
    ck_assert_int_eq(view_key(&rig_view, '\r', true), REQUEST_RUN);
    ck_assert_str_eq(rig_view.run, "stop quickstart-2");
}
END_TEST

/* F49: rm wants the job's id: several have its name. */
START_TEST(f49_rm_wants_the_jobs_id)
{
    rig_press("jja"); /* quickstart-1, which has ended */
    ck_assert_str_eq(rig_view.act.target[0].id, "quickstart-1");
    rig_press("jjjjj\ryes\r");
    ck_assert_int_eq(rig_view.mode, MODE_NORMAL);
    rig_press("ajjjjj\rquickstart\r");
    ck_assert_int_eq(rig_view.mode, MODE_NORMAL);
    rig_press("ajjjjj\rquickstart-1");
    ck_assert_int_eq(view_key(&rig_view, '\r', true), REQUEST_RUN);
    ck_assert_str_eq(rig_view.run, "rm quickstart-1");
}
END_TEST

/* F50: the cursor stays on the job when rows move, and a question stays with the job that it was opened for. */
START_TEST(f50_the_cursor_stays_on_the_job)
{
    struct job moved[4];
    rig_press("j");
    ck_assert_str_eq(rig_view.selected, "llama-small-1");
    rig_view.selected[0] = 0;
    rig_press("a");
    ck_assert_str_eq(rig_view.act.target[0].id, "quickstart-2");
    for (int i = 0; i < 4; i++)
        moved[i] = rig_job[3 - i];
    rig_model.job = moved;
    free(rig_shot(24, 80, false));
    ck_assert_str_eq(rig_view.selected, "quickstart-2");
    rig_press("j\r");
    ck_assert_str_eq(rig_view.run, "pause quickstart-2");
    rig_model.count = 3; /* its job has gone: nothing happens to another in its row */
    rig_view.mode = MODE_MENU;
    rig_view.act.at = 0;
    ck_assert_int_ne(view_key(&rig_view, '\r', true), REQUEST_RUN);
    ck_assert_ptr_nonnull(strstr(rig_view.notice, "the job is gone"));
}
END_TEST

/* F49: a statement that was typed asks what the menu asks; one that would do nothing is run. */
START_TEST(f49_typed_statements_ask_too)
{
    static const struct {
        const char *typed, *answer;
    } asks[] = {{"stop quickstart-2", "yes"},      {"kc stop --json quickstart-2", "yes"},
                {"rm quickstart-1", "quickstart-1"}, {"rm other-one-3", "other-one-3"},
                {"shutdown", "yes"},               {"shutdown --detach", "yes"}};
    static const char *const runs[] = {"pause quickstart-2", "stop --help", "help stop", "stop", "rm a b", "\"open"};
    for (size_t i = 0; i < sizeof asks / sizeof asks[0]; i++)
        for (int right = 0; right < 2; right++) {
            rig_view.mode = MODE_NORMAL;
            rig_press(":");
            rig_press(asks[i].typed);
            ck_assert_int_eq(view_key(&rig_view, '\r', true), REQUEST_NONE);
            ck_assert_int_eq(rig_view.mode, MODE_CONFIRM);
            free(rig_shot(24, 80, false));
            rig_press(right ? asks[i].answer : "no");
            ck_assert_int_eq(view_key(&rig_view, '\r', true), right ? REQUEST_RUN : REQUEST_NONE);
            ck_assert_int_eq(rig_view.mode, right ? MODE_OUTPUT : MODE_NORMAL);
            if (right)
                ck_assert_str_eq(rig_view.run, asks[i].typed);
        }
    for (size_t i = 0; i < sizeof runs / sizeof runs[0]; i++) {
        rig_view.mode = MODE_NORMAL;
        rig_press(":");
        rig_press(runs[i]);
        ck_assert_int_eq(view_key(&rig_view, '\r', true), REQUEST_RUN);
    }
}
END_TEST

/* F49: what is typed over the output of a statement does nothing to a rig_job; `:` begins the next statement. */
START_TEST(f49_keys_over_an_output_do_nothing_else)
{
    rig_view.mode = MODE_OUTPUT;
    rig_press("wait x\r"); /* typed too early, without the `:` */
    ck_assert_int_ne(rig_view.mode, MODE_OUTPUT);
    ck_assert_int_ne(rig_view.mode, MODE_MENU);
    rig_view.mode = MODE_OUTPUT;
    rig_press(":wait x-1");
    ck_assert_int_eq(rig_view.mode, MODE_LINE);
    ck_assert_str_eq(rig_view.line, "wait x-1");
    rig_view.mode = MODE_OUTPUT;
    rig_view.at = VIEW_JOBS;
    rig_press("?");
    ck_assert_int_eq(rig_view.at, VIEW_HELP);
    rig_view.at = VIEW_JOBS;
    rig_press("a");
    for (int i = 0; i < 3; i++) { /* nothing is marked: Enter chooses nothing */
        ck_assert_int_eq(view_key(&rig_view, '\r', true), REQUEST_NONE);
        ck_assert_int_eq(rig_view.mode, MODE_MENU);
    }
}
END_TEST

/* What is left of a run is told whole, however long, at 80 columns. */
START_TEST(the_time_left_is_not_cut)
{
    rig_job[0].step = 1;
    rig_job[0].steps = 101;
    rig_job[0].step_seconds = 22.73; /* of 100: 37 min 53 s */
    rig_job[0].grad_norm = 1234.5;
    rig_view.at = VIEW_JOB;
    for (int cols = 40; cols <= 80; cols += 40) {
        char *text = rig_shot(24, cols, false);
        ck_assert_msg(strstr(text, "left 37 min 53 s"), "%s", text);
        free(text);
    }
}
END_TEST

START_TEST(keys_go_down_and_up)
{
    rig_press("\r");
    ck_assert_int_eq(rig_view.at, VIEW_JOB);
    rig_press("3");
    ck_assert_int_eq(rig_view.at, VIEW_RANKS);
    rig_press("?");
    ck_assert_int_eq(rig_view.at, VIEW_HELP);
    rig_press("q");
    ck_assert_int_eq(rig_view.at, VIEW_RANKS);
    rig_press("q");
    ck_assert_int_eq(rig_view.at, VIEW_JOB);
    rig_press("\033");
    ck_assert_int_eq(rig_view.at, VIEW_JOBS);
    ck_assert_int_eq(view_key(&rig_view, 27, true), REQUEST_NONE); /* Esc does not leave, q does */
    ck_assert_int_eq(view_key(&rig_view, 'q', true), REQUEST_QUIT);
    ck_assert_int_eq(view_key(&rig_view, 'Q', true), REQUEST_QUIT);
    ck_assert_int_eq(view_key(&rig_view, KEY_F(1), false), REQUEST_NONE);
    ck_assert_int_eq(rig_view.at, VIEW_HELP);
}
END_TEST

START_TEST(the_line_takes_text_and_remembers)
{
    rig_press(":ps\177\177");
    rig_press("show ");
    view_key(&rig_view, 0x72c2, true); /* the first letter of Kuangchao */
    ck_assert_str_eq(rig_view.line, "show \347\213\202");
    rig_press("\177");
    ck_assert_str_eq(rig_view.line, "show ");
    ck_assert_int_eq(view_key(&rig_view, '\r', true), REQUEST_RUN);
    rig_view.output_running = false;
    rig_press("q:");
    view_key(&rig_view, KEY_UP, false);
    ck_assert_str_eq(rig_view.line, "show"); /* without the blank that Tab may leave */
    rig_press("\033");
    ck_assert_int_eq(rig_view.mode, MODE_NORMAL);
}
END_TEST

/* ---- the terminal ---------------------------------------------------------------------------------------------- */

static void paint_and_compare(int rows, int cols)
{
    struct canvas c;
    resizeterm(rows, cols);
    ck_assert_int_eq(canvas_new(&c, rows, cols, false), 0);
    view_draw(&rig_view, &c);
    terminal_paint(&c);
    for (int r = 0; r < rows; r++)
        for (int k = 0; k < cols; k++) {
            cchar_t cell;
            wchar_t text[8] = {0};
            attr_t attributes;
            short pair;
            uint32_t want = c.cell[r * cols + k].code;
            ck_assert_int_eq(mvin_wch(r, k, &cell), OK);
            getcchar(&cell, text, &attributes, &pair, NULL);
            ck_assert_msg(!want || (uint32_t)text[0] == want, "row %d, column %d", r, k);
        }
    canvas_free(&c);
}

/* What ncurses holds after painting is what the canvas said, on terminals of any kind. */
START_TEST(the_terminal_shows_the_canvas)
{
    static const char *const kinds[] = {"xterm-256color", "vt100", "dumb"};
    setlocale(LC_ALL, "C.UTF-8");
    for (size_t kind = 0; kind < sizeof kinds / sizeof kinds[0]; kind++) {
        FILE *out = fopen("/dev/null", "w"), *in = fopen("/dev/null", "r");
        SCREEN *screen = newterm(kinds[kind], out, in);
        ck_assert_msg(screen != NULL, "%s", kinds[kind]);
        set_term(screen);
        terminal_colours(kind == 0 ? "dark" : "mono", 0);
        for (int at = 0; at < VIEWS; at++) {
            rig_view.at = (enum view_id)at;
            paint_and_compare(24, 80);
            paint_and_compare(10, 40);
            paint_and_compare(1, 1);
        }
        endwin();
        delscreen(screen);
        fclose(out);
        fclose(in);
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("console screen");
    TCase *t = tcase_create("screen");
    tcase_add_checked_fixture(t, rig_screen_setup, rig_screen_teardown);
    tcase_set_timeout(t, 60);
    tcase_add_test(t, screens_are_as_they_were);
    tcase_add_test(t, replays_are_as_they_were);
    tcase_add_test(t, a_replay_walks_and_acts_on_nothing);
    tcase_add_test(t, overlays_are_as_they_were);
    tcase_add_test(t, a_statement_that_runs_says_what_esc_does);
    tcase_add_test(t, an_empty_house_says_what_to_type);
    tcase_add_test(t, f51_every_size_is_drawn_without_overlap);
    tcase_add_test(t, f25_a_straggler_is_told_on_every_view_of_its_job);
    tcase_add_test(t, f51_ascii_is_ascii);
    tcase_add_test(t, foreign_text_reaches_no_cell_unclean);
    tcase_add_test(t, f49_no_single_key_changes_a_job);
    tcase_add_test(t, f49_rm_wants_the_jobs_id);
    tcase_add_test(t, f50_the_cursor_stays_on_the_job);
    tcase_add_test(t, the_time_left_is_not_cut);
    tcase_add_test(t, f49_keys_over_an_output_do_nothing_else);
    tcase_add_test(t, f49_typed_statements_ask_too);
    tcase_add_test(t, keys_go_down_and_up);
    tcase_add_test(t, the_line_takes_text_and_remembers);
    tcase_add_test(t, the_terminal_shows_the_canvas);
    suite_add_tcase(s, t);
    return suite_run(s);
}
