/* test_codec.c - values of an extent, coded and coded back. Words and frames are compared with bytes made by hand from the
 * description in codec.h; what is in the planes of zstd is its own business. */
#include "base/bf16.h"
#include "base/digest.h"
#include "state/codec.h"
#include "state/number.h"
#include "tests/unit/suite.h"

#include <check.h>
#include <errno.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define ONLY(id) (1u << KC_CODEC_##id)
static const enum kc_codec_id framed[] = {KC_CODEC_PLANES, KC_CODEC_XOR, KC_CODEC_DIFFERENCE};

static struct kc_codec *codec;

static void begin(void)
{
    ck_assert_int_eq(kc_codec_new(&codec), 0);
}

static void end(void)
{
    codec = kc_codec_free(codec);
}

static size_t width(enum kc_type type)
{
    return type == KC_F32 ? 4 : 2;
}

/* A copy in memory of exactly that size, so that a sanitizer sees a byte before or after it. */
static void *copy(const void *data, size_t bytes)
{
    void *p = malloc(bytes ? bytes : 1);
    ck_assert_ptr_nonnull(p);
    memcpy(p, data, bytes);
    return p;
}

struct coded {
    struct kc_codec_stored s; /* s.stored is owned */
};

static int code(const struct kc_codec_job *j, struct coded *out)
{
    size_t room = kc_codec_bound(j->type, j->count);
    void *buffer = malloc(room ? room : 1);
    struct kc_codec_result r;
    int rc = kc_codec_encode(codec, j, buffer, room, &r);
    if (rc == 0) {
        ck_assert_ptr_eq(r.stored, r.id == KC_CODEC_RAW ? j->values : buffer);
        ck_assert_uint_ne(j->allowed & 1u << r.id, 0);
        *out = (struct coded){{.id = r.id, .base = j->base, .type = j->type, .count = j->count,
                               .stored = copy(r.stored, r.bytes), .bytes = r.bytes}};
    }
    free(buffer);
    return rc;
}

static void forget(struct coded *c)
{
    free((void *)c->s.stored);
}

static int decode_to(const struct kc_codec_stored *s, void **values)
{
    *values = malloc(s->count * width(s->type));
    memset(*values, 0xa5, s->count * width(s->type));
    return kc_codec_decode(codec, s, *values);
}

/* There and back, bit for bit; also in place of the base. What was stored. */
static struct coded round_trip(const void *values, const void *base, enum kc_type type, uint32_t count, uint32_t allowed)
{
    size_t bytes = count * width(type);
    struct kc_codec_job j = {.values = copy(values, bytes), .base = base ? copy(base, bytes) : NULL, .type = type,
                             .count = count, .allowed = allowed};
    struct coded c;
    ck_assert_int_eq(code(&j, &c), 0);
    void *again;
    ck_assert_int_eq(decode_to(&c.s, &again), 0);
    ck_assert_mem_eq(again, values, bytes);
    free(again);
    if (base) {
        ck_assert_mem_eq(j.base, base, bytes);
        ck_assert_int_eq(kc_codec_decode(codec, &c.s, (void *)j.base), 0);
        ck_assert_mem_eq(j.base, values, bytes);
    }
    free((void *)j.values);
    free((void *)j.base);
    c.s.base = base;
    return c;
}

/* ---- the words, by hand ---- */

/* A frame of two elements whose planes are all raw or constant, so that every byte of it is known. */
static void check_frame(const void *values, const void *base, enum kc_type type, enum kc_codec_id id, const char *want,
                        size_t bytes)
{
    struct coded c = round_trip(values, base, type, 2, 1u << id);
    ck_assert_int_eq(c.s.id, id);
    ck_assert_uint_eq(c.s.bytes, bytes);
    ck_assert_mem_eq(c.s.stored, want, bytes);
    forget(&c);
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
    ck_assert_int_eq(decode_to(&s, &values), 0);
    for (int i = 0; i < 32; i++)
        ck_assert_uint_eq(((uint16_t *)values)[i], 0x3f80);
    free(values);
    for (unsigned char size = 0; size < 64; size++) { /* one that is whole, of another size */
        frame[22] = (char)size;
        frame[23] = (char)(size << 3 | 3);
        frame[24] = (char)(size >> 5);
        ck_assert_int_eq(decode_to(&s, &values), size == 32 ? 0 : -EBADMSG);
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
    for (size_t f = 0; f < 3; f++) {
        struct coded c = round_trip(values, base, KC_F32, SPECIALS * SPECIALS, 1u << framed[f]);
        forget(&c);
        c = round_trip(halves, half_base, KC_BF16, SPECIALS * SPECIALS, 1u << framed[f]);
        forget(&c);
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
        for (size_t f = 0; f < 3; f++) {
            struct coded c = round_trip(values, base, KC_BF16, 65536, 1u << framed[f]);
            forget(&c);
        }
    }
}
END_TEST

static float *normal(const char *name, uint32_t count, double scale)
{
    float *v = malloc(count * sizeof *v);
    kc_number_normal(7, "codec", name, 0, count, scale, v);
    return v;
}

static uint16_t *rounded(const float *v, uint32_t count)
{
    uint16_t *h = malloc(count * sizeof *h);
    for (uint32_t i = 0; i < count; i++)
        h[i] = kc_bf16_from_float(v[i]);
    return h;
}

/* Around the sizes at which loops, samples and chunks end. */
START_TEST(every_count_comes_back)
{
    static const uint32_t counts[] = {1,    2,    3,    63,   64,     65,     127,    1000,   1024,
                                      4095, 4096, 4097, 4098, 131071, 131072, 131073, 262144, 300001};
    float *v = normal("values", 300001, 0.02), *b = normal("base", 300001, 0.02);
    uint16_t *hv = rounded(v, 300001), *hb = rounded(b, 300001);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        for (size_t f = 0; f < 4; f++) {
            uint32_t allowed = f < 3 ? 1u << framed[f] : KC_CODEC_ALL;
            struct coded c = round_trip(v, b, KC_F32, counts[i], allowed);
            forget(&c);
            c = round_trip(hv, hb, KC_BF16, counts[i], allowed);
            forget(&c);
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
    struct coded c = round_trip(v, b, KC_BF16, count, KC_CODEC_ALL);
    ck_assert_uint_lt(c.s.bytes, KC_CODEC_BYTES);
    forget(&c);
    c = round_trip(v, NULL, KC_F32, count / 2, KC_CODEC_ALL);
    forget(&c);
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
    struct coded c = round_trip(values, base, type, count, allowed);
    double got = (double)(count * width(type)) / (double)c.s.bytes;
    ck_assert_msg(c.s.id == want, "%s, not %s (ratio %.3f)", kc_codec_name[c.s.id], kc_codec_name[want], got);
    forget(&c);
    return got;
}

enum { MANY = 400000 };

START_TEST(what_did_not_change_takes_nothing)
{
    float *v = normal("values", MANY, 0.02);
    struct coded c = round_trip(v, v, KC_F32, MANY, KC_CODEC_ALL);
    ck_assert_int_eq(c.s.id, KC_CODEC_BASE);
    ck_assert_uint_eq(c.s.bytes, 0);
    forget(&c);
    /* the last bit of the last element is a change */
    float *w = copy(v, MANY * sizeof *v);
    uint32_t bits;
    memcpy(&bits, &w[MANY - 1], sizeof bits);
    bits ^= 0x80000000;
    memcpy(&w[MANY - 1], &bits, sizeof bits);
    c = round_trip(w, v, KC_F32, MANY, KC_CODEC_ALL);
    ck_assert_int_ne(c.s.id, KC_CODEC_BASE);
    ck_assert_uint_lt(c.s.bytes, 1000);
    forget(&c);
    free(v);
    free(w);
}
END_TEST

START_TEST(one_value_takes_one_element)
{
    float *v = malloc(MANY * sizeof *v);
    for (int i = 0; i < MANY; i++)
        v[i] = -0.0f;
    struct coded c = round_trip(v, NULL, KC_F32, MANY, KC_CODEC_ALL);
    ck_assert_int_eq(c.s.id, KC_CODEC_CONSTANT);
    ck_assert_uint_eq(c.s.bytes, 4);
    ck_assert_mem_eq(c.s.stored, "\0\0\0\x80", 4);
    forget(&c);
    v[MANY / 2] = 0.0f; /* equal as a number, not as bits */
    c = round_trip(v, NULL, KC_F32, MANY, KC_CODEC_ALL);
    ck_assert_int_ne(c.s.id, KC_CODEC_CONSTANT);
    forget(&c);
    free(v);
}
END_TEST

/* The exponent of a normal value has an entropy of about 2.5 bits, for any scale; 24 bits stay, or 8. */
START_TEST(exponents_of_normal_values_code_to_a_third)
{
    float *v = normal("values", MANY, 0.02);
    uint16_t *h = rounded(v, MANY);
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
    float *before = normal("values", MANY, 0.02), *after = normal("step", MANY, 1e-5);
    for (int i = 0; i < MANY; i++)
        after[i] += before[i];
    double got = ratio(after, before, KC_F32, MANY, KC_CODEC_ALL & ~ONLY(XOR), KC_CODEC_DIFFERENCE);
    ck_assert_double_gt(got, 32 / (14.4 + 3));
    ck_assert_double_lt(got, 32 / 14.4);
    ck_assert_double_gt(ratio(after, before, KC_F32, MANY, KC_CODEC_ALL & ~ONLY(DIFFERENCE), KC_CODEC_XOR), 1.6);
    /* in bf16, with 8 bits of fraction, nearly all stay where they are */
    uint16_t *a = rounded(after, MANY), *b = rounded(before, MANY);
    struct coded c = round_trip(a, b, KC_BF16, MANY, KC_CODEC_ALL);
    ck_assert(c.s.id == KC_CODEC_XOR || c.s.id == KC_CODEC_DIFFERENCE);
    ck_assert_uint_lt(c.s.bytes, MANY * 2 / 6);
    forget(&c);
    free(before);
    free(after);
    free(a);
    free(b);
}
END_TEST

/* A base that says nothing about the values is not used. */
START_TEST(a_base_that_does_not_help_is_left)
{
    float *v = normal("values", MANY, 0.02), *b = normal("base", MANY, 0.02);
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
        struct coded c = round_trip(v, NULL, KC_F32, MANY, KC_CODEC_ALL);
        ck_assert_uint_le(c.s.bytes, MANY * sizeof *v);
        forget(&c);
        c = round_trip(v, NULL, KC_F32, MANY, ONLY(PLANES));
        ck_assert_uint_le(c.s.bytes, kc_codec_bound(KC_F32, MANY));
        forget(&c);
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

/* ---- damage ---- */

enum { FEW = 300, TYPES = 2 };
static const enum kc_type types[TYPES] = {KC_F32, KC_BF16};

/* A frame of few elements with planes of all three kinds. */
static struct coded small_frame(enum kc_type type, enum kc_codec_id id, void **values, void **base)
{
    float *b = normal("base", FEW, 0.02), *v = normal("step", FEW, 1e-4);
    for (int i = 0; i < FEW; i++)
        v[i] += b[i];
    *values = type == KC_F32 ? copy(v, FEW * sizeof *v) : rounded(v, FEW);
    *base = type == KC_F32 ? copy(b, FEW * sizeof *b) : rounded(b, FEW);
    free(v);
    free(b);
    struct coded c = round_trip(*values, *base, type, FEW, 1u << id);
    ck_assert_int_eq(c.s.id, id);
    return c;
}

/* Refused, or, where it decodes, something that the digest of the values tells from them, or exactly them (a bit that
 * zstd does not look at). Never a byte outside: memory is exactly as large as it must be, and sanitizers look on. */
static int refused(const struct kc_codec_stored *s, const void *values)
{
    void *got;
    int rc = decode_to(s, &got);
    size_t bytes = s->count * width(s->type);
    if (rc == 0 && memcmp(got, values, bytes) != 0)
        ck_assert(!kc_digest_equal(kc_digest(got, bytes), kc_digest(values, bytes)));
    ck_assert(rc == 0 || rc == -EBADMSG);
    free(got);
    return rc != 0;
}

START_TEST(a_frame_that_is_cut_is_refused)
{
    for (size_t t = 0; t < TYPES; t++)
        for (size_t f = 0; f < 3; f++) {
            void *values, *base;
            struct coded c = small_frame(types[t], framed[f], &values, &base);
            for (size_t bytes = 0; bytes < c.s.bytes; bytes++) {
                struct kc_codec_stored s = c.s;
                s.stored = copy(c.s.stored, bytes);
                s.bytes = bytes;
                ck_assert(refused(&s, values));
                free((void *)s.stored);
            }
            /* or has something after its end */
            struct kc_codec_stored s = c.s;
            char *longer = malloc(s.bytes + 1);
            memcpy(longer, s.stored, s.bytes);
            longer[s.bytes++] = 0;
            s.stored = longer;
            ck_assert(refused(&s, values));
            free(longer);
            forget(&c);
            free(values);
            free(base);
        }
}
END_TEST

START_TEST(no_bit_of_a_frame_is_trusted)
{
    for (size_t t = 0; t < TYPES; t++)
        for (size_t f = 0; f < 3; f++) {
            void *values, *base;
            struct coded c = small_frame(types[t], framed[f], &values, &base);
            unsigned char *bytes = (unsigned char *)c.s.stored;
            for (size_t bit = 0; bit < 8 * c.s.bytes; bit++) {
                bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
                int was = refused(&c.s, values);
                if (bit / 8 < 8 + 4 * width(types[t])) /* the head and the entries of the only chunk */
                    ck_assert_msg(was, "bit %zu of byte %zu is not looked at", bit % 8, bit / 8);
                bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
            }
            for (size_t i = 0; i < c.s.bytes; i++) { /* and bytes at their ends */
                unsigned char old = bytes[i];
                bytes[i] = 0xff;
                refused(&c.s, values);
                bytes[i] = 0;
                refused(&c.s, values);
                bytes[i] = old;
            }
            ck_assert(!refused(&c.s, values));
            forget(&c);
            free(values);
            free(base);
        }
}
END_TEST

/* Bytes by chance behind a head that is right. */
START_TEST(noise_is_no_frame)
{
    static const unsigned char head[8] = {1, 2, 4, 0, FEW & 255, FEW >> 8, 0, 0};
    unsigned char frame[256];
    uint32_t key[2] = {3, 4};
    for (uint32_t i = 0; i < 20000; i++) {
        for (uint32_t w = 0; w < sizeof frame / 16; w++) {
            uint32_t word[4];
            kc_philox((uint32_t[4]){i, w}, key, word);
            memcpy(frame + 16 * w, word, 16);
        }
        memcpy(frame, head, sizeof head);
        frame[11] &= 3; /* so that some entries are possible */
        frame[9] = frame[10] = 0;
        struct kc_codec_stored s = {.id = KC_CODEC_PLANES, .type = KC_F32, .count = FEW, .stored = frame, .bytes = sizeof frame};
        void *got;
        ck_assert_int_eq(decode_to(&s, &got), -EBADMSG);
        free(got);
    }
}
END_TEST

START_TEST(what_an_index_says_must_be_what_is_stored)
{
    void *values, *base;
    struct coded c = small_frame(KC_F32, KC_CODEC_XOR, &values, &base);
    struct kc_codec_stored s = c.s;
    s.id = KC_CODEC_DIFFERENCE;
    ck_assert(refused(&s, values));
    s = c.s;
    s.count--;
    ck_assert(refused(&s, values));
    s = c.s;
    s.type = KC_BF16;
    ck_assert(refused(&s, values));
    s = c.s;
    s.id = KC_CODEC_RAW;
    ck_assert(refused(&s, values));
    s.id = KC_CODEC_CONSTANT;
    ck_assert(refused(&s, values));
    s.id = KC_CODEC_BASE;
    ck_assert(refused(&s, values));
    s.id = (enum kc_codec_id)KC_CODECS;
    ck_assert(refused(&s, values));
    void *got = malloc(FEW * sizeof(float));
    s = c.s;
    s.base = NULL;
    ck_assert_int_eq(kc_codec_decode(codec, &s, got), -EINVAL);
    s.id = KC_CODEC_BASE;
    ck_assert_int_eq(kc_codec_decode(codec, &s, got), -EINVAL);
    s = c.s;
    s.count = 0;
    ck_assert_int_eq(kc_codec_decode(codec, &s, got), -EINVAL);
    free(got);
    forget(&c);
    free(values);
    free(base);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("codec");
    TCase *c = tcase_create("codec");
    tcase_set_timeout(c, 60);
    tcase_add_checked_fixture(c, begin, end);
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
    tcase_add_test(c, a_frame_that_is_cut_is_refused);
    tcase_add_test(c, no_bit_of_a_frame_is_trusted);
    tcase_add_test(c, noise_is_no_frame);
    tcase_add_test(c, what_an_index_says_must_be_what_is_stored);
    return suite_run(s);
}
