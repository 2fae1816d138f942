/* test_kernels_llama.c - the ops of a Llama layer against formulas in f64, and attention within documents. */
#include "jobs/jobs.h"
#include "tests/unit/kernel_rig.h"
#include "tests/unit/suite.h"

#include <check.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct tensor none = {.view = {0}};

/* ---- products with weights [out, in] ---- */
static const uint64_t product_shapes[][3] = {{1, 1, 1}, {3, 5, 7}, {70, 33, 17}, {300, 9, 40}, {5, 300, 30}, {20, 8, 600}};

START_TEST(projections_are_right)
{
    const uint64_t *z = product_shapes[_i % 6];
    if (!use_variant(_i / 6))
        return;
    struct shape s = {.b = 1, .t = z[0], .h = z[1], .n = z[2]};
    struct tensor in[] = {MAKE(KC_F32, 1, 1, z[0], z[1]), MAKE(KC_F32, 1, z[2], z[1])};
    struct tensor y = MAKE(KC_F32, 1, 1, z[0], z[2]), residual = MAKE(KC_F32, 1, 1, z[0], z[2]);
    struct tensor dy = MAKE(KC_F32, 1, 1, z[0], z[2]), dx = MAKE(KC_F32, 1, 1, z[0], z[1]), dw = MAKE(KC_F32, 1, z[2], z[1]);
    double *const exact[] = {in[0].exact, in[1].exact};
    naive_product(&s, exact, (double *const[]){y.exact});
    ck_assert_int_eq(run(KC_OP_PROJECT_F, (struct tensor[]){in[0], in[1], none}, 3, &y, 1, 0, NULL, NULL), 0);
    same("project", floats(&y), y.exact, y.n, 2e-6);
    for (uint64_t i = 0; i < y.n; i++)
        y.exact[i] += residual.exact[i];
    ck_assert_int_eq(run(KC_OP_PROJECT_F, (struct tensor[]){in[0], in[1], residual}, 3, &y, 1, 0, NULL, NULL), 0);
    same("project on a residual", floats(&y), y.exact, y.n, 2e-6);
    ck_assert_int_eq(run(KC_OP_PROJECT_F, (struct tensor[]){in[0], in[1], residual}, 3, &residual, 1, 0, NULL, NULL), 0);
    same("project in place", floats(&residual), y.exact, y.n, 2e-6);

    const uint64_t every = 1 + in[0].n * y.n / 20000;
    for (int with = 0; with <= 1; with++) { /* without, and on top of what came another way, in place */
        struct tensor sum = with ? dx : none;
        ck_assert_int_eq(run(KC_OP_PROJECT_I, (struct tensor[]){dy, in[1], sum}, 3, &dx, 1, 0, NULL, NULL), 0);
        derivative_is_slope("project dx", &dx, naive_product, &s, exact, 0, &dy, with ? dx.exact : NULL, every);
        memcpy(floats(&dx), in[0].view.data, dx.n * sizeof(float));
        memcpy(dx.exact, in[0].exact, dx.n * sizeof(double));
    }
    for (int add = 0; add <= 1; add++) {
        ck_assert_int_eq(run(KC_OP_PROJECT_W, (struct tensor[]){dy, in[0]}, 2, &dw, 1, add, NULL, NULL), 0);
        derivative_is_slope("project dw", &dw, naive_product, &s, exact, 1, &dy, add ? dw.exact : NULL, every);
        for (uint64_t i = 0; i < dw.n; i++)
            dw.exact[i] = (double)floats(&dw)[i];
    }
    drop(in, 2), drop(&y, 1), drop(&residual, 1), drop(&dy, 1), drop(&dx, 1), drop(&dw, 1);
    end_variant();
}
END_TEST

/* ---- RMSNorm ---- */
static void naive_rmsnorm(const struct shape *s, double *const *in, double *const *out)
{
    for (uint64_t r = 0; r < s->t; r++) {
        const double *x = in[0] + r * s->h;
        double square = 0;
        for (uint64_t k = 0; k < s->h; k++)
            square += x[k] * x[k] / (double)s->h;
        for (uint64_t k = 0; k < s->h; k++)
            out[0][r * s->h + k] = x[k] / sqrt(square + 1e-5) * in[1][k];
    }
}

static const uint64_t norm_shapes[][2] = {{1, 1}, {3, 5}, {70, 32}, {5, 131}, {33, 40}};

START_TEST(rmsnorm_is_right)
{
    const uint64_t rows = norm_shapes[_i % 5][0], h = norm_shapes[_i % 5][1];
    if (!use_variant(_i / 5))
        return;
    struct shape s = {.b = 1, .t = rows, .h = h};
    struct tensor in[] = {MAKE(KC_F32, 2, 1, rows, h), MAKE(KC_F32, 1, h)};
    struct tensor out[] = {MAKE(KC_F32, 1, 1, rows, h), MAKE(KC_F32, 1, 1, rows)};
    struct tensor dy = MAKE(KC_F32, 1, 1, rows, h), residual = MAKE(KC_F32, 1, 1, rows, h);
    double *const exact[] = {in[0].exact, in[1].exact};
    naive_rmsnorm(&s, exact, (double *const[]){out[0].exact});
    ck_assert_int_eq(run(KC_OP_RMSNORM_F, in, 2, out, 2, 0, (const double[]){1e-5}, NULL), 0);
    same("rmsnorm", floats(&out[0]), out[0].exact, rows * h, 3e-6);
    for (int with = 0; with <= 1; with++) {
        struct tensor dx = MAKE(KC_F32, 1, 1, rows, h);
        struct tensor of[] = {dy, in[0], in[1], out[1], with ? residual : none};
        ck_assert_int_eq(run(KC_OP_RMSNORM_I, of, 5, &dx, 1, 0, NULL, NULL), 0);
        if (h > 1) /* of a single number the norm is its sign, nearly */
            derivative_is_slope("rmsnorm dx", &dx, naive_rmsnorm, &s, exact, 0, &dy, with ? residual.exact : NULL, 3);
        drop(&dx, 1);
    }
    for (int add = 0; add <= 1; add++) {
        struct tensor dw = MAKE(KC_F32, 1, h);
        ck_assert_int_eq(run(KC_OP_RMSNORM_W, (struct tensor[]){dy, in[0], out[1]}, 3, &dw, 1, add, NULL, NULL), 0);
        derivative_is_slope("rmsnorm dw", &dw, naive_rmsnorm, &s, exact, 1, &dy, add ? dw.exact : NULL, 1);
        drop(&dw, 1);
    }
    drop(in, 2), drop(out, 2), drop(&dy, 1), drop(&residual, 1);
    end_variant();
}
END_TEST

/* ---- rotations ---- */
static const uint64_t rope_shapes[][3] = {{1, 1, 2}, {2, 3, 6}, {40, 2, 8}, {5, 3, 34}, {3, 1, 128}}; /* rows, heads, d */

START_TEST(rope_turns_the_halves_of_heads)
{
    const uint64_t rows = rope_shapes[_i % 5][0], heads = rope_shapes[_i % 5][1], d = rope_shapes[_i % 5][2];
    const double theta = 500;
    if (!use_variant(_i / 5))
        return;
    struct tensor at = MAKE(KC_I32, 0, 1, rows), turns = MAKE(KC_F32, 0, 1, rows, d);
    struct tensor x = MAKE(KC_F32, 1, 1, rows, heads, d), y = MAKE(KC_F32, 1, 1, rows, heads, d);
    int32_t *positions = at.view.data;
    for (uint64_t r = 0; r < rows; r++)
        positions[r] = (int32_t)((r * 7 + 3) % 101);
    ck_assert_int_eq(run(KC_OP_ROPE_TABLE, &at, 1, &turns, 1, 0, &theta, NULL), 0);
    for (uint64_t r = 0; r < rows; r++)
        for (uint64_t i = 0; i < d / 2; i++) {
            const double angle = positions[r] / pow(theta, 2.0 * (double)i / (double)d);
            for (uint64_t a = 0; a < heads; a++) {
                const double *from = x.exact + (r * heads + a) * d;
                double *to = y.exact + (r * heads + a) * d;
                to[i] = from[i] * cos(angle) - from[i + d / 2] * sin(angle);
                to[i + d / 2] = from[i + d / 2] * cos(angle) + from[i] * sin(angle);
            }
        }
    ck_assert_int_eq(run(KC_OP_ROPE_F, (struct tensor[]){x, turns}, 2, &y, 1, 0, NULL, NULL), 0);
    same("rope", floats(&y), y.exact, y.n, 1e-6);
    /* The derivative of a rotation is the rotation back: dx·x′ = dy·turned(x′) for every x′. In place, too. */
    ck_assert_int_eq(run(KC_OP_ROPE_I, (struct tensor[]){y, turns}, 2, &y, 1, 0, NULL, NULL), 0);
    same("rope back", floats(&y), x.exact, x.n, 1e-6);
    drop(&at, 1), drop(&turns, 1), drop(&x, 1), drop(&y, 1);
    end_variant();
}
END_TEST

START_TEST(heads_of_an_odd_width_are_refused)
{
    ck_assert(use_variant(0));
    struct kc_error e = {{0}};
    struct tensor at = MAKE(KC_I32, 0, 1, 4), turns = MAKE(KC_F32, 1, 1, 4, 3), x = MAKE(KC_F32, 1, 1, 4, 2, 3);
    ck_assert_int_eq(run(KC_OP_ROPE_TABLE, &at, 1, &turns, 1, 0, (const double[]){10}, &e), -EINVAL);
    ck_assert_ptr_nonnull(strstr(e.text, "heads of an even width; has 1 and 3"));
    ck_assert_int_eq(run(KC_OP_ROPE_F, (struct tensor[]){x, turns}, 2, &x, 1, 0, NULL, &e), -EINVAL);
    ck_assert_ptr_nonnull(strstr(e.text, "rows of 6 numbers, heads of 3"));
    drop(&at, 1), drop(&turns, 1), drop(&x, 1);
    end_variant();
}
END_TEST

/* ---- the gate ---- */
static void naive_swiglu(const struct shape *s, double *const *in, double *const *out)
{
    for (uint64_t i = 0; i < s->n; i++)
        out[0][i] = in[0][i] / (1 + exp(-in[0][i])) * in[1][i];
}

START_TEST(swiglu_is_right)
{
    if (!use_variant(_i))
        return;
    const uint64_t n = 333;
    struct shape s = {.n = n};
    struct tensor in[] = {MAKE(KC_F32, 12, 1, n, 1), MAKE(KC_F32, 1, 1, n, 1)};
    struct tensor y = MAKE(KC_F32, 1, 1, n, 1), dy = MAKE(KC_F32, 1, 1, n, 1), d_up = MAKE(KC_F32, 1, 1, n, 1);
    floats(&in[0])[0] = in[0].exact[0] = 100, floats(&in[0])[1] = in[0].exact[1] = -100; /* far out */
    double *const exact[] = {in[0].exact, in[1].exact};
    naive_swiglu(&s, exact, (double *const[]){y.exact});
    ck_assert_int_eq(run(KC_OP_SWIGLU_F, in, 2, &y, 1, 0, NULL, NULL), 0);
    same("swiglu", floats(&y), y.exact, n, 2e-6);
    struct tensor d_gate = {.view = dy.view, .exact = dy.exact, .n = n}; /* in place of dy */
    ck_assert_int_eq(run(KC_OP_SWIGLU_I, (struct tensor[]){dy, in[0], in[1]}, 3, (struct tensor[]){d_gate, d_up}, 2, 0,
                         NULL, NULL), 0);
    derivative_is_slope("swiglu dgate", &d_gate, naive_swiglu, &s, exact, 0, &dy, NULL, 1);
    derivative_is_slope("swiglu dup", &d_up, naive_swiglu, &s, exact, 1, &dy, NULL, 1);
    drop(in, 2), drop(&y, 1), drop(&dy, 1), drop(&d_up, 1);
    end_variant();
}
END_TEST

/* ---- attention ---- */
static const int32_t *starts_of; /* of every row, or NULL */

static void naive_grouped(const struct shape *s, double *const *in, double *const *out)
{
    const uint64_t d = s->h, group = s->heads / s->kv_heads;
    double *p = malloc(s->t * sizeof *p);
    for (uint64_t b = 0; b < s->b; b++)
        for (uint64_t a = 0; a < s->heads; a++)
            for (uint64_t i = 0; i < s->t; i++) {
                const uint64_t from = starts_of ? (uint64_t)starts_of[b * s->t + i] : 0, at = b * s->t + i;
                const double *q = in[0] + (at * s->heads + a) * d;
                double sum = 0, *y = out[0] + (at * s->heads + a) * d;
                memset(y, 0, d * sizeof *y);
                for (uint64_t j = from; j <= i; j++) {
                    const double *k = in[1] + ((b * s->t + j) * s->kv_heads + a / group) * d;
                    double score = 0;
                    for (uint64_t c = 0; c < d; c++)
                        score += q[c] * k[c];
                    sum += p[j] = exp(score / sqrt((double)d));
                }
                for (uint64_t j = from; j <= i; j++)
                    for (uint64_t c = 0; c < d; c++)
                        y[c] += p[j] / sum * in[2][((b * s->t + j) * s->kv_heads + a / group) * d + c];
                if (out[1])
                    out[1][(b * s->heads + a) * s->t + i] = log(sum);
            }
    free(p);
}

/* Documents of `length` tokens, the first one shorter by b, so that they begin elsewhere in every row. */
static struct tensor documents(uint64_t b, uint64_t t, uint64_t length)
{
    struct tensor s = MAKE(KC_I32, 0, b, t);
    int32_t *starts = s.view.data;
    for (uint64_t r = 0; r < b * t; r++) {
        const uint64_t at = r % t + r / t; /* in a text that began r / t before the row */
        const uint64_t begin = at / length * length;
        starts[r] = begin < r / t ? 0 : (int32_t)(begin - r / t);
    }
    return s;
}

static struct tensor positions(uint64_t b, uint64_t t)
{
    struct tensor p = MAKE(KC_I32, 0, b, t);
    for (uint64_t r = 0; r < b * t; r++)
        ((int32_t *)p.view.data)[r] = (int32_t)(r % t);
    return p;
}

/* batch, context, heads, key/value heads, width of a head, tokens of a document (0: not told apart): across blocks of 64
 * queries and 128 keys, documents within one and over several of them */
static const uint64_t attention_shapes[][6] = {{1, 1, 1, 1, 2, 0},     {2, 7, 4, 2, 6, 0},    {2, 70, 6, 2, 8, 0},
                                               {1, 200, 3, 1, 16, 0},  {1, 161, 2, 2, 130, 0}, {2, 7, 4, 2, 6, 3},
                                               {2, 300, 4, 2, 8, 37},  {1, 300, 2, 1, 16, 170}, {1, 290, 3, 3, 34, 2},
                                               {1, 140, 2, 1, 200, 60}};
enum { ATTENTION_SHAPES = sizeof attention_shapes / sizeof *attention_shapes };
#ifdef __SANITIZE_ADDRESS__ /* each slope is two attentions by hand, and dear; memory is used alike whatever is compared */
enum { SLOPES = 3 };
#else
enum { SLOPES = 17 };
#endif

START_TEST(grouped_attention_is_right)
{
    const uint64_t *z = attention_shapes[_i % ATTENTION_SHAPES], b = z[0], t = z[1], d = z[4];
    if (!use_variant(_i / ATTENTION_SHAPES))
        return;
    const double group = (double)(z[2] / z[3]);
    struct shape s = {.b = b, .t = t, .h = d, .heads = z[2], .kv_heads = z[3]};
    struct tensor in[] = {MAKE(KC_F32, 3, b, t, z[2], d), MAKE(KC_F32, 3, b, t, z[3], d), MAKE(KC_F32, 1, b, t, z[3], d),
                          positions(b, t), z[5] ? documents(b, t, z[5]) : none};
    struct tensor out[] = {MAKE(KC_F32, 1, b, t, z[2], d), MAKE(KC_F32, 1, b, z[2], t)}, dy = MAKE(KC_F32, 1, b, t, z[2], d);
    struct tensor back[] = {MAKE(KC_F32, 1, b, t, z[2], d), MAKE(KC_F32, 1, b, t, z[3], d), MAKE(KC_F32, 1, b, t, z[3], d)};
    double *const exact[] = {in[0].exact, in[1].exact, in[2].exact};
    starts_of = in[4].view.data;
    naive_grouped(&s, exact, (double *const[]){out[0].exact, out[1].exact});
    ck_assert_int_eq(run(KC_OP_GROUPED_F, in, 5, out, 2, 0, &group, NULL), 0);
    same("grouped-attention", floats(&out[0]), out[0].exact, out[0].n, 3e-6);
    same("grouped-attention lse", floats(&out[1]), out[1].exact, out[1].n, 2e-6);
    struct tensor of[] = {dy, in[0], in[1], in[2], out[0], out[1], in[3], in[4]};
    ck_assert_int_eq(run(KC_OP_GROUPED_I, of, 8, back, 3, 0, &group, NULL), 0);
    for (int k = 0; k < 3; k++)
        derivative_is_slope((const char *[]){"dq", "dk", "dv"}[k], &back[k], naive_grouped, &s, exact, k, &dy, NULL,
                            1 + back[k].n / SLOPES);
    drop(in, 5), drop(out, 2), drop(&dy, 1), drop(back, 3);
    end_variant();
}
END_TEST

/* Heads 2 … 4 of six, which read key/value heads 0 and 1 of two, and where two of the three are here: as in the whole. */
START_TEST(a_part_of_the_heads_finds_its_keys)
{
    if (!use_variant(_i))
        return;
    const uint64_t t = 70, d = 8;
    const double group = 3;
    struct shape s = {.b = 1, .t = t, .h = d, .heads = 6, .kv_heads = 2};
    struct tensor q = MAKE(KC_F32, 2, 1, t, 6, d), k = MAKE(KC_F32, 2, 1, t, 2, d), v = MAKE(KC_F32, 1, 1, t, 2, d);
    struct tensor y = MAKE(KC_F32, 1, 1, t, 6, d), part = MAKE(KC_F32, 1, 1, t, 3, d), py = MAKE(KC_F32, 1, 1, t, 3, d),
                  lse = MAKE(KC_F32, 1, 1, 3, t);
    starts_of = NULL;
    naive_grouped(&s, (double *const[]){q.exact, k.exact, v.exact}, (double *const[]){y.exact, NULL});
    for (uint64_t r = 0; r < t; r++)
        memcpy(floats(&part) + r * 3 * d, floats(&q) + (r * 6 + 2) * d, 3 * d * sizeof(float));
    part.view.first[2] = 2;
    ck_assert_int_eq(run(KC_OP_GROUPED_F, (struct tensor[]){part, k, v, none, none}, 5, (struct tensor[]){py, lse}, 2, 0,
                         &group, NULL), 0);
    for (uint64_t r = 0; r < t; r++)
        same("heads 2 to 4", floats(&py) + r * 3 * d, y.exact + (r * 6 + 2) * d, 3 * d, 5e-6);
    part.view.first[2] = 4; /* and 4 … 6: the last would be one of a third key/value head */
    struct kc_error e = {{0}};
    ck_assert_int_eq(run(KC_OP_GROUPED_F, (struct tensor[]){part, k, v, none, none}, 5, (struct tensor[]){py, lse}, 2, 0,
                         &group, &e), -EINVAL);
    ck_assert_ptr_nonnull(strstr(e.text, "heads 4 to 6, 3 to a key/value head, which are here from 0 on: 2"));
    drop(&q, 1), drop(&k, 1), drop(&v, 1), drop(&y, 1), drop(&part, 1), drop(&py, 1), drop(&lse, 1);
    end_variant();
}
END_TEST

/* A row of documents is, bit for bit, what each of them is alone, where blocks of keys begin with it. */
START_TEST(documents_do_not_see_each_other)
{
    if (!use_variant(_i))
        return;
    const uint64_t t = 256, d = 16, half = 128;
    struct tensor qkv = MAKE(KC_F32, 2, 1, t, 3, 2, d), at = positions(1, t), starts = documents(1, t, half);
    struct tensor y = MAKE(KC_F32, 1, 1, t, 2, d), lse = MAKE(KC_F32, 1, 1, 2, t), dy = MAKE(KC_F32, 1, 1, t, 2, d);
    struct tensor dqkv = MAKE(KC_F32, 1, 1, t, 3, 2, d);
    ck_assert_int_eq(run(KC_OP_ATTENTION_F, (struct tensor[]){qkv, at, starts}, 3, (struct tensor[]){y, lse}, 2, 0, NULL,
                         NULL), 0);
    ck_assert_int_eq(run(KC_OP_ATTENTION_I, (struct tensor[]){dy, qkv, y, lse, at, starts}, 6, &dqkv, 1, 0, NULL, NULL),
                     0);
    for (uint64_t from = 0; from < t; from += half) {
        struct tensor one = qkv, done = MAKE(KC_F32, 1, 1, half, 2, d), sum = MAKE(KC_F32, 1, 1, 2, half), above = dy,
                      down = MAKE(KC_F32, 1, 1, half, 3, 2, d);
        one.view.size[1] = above.view.size[1] = half;
        one.view.data = floats(&qkv) + from * 6 * d, above.view.data = floats(&dy) + from * 2 * d;
        ck_assert_int_eq(run(KC_OP_ATTENTION_F, (struct tensor[]){one, none, none}, 3, (struct tensor[]){done, sum}, 2, 0,
                             NULL, NULL), 0);
        ck_assert_int_eq(run(KC_OP_ATTENTION_I, (struct tensor[]){above, one, done, sum, none, none}, 6, &down, 1, 0, NULL,
                             NULL), 0);
        ck_assert_mem_eq(floats(&y) + from * 2 * d, floats(&done), done.n * sizeof(float));
        ck_assert_mem_eq(floats(&dqkv) + from * 6 * d, floats(&down), down.n * sizeof(float));
        drop(&done, 1), drop(&sum, 1), drop(&down, 1);
    }
    drop(&qkv, 1), drop(&at, 1), drop(&starts, 1), drop(&y, 1), drop(&lse, 1), drop(&dy, 1), drop(&dqkv, 1);
    end_variant();
}
END_TEST

int main(void)
{
    Suite *s = suite_create("kernels of Llama");
    TCase *t = tcase_create("ops");
    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, projections_are_right, 0, VARIANTS * 6);
    tcase_add_loop_test(t, rmsnorm_is_right, 0, VARIANTS * 5);
    tcase_add_loop_test(t, rope_turns_the_halves_of_heads, 0, VARIANTS * 5);
    tcase_add_test(t, heads_of_an_odd_width_are_refused);
    tcase_add_loop_test(t, swiglu_is_right, 0, VARIANTS);
    tcase_add_loop_test(t, grouped_attention_is_right, 0, VARIANTS * ATTENTION_SHAPES);
    tcase_add_loop_test(t, a_part_of_the_heads_finds_its_keys, 0, VARIANTS);
    tcase_add_loop_test(t, documents_do_not_see_each_other, 0, VARIANTS);
    suite_add_tcase(s, t);
    return suite_run(s);
}
