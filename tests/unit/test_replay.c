/* test_replay.c - a recording walked through as `kc replay` does: where it is found, where one stands, and what the job was
 * then, with the ages of then. */
#include "base/clock.h"
#include "console/replay.h"
#include "console/session.h"
#include "shm/keeper.h"
#include "shm/reader.h"
#include "shm/segment.h"
#include "supervisor/protocol.h"
#include "tests/unit/board_make.h"
#include "tests/unit/console_home.h"
#include "tests/unit/suite.h"

#include <check.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#define WALL UINT64_C(1764472320000000000) /* 2025-11-30T03:12:00Z */
#define MOMENTS 200

static struct console_home home;
static struct kc_home kc;
static struct kc_probe *probe[2];
static struct kc_error error;
static uint64_t begun; /* kc_now() of the first moment */

/* Two ranks do a step a second; rank 1 stops after step 150, and is recorded as lost 20 s later. Wall and clock are made up. */
static void record(const char *folder)
{
    struct kc_job_facts facts = {.id = "tape-1", .name = "tape", .ranks = 2, .steps = 300, .model = "gpt2"};
    struct kc_board *b = NULL;
    struct kc_recorder *w = NULL;
    snprintf(facts.directory, sizeof facts.directory, "%.200s/jobs/tape-1", home.path);
    ck_assert_msg(kc_board_create(home.instance, &facts, &b, &error) == 0, "%s", error.text);
    kc_board_incarnation(b, 1);
    kc_board_status(b, &(struct kc_job_status){.state = KC_JOB_RUNNING, .incarnation = 1, .failed_rank = -1, .started_wall = WALL});
    for (uint32_t i = 0; i < 2; i++) {
        ck_assert_int_eq(kc_probe_attach(dup(kc_board_fd(b)), i, 1, &probe[i], &error), 0);
        kc_board_process(b, i, &(struct kc_rank_process){.incarnation = 1, .pid = (uint32_t)getpid(), .cores = "0"});
        kc_probe_state(probe[i], KC_RANK_RUNNING);
    }
    ck_assert_msg(kc_recorder_new(folder, "tape-1", kc_board_reader(b), &w, &error) == 0, "%s", error.text);
    begun = kc_now();
    for (uint64_t n = 1; n <= MOMENTS; n++) {
        for (uint32_t i = 0; i < 2 && n <= 150; i++) {
            kc_probe_phase(probe[i], KC_PHASE_FORWARD);
            kc_probe_step(probe[i], n);
        }
        if (n <= 150)
            kc_probe_step_record(probe[0], &(struct kc_step_record){.step = n, .loss = 5 - (double)n / 100, .seconds = 1});
        if (n == 170)
            kc_board_process(b, 1, &(struct kc_rank_process){.incarnation = 1, .pid = (uint32_t)getpid(), .signal = 9,
                                                             .ended = begun + 169 * KC_SECOND});
        if (n == 190)
            kc_board_control(b, KC_CONTROL_STOP);
        ck_assert_int_eq(kc_recorder_look(w, begun + (n - 1) * KC_SECOND, WALL + (n - 1) * KC_SECOND + 999999, n == 170,
                                          &error), 0);
    }
    kc_recorder_free(w);
    kc_probe_free(probe[0]);
    kc_probe_free(probe[1]);
    kc_board_free(b, 1);
}

static void set_up(void)
{
    char folder[256];
    console_home_make(&home);
    console_home_job(&home, "tape-1", "running", 150, 300);
    ck_assert_int_eq(kc_home_find(home.path, home.instance, &kc, &error), 0);
    snprintf(folder, sizeof folder, "%s/jobs/tape-1/recording", home.path);
    record(folder);
}

static void tear_down(void)
{
    kc_segment_sweep(home.instance);
    console_home_remove(&home);
}

static struct replay open_it(const char *what)
{
    struct replay r;
    ck_assert_msg(replay_open(&kc, what, &r, &error) == 0, "%s: %s", what, error.text);
    return r;
}

START_TEST(a_recording_is_found_by_job_folder_and_file)
{
    char path[3][256];
    struct replay r;
    snprintf(path[0], sizeof path[0], "%s/jobs/tape-1", home.path);
    snprintf(path[1], sizeof path[1], "%s/jobs/tape-1/recording", home.path);
    snprintf(path[2], sizeof path[2], "%s/jobs/tape-1/recording/00000001.seconds", home.path);
    for (int i = -1; i < 3; i++) {
        r = open_it(i < 0 ? "tape-1" : path[i]);
        ck_assert_str_eq(r.info.id, "tape-1");
        ck_assert_uint_ge(r.info.moments, 150);
        ck_assert_uint_eq(r.at, r.info.moments - 1); /* begins at the end */
        replay_close(&r);
    }
    ck_assert_int_eq(replay_open(&kc, "tape-2", &r, &error), -ENOENT);
    ck_assert_ptr_nonnull(strstr(error.text, "Did you mean tape-1?"));
    console_home_job(&home, "old-1", "finished", 3, 3);
    ck_assert_int_eq(replay_open(&kc, "old-1", &r, &error), -ENOENT);
    ck_assert_ptr_nonnull(strstr(error.text, "job old-1 has no recording"));
    ck_assert_int_eq(replay_open(&kc, "/nowhere/at/all", &r, &error), -ENOENT);
}
END_TEST

START_TEST(one_walks_by_moments_minutes_and_trouble)
{
    struct replay r = open_it("tape-1");
    const uint32_t last = r.info.moments - 1;
    ck_assert(!replay_walk(&r, REPLAY_FORTH));
    ck_assert(!replay_walk(&r, REPLAY_MINUTE_FORTH));
    ck_assert(!replay_walk(&r, REPLAY_WRONG_FORTH));
    ck_assert_uint_eq(r.at, last);
    ck_assert(replay_walk(&r, REPLAY_WRONG_BACK));
    ck_assert_uint_eq(r.wall, WALL + 169 * KC_SECOND);
    ck_assert(replay_is_wrong(&r));
    ck_assert(!replay_walk(&r, REPLAY_WRONG_BACK));
    ck_assert_uint_eq(r.wall, WALL + 169 * KC_SECOND);
    ck_assert(replay_walk(&r, REPLAY_MINUTE_BACK));
    ck_assert_uint_eq(r.wall, WALL + 109 * KC_SECOND);
    ck_assert(replay_walk(&r, REPLAY_BACK));
    ck_assert_uint_eq(r.wall, WALL + 108 * KC_SECOND);
    ck_assert(replay_walk(&r, REPLAY_FORTH));
    ck_assert(replay_walk(&r, REPLAY_MINUTE_FORTH)); /* 169, the one that is there */
    ck_assert_uint_eq(r.wall, WALL + 169 * KC_SECOND);
    ck_assert(replay_walk(&r, REPLAY_FIRST));
    ck_assert_uint_eq(r.wall, WALL);
    ck_assert(!replay_walk(&r, REPLAY_BACK));
    ck_assert(!replay_walk(&r, REPLAY_MINUTE_BACK));
    ck_assert(replay_walk(&r, REPLAY_WRONG_FORTH));
    ck_assert_uint_eq(r.wall, WALL + 169 * KC_SECOND);
    ck_assert(replay_walk(&r, REPLAY_LAST));
    ck_assert_uint_eq(r.at, last);
    for (uint32_t i = 0; i < last; i++) /* every one is passed on the way back */
        ck_assert(replay_walk(&r, REPLAY_BACK));
    ck_assert_uint_eq(r.at, 0);
    replay_close(&r);
}
END_TEST

START_TEST(the_job_is_as_it_was_and_so_are_ages)
{
    struct replay r = open_it("tape-1");
    struct job j;
    struct history h = {0};
    ck_assert_int_eq(replay_seek(&r, "03:13:39", &error), 0); /* the hundredth */
    ck_assert_msg(replay_job(&r, &j, &h, &error) == 0, "%s", error.text);
    ck_assert_str_eq(j.id, "tape-1");
    ck_assert_str_eq(j.name, "tape");
    ck_assert_int_eq(j.state, KC_JOB_RUNNING);
    ck_assert_int_eq(j.step, 100);
    ck_assert_int_eq(j.steps, 300);
    ck_assert_double_eq(j.loss, 4);
    ck_assert(j.keeper_alive && j.board);
    ck_assert_uint_eq(j.ranks_known, 2);
    ck_assert_uint_eq(h.count, 100);
    ck_assert_uint_eq(h.point[99].last, 100);
    ck_assert_double_eq_tol(h.point[99].value[HISTORY_LOSS].sum, 4, 1e-6);
    job_free(&j);
    /* rank 1 is dead for 12 s, rank 0 has not moved since it set its step: in the time of a test, nanoseconds after the start */
    ck_assert_int_eq(replay_seek(&r, "2025-11-30T03:15:01Z", &error), 0);
    ck_assert_int_eq(replay_job(&r, &j, &h, &error), 0);
    ck_assert_int_eq(j.step, 150);
    ck_assert_int_eq(j.rank[1].state, KC_RANK_FAILED);
    ck_assert_double_eq_tol(j.rank[1].age, 12, 1e-6);
    ck_assert(j.rank[0].age > 100 && j.rank[0].age < 181);
    ck_assert_uint_eq(h.count, 150);
    job_free(&j);
    ck_assert_int_eq(replay_seek(&r, "03:11", &error), -ERANGE);
    ck_assert_uint_eq(r.wall, WALL + 181 * KC_SECOND); /* stays */
    history_free(&h);
    replay_close(&r);
}
END_TEST

START_TEST(it_goes_on_with_what_was_recorded_since)
{
    struct replay r = open_it("tape-1");
    const uint32_t before = r.info.moments;
    char folder[256];
    ck_assert_int_eq(replay_seek(&r, "03:14:00", &error), 0);
    const uint64_t wall = r.wall;
    snprintf(folder, sizeof folder, "%s/jobs/tape-1/recording", home.path);
    record(folder);
    ck_assert_int_eq(replay_again(&r, &error), 0);
    ck_assert_uint_gt(r.info.moments, before);
    ck_assert_uint_eq(r.wall, wall);
    replay_close(&r);
}
END_TEST

START_TEST(scripts_get_moments_and_the_job_of_a_time)
{
    struct console_answer a;
    CONSOLE_RUN(&a, "replay", "tape-1", "--json");
    ck_assert_msg(a.code == KC_EXIT_OK, "%s", a.err);
    json_t *o = json_loads(a.out, 0, NULL), *moments = json_object_get(o, "moments"), *m = json_array_get(moments, 0);
    ck_assert_str_eq(json_string_value(json_object_get(o, "schema")), "kc.replay/1");
    ck_assert_str_eq(json_string_value(json_object_get(o, "job")), "tape-1");
    ck_assert_str_eq(json_string_value(json_object_get(o, "first")), "2025-11-30T03:12:00.000Z");
    ck_assert_str_eq(json_string_value(json_object_get(m, "time")), "2025-11-30T03:12:00.000Z");
    ck_assert(json_is_true(json_object_get(m, "whole")) && json_is_false(json_object_get(m, "wrong")));
    ck_assert_uint_ge(json_array_size(moments), 150);
    json_decref(o);
    console_answer_free(&a);
    static const char *const verbs[] = {"replay", "show"};
    for (int i = 0; i < 2; i++) {
        CONSOLE_RUN(&a, verbs[i], "tape-1", "--at", "03:13:39", "--json");
        ck_assert_msg(a.code == KC_EXIT_OK, "%s", a.err);
        o = json_loads(a.out, 0, NULL);
        ck_assert_int_eq(json_integer_value(json_object_get(json_object_get(o, "job"), "step")), 100);
        ck_assert_str_eq(json_string_value(json_object_get(json_object_get(o, "moment"), "time")), "2025-11-30T03:13:39.000Z");
        json_decref(o);
        console_answer_free(&a);
        CONSOLE_RUN(&a, verbs[i], "tape-1", "--at", "03:13:39");
        ck_assert_ptr_nonnull(strstr(a.out, "as it was   2025-11-30T03:13:39.000Z, moment 100 of"));
        ck_assert_ptr_nonnull(strstr(a.out, "step 100/300"));
        console_answer_free(&a);
        CONSOLE_RUN(&a, verbs[i], "tape-1", "--at", "noon");
        ck_assert_int_eq(a.code, KC_EXIT_USAGE);
        console_answer_free(&a);
    }
    CONSOLE_RUN(&a, "ranks", "tape-1", "--at", "03:15:01", "--json");
    o = json_loads(a.out, 0, NULL);
    m = json_array_get(json_object_get(o, "ranks"), 1);
    ck_assert_str_eq(json_string_value(json_object_get(m, "state")), "failed");
    json_decref(o);
    console_answer_free(&a);
    CONSOLE_RUN(&a, "replay", "tape-1");
    ck_assert_int_eq(a.code, KC_EXIT_USAGE);
    ck_assert_ptr_nonnull(strstr(a.err, "kc replay tape-1 --json"));
    console_answer_free(&a);
}
END_TEST

/* A saved board is a recording of one moment: whose it is, how it was then, and nothing to walk to. */
START_TEST(a_saved_board_is_one_moment)
{
    struct board_wish w = board_wish(100);
    struct replay r;
    struct job j;
    struct kc_moment m;
    struct kc_reader *board = NULL;
    struct console_answer a;
    char path[256], text[128];
    ck_assert_int_eq(board_set_parse(&w.hung, "77"), 0);
    w.torn = 1u << BOARD_TORN_FACTS | 1u << BOARD_TORN_WAIT;
    ck_assert_int_eq(board_set_parse(&w.torn_rank, "5,90-91"), 0);
    snprintf(path, sizeof path, "%s/saved", home.path);
    ck_assert_msg(board_make_file(&w, path, &error) == 0, "%s", error.text);
    ck_assert_msg(replay_open(&kc, path, &r, &error) == 0, "%s", error.text);
    ck_assert(r.info.moments == 1 && r.info.ranks == 100 && r.info.first_wall == w.wall && r.wall == w.wall);
    ck_assert_str_eq(r.info.id, "made-1"); /* of the segment's name: the facts are torn */
    ck_assert(replay_is_wrong(&r) && !replay_walk(&r, REPLAY_BACK) && !replay_walk(&r, REPLAY_FORTH));
    ck_assert(replay_moment(&r, 0, &m) == 0 && replay_moment(&r, 1, &m) < 0);
    ck_assert(replay_again(&r, &error) == 0 && replay_board_before(&r, 1, &board, &error) == -ENOENT);
    ck_assert_int_eq(replay_job(&r, &j, NULL, &error), 0);
    ck_assert(j.ranks_known == 100 && j.rank[77].age == 75 && j.rank[5].torn && !j.rank[6].torn && j.rank[5].wait.what == -1);
    ck_assert_str_eq(job_torn_text(&j, text, sizeof text), "torn: facts, rank 5,90,91");
    job_free(&j);
    replay_close(&r);
    CONSOLE_RUN(&a, "replay", path);
    ck_assert(a.code == 0 && strstr(a.out, "moment 1 of 1") && strstr(a.out, "torn: facts, rank 5,90,91"));
    console_answer_free(&a);
    CONSOLE_RUN(&a, "ranks", path, "--where", "wait=data", "--json");
    ck_assert(a.code == 0 && strstr(a.out, "\"rank\":77") && !strstr(a.out, "\"rank\":78"));
    console_answer_free(&a);
    CONSOLE_RUN(&a, "hang", path); /* more ranks than it compares: one line says so */
    ck_assert(a.code == KC_EXIT_INVALID && strstr(a.err, "100 ranks") && strstr(a.err, "at most 64"));
    console_answer_free(&a);
    ck_assert_int_eq(truncate(path, 4096), 0);
    ck_assert_int_lt(replay_open(&kc, path, &r, &error), 0);
    ck_assert_ptr_nonnull(strstr(error.text, "damaged"));
}
END_TEST

int main(void)
{
    Suite *s = suite_create("replay");
    TCase *t = tcase_create("replay");
    tcase_add_checked_fixture(t, set_up, tear_down);
    tcase_add_test(t, a_recording_is_found_by_job_folder_and_file);
    tcase_add_test(t, one_walks_by_moments_minutes_and_trouble);
    tcase_add_test(t, the_job_is_as_it_was_and_so_are_ages);
    tcase_add_test(t, it_goes_on_with_what_was_recorded_since);
    tcase_add_test(t, a_saved_board_is_one_moment);
    tcase_add_test(t, scripts_get_moments_and_the_job_of_a_time);
    suite_add_tcase(s, t);
    return suite_run(s);
}
