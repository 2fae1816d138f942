/* test_codec.c - values of an extent, coded and coded back. Words and frames are compared with bytes made by hand from the
 * description in codec.h; what is in the planes of zstd is its own business. */
#include "state/number.h"
#include "tests/unit/codec_rig.h"
#include "tests/unit/suite.h"

#include <check.h>
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* ---- the words, by hand ---- */

/* A frame of two elements whose planes are all raw or constant, so that every byte of it is known. */
static void check_frame(const void *values, const void *base, enum kc_type type, enum kc_codec_id id, const char *want,
                        size_t bytes)
{
    struct kc_codec_stored c = codec_round_trip(values, base, type, 2, 1u << id);
    ck_assert_int_eq(c.id, id);
    ck_assert_uint_eq(c.bytes, bytes);
    ck_assert_mem_eq(c.stored, want, bytes);
    codec_forget(&c);
}

START_TEST(a_frame_is_what_is_written_about_it)
{
    /* 1 is 3f800000 and −1 is bf800000: turned, 7f000000 and 7f000001 */
    static const float ones[2] = {1, -1};
    check_frame(ones, NULL, KC_F32, KC_CODEC_PLANES,
                "\x01\x02\x04\x00\x02\x00\x00\x00"
                "\x02\x00\x00\x00\x01\x00\x00\x01\x01\x00\x00\x01\x01\x00\x00\x01"
                "\x00\x01\x00\x00\x7f", 29);
    /* 3f800001 ^ 3f800000 = 1, turned 2; bf800300 ^ 3f800000 = 80000300, turned 00000601 */
    static const uint32_t moved[2] = {0x3f800001, 0xbf800300}, still[2] = {0x3f800000, 0x3f800000};
    check_frame(moved, still, KC_F32, KC_CODEC_XOR,
                "\x01\x03\x04\x00\x02\x00\x00\x00"
                "\x02\x00\x00\x00\x02\x00\x00\x00\x01\x00\x00\x01\x01\x00\x00\x01"
                "\x02\x01\x00\x06\x00\x00", 30);
    /* two units up is 2, so 4; from +0 (80000000) to −0 (7fffffff) is −1, so 1 */
    static const uint32_t after[2] = {0x3f800002, 0x80000000}, before[2] = {0x3f800000, 0};
    check_frame(after, before, KC_F32, KC_CODEC_DIFFERENCE,
                "\x01\x04\x04\x00\x02\x00\x00\x00"
                "\x02\x00\x00\x00\x01\x00\x00\x01\x01\x00\x00\x01\x01\x00\x00\x01"
                "\x04\x01\x00\x00\x00", 29);
    /* bf16: 1 is 3f80, turned 7f00; −2 is c000, turned 8001 */
    static const uint16_t half[2] = {0x3f80, 0xc000};
    check_frame(half, NULL, KC_BF16, KC_CODEC_PLANES,
                "\x01\x02\x02\x00\x02\x00\x00\x00\x02\x00\x00\x00\x02\x00\x00\x00\x00\x01\x7f\x80", 20);
    /* −1 to one unit nearer to 0: bf80 → bf7f, in order 407f → 4080, +1, so 2; 1 down by 3: −3, so 5 */
    static const uint16_t to[2] = {0xbf7f, 0x3f7d}, from[2] = {0xbf80, 0x3f80};
    check_frame(to, from, KC_BF16, KC_CODEC_DIFFERENCE,
                "\x01\x04\x02\x00\x02\x00\x00\x00\x02\x00\x00\x00\x01\x00\x00\x01\x02\x05\x00", 19);
}
END_TEST

/* A frame that no encoder of ours made: a plane in zstd's simplest form, a frame with one block of a repeated byte
 * (RFC 8878: magic, header 20 = one byte of content size follows, block header 3 bytes: last, type 1, size). */
START_TEST(a_plane_may_be_any_zstd_frame_of_its_size)
{
    char frame[] = "\x01\x02\x02\x00\x20\x00\x00\x00\x01\x00\x00\x01\x0a\x00\x00\x02"
                   "\x00\x28\xb5\x2f\xfd\x20\x20\x03\x01\x00\x7f";
    struct kc_codec_stored s = {.id = KC_CODEC_PLANES, .type = KC_BF16, .count = 32, .stored = frame, .bytes = sizeof frame - 1};
    void *values;
    ck_assert_int_eq(codec_decoded(&s, &values), 0);
    for (int i = 0; i < 32; i++)
        ck_assert_uint_eq(((uint16_t *)values)[i], 0x3f80);
    free(values);
    for (unsigned char size = 0; size < 64; size++) { /* one that is whole, of another size */
        frame[22] = (char)size;
        frame[23] = (char)(size << 3 | 3);
        frame[24] = (char)(size >> 5);
        ck_assert_int_eq(codec_decoded(&s, &values), size == 32 ? 0 : -EBADMSG);
        free(values);
    }
}
END_TEST

/* ---- exactness ---- */

static const uint32_t special[] = {0,          0x80000000, 1,          0x80000001, 0x007fffff, 0x807fffff, 0x00800000, 0x3f800000,
                                   0xbf800000, 0x7f7fffff, 0xff7fffff, 0x7f800000, 0xff800000, 0x7fc00000, 0xffc00000, 0x7f800001,
                                   0xff812345, 0x7fffffff, 0xffffffff, 0x34000000};
enum { SPECIALS = sizeof special / sizeof *special };

/* Each special value after each. */
START_TEST(special_values_come_back_bit_for_bit)
{
    uint32_t values[SPECIALS * SPECIALS], base[SPECIALS * SPECIALS];
    uint16_t halves[SPECIALS * SPECIALS], half_base[SPECIALS * SPECIALS];
    for (int i = 0; i < SPECIALS * SPECIALS; i++) {
        values[i] = special[i % SPECIALS];
        base[i] = special[i / SPECIALS];
        halves[i] = (uint16_t)(values[i] >> 16 | (values[i] & 1));
        half_base[i] = (uint16_t)(base[i] >> 16 | (base[i] & 1));
    }
    for (size_t f = 0; f < FRAMED; f++) {
        struct kc_codec_stored c = codec_round_trip(values, base, KC_F32, SPECIALS * SPECIALS, 1u << codec_framed[f]);
        codec_forget(&c);
        c = codec_round_trip(halves, half_base, KC_BF16, SPECIALS * SPECIALS, 1u << codec_framed[f]);
        codec_forget(&c);
    }
}
END_TEST

/* Every bf16 beside bases near, far and at the ends. */
START_TEST(every_bf16_comes_back)
{
    static uint16_t values[65536], base[65536];
    for (uint32_t shift = 1; shift < 65536; shift = shift * 7 + 1) {
        for (uint32_t i = 0; i < 65536; i++) {
            values[i] = (uint16_t)i;
            base[i] = (uint16_t)(i + shift);
        }
        for (size_t f = 0; f < FRAMED; f++) {
            struct kc_codec_stored c = codec_round_trip(values, base, KC_BF16, 65536, 1u << codec_framed[f]);
            codec_forget(&c);
        }
    }
}
END_TEST

/* Around the sizes at which loops, samples and chunks end. */
START_TEST(every_count_comes_back)
{
    static const uint32_t counts[] = {1,    2,     3,     63,    64,     65,     127,    1000,   1024,  1025,
                                      4097, 16383, 20000, 65535, 131071, 131072, 131073, 262144, 300001};
    float *v = codec_normal("values", 300001, 0.02), *b = codec_normal("base", 300001, 0.02);
    uint16_t *hv = codec_rounded(v, 300001), *hb = codec_rounded(b, 300001);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        for (size_t f = 0; f <= FRAMED; f++) {
            uint32_t allowed = f < FRAMED ? 1u << codec_framed[f] : KC_CODEC_ALL;
            struct kc_codec_stored c = codec_round_trip(v, b, KC_F32, counts[i], allowed);
            codec_forget(&c);
            c = codec_round_trip(hv, hb, KC_BF16, counts[i], allowed);
            codec_forget(&c);
        }
    free(v);
    free(b);
    free(hv);
    free(hb);
}
END_TEST

START_TEST(the_largest_extent_comes_back)
{
    uint32_t count = KC_CODEC_BYTES / 2;
    uint16_t *v = malloc(KC_CODEC_BYTES), *b = malloc(KC_CODEC_BYTES);
    for (uint32_t i = 0; i < count; i++) {
        v[i] = (uint16_t)(i * 2654435761u >> 16);
        b[i] = (uint16_t)(v[i] + i % 3);
    }
    struct kc_codec_stored c = codec_round_trip(v, b, KC_BF16, count, KC_CODEC_ALL);
    ck_assert_uint_lt(c.bytes, KC_CODEC_BYTES);
    codec_forget(&c);
    c = codec_round_trip(v, NULL, KC_F32, count / 2, KC_CODEC_ALL);
    codec_forget(&c);
    free(v);
    free(b);
    struct kc_codec_job j = {.values = special, .type = KC_BF16, .count = count + 1, .allowed = KC_CODEC_ALL};
    struct kc_codec_result r;
    char out[8];
    ck_assert_uint_eq(kc_codec_bound(KC_BF16, count + 1), 0);
    ck_assert_uint_eq(kc_codec_bound(KC_F32, count / 2 + 1), 0);
    ck_assert_int_eq(kc_codec_encode(codec, &j, out, sizeof out, &r), -EINVAL);
}
END_TEST

/* ---- what is chosen, and how short it is ---- */

static double ratio(const void *values, const void *base, enum kc_type type, uint32_t count, uint32_t allowed,
                    enum kc_codec_id want)
{
    struct kc_codec_stored c = codec_round_trip(values, base, type, count, allowed);
    double got = (double)(count * codec_width(type)) / (double)c.bytes;
    ck_assert_msg(c.id == want, "%s, not %s (ratio %.3f)", kc_codec_name[c.id], kc_codec_name[want], got);
    codec_forget(&c);
    return got;
}

enum { MANY = 400000 };

START_TEST(what_did_not_change_takes_nothing)
{
    float *v = codec_normal("values", MANY, 0.02);
    struct kc_codec_stored c = codec_round_trip(v, v, KC_F32, MANY, KC_CODEC_ALL);
    ck_assert_int_eq(c.id, KC_CODEC_BASE);
    ck_assert_uint_eq(c.bytes, 0);
    codec_forget(&c);
    /* the last bit of the last element is a change */
    float *w = codec_copy(v, MANY * sizeof *v);
    uint32_t bits;
    memcpy(&bits, &w[MANY - 1], sizeof bits);
    bits ^= 0x80000000;
    memcpy(&w[MANY - 1], &bits, sizeof bits);
    c = codec_round_trip(w, v, KC_F32, MANY, KC_CODEC_ALL);
    ck_assert_int_ne(c.id, KC_CODEC_BASE);
    ck_assert_uint_lt(c.bytes, 1000);
    codec_forget(&c);
    free(v);
    free(w);
}
END_TEST

START_TEST(one_value_takes_one_element)
{
    float *v = malloc(MANY * sizeof *v);
    for (int i = 0; i < MANY; i++)
        v[i] = -0.0f;
    struct kc_codec_stored c = codec_round_trip(v, NULL, KC_F32, MANY, KC_CODEC_ALL);
    ck_assert_int_eq(c.id, KC_CODEC_CONSTANT);
    ck_assert_uint_eq(c.bytes, 4);
    ck_assert_mem_eq(c.stored, "\0\0\0\x80", 4);
    codec_forget(&c);
    v[MANY / 2] = 0.0f; /* equal as a number, not as bits */
    c = codec_round_trip(v, NULL, KC_F32, MANY, KC_CODEC_ALL);
    ck_assert_int_ne(c.id, KC_CODEC_CONSTANT);
    codec_forget(&c);
    free(v);
}
END_TEST

/* The exponent of a normal value has an entropy of about 2.5 bits, for any scale; 24 bits stay, or 8. */
START_TEST(exponents_of_normal_values_code_to_a_third)
{
    float *v = codec_normal("values", MANY, 0.02);
    uint16_t *h = codec_rounded(v, MANY);
    double f32 = ratio(v, NULL, KC_F32, MANY, KC_CODEC_ALL, KC_CODEC_PLANES),
           bf16 = ratio(h, NULL, KC_BF16, MANY, KC_CODEC_ALL, KC_CODEC_PLANES);
    ck_assert_double_gt(f32, 1.15);
    ck_assert_double_lt(f32, 32 / (24 + 2.4));
    ck_assert_double_gt(bf16, 1.4);
    ck_assert_double_lt(bf16, 16 / (8 + 2.4));
    free(v);
    free(h);
}
END_TEST

/* Noise in every bit: nothing is tried twice and nothing is copied. */
START_TEST(noise_is_stored_as_it_is)
{
    uint32_t *v = malloc(MANY * sizeof *v), key[2] = {1, 2};
    for (uint32_t i = 0; i < MANY / 4; i++)
        kc_philox((uint32_t[4]){i}, key, v + 4 * (size_t)i);
    ck_assert_double_eq(ratio(v, NULL, KC_F32, MANY, KC_CODEC_ALL, KC_CODEC_RAW), 1);
    free(v);
}
END_TEST

/* A step of AdamW moves a weight by about lr: 1e-5 beside weights of 0.02, whose unit is 2^-29, is some 5400 units, and
 * normal values of that scale have log2(5400 √(2πe)) = 14.4 bits; smaller weights have smaller units, so a bit or two
 * more. */
START_TEST(a_small_step_is_a_small_difference)
{
    float *before = codec_normal("values", MANY, 0.02), *after = codec_normal("step", MANY, 1e-5);
    for (int i = 0; i < MANY; i++)
        after[i] += before[i];
    double got = ratio(after, before, KC_F32, MANY, KC_CODEC_ALL & ~ONLY(XOR), KC_CODEC_DIFFERENCE);
    ck_assert_double_gt(got, 32 / (14.4 + 3));
    ck_assert_double_lt(got, 32 / 14.4);
    ck_assert_double_gt(ratio(after, before, KC_F32, MANY, KC_CODEC_ALL & ~ONLY(DIFFERENCE), KC_CODEC_XOR), 1.6);
    /* in bf16, with 8 bits of fraction, nearly all stay where they are */
    uint16_t *a = codec_rounded(after, MANY), *b = codec_rounded(before, MANY);
    struct kc_codec_stored c = codec_round_trip(a, b, KC_BF16, MANY, KC_CODEC_ALL);
    ck_assert(c.id == KC_CODEC_XOR || c.id == KC_CODEC_DIFFERENCE);
    ck_assert_uint_lt(c.bytes, MANY * 2 / 6);
    codec_forget(&c);
    free(before);
    free(after);
    free(a);
    free(b);
}
END_TEST

/* A base that says nothing about the values is not used. */
START_TEST(a_base_that_does_not_help_is_left)
{
    float *v = codec_normal("values", MANY, 0.02), *b = codec_normal("base", MANY, 0.02);
    ratio(v, b, KC_F32, MANY, KC_CODEC_ALL, KC_CODEC_PLANES);
    free(v);
    free(b);
}
END_TEST

/* Noise, but for the bits of `clear` in the windows that a sample is made of. */
static uint32_t *noise_with_windows(uint32_t clear)
{
    uint32_t *v = malloc(MANY * sizeof *v), key[2] = {1, 2};
    for (uint32_t i = 0; i < MANY / 4; i++)
        kc_philox((uint32_t[4]){i}, key, v + 4 * (size_t)i);
    for (uint32_t w = 0; w < 4; w++)
        for (uint32_t i = 0; i < 1024; i++)
            v[(MANY - 1024) / 3 * w + i] &= ~clear;
    return v;
}

/* A sample is not the extent: what it promised is not taken where the rest has nothing of it. */
START_TEST(what_a_sample_promised_is_not_taken_where_it_is_not)
{
    /* everything; the lowest plane, with planes of noise above it; two of three planes of noise; three bits */
    static const uint32_t clear[] = {0xffffffff, 0x8000007f, 0x807f807f, 0x80000003};
    for (size_t i = 0; i < sizeof clear / sizeof *clear; i++) {
        uint32_t *v = noise_with_windows(clear[i]);
        struct kc_codec_stored c = codec_round_trip(v, NULL, KC_F32, MANY, KC_CODEC_ALL);
        ck_assert_uint_le(c.bytes, MANY * sizeof *v);
        codec_forget(&c);
        c = codec_round_trip(v, NULL, KC_F32, MANY, ONLY(PLANES));
        ck_assert_uint_le(c.bytes, kc_codec_bound(KC_F32, MANY));
        codec_forget(&c);
        free(v);
    }
    uint32_t *v = noise_with_windows(0x80000003); /* 5 of 8 bits in a plane is a gain, but a code for all has none */
    ck_assert_double_eq(ratio(v, NULL, KC_F32, MANY, KC_CODEC_ALL, KC_CODEC_RAW), 1);
    free(v);
}
END_TEST

START_TEST(what_is_not_possible_is_refused)
{
    float v[4] = {1, 2, 3, 4};
    char out[16];
    size_t room = kc_codec_bound(KC_F32, 4);
    void *large = malloc(room);
    struct kc_codec_result r = {.bytes = 77};
    struct kc_codec_job j = {.values = v, .type = KC_F32, .count = 4, .allowed = KC_CODEC_ALL};
    ck_assert_int_eq(kc_codec_encode(codec, &j, out, sizeof out, &r), -ENOSPC);
    ck_assert_int_eq(kc_codec_encode(codec, &j, large, room - 1, &r), -ENOSPC);
    j.allowed = ONLY(XOR) | ONLY(DIFFERENCE) | ONLY(BASE) | ONLY(CONSTANT); /* no base, not constant */
    ck_assert_int_eq(kc_codec_encode(codec, &j, large, room, &r), -EINVAL);
    j.allowed = KC_CODEC_ALL;
    j.count = 0;
    ck_assert_int_eq(kc_codec_encode(codec, &j, large, room, &r), -EINVAL);
    j.count = 4;
    j.type = KC_I32;
    ck_assert_int_eq(kc_codec_encode(codec, &j, large, room, &r), -EINVAL);
    ck_assert_uint_eq(r.bytes, 77);
    free(large);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("codec");
    TCase *c = tcase_create("codec");
    tcase_set_timeout(c, 60);
    tcase_add_checked_fixture(c, codec_begin, codec_end);
    suite_add_tcase(s, c);
    tcase_add_test(c, a_frame_is_what_is_written_about_it);
    tcase_add_test(c, a_plane_may_be_any_zstd_frame_of_its_size);
    tcase_add_test(c, special_values_come_back_bit_for_bit);
    tcase_add_test(c, every_bf16_comes_back);
    tcase_add_test(c, every_count_comes_back);
    tcase_add_test(c, the_largest_extent_comes_back);
    tcase_add_test(c, what_did_not_change_takes_nothing);
    tcase_add_test(c, one_value_takes_one_element);
    tcase_add_test(c, exponents_of_normal_values_code_to_a_third);
    tcase_add_test(c, noise_is_stored_as_it_is);
    tcase_add_test(c, a_small_step_is_a_small_difference);
    tcase_add_test(c, a_base_that_does_not_help_is_left);
    tcase_add_test(c, what_a_sample_promised_is_not_taken_where_it_is_not);
    tcase_add_test(c, what_is_not_possible_is_refused);
    return suite_run(s);
}
