/* test_kernels_parts.c - the ops that stand between a tensor and its parts: what goes where, element by element. */
#include "base/bf16.h"
#include "jobs/jobs.h"
#include "tests/unit/kernel_rig.h"
#include "tests/unit/suite.h"

#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const struct tensor none = {.view = {0}};

/* A view whose numbers tell where in the logical tensor they stand; 0 stands nowhere. */
static uint64_t mark(const uint64_t *at, int rank)
{
    uint64_t m = 0;
    for (int d = 0; d < rank; d++)
        m = m * 37 + at[d] + 1;
    return m % 30000 + 1;
}

static void put(const struct kc_view *v, uint64_t i, uint64_t value)
{
    const size_t bytes = kc_type_bytes[v->type];
    memcpy((char *)v->data + i * bytes, &value, bytes);
}

static uint64_t get(const struct kc_view *v, uint64_t i)
{
    uint64_t value = 0;
    memcpy(&value, (char *)v->data + i * kc_type_bytes[v->type], kc_type_bytes[v->type]);
    return value;
}

/* Logical coordinates of element i. */
static void where(const struct kc_view *v, uint64_t i, uint64_t *at)
{
    for (int d = v->rank - 1; d >= 0; d--) {
        at[d] = v->first[d] + i % v->size[d];
        i /= v->size[d];
    }
}

static struct tensor box(int type, int rank, const uint64_t *first, const uint64_t *size)
{
    struct tensor t = make(type, rank, size, 0);
    memcpy(t.view.first, first, (size_t)rank * sizeof *first);
    return t;
}

/* first and size of what goes in and of what comes out */
static const struct {
    int rank;
    uint64_t in_first[5], in[5], out_first[5], out[5];
} boxes[] = {
    {0, {0}, {0}, {0}, {0}},
    {1, {0}, {7}, {2}, {3}},                                         /* a part */
    {1, {2}, {3}, {0}, {7}},                                         /* a part in a tensor of zeros */
    {1, {0}, {3}, {3}, {4}},                                         /* nothing in common */
    {2, {0, 0}, {4, 6}, {0, 3}, {4, 3}},                             /* cut within rows */
    {2, {1, 0}, {2, 6}, {0, 0}, {4, 6}},                             /* whole rows */
    {3, {0, 2, 0}, {2, 3, 5}, {0, 0, 0}, {2, 6, 5}},                 /* in the middle */
    {3, {0, 2, 1}, {3, 3, 5}, {1, 0, 2}, {3, 4, 3}},                 /* both reach over the other, in every dimension */
    {5, {0, 1, 0, 2, 0}, {2, 3, 3, 4, 5}, {0, 0, 0, 0, 0}, {2, 5, 3, 8, 5}},
    {3, {0, 0, 0}, {3, 40, 700}, {0, 13, 0}, {3, 14, 700}},          /* rows of more than a tile of bytes */
    {2, {0, 0}, {3, 4}, {0, 0}, {3, 4}},                             /* all of it */
};
enum { BOXES = sizeof boxes / sizeof *boxes };

START_TEST(box_is_what_both_have)
{
    const int type = _i / BOXES, rank = boxes[_i % BOXES].rank;
    const uint64_t *in_first = boxes[_i % BOXES].in_first, *in_size = boxes[_i % BOXES].in;
    ck_assert(use_variant(0));
    struct tensor in = box(type, rank, in_first, in_size),
                  out = box(type, rank, boxes[_i % BOXES].out_first, boxes[_i % BOXES].out);
    uint64_t at[5];
    for (uint64_t i = 0; i < in.n; i++) {
        where(&in.view, i, at);
        put(&in.view, i, mark(at, rank));
    }
    memset(out.view.data, 0xee, out.n * kc_type_bytes[type]);
    ck_assert_int_eq(run(KC_OP_BOX, &in, 1, &out, 1, 0, NULL, NULL), 0);
    for (uint64_t i = 0; i < out.n; i++) {
        where(&out.view, i, at);
        int here = 1;
        for (int d = 0; d < rank; d++)
            here &= at[d] >= in_first[d] && at[d] < in_first[d] + in_size[d];
        const uint64_t want = here ? mark(at, rank) : 0;
        if (get(&out.view, i) != want)
            ck_abort_msg("box %d of %s, element %llu: %llu for %llu", _i % BOXES, kc_type_name[type], (unsigned long long)i,
                         (unsigned long long)get(&out.view, i), (unsigned long long)want);
    }
    ck_assert_int_eq(run(KC_OP_BOX, &none, 1, &out, 1, 0, NULL, NULL), 0); /* left out: nothing of a sum */
    for (uint64_t i = 0; i < out.n; i++)
        ck_assert_uint_eq(get(&out.view, i), 0);
    drop(&in, 1), drop(&out, 1);
    end_variant();
}
END_TEST

START_TEST(packed_parts_stand_one_behind_the_other)
{
    static const struct {
        uint64_t size[3];
        int dim;
        uint64_t parts;
    } shapes[] = {{{2, 6, 5}, 1, 3}, {{2, 6, 5}, 1, 1}, {{4, 3, 5}, 0, 2}, {{3, 4, 6}, 2, 6}, {{7, 40, 701}, 1, 4}};
    const uint64_t *z = shapes[_i % 5].size, parts = shapes[_i % 5].parts;
    const int type = (const int[]){KC_BF16, KC_F32, KC_F64}[_i / 5], dim = shapes[_i % 5].dim;
    const double attr[] = {dim, (double)parts};
    ck_assert(use_variant(0));
    struct tensor whole = make(type, 3, z, 0), back = make(type, 3, z, 0), packed = make(type, 3, z, 0);
    for (uint64_t i = 0; i < whole.n; i++)
        put(&whole.view, i, i % 65521);
    ck_assert_int_eq(run_attrs(KC_OP_PACK, &whole, 1, &packed, 1, 0, attr, 2, NULL), 0);
    for (uint64_t p = 0, i = 0; p < parts; p++) { /* part after part, each in the order of the whole */
        for (uint64_t n = 0; n < whole.n; n++) {
            uint64_t at[3];
            where(&whole.view, n, at);
            if (at[dim] / (z[dim] / parts) == p && get(&packed.view, i++) != n % 65521)
                ck_abort_msg("part %llu, element %llu", (unsigned long long)p, (unsigned long long)n);
        }
    }
    ck_assert_int_eq(run_attrs(KC_OP_UNPACK, &packed, 1, &back, 1, 0, attr, 2, NULL), 0);
    ck_assert_mem_eq(back.view.data, whole.view.data, whole.n * kc_type_bytes[type]);
    drop(&whole, 1), drop(&back, 1), drop(&packed, 1);
    end_variant();
}
END_TEST

START_TEST(what_does_not_fit_is_refused_by_name)
{
    ck_assert(use_variant(0));
    struct kc_error e = {{0}};
    struct tensor a = MAKE(KC_F32, 1, 2, 6), b = MAKE(KC_F32, 1, 12), half = MAKE(KC_BF16, 0, 12);
    ck_assert_int_eq(run_attrs(KC_OP_PACK, &a, 1, &b, 1, 0, (const double[]){1, 4}, 2, &e), -EINVAL);
    ck_assert_str_eq(e.text, "op pack: dimension 1 of 6 is not to be had in 4 parts");
    ck_assert_int_eq(run_attrs(KC_OP_UNPACK, &b, 1, &a, 1, 0, (const double[]){2, 3}, 2, &e), -EINVAL);
    ck_assert_str_eq(e.text, "op unpack: takes two attributes, a dimension of 2 and parts; has 2");
    ck_assert_int_eq(run(KC_OP_BOX, &a, 1, &b, 1, 0, NULL, &e), -EINVAL);
    ck_assert_str_eq(e.text, "op box: from 2 dimensions of f32 to 1 of f32");
    ck_assert_int_eq(run(KC_OP_BOX, &half, 1, &b, 1, 0, NULL, &e), -EINVAL);
    drop(&a, 1), drop(&b, 1), drop(&half, 1);
    end_variant();
}
END_TEST

START_TEST(conversion_rounds_once_and_widens_exactly)
{
    if (!use_variant(_i))
        return;
    const uint64_t n = 20011; /* two tiles */
    struct tensor x = MAKE(KC_F32, 3, n), half = MAKE(KC_BF16, 0, n), again = MAKE(KC_BF16, 0, n), wide = MAKE(KC_F32, 1, n);
    ck_assert_int_eq(run(KC_OP_CONVERT, &x, 1, &half, 1, 0, NULL, NULL), 0);
    ck_assert_int_eq(run(KC_OP_CONVERT, &half, 1, &wide, 1, 0, NULL, NULL), 0);
    ck_assert_int_eq(run(KC_OP_CONVERT, &half, 1, &again, 1, 0, NULL, NULL), 0);
    const uint16_t *bits = half.view.data;
    for (uint64_t i = 0; i < n; i++)
        if (bits[i] != kc_bf16_from_float(floats(&x)[i]) || floats(&wide)[i] != kc_bf16_to_float(bits[i]))
            ck_abort_msg("%.9g: %.9g, variant %s", x.exact[i], (double)floats(&wide)[i], table->variant);
    ck_assert_mem_eq(again.view.data, bits, n * sizeof *bits);
    ck_assert_int_eq(run(KC_OP_CONVERT, &x, 1, &wide, 1, 0, NULL, NULL), 0);
    ck_assert_mem_eq(wide.view.data, x.view.data, n * sizeof(float));
    drop(&x, 1), drop(&half, 1), drop(&again, 1), drop(&wide, 1);
    end_variant();
}
END_TEST

int main(void)
{
    Suite *s = suite_create("kernels between parts");
    TCase *t = tcase_create("ops");
    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, box_is_what_both_have, 0, BOXES * KC_TYPES);
    tcase_add_loop_test(t, packed_parts_stand_one_behind_the_other, 0, 5 * 3);
    tcase_add_test(t, what_does_not_fit_is_refused_by_name);
    tcase_add_loop_test(t, conversion_rounds_once_and_widens_exactly, 0, VARIANTS);
    suite_add_tcase(s, t);
    return suite_run(s);
}
