/* test_kernels_head.c - the head and its loss against formulas in f64, at once and the loops alone. */
#include "jobs/jobs.h"
#include "jobs/kernels/cpu/kernels.h"
#include "tests/unit/kernel_rig.h"
#include "tests/unit/suite.h"

#include <check.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

START_TEST(exponential_is_within_two_units)
{
    const struct kernels *sets[] = {&kernels_portable, kernels_avx2(), kernels_avx512()};
    const float zero = 0; /* log-sum-exp 0: the derivative of the loss is e^logit, less 1 at the target */
    const int32_t last = 16;
    for (int v = 0; v < 3; v++) {
        const struct kernels *k = sets[v];
        if (!k)
            continue;
        for (double from = -86.5; from < 88.2; from += 0.0317) {
            float x[17], p[17];
            for (int i = 0; i < 17; i++)
                x[i] = p[i] = (float)(from + i * 0.0037);
            k->cross_entropy_input(p, &last, &zero, p, 1, 17);
            for (int i = 0; i < 16; i++) {
                double want = exp((double)x[i]);
                if (!(fabs(p[i] - want) <= 2 * (double)(nextafterf((float)want, INFINITY) - (float)want)))
                    ck_abort_msg("%s: e^%.9g is %.9g, got %.9g", k->name, (double)x[i], want, (double)p[i]);
            }
        }
        float edge[17] = {-INFINITY, -1e30f, -104.f, -88.f, NAN, 0, 1, -0.f};
        k->cross_entropy_input(edge, &last, &zero, edge, 1, 17);
        for (int i = 0; i < 4; i++)
            ck_assert_float_eq(edge[i], 0);
        ck_assert(isnan(edge[4]));
        ck_assert_float_eq(edge[5], 1);
        ck_assert_float_eq(edge[7], 1);
    }
}
END_TEST

/* (rows, in, out): ones, odd sizes, more than a tile of the grid in each direction */
static const uint64_t linear_shapes[][3] = {{1, 1, 1},    {3, 5, 7},    {70, 33, 17},
                                            {300, 9, 40}, {5, 300, 30}, {20, 8, 600}};

START_TEST(head_is_right)
{
    const uint64_t *z = linear_shapes[_i % 6];
    if (!use_variant(_i / 6))
        return;
    struct shape s = {.b = 1, .t = z[0], .h = z[1], .n = z[2]};
    struct tensor in[] = {MAKE(KC_F32, 1, 1, z[0], z[1]), MAKE(KC_F32, 1, z[2], z[1])};
    struct tensor y = MAKE(KC_F32, 1, 1, z[0], z[2]);
    naive_product(&s, (double *const[]){in[0].exact, in[1].exact}, (double *const[]){y.exact});
    ck_assert_int_eq(run(KC_OP_HEAD_F, in, 2, &y, 1, 0, NULL, NULL), 0);
    same("head", floats(&y), y.exact, y.n, 2e-6);
    drop(in, 2), drop(&y, 1);
    end_variant();
}
END_TEST

/* Loss and gradients of the head in f64: logits, softmax minus the target, and both products. */
static void naive_head_loss(const struct shape *s, const struct tensor *in, double *loss, struct tensor *dwte,
                            struct tensor *dx)
{
    const uint64_t rows = s->b * s->t, h = s->h, v = s->n;
    const int32_t *targets = in[2].view.data;
    double *z = malloc(rows * v * sizeof *z);
    naive_product(s, (double *const[]){in[0].exact, in[1].exact}, (double *const[]){z});
    memset(dx->exact, 0, dx->n * sizeof(double));
    for (uint64_t r = 0; r < rows; r++) {
        double sum = 0;
        for (uint64_t j = 0; j < v; j++)
            sum += exp(z[r * v + j]);
        if (targets[r] < 0)
            continue;
        *loss += log(sum) - z[r * v + (uint64_t)targets[r]];
        for (uint64_t j = 0; j < v; j++) {
            const double d = exp(z[r * v + j]) / sum - (j == (uint64_t)targets[r]);
            for (uint64_t k = 0; k < h; k++) {
                dx->exact[r * h + k] += d * in[1].exact[j * h + k];
                dwte->exact[j * h + k] += d * in[0].exact[r * h + k];
            }
        }
    }
    free(z);
}

/* (rows, hidden, vocab): the last is of two blocks and a masked last row, since KC_HEAD_ROWS(4100) is 3 · 64 */
static const uint64_t head_shapes[][3] = {{75, 8, 3}, {75, 16, 61}, {40, 33, 256}, {259, 5, 4100}};

START_TEST(head_loss_is_right)
{
    const uint64_t *z = head_shapes[_i % 4];
    if (!use_variant(_i / 4))
        return;
    struct shape s = {.b = 1, .t = z[0], .h = z[1], .n = z[2]};
    struct tensor in[] = {MAKE(KC_F32, 3, 1, z[0], z[1]), MAKE(KC_F32, 1, z[2], z[1]), MAKE(KC_I32, 0, 1, z[0])};
    struct tensor out[] = {MAKE(KC_F32, 1, z[2], z[1]), MAKE(KC_F32, 1, 1, z[0], z[1]), MAKE(KC_F64, 0, 2)};
    int32_t *targets = in[2].view.data;
    double *result = out[2].view.data, loss = 0, count = 0;
    for (uint64_t r = 0; r < z[0]; r++) {
        targets[r] = r % 4 == 2 ? -1 : (int32_t)(r * 7 % z[2]);
        count += targets[r] >= 0;
    }
    result[0] = 5, result[1] = 7;
    double *sum = calloc(out[0].n, sizeof *sum);
    memcpy(sum, out[0].exact, out[0].n * sizeof *sum);
    memset(out[0].exact, 0, out[0].n * sizeof *sum);
    naive_head_loss(&s, in, &loss, &out[0], &out[1]);
    for (uint64_t i = 0; i < out[0].n; i++)
        sum[i] += out[0].exact[i];
    for (int add = 1; add >= 0; add--) { /* the result and dwte are added to, or overwritten */
        ck_assert_int_eq(run(KC_OP_HEAD_LOSS_G, in, 3, out, 3, add, NULL, NULL), 0);
        ck_assert_double_eq_tol(result[0], 5 * add + loss, 1e-6 * loss);
        ck_assert_double_eq(result[1], 7 * add + count);
        same("head-loss dwte", floats(&out[0]), add ? sum : out[0].exact, out[0].n, 5e-6);
        same("head-loss dx", floats(&out[1]), out[1].exact, out[1].n, 5e-6);
    }
    free(sum);
    ck_assert_int_eq(run(KC_OP_HEAD_LOSS_F, in, 3, &out[2], 1, 1, NULL, NULL), 0);
    ck_assert_double_eq_tol(result[0], 2 * loss, 2e-6 * loss);
    ck_assert_double_eq(result[1], 2 * count);
    drop(in, 3), drop(out, 3);
    end_variant();
}
END_TEST

static const struct kernels *loops(int i)
{
    return (const struct kernels *[]){kernels_avx512(), kernels_avx2(), &kernels_portable}[i];
}

/* The loops alone, with logits so large that exponentials would not be finite. */
START_TEST(cross_entropy_is_right)
{
    const uint64_t rows = 75, v = (const uint64_t[]){3, 61, 256}[_i % 3];
    const struct kernels *k = loops(_i / 3);
    if (!k)
        return;
    struct tensor logits = MAKE(KC_F32, 120, rows, v), lse = MAKE(KC_F32, 0, rows);
    int32_t targets[75];
    double result[2] = {5, 7}, loss = 0, count = 0;
    double *gradient = calloc(rows * v, sizeof *gradient);
    for (uint64_t r = 0; r < rows; r++) {
        const double *z = logits.exact + r * v;
        targets[r] = r % 4 == 3 ? -1 : (int32_t)(r % v);
        double sum = 0;
        for (uint64_t j = 0; j < v; j++)
            sum += exp(z[j]);
        lse.exact[r] = log(sum);
        for (uint64_t j = 0; j < v; j++)
            gradient[r * v + j] = targets[r] < 0 ? 0 : exp(z[j]) / sum - (j == (uint64_t)targets[r]);
        if (targets[r] >= 0)
            loss += log(sum) - z[targets[r]], count++;
    }
    k->cross_entropy(floats(&logits), targets, floats(&lse), result, rows, v);
    ck_assert_double_eq_tol(result[0], 5 + loss, 1e-6 * loss);
    ck_assert_double_eq(result[1], 7 + count);
    same("lse", floats(&lse), lse.exact, rows, 1e-6);
    k->cross_entropy_input(floats(&logits), targets, floats(&lse), floats(&logits), rows, v); /* in place */
    same("gradient", floats(&logits), gradient, rows * v, 2e-5);
    free(gradient);
    drop(&logits, 1), drop(&lse, 1);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("kernels of the head");
    TCase *t = tcase_create("ops");
    tcase_set_timeout(t, 120);
    tcase_add_test(t, exponential_is_within_two_units);
    tcase_add_loop_test(t, head_is_right, 0, VARIANTS * 6);
    tcase_add_loop_test(t, head_loss_is_right, 0, VARIANTS * 4);
    tcase_add_loop_test(t, cross_entropy_is_right, 0, 3 * 3);
    suite_add_tcase(s, t);
    return suite_run(s);
}
