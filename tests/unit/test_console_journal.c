/* test_console_journal.c - what the console finds in events.jsonl: where a job went back, to the step that is asked about and to the
 * first later one; what each snapshot cost; which one failed, and why. */
#include "console/costs.h"
#include "console/rollbacks.h"
#include "console_home.h"
#include "tests/unit/suite.h"

#include <check.h>
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
    costs_read_of(path, &c);
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
    costs_read_of("/somewhere/v00000001", &c);
    ck_assert_uint_eq(c.count, 0);
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
    tcase_add_test(t, what_another_rank_tells_late_hides_no_failure);
    suite_add_tcase(s, t);
    return suite_run(s);
}
