/* test_kernels.c - ops of the CPU table against formulas in f64: forward naively, backward by central differences of the
 * naive forward, for each kernel variant there is. What the families of ops beside these are in: attention and head in
 * _attention and _head, Llama, experts, rounds, parts and the rest likewise. */
#include "base/bf16.h"
#include "jobs/jobs.h"
#include "jobs/kernels/cpu/kernels.h"
#include "tests/unit/kernel_rig.h"
#include "tests/unit/suite.h"

#include <check.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static void naive_linear(const struct shape *s, double *const *in, double *const *out)
{
    for (uint64_t r = 0; r < s->b * s->t; r++)
        for (uint64_t j = 0; j < s->n; j++) {
            double sum = in[2][j];
            for (uint64_t k = 0; k < s->h; k++)
                sum += in[0][r * s->h + k] * in[1][k * s->n + j];
            out[0][r * s->n + j] = sum;
        }
}

/* dw = xᵀ·dy and db = Σ dy, or added to what they are. */
static void naive_linear_weight(const struct shape *s, const double *x, const double *dy, struct tensor *dw, int add)
{
    for (int k = 0; k < 2 && !add; k++)
        memset(dw[k].exact, 0, dw[k].n * sizeof(double));
    for (uint64_t r = 0; r < s->b * s->t; r++)
        for (uint64_t j = 0; j < s->n; j++) {
            dw[1].exact[j] += dy[r * s->n + j];
            for (uint64_t k = 0; k < s->h; k++)
                dw[0].exact[k * s->n + j] += x[r * s->h + k] * dy[r * s->n + j];
        }
}

static void naive_layernorm(const struct shape *s, double *const *in, double *const *out)
{
    for (uint64_t r = 0; r < s->b * s->t; r++) {
        const double *x = in[0] + r * s->h;
        double mean = 0, variance = 0;
        for (uint64_t k = 0; k < s->h; k++)
            mean += x[k] / (double)s->h;
        for (uint64_t k = 0; k < s->h; k++)
            variance += (x[k] - mean) * (x[k] - mean) / (double)s->h;
        for (uint64_t k = 0; k < s->h; k++)
            out[0][r * s->h + k] = (x[k] - mean) / sqrt(variance + 1e-5) * in[1][k] + in[2][k];
    }
}

static void naive_gelu(const struct shape *s, double *const *in, double *const *out)
{
    for (uint64_t i = 0; i < s->n; i++) {
        double x = in[0][i];
        out[0][i] = 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    }
}

/* ---- tests ---- */
/* (rows, in, out): ones, odd sizes, more than a tile of the grid in each direction */
static const uint64_t linear_shapes[][3] = {{1, 1, 1},    {3, 5, 7},    {70, 33, 17},
                                            {300, 9, 40}, {5, 300, 30}, {20, 8, 600}};

START_TEST(linear_maps_are_right)
{
    const uint64_t *z = linear_shapes[_i % 6];
    if (!use_variant(_i / 6))
        return;
    struct shape s = {.b = 1, .t = z[0], .h = z[1], .n = z[2]};
    struct tensor in[] = {MAKE(KC_F32, 1, 1, z[0], z[1]), MAKE(KC_F32, 1, z[1], z[2]), MAKE(KC_F32, 1, z[2])};
    struct tensor y = MAKE(KC_F32, 1, 1, z[0], z[2]), dy = MAKE(KC_F32, 1, 1, z[0], z[2]);
    double *const exact[] = {in[0].exact, in[1].exact, in[2].exact};
    naive_linear(&s, exact, (double *const[]){y.exact});
    ck_assert_int_eq(run(KC_OP_LINEAR_F, in, 3, &y, 1, 0, NULL, NULL), 0);
    same("linear", floats(&y), y.exact, y.n, 2e-6);

    struct tensor none = {.view = {0}}, bare = MAKE(KC_F32, 1, 1, z[0], z[2]);
    memset(in[2].exact, 0, in[2].n * sizeof(double));
    naive_linear(&s, exact, (double *const[]){bare.exact});
    ck_assert_int_eq(run(KC_OP_LINEAR_F, (struct tensor[]){in[0], in[1], none}, 3, &bare, 1, 0, NULL, NULL), 0);
    same("linear without bias", floats(&bare), bare.exact, bare.n, 2e-6);
    drop(&bare, 1);

    /* all elements against the formulas, and some, of which each costs two forward passes, against the slope */
    const uint64_t every = 1 + in[0].n * y.n / 2000;
    struct tensor dx = MAKE(KC_F32, 1, 1, z[0], z[1]);
    ck_assert_int_eq(run(KC_OP_LINEAR_I, (struct tensor[]){dy, in[1], none}, 3, &dx, 1, 0, NULL, NULL), 0);
    naive_product(&(struct shape){.b = 1, .t = z[0], .h = z[2], .n = z[1]}, (double *const[]){dy.exact, in[1].exact},
               (double *const[]){dx.exact}); /* dy·wᵀ */
    same("linear dx", floats(&dx), dx.exact, dx.n, 5e-6);
    derivative_is_slope("linear dx", &dx, naive_linear, &s, exact, 0, &dy, NULL, every);
    for (int add = 0; add <= 1; add++) { /* W overwrites, and W accumulates */
        struct tensor dw[] = {MAKE(KC_F32, 1, z[1], z[2]), MAKE(KC_F32, 1, z[2])};
        ck_assert_int_eq(run(KC_OP_LINEAR_W, (struct tensor[]){dy, in[0]}, 2, dw, 2, add, NULL, NULL), 0);
        derivative_is_slope("linear dw", &dw[0], naive_linear, &s, exact, 1, &dy, add ? dw[0].exact : NULL, every);
        derivative_is_slope("linear db", &dw[1], naive_linear, &s, exact, 2, &dy, add ? dw[1].exact : NULL, every);
        naive_linear_weight(&s, in[0].exact, dy.exact, dw, add);
        same("linear dw", floats(&dw[0]), dw[0].exact, dw[0].n, 5e-6);
        same("linear db", floats(&dw[1]), dw[1].exact, dw[1].n, 5e-6);
        drop(dw, 2);
    }
    drop(in, 3), drop(&y, 1), drop(&dy, 1), drop(&dx, 1);
    end_variant();
}
END_TEST

/* Products so large that they are cut, along either side: each column's sum is made by one tile, whichever has it. */
START_TEST(bias_gradients_are_sums_over_rows)
{
    const uint64_t rows = 1100, k = _i % 2 ? 100 : 400, n = _i % 2 ? 400 : 100;
    if (!use_variant(_i / 2))
        return;
    struct tensor in[] = {MAKE(KC_F32, 1, 1, rows, n), MAKE(KC_F32, 1, 1, rows, k)};
    struct tensor out[] = {MAKE(KC_F32, 1, k, n), MAKE(KC_F32, 1, n)};
    for (int add = 0; add <= 1; add++) {
        for (uint64_t j = 0; j < n; j++) {
            out[1].exact[j] = add ? (double)floats(&out[1])[j] : 0;
            for (uint64_t r = 0; r < rows; r++)
                out[1].exact[j] += in[0].exact[r * n + j];
        }
        ck_assert_int_eq(run(KC_OP_LINEAR_W, in, 2, out, 2, add, NULL, NULL), 0);
        same("linear db", floats(&out[1]), out[1].exact, n, 1e-6);
    }
    drop(in, 2), drop(out, 2);
    end_variant();
}
END_TEST

/* Multiples, in f32 and in bf16, in place too; three eighths of small whole numbers are exact in both. */
START_TEST(scaling_multiplies)
{
    if (!use_variant(_i / 3))
        return;
    const uint64_t n = (const uint64_t[]){1, 37, 70001}[_i % 3];
    const double by = 0.375;
    for (int half = 0; half <= 1; half++) {
        struct tensor x = MAKE(half ? KC_BF16 : KC_F32, 1, 1, n, 1), y = MAKE(half ? KC_BF16 : KC_F32, 1, 1, n, 1);
        for (uint64_t i = 0; i < n; i++)
            if (half)
                ((uint16_t *)x.view.data)[i] = kc_bf16_from_float((float)(i % 64) - 32);
            else
                floats(&x)[i] = (float)(i % 64) - 32;
        ck_assert_int_eq(run(KC_OP_SCALE_F, &x, 1, &y, 1, 0, &by, NULL), 0);
        ck_assert_int_eq(run(KC_OP_SCALE_I, &x, 1, &x, 1, 0, &by, NULL), 0);
        for (uint64_t i = 0; i < n; i++) {
            const float want = ((float)(i % 64) - 32) * 0.375f;
            ck_assert_float_eq(half ? kc_bf16_to_float(((uint16_t *)y.view.data)[i]) : floats(&y)[i], want);
            ck_assert_float_eq(half ? kc_bf16_to_float(((uint16_t *)x.view.data)[i]) : floats(&x)[i], want);
        }
        drop(&x, 1), drop(&y, 1);
    }
    end_variant();
}
END_TEST

/* What is fused to a product gives what stood beside it: gelu behind, a residual, the slope of gelu behind. */
START_TEST(fused_linear_maps_are_right)
{
    const uint64_t *z = linear_shapes[_i % 6];
    if (!use_variant(_i / 6))
        return;
    const struct tensor none = {.view = {0}};
    struct shape s = {.b = 1, .t = z[0], .h = z[1], .n = z[2]}, wide = {.n = z[0] * z[2]}, narrow = {.n = z[0] * z[1]};
    struct tensor in[] = {MAKE(KC_F32, 1, 1, z[0], z[1]), MAKE(KC_F32, 1, z[1], z[2]), MAKE(KC_F32, 1, z[2]),
                          MAKE(KC_F32, 1, 1, z[0], z[2])};
    struct tensor out[] = {MAKE(KC_F32, 1, 1, z[0], z[2]), MAKE(KC_F32, 1, 1, z[0], z[2])};
    double *const exact[] = {in[0].exact, in[1].exact, in[2].exact};
    naive_linear(&s, exact, (double *const[]){out[0].exact});
    naive_gelu(&wide, (double *const[]){out[0].exact}, (double *const[]){out[1].exact});
    ck_assert_int_eq(run(KC_OP_LINEAR_GELU_F, (struct tensor[]){in[0], in[1], in[2], none}, 4, out, 2, 0, NULL, NULL), 0);
    same("linear-gelu f", floats(&out[0]), out[0].exact, out[0].n, 2e-6);
    same("linear-gelu act", floats(&out[1]), out[1].exact, out[1].n, 2e-6);
    for (uint64_t i = 0; i < out[0].n; i++)
        out[0].exact[i] += in[3].exact[i];
    naive_gelu(&wide, (double *const[]){out[0].exact}, (double *const[]){out[1].exact});
    for (int in_place = 0; in_place <= 1; in_place++) { /* on a residual, which the output may take the place of */
        struct tensor to[] = {in_place ? in[3] : out[0], out[1]};
        ck_assert_int_eq(run(KC_OP_LINEAR_GELU_F, in, 4, to, 2, 0, NULL, NULL), 0);
        same("linear-gelu f on a residual", floats(&to[0]), out[0].exact, out[0].n, 2e-6);
        same("linear-gelu act on a residual", floats(&to[1]), out[1].exact, out[1].n, 2e-6);
    }
    for (uint64_t i = 0; i < in[3].n; i++)
        floats(&in[3])[i] = (float)in[3].exact[i];
    ck_assert_int_eq(run(KC_OP_LINEAR_ADD_F, in, 4, out, 1, 0, NULL, NULL), 0);
    same("linear-add", floats(&out[0]), out[0].exact, out[0].n, 2e-6);

    /* x is what GELU was applied to: df = (dy·wT)·gelu′(x), the product from LINEAR_I */
    struct tensor dx = MAKE(KC_F32, 1, 1, z[0], z[1]), df = MAKE(KC_F32, 1, 1, z[0], z[1]);
    ck_assert_int_eq(run(KC_OP_LINEAR_I, (struct tensor[]){out[1], in[1], none}, 3, &dx, 1, 0, NULL, NULL), 0);
    ck_assert_int_eq(run(KC_OP_LINEAR_GELU_I, (struct tensor[]){out[1], in[1], in[0], none}, 4, &df, 1, 0, NULL, NULL), 0);
    double *ahead = malloc(dx.n * sizeof *ahead), *behind = malloc(dx.n * sizeof *behind), *x = in[0].exact;
    for (int side = -1; side <= 1; side += 2) {
        for (uint64_t i = 0; i < dx.n; i++)
            x[i] += side < 0 ? -1e-5 : 2e-5;
        naive_gelu(&narrow, (double *const[]){x}, (double *const[]){side < 0 ? behind : ahead});
    }
    for (uint64_t i = 0; i < dx.n; i++)
        df.exact[i] = (double)floats(&dx)[i] * (ahead[i] - behind[i]) / 2e-5;
    same("linear-gelu.i", floats(&df), df.exact, df.n, 2e-6);
    /* on top of what came another way, in place */
    struct tensor sum = MAKE(KC_F32, 1, 1, z[0], z[1]), same_sum = MAKE(KC_F32, 1, 1, z[0], z[1]);
    memcpy(floats(&same_sum), floats(&sum), sum.n * sizeof(float));
    for (uint64_t i = 0; i < dx.n; i++) {
        dx.exact[i] = (double)floats(&dx)[i] + sum.exact[i];
        df.exact[i] = dx.exact[i] * (ahead[i] - behind[i]) / 2e-5;
    }
    ck_assert_int_eq(run(KC_OP_LINEAR_I, (struct tensor[]){out[1], in[1], sum}, 3, &sum, 1, 0, NULL, NULL), 0);
    same("linear.i on a sum", floats(&sum), dx.exact, dx.n, 2e-6);
    struct tensor of[] = {out[1], in[1], in[0], same_sum};
    ck_assert_int_eq(run(KC_OP_LINEAR_GELU_I, of, 4, &same_sum, 1, 0, NULL, NULL), 0);
    same("linear-gelu.i on a sum", floats(&same_sum), df.exact, df.n, 2e-6);
    drop(&sum, 1), drop(&same_sum, 1);
    free(ahead), free(behind);
    drop(in, 4), drop(out, 2), drop(&dx, 1), drop(&df, 1);
    end_variant();
}
END_TEST

static const uint64_t norm_shapes[][2] = {{1, 1}, {3, 5}, {70, 32}, {5, 131}, {33, 40}};

START_TEST(layernorm_is_right)
{
    const uint64_t rows = norm_shapes[_i % 5][0], h = norm_shapes[_i % 5][1];
    if (!use_variant(_i / 5))
        return;
    struct shape s = {.b = 1, .t = rows, .h = h};
    struct tensor in[] = {MAKE(KC_F32, 2, 1, rows, h), MAKE(KC_F32, 1, h), MAKE(KC_F32, 1, h)};
    struct tensor out[] = {MAKE(KC_F32, 1, 1, rows, h), MAKE(KC_F32, 1, 1, rows), MAKE(KC_F32, 1, 1, rows)};
    struct tensor dy = MAKE(KC_F32, 1, 1, rows, h), residual = MAKE(KC_F32, 1, 1, rows, h), none = {.view = {0}};
    double *const exact[] = {in[0].exact, in[1].exact, in[2].exact};
    naive_layernorm(&s, exact, (double *const[]){out[0].exact});
    ck_assert_int_eq(run(KC_OP_LAYERNORM_F, in, 3, out, 3, 0, (const double[]){1e-5}, NULL), 0);
    same("layernorm", floats(&out[0]), out[0].exact, rows * h, 3e-6);
    for (int with = 0; with <= 1; with++) { /* without and with what comes past the norm */
        struct tensor dx = MAKE(KC_F32, 1, 1, rows, h);
        struct tensor of[] = {dy, in[0], in[1], out[1], out[2], with ? residual : none};
        ck_assert_int_eq(run(KC_OP_LAYERNORM_I, of, 6, &dx, 1, 0, NULL, NULL), 0);
        if (h > 1) /* of a single number the norm is constant: its slope is rounding */
            derivative_is_slope("layernorm dx", &dx, naive_layernorm, &s, exact, 0, &dy, with ? residual.exact : NULL,
                                3);
        drop(&dx, 1);
    }
    for (int add = 0; add <= 1; add++) {
        struct tensor dw[] = {MAKE(KC_F32, 1, h), MAKE(KC_F32, 1, h)};
        ck_assert_int_eq(
            run(KC_OP_LAYERNORM_W, (struct tensor[]){dy, in[0], out[1], out[2]}, 4, dw, 2, add, NULL, NULL), 0);
        if (h > 1)
            derivative_is_slope("layernorm dw", &dw[0], naive_layernorm, &s, exact, 1, &dy, add ? dw[0].exact : NULL,
                                1);
        derivative_is_slope("layernorm db", &dw[1], naive_layernorm, &s, exact, 2, &dy, add ? dw[1].exact : NULL, 1);
        drop(dw, 2);
    }
    drop(in, 3), drop(out, 3), drop(&dy, 1), drop(&residual, 1);
    end_variant();
}
END_TEST

static const struct kernels *loops(int i)
{
    return (const struct kernels *[]){kernels_avx512(), kernels_avx2(), &kernels_portable}[i];
}

START_TEST(gelu_is_right)
{
    const struct kernels *k = loops(_i);
    if (!k)
        return;
    const uint64_t n = 4001;
    struct shape s = {.n = n};
    struct tensor x = MAKE(KC_F32, 12, 1, n), y = MAKE(KC_F32, 1, 1, n), dy = MAKE(KC_F32, 1, 1, n),
                  dx = MAKE(KC_F32, 1, 1, n);
    floats(&x)[0] = 0, floats(&x)[1] = 100, floats(&x)[2] = -100;
    for (int i = 0; i < 3; i++)
        x.exact[i] = (double)floats(&x)[i];
    naive_gelu(&s, (double *const[]){x.exact}, (double *const[]){y.exact});
    k->gelu(floats(&x), floats(&y), n);
    for (uint64_t i = 0; i < n; i++) /* each value to its own size; where tanh saturates in f64, to 1e-9 of x */
        ck_assert_msg(fabs((double)floats(&y)[i] - y.exact[i]) <= 3e-6 * fabs(y.exact[i]) + 1e-13,
                      "gelu(%.9g): %.9g, not %.9g", x.exact[i], (double)floats(&y)[i], y.exact[i]);
    k->gelu_input(floats(&dy), floats(&x), floats(&dx), n);
    for (uint64_t i = 0; i < n; i++) {
        double v = x.exact[i], u = sqrt(2 / M_PI) * (v + 0.044715 * v * v * v), th = tanh(u);
        double want = 0.5 * (1 + th) + 0.5 * v * (1 - th * th) * sqrt(2 / M_PI) * (1 + 3 * 0.044715 * v * v);
        ck_assert_double_eq_tol((double)floats(&dx)[i], dy.exact[i] * want, 1e-6);
    }
    drop(&x, 1), drop(&y, 1), drop(&dy, 1), drop(&dx, 1);
}
END_TEST

START_TEST(add_is_right)
{
    const struct kernels *k = loops(_i);
    if (!k)
        return;
    struct tensor in[] = {MAKE(KC_F32, 1, 5, 7), MAKE(KC_F32, 1, 5, 7)};
    k->add(floats(&in[0]), floats(&in[1]), floats(&in[1]), in[1].n); /* in place of its second input */
    for (uint64_t i = 0; i < in[1].n; i++)
        ck_assert_float_eq(floats(&in[1])[i], (float)in[0].exact[i] + (float)in[1].exact[i]);
    drop(in, 2);
}
END_TEST

/* Positions in any order; with and without their table; of tokens, a table that has rows 3 … 8 of eleven alone. */
START_TEST(embedding_is_right)
{
    if (!use_variant(_i))
        return;
    const uint64_t b = 3, t = 5, h = 70, positions = 6;
    struct tensor in[] = {MAKE(KC_I32, 0, b, t), {.view = {0}}, MAKE(KC_F32, 1, positions, h), MAKE(KC_I32, 0, b, t)};
    struct tensor x = MAKE(KC_F32, 1, b, t, h), dx = MAKE(KC_F32, 1, b, t, h), wpe = in[2];
    int32_t *tokens = in[0].view.data, *at = in[3].view.data;
    for (uint64_t r = 0; r < b * t; r++) {
        tokens[r] = (int32_t)(r * r % 11); /* repeats, and some never */
        at[r] = (int32_t)(r * 5 % 7 % positions);
    }
    for (int part = 0; part <= 1; part++) {
        const uint64_t first = part ? 3 : 0, v = part ? 5 : 11;
        in[1] = MAKE(KC_F32, 1, v, h);
        in[1].view.first[0] = first;
        for (int with = 0; with <= 1; with++) {
            in[2] = with ? wpe : (struct tensor){.view = {0}};
            ck_assert_int_eq(run(KC_OP_EMBED_F, in, 4, &x, 1, 0, NULL, NULL), 0);
            for (uint64_t r = 0; r < b * t; r++)
                for (uint64_t k = 0; k < h; k++) {
                    const uint64_t row = (uint64_t)tokens[r] - first;
                    ck_assert_float_eq(floats(&x)[r * h + k], (row < v ? floats(&in[1])[row * h + k] : 0) +
                                                                  (with ? floats(&wpe)[(uint64_t)at[r] * h + k] : 0));
                }
        }
        for (int add = 0; add <= 1; add++) {
            struct tensor dw[] = {MAKE(KC_F32, 1, v, h), MAKE(KC_F32, 1, positions, h)};
            dw[0].view.first[0] = first;
            ck_assert_int_eq(run(KC_OP_EMBED_W, (struct tensor[]){in[0], dx}, 2, &dw[0], 1, add, NULL, NULL), 0);
            ck_assert_int_eq(run(KC_OP_POSITION_W, (struct tensor[]){dx, in[3]}, 2, &dw[1], 1, add, NULL, NULL), 0);
            for (int k = 0; k < 2 && !add; k++)
                memset(dw[k].exact, 0, dw[k].n * sizeof(double));
            for (uint64_t r = 0; r < b * t; r++)
                for (uint64_t k = 0; k < h; k++) {
                    const uint64_t row = (uint64_t)tokens[r] - first;
                    if (row < v)
                        dw[0].exact[row * h + k] += dx.exact[r * h + k];
                    dw[1].exact[(uint64_t)at[r] * h + k] += dx.exact[r * h + k];
                }
            same("dwte", floats(&dw[0]), dw[0].exact, dw[0].n, 1e-6);
            same("dwpe", floats(&dw[1]), dw[1].exact, dw[1].n, 1e-6);
            drop(dw, 2);
        }
        drop(&in[1], 1);
    }
    drop(in, 1), drop(&in[3], 1), drop(&wpe, 1), drop(&x, 1), drop(&dx, 1);
    end_variant();
}
END_TEST

START_TEST(adamw_is_torchs)
{
    if (!use_variant(_i / 2))
        return;
    const double decay = 0.1 * (_i % 2), attr[] = {0.9, 0.95, 1e-8, decay};
    const uint64_t n = 1003;
    struct tensor g = MAKE(KC_F32, 100, n), out[] = {MAKE(KC_F32, 1, n), MAKE(KC_F32, 0, n), MAKE(KC_F32, 0, n)};
    for (int t = 1; t <= 5; t++) {
        const double lr = 0.01 * t, scale = 1.0 / 64;
        step_values = (struct kc_step_values){.step = (uint64_t)t - 1, .lr = lr, .scale = scale,
                                              .beta1_power = pow(0.9, t), .beta2_power = pow(0.95, t)};
        ck_assert_int_eq(run(KC_OP_ADAMW, &g, 1, out, 3, 0, attr, NULL), 0);
        for (uint64_t i = 0; i < n; i++) { /* torch.optim.AdamW's documentation */
            double grad = g.exact[i] * scale, *p = out[0].exact + i, *m = out[1].exact + i, *v = out[2].exact + i;
            *p -= lr * decay * *p;
            *m = 0.9 * *m + 0.1 * grad;
            *v = 0.95 * *v + 0.05 * grad * grad;
            *p -= lr * (*m / (1 - pow(0.9, t))) / (sqrt(*v / (1 - pow(0.95, t))) + 1e-8);
        }
    }
    same("parameter", floats(&out[0]), out[0].exact, n, 2e-6);
    same("moment1", floats(&out[1]), out[1].exact, n, 2e-6);
    same("moment2", floats(&out[2]), out[2].exact, n, 2e-6);
    drop(&g, 1), drop(out, 3);
    end_variant();
}
END_TEST

/* ZeRO cuts runs anywhere: the same element gets the same bits wherever its run begins and ends. */
START_TEST(elementwise_bits_do_not_depend_on_the_cut)
{
    if (!use_variant(_i))
        return;
    const uint64_t n = 515;
    const double attr[] = {0.9, 0.95, 1e-8, 0.1};
    struct tensor g = MAKE(KC_F32, 1, n), whole[] = {MAKE(KC_F32, 1, n), MAKE(KC_F32, 1, n), MAKE(KC_F32, 1, n)},
                  parts[3];
    for (int k = 0; k < 3; k++) {
        for (uint64_t i = 0; i < n; i++)
            floats(&whole[k])[i] = fabsf(floats(&whole[k])[i]);
        parts[k] = MAKE(KC_F32, 1, n);
        memcpy(parts[k].view.data, whole[k].view.data, n * sizeof(float));
    }
    step_values = (struct kc_step_values){.lr = 0.1, .scale = 0.37, .beta1_power = 0.9, .beta2_power = 0.95};
    ck_assert_int_eq(run(KC_OP_ADAMW, &g, 1, whole, 3, 0, attr, NULL), 0);
    static const uint64_t cut[] = {0, 1, 4, 9, 200, 203, 515};
    for (int c = 0; c < 6; c++) {
        struct tensor piece[3], grad = g;
        const uint64_t first = cut[c], length = cut[c + 1] - cut[c];
        for (int k = 0; k < 3; k++) {
            piece[k] = parts[k];
            piece[k].view.data = floats(&parts[k]) + first;
            piece[k].view.size[0] = length;
        }
        grad.view.data = floats(&g) + first;
        grad.view.size[0] = length;
        ck_assert_int_eq(run(KC_OP_ADAMW, &grad, 1, piece, 3, 0, attr, NULL), 0);
    }
    for (int k = 0; k < 3; k++)
        ck_assert_mem_eq(whole[k].view.data, parts[k].view.data, n * sizeof(float));
    drop(&g, 1), drop(whole, 3), drop(parts, 3);
    end_variant();
}
END_TEST

START_TEST(norm_is_right_and_sees_what_is_not_finite) /* F47 */
{
    if (!use_variant(_i))
        return;
    const uint64_t n = 40003; /* three chunks */
    struct tensor x = MAKE(KC_F32, 1, n), out = MAKE(KC_F64, 0, 1);
    double *sum = out.view.data, want = 0;
    for (uint64_t i = 0; i < n; i++)
        want += x.exact[i] * x.exact[i];
    *sum = 1000;
    ck_assert_int_eq(run(KC_OP_NORM, &x, 1, &out, 1, 1, NULL, NULL), 0);
    ck_assert_double_eq_tol(*sum, 1000 + want, 1e-9 * want);
    ck_assert_int_eq(run(KC_OP_NORM, &x, 1, &out, 1, 0, NULL, NULL), 0);
    ck_assert_double_eq_tol(*sum, want, 1e-9 * want);
    floats(&x)[17] = 3e38f; /* its square is not a float */
    ck_assert_int_eq(run(KC_OP_NORM, &x, 1, &out, 1, 0, NULL, NULL), 0);
    ck_assert(isfinite(*sum) && *sum > 8e76);
    floats(&x)[n - 1] = NAN;
    ck_assert_int_eq(run(KC_OP_NORM, &x, 1, &out, 1, 0, NULL, NULL), 0);
    ck_assert(!isfinite(*sum));
    drop(&x, 1), drop(&out, 1);
    end_variant();
}
END_TEST

START_TEST(a_run_is_added_to_a_run_or_takes_its_place)
{
    if (!use_variant(_i))
        return;
    const uint64_t n = 40003;
    struct tensor x = MAKE(KC_F32, 1, n), sum = MAKE(KC_F32, 1, n);
    ck_assert_int_eq(run(KC_OP_ADD, &x, 1, &sum, 1, 1, NULL, NULL), 0);
    for (uint64_t i = 0; i < n; i++)
        ck_assert_float_eq(floats(&sum)[i], (float)sum.exact[i] + (float)x.exact[i]);
    ck_assert_int_eq(run(KC_OP_ADD, &x, 1, &sum, 1, 0, NULL, NULL), 0);
    ck_assert_mem_eq(floats(&sum), floats(&x), n * sizeof(float));
    drop(&x, 1), drop(&sum, 1);
    end_variant();
}
END_TEST

/* Not a number must come out at the end of every op that it goes into, else nobody would see it. */
START_TEST(not_a_number_is_kept) /* F47 */
{
    if (!use_variant(_i))
        return;
    struct tensor x = MAKE(KC_F32, 1, 1, 8, 12), y = MAKE(KC_F32, 1, 1, 8, 12), qkv = x, none = {.view = {0}}, lse = MAKE(KC_F32, 1, 1, 8);
    struct tensor w = MAKE(KC_F32, 1, 12), targets = MAKE(KC_I32, 0, 1, 8), result = MAKE(KC_F64, 0, 2);
    struct tensor mean = MAKE(KC_F32, 1, 1, 8), att = MAKE(KC_F32, 1, 1, 8, 1, 4), rows = MAKE(KC_F32, 1, 1, 1, 8);
    memset(targets.view.data, 0, 8 * sizeof(int32_t));
    floats(&x)[12 * 5 + 3] = NAN;
    qkv.view = (struct kc_view){.data = x.view.data, .type = KC_F32, .rank = 5, .size = {1, 8, 3, 1, 4}};
    struct tensor square = MAKE(KC_F32, 1, 12, 12), act = MAKE(KC_F32, 1, 1, 8, 12);
    ck_assert_int_eq(run(KC_OP_LINEAR_GELU_F, (struct tensor[]){x, square, w, none}, 4, (struct tensor[]){y, act}, 2, 0, NULL,
                         NULL), 0);
    ck_assert(isnan(floats(&y)[12 * 5]) && isnan(floats(&act)[12 * 5 + 3]) && !isnan(floats(&act)[12 * 4]));
    drop(&square, 1), drop(&act, 1);
    ck_assert_int_eq(run(KC_OP_LAYERNORM_F, (struct tensor[]){x, w, w}, 3, (struct tensor[]){y, mean, lse}, 3, 0,
                         (const double[]){1e-5}, NULL), 0);
    ck_assert(isnan(floats(&y)[12 * 5]));
    ck_assert_int_eq(run(KC_OP_ATTENTION_F, (struct tensor[]){qkv, none, none}, 3, (struct tensor[]){att, rows}, 2, 0, NULL, NULL),
                     0); /* in row 5's query */
    ck_assert(isnan(floats(&att)[4 * 5]) && !isnan(floats(&att)[4 * 4]));
    ck_assert_int_eq(run(KC_OP_HEAD_LOSS_F, (struct tensor[]){x, x, targets}, 3, &result, 1, 0, NULL, NULL), 0);
    ck_assert(isnan(((double *)result.view.data)[0]));
    drop(&x, 1), drop(&y, 1), drop(&lse, 1), drop(&w, 1), drop(&targets, 1), drop(&result, 1), drop(&mean, 1),
        drop(&att, 1);
    drop(&rows, 1);
    end_variant();
}
END_TEST

START_TEST(wrong_shapes_are_refused_by_name)
{
    ck_assert(use_variant(0));
    struct kc_error e = {{0}};
    struct tensor in[] = {MAKE(KC_F32, 1, 1, 2, 3), MAKE(KC_F32, 1, 3, 4), MAKE(KC_F32, 1, 5)},
                  y = MAKE(KC_F32, 1, 1, 2, 4);
    ck_assert_int_eq(run(KC_OP_LINEAR_F, in, 3, &y, 1, 0, NULL, &e), -EINVAL);
    ck_assert_str_eq(e.text, "op linear, operand 2: needs 4 elements of f32, has 5 of f32");
    ck_assert_int_eq(run(KC_OP_LINEAR_F, in, 2, &y, 1, 0, NULL, &e), -EINVAL);
    ck_assert_str_eq(e.text, "op linear has 3 inputs and 1 outputs, called with 2 and 1");
    end_variant();
    drop(in, 3), drop(&y, 1);
}
END_TEST

START_TEST(a_variant_can_be_asked_for_by_its_full_name)
{
    ck_assert(use_variant(0));
    struct kc_jobs_config config = {.spec = &spec, .variant = table->variant};
    struct kc_op_table *again;
    ck_assert_int_eq(kc_jobs_cpu_table(&config, &again, NULL), 0);
    ck_assert_str_eq(again->variant, table->variant);
    kc_jobs_cpu_table_free(again);
    struct kc_error e = {{0}};
    static const char *const foreign[] = {"avx2+onednn-0.0.1-isa0", "avx9", "avx2+", "portable+mkl"};
    for (int i = 0; i < 4; i++) {
        config.variant = foreign[i];
        ck_assert_int_eq(kc_jobs_cpu_table(&config, &again, &e), -ENOTSUP);
        ck_assert_ptr_nonnull(strstr(e.text, foreign[i]));
        ck_assert_ptr_nonnull(strstr(e.text, "portable+blocked"));
    }
    config.variant = "portable";
    ck_assert_int_eq(kc_jobs_cpu_table(&config, &again, NULL), 0);
    ck_assert_str_eq(again->variant, "portable+blocked");
    kc_jobs_cpu_table_free(again);
    end_variant();
}
END_TEST

int main(void)
{
    Suite *s = suite_create("kernels");
    TCase *t = tcase_create("ops");
    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, linear_maps_are_right, 0, VARIANTS * 6);
    tcase_add_loop_test(t, bias_gradients_are_sums_over_rows, 0, VARIANTS * 2);
    tcase_add_loop_test(t, fused_linear_maps_are_right, 0, VARIANTS * 6);
    tcase_add_loop_test(t, scaling_multiplies, 0, VARIANTS * 3);
    tcase_add_loop_test(t, layernorm_is_right, 0, VARIANTS * 5);
    tcase_add_loop_test(t, gelu_is_right, 0, 3);
    tcase_add_loop_test(t, add_is_right, 0, 3);
    tcase_add_loop_test(t, embedding_is_right, 0, VARIANTS);
    tcase_add_loop_test(t, adamw_is_torchs, 0, VARIANTS * 2);
    tcase_add_loop_test(t, elementwise_bits_do_not_depend_on_the_cut, 0, VARIANTS);
    tcase_add_loop_test(t, norm_is_right_and_sees_what_is_not_finite, 0, VARIANTS);
    tcase_add_loop_test(t, a_run_is_added_to_a_run_or_takes_its_place, 0, VARIANTS);
    tcase_add_loop_test(t, not_a_number_is_kept, 0, VARIANTS);
    tcase_add_test(t, wrong_shapes_are_refused_by_name);
    tcase_add_test(t, a_variant_can_be_asked_for_by_its_full_name);
    suite_add_tcase(s, t);
    return suite_run(s);
}
