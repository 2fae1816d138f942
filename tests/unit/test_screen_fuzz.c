/* test_screen_fuzz.c - keys at random, in worlds at random, on screens of any size: nothing crashes, no cell is written twice, and
 * nothing is asked of a job that was not confirmed. `test_screen_fuzz long` (make fuzz) plays longer. */
#include "any.h"
#include "screen_rig.h"
#include "suite.h"

#include <check.h>
#include <errno.h>
#include <math.h>
#include <ncurses.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEYS_A_ROUND 400

static bool longer;

static double any_number(void)
{
    static const double odd[] = {0, -0.0, 1, -1, 1e-300, 1e300, 3.1415, 12345678};
    const uint64_t n = any(11);
    return n < 8 ? odd[n] : n == 8 ? NAN : n == 9 ? INFINITY : -INFINITY;
}

static void any_rank(struct job_rank *r, int i)
{
    job_rank_clear(r, i);
    r->pid = (int64_t)any(1u << 22) - 1;
    r->state = (int)any(KC_RANK_STATES + 1) - 1;
    r->phase = (int)any(KC_PHASES + 1) - 1;
    r->letter = (char)(32 + any(95));
    r->step = (int64_t)any(1000000) - 1;
    r->age = any_number();
    r->wait = (struct job_wait){.what = (int)any(KC_WAITS + 1) - 1, .sequence = (int64_t)any(1000) - 1, .seconds = any_number()};
    snprintf(r->wait.group, sizeof r->wait.group, "%s", any(2) ? "world" : "data.0\x1b[31m");
    for (int k = 0; k < KC_METRICS; k++)
        r->metric[k] = any_number();
    r->busy = any_number();
    if (any(8) == 0)
        snprintf(r->words, sizeof r->words, "killed by someone (signal 9) \xff in t\xc3\xa9l\xc3\xa9");
}

static void any_job(struct job *j, struct job_rank *ranks, size_t count)
{
    j->state = (int)any(KC_JOB_STATES + 1) - 1;
    j->step = (int64_t)any(1000) - 1;
    j->steps = (int64_t)any(1000) - 1;
    j->ranks = (int64_t)count;
    j->rank = ranks;
    j->ranks_known = count;
    j->loss = any_number();
    j->tokens_per_second = any_number();
    j->step_seconds = any_number();
    j->hangs = any(4) ? NAN : any_number();
    j->restart_in = any(4) ? NAN : any_number();
    for (int i = 0; i < SPLITS; i++)
        j->split[i] = any_number();
    j->board_error = any(8) ? 0 : -EPROTO;
    snprintf(j->board_text, sizeof j->board_text, "the board is of another version");
    j->failure.rank = (int64_t)any(count + 2) - 1;
    snprintf(j->text, sizeof j->text, "%s", any(2) ? "" : "rank 1 was killed");
}

static void any_log(void)
{
    static const char *const text[] = {"", "error: out of memory", "step 12", "\x1b[2J\xff\xc3 odd", "/", "a line that is longer than any screen of ours is wide, "
                                       "so that it is cut somewhere, wherever that may be, and nothing of it stands in another line than its own"};
    for (uint64_t n = any(8) ? any(4) : any(2 * LOG_KEPT); n > 0; n--) {
        const char *t = text[any(sizeof text / sizeof text[0])];
        const struct log_line l = {(int)any(1024), any(4) ? any(UINT64_MAX) : 0, t, strlen(t)};
        log_tail_add(&rig_logs, &l);
    }
    rig_view.log = any(20) ? &rig_logs : NULL;
    rig_logs.untimed = any(30) == 0;
}

static void any_node(void)
{
    rig_node.load[any(3)] = rig_node.memory = rig_node.limit = any_number();
    for (size_t i = 0; i < 3; i++) {
        struct node_device *d = &rig_node.device[i];
        d->busy = d->memory = d->celsius = any_number();
        d->state = (int)any(KC_DEVICE_STATES);
        d->users = (int64_t)any(100) - 1;
        d->rank = (int64_t)any(1024) - 1;
    }
    rig_node.devices = any(4);
    rig_view.node = any(5) ? &rig_node : NULL;
    rig_view.node_age = any_number();
    snprintf(rig_view.node_trouble, sizeof rig_view.node_trouble, "%s", any(4) ? "" : "no answer within a minute");
}

static void any_world(struct job_rank **ranks)
{
    static const size_t counts[] = {0, 1, 2, 7, 8, 64, 65, 1000, 1024};
    const size_t count = counts[any(sizeof counts / sizeof counts[0])];
    free(*ranks);
    *ranks = calloc(count + 1, sizeof **ranks);
    ck_assert_ptr_nonnull(*ranks);
    for (size_t i = 0; i < count; i++)
        any_rank(&(*ranks)[i], (int)i);
    any_job(&rig_job[any(4)], *ranks, count);
    for (int i = 0; i < 4; i++) /* those that had ranks of before have none now */
        if (rig_job[i].rank != *ranks) {
            rig_job[i].rank = NULL;
            rig_job[i].ranks_known = 0;
        }
    rig_model.count = any(8) ? any(5) : 0;
    rig_view.output_running = any(2) == 0;
    rig_view.kcd = (int)any(2) * 4242;
    any_log();
    any_node();
    rig_view.age = (double)any(100);
    rig_view.now += any(20 * 1000000000ull);
    rig_view.replay.on = any(6) == 0;
    rig_view.only = rig_view.replay.on || any(6) == 0;
    rig_any_keep(any);
}

static void draw_somewhere(uint64_t seed, uint64_t round)
{
    struct canvas c;
    static const int sizes[][2] = {{1, 1}, {10, 40}, {24, 80}, {50, 200}, {100, 300}, {2, 300}, {100, 3}};
    const uint64_t n = any(10);
    const int rows = n < 7 ? sizes[n][0] : 1 + (int)any(100), cols = n < 7 ? sizes[n][1] : 1 + (int)any(300);
    ck_assert_int_eq(canvas_new(&c, rows, cols, any(2) == 0), 0);
    view_draw(&rig_view, &c);
    ck_assert_msg(c.overlaps == 0, "%d cells were written twice at %dx%d, view %s, mode %d: seed %llu, round %llu", c.overlaps, cols,
                  rows, view_kinds[rig_view.at].name, rig_view.mode, (unsigned long long)seed, (unsigned long long)round);
    ck_assert_int_lt(c.cursor_row, rows);
    ck_assert_int_lt(c.cursor_col, cols);
    canvas_free(&c);
}

/* What a run of keys asks for, and what may be asked for: a statement only at Enter, of a line that was typed or a menu. */
static void any_key(uint64_t seed, uint64_t round)
{
    static const int keys[] = {KEY_UP, KEY_DOWN, KEY_LEFT, KEY_RIGHT, KEY_PPAGE, KEY_NPAGE, KEY_HOME, KEY_END, KEY_ENTER, KEY_BACKSPACE,
                               KEY_F(1), KEY_F(2), KEY_F(4), KEY_F(6), KEY_F(10), KEY_RESIZE, KEY_MOUSE, KEY_DC};
    const uint64_t n = any(20);
    const bool character = n < 16;
    const int code = n < 8    ? (int)(32 + any(95))
                     : n < 14 ? key_rows[any(KEY_IDS)].code[0]
                     : n < 15 ? (int)any(0x11000)
                     : n < 16 ? (int)any(32)
                              : keys[any(sizeof keys / sizeof keys[0])];
    const enum view_mode before = rig_view.mode;
    const enum view_request r = view_key(&rig_view, code, character);
    if (r == REQUEST_RUN)
        ck_assert_msg((before == MODE_LINE || before == MODE_MENU || before == MODE_CONFIRM) &&
                          (code == '\r' || code == '\n' || code == KEY_ENTER || before == MODE_CONFIRM),
                      "key %d in mode %d runs \"%s\": seed %llu, round %llu", code, before, rig_view.run, (unsigned long long)seed,
                      (unsigned long long)round);
}

static void play(uint64_t seed, uint64_t rounds)
{
    struct job_rank *ranks = NULL;
    any_seed = seed;
    for (uint64_t i = 0; i < rounds; i++) {
        any_world(&ranks);
        for (int k = 0; k < KEYS_A_ROUND; k++) {
            any_key(seed, i);
            if (any(10) == 0)
                draw_somewhere(seed, i);
        }
        if (any(4) == 0)
            rig_view.mode = MODE_NORMAL;
    }
    for (int i = 0; i < 4; i++)
        rig_job[i].rank = NULL;
    free(ranks);
}

START_TEST(keys_at_random_break_nothing)
{
    play((uint64_t)_i + 1, longer ? 200 : 4);
}
END_TEST

int main(int argc, char **argv)
{
    longer = argc > 1 && strcmp(argv[1], "long") == 0;
    TCase *t = tcase_create("keys");
    Suite *s = suite_create("screen fuzz");
    tcase_add_checked_fixture(t, rig_screen_setup, rig_screen_teardown);
    tcase_set_timeout(t, longer ? 3600 : 60);
    tcase_add_loop_test(t, keys_at_random_break_nothing, 0, longer ? 40 : 4);
    suite_add_tcase(s, t);
    return suite_run(s);
}
