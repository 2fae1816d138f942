/* test_kernels_attention.c - attention of q, k and v in one tensor against formulas in f64. */
#include "jobs/jobs.h"
#include "tests/unit/kernel_rig.h"
#include "tests/unit/suite.h"

#include <check.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static void naive_attention(const struct shape *s, double *const *in, double *const *out)
{
    const uint64_t h = s->h, d = h / s->heads;
    double *p = malloc(s->t * sizeof *p);
    for (uint64_t b = 0; b < s->b; b++)
        for (uint64_t a = 0; a < s->heads; a++)
            for (uint64_t i = 0; i < s->t; i++) {
                const double *q = in[0] + (b * s->t + i) * 3 * h + a * d;
                double sum = 0, *y = out[0] + (b * s->t + i) * h + a * d;
                for (uint64_t j = 0; j <= i; j++) {
                    const double *k = in[0] + (b * s->t + j) * 3 * h + h + a * d;
                    double score = 0;
                    for (uint64_t c = 0; c < d; c++)
                        score += q[c] * k[c];
                    sum += p[j] = exp(score / sqrt((double)d));
                }
                for (uint64_t c = 0; c < d; c++) {
                    y[c] = 0;
                    for (uint64_t j = 0; j <= i; j++)
                        y[c] += p[j] / sum * in[0][(b * s->t + j) * 3 * h + 2 * h + a * d + c];
                }
                if (out[1])
                    out[1][(b * s->heads + a) * s->t + i] = log(sum);
            }
    free(p);
}

/* Derivative of Σ dy·y by queries, keys and values: with P the softmax, dV = PᵀdY, dP = dY·Vᵀ, dS = P∘(dP − Σ P∘dP),
 * dQ = dS·K/√d, dK = dSᵀ·Q/√d. */
static void naive_attention_input(const struct shape *s, const double *qkv, const double *dy, double *dqkv)
{
    const uint64_t h = s->h, d = h / s->heads, t = s->t;
    const double root = sqrt((double)d);
    double *p = malloc(2 * t * sizeof *p), *dp = p + t;
    memset(dqkv, 0, s->b * t * 3 * h * sizeof *dqkv);
    for (uint64_t n = 0; n < s->b * s->heads * t; n++) { /* of a batch's head, query i */
        const uint64_t i = n % t, at = n / t / s->heads * t * 3 * h + n / t % s->heads * d;
        const double *q = qkv + at + i * 3 * h, *g = dy + (n / t / s->heads * t + i) * h + n / t % s->heads * d;
        double sum = 0, mean = 0;
        for (uint64_t j = 0; j <= i; j++) {
            const double *k = qkv + at + j * 3 * h + h, *v = k + h;
            double score = dp[j] = 0;
            for (uint64_t c = 0; c < d; c++) {
                score += q[c] * k[c];
                dp[j] += g[c] * v[c];
            }
            sum += p[j] = exp(score / root);
        }
        for (uint64_t j = 0; j <= i; j++)
            mean += (p[j] /= sum) * dp[j];
        for (uint64_t j = 0; j <= i; j++) {
            const double ds = p[j] * (dp[j] - mean) / root, *k = qkv + at + j * 3 * h + h;
            double *dq = dqkv + at + i * 3 * h, *dk = dqkv + at + j * 3 * h + h, *dv = dk + h;
            for (uint64_t c = 0; c < d; c++) {
                dq[c] += ds * k[c];
                dk[c] += ds * q[c];
                dv[c] += p[j] * g[c];
            }
        }
    }
    free(p);
}

/* batch, context, hidden, heads: below, at and across the blocks of 64 queries and 128 keys; heads not a multiple of
 * a vector, of several vectors, and so wide that blocks are shorter */
static const uint64_t attention_shapes[][4] = {{1, 1, 4, 1},    {2, 7, 6, 2},     {1, 64, 8, 1},    {1, 70, 10, 2},
                                               {1, 200, 3, 1},  {1, 150, 64, 2},  {1, 97, 128, 2},  {1, 80, 100, 1},
                                               {1, 161, 128, 1}, {1, 70, 256, 1}};
enum { ATTENTION_SHAPES = sizeof attention_shapes / sizeof *attention_shapes };

START_TEST(attention_is_right)
{
    const uint64_t *z = attention_shapes[_i % ATTENTION_SHAPES], b = z[0], t = z[1], h = z[2], heads = z[3];
    if (!use_variant(_i / ATTENTION_SHAPES))
        return;
    struct shape s = {.b = b, .t = t, .h = h, .heads = heads};
    struct tensor qkv = MAKE(KC_F32, 3, b, t, 3, heads, h / heads), none = {.view = {0}};
    struct tensor out[] = {MAKE(KC_F32, 1, b, t, heads, h / heads), MAKE(KC_F32, 1, b, heads, t)};
    struct tensor dy = MAKE(KC_F32, 1, b, t, h), dqkv = MAKE(KC_F32, 1, b, t, 3 * h);
    naive_attention(&s, (double *const[]){qkv.exact}, (double *const[]){out[0].exact, out[1].exact});
    ck_assert_int_eq(run(KC_OP_ATTENTION_F, (struct tensor[]){qkv, none, none}, 3, out, 2, 0, NULL, NULL), 0);
    same("attention", floats(&out[0]), out[0].exact, out[0].n, 3e-6);
    same("attention lse", floats(&out[1]), out[1].exact, out[1].n, 2e-6);
    ck_assert_int_eq(run(KC_OP_ATTENTION_I, (struct tensor[]){dy, qkv, out[0], out[1], none, none}, 6, &dqkv, 1, 0, NULL,
                         NULL), 0);
    naive_attention_input(&s, qkv.exact, dy.exact, dqkv.exact);
    same("attention dqkv", floats(&dqkv), dqkv.exact, dqkv.n, 2e-5);
    derivative_is_slope("attention dqkv", &dqkv, naive_attention, &s, (double *const[]){qkv.exact}, 0, &dy, NULL,
                        1 + qkv.n / 7); /* the formula, too, is right */
    drop(&qkv, 1), drop(out, 2), drop(&dy, 1), drop(&dqkv, 1);
    end_variant();
}
END_TEST

START_TEST(attention_takes_large_scores)
{
    if (!use_variant(_i))
        return;
    /* scores near ±300: e^score alone would be infinite; the sum must go through the largest */
    struct shape s = {.b = 1, .t = 150, .h = 8, .heads = 1};
    struct tensor none = {.view = {0}}, qkv = MAKE(KC_F32, 20, 1, 150, 3, 1, 8),
                  out[] = {MAKE(KC_F32, 1, 1, 150, 1, 8), MAKE(KC_F32, 1, 1, 1, 150)};
    naive_attention(&s, (double *const[]){qkv.exact}, (double *const[]){out[0].exact, out[1].exact});
    ck_assert_int_eq(run(KC_OP_ATTENTION_F, (struct tensor[]){qkv, none, none}, 3, out, 2, 0, NULL, NULL), 0);
    same("attention", floats(&out[0]), out[0].exact, out[0].n,
         1e-3); /* score of 300 ± 1e-5: e^x ± 3e-5 and its mix */
    same("lse", floats(&out[1]), out[1].exact, out[1].n, 1e-6);
    drop(&qkv, 1), drop(out, 2);
    end_variant();
}
END_TEST

int main(void)
{
    Suite *s = suite_create("kernels of attention");
    TCase *t = tcase_create("ops");
    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, attention_is_right, 0, VARIANTS * ATTENTION_SHAPES);
    tcase_add_loop_test(t, attention_takes_large_scores, 0, VARIANTS);
    suite_add_tcase(s, t);
    return suite_run(s);
}
