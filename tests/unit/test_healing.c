/* test_healing.c - what is decided after a fault, without processes: how long a restart waits, what counts as the same again. */
#include "base/arena.h"
#include "govern/policy.h"
#include "supervisor/record.h"
#include "tests/unit/suite.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

START_TEST(a_restart_waits_twice_as_long_each_time_up_to_a_bound)
{
    const struct kc_job_spec spec = {.backoff = 1, .backoff_max = 300};
    const double seconds[] = {0, 0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300};
    for (uint32_t n = 0; n < sizeof seconds / sizeof *seconds; n++)
        ck_assert_double_eq(kc_policy_wait(&spec, n), seconds[n]);
    ck_assert_double_eq(kc_policy_wait(&spec, UINT32_MAX), 300);
    const struct kc_job_spec never = {.backoff = 0, .backoff_max = 300}, bound = {.backoff = 7, .backoff_max = 3};
    ck_assert_double_eq(kc_policy_wait(&never, UINT32_MAX), 0);
    ck_assert_double_eq(kc_policy_wait(&bound, 1), 0);
    ck_assert_double_eq(kc_policy_wait(&bound, 2), 3);
}
END_TEST

START_TEST(fewer_ranks_are_a_smaller_data_axis_that_the_batch_allows)
{
    struct kc_job_spec spec = {.sequences = 24, .micro = 2};
    for (int a = 0; a < KC_AXES; a++)
        spec.axis[a] = 1;
    const uint32_t sizes[] = {12, 6, 4, 3, 2, 1, 0}; /* divisors of 24 / 2 */
    for (int i = 0; sizes[i]; i++)
        ck_assert_uint_eq(kc_policy_shrink(&spec, sizes[i]), sizes[i + 1]);
    spec.axis[KC_EXPERT] = 2; /* the batch is cut over it, too */
    ck_assert_uint_eq(kc_policy_shrink(&spec, 6), 3);
    ck_assert_uint_eq(kc_policy_shrink(&spec, 5), 3);
    ck_assert_uint_eq(kc_policy_shrink(&spec, 1), 0);
    ck_assert_uint_eq(kc_policy_shrink(&spec, 0), 0);
}
END_TEST

START_TEST(causes_are_counted_apart_until_there_is_progress)
{
    struct kc_record r = {0};
    ck_assert_uint_eq(kc_record_cause(&r, KC_FAULT_CRASH, KC_REASON_SIGNAL), 1);
    ck_assert_uint_eq(kc_record_cause(&r, KC_FAULT_CRASH, KC_REASON_ERROR), 1);
    ck_assert_uint_eq(kc_record_cause(&r, KC_FAULT_START, KC_REASON_SIGNAL), 1);
    ck_assert_uint_eq(kc_record_cause(&r, KC_FAULT_CRASH, KC_REASON_SIGNAL), 2);
    ck_assert_uint_eq(kc_record_cause(&r, KC_FAULT_HANG, KC_REASON_HANG), 1);
    kc_record_progress(&r);
    ck_assert_uint_eq(kc_record_cause(&r, KC_FAULT_CRASH, KC_REASON_SIGNAL), 1);
    for (enum kc_reason reason = 0; reason < KC_CAUSES + 3; reason++) /* more than there is room for: a rare one makes some */
        ck_assert_uint_eq(kc_record_cause(&r, KC_FAULT_HANG, reason), 1);
}
END_TEST

static struct kc_verdict fault(enum kc_reason reason, int rank, uint64_t step, const char *detail)
{
    struct kc_verdict v = {.rank = rank, .step = step, .reason = reason};
    snprintf(v.detail, sizeof v.detail, "%s", detail);
    snprintf(v.text, sizeof v.text, "rank %d: %s", rank, detail);
    return v;
}

START_TEST(the_same_again_is_the_same_step_and_error_of_whichever_rank)
{
    const struct kc_verdict first = fault(KC_REASON_ERROR, 1, 7, "error: op 17 of pid 4100 failed"), none = {.rank = -1};
    struct kc_verdict v = fault(KC_REASON_ERROR, 0, 7, "error: op 9 of pid 23 failed");
    ck_assert(kc_failure_same(&first, &v));
    v = fault(KC_REASON_ERROR, 1, 8, "error: op 17 of pid 4100 failed");
    ck_assert(!kc_failure_same(&first, &v));
    v = fault(KC_REASON_DATA, 1, 7, "error: op 17 of pid 4100 failed");
    ck_assert(!kc_failure_same(&first, &v));
    v = fault(KC_REASON_ERROR, 1, 7, "error: no room on the disk");
    ck_assert(!kc_failure_same(&first, &v));
    v = fault(KC_REASON_ERROR, 1, 7, "error: op 17 of pid 4100 failed badly");
    ck_assert(!kc_failure_same(&first, &v));
    ck_assert(!kc_failure_same(&none, &none));
    const struct kc_verdict a = fault(KC_REASON_SIGNAL, 0, 3, "died of signal 11, SIGSEGV, at address 0x7f01ab"),
                            b = fault(KC_REASON_SIGNAL, 1, 3, "died of signal 11, SIGSEGV, at address 0x55cd"),
                            c = fault(KC_REASON_SIGNAL, 1, 3, "died of signal 7, SIGBUS, at address 0x55cd");
    ck_assert(kc_failure_same(&a, &b));
    ck_assert(!kc_failure_same(&a, &c));
    const struct kc_verdict h = fault(KC_REASON_HANG, 0, 3, "rank 0 is stopped"), i = fault(KC_REASON_HANG, 1, 3, "rank 1 spins");
    ck_assert(kc_failure_same(&h, &i)); /* what was found of it may differ */
}
END_TEST

START_TEST(what_waits_comes_back_from_the_record)
{
    char folder[] = "/tmp/kc-test-healing-XXXXXX", path[64];
    struct kc_record r = {.state = KC_JOB_RESTARTING, .ranks = 1, .restart_wall = 12345678901234, .failure = fault(KC_REASON_ERROR, 0, 3, "no")},
                     back;
    struct kc_error e = {""};
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(r.directory, sizeof r.directory, "%s", folder);
    snprintf(r.id, sizeof r.id, "n-1");
    r.asked_ranks = 4;
    snprintf(r.device, sizeof r.device, "cpu-1: marked by hand: fan");
    snprintf(r.waits, sizeof r.waits, "asked for 2 ranks");
    snprintf(r.restart_why, sizeof r.restart_why, "third crash without progress");
    r.failure.killed = true;
    r.failure.oom = KC_OOM_LIKELY;
    for (int n = 0; n < 3; n++)
        kc_record_cause(&r, KC_FAULT_CRASH, KC_REASON_ERROR);
    kc_record_cause(&r, KC_FAULT_HANG, KC_REASON_HANG);
    ck_assert_msg(kc_record_write(&r, &e) == 0, "%s", e.text);
    ck_assert_msg(kc_record_read(folder, &back, &e) == 0, "%s", e.text);
    ck_assert_uint_eq(back.restart_wall, r.restart_wall);
    ck_assert_str_eq(back.restart_why, r.restart_why);
    ck_assert_uint_eq(back.asked_ranks, 4);
    ck_assert_str_eq(back.device, r.device);
    ck_assert_str_eq(back.waits, r.waits);
    ck_assert_uint_eq(kc_record_cause(&back, KC_FAULT_CRASH, KC_REASON_ERROR), 4);
    ck_assert_uint_eq(kc_record_cause(&back, KC_FAULT_HANG, KC_REASON_HANG), 2);
    ck_assert_uint_eq(kc_record_cause(&back, KC_FAULT_START, KC_REASON_HANG), 1);
    ck_assert(kc_failure_same(&back.failure, &r.failure));
    ck_assert(back.failure.killed && back.failure.oom == KC_OOM_LIKELY);
    snprintf(path, sizeof path, "%s/state.json", folder);
    unlink(path);
    snprintf(path, sizeof path, "%s/.reserve", folder);
    unlink(path);
    ck_assert_int_eq(rmdir(folder), 0);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("healing");
    TCase *t = tcase_create("after a fault");
    tcase_add_test(t, a_restart_waits_twice_as_long_each_time_up_to_a_bound);
    tcase_add_test(t, fewer_ranks_are_a_smaller_data_axis_that_the_batch_allows);
    tcase_add_test(t, causes_are_counted_apart_until_there_is_progress);
    tcase_add_test(t, the_same_again_is_the_same_step_and_error_of_whichever_rank);
    tcase_add_test(t, what_waits_comes_back_from_the_record);
    suite_add_tcase(s, t);
    return suite_run(s);
}
