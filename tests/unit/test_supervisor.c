/* test_supervisor.c - the supervisor's pure parts: the life-cycle table, first failures, ids, logs, metrics lines,
 * the environment of ranks, records, the control connection. What needs processes is in
 * tests/flow/test_supervisor.py. */
#include "supervisor/environment.h"
#include "supervisor/failure.h"
#include "supervisor/ids.h"
#include "supervisor/journal.h"
#include "supervisor/life.h"
#include "supervisor/link.h"
#include "supervisor/metrics_file.h"
#include "supervisor/outcome.h"
#include "supervisor/process.h"
#include "supervisor/rank_log.h"
#include "supervisor/record.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/home.h"
#include "base/socket.h"
#include "govern/spec.h"
#include "tests/unit/suite.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char folder[64];

static void setup(void)
{
    snprintf(folder, sizeof folder, "/tmp/kc-supervisor-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
}

static void teardown(void)
{
    pid_t pid = fork();
    if (pid == 0) {
        execlp("rm", "rm", "-rf", folder, (char *)NULL);
        _exit(127);
    }
    waitpid(pid, NULL, 0);
}

static const char *in_folder(const char *name)
{
    static char path[4][160];
    static int turn;
    turn = (turn + 1) % 4;
    snprintf(path[turn], sizeof path[turn], "%s/%s", folder, name);
    return path[turn];
}

static char *text_of(const char *path)
{
    char *text;
    size_t bytes;
    ck_assert_int_eq(kc_file_read(path, 16 << 20, &text, &bytes), 0);
    return text;
}

/* ---- the life cycle ---- */

/* The whole table, a row a state: B bug, n nothing, a already, R refuse, L launch, r run, m mark-hold, c clear-hold,
 * h hold, H note-held, g release, s save, j join-stop, S agree-stop, q end-queued, E end-group, f fold, K keep,
 * D decide, C conclude, V recover, Q requeue, x delete, I interrupt. Written from the requirements, not from the code. */
START_TEST(test_every_cell)
{
    static const char letters[] = "BnaRLrmchHgsjSqEfKDCVQxI";
    static const struct {
        enum kc_job_state state;
        const char *actions; /* leased ready held pause resume checkpoint stop remove rank-lost rank-fatal all-left
                                group-gone kept keeper-lost rebooted */
    } rows[] = {
        {KC_JOB_QUEUED, "LBBmcRqRBBBBBVI"},   {KC_JOB_STARTING, "BrHhgsSREEKBCVI"},
        {KC_JOB_RUNNING, "BnHhgsSREEKBCVI"},  {KC_JOB_PAUSED, "BnnagsSREEKBCVI"},
        {KC_JOB_STOPPING, "BnnRRsjREEKKCVI"}, {KC_JOB_RESTARTING, "BnnhgsjRffBKDVI"},
        {KC_JOB_FINISHED, "BBBRRRaxBBBBBnn"}, {KC_JOB_STOPPED, "BBBRQRaxBBBBBnn"},
        {KC_JOB_FAILED, "BBBRQRaxBBBBBnn"},   {KC_JOB_INTERRUPTED, "BBBRQRaxBBBBBnn"},
        {KC_JOB_UNKNOWN, "BBBBBBBBBBBBBBB"},
    };
    ck_assert_uint_eq(sizeof rows / sizeof *rows, KC_JOB_STATES);
    ck_assert_uint_eq(strlen(letters), KC_LIFE_ACTIONS);
    for (size_t i = 0; i < KC_JOB_STATES; i++) {
        ck_assert_uint_eq(strlen(rows[i].actions), KC_LIFE_EVENTS);
        for (unsigned e = 0; e < KC_LIFE_EVENTS; e++) {
            const struct kc_life_cell *cell = kc_life_cell(rows[i].state, e);
            ck_assert_msg(letters[cell->action] == rows[i].actions[e], "%s × %s is %s",
                          kc_job_state_name[rows[i].state], kc_life_event_name[e], kc_life_action_name[cell->action]);
        }
    }
}
END_TEST

START_TEST(test_cells_are_consistent)
{
    for (unsigned s = 0; s < KC_JOB_STATES; s++) {
        for (unsigned e = 0; e < KC_LIFE_EVENTS; e++) {
            const struct kc_life_cell *c = kc_life_cell(s, e);
            if (c->action == KC_DO_REFUSE || c->action == KC_DO_ALREADY) {
                ck_assert_ptr_nonnull(c->note); /* a person is told why */
                ck_assert_int_eq(c->next, s);   /* and nothing changes */
            }
            if (kc_job_state_row[s].ended && c->action != KC_DO_REQUEUE && c->action != KC_DO_BUG)
                ck_assert_int_eq(c->next, s);
            if (c->action == KC_DO_DECIDE || c->action == KC_DO_CONCLUDE || c->action == KC_DO_RECOVER)
                ck_assert_int_eq(c->next, KC_JOB_STATES);
        }
    }
    ck_assert_int_eq(kc_life_cell(KC_JOB_STATES, 0)->action, KC_DO_BUG);
    ck_assert_int_eq(kc_life_cell(0, KC_LIFE_EVENTS)->action, KC_DO_BUG);
    ck_assert_int_eq(kc_life_cell(KC_JOB_STARTING, KC_LIFE_READY)->next, KC_JOB_RUNNING);
    ck_assert_int_eq(kc_life_cell(KC_JOB_PAUSED, KC_LIFE_RESUME)->next, KC_JOB_RUNNING);
    ck_assert_int_eq(kc_life_cell(KC_JOB_RUNNING, KC_LIFE_HELD)->next, KC_JOB_PAUSED);
    ck_assert_int_eq(kc_life_cell(KC_JOB_PAUSED, KC_LIFE_STOP)->next, KC_JOB_STOPPING);
    ck_assert_int_eq(kc_life_cell(KC_JOB_STOPPING, KC_LIFE_RANK_LOST)->next, KC_JOB_STOPPING);
}
END_TEST

/* ---- first failures ---- */

static struct kc_rank_end killed(uint64_t seen, int signal)
{
    return (struct kc_rank_end){
        .gone = true, .known = true, .signal = signal, .seen = seen, .step = 7, .phase = KC_PHASE_BACKWARD};
}

static struct kc_rank_end says(enum kc_reason reason, uint64_t time, uint64_t seen, int code, const char *text)
{
    struct kc_rank_end e = {.gone = true, .known = true, .exit_code = code, .seen = seen, .step = 9};
    e.words =
        (struct kc_last_words){.reason = reason, .time = time, .step = 8, .phase = KC_PHASE_FORWARD, .peer = -1};
    snprintf(e.words.text, sizeof e.words.text, "%s", text);
    return e;
}

START_TEST(test_first_by_time_not_by_rank)
{
    struct kc_rank_end ends[] = {says(KC_REASON_ERROR, 300, 400, 1, "late"),
                                 says(KC_REASON_ERROR, 200, 500, 1, "early"),
                                 says(KC_REASON_FINISHED, 100, 100, 0, "")};
    struct kc_verdict v;
    kc_failure_name(ends, 3, &v);
    ck_assert_int_eq(v.rank, 1);
    ck_assert_uint_eq(v.step, 8);
    ck_assert_uint_eq(v.followers, 1);
    ck_assert_int_eq(v.reason, KC_REASON_ERROR);
    ck_assert_str_eq(v.text, "rank 1 at step 8 in phase forward: error: early; and 1 other followed");
}
END_TEST

/* F07, F11: who left because of a peer, or was ended by us, is never first, however early it is seen. */
START_TEST(test_followers_are_never_first)
{
    struct kc_rank_end ends[] = {says(KC_REASON_PEER, 10, 20, 1, "peer"), killed(900, SIGKILL),
                                 says(KC_REASON_ENDED, 5, 6, 1, ""), killed(30, SIGTERM)};
    ends[3].ended_by_us = true;
    struct kc_verdict v;
    kc_failure_name(ends, 4, &v);
    ck_assert_int_eq(v.rank, 1);
    ck_assert(v.cause && v.outside);
    ck_assert_uint_eq(v.followers, 3);
    ck_assert_ptr_nonnull(strstr(v.text, "and 3 others followed"));
    ends[1] = says(KC_REASON_STOPPED, 1, 1, 0, "");
    kc_failure_name(ends, 4, &v); /* no cause is left: the earliest of the rest, and it is said not to be one */
    ck_assert_int_eq(v.rank, 2);
    ck_assert(!v.cause);
}
END_TEST

/* F08: the signal is named; out of memory is said with its evidence only. */
START_TEST(test_signals_are_named)
{
    struct kc_verdict v;
    struct kc_rank_end e = killed(1, SIGKILL);
    kc_failure_name(&e, 1, &v);
    ck_assert_str_eq(v.text, "rank 0 at step 7 in phase backward: killed by someone (signal 9, SIGKILL)");
    ck_assert(v.outside);
    snprintf(e.oom_evidence, sizeof e.oom_evidence, "oom_kill rose by 1, which of 2 that were killed is not known");
    kc_failure_name(&e, 1, &v);
    ck_assert_str_eq(v.detail, "killed by someone (signal 9, SIGKILL); oom_kill rose by 1, which of 2 that were killed is not known");
    e.killed = true;
    e.oom = KC_OOM_LIKELY;
    snprintf(e.oom_evidence, sizeof e.oom_evidence, "oom_kill of its control group rose by 1");
    kc_failure_name(&e, 1, &v);
    ck_assert_str_eq(v.detail, "killed by the kernel, out of memory (likely: oom_kill of its control group rose by 1)");
    e.oom = KC_OOM_CERTAIN;
    snprintf(e.oom_evidence, sizeof e.oom_evidence, "the kernel's log names pid 123");
    kc_failure_name(&e, 1, &v);
    ck_assert_str_eq(v.detail, "killed by the kernel, out of memory (certain: the kernel's log names pid 123)");
    ck_assert(!v.outside); /* what a rank needs at a step it needs again */
    e = killed(1, SIGBUS);
    kc_failure_name(&e, 1, &v);
    ck_assert_ptr_nonnull(strstr(v.text, "signal 7, SIGBUS"));
    ck_assert_int_eq(v.reason, KC_REASON_SIGNAL);
    ck_assert(!v.outside);
    e = (struct kc_rank_end){.gone = true, .known = true, .seen = 1}; /* exit code 0, but not a word */
    kc_failure_name(&e, 1, &v);
    ck_assert_ptr_nonnull(strstr(v.text, "exit code 0 before the job was done"));
    ck_assert(!kc_rank_ended_well(&e));
    e = says(KC_REASON_FINISHED, 1, 2, 0, "");
    ck_assert(kc_rank_ended_well(&e));
    kc_failure_name(&e, 1, &v);
    ck_assert_int_eq(v.rank, -1);
    e.words.reason = 4000; /* scribbled over */
    kc_failure_name(&e, 1, &v);
    ck_assert_int_eq(v.rank, 0);
}
END_TEST

/* A phase that says nothing is left out; an address is told where si_addr is one: SIGABRT's is the sender's pid. */
START_TEST(test_what_is_not_known_is_not_told)
{
    struct kc_verdict v;
    struct kc_rank_end e = killed(1, SIGKILL);
    e.phase = KC_PHASE_NONE;
    kc_failure_name(&e, 1, &v);
    ck_assert_str_eq(v.text, "rank 0 at step 7: killed by someone (signal 9, SIGKILL)");
    e.ended_by_us = true; /* a stop whose grace was over: that someone is the keeper */
    kc_failure_name(&e, 1, &v);
    ck_assert_ptr_nonnull(strstr(v.text, "did not end when it was told to, and was killed for it"));
    ck_assert(v.alone);
    struct kc_rank_end two[3] = {e, e, e}; /* which of them held the others up nobody knows: no rank is blamed */
    kc_failure_name(two, 3, &v);
    ck_assert_str_eq(v.text, "3 ranks did not end when they were told to, and were killed for it (signal 9, SIGKILL)");
    ck_assert(!v.alone && !v.cause);
    two[1] = says(KC_REASON_STOPPED, 1, 2, 0, ""); /* the others left as they were told: it was this one */
    two[2] = two[1];
    kc_failure_name(two, 3, &v);
    ck_assert_int_eq(v.rank, 0);
    ck_assert(v.alone);
    e.killed = true; /* within the grace, by somebody else */
    kc_failure_name(&e, 1, &v);
    ck_assert_ptr_nonnull(strstr(v.text, "killed by someone"));
    e = says(KC_REASON_SIGNAL, 1, 2, 1, "");
    e.words.fault = 4711;
    const int with[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL}, without[] = {SIGABRT, SIGSYS, SIGTRAP};
    for (size_t i = 0; i < 4; i++) {
        e.words.signal = with[i];
        kc_failure_name(&e, 1, &v);
        ck_assert_ptr_nonnull(strstr(v.text, "at address 0x1267"));
    }
    for (size_t i = 0; i < 3; i++) {
        e.words.signal = without[i];
        kc_failure_name(&e, 1, &v);
        ck_assert_ptr_null(strstr(v.text, "address"));
        ck_assert_ptr_nonnull(strstr(v.text, "died of signal"));
    }
    e = (struct kc_rank_end){.gone = true, .known = true, .exit_code = 2, .seen = 1, .line = "no board"};
    kc_failure_name(&e, 1, &v);
    ck_assert_str_eq(v.detail, "left with exit code 2 without a word; the last it printed: no board");
}
END_TEST

/* What no rank is to blame for is a failure all the same, in the record as on the way back. */
START_TEST(test_words_that_were_cut_end_at_a_word)
{
    struct kc_rank_end end = says(KC_REASON_ERROR, 1, 1, 1, "");
    struct kc_verdict v;
    const size_t full = sizeof end.words.text - 1;
    memset(end.words.text, 'x', full);
    end.words.text[100] = ' ';
    kc_failure_name(&end, 1, &v);
    ck_assert_msg(strstr(v.text, "x …") && strlen(v.detail) < full, "%s", v.text);
    end.words.text[full - 1] = 0; /* it fits */
    kc_failure_name(&end, 1, &v);
    ck_assert_msg(!strstr(v.text, "…"), "%s", v.text);
}
END_TEST

START_TEST(test_failure_of_no_rank)
{
    struct kc_verdict v = kc_failure_other(KC_REASON_KEEPER, KC_PHASE_NONE, 5, "the keeper (pid 7) was lost at step 5"),
                      none = {.rank = -1};
    ck_assert(kc_verdict_failed(&v) && !kc_verdict_failed(&none));
    ck_assert_int_eq(kc_failure_fault(&v, true), KC_FAULT_KEEPER);
    json_t *o = kc_record_failure(&v);
    ck_assert(json_is_null(json_object_get(o, "rank")));
    ck_assert_str_eq(kc_json_text(o, "reason", ""), "keeper-gone");
    ck_assert_int_eq(kc_json_integer(o, "step", 0), 5);
    json_decref(o);
    ck_assert(json_is_null(kc_record_failure(&none)));
    struct kc_record r = {.state = KC_JOB_RUNNING, .ranks = 1, .failure = v, .unbegun = true, .lost = 7}, back;
    snprintf(r.directory, sizeof r.directory, "%s", folder);
    snprintf(r.id, sizeof r.id, "n-1");
    ck_assert_int_eq(kc_record_write(&r, NULL), 0);
    ck_assert_int_eq(kc_record_read(folder, &back, NULL), 0);
    ck_assert_int_eq(back.failure.rank, -1);
    ck_assert(kc_verdict_failed(&back.failure) && back.unbegun && back.lost == 7);
    ck_assert_str_eq(back.failure.text, v.text);
}
END_TEST

/* F24: a snapshot stops the clock, but not for ever. */
START_TEST(test_grace)
{
    struct kc_grace g = {.left = 10, .pardon = 100};
    ck_assert(!kc_grace_over(&g, 9, false));
    ck_assert(!kc_grace_over(&g, 60, true));
    ck_assert_uint_eq(g.left, 1);
    ck_assert(!kc_grace_over(&g, 39, true));
    ck_assert_uint_eq(g.pardon, 1);
    ck_assert(kc_grace_over(&g, 1, true)); /* a writer that hangs */
    ck_assert_uint_eq(g.left, 0);
    g = (struct kc_grace){.left = 10, .pardon = 100};
    ck_assert(kc_grace_over(&g, UINT64_MAX, false));
}
END_TEST

START_TEST(test_faults)
{
    struct kc_verdict v = {.reason = KC_REASON_SIGNAL};
    ck_assert_int_eq(kc_failure_fault(&v, true), KC_FAULT_CRASH);
    ck_assert_int_eq(kc_failure_fault(&v, false), KC_FAULT_START);
    v.reason = KC_REASON_DATA;
    ck_assert_int_eq(kc_failure_fault(&v, true), KC_FAULT_DATA);
    v.reason = KC_REASON_PLAN;
    ck_assert_int_eq(kc_failure_fault(&v, true), KC_FAULT_SPEC);
    v.reason = KC_REASON_KEEPER;
    ck_assert_int_eq(kc_failure_fault(&v, true), KC_FAULT_KEEPER);
}
END_TEST

/* ---- ids ---- */

START_TEST(test_ids_rise_and_are_never_reused)
{
    char id[KC_ID_ROOM];
    struct kc_error e;
    ck_assert_int_eq(kc_id_claim(folder, "a", id, sizeof id, &e), 0);
    ck_assert_str_eq(id, "a-1");
    ck_assert_int_eq(kc_id_claim(folder, "a-b", id, sizeof id, &e), 0); /* another name, though it begins alike */
    ck_assert_str_eq(id, "a-b-1");
    ck_assert_int_eq(kc_id_claim(folder, "a", id, sizeof id, &e), 0);
    ck_assert_str_eq(id, "a-2");
    ck_assert_int_eq(kc_id_remove(folder, "a-2", &e), 0);
    ck_assert_int_eq(kc_id_remove(folder, "a-1", &e), 0); /* a lower one later must not bring a-2 back */
    ck_assert_int_eq(kc_id_claim(folder, "a", id, sizeof id, &e), 0);
    ck_assert_str_eq(id, "a-3");
    ck_assert_int_eq(mkdir(in_folder("jobs/a-11"), 0700), 0); /* another node's */
    ck_assert_int_eq(kc_id_claim(folder, "a", id, sizeof id, &e), 0);
    ck_assert_str_eq(id, "a-12");
    ck_assert_int_eq(kc_id_remove(folder, "a-2", &e), -ENOENT);
    ck_assert_int_eq(kc_id_remove(folder, "../a-3", &e), -ENOENT);
    ck_assert_int_eq(kc_id_claim(folder, "No", id, sizeof id, &e), -EINVAL);
}
END_TEST

/* Two nodes claim at once: mkdir decides. */
START_TEST(test_ids_are_claimed_once)
{
    for (int child = 0; child < 4; child++) {
        if (fork() != 0)
            continue;
        char id[KC_ID_ROOM];
        for (int i = 0; i < 20; i++)
            if (kc_id_claim(folder, "x", id, sizeof id, NULL) < 0)
                _exit(1);
        _exit(0);
    }
    for (int child = 0; child < 4; child++) {
        int status;
        wait(&status);
        ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    char id[KC_ID_ROOM];
    ck_assert_int_eq(kc_id_claim(folder, "x", id, sizeof id, NULL), 0);
    ck_assert_str_eq(id, "x-81");
}
END_TEST

/* ---- metrics.jsonl ---- */

static struct kc_step_record step_record(uint64_t step)
{
    return (struct kc_step_record){
        .step = step, .loss = 1.0 / 3, .grad_norm = 2, .lr = 1e-3, .tokens = 1024, .seconds = 0.25};
}

START_TEST(test_metrics_lines)
{
    char line[512];
    struct kc_step_record r = step_record(12);
    ck_assert_int_gt(kc_metrics_step_line(&r, line, sizeof line), 0);
    ck_assert_str_eq(
        line, "{\"step\":12,\"loss\":0.33333333333333331,\"grad_norm\":2.0,\"lr\":0.001,\"tokens\":1024,\"seconds\":0.25,"
              "\"tokens_per_second\":4096.0}\n");
    r.loss = NAN;
    r.grad_norm = INFINITY;
    r.seconds = 0;
    kc_metrics_step_line(&r, line, sizeof line);
    ck_assert_str_eq(line,
                     "{\"step\":12,\"loss\":null,\"grad_norm\":null,\"lr\":0.001,\"tokens\":1024,\"seconds\":0.0,"
                     "\"tokens_per_second\":null}\n");
    r = step_record(12);
    r.imbalance = 1.5; /* of a model with experts */
    kc_metrics_step_line(&r, line, sizeof line);
    ck_assert_ptr_nonnull(strstr(line, "\"tokens_per_second\":4096.0,\"expert_imbalance\":1.5}\n"));
    struct kc_evaluation v = {.step = 100, .loss = 2.5};
    kc_metrics_evaluation_line(&v, line, sizeof line);
    ck_assert_str_eq(line, "{\"step\":100,\"validation_loss\":2.5}\n");
    ck_assert_int_eq(kc_metrics_evaluation_line(&v, line, 8), -ENOSPC);
}
END_TEST

static void check_steps(const char *path, const int *expected, size_t count)
{
    char *text = text_of(path), *line = text;
    for (size_t i = 0; i < count; i++) {
        json_t *o = json_loadb(line, strcspn(line, "\n"), 0, NULL);
        ck_assert_ptr_nonnull(o);
        int step = (int)kc_json_integer(o, "step", -1);
        ck_assert_int_eq(json_object_get(o, "validation_loss") ? -step : step, expected[i]);
        json_decref(o);
        line += strcspn(line, "\n") + 1;
    }
    ck_assert_str_eq(line, "");
    free(text);
}

/* A restart does steps again: each stands once, evaluations too, also after a keeper that died in the middle of a
 * line. */
START_TEST(test_metrics_are_cut_back)
{
    struct kc_metrics_file f;
    struct kc_evaluation v = {.loss = 1};
    ck_assert_int_eq(kc_metrics_open(&f, folder, NULL), 0);
    for (uint64_t s = 1; s <= 6; s++) {
        struct kc_step_record r = step_record(s);
        ck_assert_int_eq(kc_metrics_step(&f, &r), 0);
        v.step = s;
        if (s % 2 == 0)
            ck_assert_int_eq(kc_metrics_evaluation(&f, &v), 0);
    }
    check_steps(in_folder("metrics.jsonl"), (int[]){1, 2, -2, 3, 4, -4, 5, 6, -6}, 9);
    struct kc_step_record again = step_record(4);
    ck_assert_int_eq(kc_metrics_step(&f, &again), 0); /* restored at 3 */
    check_steps(in_folder("metrics.jsonl"), (int[]){1, 2, -2, 3, 4}, 5);
    v.step = 2;
    ck_assert_int_eq(kc_metrics_evaluation(&f, &v), 0); /* stands already */
    check_steps(in_folder("metrics.jsonl"), (int[]){1, 2, -2, 3, 4}, 5);
    ck_assert_int_eq(kc_metrics_cut(&f, 2), 0);
    check_steps(in_folder("metrics.jsonl"), (int[]){1, 2, -2}, 3);
    ck_assert_int_eq(kc_write_all(f.fd, "{\"step\":3,\"lo", 13), 0);
    kc_metrics_close(&f);
    ck_assert_int_eq(kc_metrics_open(&f, folder, NULL), 0);
    ck_assert_uint_eq(f.step, 2);
    ck_assert_uint_eq(f.evaluated, 2);
    check_steps(in_folder("metrics.jsonl"), (int[]){1, 2, -2}, 3);
    ck_assert_int_eq(kc_metrics_cut(&f, 0), 0);
    check_steps(in_folder("metrics.jsonl"), NULL, 0);
    kc_metrics_close(&f);
}
END_TEST

/* The walk over the lines crosses its buffer's border. */
START_TEST(test_metrics_cut_in_a_long_file)
{
    struct kc_metrics_file f;
    ck_assert_int_eq(kc_metrics_open(&f, folder, NULL), 0);
    for (uint64_t s = 1; s <= 3000; s++) {
        struct kc_step_record r = step_record(s);
        ck_assert_int_eq(kc_metrics_step(&f, &r), 0);
    }
    ck_assert_int_eq(kc_metrics_cut(&f, 2345), 0);
    kc_metrics_close(&f);
    int expected[2345];
    for (int i = 0; i < 2345; i++)
        expected[i] = i + 1;
    check_steps(in_folder("metrics.jsonl"), expected, 2345);
}
END_TEST

/* ---- logs ---- */

START_TEST(test_log_is_turned_over_without_losing_a_line)
{
    struct kc_rank_log log;
    const size_t size = 3 << 20, limit = 1 << 20;
    ck_assert_int_eq(kc_rank_log_open(&log, folder, 4), 0);
    char *text = malloc(size);
    for (size_t i = 0; i < size; i++)
        text[i] = i % 64 == 63 ? '\n' : (char)('a' + i / 64 % 26);
    ck_assert_int_eq(kc_write_all(log.fd, text, size), 0);
    int calls = 0, late = 0;
    while (kc_rank_log_turn(&log, limit, 2)) {
        ck_assert_int_lt(++calls, 100);
        if (!late++)
            ck_assert_int_eq(kc_write_all(log.fd, "while it is moved\n", 18), 0); /* the rank goes on printing */
    }
    ck_assert_int_ge(calls, 2); /* a piece at a time */
    char *old = text_of(in_folder("rank-4.log.1")), *new = text_of(in_folder("rank-4.log"));
    ck_assert_uint_eq(strlen(old) + strlen(new), size + 18);
    ck_assert_int_eq(memcmp(old, text, strlen(old) < size ? strlen(old) : size), 0);
    const char *end = strlen(new) >= 18 ? new + strlen(new) - 18 : old + strlen(old) - 18;
    ck_assert_str_eq(end, "while it is moved\n");
    ck_assert(!kc_rank_log_turn(&log, limit, 2) || strlen(new) > limit);
    free(old);
    free(new);
    ck_assert_int_eq(kc_write_all(log.fd, text, size), 0);
    while (kc_rank_log_turn(&log, limit, 2))
        ;
    ck_assert_int_eq(access(in_folder("rank-4.log.2"), F_OK), 0);
    ck_assert_int_eq(kc_write_all(log.fd, text, size), 0);
    while (kc_rank_log_turn(&log, limit, 2))
        ;
    ck_assert_int_ne(access(in_folder("rank-4.log.3"), F_OK), 0);
    free(text);
    kc_rank_log_close(&log);
}
END_TEST

static const char *last_line(struct kc_rank_log *log, const char *text)
{
    static char out[KC_LAST_LINE_ROOM];
    kc_rank_log_mark(log);
    ck_assert_int_eq(kc_write_all(log->fd, text, strlen(text)), 0);
    kc_rank_log_last(log, out, sizeof out);
    return out;
}

START_TEST(test_last_line)
{
    struct kc_rank_log log;
    char text[9000], expected[KC_LAST_LINE_ROOM];
    ck_assert_int_eq(kc_rank_log_open(&log, folder, 0), 0);
    ck_assert_str_eq(last_line(&log, "first\nno board\n\n \t\r\n"), "no board");
    ck_assert_str_eq(last_line(&log, ""), ""); /* what an earlier incarnation printed is not this one's */
    ck_assert_str_eq(last_line(&log, "\n\n"), "");
    ck_assert_str_eq(last_line(&log, "\x1b[31mred\x7f\tend"), "?[31mred? end");
    ck_assert_str_eq(last_line(&log, "gr\xc3\xbc\xc3\x9f"), "gr\xc3\xbc\xc3\x9f");
    ck_assert_str_eq(last_line(&log, "gr\xfc\xdf \xc3"), "gr?? ?"); /* not UTF-8: JSON could not say it */
    memset(text, 'x', sizeof text);
    memcpy(text + 198, "\xe2\x82\xac", 3);
    text[300] = 0;
    memset(expected, 'x', sizeof expected);
    expected[198] = 0;
    ck_assert_str_eq(last_line(&log, text), expected); /* cut before a character, not in it */
    memset(text, 'y', sizeof text);
    text[sizeof text - 1] = 0;
    ck_assert_uint_eq(strlen(last_line(&log, text)), KC_LAST_LINE_ROOM - 1);
    kc_rank_log_close(&log);
}
END_TEST

START_TEST(test_log_without_old_ones)
{
    struct kc_rank_log log;
    ck_assert_int_eq(kc_rank_log_open(&log, folder, 0), 0);
    ck_assert_int_eq(kc_write_all(log.fd, "0123456789", 10), 0);
    ck_assert(!kc_rank_log_turn(&log, 10, 0));
    struct stat st;
    ck_assert_int_eq(fstat(log.fd, &st), 0);
    ck_assert_int_eq(st.st_size, 10); /* not larger than the limit */
    ck_assert(!kc_rank_log_turn(&log, 9, 0));
    ck_assert_int_eq(fstat(log.fd, &st), 0);
    ck_assert_int_eq(st.st_size, 0);
    kc_rank_log_close(&log);
}
END_TEST

/* ---- environment ---- */

static const char spec_text[] =
    "{\"name\":\"e\",\"ranks\":1,\"steps\":1,\"model\":{\"family\":\"gpt2\",\"layers\":1,\"hidden\":8,\"heads\":1,"
    "\"context\":8,"
    "\"vocab\":256},\"data\":{\"train\":\"t\"},\"batch\":{\"sequences\":1,\"micro\":1},\"optimizer\":{\"lr\":1e-3},"
    "\"env\":{\"LANG\":\"de\",\"MINE\":\"1\"}}";

static const char *value(const struct kc_environment *env, const char *name)
{
    const char *found = NULL;
    for (size_t i = 0; i < env->count; i++) {
        if (strncmp(env->entry[i], name, strlen(name)) == 0 && env->entry[i][strlen(name)] == '=') {
            ck_assert_ptr_null(found); /* once */
            found = env->entry[i] + strlen(name) + 1;
        }
    }
    return found;
}

START_TEST(test_environment_is_an_allow_list)
{
    struct kc_arena arena;
    const struct kc_job_spec *spec;
    struct kc_error e;
    struct kc_environment env;
    char *from[] = {(char *)"PATH=/bin",
                    (char *)"LANG=C",
                    (char *)"LC_ALL=C",
                    (char *)"SECRET=1",
                    (char *)"LD_PRELOAD=x.so",
                    (char *)"ASAN_OPTIONS=a",
                    (char *)"OMP_NUM_THREADS=1",
                    (char *)"KC_TOKEN=foreign",
                    (char *)"broken",
                    NULL};
    ck_assert_int_eq(kc_arena_new(&arena, KC_SPEC_ARENA), 0);
    ck_assert_msg(kc_spec_parse(spec_text, "/x", &arena, &spec, &e) == 0, "%s", e.text);
    ck_assert_int_eq(kc_environment_make(&env, from, spec), 0);
    ck_assert_str_eq(value(&env, "PATH"), "/bin");
    ck_assert_str_eq(value(&env, "LANG"), "de"); /* the spec's wins */
    ck_assert_str_eq(value(&env, "LC_ALL"), "C");
    ck_assert_str_eq(value(&env, "MINE"), "1");
    ck_assert_str_eq(value(&env, "ASAN_OPTIONS"), "a");
    ck_assert_str_eq(value(&env, "OMP_NUM_THREADS"), "1");
    ck_assert_ptr_null(value(&env, "SECRET"));
    ck_assert_ptr_null(value(&env, "LD_PRELOAD"));
    ck_assert_ptr_null(value(&env, "KC_TOKEN"));
    ck_assert_int_eq(kc_environment_set(&env, "MINE", "%d", 2), 0);
    ck_assert_str_eq(value(&env, "MINE"), "2");
    ck_assert_ptr_null(env.entry[env.count]);
    kc_environment_free(&env);
    kc_arena_free(&arena);
    ck_assert(!kc_environment_allowed("PATHS", 5));
    ck_assert(!kc_environment_allowed("LC", 2));
    ck_assert(!kc_environment_allowed("SAN_OPTION", 10));
}
END_TEST

/* ---- records ---- */

START_TEST(test_record_comes_back)
{
    struct kc_record r = {.state = KC_JOB_PAUSED,
                          .ranks = 3,
                          .created = 5,
                          .queued = 6,
                          .keeper = {7, 8},
                          .incarnation = 2,
                          .restarts = 1,
                          .fruitless = 1,
                          .same = 1,
                          .step = 9,
                          .steps = 10,
                          .snapshot_step = 4,
                          .seconds = 1.5,
                          .hold = true,
                          .rank = {{11, 12}, {13, 14}, {15, 16}},
                          .failure = {.rank = 1,
                                      .step = 3,
                                      .reason = KC_REASON_SIGNAL,
                                      .phase = KC_PHASE_OPTIMIZER,
                                      .followers = 2}},
                     back;
    snprintf(r.directory, sizeof r.directory, "%s", folder);
    snprintf(r.id, sizeof r.id, "n-1");
    snprintf(r.name, sizeof r.name, "n");
    snprintf(r.boot, sizeof r.boot, "boot");
    snprintf(r.token, sizeof r.token, "t0");
    snprintf(r.failure.text, sizeof r.failure.text, "why \"so\"\n");
    struct kc_error e;
    ck_assert_int_eq(kc_record_write(&r, &e), 0);
    ck_assert_int_eq(kc_record_read(folder, &back, &e), 0);
    ck_assert_int_eq(back.state, KC_JOB_PAUSED);
    ck_assert_uint_eq(back.queued, 6);
    ck_assert_int_eq(back.keeper.pid, 7);
    ck_assert_uint_eq(back.rank[2].start, 16);
    ck_assert_uint_eq(back.incarnation, 2);
    ck_assert(back.hold && !back.stop);
    ck_assert_str_eq(back.token, "t0");
    ck_assert_int_eq(back.failure.reason, KC_REASON_SIGNAL);
    ck_assert_int_eq(back.failure.phase, KC_PHASE_OPTIMIZER);
    ck_assert_str_eq(back.failure.text, "why \"so\"\n");
    ck_assert(!kc_record_ended(&back));
    r.state = KC_JOB_FAILED;
    r.exit_code = 1;
    ck_assert_int_eq(kc_outcome_write(&r, &kc_outcome_unknown, &e), 0);
    char *text = text_of(in_folder("result.json"));
    json_t *o = json_loads(text, 0, NULL);
    static const char *const keys[] = {"state",           "exit_code",  "step",    "loss",
                                       "validation_loss", "state_root", "seconds", "first_failure"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        ck_assert_ptr_nonnull(json_object_get(o, keys[i]));
    ck_assert(json_is_null(json_object_get(o, "loss")) && json_is_null(json_object_get(o, "state_root")));
    ck_assert_int_eq(kc_json_integer(json_object_get(o, "first_failure"), "rank", -5), 1);
    json_decref(o);
    free(text);
}
END_TEST

START_TEST(test_record_that_is_none)
{
    static const char *const bad[] = {"", "[]", "{}", "{\"id\":\"a-1\",\"state\":\"dancing\",\"ranks\":1}",
                                      "{\"id\":\"a-1\",\"state\":\"unknown\",\"ranks\":1}",
                                      "{\"id\":\"../a\",\"state\":\"failed\",\"ranks\":1}",
                                      "{\"id\":\"a-1\",\"state\":\"failed\",\"ranks\":65}",
                                      "{\"id\":\"a-1\",\"state\":\"failed\",\"ranks\":-1}"};
    struct kc_record r;
    struct kc_error e;
    ck_assert_int_eq(kc_record_read(folder, &r, &e), -ENOENT);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        ck_assert_int_eq(kc_file_replace(in_folder("state.json"), bad[i], strlen(bad[i])), 0);
        ck_assert_int_eq(kc_record_read(folder, &r, &e), -EINVAL);
        ck_assert_ptr_nonnull(strstr(e.text, "state.json"));
    }
}
END_TEST

START_TEST(test_journal_lines)
{
    kc_journal(folder, "one", NULL);
    kc_journal(folder, "two", json_pack("{s:i, s:s}", "rank", 3, "event", "not this"));
    char *text = text_of(in_folder("events.jsonl")), *second = strchr(text, '\n') + 1;
    json_t *o = json_loadb(second, strcspn(second, "\n"), 0, NULL);
    ck_assert_str_eq(kc_json_text(o, "event", ""), "two");
    ck_assert_int_eq(kc_json_integer(o, "rank", 0), 3);
    ck_assert_int_gt(kc_json_integer(o, "monotonic_ns", 0), 0);
    ck_assert_uint_eq(strlen(kc_json_text(o, "time", "")), 24);
    json_decref(o);
    free(text);
}
END_TEST

/* ---- processes ---- */

static bool token_gone(const char *token)
{
    return kc_process_signal_all(token, NULL, 0, 0) == 0;
}

/* F03: by its token a process is found whatever session it fled to, and nobody else is. */
START_TEST(test_processes_are_found_by_token)
{
    char token[KC_TOKEN_ROOM], other[KC_TOKEN_ROOM];
    int ready[2];
    ck_assert_int_eq(kc_token_make(token), 0);
    ck_assert_int_eq(kc_token_make(other), 0);
    ck_assert_str_ne(token, other);
    ck_assert_int_eq(pipe(ready), 0);
    pid_t pid = fork();
    if (pid == 0) {
        char entry[64];
        snprintf(entry, sizeof entry, "KC_TOKEN=%s", token);
        setsid();
        execle("/bin/sh", "sh", "-c", "echo; exec sleep 100", (char *)NULL,
               (char *[]){entry, (char *)"PATH=/usr/bin:/bin", NULL});
        _exit(127);
    }
    uint64_t end = kc_now() + 10 * KC_SECOND;
    while (token_gone(token) && kc_now() < end)
        usleep(1000);
    ck_assert_int_eq(kc_process_signal_all(other, NULL, 0, SIGKILL), 0);
    ck_assert_int_eq(kc_process_signal_all(NULL, NULL, 0, SIGKILL), 0);
    ck_assert_int_eq(kc_process_signal_all(NULL, (pid_t[]){0, pid}, 2, 0), 1); /* by its session */
    struct kc_process p, wrong;
    ck_assert_int_eq(kc_process_identify(pid, &p), 0);
    wrong = p;
    wrong.start++;
    ck_assert_int_eq(kc_process_open(wrong), -ESRCH); /* the pid, but another process */
    int fd = kc_process_open(p);
    ck_assert_int_ge(fd, 0);
    ck_assert(!kc_process_ended(fd));
    ck_assert_int_eq(kc_process_signal_all(token, NULL, 0, SIGKILL), 1);
    while (!kc_process_ended(fd) && kc_now() < end)
        usleep(1000);
    ck_assert(kc_process_ended(fd));
    ck_assert(token_gone(token)); /* a zombie does not count */
    waitpid(pid, NULL, 0);
    ck_assert_int_eq(kc_process_open(p), -ESRCH);
    close(fd);
    close(ready[0]);
    close(ready[1]);
}
END_TEST

/* Pids that mean nobody, everybody or process 1 are never signalled, whatever a file says. */
START_TEST(test_nobody_else_is_signalled)
{
    static const pid_t bad[] = {0, 1, -1, -5};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        ck_assert_int_eq(kc_process_signal(bad[i], 0), -ESRCH);
        ck_assert_int_eq(kc_process_signal_group(bad[i], 0), -ESRCH);
        ck_assert_int_eq(kc_process_open((struct kc_process){.pid = bad[i]}), -ESRCH);
    }
    ck_assert_int_eq(kc_process_signal_all(NULL, bad, 4, 0), 0);
    ck_assert_int_eq(kc_process_signal_all("", NULL, 0, 0), 0);
    struct kc_process one;
    if (kc_process_identify(1, &one) == 0)
        ck_assert_int_eq(kc_process_open(one), -ESRCH);
}
END_TEST

/* F03: children are found without token and session; who is spared, older, or not ours is left alone. */
START_TEST(test_children_are_found)
{
    struct kc_process first, second;
    ck_assert_int_eq(kc_process_signal_children(0, NULL, 0, 0), 0);
    pid_t a = fork();
    if (a == 0)
        for (;;)
            pause();
    ck_assert_int_eq(kc_process_identify(a, &first), 0);
    usleep(30000); /* more than a clock tick: another start time */
    pid_t b = fork();
    if (b == 0)
        for (;;)
            pause();
    ck_assert_int_eq(kc_process_identify(b, &second), 0);
    ck_assert_uint_gt(second.start, first.start);
    ck_assert_int_eq(kc_process_signal_children(0, NULL, 0, 0), 2);
    ck_assert_int_eq(kc_process_signal_children(second.start, NULL, 0, 0), 1);
    ck_assert_int_eq(kc_process_signal_children(0, &b, 1, SIGKILL), 1);
    siginfo_t info = {0};
    ck_assert_int_eq(waitid(P_PID, (id_t)a, &info, WEXITED), 0);
    ck_assert_int_eq(info.si_status, SIGKILL);
    ck_assert_int_eq(kc_process_signal_children(0, NULL, 0, SIGKILL), 1);
    ck_assert_int_eq(waitpid(b, NULL, 0), b);
    ck_assert_int_eq(kc_process_signal_children(0, NULL, 0, SIGKILL), 0);
}
END_TEST

/* ---- the control connection ---- */

static int lines, closes;
static bool hold_next;

static void count_line(struct kc_link *link, json_t *object)
{
    lines++;
    if (kc_json_integer(object, "n", 0) == 0)
        return;
    kc_link_hold(link, hold_next);
    kc_link_send(link, json_pack("{s:I}", "n", kc_json_integer(object, "n", 0)));
}

static void count_close(struct kc_link *link)
{
    closes++;
    kc_link_free(link);
    link->loop->stop = true;
}

static void stop_loop(void *owner)
{
    ((struct kc_loop *)owner)->stop = true;
}

static void run_for(struct kc_loop *loop, uint64_t ns)
{
    loop->stop = false;
    kc_loop_wake_at(loop, kc_now() + ns);
    ck_assert_int_eq(kc_loop_run(loop), 0);
}

START_TEST(test_link_lines)
{
    struct kc_loop loop;
    struct kc_link link = {.on_line = count_line, .on_close = count_close};
    int pair[2];
    char text[64];
    lines = closes = 0;
    hold_next = false;
    ck_assert_int_eq(kc_loop_open(&loop, stop_loop, &loop), 0);
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    ck_assert_int_eq(kc_link_open(&link, &loop, pair[0]), 0);
    ck_assert_int_eq(kc_write_all(pair[1], "{\"n\":1}\n{\"n\":2}\n{\"n\"", 20), 0); /* two and a half */
    run_for(&loop, 20 * KC_MILLISECOND);
    ck_assert_int_eq(lines, 2);
    ck_assert_int_eq(read(pair[1], text, sizeof text), 16);
    ck_assert_int_eq(memcmp(text, "{\"n\":1}\n{\"n\":2}\n", 16), 0);
    hold_next = true;
    ck_assert_int_eq(kc_write_all(pair[1], ":3}\n{\"n\":4}\n", 12), 0);
    run_for(&loop, 20 * KC_MILLISECOND);
    ck_assert_int_eq(lines, 3); /* the fourth waits for the third's answer */
    hold_next = false;
    kc_link_hold(&link, false);
    ck_assert_int_eq(lines, 3); /* and is not handled within the call */
    run_for(&loop, 20 * KC_MILLISECOND);
    ck_assert_int_eq(lines, 4);
    ck_assert_int_eq(kc_write_all(pair[1], "[1]\n{\"n\":5}\n", 12), 0); /* not an object: hung up on */
    run_for(&loop, 100 * KC_MILLISECOND);
    ck_assert_int_eq(lines, 4);
    ck_assert_int_eq(closes, 1);
    close(pair[1]);
    kc_loop_close(&loop);
}
END_TEST

/* A peer that sends without end, or never reads, is bounded. */
START_TEST(test_link_bounds)
{
    struct kc_loop loop;
    struct kc_link link = {.on_line = count_line, .on_close = count_close};
    int pair[2];
    lines = closes = 0;
    ck_assert_int_eq(kc_loop_open(&loop, stop_loop, &loop), 0);
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    ck_assert_int_eq(kc_link_open(&link, &loop, pair[0]), 0);
    char *big = malloc(64 << 10);
    memset(big, 'x', 64 << 10);
    json_t *blob = json_pack("{s:s#}", "t", big, 64 << 10);
    for (int i = 0; i < 200 && !link.held; i++)
        kc_link_send(&link, json_incref(blob));
    ck_assert(link.held); /* given up */
    ck_assert_uint_le(link.out_room, 8u << 20);
    run_for(&loop, 100 * KC_MILLISECOND);
    ck_assert_int_eq(closes, 1);
    json_decref(blob);
    free(big);
    close(pair[1]);
    kc_loop_close(&loop);
}
END_TEST

/* A control socket's path may be longer than sun_path. */
START_TEST(test_sockets_at_long_paths)
{
    char path[1024];
    size_t n = (size_t)snprintf(path, sizeof path, "%s", folder);
    for (int i = 0; i < 8; i++)
        n += (size_t)snprintf(path + n, sizeof path - n, "/a-directory-with-a-long-name");
    ck_assert_int_eq(kc_make_dirs(path), 0);
    snprintf(path + n, sizeof path - n, "/kcd.sock");
    ck_assert_int_eq(kc_socket_connect(path), -ENOENT);
    int listener = kc_socket_listen(path);
    ck_assert_int_ge(listener, 0);
    struct stat st;
    ck_assert_int_eq(stat(path, &st), 0);
    ck_assert_uint_eq(st.st_mode & 07777, 0600);
    int client = kc_socket_connect(path);
    ck_assert_int_ge(client, 0);
    int server = accept(listener, NULL, NULL);
    ck_assert(kc_link_peer_allowed(server));
    close(server);
    close(client);
    close(listener);
    ck_assert_int_eq(kc_socket_connect(path), -ECONNREFUSED);
}
END_TEST

START_TEST(test_home)
{
    struct kc_home h;
    struct kc_error e;
    unsetenv("KC_HOME");
    unsetenv("KC_INSTANCE");
    setenv("XDG_STATE_HOME", "/state", 1);
    ck_assert_int_eq(kc_home_find(NULL, NULL, &h, &e), 0);
    ck_assert_str_eq(h.home, "/state/kuangchao");
    ck_assert_str_eq(h.instance, "default");
    unsetenv("XDG_STATE_HOME");
    setenv("HOME", "/me", 1);
    ck_assert_int_eq(kc_home_find(NULL, NULL, &h, &e), 0);
    ck_assert_str_eq(h.home, "/me/.local/state/kuangchao");
    setenv("KC_HOME", "/kc/", 1);
    setenv("KC_INSTANCE", "two", 1);
    ck_assert_int_eq(kc_home_find(NULL, NULL, &h, &e), 0);
    ck_assert_str_eq(h.home, "/kc");
    ck_assert_str_eq(strrchr(h.run, '/'), "/two");
    ck_assert_int_eq(strncmp(h.run, h.node, strlen(h.node)), 0); /* what instances share lies above them */
    ck_assert_str_eq(h.run + strlen(h.node), "/two");
    ck_assert_int_eq(kc_home_find("/other", "x", &h, &e), 0);
    ck_assert_str_eq(h.home, "/other");
    ck_assert_int_eq(kc_home_find(NULL, "Bad Name", &h, &e), -EINVAL);
    ck_assert_ptr_nonnull(strstr(e.text, "Bad Name"));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("supervisor");
    const struct {
        const char *name;
        const TTest *tests[8];
    } cases[] = {
        {"life", {test_every_cell, test_cells_are_consistent, test_grace, NULL}},
        {"failure",
         {test_first_by_time_not_by_rank, test_followers_are_never_first, test_signals_are_named,
          test_what_is_not_known_is_not_told, test_failure_of_no_rank,
          test_words_that_were_cut_end_at_a_word, test_faults, NULL}},
        {"ids", {test_ids_rise_and_are_never_reused, test_ids_are_claimed_once, NULL}},
        {"metrics", {test_metrics_lines, test_metrics_are_cut_back, test_metrics_cut_in_a_long_file, NULL}},
        {"log", {test_log_is_turned_over_without_losing_a_line, test_log_without_old_ones, test_last_line, NULL}},
        {"environment", {test_environment_is_an_allow_list, NULL}},
        {"record", {test_record_comes_back, test_record_that_is_none, test_journal_lines, NULL}},
        {"process", {test_processes_are_found_by_token, test_nobody_else_is_signalled, test_children_are_found, NULL}},
        {"link", {test_link_lines, test_link_bounds, test_sockets_at_long_paths, test_home, NULL}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        TCase *c = tcase_create(cases[i].name);
        tcase_add_checked_fixture(c, setup, teardown);
        for (size_t j = 0; j < 8 && cases[i].tests[j]; j++)
            tcase_add_test(c, cases[i].tests[j]);
        suite_add_tcase(suite, c);
    }
    return suite_run(suite);
}
