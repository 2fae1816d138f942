/* test_view_hang.c - the view of a hang: whole screens, what is said while nothing is known, and that nothing of an answer is
 * believed. */
#include "tests/unit/screen_rig.h"
#include "tests/unit/screen_rig_comm.h"
#include "tests/unit/screen_rig_hang.h"
#include "tests/unit/suite.h"

#include "console/screen/hang_page.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void setup(void)
{
    rig_screen_setup();
    rig_view.at = VIEW_HANG;
}

static void stopped(void)
{
    rig_hang_fill(true);
    rig_comm_fill(4, 3);
}

static void has(int rows, int cols, const char *text, bool there)
{
    char *screen = rig_shot(rows, cols, true);
    ck_assert_msg((strstr(screen, text) != NULL) == there, "%s\"%s\" in:\n%s", there ? "no " : "", text, screen);
    free(screen);
}

START_TEST(screens_are_as_they_were)
{
    rig_compare("hang-80x24", 24, 80, false);
    rig_compare("hang-40x10", 10, 40, false);
    rig_compare("hang-200x50", 50, 200, false);
    stopped();
    rig_compare("hang-stopped-80x24", 24, 80, false);
    rig_compare("hang-stopped-80x60", 60, 80, false);
    rig_compare("hang-stopped-80x60-ascii", 60, 80, true);
}
END_TEST

START_TEST(it_scrolls_to_its_ends)
{
    stopped();
    has(24, 80, "stopped: rank 3", true);
    has(24, 80, "watch_keeper", false);
    rig_press("G");
    has(24, 80, "watch_keeper", true);
    has(24, 80, "stopped: rank 3", false);
    rig_press("k");
    has(24, 80, "watch_keeper", false);
    rig_press("g");
    has(24, 80, "stopped: rank 3", true);
}
END_TEST

START_TEST(what_is_not_known_is_said)
{
    rig_hang_free();
    rig_hang.pid = rig_stack.pid = 4242;
    has(24, 80, "Looking twice at its board", true);
    has(24, 80, "Taking the stacks", true);
    rig_hang.pid = rig_stack.pid = 0;
    snprintf(rig_hang.error, sizeof rig_hang.error, "no answer within a minute");
    snprintf(rig_stack.error, sizeof rig_stack.error, "quickstart-2 is paused");
    has(24, 80, "kc hang: no answer within a minute", true);
    has(24, 80, "no stacks: quickstart-2 is paused", true);
    stopped();
    rig_view.now = 41 * KC_SECOND;
    rig_hang.came = 2 * KC_SECOND;
    has(24, 80, "looked 39.0 s ago; R looks again", true);
    rig_hang.pid = 4242;
    has(24, 80, "looked 39.0 s ago, looking again", true);
    rig_hang.pid = 0;
    json_object_set_new(rig_hang.json, "id", json_string("another-1")); /* of the job that was selected before */
    has(24, 80, "rank 3 is stopped", false);
    rig_model.count = 0;
    has(24, 80, "The job is gone.", true);
}
END_TEST

/* Of a job that does not hang, too. */
START_TEST(a_verdict_is_said_once)
{
    static const char verdict[] = "rank 3 comes 83 us later than the others to what all do together";
    char text[256];
    rig_hang_fill(false);
    snprintf(text, sizeof text, "quickstart-2 does not hang: %s", verdict);
    json_object_set_new(rig_hang.json, "text", json_string(text));
    has(24, 120, verdict, true);
    has(24, 120, text, false);
}
END_TEST

/* The moment's own time is told, and no stacks: those are of now. */
START_TEST(a_replay_tells_of_its_moment)
{
    stopped();
    rig_view.replay.on = rig_view.only = true;
    snprintf(rig_view.selected, sizeof rig_view.selected, "quickstart-2");
    json_object_set_new(rig_hang.json, "at", json_string("2026-11-30T03:12:01.000Z"));
    has(24, 80, "as it was at 2026-11-30T03:12:01.000Z", true);
    rig_press("G");
    has(24, 80, "watch_keeper", false);
}
END_TEST

/* Ranks that are where most are have one row; the others are told. */
START_TEST(of_many_ranks_the_others_are_told)
{
    rig_comm_fill(64, 63);
    struct page p = {.cols = 80};
    hang_page_numbers(&p, &rig_comms);
    bool missing = false, waiting = false;
    for (int i = 0; i < p.count; i++) {
        missing |= strstr(p.line[i].text, "rank 63 ") && strstr(p.line[i].text, "6648 absent") && p.line[i].role == ROLE_BAD;
        waiting |= strstr(p.line[i].text, "rank 62 ") && strstr(p.line[i].text, "6649 came");
    }
    ck_assert(missing && waiting);
    ck_assert_int_le(p.count, 26);
    page_free(&p);
}
END_TEST

/* Ranks that are at the same numbers have one row: which they are, or, where that is too long, how many and from where on. */
START_TEST(a_row_says_whose_it_is)
{
    static const struct {
        int ranks, step; /* ranks 0, step, 2 step, … are members */
        const char *label;
    } rows[] = {{1, 1, "rank 0 "}, {4, 1, "ranks 0-3 "}, {3, 2, "ranks 0,2,4 "}, {16, 2, "16 from 0 "}, {12, 100, "12 from 0 "}};
    struct comm_member member[64] = {{0}};
    struct comm_op op = {.members = rows[_i].ranks};
    struct comm_channel c = {.name = "world", .from = -1, .member = member, .members = rows[_i].ranks, .op = &op, .ops = 1};
    const struct comms all = {.ranks = (rows[_i].ranks - 1) * rows[_i].step + 1, .channel = &c, .channels = 1};
    struct page p = {.cols = 80};
    for (int i = 0; i < rows[_i].ranks; i++)
        member[i] = (struct comm_member){.rank = i * rows[_i].step, .sequence = 7, .place = COMM_ABSENT};
    hang_page_numbers(&p, &all);
    bool found = false;
    for (int i = 0; i < p.count; i++)
        found |= !strncmp(p.line[i].text, rows[_i].label, strlen(rows[_i].label)) && strstr(p.line[i].text, "7 absent");
    ck_assert_msg(found, "%s not in %d lines", rows[_i].label, p.count);
    page_free(&p);
}
END_TEST

static json_t *absurd(int depth)
{
    static const char *const keys[] = {"verdicts", "tree", "children", "ranks", "states", "at", "text", "word", "evidence", "lines", "thread", "function",
                                       "threads", "hung", "file", "room"};
    json_t *o = json_object(), *a;
    switch (rand() % (depth > 4 ? 4 : 6)) {
    case 0: json_decref(o); return json_integer(rand() - RAND_MAX / 2);
    case 1: json_decref(o); return json_string(rand() % 2 ? "" : "text\twith\033[31m much in it, and more of it");
    case 2: json_decref(o); return json_null();
    case 3: json_decref(o); return json_true();
    case 4:
        json_decref(o);
        a = json_array();
        for (int i = rand() % 5; i > 0; i--)
            json_array_append_new(a, absurd(depth + 1));
        return a;
    default:
        for (int i = rand() % 8; i > 0; i--)
            json_object_set_new(o, keys[(size_t)rand() % (sizeof keys / sizeof *keys)], absurd(depth + 1));
        return o;
    }
}

START_TEST(nothing_of_an_answer_is_believed)
{
    for (int i = 0; i < 2000; i++) {
        struct page p = {.cols = 1 + rand() % 100};
        json_t *o = absurd(0);
        hang_page_verdicts(&p, o);
        hang_page_stacks(&p, o);
        json_decref(o);
        page_free(&p);
    }
}
END_TEST

START_TEST(it_is_drawn_at_every_size)
{
    for (int hung = 0; hung < 2; hung++) {
        rig_hang_fill(hung);
        rig_comm_fill(hung ? 1024 : 2, hung ? 1023 : -1);
        rig_shot_sizes();
    }
}
END_TEST

static void add_tests(TCase *c)
{
    tcase_add_checked_fixture(c, setup, rig_screen_teardown);
    tcase_add_test(c, screens_are_as_they_were);
    tcase_add_test(c, it_scrolls_to_its_ends);
    tcase_add_test(c, what_is_not_known_is_said);
    tcase_add_test(c, a_verdict_is_said_once);
    tcase_add_test(c, a_replay_tells_of_its_moment);
    tcase_add_test(c, of_many_ranks_the_others_are_told);
    tcase_add_loop_test(c, a_row_says_whose_it_is, 0, 5);
    tcase_add_test(c, nothing_of_an_answer_is_believed);
    tcase_add_test(c, it_is_drawn_at_every_size);
}

int main(void)
{
    Suite *suite = suite_create("view hang");
    TCase *c = tcase_create("view hang");
    add_tests(c);
    suite_add_tcase(suite, c);
    return suite_run(suite);
}
