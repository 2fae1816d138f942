/* test_console_kcd.c - kc against supervisors of all kinds: one that answers, refuses, hangs up, is of another
 * version, or has died and left its socket. The supervisor is a thread of this test. */
#include "console_home.h"

#include "base/file.h"
#include "base/json.h"
#include "base/socket.h"
#include "base/version.h"
#include "contracts/job_spec.h"
#include "supervisor/protocol.h"
#include "tests/unit/suite.h"

#include <check.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static struct console_home home;
static struct kc_home paths;

struct fake {
    const char *hello, *reply; /* NULL: hangs up instead */
    char asked[4096];          /* the last request that was not hello */
    int listening, stop[2];
    pthread_t thread;
};

static void serve(struct fake *f, int fd)
{
    FILE *in = fdopen(fd, "r");
    char *line = NULL;
    size_t room = 0;
    while (in && getline(&line, &room, in) > 0) {
        json_t *o = json_loads(line, 0, NULL);
        bool hello = !strcmp(kc_json_text(o, "verb", ""), "hello");
        const char *reply = hello ? f->hello : f->reply;
        if (!hello)
            snprintf(f->asked, sizeof f->asked, "%s", line);
        json_decref(o);
        if (!reply || send(fd, reply, strlen(reply), MSG_NOSIGNAL) < 0)
            break;
    }
    free(line);
    if (in)
        fclose(in);
}

static void *run(void *arg)
{
    struct fake *f = arg;
    for (;;) {
        struct pollfd p[2] = {{.fd = f->listening, .events = POLLIN}, {.fd = f->stop[0], .events = POLLIN}};
        if (poll(p, 2, -1) > 0 && p[1].revents)
            return NULL;
        int fd = accept4(f->listening, NULL, NULL, SOCK_CLOEXEC);
        if (fd >= 0)
            serve(f, fd);
    }
}

static char socket_path[PATH_MAX];

static void fake_start(struct fake *f)
{
    snprintf(socket_path, sizeof socket_path, "%s/kcd.sock", paths.run);
    ck_assert_int_eq(kc_make_dirs(paths.run), 0);
    f->listening = kc_socket_listen(socket_path);
    ck_assert_int_ge(f->listening, 0);
    ck_assert_int_eq(pipe(f->stop), 0);
    pthread_create(&f->thread, NULL, run, f);
}

static void fake_stop(struct fake *f, bool leave)
{
    ck_assert_int_eq(write(f->stop[1], "x", 1), 1);
    pthread_join(f->thread, NULL);
    close(f->listening);
    close(f->stop[0]);
    close(f->stop[1]);
    if (!leave)
        unlink(socket_path);
}

static void setup(void)
{
    console_home_make(&home);
    ck_assert_int_eq(kc_home_find(NULL, NULL, &paths, NULL), 0);
    console_home_job(&home, "demo-1", "running", 3, 300);
}

static void teardown(void)
{
    console_home_remove(&home);
}

#define TEXT(x)  #x
#define FORM(x)  TEXT(x)
#define HELLO                                                                                                           \
    "{\"ok\":true,\"pid\":77,\"version\":\"" KC_VERSION "\",\"spec\":" FORM(KC_JOB_SPEC_VERSION) "}\n"

static void expect(const char *const *words, int code, const char *told)
{
    struct console_answer a;
    console_run(&a, words);
    ck_assert_msg(a.code == code, "%d, wanted %d: %s", a.code, code, a.err);
    ck_assert_msg(strstr(a.err, told) || strstr(a.out, told), "%s%s", a.out, a.err);
    if (code)
        ck_assert_msg(strchr(a.err, '\n') == a.err + strlen(a.err) - 1, "one line, not: %s", a.err);
    console_answer_free(&a);
}
#define EXPECT(code, told, ...) expect((const char *const[]){__VA_ARGS__, NULL}, code, told)

START_TEST(nobody_there_is_exit_3_with_the_next_step)
{
    EXPECT(KC_EXIT_ABSENT, "kcd --daemon", "pause", "demo-1");
    EXPECT(KC_EXIT_ABSENT, "kcd --daemon", "shutdown");
}
END_TEST

START_TEST(a_stale_socket_is_exit_3)
{
    struct fake f = {.hello = HELLO};
    fake_start(&f);
    fake_stop(&f, true);
    EXPECT(KC_EXIT_ABSENT, "stale socket", "pause", "demo-1");
}
END_TEST

START_TEST(another_version_is_exit_8)
{
    static const char *const hellos[] = {"{\"ok\":true,\"pid\":77,\"version\":\"99.0\"}\n", "hello yourself\n",
                                         "{\"ok\":false,\"error\":\"what?\"}\n", NULL};
    for (size_t i = 0; i < sizeof hellos / sizeof hellos[0]; i++) {
        struct fake f = {.hello = hellos[i], .reply = "{\"ok\":true}\n"};
        fake_start(&f);
        EXPECT(KC_EXIT_VERSION, "kcd", "pause", "demo-1");
        ck_assert_str_eq(f.asked, ""); /* nothing is asked of who does not speak our language */
        fake_stop(&f, false);
    }
}
END_TEST

START_TEST(what_kcd_answers_is_passed_on)
{
    struct fake f = {.hello = HELLO, .reply = "{\"ok\":true,\"step\":12}\n"};
    fake_start(&f);
    EXPECT(KC_EXIT_OK, "demo-1 paused at step 12", "pause", "demo-1");
    json_t *o = json_loads(f.asked, 0, NULL);
    ck_assert_str_eq(kc_json_text(o, "verb", ""), "pause");
    ck_assert_str_eq(kc_json_text(o, "job", ""), "demo-1");
    json_decref(o);
    f.reply = "{\"ok\":true,\"note\":\"job 'demo-1' was paused already\"}\n";
    EXPECT(KC_EXIT_OK, "was paused already", "pause", "demo-1");
    EXPECT(KC_EXIT_OK, "\"note\":\"job 'demo-1' was paused already\"", "pause", "demo-1", "--json");
    f.reply = "{\"ok\":false,\"error\":\"job 'demo-1' has not ended\",\"code\":5}\n";
    EXPECT(KC_EXIT_REFUSED, "has not ended", "rm", "demo-1");
    EXPECT(KC_EXIT_REFUSED, "\"code\":5", "rm", "demo-1", "--json");
    ck_assert_ptr_nonnull(strstr(f.asked, "\"remove\""));
    f.reply = "{\"ok\":true}\n";
    EXPECT(KC_EXIT_OK, "jobs go on", "shutdown", "--detach");
    ck_assert_ptr_nonnull(strstr(f.asked, "\"detach\":true"));
    f.reply = NULL;
    EXPECT(KC_EXIT_ABSENT, "hung up", "stop", "demo-1");
    f.reply = "{\"ok\":true,\"note\":\"\\u001b[2Jevil\"}\n"; /* what comes over a wire is foreign */
    EXPECT(KC_EXIT_OK, "\\x1b[2Jevil", "pause", "demo-1");
    EXPECT(KC_EXIT_NO_OBJECT, "Did you mean demo-1?", "pause", "dmo-1");
    fake_stop(&f, false);
}
END_TEST

/* A step is told where it is the one of now; a job that is queued is told as queued. */
START_TEST(what_is_queued_is_not_said_to_run)
{
    struct fake f = {.hello = HELLO, .reply = "{\"ok\":true,\"step\":0,\"state\":\"queued\",\"note\":"
                                              "\"job 'demo-1' is queued; it will hold before its first step\"}\n"};
    struct console_answer a;
    fake_start(&f);
    console_home_job(&home, "demo-1", "queued", 3, 300);
    CONSOLE_RUN(&a, "pause", "demo-1");
    ck_assert_str_eq(a.out, "demo-1 is queued; it will hold before its first step\n");
    ck_assert_str_eq(a.err, "");
    console_answer_free(&a);
    f.reply = "{\"ok\":true,\"step\":64,\"state\":\"queued\",\"note\":\"job 'demo-1' is queued; it starts when "
              "its devices are free\"}\n";
    console_home_job(&home, "demo-1", "stopped", 64, 300);
    CONSOLE_RUN(&a, "resume", "demo-1");
    ck_assert_str_eq(a.out, "demo-1 is queued again; it has no snapshot and begins anew\n");
    console_answer_free(&a);
    console_home_write(&home, "jobs/demo-1/snapshots/v00000003/MANIFEST.json", "{");
    CONSOLE_RUN(&a, "resume", "demo-1");
    ck_assert_msg(strstr(a.out, "none of its 1 snapshot is whole: it can't go on from there and will fail"), "%s", a.out);
    console_answer_free(&a);
    f.reply = "{\"ok\":true,\"step\":0,\"state\":\"starting\",\"note\":\"job 'demo-1' is starting already\"}\n";
    console_home_job(&home, "demo-1", "starting", 64, 300);
    CONSOLE_RUN(&a, "resume", "demo-1");
    ck_assert_str_eq(a.out, "demo-1 goes on\n");
    console_answer_free(&a);
    f.reply = "{\"ok\":true,\"step\":12}\n";
    console_home_job(&home, "demo-1", "paused", 12, 300);
    EXPECT(KC_EXIT_OK, "demo-1 goes on at step 12", "resume", "demo-1");
    fake_stop(&f, false);
}
END_TEST

/* An ended job's data are looked at before kcd is asked. */
START_TEST(a_resume_without_its_data_is_exit_9)
{
    struct fake f = {.hello = HELLO, .reply = "{\"ok\":true,\"step\":3,\"state\":\"queued\"}\n"};
    fake_start(&f);
    console_home_job(&home, "demo-1", "stopped", 3, 300);
    console_home_write(&home, "jobs/demo-1/spec.json",
                       "{\"name\":\"tiny\",\"ranks\":1,\"steps\":3,\"seed\":1,"
                       "\"model\":{\"family\":\"gpt2\",\"layers\":1,\"hidden\":16,\"heads\":2,"
                       "\"context\":16,\"vocab\":256,"
                       "\"init\":{\"from\":null}},"
                       "\"data\":{\"train\":\"/nowhere/train.bin\",\"validation\":\"data/val.bin\"},"
                       "\"batch\":{\"sequences\":4,\"micro\":2},\"optimizer\":{\"lr\":0.001}}");
    EXPECT(KC_EXIT_INVALID, "data.train: /nowhere/train.bin", "resume", "demo-1");
    ck_assert_str_eq(f.asked, "");
    fake_stop(&f, false);
}
END_TEST

/* A stop that ends in a failure is no success: the failure is told, exit 1. One that was survived before is no matter. */
START_TEST(a_stop_that_fails_is_exit_1)
{
    struct fake f = {.hello = HELLO, .reply = "{\"ok\":true,\"step\":12,\"state\":\"failed\",\"failure\":"
                                              "\"rank 1 was killed by signal 9\"}\n"};
    fake_start(&f);
    EXPECT(KC_EXIT_FALSE, "demo-1 failed while it was to stop, at step 12: rank 1 was killed by signal 9", "stop",
           "demo-1");
    EXPECT(KC_EXIT_FALSE, "\"failure\":\"rank 1 was killed by signal 9\"", "stop", "demo-1", "--json");
    f.reply = "{\"ok\":true,\"step\":12,\"state\":\"stopped\",\"failure\":\"rank 1 was killed by signal 9\"}\n";
    EXPECT(KC_EXIT_OK, "demo-1 ended at step 12", "stop", "demo-1");
    EXPECT(KC_EXIT_OK, "\"failure\":null", "stop", "demo-1", "--json");
    /* One that failed long ago did not fail while it was to stop, and its record says why. */
    f.reply = "{\"ok\":true,\"step\":12,\"state\":\"failed\",\"note\":\"job 'demo-1' has ended already\"}\n";
    console_home_write(&home, "jobs/demo-1/state.json", "{\"state\":\"failed\",\"exit_code\":1,\"last_fault\":{\"rank\":1,"
                                                        "\"step\":12,\"reason\":\"killed\",\"text\":\"rank 1 was killed\"}}");
    EXPECT(KC_EXIT_FALSE, "demo-1 ended already: failed, at step 12: rank 1 was killed.", "stop", "demo-1");
    fake_stop(&f, false);
}
END_TEST

/* A reply may be long and may come in pieces. */
START_TEST(a_long_reply_is_read_whole)
{
    size_t n = 200000;
    char *reply = malloc(n + 64);
    snprintf(reply, n + 64, "{\"ok\":true,\"path\":\"");
    size_t at = strlen(reply);
    memset(reply + at, 'p', n - at);
    memcpy(reply + n, "\"}\n", 4);
    struct fake f = {.hello = HELLO, .reply = reply};
    fake_start(&f);
    EXPECT(KC_EXIT_OK, "pppp", "checkpoint", "demo-1");
    fake_stop(&f, false);
    free(reply);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("console and kcd");
    TCase *t = tcase_create("kcd");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_set_timeout(t, 30);
    tcase_add_test(t, nobody_there_is_exit_3_with_the_next_step);
    tcase_add_test(t, a_stale_socket_is_exit_3);
    tcase_add_test(t, another_version_is_exit_8);
    tcase_add_test(t, what_kcd_answers_is_passed_on);
    tcase_add_test(t, what_is_queued_is_not_said_to_run);
    tcase_add_test(t, a_resume_without_its_data_is_exit_9);
    tcase_add_test(t, a_stop_that_fails_is_exit_1);
    tcase_add_test(t, a_long_reply_is_read_whole);
    suite_add_tcase(s, t);
    return suite_run(s);
}
