/* test_losses.c - what the console remembers of metrics.jsonl: the losses of the job's steps, whatever else a line says. */
#include "console_home.h"

#include "console/losses.h"
#include "tests/unit/suite.h"

#include <check.h>

static struct console_home home;

static void setup(void)
{
    console_home_make(&home);
    console_home_write(&home, "metrics.jsonl",
                       "{\"step\":1,\"loss\":4.5}\n{\"step\":4294967294,\"loss\":1}\n{\"step\":2,\"loss\":null}\n"
                       "{\"step\":-1,\"loss\":1}\n{\"step\":3,\"loss\":4.25}\n{\"step\":4,\"loss\":4}\n{\"step\":2,\"lo");
}

static void teardown(void)
{
    console_home_remove(&home);
}

START_TEST(a_step_that_the_job_does_not_have_takes_no_memory)
{
    struct losses l;
    struct kc_error e = {""};
    ck_assert_int_eq(losses_read(home.path, 3, &l, &e), 0);
    ck_assert_uint_lt(l.room, 1 << 20);
    ck_assert(losses_has(&l, 1) && l.loss[1] == 4.5);
    ck_assert(losses_has(&l, 2) && l.loss[2] != l.loss[2]);
    ck_assert(losses_has(&l, 3) && l.loss[3] == 4.25);
    ck_assert(!losses_has(&l, 0) && !losses_has(&l, 4) && !losses_has(&l, 4294967294));
    losses_free(&l);
}
END_TEST

START_TEST(of_a_job_without_a_spec_nothing_is_known)
{
    struct losses l;
    struct kc_error e = {""};
    ck_assert_int_eq(losses_read(home.path, -1, &l, &e), 0);
    ck_assert_uint_eq(l.room, 0);
    losses_free(&l);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("losses");
    TCase *t = tcase_create("losses");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, a_step_that_the_job_does_not_have_takes_no_memory);
    tcase_add_test(t, of_a_job_without_a_spec_nothing_is_known);
    suite_add_tcase(s, t);
    return suite_run(s);
}
