/* test_answer.c - a verb that a view asks for and does not wait for (console/screen/answer.h). This program plays the other kc
 * itself: what is started is /proc/self/exe. */
#include "console_home.h"
#include "suite.h"

#include "console/screen/answer.h"
#include "console/screen/child.h"
#include "console/screen/screen_impl.h"

#include "base/clock.h"

#include <check.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* As kc: "say TEXT --json" prints TEXT and ends with 3; "large" prints a megabyte; "show JOB" tells a layout; "wait" never
 * ends. */
static int play(char **word)
{
    if (!word[1] || !word[2] || strcmp(word[strcmp(word[1], "say") && strcmp(word[1], "show") ? 2 : 3], "--json"))
        return 2;
    if (!strcmp(word[1], "say"))
        printf("%s\n", word[2]);
    if (!strcmp(word[1], "large"))
        printf("{\"schema\":\"kc.large/1\",\"text\":\"%01048576d\"}\n", 0);
    if (!strcmp(word[1], "show"))
        printf("{\"schema\":\"kc.job/1\",\"job\":{\"layout\":\"2 ranks, says %s\"}}\n", word[2]);
    fprintf(stderr, "kc: a complaint that belongs to nobody's screen\n");
    while (!strcmp(word[1], "wait"))
        pause();
    return 3;
}

static void read_answer(struct answer *a)
{
    const uint64_t late = kc_now() + 20 * KC_SECOND;
    while (!answer_read(a)) {
        ck_assert_msg(kc_now() < late, "no answer came");
        poll(NULL, 0, 1);
    }
}

START_TEST(an_answer_comes_whole_with_its_code_and_its_time)
{
    struct answer a = {0};
    const uint64_t before = kc_now();
    ck_assert(!answer_read(&a)); /* nothing was asked */
    ck_assert_int_eq(answer_ask(&a, "say '{\"schema\":\"kc.node/1\",\"n\":7}'"), 0);
    ck_assert(a.pid > 0);
    read_answer(&a);
    ck_assert_int_eq(a.pid, 0);
    ck_assert_str_eq(a.error, "");
    ck_assert_int_eq(json_integer_value(json_object_get(a.json, "n")), 7);
    ck_assert_int_eq(a.code, 3);
    ck_assert(a.asked >= before && a.asked <= kc_now());
    ck_assert_uint_eq(a.came, a.asked); /* however long it lay there before it was read */
    ck_assert_int_eq(answer_ask(&a, "large"), 0);
    read_answer(&a);
    ck_assert_uint_eq(json_string_length(json_object_get(a.json, "text")), 1048576);
    answer_free(&a);
}
END_TEST

START_TEST(a_failure_is_told_and_the_last_answer_stays)
{
    struct answer a = {0};
    ck_assert_int_eq(answer_ask(&a, "say '{\"schema\":\"kc.node/1\",\"n\":7}'"), 0);
    read_answer(&a);
    const uint64_t came = a.came;
    ck_assert_int_eq(answer_ask(&a, "say '{\"schema\":\"kc.error/1\",\"error\":\"no such job\",\"code\":4}'"), 0);
    read_answer(&a);
    ck_assert_str_eq(a.error, "no such job");
    ck_assert_int_eq(answer_ask(&a, "say '{\"schema\":'"), 0);
    ck_assert_str_eq(a.error, "");
    read_answer(&a);
    ck_assert_str_eq(a.error, "it ended with exit code 3 and said nothing");
    ck_assert_int_lt(answer_ask(&a, "say 'open"), 0);
    ck_assert_ptr_nonnull(strstr(a.error, "not closed"));
    ck_assert_int_eq(json_integer_value(json_object_get(a.json, "n")), 7);
    ck_assert_uint_eq(a.came, came);
    answer_free(&a);
    ck_assert_ptr_null(a.json);
}
END_TEST

/* Its view was left: the megabyte does not stand in the pipe, nobody stays a zombie, and the view learns of it when it is back. */
START_TEST(an_answer_that_nobody_looks_at_is_taken)
{
    struct answer a = {0};
    const uint64_t late = kc_now() + 20 * KC_SECOND;
    ck_assert_int_eq(answer_ask(&a, "large"), 0);
    const pid_t pid = a.pid;
    for (; a.pid; poll(NULL, 0, 1)) {
        ck_assert_msg(kc_now() < late, "it was not taken");
        answer_drain(&a);
    }
    ck_assert_int_ne(kill(pid, 0), 0);
    ck_assert(answer_read(&a));
    ck_assert(!answer_read(&a));
    ck_assert_uint_eq(json_string_length(json_object_get(a.json, "text")), 1048576);
    answer_free(&a);
}
END_TEST

START_TEST(one_question_at_a_time_and_the_view_may_leave)
{
    struct answer a = {0};
    ck_assert_int_eq(answer_ask(&a, "wait"), 0);
    const pid_t pid = a.pid;
    ck_assert_int_eq(answer_ask(&a, "say '{}'"), 0);
    ck_assert_int_eq(a.pid, pid);
    ck_assert(!answer_read(&a));
    answer_free(&a);
    ck_assert_int_ne(kill(pid, 0), 0); /* it has gone, and was waited for */
}
END_TEST

/* The view of a job plans nothing itself; with R what is known stays until it is known anew. */
START_TEST(how_a_job_is_cut_is_asked_of_another)
{
    static struct screen x;
    struct console_home home;
    struct session s = {.verb = "kc", .out = stdout, .err = stderr};
    const uint64_t late = kc_now() + 20 * KC_SECOND;
    console_home_make(&home);
    console_home_job(&home, "demo-1", "finished", 20, 40);
    ck_assert_int_eq(kc_home_find(NULL, NULL, &s.home, NULL), 0);
    look_begin(&x, &s, "demo-1", NULL);
    look(&x);
    ck_assert_uint_eq(x.model.count, 1);
    ck_assert(!x.model.job[0].planned && x.layout.answer.pid > 0);
    for (; !x.model.job[0].planned; look(&x)) {
        ck_assert_msg(kc_now() < late, "nobody told");
        poll(NULL, 0, 1);
    }
    ck_assert_str_eq(x.model.job[0].layout, "2 ranks, says demo-1");
    ck_assert_int_eq(x.layout.answer.pid, 0);
    look(&x);
    ck_assert_int_eq(x.layout.answer.pid, 0); /* its spec is the same */
    x.again = true;
    look(&x);
    ck_assert(x.layout.answer.pid > 0 && x.model.job[0].planned);
    look_free(&x);
    console_home_remove(&home);
}
END_TEST

int main(int argc, char **argv)
{
    if (argc > 1 && !strcmp(argv[0], "kc"))
        return play(argv);
    struct answer early = {0};
    if (answer_ask(&early, "say '{}'") != -ENOSYS) /* a program that is not kc would start itself, and that itself */
        return 1;
    child_allow();
    Suite *s = suite_create("answer");
    TCase *t = tcase_create("answer");
    tcase_add_test(t, an_answer_comes_whole_with_its_code_and_its_time);
    tcase_add_test(t, a_failure_is_told_and_the_last_answer_stays);
    tcase_add_test(t, an_answer_that_nobody_looks_at_is_taken);
    tcase_add_test(t, how_a_job_is_cut_is_asked_of_another);
    tcase_add_test(t, one_question_at_a_time_and_the_view_may_leave);
    suite_add_tcase(s, t);
    return suite_run(s);
}
