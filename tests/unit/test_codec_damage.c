/* test_codec_damage.c - what is stored is read as if somebody had written it to do harm: cut, turned bit by bit, made up. */
#include "base/digest.h"
#include "state/number.h"
#include "tests/unit/codec_rig.h"
#include "tests/unit/suite.h"

#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { FEW = 300, TYPES = 2 };
static const enum kc_type types[TYPES] = {KC_F32, KC_BF16};

/* A frame of few elements with planes of all three kinds. */
static struct kc_codec_stored small_frame(enum kc_type type, enum kc_codec_id id, void **values, void **base)
{
    float *b = codec_normal("base", FEW, 0.02), *v = codec_normal("step", FEW, 1e-4);
    for (int i = 0; i < FEW; i++)
        v[i] += b[i];
    *values = type == KC_F32 ? codec_copy(v, FEW * sizeof *v) : codec_rounded(v, FEW);
    *base = type == KC_F32 ? codec_copy(b, FEW * sizeof *b) : codec_rounded(b, FEW);
    free(v);
    free(b);
    struct kc_codec_stored c = codec_round_trip(*values, *base, type, FEW, 1u << id);
    ck_assert_int_eq(c.id, id);
    return c;
}

/* Refused, or, where it decodes, something that the digest of the values tells from them, or exactly them (a bit that
 * zstd does not look at). Never a byte outside: memory is exactly as large as it must be, and sanitizers look on. */
static int refused(const struct kc_codec_stored *s, const void *values)
{
    void *got;
    int rc = codec_decoded(s, &got);
    size_t bytes = s->count * codec_width(s->type);
    if (rc == 0 && memcmp(got, values, bytes) != 0)
        ck_assert(!kc_digest_equal(kc_digest(got, bytes), kc_digest(values, bytes)));
    ck_assert(rc == 0 || rc == -EBADMSG);
    free(got);
    return rc != 0;
}

START_TEST(a_frame_that_is_cut_is_refused)
{
    for (size_t t = 0; t < TYPES; t++)
        for (size_t f = 0; f < FRAMED; f++) {
            void *values, *base;
            struct kc_codec_stored c = small_frame(types[t], codec_framed[f], &values, &base);
            for (size_t bytes = 0; bytes < c.bytes; bytes++) {
                struct kc_codec_stored s = c;
                s.stored = codec_copy(c.stored, bytes);
                s.bytes = bytes;
                ck_assert(refused(&s, values));
                free((void *)s.stored);
            }
            /* or has something after its end */
            struct kc_codec_stored s = c;
            char *longer = malloc(s.bytes + 1);
            memcpy(longer, s.stored, s.bytes);
            longer[s.bytes++] = 0;
            s.stored = longer;
            ck_assert(refused(&s, values));
            free(longer);
            codec_forget(&c);
            free(values);
            free(base);
        }
}
END_TEST

START_TEST(no_bit_of_a_frame_is_trusted)
{
    for (size_t t = 0; t < TYPES; t++)
        for (size_t f = 0; f < FRAMED; f++) {
            void *values, *base;
            struct kc_codec_stored c = small_frame(types[t], codec_framed[f], &values, &base);
            unsigned char *bytes = (unsigned char *)c.stored;
            for (size_t bit = 0; bit < 8 * c.bytes; bit++) {
                bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
                int was = refused(&c, values);
                if (bit / 8 < 8 + 4 * codec_width(types[t])) /* the head and the entries of the only chunk */
                    ck_assert_msg(was, "bit %zu of byte %zu is not looked at", bit % 8, bit / 8);
                bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
            }
            for (size_t i = 0; i < c.bytes; i++) { /* and bytes at their ends */
                unsigned char old = bytes[i];
                bytes[i] = 0xff;
                refused(&c, values);
                bytes[i] = 0;
                refused(&c, values);
                bytes[i] = old;
            }
            ck_assert(!refused(&c, values));
            codec_forget(&c);
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
        ck_assert_int_eq(codec_decoded(&s, &got), -EBADMSG);
        free(got);
    }
}
END_TEST

START_TEST(what_an_index_says_must_be_what_is_stored)
{
    void *values, *base;
    struct kc_codec_stored c = small_frame(KC_F32, KC_CODEC_XOR, &values, &base);
    struct kc_codec_stored s = c;
    s.id = KC_CODEC_DIFFERENCE;
    ck_assert(refused(&s, values));
    s = c;
    s.count--;
    ck_assert(refused(&s, values));
    s = c;
    s.type = KC_BF16;
    ck_assert(refused(&s, values));
    s = c;
    s.id = KC_CODEC_RAW;
    ck_assert(refused(&s, values));
    s.id = KC_CODEC_CONSTANT;
    ck_assert(refused(&s, values));
    s.id = KC_CODEC_BASE;
    ck_assert(refused(&s, values));
    s.id = (enum kc_codec_id)KC_CODECS;
    ck_assert(refused(&s, values));
    void *got = malloc(FEW * sizeof(float));
    s = c;
    s.base = NULL;
    ck_assert_int_eq(kc_codec_decode(codec, &s, got), -EINVAL);
    s.id = KC_CODEC_BASE;
    ck_assert_int_eq(kc_codec_decode(codec, &s, got), -EINVAL);
    s = c;
    s.count = 0;
    ck_assert_int_eq(kc_codec_decode(codec, &s, got), -EINVAL);
    free(got);
    codec_forget(&c);
    free(values);
    free(base);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("codec damage");
    TCase *c = tcase_create("damage");
    tcase_set_timeout(c, 60);
    tcase_add_checked_fixture(c, codec_begin, codec_end);
    suite_add_tcase(s, c);
    tcase_add_test(c, a_frame_that_is_cut_is_refused);
    tcase_add_test(c, no_bit_of_a_frame_is_trusted);
    tcase_add_test(c, noise_is_no_frame);
    tcase_add_test(c, what_an_index_says_must_be_what_is_stored);
    return suite_run(s);
}
