/* test_mortem.c - what a post-mortem keeps of a job's files, and how many of them. */
#include "base/file.h"
#include "console/hang/mortem.h"
#include "tests/unit/suite.h"

#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char job[64], folder[160];
static struct kc_error e;
static struct kc_home home;

static void write_text(const char *name, const char *text, size_t times)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", job, name);
    FILE *f = fopen(path, "w");
    ck_assert_ptr_nonnull(f);
    for (size_t i = 0; i < times; i++)
        fputs(text, f);
    fclose(f);
}

/* Of the newest post-mortem; "" it is not there. */
static const char *kept(const char *name, size_t *bytes)
{
    static char *data;
    char path[320];
    free(data);
    data = NULL;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return kc_file_read(path, 1 << 20, &data, bytes) == 0 ? data : "";
}

static void make(const char *stamp)
{
    snprintf(folder, sizeof folder, "%s/postmortem/%s", job, stamp);
    ck_assert_int_eq(kc_make_dirs(folder), 0);
}

static void setup(void)
{
    snprintf(job, sizeof job, "/tmp/kc-mortem-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(job));
    make("20261130-031240");
}

static void teardown(void)
{
    char command[96];
    snprintf(command, sizeof command, "rm -rf %s", job);
    FILE *p = popen(command, "r");
    if (p)
        pclose(p);
}

START_TEST(ends_of_logs_and_of_the_journal_are_kept)
{
    size_t bytes = 0;
    write_text("rank-0.log", "0123456789abcdef", 8192); /* 128 KiB */
    write_text("rank-1.log", "short\n", 1);
    write_text("events.jsonl", "{\"event\":\"a line of forty bytes, say\"}\n", 10000);
    write_text("state.json", "{}", 1);
    ck_assert_int_eq(kc_mortem_fill(&home, folder, job, 3, &e), 0); /* rank 2 has not written anything, there is no spec */
    kept("log-0.txt", &bytes);
    ck_assert_uint_eq(bytes, 64 << 10);
    ck_assert_str_eq(kept("log-1.txt", &bytes), "short\n");
    ck_assert_str_eq(kept("log-2.txt", &bytes), "");
    ck_assert_str_eq(kept("state.json", &bytes), "{}");
    ck_assert(strncmp(kept("events.jsonl", &bytes), "{\"event\"", 8) == 0); /* the first line is whole */
    ck_assert(bytes <= 256 << 10 && bytes > 200 << 10);
    ck_assert_str_eq(kept("plan.json", &bytes), "");
}
END_TEST

START_TEST(the_newest_three_stay)
{
    static const char *const stamps[] = {"20261130-031241", "20261130-031241-2", "20261201-000000"};
    char path[256];
    int n = 0;
    write_text("rank-0.log", "x", 1);
    snprintf(path, sizeof path, "%s/postmortem/mine", job); /* not of this form: not ours */
    ck_assert_int_eq(kc_make_dirs(path), 0);
    ck_assert_int_eq(kc_mortem_fill(&home, folder, job, 1, &e), 0);
    for (int i = 0; i < 3; i++) {
        make(stamps[i]);
        ck_assert_int_eq(kc_mortem_fill(&home, folder, job, 1, &e), 0);
    }
    snprintf(path, sizeof path, "%s/postmortem", job);
    DIR *d = opendir(path);
    for (struct dirent *one; (one = readdir(d));)
        n += one->d_name[0] != '.';
    closedir(d);
    ck_assert_int_eq(n, 4);
    snprintf(path, sizeof path, "%s/postmortem/20261130-031240", job);
    ck_assert_int_eq(access(path, F_OK), -1);
    snprintf(path, sizeof path, "%s/postmortem/20261130-031241/log-0.txt", job);
    ck_assert_int_eq(access(path, F_OK), 0);
}
END_TEST

/* Of a clock that was set back: the one that is being made has the oldest name. */
START_TEST(what_is_being_made_stays)
{
    static const char *const stamps[] = {"20261130-031241", "20261130-031242", "20261130-031243", "20261130-000000"};
    write_text("rank-0.log", "x", 1);
    for (int i = 0; i < 4; i++) {
        make(stamps[i]);
        ck_assert_int_eq(kc_mortem_fill(&home, folder, job, 1, &e), 0);
    }
    ck_assert_int_eq(access(folder, F_OK), 0);
}
END_TEST

START_TEST(elsewhere_nothing_is_removed)
{
    char own[160];
    memcpy(own, folder, sizeof own);
    write_text("rank-0.log", "x", 1);
    for (int i = 0; i < 4; i++) {
        snprintf(folder, sizeof folder, "%s/elsewhere/20261130-00000%d", job, i);
        ck_assert_int_eq(kc_make_dirs(folder), 0);
        ck_assert_int_eq(kc_mortem_fill(&home, folder, job, 1, &e), 0);
    }
    snprintf(folder, sizeof folder, "%s/elsewhere/20261130-000000", job);
    ck_assert_int_eq(access(folder, F_OK), 0);
    ck_assert_int_eq(access(own, F_OK), 0);
}
END_TEST

START_TEST(what_cannot_be_written_is_told)
{
    write_text("rank-0.log", "x", 1);
    snprintf(folder, sizeof folder, "%s/nowhere", job);
    ck_assert_int_eq(kc_mortem_fill(&home, folder, job, 1, &e), -ENOENT);
    ck_assert_ptr_nonnull(strstr(e.text, "nowhere/log-0.txt: No such file"));
}
END_TEST

int main(void)
{
    Suite *s = suite_create("mortem");
    TCase *c = tcase_create("mortem");
    tcase_add_checked_fixture(c, setup, teardown);
    tcase_add_test(c, ends_of_logs_and_of_the_journal_are_kept);
    tcase_add_test(c, the_newest_three_stay);
    tcase_add_test(c, what_is_being_made_stays);
    tcase_add_test(c, elsewhere_nothing_is_removed);
    tcase_add_test(c, what_cannot_be_written_is_told);
    suite_add_tcase(s, c);
    return suite_run(s);
}
