/* test_kept.c - a look with a memory tells the same as one without, whatever happened to the files and boards in between. */
#include "board_home.h"
#include "console_home.h"

#include "base/json.h"
#include "console/kept.h"
#include "console/report.h"
#include "console/snapshots.h"
#include "shm/reader.h"
#include "shm/segment.h"
#include "tests/unit/suite.h"

#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct console_home home;
static struct kc_home paths;
static struct kept *kept;
static struct kc_error error;

static void set_up(void)
{
    console_home_make(&home);
    ck_assert_int_eq(kc_home_find(NULL, NULL, &paths, &error), 0);
    kept = kept_new();
}

static void tear_down(void)
{
    kept_free(kept);
    kc_segment_sweep(home.instance);
    console_home_remove(&home);
}

static void append(const char *name, const char *text)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", home.path, name);
    FILE *f = fopen(path, "a");
    ck_assert(f && fputs(text, f) >= 0 && fclose(f) == 0);
}

static char *told(const struct model *m)
{
    json_t *all = json_array();
    for (size_t i = 0; i < m->count; i++) {
        json_t *o = report_job(&m->job[i]);
        json_object_set_new(o, "failed_saves", json_integer(m->job[i].failed_saves));
        json_object_set_new(o, "unsaved", json_string(m->job[i].unsaved));
        json_array_append_new(all, o);
    }
    char *text = json_dumps(all, JSON_INDENT(1) | JSON_SORT_KEYS);
    json_decref(all);
    return text;
}

/* Look with the memory and without. Returns the newest job's step. */
static int64_t both(void)
{
    struct model a, b;
    ck_assert_int_eq(model_read(&paths, kept, &a, &error), 0);
    ck_assert_int_eq(model_read(&paths, NULL, &b, &error), 0);
    char *with = told(&a), *without = told(&b);
    ck_assert_str_eq(with, without);
    int64_t step = a.count ? a.job[0].step : -2;
    free(with);
    free(without);
    model_free(&a);
    model_free(&b);
    return step;
}

#define STEP(n, loss) "{\"step\":" #n ",\"loss\":" #loss ",\"grad_norm\":1,\"lr\":0.001,\"seconds\":0.25,\"tokens_per_second\":100}\n"

START_TEST(lines_are_read_on)
{
    console_home_job(&home, "demo-1", "running", 2000, 3000); /* more than is read at once */
    ck_assert_int_eq(both(), 2000);
    ck_assert_int_eq(both(), 2000);
    append("jobs/demo-1/metrics.jsonl", STEP(2001, 3.5));
    ck_assert_int_eq(both(), 2001);
    append("jobs/demo-1/metrics.jsonl", "{\"step\":2001,\"validation_loss\":3.25}\n");
    ck_assert_int_eq(both(), 2001);
    append("jobs/demo-1/metrics.jsonl", "{\"step\":2002,\"los"); /* still being written */
    ck_assert_int_eq(both(), 2001);
    append("jobs/demo-1/metrics.jsonl", "s\":3,\"seconds\":1}\n" STEP(2003, 2));
    ck_assert_int_eq(both(), 2003);
    append("jobs/demo-1/metrics.jsonl", "not a line of ours\n");
    ck_assert_int_eq(both(), 2003);
}
END_TEST

START_TEST(a_file_that_was_cut_back_is_read_anew)
{
    char path[512];
    snprintf(path, sizeof path, "%s/jobs/demo-1/metrics.jsonl", home.path);
    console_home_job(&home, "demo-1", "running", 0, 3000);
    append("jobs/demo-1/metrics.jsonl", STEP(100, 4) STEP(101, 4) "{\"step\":101,\"validation_loss\":9.5}\n" STEP(102, 4));
    ck_assert_int_eq(both(), 102);
    ck_assert_int_eq(truncate(path, strlen(STEP(100, 4))), 0); /* a restart: back to 100 */
    ck_assert_int_eq(both(), 100);
    append("jobs/demo-1/metrics.jsonl", STEP(101, 4));
    ck_assert_int_eq(both(), 101);
    /* cut back and grown again between two looks, beyond where it was: to the letter at the end of a line */
    ck_assert_int_eq(truncate(path, 0), 0);
    append("jobs/demo-1/metrics.jsonl", STEP(50, 4) STEP(51, 4) STEP(52, 4));
    (void)both();
    ck_assert_int_eq(unlink(path), 0);
    ck_assert_int_eq(both(), -1);
    append("jobs/demo-1/metrics.jsonl", STEP(7, 4));
    ck_assert_int_eq(both(), 7);
}
END_TEST

START_TEST(failed_snapshots_are_counted_on)
{
    static const char failed[] = "{\"event\":\"snapshot-failed\",\"rank\":0,\"step\":100,\"text\":\"no room\"}\n";
    static const char good[] = "{\"event\":\"snapshot\",\"rank\":0,\"step\":200}\n";
    console_home_job(&home, "demo-1", "running", 10, 3000);
    for (int i = 0; i < 3; i++) {
        append("jobs/demo-1/events.jsonl", failed);
        (void)both();
    }
    append("jobs/demo-1/events.jsonl", "{\"event\":\"paused\"}\n");
    (void)both();
    append("jobs/demo-1/events.jsonl", good);
    (void)both();
    append("jobs/demo-1/events.jsonl", failed);
    (void)both();
}
END_TEST

START_TEST(states_change_and_jobs_come_and_go)
{
    console_home_job(&home, "demo-1", "running", 20, 300);
    (void)both();
    console_home_job(&home, "demo-2", "queued", 0, 300);
    (void)both();
    console_home_job(&home, "demo-1", "finished", 300, 300);
    console_home_write(&home, "jobs/demo-1/result.json", "{\"state\":\"finished\",\"exit_code\":0,\"step\":300,\"loss\":1.5}");
    (void)both();
    console_home_write(&home, "jobs/demo-1/result.json", "{\"state\":\"finished\",\"exit_code\":1,\"step\":299}");
    (void)both();
    console_home_write(&home, "jobs/demo-2/state.json", "half of");
    (void)both();
    char command[512];
    for (int i = 0; i < 2; i++) {
        static const char *const names[] = {"spec.json", "state.json"};
        snprintf(command, sizeof command, "%s/jobs/demo-2/%s", home.path, names[i]);
        ck_assert_int_eq(unlink(command), 0);
    }
    (void)both();
}
END_TEST

static struct kc_segment board(struct board_wish *w, uint64_t step)
{
    struct kc_segment s;
    w->step = step;
    w->now = 1; /* long ago: ages are the same in two looks but for their digits behind the point */
    ck_assert_msg(kc_segment_create(home.instance, w->id, w->ranks, &s, &error) == 0, "%s", error.text);
    board_fill((struct kc_job_segment *)(void *)s.head, w);
    return s;
}

/* A board stays attached while its name leads to it, and a new one of that name is attached anew. */
START_TEST(boards_stay_attached)
{
    struct board_wish w = board_wish(4);
    struct model m;
    ck_assert_int_eq(board_home_job(home.path, home.instance, &w, &error), 0);
    struct kc_segment s = board(&w, 40);
    ck_assert_int_eq(model_read(&paths, kept, &m, &error), 0);
    struct kc_reader *first = kept_reader(kept, w.id);
    ck_assert(m.job[0].board && m.job[0].step == 40 && first);
    model_free(&m);
    w.step = 41;
    board_fill((struct kc_job_segment *)(void *)s.head, &w);
    ck_assert_int_eq(job_look(&paths, kept, w.id, m.job = malloc(sizeof *m.job), &error), 0);
    ck_assert(m.job[0].step == 41 && kept_reader(kept, w.id) == first);
    job_free(m.job);
    free(m.job);
    kc_segment_close(&s);
    ck_assert_int_eq(kc_segment_remove(home.instance, w.id, &error), 0);
    ck_assert_int_eq(model_read(&paths, kept, &m, &error), 0);
    ck_assert(!m.job[0].board && !kept_reader(kept, w.id));
    model_free(&m);
    s = board(&w, 50);
    ck_assert_int_eq(model_read(&paths, kept, &m, &error), 0);
    ck_assert(m.job[0].board && m.job[0].step == 50);
    model_free(&m);
    w.state = KC_JOB_FINISHED;
    ck_assert_int_eq(board_home_job(home.path, home.instance, &w, &error), 0);
    ck_assert_int_eq(model_read(&paths, kept, &m, &error), 0);
    ck_assert(m.job[0].state == KC_JOB_FINISHED && !kept_reader(kept, w.id));
    model_free(&m);
    kc_segment_close(&s);
}
END_TEST

/* Of a job that has ended, until it runs and ends again. */
START_TEST(the_newest_snapshot_is_read_once)
{
    struct model m;
    console_home_job(&home, "demo-1", "running", 20, 300);
    for (int round = 0; round < 2; round++) {
        ck_assert_int_eq(model_read(&paths, kept, &m, &error), 0);
        ck_assert(!snapshots_newest_once(&m.job[0], kept, true)); /* it has not ended */
        model_free(&m);
        console_home_job(&home, "demo-1", round ? "stopped" : "finished", 300, 300);
        ck_assert_int_eq(model_read(&paths, kept, &m, &error), 0);
        ck_assert(!snapshots_newest_once(&m.job[0], kept, false));
        ck_assert(snapshots_newest_once(&m.job[0], kept, true));
        ck_assert_int_eq(m.job[0].snapshot.step, -1); /* it has none */
        model_free(&m);
        kept_job(kept, "demo-1")->saved.step = 280;
        ck_assert_int_eq(model_read(&paths, kept, &m, &error), 0);
        ck_assert(!snapshots_newest_once(&m.job[0], kept, true));
        ck_assert_int_eq(m.job[0].snapshot.step, 280);
        model_free(&m);
        console_home_job(&home, "demo-1", "running", 301, 400);
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("kept");
    TCase *c = tcase_create("kept");
    tcase_add_checked_fixture(c, set_up, tear_down);
    tcase_add_test(c, lines_are_read_on);
    tcase_add_test(c, a_file_that_was_cut_back_is_read_anew);
    tcase_add_test(c, failed_snapshots_are_counted_on);
    tcase_add_test(c, states_change_and_jobs_come_and_go);
    tcase_add_test(c, boards_stay_attached);
    tcase_add_test(c, the_newest_snapshot_is_read_once);
    suite_add_tcase(s, c);
    return suite_run(s);
}
