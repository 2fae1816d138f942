/* test_bf16.c - the rounding that all rooms share. */
#include "base/bf16.h"
#include "tests/unit/suite.h"

#include <check.h>
#include <math.h>

START_TEST(what_is_bf16_already_stays)
{
    for (uint32_t h = 0; h < 65536; h++) {
        float v = kc_bf16_to_float((uint16_t)h);
        if (isnan(v))
            ck_assert(isnan(kc_bf16_to_float(kc_bf16_from_float(v))));
        else
            ck_assert_uint_eq(kc_bf16_from_float(v), h);
    }
}
END_TEST

/* Of the two neighbours the nearer one, and of two that are equally near the even one: said in doubles, where the
 * distances are exact. */
static void check_one(uint16_t below, float v)
{
    uint16_t above = (uint16_t)(below + 1), got = kc_bf16_from_float(v);
    double down = fabs((double)v - (double)kc_bf16_to_float(below));
    /* beyond the largest number the neighbour is where the next one would be */
    double next = (above & 0x7fff) == 0x7f80 ? copysign(0x1p128, (double)v) : (double)kc_bf16_to_float(above);
    double up = fabs(next - (double)v);
    uint16_t want = down < up ? below : down > up ? above : below & 1 ? above : below;
    ck_assert_msg(got == want, "%a is %04x, not %04x", (double)v, got, want);
}

START_TEST(rounds_to_nearest_and_ties_to_even)
{
    static const uint32_t low[] = {0, 1, 0x7fff, 0x8000, 0x8001, 0xffff};
    for (uint32_t h = 0; h < 65536; h++) {
        if ((h & 0x7fff) >= 0x7f80)
            continue;
        for (size_t i = 0; i < sizeof low / sizeof *low; i++) {
            uint32_t bits = h << 16 | low[i];
            float v;
            memcpy(&v, &bits, sizeof v);
            check_one((uint16_t)h, v);
        }
    }
}
END_TEST

/* Also one whose upper half alone would be an infinity, and one that the carry would turn into a zero. */
START_TEST(what_is_not_a_number_stays_so)
{
    static const uint32_t nan[] = {0x7fc00000, 0x7f800001, 0xff800001, 0x7fffffff, 0xffffffff, 0x7f80ffff};
    for (size_t i = 0; i < sizeof nan / sizeof *nan; i++) {
        float v;
        memcpy(&v, &nan[i], sizeof v);
        uint16_t h = kc_bf16_from_float(v);
        ck_assert(isnan(kc_bf16_to_float(h)));
        ck_assert_uint_eq(h >> 15, nan[i] >> 31);
    }
    ck_assert_uint_eq(kc_bf16_from_float(INFINITY), 0x7f80);
    ck_assert_uint_eq(kc_bf16_from_float(-INFINITY), 0xff80);
    ck_assert_uint_eq(kc_bf16_from_float(-0.0f), 0x8000);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("bf16");
    TCase *c = tcase_create("bf16");
    suite_add_tcase(s, c);
    tcase_add_test(c, what_is_bf16_already_stays);
    tcase_add_test(c, rounds_to_nearest_and_ties_to_even);
    tcase_add_test(c, what_is_not_a_number_stays_so);
    return suite_run(s);
}
