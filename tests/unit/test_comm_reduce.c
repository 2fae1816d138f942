/* test_comm_reduce.c - the arithmetic below the collectives: rounding of bf16 by the definition, not-a-number, and
 * that the vector build gives the bits of the portable one. */
#include "comm/reduce.h"
#include "tests/unit/suite.h"

#include <check.h>
#include <math.h>

static float from_bits(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static uint16_t round_one(float f)
{
    uint16_t out = 0;
    reduce_finish((struct reduce){.type = KC_BF16, .divide = 1}, &out, &f, 1);
    return out;
}

/* bf16 keeps 8 significant bits; ties go to the even one (IEEE 754, 4.3.1). */
START_TEST(bf16_rounds_to_nearest_even)
{
    ck_assert_uint_eq(round_one(1.0f), 0x3f80);
    ck_assert_uint_eq(round_one(1.0f + 0x1p-8f), 0x3f80);           /* tie, down to even */
    ck_assert_uint_eq(round_one(1.0f + 0x1p-7f + 0x1p-8f), 0x3f82); /* tie, up to even */
    ck_assert_uint_eq(round_one(1.0f + 0x1p-8f + 0x1p-20f), 0x3f81);
    ck_assert_uint_eq(round_one(-1.0f - 0x1p-8f), 0xbf80);
    ck_assert_uint_eq(round_one(from_bits(0x7f7fffff)), 0x7f80); /* beyond the largest: infinity */
    ck_assert_uint_eq(round_one(INFINITY), 0x7f80);
    ck_assert_uint_eq(round_one(from_bits(0x7f800001)) & 0x7fc0, 0x7fc0); /* stays not-a-number */
    ck_assert_uint_eq(round_one(from_bits(0xffffffff)) & 0xffc0, 0xffc0);
}
END_TEST

/* 1 + 256 · 2^-8 is 2 in f32; in bf16 every single sum would stay 1. */
START_TEST(bf16_is_summed_in_f32)
{
    enum { N = 64 };
    uint16_t values[N], out = 0;
    const void *in[N];
    void *outs[1] = {&out};
    for (int i = 0; i < N; i++) {
        values[i] = i ? round_one(0x1p-8f) : round_one(1.0f);
        in[i] = &values[i];
    }
    reduce_fold((struct reduce){.type = KC_BF16, .divide = 1}, 1, outs, N, in, 1);
    ck_assert_uint_eq(out, round_one(1.0f + 63 * 0x1p-8f));
}
END_TEST

/* A not-a-number in any place is the result of sum, max and min: it is never hidden (F47). */
START_TEST(not_a_number_is_never_hidden)
{
    for (int reduce = 0; reduce < KC_REDUCES; reduce++) {
        for (int place = 0; place < 3; place++) {
            float values[3] = {1, 2, 3}, out = 0;
            values[place] = NAN;
            const void *in[3] = {&values[0], &values[1], &values[2]};
            void *outs[1] = {&out};
            reduce_fold((struct reduce){.reduce = (uint8_t)reduce, .divide = reduce == KC_AVG ? 3 : 1}, 1, outs, 3,
                        in, 1);
            ck_assert_msg(isnan(out), "%s, place %d", kc_reduce_name[reduce], place);
            reduce_fold((struct reduce){.reduce = (uint8_t)reduce, .divide = reduce == KC_AVG ? 2 : 1}, 1, outs, 2,
                        in, 1);
            ck_assert_msg(place == 2 || isnan(out), "%s, place %d of 2", kc_reduce_name[reduce], place);
        }
    }
}
END_TEST

START_TEST(integers_wrap_and_divide_towards_zero)
{
    int32_t a = INT32_MAX, b = 1, c = -7, d = 0, out = 0;
    void *outs[1] = {&out};
    struct reduce sum = {.type = KC_I32, .divide = 1}, average = {.type = KC_I32, .reduce = KC_AVG, .divide = 2};
    reduce_fold(sum, 1, outs, 2, (const void *[]){&a, &b}, 1);
    ck_assert_int_eq(out, INT32_MIN);
    reduce_fold(average, 1, outs, 2, (const void *[]){&c, &d}, 1);
    ck_assert_int_eq(out, -3);
}
END_TEST

#define COUNT 2600 /* more than two blocks, and no multiple of a vector */

static void fill(uint8_t *to, size_t bytes, uint64_t seed, uint8_t type)
{
    for (size_t i = 0; i < bytes; i++) {
        seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
        to[i] = (uint8_t)(seed >> 40);
    }
    /* keep exponents moderate, so that sums are numbers whose last bit matters */
    for (size_t i = 0; type == KC_F32 && i < bytes; i += 4)
        to[i + 3] = (to[i + 3] & 0x80) | 0x3f;
    for (size_t i = 0; type == KC_F64 && i < bytes; i += 8)
        to[i + 7] = (to[i + 7] & 0x80) | 0x3f;
    for (size_t i = 0; type == KC_BF16 && i < bytes; i += 2)
        to[i + 1] = (to[i + 1] & 0x80) | 0x3f;
}

/* One combination with one build: a fold of `ins` into two outputs, the second in place of the first input. */
static void fold_once(bool wide, uint8_t type, uint8_t reduce, uint32_t ins, uint8_t *out)
{
    static uint8_t in[5][COUNT * 8];
    size_t bytes = COUNT * kc_type_bytes[type];
    const void *sources[5];
    for (uint32_t i = 0; i < ins; i++) {
        fill(in[i], bytes, i + 1, type);
        sources[i] = in[i];
    }
    struct reduce r = {.type = type, .reduce = reduce, .wide = wide, .divide = reduce == KC_AVG ? ins : 1};
    reduce_fold(r, 2, (void *[]){out, in[0]}, ins, sources, COUNT);
    ck_assert_int_eq(memcmp(out, in[0], bytes), 0);
}

START_TEST(the_wide_build_gives_the_same_bits)
{
    static uint8_t portable[COUNT * 8], wide[COUNT * 8];
    if (!reduce_wide_possible())
        return; /* nothing to compare on this processor */
    for (uint8_t type = 0; type < KC_TYPES; type++) {
        for (uint8_t reduce = 0; reduce < KC_REDUCES; reduce++) {
            for (uint32_t ins = 1; ins <= 5; ins++) {
                fold_once(false, type, reduce, ins, portable);
                fold_once(true, type, reduce, ins, wide);
                ck_assert_msg(!memcmp(portable, wide, COUNT * kc_type_bytes[type]), "%s %s of %u", kc_type_name[type],
                              kc_reduce_name[reduce], ins);
            }
        }
    }
}
END_TEST

/* Steps of a ring give what a fold in the same order gives. */
START_TEST(steps_equal_a_fold)
{
    for (uint8_t type = 0; type < KC_TYPES; type++) {
        uint8_t a[COUNT * 8], b[COUNT * 8], out[COUNT * 8], other[COUNT * 8], sum[COUNT * 8];
        size_t bytes = COUNT * kc_type_bytes[type];
        fill(a, bytes, 1, type);
        fill(b, bytes, 2, type);
        struct reduce r = {.type = type, .reduce = KC_AVG, .divide = 2, .wide = reduce_wide_possible()};
        reduce_start(r, sum, a, COUNT);
        reduce_add(r, sum, sum, b, COUNT);
        reduce_finish(r, out, sum, COUNT);
        reduce_fold(r, 1, (void *[]){other}, 2, (const void *[]){a, b}, COUNT);
        ck_assert_msg(!memcmp(out, other, bytes), "%s", kc_type_name[type]);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("comm_reduce");
    TCase *cases = tcase_create("arithmetic");
    suite_add_tcase(suite, cases);
    tcase_add_test(cases, bf16_rounds_to_nearest_even);
    tcase_add_test(cases, bf16_is_summed_in_f32);
    tcase_add_test(cases, not_a_number_is_never_hidden);
    tcase_add_test(cases, integers_wrap_and_divide_towards_zero);
    tcase_add_test(cases, the_wide_build_gives_the_same_bits);
    tcase_add_test(cases, steps_equal_a_fold);
    return suite_run(suite);
}
