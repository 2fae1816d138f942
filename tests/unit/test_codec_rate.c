/* test_codec_rate.c - when coding is left out, by figures that were given. */
#include "state/codec.h"
#include "state/codec_rate.h"
#include "tests/unit/suite.h"

#include <check.h>
#include <math.h>
#include <string.h>

enum { MIB = 1 << 20 };

/* As many measures as wash out what was there before: 0.875^100 is a millionth. */
static void measure(struct kc_codec_rate *r, double code_rate, double ratio, double device_rate)
{
    for (int i = 0; i < 100; i++) {
        kc_codec_rate_coded(r, 4 * MIB, (size_t)(4 * MIB / ratio), 4 * MIB / code_rate);
        kc_codec_rate_written(r, 4 * MIB, 4 * MIB / device_rate);
    }
}

static int close_to(double a, double b)
{
    return fabs(a - b) < 1e-4 * fabs(b);
}

/* Rates in bytes a second: a byte takes 1/code and 1/(ratio · device), beside 1/device. */
START_TEST(the_cost_is_that_of_the_slower_or_of_both)
{
    struct kc_codec_rate r = {0};
    measure(&r, 2e9, 1.25, 1e9);
    ck_assert(close_to(kc_codec_rate_cost(&r, 1), 1 / 1.25)); /* the device is slower */
    ck_assert(close_to(kc_codec_rate_cost(&r, 0), 0.5 + 1 / 1.25));
    measure(&r, 0.5e9, 1.25, 1e9);
    ck_assert(close_to(kc_codec_rate_cost(&r, 1), 2)); /* coding is */
    ck_assert(close_to(kc_codec_rate_cost(&r, 0), 2 + 1 / 1.25));
    measure(&r, 2e9, 1.25, 0.1e9);
    ck_assert(close_to(kc_codec_rate_cost(&r, 0), 0.05 + 1 / 1.25));
}
END_TEST

/* Of the time that a byte takes, what it takes to come out again is a part either way. */
START_TEST(decoding_counts)
{
    struct kc_codec_rate r = {0};
    measure(&r, 2e9, 1.25, 1e9);
    for (int i = 0; i < 100; i++)
        kc_codec_rate_decoded(&r, 4 * MIB, 4 * MIB / 4e9);
    ck_assert(close_to(kc_codec_rate_cost(&r, 1), 1 / 1.25 + 0.25));
    ck_assert(close_to(kc_codec_rate_cost(&r, 0), 0.5 + 1 / 1.25 + 0.25));
}
END_TEST

/* Extents of one size of which all may be tried, of the next n: a string of t (tried) and c (cheap). */
static const char *next(struct kc_codec_rate *r, int n, size_t bytes)
{
    static char out[256];
    const uint32_t all = KC_CODEC_ALL & ~(1u << KC_CODEC_BASE);
    for (int i = 0; i < n; i++) {
        const uint32_t got = kc_codec_rate_next(r, all, 0, bytes);
        ck_assert(got == all || got == (all & KC_CODEC_CHEAP));
        out[i] = got == all ? 't' : 'c';
    }
    out[n] = 0;
    return out;
}

/* While nobody knows what the device takes: one, and then a few. */
START_TEST(of_what_was_not_measured_a_few_are_tried)
{
    struct kc_codec_rate r = {0};
    ck_assert_str_eq(next(&r, 1, MIB), "t");
    kc_codec_rate_coded(&r, MIB, MIB, 10);
    ck_assert_str_eq(next(&r, 32, MIB), "ccccccccccccccct" "ccccccccccccccct");
    kc_codec_rate_written(&r, MIB, 0.001);
    ck_assert_str_eq(next(&r, 16, MIB), "cccccccccccccccc");
}
END_TEST

/* Coding that takes 1.2 times as long: one of 16 extents. 3 times: one of 64 · (3 - 1), so that they take a 64th of the time. */
START_TEST(slow_coding_is_tried_the_less_the_more_it_costs)
{
    struct kc_codec_rate r = {0};
    measure(&r, 2.5e9, 1.25, 1e9);
    ck_assert(close_to(kc_codec_rate_cost(&r, 0), 1.2));
    ck_assert_str_eq(next(&r, 32, MIB), "ccccccccccccccct" "ccccccccccccccct");
    measure(&r, 1 / 2.2e-9, 1.25, 1e9);
    ck_assert(close_to(kc_codec_rate_cost(&r, 0), 3));
    const char *got = next(&r, 200, MIB);
    ck_assert_int_eq(strchr(got, 't') - got, 127);
    ck_assert_ptr_null(strchr(got + 128, 't'));
}
END_TEST

/* What counts is bytes: a large extent is not tried for a few small ones that were left out. */
START_TEST(a_large_extent_waits_for_as_many_bytes)
{
    struct kc_codec_rate r = {0};
    measure(&r, 2.5e9, 1.25, 1e9);
    next(&r, 16, MIB); /* ends with one that was tried */
    ck_assert_str_eq(next(&r, 14, MIB), "cccccccccccccc");
    ck_assert_str_eq(next(&r, 1, 4 * MIB), "c");
    ck_assert_str_eq(next(&r, 1, MIB), "t");
}
END_TEST

START_TEST(a_device_that_becomes_slow_brings_coding_back)
{
    struct kc_codec_rate r = {0};
    measure(&r, 0.5e9, 1.25, 1e9);
    ck_assert_uint_eq(kc_codec_rate_next(&r, KC_CODEC_ALL, 1, 4 * MIB), KC_CODEC_CHEAP);
    /* a cap of 0.2 GB/s: after some extents, each counted with what it waited */
    int n = 0;
    for (; kc_codec_rate_next(&r, KC_CODEC_ALL, 1, 4 * MIB) != KC_CODEC_ALL; n++) {
        ck_assert_int_lt(n, 16);
        kc_codec_rate_written(&r, 4 * MIB, 4 * MIB / 0.2e9);
    }
    for (int i = 0; i < 40; i++) {
        kc_codec_rate_written(&r, 4 * MIB, 4 * MIB / 0.2e9);
        ck_assert_uint_eq(kc_codec_rate_next(&r, KC_CODEC_ALL, 1, 4 * MIB), KC_CODEC_ALL);
    }
}
END_TEST

/* Coding that saves nothing costs its time where one thread does both, and nothing where another does it in time. */
START_TEST(coding_that_saves_nothing_is_left_out)
{
    struct kc_codec_rate r = {0};
    measure(&r, 2e9, 1, 1e9);
    ck_assert_uint_eq(kc_codec_rate_next(&r, KC_CODEC_ALL, 0, MIB), KC_CODEC_CHEAP);
    ck_assert(close_to(kc_codec_rate_cost(&r, 1), 1));
}
END_TEST

int main(void)
{
    Suite *s = suite_create("codec rate");
    TCase *c = tcase_create("rate");
    suite_add_tcase(s, c);
    tcase_add_test(c, the_cost_is_that_of_the_slower_or_of_both);
    tcase_add_test(c, decoding_counts);
    tcase_add_test(c, of_what_was_not_measured_a_few_are_tried);
    tcase_add_test(c, slow_coding_is_tried_the_less_the_more_it_costs);
    tcase_add_test(c, a_large_extent_waits_for_as_many_bytes);
    tcase_add_test(c, a_device_that_becomes_slow_brings_coding_back);
    tcase_add_test(c, coding_that_saves_nothing_is_left_out);
    return suite_run(s);
}
