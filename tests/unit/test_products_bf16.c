/* test_products_bf16.c - products in bf16, widened and native, are those in f32 of the same numbers but for one
 * rounding of what they store and the order of their sums. (That the products in f32 are right is test_kernels'.) */
#include "base/bf16.h"
#include "jobs/jobs.h"
#include "tests/unit/graph_runner.h"
#include "tests/unit/suite.h"

#include <check.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const variants[] = {"auto+onednn+widened", "auto+onednn+native", "auto+blocked+widened",
                                       "portable+blocked+widened"};
enum { VARIANTS = 4 };

static struct kc_job_spec single, half;          /* fp32, bf16 */
static struct kc_op_table *in_single, *in_half;
static struct test_lane lane;
static double scratch[1 << 20] __attribute__((aligned(64)));

/* 0 if this machine does not have the variant: no oneDNN, or no instructions for bf16. */
static int use_variant(int i)
{
    single = half = test_spec(1, 8, 2, 8, 16, 1);
    half.precision = KC_PRECISION_BF16;
    struct kc_jobs_config config = {.spec = &half, .variant = variants[i]};
    test_lane_init(&lane, 1);
    int r = kc_jobs_cpu_table(&config, &in_half, NULL);
    ck_assert(r == 0 || r == -ENOTSUP);
    if (r < 0)
        return 0;
    ck_assert_ptr_nonnull(strstr(in_half->variant, strrchr(variants[i], '+')));
    config = (struct kc_jobs_config){.spec = &single};
    ck_assert_int_eq(kc_jobs_cpu_table(&config, &in_single, NULL), 0);
    return 1;
}

static void end_variant(void)
{
    kc_jobs_cpu_table_free(in_single);
    kc_jobs_cpu_table_free(in_half);
}

static uint64_t seed = 1;
static float noise(void)
{
    seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (float)((double)(seed >> 11) / 4503599627370496.0 - 1); /* [−1, 1) */
}

/* An operand twice, with the same numbers: in f32, and as the product in bf16 takes it. */
struct twin {
    struct kc_view exact, stored;
    uint64_t n;
};

static struct twin make(enum kc_type type, float scale, uint64_t rows, uint64_t width)
{
    struct twin t = {.exact = {.type = KC_F32, .rank = 3, .size = {1, rows, width}}, .n = rows * width};
    t.stored = t.exact;
    t.stored.type = (uint8_t)type;
    t.exact.data = aligned_alloc(64, (t.n * 4 + 63) / 64 * 64);
    t.stored.data = aligned_alloc(64, (t.n * 4 + 63) / 64 * 64);
    for (uint64_t i = 0; i < t.n; i++) {
        const float v = kc_bf16_to_float(kc_bf16_from_float(scale * noise()));
        ((float *)t.exact.data)[i] = v;
        if (type == KC_BF16)
            ((uint16_t *)t.stored.data)[i] = kc_bf16_from_float(v);
        else
            ((float *)t.stored.data)[i] = v;
    }
    return t;
}

static float stored_at(const struct twin *t, uint64_t i)
{
    return t->stored.type == KC_BF16 ? kc_bf16_to_float(((const uint16_t *)t->stored.data)[i])
                                     : ((const float *)t->stored.data)[i];
}

static void drop(struct twin *t, int n)
{
    for (int i = 0; i < n; i++) {
        free(t[i].exact.data);
        free(t[i].stored.data);
    }
}

static void both(enum kc_opcode op, const struct twin *in, int inputs, struct twin *out, int outputs, int add)
{
    for (int stored = 0; stored <= 1; stored++) {
        struct kc_view iv[KC_RULE_TENSORS], ov[KC_RULE_TENSORS];
        for (int i = 0; i < inputs; i++)
            iv[i] = stored ? in[i].stored : in[i].exact;
        for (int i = 0; i < outputs; i++)
            ov[i] = stored ? out[i].stored : out[i].exact;
        const struct kc_op_table *t = stored ? in_half : in_single;
        struct kc_op_call call = {.opcode = (uint16_t)op, .accumulate = (uint8_t)add, .inputs = (uint8_t)inputs,
                                  .outputs = (uint8_t)outputs, .in = iv, .out = ov, .scratch = scratch,
                                  .scratch_bytes = sizeof scratch};
        struct kc_error e = {{0}};
        int r = t->ops[op].enqueue(t->self, &call, &lane.lane, &e);
        ck_assert_msg(r == 0, "%s", e.text);
    }
}

/* |stored − exact| ≤ own · |exact| + all · the largest. */
static void near(const char *what, const struct twin *t, double own, double all)
{
    double largest = 0;
    const float *want = t->exact.data;
    for (uint64_t i = 0; i < t->n; i++)
        largest = fmax(largest, fabs((double)want[i]));
    for (uint64_t i = 0; i < t->n; i++) {
        const double off = fabs((double)stored_at(t, i) - (double)want[i]);
        if (!(off <= own * fabs((double)want[i]) + all * largest)) /* ck_assert for each element would take the time */
            ck_abort_msg("%s [%llu]: %.9g for %.9g, variant %s", what, (unsigned long long)i, (double)stored_at(t, i),
                         (double)want[i], in_half->variant);
    }
}
#define ROUNDED (1.0 / 256) /* half a unit in the last place of eight bits */
#define SUMMED 1e-5         /* another order of a sum, of its largest */

/* (rows, in, out): ones, odd sizes, more than a tile, more than a panel in each direction */
static const uint64_t shapes[][3] = {{1, 1, 1}, {3, 5, 7}, {70, 33, 17}, {400, 300, 50}, {30, 40, 800},
                                     {9, 600, 500}};
enum { SHAPES = 6 };

START_TEST(linear_maps_are_those_in_f32_rounded)
{
    const uint64_t *z = shapes[_i % SHAPES];
    if (!use_variant(_i / SHAPES))
        return;
    struct twin in[] = {make(KC_BF16, 1, z[0], z[1]), make(KC_BF16, 1, z[1], z[2]), make(KC_BF16, 1, 1, z[2]),
                        make(KC_BF16, 1, z[0], z[2])};
    const struct twin none = {.n = 0};
    struct twin out[] = {make(KC_BF16, 1, z[0], z[2]), make(KC_BF16, 1, z[0], z[2])};
    struct twin dx = make(KC_BF16, 1, z[0], z[1]);
    both(KC_OP_LINEAR_F, in, 3, out, 1, 0);
    near("linear", &out[0], ROUNDED, SUMMED);
    both(KC_OP_LINEAR_GELU_F, in, 4, out, 2, 0);
    near("linear-gelu f", &out[0], ROUNDED, SUMMED);
    near("linear-gelu act", &out[1], ROUNDED, ROUNDED * 1.2); /* native: GELU of what is rounded, slope up to 1.13 */
    both(KC_OP_LINEAR_ADD_F, in, 4, out, 1, 0);
    near("linear-add", &out[0], ROUNDED, SUMMED);
    both(KC_OP_LINEAR_I, (struct twin[]){in[3], in[1], none}, 3, &dx, 1, 0);
    near("linear.i", &dx, ROUNDED, SUMMED);
    both(KC_OP_LINEAR_I, (struct twin[]){in[3], in[1], in[0]}, 3, &dx, 1, 0);
    near("linear.i on a sum", &dx, ROUNDED, SUMMED);
    both(KC_OP_LINEAR_GELU_I, (struct twin[]){in[3], in[1], in[0], none}, 4, &dx, 1, 0);
    near("linear-gelu.i", &dx, 3 * ROUNDED, SUMMED); /* native: the product is rounded, and times the slope again */
    for (int add = 0; add <= 1; add++) {
        struct twin dw[] = {make(KC_F32, 1, z[1], z[2]), make(KC_F32, 1, 1, z[2])};
        both(KC_OP_LINEAR_W, (struct twin[]){in[3], in[0]}, 2, dw, 2, add);
        near("linear.w dw", &dw[0], 0, SUMMED);
        near("linear.w db", &dw[1], 0, SUMMED);
        drop(dw, 2);
    }
    drop(in, 4), drop(out, 2), drop(&dx, 1);
    end_variant();
}
END_TEST

START_TEST(projections_are_those_in_f32_rounded)
{
    const uint64_t *z = shapes[_i % SHAPES];
    if (!use_variant(_i / SHAPES))
        return;
    struct twin none = {.n = 0}, x = make(KC_BF16, 1, z[0], z[1]), w = make(KC_BF16, 1, z[2], z[1]);
    struct twin residual = make(KC_BF16, 1, z[0], z[2]), y = make(KC_BF16, 1, z[0], z[2]);
    struct twin dx = make(KC_BF16, 1, z[0], z[1]);
    both(KC_OP_PROJECT_F, (struct twin[]){x, w, none}, 3, &y, 1, 0);
    near("project", &y, ROUNDED, SUMMED);
    both(KC_OP_PROJECT_F, (struct twin[]){x, w, residual}, 3, &y, 1, 0);
    near("project on a residual", &y, ROUNDED, SUMMED);
    both(KC_OP_PROJECT_I, (struct twin[]){residual, w, dx}, 3, &dx, 1, 0); /* in place on what came another way */
    near("project.i", &dx, ROUNDED, SUMMED);
    for (int add = 0; add <= 1; add++) {
        struct twin dw = make(KC_F32, 1, z[2], z[1]);
        both(KC_OP_PROJECT_W, (struct twin[]){residual, x}, 2, &dw, 1, add);
        near("project.w", &dw, 0, SUMMED);
        drop(&dw, 1);
    }
    struct twin wide = make(KC_F32, 1, z[0], z[2]), dw = make(KC_F32, 1, z[2], z[1]); /* f32 beside bf16: slopes of a loss */
    both(KC_OP_PROJECT_I, (struct twin[]){wide, w, none}, 3, &dx, 1, 0);
    near("project.i of f32", &dx, ROUNDED, SUMMED);
    both(KC_OP_PROJECT_W, (struct twin[]){wide, x}, 2, &dw, 1, 0);
    near("project.w of f32", &dw, 0, SUMMED);
    drop(&wide, 1), drop(&dw, 1);
    drop(&x, 1), drop(&w, 1), drop(&residual, 1), drop(&y, 1), drop(&dx, 1);
    end_variant();
}
END_TEST

/* Five experts, of whom the second gets nobody; in every way of products in bf16 through panels. */
START_TEST(products_by_expert_are_those_in_f32_rounded)
{
    const uint64_t *z = shapes[_i % SHAPES];
    if (!use_variant(_i / SHAPES))
        return;
    const int32_t rest = (int32_t)(z[0] - z[0] / 4 * 3), part = (int32_t)(z[0] / 4);
    int32_t of[] = {part, 0, part, rest, part};
    const struct kc_view counts_view = {.data = of, .type = KC_I32, .rank = 1, .size = {5}};
    const struct twin counts = {.exact = counts_view, .stored = counts_view};
    struct twin none = {.n = 0}, x = make(KC_BF16, 1, z[0], z[1]), w = make(KC_BF16, 1, 5 * z[2], z[1]);
    struct twin rows = make(KC_BF16, 1, z[0], z[1]), dy = make(KC_BF16, 1, z[0], z[2]), y = make(KC_BF16, 1, z[0], z[2]), dx = make(KC_BF16, 1, z[0], z[1]);
    both(KC_OP_EXPERTS_F, (struct twin[]){x, w, counts}, 3, &y, 1, 0);
    near("experts", &y, ROUNDED, SUMMED);
    both(KC_OP_EXPERTS_I, (struct twin[]){dy, w, counts, none}, 4, &dx, 1, 0);
    near("experts.i", &dx, ROUNDED, SUMMED);
    both(KC_OP_EXPERTS_I, (struct twin[]){dy, w, counts, x}, 4, &x, 1, 0); /* in place on what came another way */
    near("experts.i on top", &x, ROUNDED, SUMMED);
    for (int add = 0; add <= 1; add++) {
        struct twin dw = make(KC_F32, 1, 5 * z[2], z[1]);
        both(KC_OP_EXPERTS_W, (struct twin[]){dy, rows, counts}, 3, &dw, 1, add);
        near("experts.w", &dw, 0, SUMMED);
        drop(&dw, 1);
    }
    drop(&x, 1), drop(&w, 1), drop(&rows, 1), drop(&dy, 1), drop(&y, 1), drop(&dx, 1);
    end_variant();
}
END_TEST

/* (rows, hidden, vocab): the last is of two blocks of tokens */
static const uint64_t heads[][3] = {{75, 8, 3}, {40, 33, 257}, {259, 5, 4100}};

START_TEST(head_and_loss_are_those_in_f32_rounded)
{
    const uint64_t *z = heads[_i % 3];
    if (!use_variant(_i / 3))
        return;
    struct twin in[] = {make(KC_BF16, 2, z[0], z[1]), make(KC_BF16, 1, z[2], z[1]), make(KC_F32, 1, 1, z[0])};
    struct twin out[] = {make(KC_F32, 1, z[2], z[1]), make(KC_BF16, 1, z[0], z[1]), make(KC_F32, 1, 1, 4)};
    struct twin logits = make(KC_BF16, 1, z[0], z[2]);
    in[1].exact.rank = in[1].stored.rank = 2, in[1].exact.size[0] = in[1].stored.size[0] = z[2];
    in[1].exact.size[1] = in[1].stored.size[1] = z[1];
    both(KC_OP_HEAD_F, in, 2, &logits, 1, 0);
    near("head", &logits, ROUNDED, SUMMED);
    int32_t *targets = in[2].exact.data;
    for (uint64_t r = 0; r < z[0]; r++)
        targets[r] = r % 4 == 2 ? -1 : (int32_t)(r * 7 % z[2]);
    memcpy(in[2].stored.data, targets, z[0] * sizeof *targets);
    in[2].exact.type = in[2].stored.type = KC_I32;
    out[2].exact.type = out[2].stored.type = KC_F64;
    out[2].exact.size[2] = out[2].stored.size[2] = 2;
    both(KC_OP_HEAD_LOSS_G, in, 3, out, 3, 0);
    const double *want = out[2].exact.data, *got = out[2].stored.data; /* logits are summed in f32 either way */
    ck_assert_double_eq_tol(got[0], want[0], 1e-5 * want[0]);
    ck_assert_double_eq(got[1], want[1]);
    near("head-loss dwte", &out[0], 0, ROUNDED); /* native: gradients of logits are rounded */
    near("head-loss dx", &out[1], ROUNDED, ROUNDED);
    drop(in, 3), drop(out, 3), drop(&logits, 1);
    end_variant();
}
END_TEST

START_TEST(the_way_of_bf16_is_part_of_the_variant)
{
    struct kc_job_spec spec = test_spec(1, 8, 2, 8, 16, 1);
    struct kc_jobs_config config = {.spec = &spec, .variant = "portable+blocked+widened"};
    struct kc_op_table *t = NULL;
    struct kc_error e = {{0}};
    ck_assert_int_eq(kc_jobs_cpu_table(&config, &t, &e), -ENOTSUP); /* of no meaning in fp32 */
    spec.precision = KC_PRECISION_BF16;
    ck_assert_int_eq(kc_jobs_cpu_table(&config, &t, &e), 0);
    ck_assert_str_eq(t->variant, "portable+blocked+widened");
    kc_jobs_cpu_table_free(t);
    config.variant = "portable"; /* our own product has no native bf16 */
    ck_assert_int_eq(kc_jobs_cpu_table(&config, &t, &e), 0);
    ck_assert_str_eq(t->variant, "portable+blocked+widened");
    kc_jobs_cpu_table_free(t);
    static const char *const never[] = {"portable+blocked+native", "auto+blocked+fast", "portable+blocked+"};
    for (int i = 0; i < 3; i++) {
        config.variant = never[i];
        ck_assert_int_eq(kc_jobs_cpu_table(&config, &t, &e), -ENOTSUP);
        ck_assert_ptr_nonnull(strstr(e.text, "portable+blocked+widened"));
    }
    config.variant = "auto+onednn+native"; /* offered where it is to be had */
    const int native = kc_jobs_cpu_table(&config, &t, NULL) == 0;
    if (native)
        kc_jobs_cpu_table_free(t);
    ck_assert_int_eq(strstr(e.text, "+widened (or +native) and") != NULL, native);
    config.variant = "auto"; /* and what it became can be asked for again */
    struct kc_op_table *again = NULL;
    ck_assert_int_eq(kc_jobs_cpu_table(&config, &t, &e), 0);
    config.variant = t->variant;
    ck_assert_int_eq(kc_jobs_cpu_table(&config, &again, &e), 0);
    ck_assert_str_eq(again->variant, t->variant);
    kc_jobs_cpu_table_free(again);
    kc_jobs_cpu_table_free(t);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("products in bf16");
    TCase *t = tcase_create("products");
    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, linear_maps_are_those_in_f32_rounded, 0, VARIANTS * SHAPES);
    tcase_add_loop_test(t, projections_are_those_in_f32_rounded, 0, VARIANTS * SHAPES);
    tcase_add_loop_test(t, products_by_expert_are_those_in_f32_rounded, 0, VARIANTS * SHAPES);
    tcase_add_loop_test(t, head_and_loss_are_those_in_f32_rounded, 0, VARIANTS * 3);
    tcase_add_test(t, the_way_of_bf16_is_part_of_the_variant);
    suite_add_tcase(s, t);
    return suite_run(s);
}
