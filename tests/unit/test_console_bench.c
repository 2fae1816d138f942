/* test_console_bench.c - what `kc bench` computes from what it has measured, and what it refuses
 * before it measures. */
#include "console/bench.h"
#include "console/bench_fit.h"
#include "console/bench_rig.h"
#include "console/helper.h"
#include "console/median.h"
#include "console_home.h"

#include "supervisor/protocol.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Times by the formula of comm_costs.h. */
static double seconds_of(double latency_ns, uint32_t steps, double bandwidth, double bytes)
{
    return latency_ns * 1e-9 * steps + bytes / bandwidth;
}

START_TEST(a_fit_finds_the_figures_that_made_the_times)
{
    static const struct {
        double latency_ns, bandwidth;
        uint32_t steps;
    } cases[] = {{300, 1e10, 2}, {1500, 4e9, 14}, {50, 8e10, 1}};
    for (size_t k = 0; k < 3; k++) {
        struct fit_point p[9];
        double latency, bandwidth;
        for (int i = 0; i < 9; i++) {
            p[i].bytes = 1024 * pow(4, i);
            p[i].seconds =
                seconds_of(cases[k].latency_ns, cases[k].steps, cases[k].bandwidth, p[i].bytes);
        }
        bench_fit(p, 9, cases[k].steps, &latency, &bandwidth);
        ck_assert_double_eq_tol(latency, cases[k].latency_ns, cases[k].latency_ns * 1e-6);
        ck_assert_double_eq_tol(bandwidth, cases[k].bandwidth, cases[k].bandwidth * 1e-6);
    }
}
END_TEST

/* 1 us and 10 GB/s, with 20 % of noise at the large sizes: a straight line through them would cross
 * at 0.7 ms. Each size counts by its relative error. */
START_TEST(small_sizes_count_as_much_as_large_ones)
{
    const struct fit_point p[] = {{1024, 1.1e-6}, {4096, 1.4e-6}, {16 << 20, 2.0e-3}, {64 << 20, 6.0e-3}};
    double latency, bandwidth;
    bench_fit(p, 4, 1, &latency, &bandwidth);
    ck_assert_double_eq_tol(latency, 1000, 200);
    ck_assert_double_eq_tol(bandwidth, 10e9, 2e9);
}
END_TEST

START_TEST(a_fit_never_gives_what_no_table_may_hold)
{
    static const struct {
        struct fit_point p[3];
        size_t count;
    } cases[] = {
        {{{0, 5e-7}}, 1},                                  /* a barrier */
        {{{1024, 2e-6}}, 1},                               /* one size */
        {{{1024, 3e-6}, {4096, 2e-6}, {16384, 1e-6}}, 3},  /* noise: larger was faster */
        {{{1024, 1e-9}, {4096, 2e-6}, {16384, 9e-6}}, 3}}; /* would make a negative latency */
    for (size_t i = 0; i < 4; i++) {
        double latency = NAN, bandwidth = NAN;
        bench_fit(cases[i].p, cases[i].count, 2, &latency, &bandwidth);
        ck_assert_double_ge(latency, 0);
        ck_assert_double_gt(bandwidth, 0);
        ck_assert(isfinite(latency) && isfinite(bandwidth));
    }
    double latency, bandwidth;
    bench_fit(cases[0].p, 1, 1, &latency, &bandwidth);
    ck_assert_double_eq_tol(latency, 500, 1e-6);
}
END_TEST

START_TEST(a_median_is_the_middle)
{
    double odd[] = {3, 1, 2}, even[] = {4, 1, 3, 2};
    ck_assert_double_eq(median_of(odd, 3), 2);
    ck_assert_double_eq(median_of(even, 4), 2.5);
    double unknown[] = {1, NAN, 2};
    ck_assert(isnan(median_of(odd, 0)));
    ck_assert(isnan(median_of(unknown, 3)));
}
END_TEST

/* Who failed is named, whichever program it was. */
START_TEST(a_helper_that_fails_in_silence_is_named)
{
    static const char name[] = "../../../../../../../../../../bin/false"; /* from where this test lies */
    const char *const words[] = {name, NULL};
    char *told = NULL;
    size_t bytes = 0;
    struct helper helper;
    struct helper_line line = {.used = 0};
    struct session s = {.out = stdout, .err = open_memstream(&told, &bytes), .verb = "bench step"};
    ck_assert_int_eq(helper_start(words, NULL, &helper), 0);
    ck_assert_ptr_null(helper_read_line(&helper, &line));
    ck_assert_int_eq(helper_end(&s, &helper), 1);
    fclose(s.err);
    ck_assert_msg(strstr(told, "bin/false ended with exit code 1") && !strstr(told, "kc-rank"), "%s", told);
    free(told);
}
END_TEST

/* 6·(12LH² + VH)·tokens + 6·L·H·T·tokens, worked out by hand for the three presets. */
START_TEST(the_work_of_a_step_is_counted_by_the_formula)
{
    const struct bench_job small = {.layers = 4,
                                    .hidden = 128,
                                    .context = 128,
                                    .vocab = 256,
                                    .ranks = 2,
                                    .micro = 8,
                                    .accumulate = 2};
    const struct bench_job large = {.layers = 12,
                                    .hidden = 768,
                                    .context = 256,
                                    .vocab = 50257,
                                    .ranks = 2,
                                    .micro = 4,
                                    .accumulate = 1};
    ck_assert_uint_eq(bench_job_tokens(&small), 4096);
    ck_assert_double_eq(bench_job_flops(&small),
                        6.0 * (786432 + 32768) * 4096 + 6.0 * 65536 * 4096);
    ck_assert_uint_eq(bench_job_tokens(&large), 2048);
    ck_assert_double_eq(bench_job_flops(&large),
                        6.0 * (84934656 + 38597376) * 2048 + 6.0 * 2359296 * 2048);
}
END_TEST

/* Each is one line on stderr that names the option, before anything is measured. */
static const struct {
    const char *words[8];
    const char *says;
} bad[] = {
    {{"bench", "step", "--steps", "2"}, "--steps wants a whole number from 3 to 4096, not \"2\""},
    {{"bench", "step", "--ranks", "65"}, "--ranks wants a whole number from 1 to 64"},
    {{"bench", "step", "--model", "7b"}, "--model 7b: there are 0.84m, 10.8m and 124m"},
    {{"bench", "step", "--micro", "4x"}, "--micro wants a whole number"},
    {{"bench", "step", "--vocab", "65537"}, "--vocab wants a whole number from 2 to 65536"},
    {{"bench", "step", "--precision", "fp16"}, "--precision wants fp32 or bf16, not \"fp16\""},
    {{"bench", "step", "--hidden", "100", "--heads", "3"},
     "--heads 3 does not divide --hidden 100: --heads 2 would do"},
    {{"bench", "snapshot", "--micro", "4096", "--accumulate", "4096"}, "lower --micro, --accumulate"},
    {{"bench", "snapshot", "--zero", "2"}, "--zero wants a whole number from 0 to 1"},
    {{"bench", "snapshot", "--steps", "9"}, "`kc bench snapshot` has no option --steps"},
    {{"bench", "comm", "--ranks", "1"}, "--ranks wants a whole number from 2 to 64"},
    {{"bench", "comm", "--largest", "64Q"},
     "--largest wants a size from 1.0 KiB to 1.0 GiB, written 64K, 64M or 1G"},
    {{"bench", "comm", "--largest", "2G"}, "--largest wants a size"},
    {{"bench", "coma"}, "Did you mean `kc bench comm`?"},
};

START_TEST(wrong_options_are_one_line_before_anything_runs)
{
    struct console_answer a;
    console_run(&a, bad[_i].words);
    ck_assert_int_eq(a.code, KC_EXIT_USAGE);
    ck_assert_msg(strstr(a.err, bad[_i].says), "%s\nwanted: %s", a.err, bad[_i].says);
    ck_assert_msg(strchr(a.err, '\n') == a.err + strlen(a.err) - 1, "%s", a.err);
    ck_assert_str_eq(a.out, "");
    console_answer_free(&a);
}
END_TEST

static struct console_home home;
static void set_up(void)
{
    console_home_make(&home);
}
static void tear_down(void)
{
    console_home_remove(&home);
}

int main(void)
{
    Suite *s = suite_create("console bench");
    TCase *t = tcase_create("bench");
    tcase_add_checked_fixture(t, set_up, tear_down);
    tcase_add_test(t, a_fit_finds_the_figures_that_made_the_times);
    tcase_add_test(t, small_sizes_count_as_much_as_large_ones);
    tcase_add_test(t, a_fit_never_gives_what_no_table_may_hold);
    tcase_add_test(t, a_median_is_the_middle);
    tcase_add_test(t, a_helper_that_fails_in_silence_is_named);
    tcase_add_test(t, the_work_of_a_step_is_counted_by_the_formula);
    tcase_add_loop_test(t, wrong_options_are_one_line_before_anything_runs, 0,
                        sizeof bad / sizeof *bad);
    suite_add_tcase(s, t);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_NORMAL);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
