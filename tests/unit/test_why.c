/* test_why.c - the story of a fault, from journals made by hand: what is told first, who answers for it, what was done. */
#include "console/hang/why.h"
#include "tests/unit/suite.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct job job;
static struct kc_why why;

static void setup(void)
{
    job_clear(&job, "gpt-1", "/home/jobs/gpt-1");
    job.state = KC_JOB_RUNNING;
    job.step = 1240;
    job.steps = 5000;
    job.restarts = 0;
    job.incarnation = 1;
}

/* Lines "SECONDS EVENT {details}" → the journal. */
static json_t *journal(const char *const *lines)
{
    json_t *all = json_array();
    for (; *lines; lines++) {
        double at;
        char name[64];
        int used = 0;
        ck_assert_int_eq(sscanf(*lines, "%lf %63s %n", &at, name, &used), 2);
        json_t *e = json_loads((*lines)[used] ? *lines + used : "{}", 0, NULL);
        ck_assert_msg(e != NULL, "%s", *lines);
        char time[32];
        snprintf(time, sizeof time, "2026-11-30T03:12:%02d.500Z", (int)at);
        json_object_set_new(e, "time", json_string(time));
        json_object_set_new(e, "monotonic_ns", json_integer((json_int_t)(at * 1e9)));
        json_object_set_new(e, "event", json_string(name));
        json_array_append_new(all, e);
    }
    return all;
}

/* The text of the story; freed by the next. */
static const char *story(const char *verdict, const char *const *lines)
{
    static char *text;
    size_t bytes;
    json_t *events = journal(lines), *v = verdict ? json_loads(verdict, 0, NULL) : NULL;
    kc_why(&job, events, v, &why);
    free(text);
    FILE *out = open_memstream(&text, &bytes);
    kc_why_text(&why, out);
    fclose(out);
    json_decref(events);
    json_decref(v);
    int n = 0;
    for (const char *p = text; *p; p++)
        n += *p == '\n';
    ck_assert_int_le(n, 10);
    return text;
}
#define STORY(verdict, ...) story(verdict, (const char *const[]){__VA_ARGS__, NULL})

#define CRASH                                                                                                          \
    "1 launched {\"incarnation\":1,\"ranks\":4}", "2 started {\"rank\":0,\"step\":0}",                              \
        "40 rank-exit {\"rank\":3,\"pid\":9,\"signal\":9,\"reason\":\"\",\"oom\":\"unknown\"}",                  \
        "40 rank-lost {\"rank\":3,\"text\":\"…\"}",                                                                   \
        "40 rank-exit {\"rank\":0,\"pid\":6,\"exit_code\":1,\"reason\":\"peer-left\"}",                          \
        "40 rank-exit {\"rank\":1,\"pid\":7,\"exit_code\":1,\"reason\":\"peer-left\"}",                          \
        "41 rank-exit {\"rank\":2,\"pid\":8,\"signal\":9,\"reason\":\"\"}"
#define CRASH_TEXT "rank 3 at step 1200 in phase forward: killed by someone (signal 9, SIGKILL); and 3 others followed"

START_TEST(a_job_that_is_well_has_a_short_story)
{
    ck_assert_str_eq(STORY(NULL, "1 launched {}", "2 started {\"rank\":0,\"step\":0}"), "gpt-1 runs: step 1240 of 5000\n"
                                                                                       "first     nothing went wrong\n"
                                                                                       "next      kc watch gpt-1; kc hang gpt-1\n");
    ck_assert_ptr_nonnull(strstr(STORY(NULL, "1 shrunk {\"ranks\":1,\"from\":2}", "1 launched {}"),
                                 "also      it was started with fewer ranks\n"));
    job.state = KC_JOB_FINISHED;
    ck_assert_str_eq(STORY(NULL, "1 launched {}"), "gpt-1 finished: step 1240 of 5000\n"
                                                   "first     nothing went wrong\n"
                                                   "next      kc snap ls gpt-1\n");
}
END_TEST

START_TEST(a_crash_that_was_restarted)
{
    job.restarts = 1;
    job.incarnation = 2;
    ck_assert_str_eq(
        STORY("{\"text\":\"rank 3 is gone\",\"verdicts\":[{\"layer\":\"resource\",\"evidence\":[\"its process was 4711\"]}]}", CRASH,
              "41 fault {\"fault\":\"crash\",\"action\":\"restart\",\"rank\":3,\"step\":1200,\"text\":\"" CRASH_TEXT "\"}",
              "41 waits {\"seconds\":2.0,\"fault\":\"crash\",\"text\":\"second crash without progress\"}",
              "43 launched {\"incarnation\":2,\"ranks\":4}",
              "43 postmortem {\"of\":\"crash\",\"incarnation\":1,\"path\":\"postmortem/20261130-031240\",\"text\":\"rank 3 is gone\"}",
              "44 restored {\"rank\":0,\"step\":1150,\"version\":12,\"text\":\"from the copy in memory\"}",
              "44 started {\"rank\":1,\"step\":1150}",
              "48 postmortem {\"of\":\"hang\",\"incarnation\":2,\"path\":\"postmortem/of-a-later-hang\"}", "50 snapshot {\"rank\":0,\"step\":1240}"),
        "gpt-1 runs again: step 1240 of 5000, restarted 1 time\n"
        "first     2026-11-30 03:12:40  rank 3 at step 1200 in phase forward: killed by someone (signal 9, SIGKILL)\n"
        "then      2 others: peer-left; rank 2: signal 9\n"
        "owner     layer resource, team hardware\n"
        "evidence  its process was 4711\n"
        "done      all ranks started again after 3 s (a pause of 2 s: second crash without progress), from step 1150 (version 12, "
        "from the copy in memory); 50 steps were done again\n"
        "kept      postmortem/20261130-031240\n"
        "next      kc log gpt-1/3; kc hang /home/jobs/gpt-1/postmortem/20261130-031240\n");
    ck_assert_uint_eq(why.followers, 3);
}
END_TEST

START_TEST(a_faulty_device_tells_with_how_many_ranks_it_goes_on)
{
    const char *const found = "41 fault {\"fault\":\"device\",\"action\":\"restart\",\"rank\":3,\"step\":1200,\"text\":\"" CRASH_TEXT
                              "; its device is faulty: cpu-1: marked by hand: fan\"}",
                     *const back = "41 requeued {\"text\":\"a device is faulty: cpu-1: marked by hand: fan\"}",
                     *const less = "42 shrunk {\"ranks\":2,\"from\":4,\"step\":1200,\"text\":\"goes on with 2 ranks\"}",
                     *const begun = "43 launched {\"incarnation\":2,\"ranks\":2}";
    job.restarts = 1;
    job.incarnation = 2;
    ck_assert_ptr_nonnull(strstr(STORY(NULL, CRASH, found, back, less, begun),
                                 "done      2 ranks of 4, with other leases (a device is faulty: cpu-1: marked by hand: fan), started again "
                                 "after 3 s\n"));
    ck_assert_ptr_nonnull(strstr(STORY(NULL, CRASH, found, back, begun), "done      all ranks, with other leases (a device"));
    job.state = KC_JOB_QUEUED;
    snprintf(job.waits, sizeof job.waits, "asked for 4 ranks × 1 core, 4 are there, 1 faulty");
    ck_assert_ptr_nonnull(strstr(STORY(NULL, CRASH, found, back),
                                 "done      it is queued, for other leases: a device is faulty: cpu-1: marked by hand: fan; asked for 4 ranks "
                                 "× 1 core, 4 are there, 1 faulty\n"));
}
END_TEST

START_TEST(a_fault_that_ended_the_job_says_why_it_was_not_restarted)
{
    job.state = KC_JOB_FAILED;
    job.restarts = 3;
    job.snapshot.version = 12;
    job.snapshot.step = 1150;
    const char *text = STORY(NULL, "1 launched {}", "9 rank-exit {\"rank\":1,\"exit_code\":1,\"reason\":\"data\"}",
                             "9 rank-exit {\"rank\":0,\"exit_code\":1,\"reason\":\"peer-left\"}",
                             "9 fault {\"fault\":\"data\",\"action\":\"fail\",\"rank\":1,\"step\":7,\"text\":\"rank 1 at step 7: data: "
                             "train.bin shrank; and 1 other followed; restarts are used up (3 of 3 without progress)\"}",
                             "9 state {\"state\":\"failed\"}");
    ck_assert_str_eq(text, "gpt-1 has failed: step 1240 of 5000, restarted 3 times\n"
                           "first     2026-11-30 03:12:09  rank 1 at step 7: data: train.bin shrank\n"
                           "then      rank 0: peer-left\n"
                           "owner     layer jobs, team models\n" /* the reason says it, whoever the diagnosis blames */
                           "done      not started again: restarts are used up (3 of 3 without progress); saved up to step 1150 "
                           "(version 12)\n"
                           "next      kc log gpt-1/1; kc resume gpt-1\n");
}
END_TEST

#define HANG "1 launched {}", "5 hang {\"rank\":1,\"step\":12,\"phase\":\"forward\",\"seconds\":31.0,\"limit_seconds\":30.0}"
#define STOPPED                                                                                                        \
    "{\"text\":\"rank 1 is stopped\",\"verdicts\":[{\"layer\":\"supervisor\",\"ranks\":[1],\"evidence\":[\"state T\",\"a\",\"b\",\"c\"]}]}"

START_TEST(a_hang_that_lasts)
{
    ck_assert_str_eq(STORY(STOPPED, HANG, "6 postmortem {\"path\":\"postmortem/x\",\"text\":\"rank 1 is stopped\"}"),
                     "gpt-1 hangs: step 1240 of 5000\n"
                     "first     2026-11-30 03:12:05  rank 1 at step 12 in phase forward stands still for longer than 30 s: rank 1 is "
                     "stopped\n"
                     "owner     layer supervisor, team operations\n"
                     "evidence  state T\n"
                     "          a\n"
                     "          b\n"
                     "done      it was told; no rank is ended for it so far (policy.on_hang)\n"
                     "kept      postmortem/x\n"
                     "next      kc hang gpt-1; kc stack gpt-1/1; kc stop gpt-1\n");
    /* it is over: nothing is wrong any more */
    const char *text = STORY(NULL, HANG, "9 hang-over {\"rank\":1,\"step\":12,\"seconds\":35.0}");
    ck_assert_str_eq(text, "gpt-1 runs: step 1240 of 5000\n"
                           "first     nothing went wrong\n"
                           "also      a hang that was over by itself\n"
                           "next      kc watch gpt-1; kc hang gpt-1\n");
}
END_TEST

START_TEST(a_hang_that_ended_in_a_restart_comes_before_who_was_ended_for_it)
{
    job.incarnation = 2;
    job.restarts = 1;
    const char *text =
        STORY(STOPPED, HANG, "6 postmortem {\"path\":\"postmortem/x\",\"text\":\"rank 1 is stopped\"}",
              "6 rank-lost {\"rank\":1,\"text\":\"…\"}", "7 rank-exit {\"rank\":0,\"exit_code\":1,\"reason\":\"peer-left\"}",
              "8 rank-exit {\"rank\":1,\"signal\":9,\"reason\":\"hang\"}",
              "8 fault {\"fault\":\"hang\",\"action\":\"restart\",\"rank\":1,\"step\":12,\"text\":\"rank 1 at step 12 in phase forward: "
              "hang: rank 1 is stopped\"}",
              "9 launched {}", "9 started {\"rank\":0,\"step\":10}");
    ck_assert_ptr_nonnull(strstr(text, "first     2026-11-30 03:12:05  rank 1 at step 12 in phase forward: hang: rank 1 is stopped\n"));
    ck_assert_ptr_nonnull(strstr(text, "then      rank 0: peer-left\n"));
    ck_assert_ptr_nonnull(strstr(text, "started again after 4 s, from step 10; 2 steps were done again\n")); /* since it was found */
    ck_assert_str_eq(why.word, "hang");
}
END_TEST

START_TEST(a_hang_that_was_over_is_no_part_of_a_later_crash)
{
    const char *const over = "9 hang-over {\"rank\":null,\"step\":12}",
                     *const kept = "6 postmortem {\"of\":\"hang\",\"incarnation\":1,\"path\":\"postmortem/x\",\"text\":\"rank 1 is stopped\"}";
    const char *text = STORY(NULL, "1 launched {\"incarnation\":1}", "5 hang {\"rank\":null,\"step\":12,\"limit_seconds\":30.0}", kept, over,
                             "40 rank-exit {\"rank\":2,\"signal\":11,\"reason\":\"signal\"}",
                             "40 fault {\"fault\":\"crash\",\"rank\":2,\"step\":90,\"text\":\"rank 2 at step 90: died\"}",
                             "41 launched {\"incarnation\":2}",
                             "42 postmortem {\"of\":\"crash\",\"incarnation\":1,\"path\":\"postmortem/y\",\"text\":\"rank 2 died\"}");
    ck_assert_ptr_nonnull(strstr(text, "first     2026-11-30 03:12:40  rank 2 at step 90: died\n"));
    ck_assert_ptr_nonnull(strstr(text, "done      all ranks started again after 1 s\n"));
    ck_assert_ptr_nonnull(strstr(text, "kept      postmortem/y\n"));
    ck_assert_ptr_nonnull(strstr(text, "also      a hang that was over by itself (rank 1 is stopped; postmortem/x)\n"));
    ck_assert_str_eq(why.word, "crash");
    /* nobody alone: no word that all wait for each other, where the diagnosis says who is to blame */
    text = STORY(STOPPED, "1 launched {}", "5 hang {\"rank\":null,\"step\":12,\"limit_seconds\":30.0}");
    ck_assert_ptr_nonnull(strstr(text, "  no rank gets on at step 12, for longer than 30 s: rank 1 is stopped\n"));
}
END_TEST

START_TEST(a_hang_that_lasted_until_the_keeper_was_lost_is_told_before_that)
{
    const char *text = STORY(STOPPED, HANG, "6 postmortem {\"of\":\"hang\",\"path\":\"postmortem/x\",\"text\":\"rank 1 is stopped\"}",
                             "50 keeper-lost {}",
                             "50 fault {\"fault\":\"crash\",\"rank\":null,\"step\":12,\"text\":\"the keeper (pid 9) was lost\"}",
                             "705 launched {}");
    ck_assert_ptr_nonnull(strstr(text, "first     2026-11-30 03:12:05  rank 1 at step 12 in phase forward stands still for longer than 30 s: "
                                       "rank 1 is stopped; 2026-11-30 03:12:50 the keeper (pid 9) was lost\n"));
    ck_assert_ptr_nonnull(strstr(text, "started again after 11 min 40 s"));
}
END_TEST

START_TEST(the_last_fault_is_told_and_those_before_are_counted)
{
    const char *text = STORY(NULL, CRASH, "41 fault {\"fault\":\"crash\",\"rank\":3,\"step\":1200,\"text\":\"" CRASH_TEXT "\"}",
                             "42 launched {}", "43 snapshot-failed {\"rank\":0}", "43 snapshot-failed {\"rank\":1}",
                             "50 rank-exit {\"rank\":2,\"exit_code\":3,\"reason\":\"\"}",
                             "50 fault {\"fault\":\"crash\",\"rank\":2,\"step\":1201,\"text\":\"rank 2 at step 1201: left\"}");
    ck_assert_ptr_nonnull(strstr(text, "first     2026-11-30 03:12:50  rank 2 at step 1201: left\n"));
    ck_assert_ptr_null(strstr(text, "then")); /* those of the incarnation before did not follow this one */
    ck_assert_ptr_nonnull(strstr(text, "also      another fault before; a snapshot failed\n")); /* rank 0 speaks for all */
    ck_assert_ptr_nonnull(strstr(text, "done      its ranks are being ended\n"));
}
END_TEST

START_TEST(F08_out_of_memory_is_the_resource_layers)
{
    STORY("{\"text\":\"x\",\"verdicts\":[{\"layer\":\"engine\",\"evidence\":[\"row\"]}]}", "1 launched {}",
          "9 rank-exit {\"rank\":1,\"signal\":9,\"reason\":\"\",\"oom\":\"certain\",\"evidence\":\"oom_kill rose by 1\"}",
          "9 fault {\"fault\":\"crash\",\"rank\":1,\"step\":7,\"text\":\"rank 1 was killed\"}");
    ck_assert_str_eq(why.layer, "resource");
    ck_assert_str_eq(why.evidence[0], "out of memory certain: oom_kill rose by 1");
    ck_assert_str_eq(why.evidence[1], "row");
}
END_TEST

START_TEST(a_job_without_a_journal)
{
    job.state = KC_JOB_FAILED;
    snprintf(job.text, sizeof job.text, "rank 0 could not be started (/x/kc-rank): No such file or directory");
    const char *text = STORY(NULL, "1 queued");
    ck_assert_ptr_nonnull(strstr(text, "first     rank 0 could not be started (/x/kc-rank): No such file or directory\n"));
    ck_assert_ptr_nonnull(strstr(text, "owner     layer supervisor, team operations\n"));
}
END_TEST

/* F34: a full disk takes no journal; what the board says of the last fault is told all the same. */
START_TEST(a_restart_that_the_journal_lacks_is_no_good_health)
{
    job.restarts = 1;
    job.failure.rank = 1;
    job.failure.step = 1940;
    snprintf(job.failure.phase, sizeof job.failure.phase, "communication");
    snprintf(job.failure.reason, sizeof job.failure.reason, "died of signal 11, SIGSEGV");
    const char *text = STORY(NULL, "1 launched {}", "2 started {\"rank\":0,\"step\":0}");
    ck_assert_ptr_nonnull(strstr(text, "first     rank 1 at step 1940 in phase communication: died of signal 11, SIGSEGV; the journal does "
                                       "not have it"));
    ck_assert_ptr_null(strstr(text, "nothing went wrong"));
    job.hangs = 41;
    snprintf(job.hang_text, sizeof job.hang_text, "rank 3 is stopped");
    text = STORY(NULL, "1 launched {}");
    ck_assert_ptr_nonnull(strstr(text, "gpt-1 hangs: step"));
    ck_assert_ptr_nonnull(strstr(text, "first     hangs for 41.0 s: rank 3 is stopped; the journal does not have it"));
    ck_assert_ptr_nonnull(strstr(text, "next      kc hang gpt-1; kc stack gpt-1; kc stop gpt-1\n"));
}
END_TEST

int main(void)
{
    Suite *s = suite_create("why");
    TCase *c = tcase_create("why");
    tcase_add_checked_fixture(c, setup, NULL);
    tcase_add_test(c, a_job_that_is_well_has_a_short_story);
    tcase_add_test(c, a_crash_that_was_restarted);
    tcase_add_test(c, a_faulty_device_tells_with_how_many_ranks_it_goes_on);
    tcase_add_test(c, a_fault_that_ended_the_job_says_why_it_was_not_restarted);
    tcase_add_test(c, a_hang_that_lasts);
    tcase_add_test(c, a_hang_that_ended_in_a_restart_comes_before_who_was_ended_for_it);
    tcase_add_test(c, a_hang_that_was_over_is_no_part_of_a_later_crash);
    tcase_add_test(c, a_hang_that_lasted_until_the_keeper_was_lost_is_told_before_that);
    tcase_add_test(c, the_last_fault_is_told_and_those_before_are_counted);
    tcase_add_test(c, F08_out_of_memory_is_the_resource_layers);
    tcase_add_test(c, a_job_without_a_journal);
    tcase_add_test(c, a_restart_that_the_journal_lacks_is_no_good_health);
    suite_add_tcase(s, c);
    return suite_run(s);
}
