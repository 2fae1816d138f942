/* test_oom.c - F08: out of memory is said with its evidence only. Machines are folders in place of /proc, /sys and /dev, as the
 * kernel's documents have them (cgroup-v2.rst, cgroup-v1/memory.rst, ABI/testing/dev-kmsg); the lines of the log are a kernel's. */
#include "base/clock.h"
#include "base/file.h"
#include "resource/oom.h"
#include "tests/unit/suite.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define SECOND KC_SECOND
#define LINE(number, pid) "3," number ",24141698223,-;Memory cgroup out of memory: Killed process " pid                     \
                          " (kc-rank) total-vm:118968kB, anon-rss:32512kB, file-rss:6740kB, shmem-rss:0kB, UID:0 "              \
                          "pgtables:132kB oom_score_adj:0\n"

static char dir[64]; /* a fresh folder per test */
static struct kc_oom_watch *watch;
static struct kc_oom_victim victim[2];

static void set_up(void)
{
    snprintf(dir, sizeof dir, "/tmp/kc-test-oom-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(dir));
    watch = NULL;
    victim[0] = (struct kc_oom_victim){.pid = 123, .rank = 0};
    victim[1] = (struct kc_oom_victim){.pid = 124, .rank = 1};
}

static void tear_down(void)
{
    kc_oom_close(watch);
    pid_t pid = fork();
    if (pid == 0) {
        execlp("rm", "rm", "-rf", "--", dir, NULL);
        _exit(127);
    }
    waitpid(pid, NULL, 0);
}

static int open_below(const char *path, int how)
{
    char full[512], parent[512];
    snprintf(full, sizeof full, "%s/%s", dir, path);
    snprintf(parent, sizeof parent, "%s", full);
    *strrchr(parent, '/') = 0;
    ck_assert_int_eq(kc_make_dirs(parent), 0);
    int fd = open(full, O_WRONLY | O_CREAT | O_CLOEXEC | how, 0600);
    ck_assert_int_ge(fd, 0);
    return fd;
}

static void put(const char *path, const char *text)
{
    int fd = open_below(path, O_TRUNC);
    ck_assert_int_eq(kc_write_all(fd, text, strlen(text)), 0);
    close(fd);
}

/* The kernel says something. */
static void logs(const char *text)
{
    int fd = open_below("dev/kmsg", O_APPEND);
    ck_assert_int_eq(kc_write_all(fd, text, strlen(text)), 0);
    close(fd);
}

static void first_pids(const char *is)
{
    char path[512];
    put("proc/self/ns/none", "");
    snprintf(path, sizeof path, "%s/proc/self/ns/pid", dir);
    ck_assert_int_eq(symlink(is, path), 0);
}

static void vmstat(int kills)
{
    char text[128];
    snprintf(text, sizeof text, "nr_free_pages 7\noom_kill_disabled 9\noom_kill %d\nnuma_hint_faults 3\n", kills);
    put("proc/vmstat", text);
}

static void events(const char *group, int kills)
{
    char path[256], text[128];
    snprintf(path, sizeof path, "sys/fs/cgroup%s/memory.events", group);
    snprintf(text, sizeof text, "low 0\nhigh 0\nmax 12\noom %d\noom_kill %d\noom_group_kill 8\n", kills, kills);
    put(path, text);
}

static void control(const char *group, int kills)
{
    char path[256], text[128];
    snprintf(path, sizeof path, "sys/fs/cgroup/memory%s/memory.oom_control", group);
    snprintf(text, sizeof text, "oom_kill_disable 0\nunder_oom 0\noom_kill %d\n", kills);
    put(path, text);
}

static void version2(void)
{
    put("proc/self/cgroup", "0::/user/job\n");
    put("proc/self/mountinfo", "30 25 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n");
    put("sys/fs/cgroup/cgroup.controllers", "cpuset cpu io memory pids\n");
    put("sys/fs/cgroup/user/job/cgroup.procs", "");
    events("/user/job", 4);
    vmstat(40);
}

static void begin(void)
{
    ck_assert_int_eq(kc_oom_open(dir, 1000 * SECOND, &watch), 0);
}

static void judge(size_t count)
{
    kc_oom_judge(watch, victim, count, 0);
}

#define IS(v, word, text)                                                                                              \
    do {                                                                                                               \
        ck_assert_str_eq(kc_oom_name[(v).level], word);                                                                \
        ck_assert_str_eq((v).evidence, text);                                                                          \
    } while (0)

START_TEST(F08_the_counter_of_its_group_makes_it_likely)
{
    version2();
    begin();
    vmstat(41); /* somebody else's */
    judge(1);
    IS(victim[0], "unknown", "");
    events("/user/job", 5);
    judge(1);
    IS(victim[0], "likely", "oom_kill of its control group rose by 1");
}
END_TEST

START_TEST(F08_a_group_above_has_the_account_where_the_controller_ends)
{
    version2();
    put("proc/self/cgroup", "0::/user/job/step\n");
    put("sys/fs/cgroup/user/job/step/cgroup.procs", ""); /* no memory.events here */
    begin();
    events("/user/job", 5);
    judge(1);
    IS(victim[0], "likely", "oom_kill of its control group rose by 1");
}
END_TEST

START_TEST(F08_version_1_and_hybrid)
{
    put("proc/self/cgroup", "9:name=systemd:/\n4:memory:/docker/abc\n0::/\n");
    put("proc/self/mountinfo", "31 30 0:27 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n"
                               "33 30 0:29 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n");
    put("sys/fs/cgroup/unified/cgroup.controllers", "");
    control("", 0);
    vmstat(1);
    begin();
    control("", 2);
    judge(1);
    IS(victim[0], "likely", "oom_kill of its control group rose by 2");
}
END_TEST

START_TEST(F08_without_a_group_the_machine_counts)
{
    vmstat(7);
    begin();
    judge(1);
    IS(victim[0], "unknown", "");
    vmstat(8);
    judge(1);
    IS(victim[0], "likely", "oom_kill of /proc/vmstat rose by 1");
    kc_oom_close(watch);
    put("proc/self/cgroup", "4:memory:/\n"); /* before Linux 4.13 a group did not count either */
    put("proc/self/mountinfo", "31 30 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n");
    put("sys/fs/cgroup/memory/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\n");
    begin();
    vmstat(9);
    judge(1);
    IS(victim[0], "likely", "oom_kill of /proc/vmstat rose by 1");
}
END_TEST

START_TEST(F08_nothing_to_read_is_unknown)
{
    begin();
    judge(1);
    IS(victim[0], "unknown", "");
    vmstat(9); /* there only now: it tells nothing of how it was */
    judge(1);
    IS(victim[0], "unknown", "");
}
END_TEST

START_TEST(F08_of_two_victims_of_one_kill_neither_is_named)
{
    version2();
    begin();
    events("/user/job", 5);
    judge(2);
    for (int i = 0; i < 2; i++)
        IS(victim[i], "unknown", "oom_kill of its control group rose by 1, which of 2 that were killed is not known");
    events("/user/job", 6);
    judge(2);
    for (int i = 0; i < 2; i++)
        IS(victim[i], "likely", "oom_kill of its control group rose by 2");
}
END_TEST

START_TEST(F08_the_log_names_it)
{
    version2();
    first_pids("pid:[4026531836]");
    logs(LINE("1551", "123")); /* of a process of that number that was before */
    begin();
    events("/user/job", 5);
    judge(2);
    IS(victim[0], "unknown", "oom_kill of its control group rose by 1, which of 2 that were killed is not known");
    logs("6,1552,24141698100,-;kc-rank invoked oom-killer: gfp_mask=0xcc0, order=0\n" LINE("1553", "124"));
    judge(2);
    IS(victim[0], "unknown", ""); /* the one that was counted is known by now */
    IS(victim[1], "certain", "the kernel's log names pid 124");
    kc_oom_begin(watch, 1001 * SECOND);
    victim[1].level = KC_OOM_UNKNOWN;
    victim[1].evidence[0] = 0;
    judge(2);
    IS(victim[1], "unknown", "");
}
END_TEST

START_TEST(F08_a_line_that_comes_in_parts_is_waited_for)
{
    version2();
    first_pids("pid:[4026531836]");
    logs("");
    begin();
    events("/user/job", 5);
    logs("3,1552,24141698223,-;Out of memory: Killed proc");
    pid_t pid = fork();
    if (pid == 0) {
        logs("ess 123 (kc-rank) total-vm:1kB\n");
        _exit(0);
    }
    kc_oom_judge(watch, victim, 1, 10 * SECOND);
    IS(victim[0], "certain", "the kernel's log names pid 123");
    waitpid(pid, NULL, 0);
}
END_TEST

START_TEST(F08_pids_of_another_namespace_are_not_ours)
{
    version2();
    first_pids("pid:[4026532201]");
    logs("");
    begin();
    events("/user/job", 5);
    logs(LINE("1552", "123"));
    judge(1);
    IS(victim[0], "likely", "oom_kill of its control group rose by 1");
}
END_TEST

START_TEST(F08_what_a_program_wrote_into_the_log_names_nobody)
{
    ck_assert_int_eq(oom_named("3,1552,24141698223,-;Memory cgroup out of memory: Killed process 11870 (python3) total-vm:1kB"),
                     11870);
    ck_assert_int_eq(oom_named("4,7,9,-,caller=T12;Killed process 5 (x) total-vm:1kB"), 5);
    ck_assert_int_eq(oom_named("12,1552,24141698223,-;Out of memory: Killed process 11870 (python3)"), 0); /* facility 1 */
    ck_assert_int_eq(oom_named("3,1552,24141698223,-;Killed process 1 (init) total-vm:1kB"), 0);
    ck_assert_int_eq(oom_named("3,1552,24141698223,-;Killed process 77"), 0);
    ck_assert_int_eq(oom_named("3,1552,24141698223,- Killed process 77 (x)"), 0);
    ck_assert_int_eq(oom_named("Killed process 77 (x)"), 0);
    ck_assert_int_eq(oom_named(" SUBSYSTEM=memory;Killed process 77 (x)"), 0);
    ck_assert_int_eq(oom_named(""), 0);
}
END_TEST

START_TEST(F08_a_counter_of_its_own_is_proof)
{
    version2();
    put("proc/123/cgroup", "0::/user/rank-0\n");
    put("proc/124/cgroup", "0::/user/job\n"); /* ours */
    put("sys/fs/cgroup/user/rank-0/cgroup.procs", "");
    events("/user/rank-0", 1);
    begin();
    kc_oom_follow(watch, 0, 123);
    kc_oom_follow(watch, 1, 124);
    events("/user/job", 5);
    judge(2);
    IS(victim[1], "unknown", "oom_kill of its control group rose by 1, which of 2 that were killed is not known");
    events("/user/rank-0", 2);
    judge(2);
    IS(victim[0], "certain", "oom_kill of its own control group rose by 1");
    IS(victim[1], "likely", "oom_kill of its control group rose by 1");
}
END_TEST

START_TEST(F08_what_was_counted_long_before_is_of_somebody_else)
{
    version2();
    begin();
    events("/user/job", 5);
    kc_oom_sample(watch, 1004 * SECOND); /* so soon after it a large process may still be going */
    judge(1);
    IS(victim[0], "likely", "oom_kill of its control group rose by 1");
    kc_oom_sample(watch, 1005 * SECOND);
    judge(1);
    IS(victim[0], "likely", "oom_kill of its control group rose by 1");
    kc_oom_sample(watch, 1010 * SECOND);
    judge(1);
    IS(victim[0], "unknown", "");
}
END_TEST

int main(void)
{
    Suite *s = suite_create("oom");
    TCase *t = tcase_create("oom");
    tcase_add_checked_fixture(t, set_up, tear_down);
    tcase_add_test(t, F08_the_counter_of_its_group_makes_it_likely);
    tcase_add_test(t, F08_a_group_above_has_the_account_where_the_controller_ends);
    tcase_add_test(t, F08_version_1_and_hybrid);
    tcase_add_test(t, F08_without_a_group_the_machine_counts);
    tcase_add_test(t, F08_nothing_to_read_is_unknown);
    tcase_add_test(t, F08_of_two_victims_of_one_kill_neither_is_named);
    tcase_add_test(t, F08_the_log_names_it);
    tcase_add_test(t, F08_a_line_that_comes_in_parts_is_waited_for);
    tcase_add_test(t, F08_pids_of_another_namespace_are_not_ours);
    tcase_add_test(t, F08_what_a_program_wrote_into_the_log_names_nobody);
    tcase_add_test(t, F08_a_counter_of_its_own_is_proof);
    tcase_add_test(t, F08_what_was_counted_long_before_is_of_somebody_else);
    suite_add_tcase(s, t);
    return suite_run(s);
}
