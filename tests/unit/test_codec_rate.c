/* test_codec_rate.c - when coding is left out, by figures that were given. */
#include "state/codec.h"
#include "state/codec_rate.h"
#include "tests/unit/suite.h"

#include <check.h>
#include <math.h>

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

START_TEST(what_was_not_measured_is_tried)
{
    struct kc_codec_rate r = {0};
    for (int i = 0; i < 40; i++)
        ck_assert_uint_eq(kc_codec_rate_next(&r, KC_CODEC_ALL, 0), KC_CODEC_ALL);
    kc_codec_rate_coded(&r, MIB, MIB, 10); /* slow, but what is a device's rate? */
    ck_assert_uint_eq(kc_codec_rate_next(&r, KC_CODEC_ALL, 0), KC_CODEC_ALL);
    kc_codec_rate_written(&r, MIB, 0.001);
    ck_assert_uint_eq(kc_codec_rate_next(&r, KC_CODEC_ALL, 0), KC_CODEC_CHEAP);
}
END_TEST

START_TEST(slow_coding_is_left_out_but_for_every_sixteenth)
{
    struct kc_codec_rate r = {0};
    measure(&r, 0.5e9, 1.25, 1e9);
    const uint32_t allowed = KC_CODEC_ALL & ~(1u << KC_CODEC_BASE);
    for (int i = 1; i <= 64; i++) {
        uint32_t got = kc_codec_rate_next(&r, allowed, 1);
        ck_assert_uint_eq(got, i % 16 == 0 ? allowed : allowed & KC_CODEC_CHEAP);
    }
}
END_TEST

START_TEST(a_device_that_becomes_slow_brings_coding_back)
{
    struct kc_codec_rate r = {0};
    measure(&r, 0.5e9, 1.25, 1e9);
    ck_assert_uint_eq(kc_codec_rate_next(&r, KC_CODEC_ALL, 1), KC_CODEC_CHEAP);
    /* a cap of 0.2 GB/s: after some extents, each counted with what it waited */
    int n = 0;
    for (; kc_codec_rate_next(&r, KC_CODEC_ALL, 1) != KC_CODEC_ALL; n++) {
        ck_assert_int_lt(n, 16);
        kc_codec_rate_written(&r, 4 * MIB, 4 * MIB / 0.2e9);
    }
    for (int i = 0; i < 40; i++) {
        kc_codec_rate_written(&r, 4 * MIB, 4 * MIB / 0.2e9);
        ck_assert_uint_eq(kc_codec_rate_next(&r, KC_CODEC_ALL, 1), KC_CODEC_ALL);
    }
}
END_TEST

/* Coding that saves nothing costs its time where one thread does both, and nothing where another does it in time. */
START_TEST(coding_that_saves_nothing_is_left_out)
{
    struct kc_codec_rate r = {0};
    measure(&r, 2e9, 1, 1e9);
    ck_assert_uint_eq(kc_codec_rate_next(&r, KC_CODEC_ALL, 0), KC_CODEC_CHEAP);
    ck_assert(close_to(kc_codec_rate_cost(&r, 1), 1));
}
END_TEST

int main(void)
{
    Suite *s = suite_create("codec rate");
    TCase *c = tcase_create("rate");
    suite_add_tcase(s, c);
    tcase_add_test(c, the_cost_is_that_of_the_slower_or_of_both);
    tcase_add_test(c, what_was_not_measured_is_tried);
    tcase_add_test(c, slow_coding_is_left_out_but_for_every_sixteenth);
    tcase_add_test(c, a_device_that_becomes_slow_brings_coding_back);
    tcase_add_test(c, coding_that_saves_nothing_is_left_out);
    return suite_run(s);
}
