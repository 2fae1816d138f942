/* test_console_journal.c - what the console finds in events.jsonl: where a job went back, to the step that is asked about and to the
 * first later one; what each snapshot cost; which one failed, and why; and how a long one is read on. */
#include "console/costs.h"
#include "console/journal.h"
#include "console/rollbacks.h"
#include "console_home.h"
#include "tests/unit/suite.h"

#include <check.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static struct console_home home;

static void setup(void)
{
    console_home_make(&home);
}

static void teardown(void)
{
    console_home_remove(&home);
}

static struct rollbacks read_from(uint64_t step)
{
    char directory[200];
    struct rollbacks r;
    struct kc_error e = {""};
    snprintf(directory, sizeof directory, "%s/jobs/demo-1", home.path);
    ck_assert_msg(rollbacks_read(directory, step, &r, &e) == 0, "%s", e.text);
    return r;
}

START_TEST(no_file_is_no_rollback)
{
    const struct rollbacks r = read_from(0);
    ck_assert(!r.at && r.next == UINT64_MAX);
}
END_TEST

START_TEST(the_step_itself_and_the_first_later_one_are_told)
{
    console_home_write(&home, "jobs/demo-1/events.jsonl",
                       "{\"event\":\"rollback\",\"rank\":0,\"step\":30,\"version\":3}\n"
                       "{\"event\":\"rollback\",\"rank\":1,\"step\":20,\"version\":2}\n"
                       "{\"event\":\"nonfinite\",\"rank\":1,\"step\":10}\n"
                       "no JSON\n"
                       "{\"event\":\"rollback\",\"rank\":0,\"step\":5}");
    ck_assert(!read_from(10).at && read_from(10).next == 20);
    ck_assert(read_from(20).at && read_from(20).next == 30);
    ck_assert(!read_from(25).at && read_from(25).next == 30);
    ck_assert(read_from(30).at && read_from(30).next == UINT64_MAX);
    ck_assert_msg(!read_from(5).at, "that line is being written");
}
END_TEST

/* Version 1 as its two ranks tell it, 2 as a keeper told it that knew no figures, 3 twice: the second time after a restart had
 * taken its number again; then a line that is being written. */
static const char costly[] =
    "{\"event\":\"snapshot\",\"rank\":0,\"step\":10,\"version\":1,\"stall_seconds\":0.25,\"copy_seconds\":0.5,\"write_seconds\":1.5,"
    "\"bytes\":3145728,\"raw_bytes\":4194304,\"mib_per_second\":40.0,\"disk_mib_per_second\":80.0}\n"
    "{\"event\":\"snapshot\",\"rank\":1,\"step\":10,\"version\":1,\"stall_seconds\":0.75,\"copy_seconds\":null,\"write_seconds\":1.25,"
    "\"bytes\":3145728,\"raw_bytes\":4194304,\"mib_per_second\":99.0,\"disk_mib_per_second\":100.0}\n"
    "{\"event\":\"snapshot-failed\",\"rank\":0,\"step\":15,\"version\":1,\"stall_seconds\":9}\n"
    "{\"event\":\"snapshot\",\"rank\":0,\"step\":20,\"version\":2}\n"
    "{\"event\":\"snapshot\",\"rank\":0,\"step\":30,\"version\":3,\"stall_seconds\":1}\n"
    "{\"event\":\"snapshot\",\"rank\":0,\"step\":25,\"version\":3,\"stall_seconds\":2}\n"
    "{\"event\":\"snapshot\",\"rank\":0,\"step\":40,\"version\":4,\"stall_seconds\":3}";

START_TEST(of_a_snapshot_the_slowest_rank_counts_and_unknown_is_none)
{
    struct costs c;
    char path[300], text[240];
    console_home_write(&home, "jobs/demo-1/events.jsonl", costly);
    snprintf(path, sizeof path, "%s/jobs/demo-1/snapshots/v00000001", home.path);
    costs_read_of(path, 0, &c);
    const struct job_cost *one = costs_find(&c, 1, 10);
    ck_assert_ptr_nonnull(one);
    ck_assert_double_eq(one->figure[KC_FIGURE_STALL], 0.75);
    ck_assert_double_eq(one->figure[KC_FIGURE_COPY], 0.5);
    ck_assert_double_eq(one->figure[KC_FIGURE_WRITE], 1.5);
    ck_assert_double_eq(one->figure[KC_FIGURE_RATE], 40); /* of the one that wrote longest */
    cost_text(one, text, sizeof text);
    ck_assert_str_eq(text, "training stood 750 ms; copied in 500 ms, written in 1.5 s, 3.0 MiB for 4.0 MiB; 40 MiB/s, 50 % of the disk's own rate");
    json_t *o = cost_json(one);
    ck_assert_double_eq(json_real_value(json_object_get(o, "disk_share")), 0.5);
    json_decref(o);
    ck_assert_ptr_null(costs_find(&c, 2, 20));
    ck_assert_ptr_null(costs_find(&c, 3, 30));
    ck_assert_double_eq(costs_find(&c, 3, 25)->figure[KC_FIGURE_STALL], 2);
    ck_assert_ptr_null(costs_find(&c, 4, 40));
    o = cost_json(costs_find(&c, 3, 25));
    ck_assert(json_is_null(json_object_get(o, "write_seconds")) && json_is_null(json_object_get(o, "disk_share")));
    json_decref(o);
    o = cost_json(NULL);
    ck_assert(json_is_null(o));
    json_decref(o);
    costs_free(&c);
    costs_read_of("/somewhere/v00000001", 0, &c);
    ck_assert_uint_eq(c.count, 0);
}
END_TEST

/* Lines as a supervisor writes them; of versions that are gone, and of other events, nothing is taken. */
START_TEST(versions_before_the_one_that_is_asked_about_are_left_out)
{
    static const char line[] = "{\"time\":\"2026-11-30T10:00:00.000Z\",\"monotonic_ns\":7,\"event\":\"snapshot\",\"rank\":0,\"step\":90,"
                               "\"version\":9,\"text\":\"\\\"event\\\":\\\"rollback\\\"\"}";
    struct costs c;
    char directory[200];
    console_home_write(&home, "jobs/demo-1/events.jsonl", costly);
    snprintf(directory, sizeof directory, "%s/jobs/demo-1", home.path);
    costs_read(directory, 3, &c);
    ck_assert_uint_eq(c.count, 2);
    ck_assert_double_eq(costs_find(&c, 3, 25)->figure[KC_FIGURE_STALL], 2);
    costs_free(&c);
    ck_assert(journal_may_tell(line, sizeof line - 1, "snapshot"));
    ck_assert(!journal_may_tell(line, sizeof line - 1, "rollback"));
    ck_assert(!journal_may_tell(line, sizeof line - 1, "snap"));
    ck_assert(journal_may_tell("{\"event\" : \"snapshot\"}", 22, "rollback")); /* not ours: it is to be parsed */
}
END_TEST

static bool is_kept(const char *event)
{
    return strcmp(event, "kept") == 0;
}

/* All that is there, step by step; returns how many pieces told something. */
static unsigned read_all(struct journal *j, const char *directory, json_t *events)
{
    unsigned pieces = 0;
    for (int rc = 1; rc == 1; pieces++) {
        rc = journal_read_on(j, directory, is_kept, events);
        ck_assert_int_ge(rc, 0);
    }
    return pieces;
}

static FILE *open_journal(const char *directory, const char *how)
{
    char path[300];
    snprintf(path, sizeof path, "%s/events.jsonl", directory);
    FILE *f = fopen(path, how);
    ck_assert_ptr_nonnull(f);
    return f;
}

START_TEST(a_long_journal_is_read_in_pieces_and_then_on)
{
    struct journal j = {.inode = 0};
    char directory[200];
    json_t *events = json_array();
    snprintf(directory, sizeof directory, "%s/jobs/demo-1", home.path);
    console_home_write(&home, "jobs/demo-1/events.jsonl", "{\"event\":\"kept\",\"n\":0}\n");
    FILE *f = open_journal(directory, "a");
    size_t bytes = 0;
    for (int n = 0; bytes < JOURNAL_END + JOURNAL_PIECE; n++) /* the first lines are further from the end than is looked at */
        bytes += (size_t)fprintf(f, "{\"event\":\"%s\",\"n\":%d,\"text\":\"%200s\"}\n", n % 100 ? "other" : "kept", n, "");
    fclose(f);
    ck_assert_uint_ge(read_all(&j, directory, events), JOURNAL_END / JOURNAL_PIECE);
    const size_t first = json_array_size(events);
    const long long n0 = kc_json_integer(json_array_get(events, 0), "n", -1);
    ck_assert_int_gt(n0, 0);
    for (size_t i = 0; i < first; i++) /* none is lost where pieces meet */
        ck_assert_int_eq(kc_json_integer(json_array_get(events, i), "n", -1), n0 + 100 * (long long)i);

    f = open_journal(directory, "a");
    fputs("{\"event\":\"kept\",\"n\":7}\n{\"event\":\"kept\",", f);
    fflush(f);
    ck_assert_int_eq(journal_read_on(&j, directory, is_kept, events), 0);
    ck_assert_uint_eq(json_array_size(events), first + 1);
    fputs("\"n\":8}\n", f);
    fclose(f);
    ck_assert_int_eq(journal_read_on(&j, directory, is_kept, events), 0);
    ck_assert_uint_eq(json_array_size(events), first + 2);
    ck_assert_int_eq(kc_json_integer(json_array_get(events, first + 1), "n", -1), 8);

    fclose(open_journal(directory, "w")); /* cut back */
    ck_assert_int_eq(journal_read_on(&j, directory, is_kept, events), -ESTALE);
    ck_assert_int_eq(journal_read_on(&j, directory, is_kept, events), 0);
    json_decref(events);
}
END_TEST

/* A disk that is full from one snapshot to the next: each rank tells when it gets to it. */
START_TEST(what_another_rank_tells_late_hides_no_failure)
{
    struct job j;
    struct kc_home h;
    console_home_job(&home, "demo-1", "running", 20, 40);
    console_home_write(&home, "jobs/demo-1/events.jsonl",
                       "{\"event\":\"snapshot-failed\",\"rank\":0,\"step\":5,\"text\":\"before\"}\n"
                       "{\"event\":\"snapshot\",\"rank\":0,\"step\":15,\"version\":2}\n"
                       "{\"event\":\"snapshot-failed\",\"rank\":0,\"step\":20,\"text\":\"no space\"}\n"
                       "{\"event\":\"snapshot\",\"rank\":1,\"step\":15,\"version\":2}\n"
                       "{\"event\":\"snapshot-failed\",\"rank\":1,\"step\":20,\"text\":\"rank 0 failed\"}\n");
    ck_assert_int_eq(kc_home_find(NULL, NULL, &h, NULL), 0);
    ck_assert_int_eq(job_read(&h, "demo-1", &j, NULL), 0);
    ck_assert_str_eq(j.unsaved, "no space");
    ck_assert_int_eq(j.failed_saves, 1);
    ck_assert_int_eq(j.failed_step, 20);
    job_free(&j);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("console journal");
    TCase *t = tcase_create("journal");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, no_file_is_no_rollback);
    tcase_add_test(t, the_step_itself_and_the_first_later_one_are_told);
    tcase_add_test(t, of_a_snapshot_the_slowest_rank_counts_and_unknown_is_none);
    tcase_add_test(t, versions_before_the_one_that_is_asked_about_are_left_out);
    tcase_add_test(t, a_long_journal_is_read_in_pieces_and_then_on);
    tcase_add_test(t, what_another_rank_tells_late_hides_no_failure);
    suite_add_tcase(s, t);
    return suite_run(s);
}
