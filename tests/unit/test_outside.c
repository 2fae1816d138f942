/* What kcd runs for others: so many at once, for so long, and what does not fit is left out and said. The programs are scripts. */
#include "suite.h"

#include "supervisor/outside.h"

#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static char folder[] = "/tmp/kc-outside-XXXXXX";
static struct kc_home home;
static char said[4096];

static void note(const char *format, ...)
{
    const size_t n = strlen(said);
    va_list list;
    va_start(list, format);
    vsnprintf(said + n, sizeof said - n, format, list);
    va_end(list);
}

static const char *place(const char *name)
{
    static char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void begin(void)
{
    snprintf(folder, sizeof folder, "/tmp/kc-outside-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(home.home, sizeof home.home, "%s", folder);
    snprintf(home.instance, sizeof home.instance, "outside");
    said[0] = 0;
}

static void end(void)
{
    static const char *const names[] = {"program", "told", "pid"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        unlink(place(names[i]));
    ck_assert_int_eq(rmdir(folder), 0);
}

/* A kcd's half of it, with a program of these lines. */
static struct kc_outside open_with(const char *lines)
{
    struct kc_outside o = {.lock = -1, .log = note};
    struct kc_error e = {""};
    FILE *f = fopen(place("program"), "w");
    fprintf(f, "#!/bin/sh\n%s\n", lines);
    fclose(f);
    chmod(place("program"), 0700);
    ck_assert_msg(kc_outside_open(&o, &home, NULL, place("program"), &e) == 0, "%s", e.text);
    return o;
}

static size_t under_way(const struct kc_outside *o)
{
    pid_t pid[KC_OUTSIDE_AT_ONCE + 1];
    return kc_outside_children(o, pid, KC_OUTSIDE_AT_ONCE + 1);
}

/* As kcd's loop does, until `want` are under way. */
static void reap_until(struct kc_outside *o, size_t want)
{
    const uint64_t limit = kc_now() + 20 * KC_SECOND;
    for (int status; under_way(o) != want && kc_now() < limit; nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL))
        for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;)
            ck_assert(kc_outside_take(o, pid, status));
    ck_assert_uint_eq(under_way(o), want);
}

START_TEST(an_object_is_on_its_input_and_nothing_else_is_given)
{
    char text[512] = "";
    struct kc_outside o = open_with("cat >$KC_HOME/told; echo $# $KC_INSTANCE >>$KC_HOME/told");
    kc_outside_tell(&o, json_pack("{s:s}", "event", "it's; $(finished)"));
    ck_assert_uint_ne(kc_outside_tick(&o), 0);
    reap_until(&o, 0);
    int fd = open(place("told"), O_RDONLY | O_CLOEXEC);
    ck_assert_int_gt(read(fd, text, sizeof text - 1), 0);
    close(fd);
    ck_assert_str_eq(text, "{\"event\":\"it's; $(finished)\"}\n0 outside\n");
    ck_assert_str_eq(said, "");
    ck_assert_uint_eq(kc_outside_tick(&o), 0);
    kc_outside_close(&o);
}
END_TEST

START_TEST(what_does_not_fit_is_left_out_and_said_once)
{
    struct kc_outside o = open_with("exec sleep 1000");
    for (int i = 0; i < KC_OUTSIDE_AT_ONCE; i++)
        kc_outside_tell(&o, json_object());
    kc_outside_tick(&o);
    ck_assert_uint_eq(under_way(&o), KC_OUTSIDE_AT_ONCE);
    for (int i = 0; i < KC_OUTSIDE_WAITING + 3; i++)
        kc_outside_tell(&o, json_object());
    kc_outside_tick(&o);
    ck_assert_uint_eq(under_way(&o), KC_OUTSIDE_AT_ONCE);
    ck_assert_uint_eq(json_array_size(o.waiting), KC_OUTSIDE_WAITING);
    ck_assert_uint_eq(o.dropped, 3);
    ck_assert_ptr_nonnull(strstr(said, "64 events wait"));
    ck_assert_ptr_null(strstr(strstr(said, "64 events wait") + 1, "64 events wait"));
    json_array_clear(o.waiting);
    for (int i = 0; i < KC_OUTSIDE_AT_ONCE; i++)
        o.program[i].deadline = 1;
    kc_outside_tick(&o);
    reap_until(&o, 0);
    kc_outside_close(&o);
}
END_TEST

static bool gone(pid_t pid)
{
    char path[64], state = 'Z';
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *f = fopen(path, "r");
    if (f) {
        if (fscanf(f, "%*d %*s %c", &state) != 1)
            state = 'Z';
        fclose(f);
    }
    return state == 'Z' || state == 'X';
}

/* One that has started another; the other. */
static pid_t begin_two(struct kc_outside *o)
{
    const uint64_t limit = kc_now() + 20 * KC_SECOND;
    int child = 0;
    kc_outside_tell(o, json_object());
    kc_outside_tick(o);
    for (FILE *f; child == 0 && kc_now() < limit; nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL))
        if ((f = fopen(place("pid"), "r"))) {
            ck_assert_int_eq(fscanf(f, "%d", &child), 1);
            fclose(f);
        }
    ck_assert_int_gt(child, 1);
    return child;
}

static void await_gone(pid_t pid)
{
    const uint64_t limit = kc_now() + 20 * KC_SECOND;
    while (!gone(pid) && kc_now() < limit)
        nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
    ck_assert(gone(pid));
}

#define TWO "sleep 1000 & echo $! >$KC_HOME/pid.new; mv $KC_HOME/pid.new $KC_HOME/pid; wait"

/* Who heeds no alarm is killed, with all that it started. */
START_TEST(who_is_late_is_ended_with_its_children)
{
    struct kc_outside o = open_with("trap '' ALRM TERM; " TWO);
    const pid_t child = begin_two(&o);
    ck_assert_uint_gt(o.program[0].deadline, kc_now() + KC_OUTSIDE_SECONDS * KC_SECOND);
    o.program[0].deadline = kc_now();
    kc_outside_tick(&o);
    reap_until(&o, 0);
    await_gone(child);
    ck_assert_ptr_nonnull(strstr(said, "ended by signal 9: it had its time"));
    kc_outside_close(&o);
}
END_TEST

/* The alarm rings for the program alone: a script dies of it, and what the script waits for goes as well. */
START_TEST(who_dies_of_its_alarm_takes_its_children_with_it)
{
    struct kc_outside o = open_with(TWO);
    const pid_t child = begin_two(&o);
    ck_assert_int_eq(kill(o.program[0].pid, SIGALRM), 0);
    reap_until(&o, 0);
    await_gone(child);
    ck_assert_ptr_nonnull(strstr(said, "it had its time"));
    kc_outside_close(&o);
}
END_TEST

START_TEST(what_is_no_program_is_refused)
{
    struct kc_outside o = {.lock = -1, .log = note};
    struct kc_error e = {""};
    ck_assert_int_eq(kc_outside_open(&o, &home, NULL, folder, &e), -EINVAL);
    ck_assert_ptr_nonnull(strstr(e.text, "is no program"));
    ck_assert_int_eq(kc_outside_open(&o, &home, NULL, "/nowhere/x", &e), -ENOENT);
    ck_assert_int_eq(kc_outside_open(&o, &home, "/dev/null", NULL, &e), -ENOTDIR);
    kc_outside_close(&o);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("outside");
    TCase *t = tcase_create("programs");
    tcase_add_checked_fixture(t, begin, end);
    tcase_add_test(t, an_object_is_on_its_input_and_nothing_else_is_given);
    tcase_add_test(t, what_does_not_fit_is_left_out_and_said_once);
    tcase_add_test(t, who_is_late_is_ended_with_its_children);
    tcase_add_test(t, who_dies_of_its_alarm_takes_its_children_with_it);
    tcase_add_test(t, what_is_no_program_is_refused);
    suite_add_tcase(s, t);
    return suite_run(s);
}
