/* test_console_bench.c - what `kc bench` computes from what it has measured, and what it refuses
 * before it measures. */
#include "console/bench.h"
#include "console/bench_fit.h"
#include "console/bench_rig.h"
#include "console/helper.h"
#include "console/median.h"
#include "console_home.h"

#include "contracts/comm_costs.h"
#include "supervisor/protocol.h"
#include "tests/unit/suite.h"

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
        struct fit_way w = {.count = 9, .steps = cases[k].steps};
        for (int i = 0; i < 9; i++) {
            w.point[i].bytes = 1024 * pow(4, i);
            w.point[i].seconds = seconds_of(cases[k].latency_ns, cases[k].steps, cases[k].bandwidth,
                                            w.point[i].bytes);
        }
        bench_fit(&w);
        ck_assert_double_eq_tol(w.latency_ns, cases[k].latency_ns, cases[k].latency_ns * 1e-6);
        ck_assert_double_eq_tol(w.bytes_per_second, cases[k].bandwidth, cases[k].bandwidth * 1e-6);
    }
}
END_TEST

/* 1 us and 10 GB/s, with 20 % of noise at the large sizes: a straight line by least squares would
 * cross at 0.7 ms. */
START_TEST(the_smallest_size_fixes_the_latency_and_the_largest_the_bandwidth)
{
    struct fit_way w = {.point = {{1024, 1.1e-6}, {4096, 1.4e-6}, {16 << 20, 2.0e-3}, {64 << 20, 6.0e-3}},
                        .count = 4,
                        .steps = 1};
    bench_fit(&w);
    ck_assert_double_eq_tol(w.latency_ns, 1000, 200);
    ck_assert_double_eq_tol(w.bytes_per_second, 10e9, 2e9);
}
END_TEST

START_TEST(a_fit_never_gives_what_no_table_may_hold)
{
    static const struct fit_way cases[] = {
        {.point = {{0, 5e-7}}, .count = 1},                                 /* a barrier */
        {.point = {{1024, 2e-6}}, .count = 1},                              /* one size */
        {.point = {{1024, 3e-6}, {4096, 2e-6}, {16384, 1e-6}}, .count = 3}, /* noise: larger was faster */
        {.point = {{1024, 1e-9}, {4096, 2e-6}, {16384, 9e-6}}, .count = 3}}; /* a negative latency */
    struct fit_way w;
    for (size_t i = 0; i < 4; i++) {
        w = cases[i];
        w.steps = 2;
        bench_fit(&w);
        ck_assert(isfinite(w.latency_ns) && isfinite(w.bytes_per_second));
        ck_assert_double_gt(w.bytes_per_second, 0);
        ck_assert_double_ge(w.latency_ns * 2e-9, cases[i].point[0].seconds / 2 * (1 - 1e-9));
    }
    w = cases[0];
    w.steps = 1;
    bench_fit(&w);
    ck_assert_double_eq_tol(w.latency_ns, 500, 1e-6);
}
END_TEST

/* Measured: microseconds of direct, ring and tree for 1 KiB · 4^i. */
static const double measured[][3][9] = {
    /* equal at 1 KiB, far apart at the top; a cache's edge bends all of them */
    {{0.48, 0.70, 1.5, 4.6, 18, 75, 420, 2100, 9000},
     {0.55, 0.80, 1.7, 5.1, 19, 80, 350, 1500, 6300},
     {0.59, 0.85, 1.9, 7.0, 30, 130, 700, 3600, 15000}},
    /* ring overtakes in the middle, far, and is overtaken a little at the top */
    {{1.0, 1.3, 2.6, 8.0, 40, 150, 600, 2400, 9600},
     {2.0, 2.2, 3.0, 6.0, 20, 78, 310, 2500, 10400},
     {1.2, 1.4, 3.2, 12., 50, 210, 800, 3300, 13000}},
    /* the largest size is an outlier of the best one */
    {{0.5, 0.6, 1.2, 4.0, 16, 64, 256, 1024, 9000},
     {0.9, 1.2, 2.4, 8.0, 32, 128, 512, 2048, 8192},
     {0.7, 0.9, 1.8, 6.0, 24, 96, 384, 1536, 6144}}};

START_TEST(the_costs_name_what_was_measured_best)
{
    struct fit_way way[3];
    for (int a = 0; a < 3; a++) {
        way[a] = (struct fit_way){.count = 9, .steps = 2};
        for (int i = 0; i < 9; i++)
            way[a].point[i] = (struct fit_point){1024 * pow(4, i), measured[_i][a][i] * 1e-6};
        bench_fit(&way[a]);
    }
    double left = bench_fit_agree(way, 3, NULL), worst = 1;
    for (int i = 0; i < 9; i++) { /* by the formula of the contract */
        int named = 0, best = 0;
        double least = INFINITY;
        for (int a = 0; a < 3; a++) {
            struct kc_comm_cost row = {.primitive = KC_ALL_REDUCE,
                                       .algorithm = (uint8_t)a,
                                       .latency_ns = way[a].latency_ns,
                                       .bytes_per_second = way[a].bytes_per_second};
            double ns = kc_comm_cost_ns(&row, 2, (uint64_t)way[a].point[i].bytes);
            if (ns < least)
                least = ns, named = a;
            best = measured[_i][a][i] < measured[_i][best][i] ? a : best;
            ck_assert_double_gt(way[a].latency_ns, 0);
        }
        worst = fmax(worst, measured[_i][named][i] / measured[_i][best][i]);
    }
    ck_assert_double_eq_tol(worst, left, 1e-9);
    ck_assert_double_le(worst, 1.1);
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
    {{"bench", "snapshot", "--every", "1"}, "--every wants a whole number from 2 to 1000"},
    {{"bench", "snapshot", "--rounds", "0"}, "--rounds wants a whole number from 1 to 99"},
    {{"bench", "snapshot", "--zero", "4"}, "--zero wants a whole number from 0 to 3"},
    {{"bench", "snapshot", "--steps", "9"}, "`kc bench snapshot` has no option --steps"},
    {{"bench", "comm", "--ranks", "1"}, "--ranks wants a whole number from 2 to 64"},
    {{"bench", "comm", "--largest", "64Q"},
     "--largest wants a size from 1.0 KiB to 1.0 GiB, written 64K, 64M or 1G"},
    {{"bench", "comm", "--largest", "1023K", "--store"}, "--store wants --largest of at least 1M"},
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
    tcase_add_test(t, the_smallest_size_fixes_the_latency_and_the_largest_the_bandwidth);
    tcase_add_loop_test(t, the_costs_name_what_was_measured_best, 0, sizeof measured / sizeof *measured);
    tcase_add_test(t, a_fit_never_gives_what_no_table_may_hold);
    tcase_add_test(t, a_median_is_the_middle);
    tcase_add_test(t, a_helper_that_fails_in_silence_is_named);
    tcase_add_test(t, the_work_of_a_step_is_counted_by_the_formula);
    tcase_add_loop_test(t, wrong_options_are_one_line_before_anything_runs, 0,
                        sizeof bad / sizeof *bad);
    suite_add_tcase(s, t);
    return suite_run(s);
}
