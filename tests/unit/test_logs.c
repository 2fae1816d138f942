/* test_logs.c - logs of all ranks as one stream (console/logs.h), their times as a keeper notes them (supervisor/log_times.h), and
 * the last events of jobs (console/events.h). */
#include "suite.h"

#include "console_home.h"

#include "console/events.h"
#include "console/logs.h"
#include "console/screen/log_tail.h"

#include "base/clock.h"
#include "supervisor/log_times.h"
#include "supervisor/protocol.h"
#include "supervisor/rank_log.h"

#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct console_home home;
static struct job job;
static struct logs logs;

static void setup(void)
{
    console_home_make(&home);
    console_home_job(&home, "demo-1", "running", 3, 10);
    job_clear(&job, "demo-1", "");
    snprintf(job.directory, sizeof job.directory, "%s/jobs/demo-1", home.path);
    memset(&logs, 0, sizeof logs);
}

static void teardown(void)
{
    console_home_remove(&home);
}

static void put(const char *name, const char *text)
{
    char path[128];
    snprintf(path, sizeof path, "jobs/demo-1/%s", name);
    console_home_write(&home, path, text);
}

static void append(const char *name, const char *text)
{
    char path[JOB_PATH_ROOM + 64];
    snprintf(path, sizeof path, "%s/%s", job.directory, name);
    FILE *f = fopen(path, "a");
    ck_assert(f && fputs(text, f) >= 0 && fclose(f) == 0);
}

/* All lines that there are, "RANK:text" with blanks between. */
static const char *all(bool last)
{
    static char text[4096];
    struct log_line l;
    text[0] = 0;
    while (logs_next(&logs, last, &l))
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%d:%.*s", *text ? " " : "", l.rank, (int)l.bytes, l.text);
    return text;
}

START_TEST(lines_come_in_the_order_of_time_and_those_of_a_rank_in_theirs)
{
    put("rank-0.log", "a\nb\nc\n");
    put("rank-1.log", "x\ny\n");
    /* a was there before anybody looked; then x, b, y, c */
    put("log-times", "0 0 2\n1000 1 2\n2000 0 4\n3000 1 4\n4000 0 6\n");
    ck_assert_int_eq(logs_open(&logs, &job, -1, 0, 0), 0);
    ck_assert_uint_eq(logs.count, 2);
    ck_assert_str_eq(all(false), "0:a 1:x 0:b 1:y 0:c");
    logs_close(&logs);
    struct log_line l;
    ck_assert_int_eq(logs_open(&logs, &job, 0, 0, 0), 0);
    ck_assert(logs_next(&logs, false, &l) && l.wall == 0);
    ck_assert(logs_next(&logs, false, &l) && l.wall == 2000 * KC_MILLISECOND);
    logs_close(&logs);
}
END_TEST

START_TEST(of_one_moment_the_rank_that_failed_first_comes_first)
{
    put("rank-0.log", "its peer is gone\n");
    put("rank-1.log", "out of memory\n");
    put("log-times", "5000 0 17\n5000 1 14\n");
    ck_assert_int_eq(logs_open(&logs, &job, -1, 0, 0), 0);
    ck_assert_str_eq(all(false), "0:its peer is gone 1:out of memory");
    logs_close(&logs);
    job.failure = (struct job_failure){.rank = 1, .reason = "crash"};
    ck_assert_int_eq(logs_open(&logs, &job, -1, 0, 0), 0);
    ck_assert_str_eq(all(false), "1:out of memory 0:its peer is gone");
    logs_close(&logs);
}
END_TEST

START_TEST(without_times_logs_come_rank_by_rank_and_what_comes_later_has_its_own)
{
    struct log_line l;
    put("rank-0.log", "a\nhalf");
    put("rank-1.log", "x\n");
    put("rank-x.log", "no rank\n");
    put("rank-1.log.old", "no log\n");
    ck_assert_int_eq(logs_open(&logs, &job, -1, 0, 0), 0);
    ck_assert_str_eq(all(false), "0:a 1:x");
    const uint64_t before = kc_wall();
    append("rank-0.log", " and half\n");
    logs_refresh(&logs);
    ck_assert(logs_next(&logs, false, &l));
    ck_assert_uint_eq(l.bytes, strlen("half and half"));
    ck_assert(l.wall >= before && l.wall <= kc_wall());
    append("rank-1.log", "end");
    ck_assert_str_eq(all(false), "");
    ck_assert_str_eq(all(true), "1:end");
    logs_close(&logs);
}
END_TEST

START_TEST(pieces_that_were_turned_over_come_first_and_keep_their_times)
{
    put("rank-0.log.2", "a\n");
    put("rank-0.log.1", "b\nc\n");
    put("rank-0.log", "d\n");
    put("rank-1.log", "x\n");
    /* a b | turned | c | turned | d; x between b and c */
    put("log-times", "1000 0 4\n1500 0 -2\n2000 1 2\n3000 0 4\n3500 0 -4\n4000 0 2\n");
    ck_assert_int_eq(logs_open(&logs, &job, -1, 0, 0), 0);
    ck_assert_str_eq(all(false), "0:a 0:b 1:x 0:c 0:d");
    logs_close(&logs);
    ck_assert_int_eq(logs_open(&logs, &job, -1, 3, 0), 0); /* the end alone: of a line that is cut nothing */
    ck_assert_str_eq(all(false), "1:x 0:d");
    logs_close(&logs);
}
END_TEST

START_TEST(of_a_moment_one_sees_what_was_there_then)
{
    put("rank-0.log", "a\nb\nc\n");
    put("rank-1.log", "x\ny\n");
    put("log-times", "1000 0 2\n2000 1 2\n3000 0 4\n4000 1 4\n5000 0 6\n");
    ck_assert_int_eq(logs_open(&logs, &job, -1, 65536, 3500 * KC_MILLISECOND), 0);
    ck_assert_str_eq(all(true), "0:a 1:x 0:b");
    logs_close(&logs);
    ck_assert_int_eq(logs_open(&logs, &job, -1, 65536, 500 * KC_MILLISECOND), 0);
    ck_assert_str_eq(all(true), "");
    logs_close(&logs);
}
END_TEST

START_TEST(what_a_keeper_notes_is_what_is_read_also_when_a_log_is_turned_over)
{
    struct kc_rank_log log;
    static struct kc_log_times times;
    const off_t none[1] = {0};
    const uint64_t at = 1000 * KC_SECOND;
    ck_assert_int_eq(kc_rank_log_open(&log, job.directory, 0), 0);
    ck_assert_int_eq(kc_log_times_open(&times, job.directory, none, 1), 0);
    ck_assert_int_eq(logs_open(&logs, &job, -1, 0, 0), 0);
    for (int round = 0; round < 4; round++) {
        char want[64], line[32];
        snprintf(line, sizeof line, "line %d\n", round);
        ck_assert_int_eq(write(log.fd, line, strlen(line)), (ssize_t)strlen(line));
        kc_log_times_grown(&times, 0, kc_rank_log_size(&log), at + (uint64_t)round * KC_SECOND, false);
        logs_refresh(&logs);
        snprintf(want, sizeof want, "0:line %d", round);
        ck_assert_str_eq(all(false), want); /* each once, whatever happened to the file */
        while (kc_rank_log_turn(&log, 1, 9))
            ;
        ck_assert_int_gt(log.taken, 0);
        kc_log_times_turned(&times, 0, log.taken, at);
    }
    logs_close(&logs);
    struct log_line l;
    ck_assert_int_eq(logs_open(&logs, &job, -1, 0, 0), 0);
    for (uint64_t round = 0; round < 4; round++)
        ck_assert(logs_next(&logs, true, &l) && l.wall == at + round * KC_SECOND);
    logs_close(&logs);
    kc_log_times_close(&times);
    kc_rank_log_close(&log);
}
END_TEST

/* The older of the two files of times goes, and with it what it said was taken off. */
START_TEST(a_log_is_read_on_where_it_was_when_the_oldest_times_are_gone)
{
    put("rank-0.log", "c\nd\n");
    put("log-times.1", "1000 0 4\n1500 0 -4\n");
    put("log-times", "2000 0 4\n");
    ck_assert_int_eq(logs_open(&logs, &job, -1, 0, 0), 0);
    ck_assert_str_eq(all(false), "0:c 0:d");
    put("log-times.1", "2000 0 4\n");
    put("log-times", "");
    append("rank-0.log", "e\n");
    logs_refresh(&logs);
    append("log-times", "3000 0 6\n");
    logs_refresh(&logs);
    ck_assert_str_eq(all(false), "0:e");
    logs_close(&logs);
}
END_TEST

START_TEST(what_came_while_there_was_no_keeper_has_no_time_and_keeps_its_place)
{
    struct log_line l;
    put("rank-0.log", "a\nb\nc\n");
    put("rank-1.log", "x\n");
    /* the next keeper finds b, and looks at c; the clock was set back meanwhile */
    put("log-times", "2000 0 2\n0 0 4\n1500 0 6\n3000 1 2\n");
    ck_assert_int_eq(logs_open(&logs, &job, -1, 0, 0), 0);
    ck_assert_str_eq(all(true), "0:a 0:b 0:c 1:x");
    logs_close(&logs);
    ck_assert_int_eq(logs_open(&logs, &job, 0, 0, 0), 0);
    ck_assert(logs_next(&logs, true, &l) && l.wall == 2000 * KC_MILLISECOND);
    ck_assert(logs_next(&logs, true, &l) && l.wall == 0);
    ck_assert(logs_next(&logs, true, &l) && l.wall == 2000 * KC_MILLISECOND);
    logs_close(&logs);
    ck_assert_int_eq(logs_open(&logs, &job, -1, 65536, 2500 * KC_MILLISECOND), 0);
    ck_assert_str_eq(all(true), "0:a 0:b 0:c");
    logs_close(&logs);
}
END_TEST

START_TEST(a_file_of_times_that_makes_no_sense_does_no_harm)
{
    put("rank-0.log", "a\nb\n");
    put("rank-1.log", "x\n");
    put("log-times", "\n1 2\nnonsense\n1 99999 7\n-5 -5 -5\n9223372036854775807 0 -9223372036854775808\n"
                     "18446744073709551615 0 9223372036854775807\n1000 1 -999999999999999\n1000 0 -77\n2000 0 3\n2000 0 1\n3000 0");
    ck_assert_int_eq(logs_open(&logs, &job, -1, 0, 0), 0);
    const char *text = all(true);
    ck_assert(strstr(text, "0:a") && strstr(text, "0:b") && strstr(text, "1:x") && strstr(text, "0:a") < strstr(text, "0:b"));
    logs_close(&logs);
    ck_assert_int_eq(logs_open(&logs, &job, -1, 10, 2000 * KC_MILLISECOND), 0);
    all(true);
    logs_refresh(&logs);
    logs_close(&logs);
}
END_TEST

START_TEST(a_rank_that_prints_all_the_time_takes_a_row_a_second)
{
    static struct kc_log_times times;
    const off_t none[1] = {0};
    ck_assert_int_eq(kc_log_times_open(&times, job.directory, none, 1), 0);
    for (off_t size = 1; size <= 10000; size++)
        kc_log_times_grown(&times, 0, size, (uint64_t)size * KC_MILLISECOND, false);
    ck_assert_int_lt(times.size, 64 * 24); /* those it may have at once, and one for each second that this took */
    const off_t before = times.size;
    kc_log_times_grown(&times, 0, 10001, KC_SECOND, false);
    ck_assert_int_eq(times.size, before);
    kc_log_times_grown(&times, 0, 10001, KC_SECOND, true); /* the last words of all are noted */
    ck_assert_int_gt(times.size, before);
    kc_log_times_close(&times);
}
END_TEST

START_TEST(errors_are_known_by_their_words)
{
    static const char *const bad[] = {
        "Error: no such file", "RuntimeError: CUDA error", "kc-rank: tokens.bin cannot be read", "Segmentation fault",
        "[E] Assertion `x' failed.", "==12==ERROR: AddressSanitizer: heap-use-after-free", "10 errors", "terminate called after",
        "malloc(): FATAL", "killed by signal 9", "thread 'main' panicked at"};
    static const char *const good[] = {"no errors", "0 failures, 0 errors", "step 12 loss 2.1", "terror of mirrors", "without error",
                                       "kc-rank: finished at step 1, state_root 3d57", ""};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        ck_assert_msg(log_is_error(bad[i], strlen(bad[i])), "%s", bad[i]);
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        ck_assert_msg(!log_is_error(good[i], strlen(good[i])), "%s", good[i]);
}
END_TEST

static void take(struct log_error *e, int rank, uint64_t wall, uint64_t since, const char *text)
{
    const struct log_line l = {rank, wall, text, strlen(text)};
    log_error_take(e, &l, since);
}

START_TEST(the_first_error_of_the_ranks_of_now_stands_before_older_ones)
{
    struct log_error e = {0};
    take(&e, 3, 10, 100, "error of long ago\033[31m");
    ck_assert(e.known && e.rank == 3);
    ck_assert_str_eq(e.text, "error of long ago\\x1b[31m");
    take(&e, 2, 20, 100, "another error");
    ck_assert_int_eq(e.rank, 3);
    take(&e, 1, 100, 100, "error of now");
    ck_assert_int_eq(e.rank, 1);
    take(&e, 0, 101, 100, "error that follows");
    ck_assert_int_eq(e.rank, 1);
}
END_TEST

START_TEST(kc_log_tells_when_and_what_went_wrong_first)
{
    struct console_answer a;
    put("rank-0.log", "fine\n");
    put("rank-1.log", "failed: no room\n");
    put("log-times", "2000 0 5\n1000 1 16\n");
    CONSOLE_RUN(&a, "log", "demo-1", "--json");
    ck_assert_int_eq(a.code, KC_EXIT_OK);
    json_t *o = json_loads(a.out, 0, NULL);
    const json_t *first = json_array_get(json_object_get(o, "lines"), 0), *error = json_object_get(o, "first_error");
    ck_assert_str_eq(kc_json_text(first, "time", ""), "1970-01-01T00:00:01.000Z");
    ck_assert_str_eq(kc_json_text(error, "text", ""), "failed: no room");
    ck_assert_int_eq(kc_json_integer(error, "rank", -1), 1);
    json_decref(o);
    console_answer_free(&a);
    CONSOLE_RUN(&a, "log", "demo-1");
    ck_assert_str_eq(a.out, "1| failed: no room\n0| fine\n");
    console_answer_free(&a);
}
END_TEST

/* ---- events ---- */

static const char *event_at(const struct events *e, size_t i)
{
    static char text[400];
    return event_line_text(events_at(e, i), text, sizeof text);
}

START_TEST(the_last_events_are_lines_and_what_comes_is_read_on)
{
    static struct events e;
    put("events.jsonl", "{\"time\":\"2026-11-30T13:30:51.925Z\",\"event\":\"launched\",\"incarnation\":1,\"ranks\":4}\n"
                        "not JSON\n"
                        "{\"time\":\"2026-11-30T13:30:52.664Z\",\"event\":\"rank-exit\",\"rank\":1,\"exit_code\":3}\n{\"time\":\"20");
    memset(&e, 0, sizeof e);
    events_read(&e, "demo-1", job.directory);
    ck_assert_uint_eq(e.count, 2);
    ck_assert_str_eq(event_at(&e, 0), "launched: incarnation 1, ranks 4");
    ck_assert_str_eq(event_at(&e, 1), "rank 1 rank-exit: exit code 3");
    ck_assert_int_eq(events_at(&e, 1)->kind, KC_EVENT_KIND_WARNING);
    ck_assert_uint_eq(e.launched, UINT64_C(1796045451925) * KC_MILLISECOND); /* date -ud 2026-11-30T13:30:51.925 +%s%3N */
    ck_assert_uint_eq(events_until(&e, e.launched), 1);
    append("events.jsonl", "26-11-30T13:31:00.000Z\",\"event\":\"nonfinite\",\"rank\":0,\"step\":12}\n");
    events_read(&e, "demo-1", job.directory);
    ck_assert_uint_eq(e.count, 3);
    ck_assert_str_eq(event_at(&e, 2), "rank 0 nonfinite at step 12");
    ck_assert_int_eq(events_at(&e, 2)->kind, KC_EVENT_KIND_FAULT);
    for (int i = 0; i < 3 * EVENTS_KEPT; i++)
        append("events.jsonl", "{\"time\":\"2026-11-30T13:31:01.000Z\",\"event\":\"paused\",\"step\":13}\n");
    events_read(&e, "demo-1", job.directory);
    ck_assert_uint_eq(e.count, EVENTS_KEPT);
    ck_assert_ptr_null(events_at(&e, EVENTS_KEPT));
    events_read(&e, "other-1", "/nowhere");
    ck_assert_uint_eq(e.count, 0);
}
END_TEST

static int kind_of(const char *line)
{
    struct event_line l = {.kind = -1};
    json_t *o = json_loads(line, 0, NULL);
    ck_assert(event_line_of(o, &l));
    json_decref(o);
    return l.kind;
}

START_TEST(every_event_has_the_kind_of_its_table)
{
    char line[128];
    for (int i = 0; i < KC_TOLDS; i++) {
        snprintf(line, sizeof line, "{\"event\":\"%s\"}", kc_told_name[i]);
        ck_assert_int_eq(kind_of(line), kc_told_row[i].kind);
        ck_assert_int_lt(kc_name_find(kc_event_name, KC_EVENTS, kc_told_name[i]), i == KC_TOLD_RESUMED ? KC_EVENTS : 0);
    }
    ck_assert_int_eq(kind_of("{\"event\":\"keeper-lost\"}"), KC_EVENT_KIND_FAULT);
    ck_assert_int_eq(kind_of("{\"event\":\"grace-over\"}"), KC_EVENT_KIND_WARNING);
    ck_assert_int_eq(kind_of("{\"event\":\"hang\",\"rank\":1}"), KC_EVENT_KIND_FAULT);
    ck_assert_int_eq(kind_of("{\"event\":\"rank-exit\",\"exit_code\":0}"), KC_EVENT_KIND_INFO);
    ck_assert_int_eq(kind_of("{\"event\":\"rank-exit\",\"signal\":9}"), KC_EVENT_KIND_WARNING);
    ck_assert_int_eq(kind_of("{\"event\":\"state\",\"state\":\"running\"}"), KC_EVENT_KIND_INFO);
    ck_assert_int_eq(kind_of("{\"event\":\"state\",\"state\":\"failed\"}"), KC_EVENT_KIND_FAULT);
    ck_assert_int_eq(kind_of("{\"event\":\"of another version\"}"), KC_EVENT_KIND_INFO);
}
END_TEST

START_TEST(the_newest_event_of_a_job_is_read_when_its_journal_has_grown)
{
    struct events_newest n = {0};
    put("events.jsonl", "{\"time\":\"2026-11-30T13:30:51.925Z\",\"event\":\"queued\"}\n");
    events_newest_look(&n);
    ck_assert_str_eq(events_newest_of(&n, "demo-1", job.directory)->event, "queued");
    ck_assert_ptr_null(events_newest_of(&n, "other-1", "/nowhere"));
    append("events.jsonl", "{\"time\":\"2026-11-30T13:30:52.664Z\",\"event\":\"paused\",\"step\":7}\n");
    ck_assert_str_eq(events_newest_known(&n, "demo-1")->event, "queued"); /* looks at no file */
    events_newest_look(&n);
    ck_assert_str_eq(events_newest_of(&n, "demo-1", job.directory)->event, "paused");
    events_newest_look(&n);
    events_newest_look(&n); /* nobody asked for it: it was removed */
    ck_assert_ptr_null(events_newest_known(&n, "demo-1"));
    events_newest_free(&n);
}
END_TEST

START_TEST(events_stand_between_the_lines_of_a_screen)
{
    static struct log_tail t;
    static struct events e;
    char text[512] = "";
    put("rank-0.log", "a\nb\n");
    put("log-times", "1000 0 2\n3000 0 4\n");
    put("events.jsonl", "{\"time\":\"1970-01-01T00:00:02.000Z\",\"event\":\"started\",\"rank\":0,\"step\":0}\n"
                        "{\"time\":\"1970-01-01T00:00:04.000Z\",\"event\":\"paused\",\"step\":7}\n");
    memset(&t, 0, sizeof t);
    memset(&e, 0, sizeof e);
    events_read(&e, job.id, job.directory);
    for (int look = 0; look < 2; look++) /* what is known is not told again */
        ck_assert(!log_tail_read(&t, &job, -1, 0, &e));
    for (size_t i = 0; i < t.count; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s;", log_tail_at(&t, i)->text);
    ck_assert_str_eq(text, "a;rank 0 started at step 0;b;paused at step 7;");
    ck_assert(!log_tail_read(&t, &job, -1, 2500 * KC_MILLISECOND, &e)); /* a replay's moment */
    ck_assert_uint_eq(t.count, 2);
    ck_assert_str_eq(log_tail_at(&t, 1)->text, "rank 0 started at step 0");
    log_tail_free(&t);
    struct job gone = job; /* a saved board, carried elsewhere */
    snprintf(gone.directory, sizeof gone.directory, "/nowhere/kc/jobs/demo-1");
    log_tail_read(&t, &gone, 0, 2500 * KC_MILLISECOND, &e);
    ck_assert_str_eq(t.trouble, "a board has no log, and its job has no folder here");
    log_tail_read(&t, &gone, 0, 0, &e);
    ck_assert_str_eq(t.trouble, "the folder of the job is removed");
    log_tail_free(&t);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("logs");
    TCase *t = tcase_create("logs");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, lines_come_in_the_order_of_time_and_those_of_a_rank_in_theirs);
    tcase_add_test(t, of_one_moment_the_rank_that_failed_first_comes_first);
    tcase_add_test(t, without_times_logs_come_rank_by_rank_and_what_comes_later_has_its_own);
    tcase_add_test(t, pieces_that_were_turned_over_come_first_and_keep_their_times);
    tcase_add_test(t, of_a_moment_one_sees_what_was_there_then);
    tcase_add_test(t, what_a_keeper_notes_is_what_is_read_also_when_a_log_is_turned_over);
    tcase_add_test(t, a_log_is_read_on_where_it_was_when_the_oldest_times_are_gone);
    tcase_add_test(t, what_came_while_there_was_no_keeper_has_no_time_and_keeps_its_place);
    tcase_add_test(t, a_file_of_times_that_makes_no_sense_does_no_harm);
    tcase_add_test(t, a_rank_that_prints_all_the_time_takes_a_row_a_second);
    tcase_add_test(t, errors_are_known_by_their_words);
    tcase_add_test(t, the_first_error_of_the_ranks_of_now_stands_before_older_ones);
    tcase_add_test(t, kc_log_tells_when_and_what_went_wrong_first);
    tcase_add_test(t, the_last_events_are_lines_and_what_comes_is_read_on);
    tcase_add_test(t, every_event_has_the_kind_of_its_table);
    tcase_add_test(t, the_newest_event_of_a_job_is_read_when_its_journal_has_grown);
    tcase_add_test(t, events_stand_between_the_lines_of_a_screen);
    suite_add_tcase(s, t);
    return suite_run(s);
}
