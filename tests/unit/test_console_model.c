/* test_console_model.c - jobs from a synthetic $KC_HOME and a board of our own: figures, waits, metrics, and that
 * all verbs and the screen say the same. The board is written by this process through shm's own writers. */
#include "console_home.h"
#include "state_rig.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "console/model.h"
#include "console/report.h"
#include "console/saving.h"
#include "console/text.h"
#include "shm/keeper.h"
#include "shm/probe.h"
#include "shm/segment.h"
#include "supervisor/protocol.h"
#include "tests/unit/suite.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static struct console_home home;
static struct kc_board *board;
static struct kc_probe *probe[2];

static void setup(void)
{
    console_home_make(&home);
}

static void open_board(const char *id)
{
    struct kc_job_facts facts = {.ranks = 2, .steps = 300, .zero = 1};
    struct kc_error e = {""};
    static const uint32_t members[] = {0, 1};
    snprintf(facts.id, sizeof facts.id, "%s", id);
    snprintf(facts.name, sizeof facts.name, "demo");
    ck_assert_msg(kc_board_create(home.instance, &facts, &board, &e) == 0, "%s", e.text);
    kc_board_incarnation(board, 1);
    kc_board_status(board, &(struct kc_job_status){.state = KC_JOB_RUNNING, .incarnation = 1, .failed_rank = -1});
    for (uint32_t r = 0; r < 2; r++) {
        ck_assert_msg(kc_probe_attach(dup(kc_board_fd(board)), r, 1, &probe[r], &e) == 0, "%s", e.text);
        kc_board_process(board, r, &(struct kc_rank_process){.incarnation = 1, .pid = 5000 + r, .started = kc_now()});
        kc_probe_state(probe[r], KC_RANK_RUNNING);
    }
    kc_board_gate_open(board);
    kc_probe_group(probe[0], 0, 1, "world", members, 2);
    kc_probe_begin_at(probe[0], 0);
    kc_probe_step(probe[0], 42);
    kc_probe_step(probe[1], 42);
    kc_probe_step_record(probe[0], &(struct kc_step_record){.step = 42, .loss = 2.5, .grad_norm = 0.5, .lr = 1e-3,
                                                            .tokens = 4096, .seconds = 0.5});
    kc_probe_phase(probe[0], KC_PHASE_BACKWARD);
    kc_probe_phase(probe[1], KC_PHASE_COMMUNICATION);
    kc_probe_set(probe[0], KC_METRIC_FORWARD_SECONDS, 0.125);
    kc_probe_set(probe[1], KC_METRIC_FORWARD_SECONDS, 0.25);
    kc_probe_set(probe[0], KC_METRIC_LOSS, NAN);
    kc_probe_add(probe[0], KC_METRIC_TOKENS, 172032);
    kc_probe_wait_begin(probe[1], KC_WAIT_ALL_REDUCE, 0, 6650);
}

static void close_board(void)
{
    for (int r = 0; r < 2; r++) {
        kc_probe_free(probe[r]);
        probe[r] = NULL;
    }
    kc_board_free(board, 1);
    board = NULL;
}

static void teardown(void)
{
    if (board)
        close_board();
    console_home_remove(&home);
}

static json_t *answer_json(const char *const *words, int code)
{
    struct console_answer a;
    console_run(&a, words);
    ck_assert_msg(a.code == code, "%d, wanted %d: %s", a.code, code, a.err);
    json_t *o = json_loads(a.out, 0, NULL);
    ck_assert_msg(o != NULL, "%s", a.out);
    console_answer_free(&a);
    return o;
}
#define JSON(code, ...) answer_json((const char *const[]){__VA_ARGS__, "--json", NULL}, code)

/* ---- files ----------------------------------------------------------------------------------------------------- */

START_TEST(files_alone_tell_a_job)
{
    struct job j;
    struct kc_home h;
    console_home_job(&home, "demo-1", "finished", 120, 300);
    console_home_write(
        &home, "jobs/demo-1/result.json",
        "{\"state\":\"finished\",\"exit_code\":0,\"step\":300,\"loss\":1.5,\"validation_loss\":1.75,"
        "\"state_root\":\"00112233445566778899aabbccddeeff\",\"seconds\":12.5,\"first_failure\":null}");
    ck_assert_int_eq(kc_home_find(NULL, NULL, &h, NULL), 0);
    ck_assert_int_eq(job_read(&h, "demo-1", &j, NULL), 0);
    ck_assert_int_eq(j.state, KC_JOB_FINISHED);
    ck_assert_int_eq(j.step, 300);
    ck_assert_int_eq(j.steps, 300);
    ck_assert(j.loss == 1.5 && j.validation_loss == 1.75 && j.seconds == 12.5);
    ck_assert_str_eq(j.state_root, "00112233445566778899aabbccddeeff");
    ck_assert_int_eq(j.restarts, 0);
    ck_assert_str_eq(j.model, "gpt2, 4 layers, 128 wide, 4 heads, context 128, bf16"); /* as the keeper writes it on boards */
    job_free(&j);
}
END_TEST

/* metrics.jsonl has the speed of the last step for ever: it is one of now only while the job runs. */
START_TEST(a_job_that_does_not_run_has_no_speed)
{
    static const char *const states[] = {"queued", "starting", "paused", "stopping", "restarting", "finished"};
    struct console_answer a;
    for (size_t i = 0; i < sizeof states / sizeof states[0]; i++) {
        console_home_job(&home, "demo-1", states[i], 120, 300);
        json_t *o = JSON(0, "show", "demo-1"), *j = json_object_get(o, "job");
        ck_assert_msg(json_is_null(json_object_get(j, "tokens_per_second")), "%s", states[i]);
        ck_assert_int_eq(kc_json_integer(j, "step", 0), 120);
        json_decref(o);
        CONSOLE_RUN(&a, "ps");
        ck_assert_ptr_nonnull(strstr(a.out, "   120/300    3.8000         -           -     2\n"));
        console_answer_free(&a);
        CONSOLE_RUN(&a, "show", "demo-1");
        ck_assert_ptr_nonnull(strstr(a.out, "  - tok/s\n"));
        /* where the time goes: no longer a question once it has ended */
        ck_assert_msg(!strstr(a.out, "step time") == !strcmp(states[i], "finished"), "%s: %s", states[i], a.out);
        console_answer_free(&a);
    }
    console_home_job(&home, "demo-1", "running", 120, 300);
    json_t *o = JSON(0, "show", "demo-1");
    ck_assert(kc_json_real(json_object_get(o, "job"), "tokens_per_second", 0) == 16384);
    json_decref(o);
    CONSOLE_RUN(&a, "ps");
    ck_assert_ptr_nonnull(strstr(a.out, " 16.4k      45.0 s ")); /* 180 steps of 0.25 s */
    console_answer_free(&a);
}
END_TEST

/* Nobody tells kc but the files: a snapshot of before the resume is there, in every verb, with its path short in tables
 * and whole in JSON. */
START_TEST(snapshots_are_found_without_a_board)
{
    struct rig r;
    struct console_answer a;
    char folder[256], path[320];
    console_home_job(&home, "demo-1", "queued", 3, 300);
    snprintf(folder, sizeof folder, "%s/jobs/demo-1/snapshots", home.path);
    ck_assert_int_eq(kc_make_dirs(folder), 0);
    rig_open(&r, rig_small, rig_small_count, (struct rig_layout){2, 1, 2, false, false}, folder, NULL, "");
    rig_train(&r);
    ck_assert_int_eq(rig_snapshot(&r), 0);
    rig_close(&r);
    json_t *ps = JSON(0, "ps"), *show = JSON(0, "show", "demo-1");
    const json_t *s = json_object_get(json_array_get(json_object_get(ps, "jobs"), 0), "snapshot");
    ck_assert_int_eq(kc_json_integer(s, "version", 0), 1);
    ck_assert(json_equal(s, json_object_get(json_object_get(show, "job"), "snapshot")));
    json_decref(ps);
    json_decref(show);
    static const char *const tables[][3] = {{"snap", "ls", "demo-1"}, {"snap", "verify", "demo-1"}};
    for (size_t i = 0; i < 2; i++) {
        console_run(&a, (const char *const[]){tables[i][0], tables[i][1], tables[i][2], NULL});
        ck_assert_ptr_nonnull(strstr(a.out, "  snapshots/v00000001\n"));
        ck_assert_ptr_null(strstr(a.out, home.path));
        console_answer_free(&a);
    }
    snprintf(path, sizeof path, "%s/jobs/demo-1", home.path);
    CONSOLE_RUN(&a, "snap", "show", path);
    ck_assert_msg(a.code == KC_EXIT_NO_OBJECT && strstr(a.err, "/jobs/demo-1/snapshots"), "%d: %s", a.code, a.err);
    console_answer_free(&a);
    for (size_t i = 0; i < 2; i++) {
        CONSOLE_RUN(&a, "snap", "verify", i ? "demo-1/2" : "demo-1/v00000001");
        ck_assert_msg(a.code == (i ? KC_EXIT_NO_OBJECT : 0), "%d: %s%s", a.code, a.out, a.err);
        ck_assert_ptr_nonnull(strstr(i ? a.err : a.out, i ? "no snapshot of version 2" : "whole"));
        console_answer_free(&a);
    }
    snprintf(path, sizeof path, "%s/v00000001", folder);
    /* A folder without its manifest: what is not known is not zero, in tables and in JSON. */
    console_home_write(&home, "jobs/demo-1/snapshots/v00000004/nothing", "");
    for (size_t i = 0; i < 2; i++) {
        console_run(&a, (const char *const[]){tables[i][0], tables[i][1], tables[i][2], NULL});
        ck_assert_msg(a.code == (i ? KC_EXIT_INVALID : 0), "%d: %s%s", a.code, a.out, a.err);
        ck_assert_msg(strstr(a.out, "      4         -          -          -        -  broken   "), "%s", a.out);
        ck_assert_msg(strstr(a.out, "snapshots/v00000004: "), "%s", a.out);
        console_answer_free(&a);
    }
    json_t *verify = JSON(KC_EXIT_INVALID, "snap", "verify", "demo-1");
    const json_t *four = json_array_get(json_object_get(verify, "snapshots"), 1);
    ck_assert_int_eq(kc_json_integer(four, "version", 0), 4);
    ck_assert(json_is_null(json_object_get(four, "step")) && json_is_null(json_object_get(four, "bytes")));
    ck_assert(json_is_false(json_object_get(four, "whole")));
    json_decref(verify);
    json_t *ls = JSON(0, "snap", "ls", "demo-1");
    ck_assert_str_eq(kc_json_text(json_array_get(json_object_get(ls, "snapshots"), 0), "path", ""), path);
    json_decref(ls);
}
END_TEST

static void write_spec(void)
{
    console_home_write(&home, "jobs/demo-1/spec.json",
                       "{\"name\":\"demo\",\"ranks\":2,\"steps\":300,\"model\":{\"family\":\"gpt2\",\"layers\":4,\"hidden\":128,\"heads\":4,"
                       "\"context\":128,\"vocab\":256},\"data\":{\"train\":\"train.bin\"},\"batch\":{\"sequences\":8,\"micro\":4},"
                       "\"optimizer\":{\"lr\":1e-3},\"parallel\":{\"data\":2,\"zero\":1},\"snapshot\":{\"keep\":1}}");
}

/* show takes the newest, or a version; diff ends with 0 where all is the same and with 1 where it is not. */
START_TEST(snapshots_are_shown_and_compared)
{
    struct rig r;
    struct console_answer a;
    char folder[256];
    console_home_job(&home, "demo-1", "queued", 3, 300);
    snprintf(folder, sizeof folder, "%s/jobs/demo-1/snapshots", home.path);
    ck_assert_int_eq(kc_make_dirs(folder), 0);
    rig_open(&r, rig_small, rig_small_count, (struct rig_layout){2, 1, 2, false, false}, folder, NULL, "");
    for (int i = 0; i < 2; i++) {
        rig_train(&r);
        ck_assert_int_eq(rig_snapshot(&r), 0);
    }
    rig_close(&r);
    json_t *show = JSON(0, "snap", "show", "demo-1");
    ck_assert_int_eq(kc_json_integer(show, "version", 0), 2);
    ck_assert_uint_eq(json_array_size(json_object_get(show, "tensors")), rig_small_count);
    ck_assert_uint_eq(json_array_size(json_object_get(show, "packs")), 2);
    ck_assert_int_eq(kc_json_integer(json_object_get(show, "layout"), "zero", -1), 1);
    json_decref(show);
    show = JSON(0, "snap", "show", "demo-1/v00000001");
    ck_assert_int_eq(kc_json_integer(show, "step", 0), 1);
    json_decref(show);
    json_decref(JSON(KC_EXIT_NO_OBJECT, "snap", "show", "demo-1/7"));
    json_t *diff = JSON(KC_EXIT_FALSE, "snap", "diff", "demo-1/1", "demo-1");
    ck_assert(json_is_false(json_object_get(diff, "same")));
    const json_t *row = json_array_get(json_object_get(diff, "rows"), 0);
    ck_assert_str_eq(kc_json_text(row, "is", ""), "differs");
    ck_assert(kc_json_real(row, "largest", 0) > 0 && kc_json_real(row, "share", 0) > 0.9);
    json_decref(diff);
    diff = JSON(0, "snap", "diff", "demo-1/2", "demo-1");
    ck_assert(json_is_true(json_object_get(diff, "same")));
    json_decref(diff);
    CONSOLE_RUN(&a, "snap", "diff", "demo-1/1", "demo-1/2");
    ck_assert_msg(a.code == KC_EXIT_FALSE && strstr(a.out, "\n0 of ") && !strstr(a.out, "only in"), "%s%s", a.out, a.err);
    console_answer_free(&a);
    write_spec();
    CONSOLE_RUN(&a, "snap", "prune", "demo-1", "--dry-run");
    ck_assert_msg(a.code == 0 && strstr(a.out, "1 of 2 snapshots would go"), "%s%s", a.out, a.err);
    console_answer_free(&a);
    CONSOLE_RUN(&a, "snap", "show", "demo-1");
    ck_assert_msg(a.code == 0 && strstr(a.out, "  layout      2 ranks, data 2, ZeRO 1\n"), "%s%s", a.out, a.err);
    console_answer_free(&a);
    json_t *gone = JSON(0, "snap", "prune", "demo-1", "--keep", "1");
    ck_assert_uint_eq(json_array_size(json_object_get(gone, "removed")), 1);
    ck_assert_int_eq(kc_json_integer(json_array_get(json_object_get(gone, "removed"), 0), "version", 0), 1);
    json_decref(gone);
    json_decref(JSON(KC_EXIT_NO_OBJECT, "snap", "show", "demo-1/1"));
    json_decref(JSON(KC_EXIT_USAGE, "snap", "prune", "demo-1", "--keep", "0"));
}
END_TEST

/* prune names what stays for others alone, and who the newest of these is. */
START_TEST(what_others_lean_on_stays_and_is_told)
{
    struct rig r;
    struct console_answer a;
    char folder[256];
    console_home_job(&home, "demo-1", "queued", 3, 300);
    snprintf(folder, sizeof folder, "%s/jobs/demo-1/snapshots", home.path);
    ck_assert_int_eq(kc_make_dirs(folder), 0);
    write_spec();
    rig_keep = 4;
    rig_full_every = 50;
    rig_still = 1;
    rig_open(&r, rig_small, rig_small_count, (struct rig_layout){2, 1, 2, false, false}, folder, NULL, "");
    for (int i = 0; i < 4; i++) {
        rig_train(&r);
        ck_assert_int_eq(rig_snapshot(&r), 0);
    }
    rig_close(&r);
    rig_keep = 2;
    rig_full_every = 1;
    rig_still = 0;
    CONSOLE_RUN(&a, "snap", "prune", "demo-1", "--keep", "2", "--dry-run");
    ck_assert_msg(a.code == 0 && strstr(a.out, "version 2 would go, ") &&
                      strstr(a.out, "version 1 stays: 2 that stay lean on it, version 4 the newest of them\n"), "%s%s", a.out, a.err);
    console_answer_free(&a);
    json_t *gone = JSON(0, "snap", "prune", "demo-1"), *held = json_object_get(gone, "held");
    ck_assert_uint_eq(json_array_size(json_object_get(gone, "removed")), 2);
    ck_assert_uint_eq(json_array_size(held), 1);
    ck_assert_int_eq(kc_json_integer(json_array_get(held, 0), "version", 0), 1);
    ck_assert_int_eq(kc_json_integer(json_array_get(held, 0), "leaning", 0), 1);
    ck_assert_int_eq(kc_json_integer(json_array_get(held, 0), "newest", 0), 4);
    json_decref(gone);
    CONSOLE_RUN(&a, "snap", "prune", "demo-1");
    ck_assert_msg(strstr(a.out, "version 1 stays: version 4 leans on it\n") && strstr(a.out, "0 of 2 snapshots are gone"), "%s%s",
                  a.out, a.err);
    console_answer_free(&a);
}
END_TEST

/* A claimed id without files, a file that is no JSON, half a line: unknown, never a crash, never a wrong number. */
START_TEST(half_written_files_are_unknown)
{
    struct job j;
    struct kc_home h;
    struct kc_error e = {""};
    ck_assert_int_eq(kc_home_find(NULL, NULL, &h, NULL), 0);
    console_home_write(&home, "jobs/claimed-1/rank-0.log", "");
    ck_assert_int_eq(job_read(&h, "claimed-1", &j, &e), -ENOENT);
    console_home_job(&home, "demo-1", "running", 3, 300);
    console_home_write(&home, "jobs/demo-1/spec.json", "{\"name\":");
    console_home_write(
        &home, "jobs/demo-1/metrics.jsonl",
        "{\"step\":1,\"loss\":5.0}\nnot json\n{\"step\":2,\"loss\":null,\"lr\":0.5}\n{\"step\":3,\"lo");
    ck_assert_int_eq(job_read(&h, "demo-1", &j, &e), 0);
    ck_assert_int_eq(j.step, 2);
    ck_assert(isnan(j.loss) && j.lr == 0.5);
    ck_assert_int_eq(j.steps, -1);
    ck_assert_str_eq(j.name, "demo");
    job_free(&j);
    json_t *o = JSON(0, "show", "demo-1"), *job = json_object_get(o, "job");
    ck_assert(json_is_null(json_object_get(job, "loss")) && json_is_null(json_object_get(job, "steps")));
    ck_assert(json_is_null(json_object_get(job, "state_root")));
    json_decref(o);
}
END_TEST

START_TEST(a_mistyped_job_is_told_with_the_nearest)
{
    struct console_answer a;
    console_home_job(&home, "quickstart-1", "stopped", 3, 300);
    CONSOLE_RUN(&a, "show", "quikstart-1");
    ck_assert_int_eq(a.code, KC_EXIT_NO_OBJECT);
    ck_assert_ptr_nonnull(strstr(a.err, "Did you mean quickstart-1?"));
    console_answer_free(&a);
    CONSOLE_RUN(&a, "show", "../../etc");
    ck_assert_int_eq(a.code, KC_EXIT_NO_OBJECT);
    console_answer_free(&a);
}
END_TEST

/* ---- board ----------------------------------------------------------------------------------------------------- */

/* One step of ten seconds among many of a quarter: what is left goes by all of the last minute, and by none before it or of
 * another incarnation. */
START_TEST(what_is_left_goes_by_the_last_minute)
{
    console_home_job(&home, "demo-1", "starting", 40, 300);
    open_board("demo-1");
    const uint64_t now = kc_now();
    struct kc_step_record r = {.loss = 2, .tokens = 4096, .seconds = 1000, .incarnation = 1};
    for (uint64_t step = 43; step <= 62; step++) {
        r.step = step;
        r.seconds = step <= 46 ? 1000 : step == 62 ? 10 : 0.25;
        r.end = step <= 46 ? now - 100 * KC_SECOND : now - (62 - step) * KC_SECOND;
        kc_probe_step_record(probe[0], &r);
    }
    kc_probe_step(probe[0], 62);
    json_t *o = JSON(0, "show", "demo-1"), *j = json_object_get(o, "job");
    const double pace = (15 * 0.25 + 10) / 16;
    ck_assert(kc_json_real(j, "step_seconds", 0) == 10);
    ck_assert_double_eq_tol(kc_json_real(j, "left_seconds", 0), 238 * pace, 1e-6);
    ck_assert_double_eq_tol(kc_json_real(j, "tokens_per_second", 0), 4096 / pace, 1e-3);
    json_decref(o);
    close_board();
}
END_TEST

START_TEST(a_running_job_is_read_from_its_board)
{
    console_home_job(&home, "demo-1", "starting", 40, 300);
    open_board("demo-1");
    json_t *o = JSON(0, "show", "demo-1"), *j = json_object_get(o, "job"), *ranks = json_object_get(j, "ranks");
    ck_assert_str_eq(kc_json_text(j, "state", ""), "running");
    ck_assert_int_eq(kc_json_integer(j, "step", 0), 42);
    ck_assert(kc_json_real(j, "loss", 0) == 2.5);
    ck_assert(kc_json_real(j, "tokens_per_second", 0) == 8192);
    ck_assert_uint_eq(json_array_size(ranks), 2);
    const json_t *r0 = json_array_get(ranks, 0), *r1 = json_array_get(ranks, 1), *wait = json_object_get(r1, "wait");
    ck_assert_int_eq(kc_json_integer(r0, "pid", 0), 5000);
    ck_assert_str_eq(kc_json_text(r0, "phase", ""), "backward");
    ck_assert(json_is_null(json_object_get(r0, "wait")));
    ck_assert_str_eq(kc_json_text(r1, "phase", ""), "communication");
    ck_assert_str_eq(kc_json_text(wait, "what", ""), "all-reduce");
    ck_assert_str_eq(kc_json_text(wait, "group", ""), "world");
    ck_assert_int_eq(kc_json_integer(wait, "sequence", 0), 6650);
    ck_assert(kc_json_real(wait, "seconds", -1) >= 0);
    /* parts of one step of one rank, or they would not add up: rank 0, who writes step_seconds */
    ck_assert(kc_json_real(json_object_get(j, "split"), "forward_seconds", 0) == 0.125);
    ck_assert_int_eq(kc_json_integer(json_object_get(j, "split"), "rank", -1), 0);
    ck_assert(json_is_null(json_object_get(json_object_get(j, "split"), "data_seconds")));
    ck_assert(json_is_null(json_object_get(j, "experts")));
    json_decref(o);
}
END_TEST

START_TEST(the_load_of_experts_is_shown)
{
    struct console_answer a;
    console_home_job(&home, "demo-1", "running", 40, 300);
    open_board("demo-1");
    kc_probe_loads(probe[0], 42, 2, 3, (const double[]){4, 4, 4, 1, 9, 2});
    json_t *o = JSON(0, "show", "demo-1"), *ps = JSON(0, "ps");
    const json_t *experts = json_object_get(json_object_get(o, "job"), "experts");
    json_t *want = json_pack("{s:i,s:i,s:f,s:f,s:f,s:[[iii],[iii]]}", "step", 42, "layer", 1, "imbalance", 2.25,
                             "busiest_share", 0.75, "idlest_share", 0.0833333333, "choices", 4, 4, 4, 1, 9, 2);
    ck_assert(json_equal(experts, want));
    ck_assert_ptr_null(json_object_get(json_array_get(json_object_get(ps, "jobs"), 0), "experts"));
    json_decref(want);
    json_decref(o);
    json_decref(ps);
    CONSOLE_RUN(&a, "show", "demo-1");
    ck_assert_ptr_nonnull(strstr(a.out, "\nexperts     worst layer 1: expert 1 has 75.0% (2.25 x mean), expert 0 8.3%\n"));
    console_answer_free(&a);
}
END_TEST

/* F22: equal counts are not progress: who waits for whom, and for how long. */
START_TEST(f22_show_says_who_waits_for_what)
{
    struct console_answer a;
    console_home_job(&home, "demo-1", "running", 40, 300);
    open_board("demo-1");
    CONSOLE_RUN(&a, "show", "demo-1");
    ck_assert_int_eq(a.code, 0);
    ck_assert_ptr_nonnull(strstr(a.out, " all-reduce world#6650\n"));
    ck_assert_ptr_nonnull(strstr(a.out, "step time   500 ms; of rank 0: data -, forward 125 ms,"));
    console_answer_free(&a);
}
END_TEST

/* F25: who is late is told wherever ranks are shown; what is not known is null, and of a rank that is gone nothing is told. */
START_TEST(f25_a_straggler_is_told_wherever_ranks_are)
{
    struct console_answer a;
    struct kc_rank_pace pace = {.incarnation = 1, .alarm = 1, .samples = 40, .since = kc_now(), .late_seconds = 0.0205,
                                .busy_seconds = 0.04, .score = 0.5};
    console_home_job(&home, "demo-1", "running", 40, 300);
    open_board("demo-1");
    kc_board_pace(board, 1, &pace);
    pace = (struct kc_rank_pace){.incarnation = 1, .late_seconds = 0, .busy_seconds = NAN, .score = NAN};
    kc_board_pace(board, 0, &pace);
    json_t *o = JSON(0, "show", "demo-1");
    const json_t *ranks = json_object_get(json_object_get(o, "job"), "ranks"), *r = json_array_get(ranks, 1);
    ck_assert(json_is_true(json_object_get(r, "straggler")));
    ck_assert_double_eq(json_real_value(json_object_get(r, "pace_score")), 0.5);
    ck_assert_double_eq(json_real_value(json_object_get(r, "late_seconds")), 0.0205);
    ck_assert_double_eq(json_real_value(json_object_get(r, "busy_seconds")), 0.04);
    r = json_array_get(ranks, 0);
    ck_assert(json_is_null(json_object_get(r, "straggler")) && json_is_null(json_object_get(r, "pace_score")));
    json_decref(o);
    CONSOLE_RUN(&a, "show", "demo-1");
    ck_assert_msg(strstr(a.out, "\n     straggler: score 0.50, needs 40 ms of its own for a step, comes 20.5 ms late\n"), "%s", a.out);
    console_answer_free(&a);
    CONSOLE_RUN(&a, "metrics", "demo-1");
    ck_assert_ptr_nonnull(strstr(a.out, "\nkc_straggler{job=\"demo-1\",rank=\"1\"} 1\n"));
    ck_assert_ptr_nonnull(strstr(a.out, "\nkc_pace_score{job=\"demo-1\",rank=\"1\"} 0.5\n"));
    ck_assert_ptr_null(strstr(a.out, "kc_pace_score{job=\"demo-1\",rank=\"0\"}"));
    console_answer_free(&a);
    kc_board_process(board, 1, &(struct kc_rank_process){.incarnation = 1, .pid = 5001, .started = 1, .ended = 2, .signal = 9});
    o = JSON(0, "show", "demo-1");
    ck_assert(json_is_null(json_object_get(json_array_get(json_object_get(json_object_get(o, "job"), "ranks"), 1), "straggler")));
    json_decref(o);
    CONSOLE_RUN(&a, "metrics", "demo-1");
    ck_assert_ptr_null(strstr(a.out, "kc_straggler{job=\"demo-1\",rank=\"1\"}"));
    console_answer_free(&a);
}
END_TEST

/* F22: a lane that idles is no hang; the same wait is told once nothing has moved for long. */
START_TEST(f22_ordinary_waits_within_a_rank_are_not_told)
{
    struct console_answer a;
    console_home_job(&home, "demo-1", "running", 40, 300);
    open_board("demo-1");
    kc_probe_wait_begin(probe[0], KC_WAIT_LANE, KC_NO_GROUP, 0);
    json_t *o = JSON(0, "show", "demo-1");
    const json_t *ranks = json_object_get(json_object_get(o, "job"), "ranks");
    ck_assert(json_is_null(json_object_get(json_array_get(ranks, 0), "wait")));
    ck_assert(json_is_object(json_object_get(json_array_get(ranks, 1), "wait")));
    json_decref(o);
    CONSOLE_RUN(&a, "show", "demo-1");
    ck_assert_ptr_null(strstr(a.out, "lane"));
    console_answer_free(&a);
    static const struct {
        int what;
        double seconds, age;
        bool tells;
    } cases[] = {
        {KC_WAIT_LANE, 0.08, 0.05, false}, {KC_WAIT_LANE, 60, 0.05, false},       {KC_WAIT_TEAM, 0.08, 60, false},
        {KC_WAIT_LANE, 5, 5, true},        {KC_WAIT_TEAM, 60, 60, true},          {KC_WAIT_LANE, NAN, NAN, false},
        {KC_WAIT_DATA, 0.001, 0, true},    {KC_WAIT_ALL_REDUCE, 0.001, 60, true}, {KC_WAIT_GATE, NAN, NAN, true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        ck_assert_msg(job_wait_tells(cases[i].what, cases[i].seconds, cases[i].age) == cases[i].tells, "case %zu", i);
}
END_TEST

/* A fault that was survived is no state: it has a line of its own, and none where there was none. */
START_TEST(the_last_fault_is_not_the_state)
{
    struct console_answer a;
    struct kc_job_status status = {.state = KC_JOB_RUNNING, .incarnation = 1, .restarts = 1, .failed_rank = 1,
                                   .failed_step = 17, .failed_phase = KC_PHASE_BACKWARD, .text = "rank 1 was killed"};
    console_home_job(&home, "demo-1", "running", 40, 300);
    open_board("demo-1");
    CONSOLE_RUN(&a, "show", "demo-1");
    ck_assert_ptr_nonnull(strstr(a.out, "state       running\n"));
    ck_assert_ptr_null(strstr(a.out, "last fault"));
    console_answer_free(&a);
    kc_board_status(board, &status);
    CONSOLE_RUN(&a, "show", "demo-1");
    ck_assert_ptr_nonnull(strstr(a.out, "state       running\nlast fault  rank 1 was killed\n"));
    console_answer_free(&a);
    close_board();
    console_home_job(&home, "demo-1", "finished", 300, 300);
    console_home_write(&home, "jobs/demo-1/result.json",
                       "{\"state\":\"finished\",\"exit_code\":0,\"step\":300,\"loss\":1.5,\"first_failure\":"
                       "{\"rank\":1,\"step\":17,\"phase\":\"backward\",\"reason\":\"signal\",\"followers\":1,"
                       "\"text\":\"rank 1 was killed\"}}");
    CONSOLE_RUN(&a, "show", "demo-1");
    ck_assert_ptr_nonnull(strstr(a.out, "state       finished\nlast fault  rank 1 was killed\n"));
    ck_assert_ptr_nonnull(strstr(a.out, ". Survived: rank 1 at step 17 in backward: signal"));
    ck_assert_ptr_null(strstr(a.out, "First failure"));
    console_answer_free(&a);
    /* one that told why it left */
    console_home_job(&home, "demo-1", "failed", 17, 300);
    console_home_write(&home, "jobs/demo-1/result.json",
                       "{\"state\":\"failed\",\"exit_code\":1,\"step\":17,\"first_failure\":{\"rank\":1,"
                       "\"step\":17,\"phase\":\"leaving\",\"reason\":\"error\",\"followers\":1,"
                       "\"text\":\"rank 1 at step 17: error: no room; raise it; and 1 other followed\"}}");
    CONSOLE_RUN(&a, "show", "demo-1");
    ck_assert_ptr_nonnull(strstr(a.out, ". First failure: rank 1 at step 17: error: no room; raise it; and 1 other followed\n"));
    console_answer_free(&a);
    /* one that no rank is to blame for */
    console_home_job(&home, "demo-1", "failed", 17, 300);
    console_home_write(&home, "jobs/demo-1/result.json",
                       "{\"state\":\"failed\",\"exit_code\":1,\"step\":17,\"first_failure\":{\"rank\":null,"
                       "\"step\":17,\"phase\":\"starting\",\"reason\":\"error\",\"followers\":0,"
                       "\"text\":\"no devices\"}}");
    CONSOLE_RUN(&a, "show", "demo-1");
    ck_assert_ptr_nonnull(strstr(a.out, "state       failed\nlast fault  no devices\n"));
    ck_assert_ptr_nonnull(strstr(a.out, ". First failure: no devices\n"));
    console_answer_free(&a);
    json_t *o = JSON(0, "show", "demo-1"), *failure = json_object_get(json_object_get(o, "job"), "first_failure");
    ck_assert_str_eq(kc_json_text(failure, "reason", ""), "error");
    ck_assert(json_is_null(json_object_get(failure, "rank")));
    json_decref(o);
}
END_TEST

/* ---- what kcd publishes ---------------------------------------------------------------------------------------- */

static struct kc_directory *open_directory(const char *of_home)
{
    struct kc_directory *d = NULL;
    struct kc_directory_facts facts = {.draining = 0};
    struct kc_error e = {""};
    snprintf(facts.instance, sizeof facts.instance, "%s", home.instance);
    snprintf(facts.home, sizeof facts.home, "%s", of_home);
    ck_assert_msg(kc_directory_create(home.instance, &facts, &d, &e) == 0, "%s", e.text);
    return d;
}

START_TEST(a_queued_job_has_its_place)
{
    struct console_answer a;
    console_home_job(&home, "demo-1", "queued", 0, 300);
    console_home_job(&home, "demo-2", "queued", 0, 300);
    struct kc_directory *d = open_directory(home.path);
    kc_directory_job(d, 4, &(struct kc_directory_job){.id = "demo-1", .state = KC_JOB_QUEUED, .queue = 2});
    CONSOLE_RUN(&a, "ps");
    ck_assert_ptr_nonnull(strstr(a.out, "demo-1               queued 2  "));
    ck_assert_ptr_nonnull(strstr(a.out, "demo-2               queued    ")); /* which kcd has not listed yet */
    console_answer_free(&a);
    json_t *o = JSON(0, "show", "demo-1");
    ck_assert_int_eq(kc_json_integer(json_object_get(o, "job"), "queue", 0), 2);
    json_decref(o);
    kc_directory_free(d, 1);
    o = JSON(0, "show", "demo-1"); /* no kcd: unknown */
    ck_assert(json_is_null(json_object_get(json_object_get(o, "job"), "queue")));
    json_decref(o);
    pid_t pid = fork(); /* nor what a dead one left */
    if (pid == 0) {
        d = open_directory(home.path);
        kc_directory_job(d, 4, &(struct kc_directory_job){.id = "demo-1", .state = KC_JOB_QUEUED, .queue = 2});
        _exit(0);
    }
    ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
    o = JSON(0, "show", "demo-1");
    ck_assert(json_is_null(json_object_get(json_object_get(o, "job"), "queue")));
    json_decref(o);
    d = open_directory("/somewhere/else"); /* the same instance, for another home: its demo-1 is not ours */
    kc_directory_job(d, 4, &(struct kc_directory_job){.id = "demo-1", .state = KC_JOB_QUEUED, .queue = 2});
    o = JSON(0, "show", "demo-1");
    ck_assert(json_is_null(json_object_get(json_object_get(o, "job"), "queue")));
    json_decref(o);
    kc_directory_free(d, 1);
}
END_TEST

/* Devices: from the living kcd; without one from the locks, where no folder of locks means that nothing is held. */
START_TEST(node_tells_devices_with_and_without_kcd)
{
    char run[256];
    json_t *o = JSON(0, "node"), *devices = json_object_get(o, "devices");
    ck_assert_str_eq(kc_json_text(o, "devices_told_by", ""), "locks");
    ck_assert_uint_gt(json_array_size(devices), 0);
    for (size_t i = 0; i < json_array_size(devices); i++)
        ck_assert_str_eq(kc_json_text(json_array_get(devices, i), "state", ""), "idle");
    snprintf(run, sizeof run, "%s/run", home.path);
    ck_assert_int_ne(access(run, F_OK), 0); /* looking makes nothing */
    struct kc_directory_device seen = {.kind = "cpu", .health = "ok", .job = "demo-1", .rank = 3,
                                       .state = KC_DEVICE_STATE_LEASED};
    snprintf(seen.name, sizeof seen.name, "%s", kc_json_text(json_array_get(devices, 0), "name", ""));
    json_decref(o);
    struct kc_directory *d = open_directory(home.path);
    kc_directory_device(d, 0, &seen);
    o = JSON(0, "node");
    const json_t *first = json_array_get(json_object_get(o, "devices"), 0);
    ck_assert_str_eq(kc_json_text(o, "devices_told_by", ""), "kcd");
    ck_assert_str_eq(kc_json_text(first, "state", ""), "leased");
    ck_assert_str_eq(kc_json_text(first, "job", ""), "demo-1");
    ck_assert_int_eq(kc_json_integer(first, "rank", -1), 3);
    json_decref(o);
    snprintf(seen.health, sizeof seen.health, "too hot");
    seen.state = KC_DEVICE_STATE_FAULTY;
    seen.job[0] = 0;
    seen.rank = -1;
    kc_directory_device(d, 0, &seen);
    struct console_answer a;
    CONSOLE_RUN(&a, "node");
    ck_assert_ptr_nonnull(strstr(a.out, "faulty"));
    ck_assert_ptr_nonnull(strstr(a.out, "  -: too hot\n"));
    console_answer_free(&a);
    kc_directory_free(d, 1);
}
END_TEST

/* F57: ps, show, metrics and the model that the screen draws give the same figures. */
START_TEST(f57_all_verbs_say_the_same)
{
    struct model m;
    struct kc_home h;
    console_home_job(&home, "demo-1", "running", 40, 300);
    open_board("demo-1");
    json_t *ps = JSON(0, "ps"), *show = JSON(0, "show", "demo-1");
    const json_t *a = json_array_get(json_object_get(ps, "jobs"), 0), *b = json_object_get(show, "job");
    ck_assert_int_eq(kc_home_find(NULL, NULL, &h, NULL), 0);
    ck_assert_int_eq(model_read(&h, NULL, &m, NULL), 0);
    ck_assert_uint_eq(m.count, 1);
    static const char *const same[] = {"id",
                                       "name",
                                       "state",
                                       "step",
                                       "steps",
                                       "loss",
                                       "validation_loss",
                                       "lr",
                                       "grad_norm",
                                       "tokens_per_second",
                                       "step_seconds",
                                       "state_root",
                                       "restarts",
                                       "split"};
    json_t *c = report_job(&m.job[0]);
    for (size_t i = 0; i < sizeof same / sizeof same[0]; i++) {
        ck_assert_msg(json_equal(json_object_get(a, same[i]), json_object_get(b, same[i])), "%s", same[i]);
        ck_assert_msg(json_equal(json_object_get(a, same[i]), json_object_get(c, same[i])), "%s", same[i]);
    }
    json_decref(c);
    model_free(&m);
    json_decref(ps);
    json_decref(show);
}
END_TEST

static bool rank_hung(size_t rank)
{
    json_t *o = JSON(0, "show", "demo-1");
    const json_t *r = json_array_get(json_object_get(json_object_get(o, "job"), "ranks"), rank);
    ck_assert(json_is_boolean(json_object_get(r, "hung")));
    const bool hung = json_is_true(json_object_get(r, "hung"));
    json_decref(o);
    return hung;
}

START_TEST(a_hang_is_told_wherever_a_job_is)
{
    struct console_answer a;
    struct kc_watch_seen w = {.incarnation = 1, .hangs = 1, .rank = 1, .still = kc_now() - 41 * KC_SECOND, .since = kc_now()};
    console_home_job(&home, "demo-1", "running", 42, 300);
    open_board("demo-1");
    json_t *o = JSON(0, "show", "demo-1");
    ck_assert(json_is_null(json_object_get(json_object_get(o, "job"), "hang")));
    json_decref(o);
    kc_board_watch(board, &w);
    ck_assert(!rank_hung(0) && !rank_hung(1)); /* rank 1 waits for others, and nobody accuses it yet */
    CONSOLE_RUN(&a, "show", "demo-1");
    ck_assert_msg(strstr(a.out, "state       hangs\n            hangs for 41.0 s: kc hang looks into it\n") != NULL, "%s", a.out);
    console_answer_free(&a);
    snprintf(w.text, sizeof w.text, "rank 1 is stopped");
    kc_board_watch(board, &w);
    CONSOLE_RUN(&a, "show", "demo-1");
    ck_assert(!rank_hung(0) && rank_hung(1)); /* though it has come to what the others wait in */
    ck_assert_ptr_nonnull(strstr(a.out, ": rank 1 is stopped\n            kc hang demo-1, kc stack demo-1; kc why demo-1 tells the story\n"));
    console_answer_free(&a);
    CONSOLE_RUN(&a, "ps");
    ck_assert_ptr_nonnull(strstr(a.out, "hangs "));
    console_answer_free(&a);
    o = JSON(0, "show", "demo-1");
    const json_t *job = json_object_get(o, "job"), *hang = json_object_get(job, "hang");
    ck_assert_str_eq(kc_json_text(job, "state", ""), "running");
    ck_assert_str_eq(kc_json_text(hang, "text", ""), "rank 1 is stopped");
    ck_assert(kc_json_real(hang, "seconds", 0) >= 41);
    ck_assert(json_is_null(json_object_get(job, "tokens_per_second"))); /* it trains nothing now */
    ck_assert(json_is_null(json_object_get(job, "left_seconds")));
    json_decref(o);
    w.incarnation = 7; /* of one that is gone */
    kc_board_watch(board, &w);
    o = JSON(0, "show", "demo-1");
    ck_assert(json_is_null(json_object_get(json_object_get(o, "job"), "hang")));
    json_decref(o);
}
END_TEST

/* A board of another layout: one line, exit code 8, and what the files say is still shown. */
START_TEST(a_board_of_another_version_is_told)
{
    struct console_answer a;
    char name[KC_SEGMENT_NAME];
    console_home_job(&home, "demo-1", "running", 40, 300);
    ck_assert_int_eq(kc_segment_name(name, home.instance, "demo-1", NULL), 0);
    open_board("demo-1");
    int fd = shm_open(name, O_RDWR, 0);
    ck_assert_int_ge(fd, 0);
    uint32_t version = 999;
    ck_assert_int_eq(pwrite(fd, &version, sizeof version, 8), sizeof version); /* behind the magic: board.h */
    close(fd);
    CONSOLE_RUN(&a, "show", "demo-1");
    ck_assert_msg(a.code == KC_EXIT_VERSION, "%d: %s", a.code, a.err);
    ck_assert_msg(strchr(a.err, '\n') == a.err + strlen(a.err) - 1, "%s", a.err);
    ck_assert_ptr_nonnull(strstr(a.err, "; use the kc it was started with"));
    ck_assert_ptr_nonnull(strstr(a.out, "step 40/300"));
    console_answer_free(&a);
    CONSOLE_RUN(&a, "wait", "demo-1", "--timeout", "5s");
    ck_assert_int_eq(a.code, KC_EXIT_VERSION);
    console_answer_free(&a);
}
END_TEST

/* ---- metrics --------------------------------------------------------------------------------------------------- */

/* Prometheus text format 0.0.4: HELP and TYPE once a family, its samples together, counters _total, unknown left
 * out. */
START_TEST(metrics_follow_the_format)
{
    struct console_answer a;
    char family[128] = "", seen[64][96], *save = NULL;
    int families = 0, samples = 0;
    console_home_job(&home, "demo-1", "running", 40, 300);
    open_board("demo-1");
    CONSOLE_RUN(&a, "metrics");
    ck_assert_int_eq(a.code, 0);
    ck_assert(a.out[a.out_bytes - 1] == '\n');
    ck_assert_ptr_nonnull(strstr(a.out, "\nkc_forward_seconds{job=\"demo-1\",rank=\"1\"} 0.25\n"));
    ck_assert_ptr_nonnull(strstr(a.out, "\nkc_tokens_total{job=\"demo-1\",rank=\"0\"} 172032\n"));
    ck_assert_ptr_nonnull(strstr(a.out, "\nkc_job_state{job=\"demo-1\",state=\"running\"} 1\n"));
    ck_assert_ptr_null(strstr(a.out, "kc_snapshot_bytes")); /* nobody has set it */
    ck_assert_ptr_null(strstr(a.out, "nan"));
    for (char *line = strtok_r(a.out, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        char name[96] = "", type[16] = "", rest[8];
        double value;
        if (sscanf(line, "# HELP %95s", name) == 1) {
            for (int i = 0; i < families; i++)
                ck_assert_str_ne(seen[i], name);
            snprintf(seen[families++], sizeof seen[0], "%s", name);
            snprintf(family, sizeof family, "%s", name);
            continue;
        }
        if (sscanf(line, "# TYPE %95s %15s", name, type) == 2) {
            ck_assert_str_eq(name, family);
            ck_assert_int_eq(!strcmp(type, "counter"),
                             strlen(name) > 6 && !strcmp(name + strlen(name) - 6, "_total"));
            continue;
        }
        size_t n = strcspn(line, "{ ");
        ck_assert_msg(n == strlen(family) && !strncmp(line, family, n), "%s stands in family %s", line, family);
        const char *end = strrchr(line, '}');
        ck_assert_int_eq(sscanf(end ? end + 1 : line + n, " %lf%7s", &value, rest), 1); /* no time stamp */
        ck_assert(!isnan(value));
        samples++;
    }
    ck_assert_int_gt(samples, 10);
    console_answer_free(&a);
    /* a dead rank's figures vanish, they do not stand still */
    kc_board_process(board, 1,
                     &(struct kc_rank_process){.incarnation = 1, .pid = 5001, .ended = kc_now(), .signal = 9});
    CONSOLE_RUN(&a, "metrics");
    ck_assert_ptr_null(strstr(a.out, "kc_forward_seconds{job=\"demo-1\",rank=\"1\"}"));
    ck_assert_ptr_nonnull(strstr(a.out, "kc_rank_state{job=\"demo-1\",rank=\"1\",state=\"failed\"} 1"));
    console_answer_free(&a);
}
END_TEST

/* ---- waiting --------------------------------------------------------------------------------------------------- */

static void *step_later(void *arg)
{
    uint64_t *when = arg;
    struct timespec nap = {.tv_nsec = 200000000};
    nanosleep(&nap, NULL);
    *when = kc_now();
    kc_probe_step(probe[0], 100);
    return NULL;
}

START_TEST(wait_returns_soon_after_the_fact)
{
    struct console_answer a;
    pthread_t thread;
    uint64_t when = 0;
    console_home_job(&home, "demo-1", "running", 40, 300);
    open_board("demo-1");
    pthread_create(&thread, NULL, step_later, &when);
    CONSOLE_RUN(&a, "wait", "demo-1", "--for", "step>=100", "--timeout", "20s");
    uint64_t now = kc_now();
    pthread_join(thread, NULL);
    ck_assert_msg(a.code == KC_EXIT_OK, "%s", a.err);
    ck_assert_uint_ge(now, when);
    printf("wait returned %.1f ms after the fact (50 wanted)\n", (double)(now - when) * 1e-6);
    ck_assert_uint_lt(now - when, 500 * KC_MILLISECOND); /* ten times what is expected */
    console_answer_free(&a);
}
END_TEST

START_TEST(wait_ends_with_the_outcome)
{
    static const struct {
        const char *state;
        int code, with_condition;
    } cases[] = {{"finished", 0, 1}, {"stopped", 0, 1}, {"failed", 1, 1}, {"interrupted", 1, 1}};
    struct console_answer a;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        console_home_job(&home, "demo-1", cases[i].state, 3, 300);
        CONSOLE_RUN(&a, "wait", "demo-1");
        ck_assert_msg(a.code == cases[i].code, "%s: %d %s", cases[i].state, a.code, a.err);
        ck_assert_ptr_nonnull(strstr(a.err, cases[i].state));
        console_answer_free(&a);
        CONSOLE_RUN(&a, "wait", "demo-1", "--for", "step>=200");
        ck_assert_int_eq(a.code, cases[i].with_condition);
        console_answer_free(&a);
        CONSOLE_RUN(&a, "wait", "demo-1", "--for", "step>=3");
        ck_assert_int_eq(a.code, 0);
        console_answer_free(&a);
    }
    console_home_job(&home, "demo-1", "paused", 3, 300);
    CONSOLE_RUN(&a, "wait", "demo-1", "--timeout", "60ms", "--json");
    ck_assert_int_eq(a.code, KC_EXIT_TIMEOUT);
    ck_assert_ptr_nonnull(strstr(a.out, "\"code\":7"));
    console_answer_free(&a);
}
END_TEST

/* F35: an end whose last snapshot failed is told as one, whichever file could still be written. */
START_TEST(f35_an_end_without_its_snapshot_is_exit_1)
{
    struct console_answer a;
    static const char events[] = "{\"event\":\"snapshot-failed\",\"text\":\"no space left for v1\"}\n"
                                 "{\"event\":\"snapshot-failed\",\"text\":\"no space left for v2\"}\n"
                                 "{\"event\":\"state\",\"state\":\"finished\"}\n";
    console_home_job(&home, "demo-1", "finished", 3, 3);
    console_home_write(&home, "jobs/demo-1/result.json",
                       "{\"schema\":1,\"id\":\"demo-1\",\"state\":\"finished\",\"exit_code\":1,\"step\":3}");
    console_home_write(&home, "jobs/demo-1/events.jsonl", events);
    for (int i = 0; i < 2; i++) {
        CONSOLE_RUN(&a, i ? "show" : "wait", "demo-1");
        ck_assert_int_eq(a.code, i ? 0 : 1);
        ck_assert_msg(strstr(i ? a.out : a.err, "The last snapshot failed: no space left for v2"), "%s%s", a.out,
                      a.err);
        console_answer_free(&a);
    }
    console_home_job(&home, "demo-1", "stopped", 3, 300);
    console_home_write(&home, "jobs/demo-1/state.json",
                       "{\"schema\":1,\"id\":\"demo-1\",\"state\":\"stopped\",\"exit_code\":1,\"incarnation\":1,"
                       "\"ranks\":2,\"processes\":[]}");
    console_home_write(&home, "jobs/demo-1/result.json", "");
    CONSOLE_RUN(&a, "wait", "demo-1");
    ck_assert_int_eq(a.code, 1);
    console_answer_free(&a);
    json_t *ps = JSON(0, "ps"), *job = json_array_get(json_object_get(ps, "jobs"), 0);
    const json_t *ranks = json_object_get(job, "ranks"), *one = json_array_get(ranks, 1);
    ck_assert_uint_eq(json_array_size(ranks), 2);
    ck_assert_str_eq(kc_json_text(one, "state", ""), "exited");
    ck_assert(json_is_null(json_object_get(one, "pid")) && json_is_null(json_object_get(one, "step")));
    json_decref(ps);
}
END_TEST

/* While it trains on: how many have failed since the last that did not, by what rank 0 says. */
START_TEST(f35_snapshots_that_fail_are_told_while_it_trains)
{
    struct console_answer a;
    static const char events[] = "{\"event\":\"snapshot-failed\",\"rank\":0,\"step\":10,\"text\":\"before\"}\n"
                                 "{\"event\":\"snapshot\",\"rank\":0,\"step\":20}\n"
                                 "{\"event\":\"snapshot-failed\",\"rank\":0,\"step\":30,\"text\":\"no space\"}\n"
                                 "{\"event\":\"snapshot-failed\",\"rank\":1,\"step\":30,\"text\":\"no space\"}\n"
                                 "{\"event\":\"snapshot-failed\",\"rank\":0,\"step\":40,\"text\":\"needs 5 MiB, 0 free\"}\n";
    console_home_job(&home, "demo-1", "running", 45, 300);
    console_home_write(&home, "jobs/demo-1/events.jsonl", events);
    CONSOLE_RUN(&a, "show", "demo-1");
    ck_assert_msg(strstr(a.out, "saving      the last 2 snapshots failed, the newest of step 40: needs 5 MiB, 0 free\n"), "%s", a.out);
    console_answer_free(&a);
    CONSOLE_RUN(&a, "ps");
    ck_assert_msg(strstr(a.out, "  2 snapshots failed\n"), "%s", a.out);
    console_answer_free(&a);
    console_home_write(&home, "jobs/demo-1/events.jsonl", "{\"event\":\"snapshot-failed\",\"rank\":0,\"step\":40,\"text\":\"x\"}\n"
                                                          "{\"event\":\"snapshot\",\"rank\":0,\"step\":50}\n");
    CONSOLE_RUN(&a, "show", "demo-1");
    ck_assert_msg(!strstr(a.out, "failed"), "%s", a.out);
    console_answer_free(&a);
}
END_TEST

/* The last line that a full disk took is not of the step at which the job ended: its figures are not the end's. */
START_TEST(figures_of_another_step_are_not_the_ends)
{
    struct console_answer a;
    for (int last = 3; last <= 5; last += 2) {
        char line[160];
        console_home_job(&home, "demo-1", "finished", 5, 5);
        snprintf(line, sizeof line, "{\"step\":%d,\"loss\":2.5,\"grad_norm\":1,\"lr\":0.1,\"tokens\":4,\"seconds\":1}\n", last);
        console_home_write(&home, "jobs/demo-1/metrics.jsonl", line);
        console_home_write(&home, "jobs/demo-1/result.json",
                           "{\"schema\":1,\"id\":\"demo-1\",\"state\":\"finished\",\"exit_code\":0,\"step\":5,\"loss\":null}");
        CONSOLE_RUN(&a, "wait", "demo-1");
        ck_assert_msg(strstr(a.err, last == 5 ? "at step 5/5: loss 2.5000" : "at step 5/5: loss -,"), "%s", a.err);
        console_answer_free(&a);
    }
}
END_TEST

START_TEST(a_failed_job_is_shown_with_the_next_step)
{
    struct console_answer a;
    console_home_job(&home, "demo-1", "failed", 3, 300);
    console_home_write(&home, "jobs/demo-1/result.json",
                       "{\"schema\":1,\"id\":\"demo-1\",\"state\":\"failed\",\"exit_code\":1,\"step\":3,"
                       "\"first_failure\":{\"rank\":1,\"step\":3,\"phase\":\"backward\",\"reason\":\"killed\","
                       "\"text\":\"rank 1 was killed\",\"followers\":1}}");
    CONSOLE_RUN(&a, "show", "demo-1");
    ck_assert_msg(strstr(a.out, "kc resume demo-1 tries again"), "%s", a.out);
    ck_assert_msg(strstr(a.out, "kc log demo-1/1 "), "%s", a.out);
    console_answer_free(&a);
    console_home_job(&home, "demo-1", "queued", 0, 300); /* its step is not known: none is told */
    CONSOLE_RUN(&a, "wait", "demo-1", "--timeout", "0");
    ck_assert_msg(a.code == KC_EXIT_TIMEOUT && strstr(a.err, "demo-1 is queued; the time is over"), "%s", a.err);
    console_answer_free(&a);
}
END_TEST

static void *interrupt_later(void *arg)
{
    (void)arg;
    struct timespec nap = {.tv_nsec = 150000000};
    nanosleep(&nap, NULL);
    kill(getpid(), SIGINT);
    return NULL;
}

START_TEST(ctrl_c_leaves_the_job_and_says_so)
{
    static const char *const cases[][5] = {{"wait", "demo-1"}, {"log", "demo-1", "-f"}};
    for (size_t i = 0; i < 2; i++) {
        struct console_answer a;
        pthread_t thread;
        console_home_job(&home, "demo-1", "paused", 3, 300);
        pthread_create(&thread, NULL, interrupt_later, NULL);
        console_run(&a, cases[i]);
        pthread_join(thread, NULL);
        ck_assert_int_eq(a.code, KC_EXIT_INTERRUPTED);
        ck_assert_ptr_nonnull(strstr(a.err, "job demo-1 goes on"));
        console_answer_free(&a);
    }
}
END_TEST

/* ---- logs ------------------------------------------------------------------------------------------------------ */

/* F54: into a pipe go plain lines: what the ranks wrote, byte for byte, and nothing of ours that steers a
 * terminal. */
START_TEST(f54_no_control_codes_in_a_pipe)
{
    struct console_answer a;
    console_home_job(&home, "demo-1", "finished", 3, 300);
    console_home_write(&home, "jobs/demo-1/rank-0.log", "hello\nlast");
    console_home_write(&home, "jobs/demo-1/rank-1.log", "there\n");
    console_home_write(&home, "jobs/demo-1/rank-0.log.1", "older\n");
    CONSOLE_RUN(&a, "log", "demo-1");
    ck_assert_str_eq(a.out, "0| older\n0| hello\n0| last\n1| there\n");
    console_answer_free(&a);
    CONSOLE_RUN(&a, "log", "demo-1/1");
    ck_assert_str_eq(a.out, "there\n");
    console_answer_free(&a);
    static const char *const verbs[][3] = {{"ps"},   {"show", "demo-1"}, {"wait", "demo-1"},
                                           {"node"}, {"metrics"},        {"help"}};
    for (size_t i = 0; i < sizeof verbs / sizeof verbs[0]; i++) {
        console_run(&a, verbs[i]);
        for (size_t k = 0; k < a.out_bytes; k++)
            ck_assert_msg(a.out[k] == '\n' || (unsigned char)a.out[k] >= 0x20, "%s: %#x", verbs[i][0], a.out[k]);
        console_answer_free(&a);
    }
}
END_TEST

START_TEST(a_log_in_json_is_valid_whatever_it_holds)
{
    console_home_job(&home, "demo-1", "finished", 3, 300);
    console_home_write(&home, "jobs/demo-1/rank-0.log", "bad \377 \033[31m\nfine\n");
    json_t *o = JSON(0, "log", "demo-1/0"), *lines = json_object_get(o, "lines");
    ck_assert_uint_eq(json_array_size(lines), 2);
    ck_assert_str_eq(kc_json_text(json_array_get(lines, 0), "text", ""), "bad \\xff \\x1b[31m");
    json_decref(o);
    struct console_answer a;
    CONSOLE_RUN(&a, "log", "demo-1", "-f", "--json"); /* an ended job: comes to its end; an object a line */
    ck_assert_int_eq(a.code, 0);
    char *save = NULL;
    int count = 0;
    for (char *line = strtok_r(a.out, "\n", &save); line; line = strtok_r(NULL, "\n", &save), count++) {
        o = json_loads(line, 0, NULL);
        ck_assert_str_eq(kc_json_text(o, "schema", ""), "kc.log/1");
        json_decref(o);
    }
    ck_assert_int_eq(count, 2);
    console_answer_free(&a);
    CONSOLE_RUN(&a, "log", "demo-1/7");
    ck_assert_int_eq(a.code, KC_EXIT_NO_OBJECT);
    console_answer_free(&a);
    CONSOLE_RUN(&a, "log", "demo-1/x");
    ck_assert_int_eq(a.code, KC_EXIT_USAGE);
    console_answer_free(&a);
}
END_TEST

/* Of a rank that took longest; what is not known is not told. */
START_TEST(what_saving_costs_is_told_of_the_slowest_rank)
{
    struct job_rank rank[2];
    struct job j = {.ranks_known = 2, .rank = rank};
    struct saving s;
    char text[160];
    for (int i = 0; i < 2; i++) {
        job_rank_clear(&rank[i], i);
        rank[i].metric[KC_METRIC_SNAPSHOT_STAGE] = KC_SAVING_WRITING;
        rank[i].metric[KC_METRIC_SNAPSHOTS_SKIPPED] = 0;
    }
    saving_of(&j, &s);
    saving_text(&s, text, sizeof text);
    ck_assert_str_eq(text, "");
    ck_assert_str_eq(saving_stage(&s), "writing");
    for (int i = 0; i < 2; i++) {
        rank[i].metric[KC_METRIC_SNAPSHOT_STALL_SECONDS] = i ? 0.25 : 0.125;
        rank[i].metric[KC_METRIC_SNAPSHOT_COPY_SECONDS] = 0.5;
        rank[i].metric[KC_METRIC_SNAPSHOT_WRITE_SECONDS] = 2;
        rank[i].metric[KC_METRIC_SNAPSHOT_BYTES] = 3 << 20;
        rank[i].metric[KC_METRIC_SNAPSHOT_RAW_BYTES] = 9 << 20;
        rank[i].metric[KC_METRIC_SNAPSHOTS_SKIPPED] = 4;
    }
    saving_of(&j, &s);
    saving_text(&s, text, sizeof text);
    ck_assert_str_eq(text, "training stood 250 ms; copied in 500 ms, written in 2.0 s, 3.0 MiB for 9.0 MiB; 4 left out");
    j.ranks_known = 0;
    saving_of(&j, &s);
    json_t *o = saving_json(&s);
    ck_assert(json_is_null(o) && !saving_stage(&s));
    json_decref(o);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("console model");
    TCase *t = tcase_create("model");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_set_timeout(t, 60);
    tcase_add_test(t, files_alone_tell_a_job);
    tcase_add_test(t, a_job_that_does_not_run_has_no_speed);
    tcase_add_test(t, snapshots_are_found_without_a_board);
    tcase_add_test(t, snapshots_are_shown_and_compared);
    tcase_add_test(t, what_others_lean_on_stays_and_is_told);
    tcase_add_test(t, f25_a_straggler_is_told_wherever_ranks_are);
    tcase_add_test(t, f22_ordinary_waits_within_a_rank_are_not_told);
    tcase_add_test(t, the_last_fault_is_not_the_state);
    tcase_add_test(t, a_queued_job_has_its_place);
    tcase_add_test(t, node_tells_devices_with_and_without_kcd);
    tcase_add_test(t, half_written_files_are_unknown);
    tcase_add_test(t, a_mistyped_job_is_told_with_the_nearest);
    tcase_add_test(t, a_running_job_is_read_from_its_board);
    tcase_add_test(t, what_is_left_goes_by_the_last_minute);
    tcase_add_test(t, the_load_of_experts_is_shown);
    tcase_add_test(t, f22_show_says_who_waits_for_what);
    tcase_add_test(t, f57_all_verbs_say_the_same);
    tcase_add_test(t, a_hang_is_told_wherever_a_job_is);
    tcase_add_test(t, a_board_of_another_version_is_told);
    tcase_add_test(t, metrics_follow_the_format);
    tcase_add_test(t, wait_returns_soon_after_the_fact);
    tcase_add_test(t, wait_ends_with_the_outcome);
    tcase_add_test(t, figures_of_another_step_are_not_the_ends);
    tcase_add_test(t, a_failed_job_is_shown_with_the_next_step);
    tcase_add_test(t, f35_an_end_without_its_snapshot_is_exit_1);
    tcase_add_test(t, f35_snapshots_that_fail_are_told_while_it_trains);
    tcase_add_test(t, ctrl_c_leaves_the_job_and_says_so);
    tcase_add_test(t, what_saving_costs_is_told_of_the_slowest_rank);
    tcase_add_test(t, f54_no_control_codes_in_a_pipe);
    tcase_add_test(t, a_log_in_json_is_valid_whatever_it_holds);
    suite_add_tcase(s, t);
    return suite_run(s);
}
