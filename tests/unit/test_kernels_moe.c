/* test_kernels_moe.c - the ops of a mixture of experts against formulas in f64, and what they promise about order. */
#include "jobs/jobs.h"
#include "jobs/kernels/cpu/kernels.h"
#include "tests/unit/kernel_rig.h"
#include "tests/unit/suite.h"

#include <check.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct tensor none = {.view = {0}};

static int32_t *numbers(const struct tensor *t)
{
    return t->view.data;
}

/* ---- routing ---- */

/* logits → share of each token's choices, which stay as they are in `chosen` (so that slopes do not jump), and then the
 * balancing loss times `balance`, as one more output. */
static const int32_t *chosen;
static double balance;
static void naive_route(const struct shape *s, double *const *in, double *const *out)
{
    const uint64_t experts = s->h, top = s->n;
    double *p = malloc(s->t * experts * sizeof *p), *loss = &out[0][s->b * s->t * top];
    *loss = 0;
    for (uint64_t b = 0; b < s->b; b++) {
        for (uint64_t t = 0; t < s->t; t++) {
            const double *z = in[0] + (b * s->t + t) * experts;
            double sum = 0, part = 0;
            for (uint64_t i = 0; i < experts; i++)
                sum += exp(z[i]);
            for (uint64_t i = 0; i < experts; i++)
                p[t * experts + i] = exp(z[i]) / sum;
            for (uint64_t j = 0; j < top; j++)
                part += p[t * experts + (uint64_t)chosen[(b * s->t + t) * top + j]];
            for (uint64_t j = 0; j < top; j++)
                out[0][(b * s->t + t) * top + j] = p[t * experts + (uint64_t)chosen[(b * s->t + t) * top + j]] / part;
        }
        for (uint64_t i = 0; i < experts; i++) { /* E·Σ f·P of the sequence */
            double f = 0, mean = 0;
            for (uint64_t j = 0; j < s->t * top; j++)
                f += (uint64_t)chosen[b * s->t * top + j] == i;
            for (uint64_t t = 0; t < s->t; t++)
                mean += p[t * experts + i] / (double)s->t;
            *loss += balance * (double)experts * f / (double)(s->t * top) * mean;
        }
    }
    free(p);
}

static const uint64_t route_shapes[][4] = {{1, 1, 1, 1}, {2, 5, 4, 2}, {1, 70, 8, 3}, {3, 33, 7, 7}}; /* b, t, E, k */

START_TEST(routing_is_right)
{
    const uint64_t *z = route_shapes[_i % 4], b = z[0], t = z[1], experts = z[2], top = z[3];
    if (!use_variant(_i / 4))
        return;
    struct shape s = {.b = b, .t = t, .h = experts, .n = top};
    struct tensor logits = MAKE(KC_F32, 3, b, t, experts), dlogits = MAKE(KC_F32, 0, b, t, experts);
    struct tensor out[] = {MAKE(KC_F32, 0, b, t, experts), MAKE(KC_I32, 0, b, t, top), MAKE(KC_F32, 0, b, t, top)};
    ck_assert_int_eq(run(KC_OP_ROUTE_F, &logits, 1, out, 3, 0, NULL, NULL), 0);
    for (uint64_t r = 0; r < b * t; r++) { /* every choice is larger than what comes after it and than what is left out */
        const float *l = floats(&logits) + r * experts;
        const int32_t *c = numbers(&out[1]) + r * top;
        for (uint64_t i = 0; i < experts; i++) {
            int taken = 0;
            for (uint64_t j = 0; j < top; j++)
                taken |= c[j] == (int32_t)i;
            ck_assert(taken || l[i] <= l[c[top - 1]]);
        }
        for (uint64_t j = 1; j < top; j++)
            ck_assert(l[c[j]] < l[c[j - 1]]);
    }
    chosen = numbers(&out[1]);
    balance = 0.3;
    struct tensor share = MAKE(KC_F32, 0, 1, b * t * top + 1), dshare = MAKE(KC_F32, 1, 1, b * t * top + 1);
    naive_route(&s, (double *const[]){logits.exact}, (double *const[]){share.exact});
    same("share", floats(&out[2]), share.exact, out[2].n, 1e-6);
    dshare.exact[b * t * top] = 1; /* the balancing loss counts as it is */
    step_values.tokens = 50;
    const double attr = balance / 50;
    struct tensor ds = dshare;
    ds.view = out[2].view, ds.view.data = dshare.view.data;
    ck_assert_int_eq(run(KC_OP_ROUTE_I, (struct tensor[]){ds, out[0], out[1]}, 3, &dlogits, 1, 0, &attr, NULL), 0);
    if (experts > 1)
        derivative_is_slope("route dlogits", &dlogits, naive_route, &s, (double *const[]){logits.exact}, 0, &dshare, NULL,
                            1 + dlogits.n / 300);
    drop(&logits, 1), drop(&dlogits, 1), drop(out, 3), drop(&share, 1), drop(&dshare, 1);
    end_variant();
}
END_TEST

START_TEST(of_equal_probabilities_the_lower_number_is_chosen)
{
    ck_assert(use_variant(0));
    struct tensor logits = MAKE(KC_F32, 0, 1, 2, 5);
    struct tensor out[] = {MAKE(KC_F32, 0, 1, 2, 5), MAKE(KC_I32, 0, 1, 2, 3), MAKE(KC_F32, 0, 1, 2, 3)};
    memcpy(floats(&logits), (const float[]){1, 7, 1, 1, 7, 0, 0, 0, 0, 0}, 10 * sizeof(float));
    ck_assert_int_eq(run(KC_OP_ROUTE_F, &logits, 1, out, 3, 0, NULL, NULL), 0);
    ck_assert_mem_eq(numbers(&out[1]), ((const int32_t[]){1, 4, 0, 0, 1, 2}), 6 * sizeof(int32_t));
    floats(&logits)[3] = NAN; /* which is not lost, and chooses somebody */
    ck_assert_int_eq(run(KC_OP_ROUTE_F, &logits, 1, out, 3, 0, NULL, NULL), 0);
    ck_assert(isnan(floats(&out[2])[0]) && !isnan(floats(&out[2])[3]));
    for (int j = 0; j < 6; j++)
        ck_assert(numbers(&out[1])[j] >= 0 && numbers(&out[1])[j] < 5);
    drop(&logits, 1), drop(out, 3);
    end_variant();
}
END_TEST

START_TEST(rows_stand_by_expert_and_token)
{
    ck_assert(use_variant(0));
    const int32_t choice[] = {2, 0, 0, 3, 2, 3, 0, 2}; /* four tokens, two each, of five experts */
    struct tensor in = MAKE(KC_I32, 0, 1, 4, 2), out[] = {MAKE(KC_I32, 0, 5), MAKE(KC_I32, 0, 1, 4, 2)};
    memcpy(numbers(&in), choice, sizeof choice);
    ck_assert_int_eq(run(KC_OP_ARRANGE_F, &in, 1, out, 2, 0, NULL, NULL), 0);
    ck_assert_mem_eq(numbers(&out[0]), ((const int32_t[]){3, 0, 3, 2, 0}), 5 * sizeof(int32_t));
    ck_assert_mem_eq(numbers(&out[1]), ((const int32_t[]){3, 0, 1, 6, 4, 7, 2, 5}), 8 * sizeof(int32_t));
    drop(&in, 1), drop(out, 2);
    end_variant();
}
END_TEST

START_TEST(a_tally_is_begun_added_to_or_left_out)
{
    ck_assert(use_variant(0));
    const int32_t counts[] = {3, 0, 1 << 30};
    struct tensor in = MAKE(KC_I32, 0, 3), out = MAKE(KC_F64, 0, 3);
    double *sums = out.view.data;
    memcpy(numbers(&in), counts, sizeof counts);
    sums[0] = NAN; /* what stood there before */
    ck_assert_int_eq(run(KC_OP_TALLY, &in, 1, &out, 1, 0, NULL, NULL), 0);
    for (int i = 0; i < 3; i++)
        ck_assert_double_eq(sums[i], counts[i]);
    for (int again = 2; again <= 5; again++) {
        ck_assert_int_eq(run(KC_OP_TALLY, &in, 1, &out, 1, 1, NULL, NULL), 0);
        for (int i = 0; i < 3; i++)
            ck_assert_double_eq(sums[i], (double)again * counts[i]); /* beyond 32 bits too */
    }
    struct tensor nobody = out;
    nobody.view.data = NULL;
    const uint64_t tiles = lane.enqueued;
    ck_assert_int_eq(run(KC_OP_TALLY, &in, 1, &nobody, 1, 1, NULL, NULL), 0);
    ck_assert_uint_eq(lane.enqueued, tiles);
    drop(&in, 1), drop(&out, 1);
    end_variant();
}
END_TEST

/* ---- to the rows and back ---- */
static const int32_t *places;

static void naive_combine(const struct shape *s, double *const *in, double *const *out)
{
    for (uint64_t t = 0; t < s->t; t++)
        for (uint64_t c = 0; c < s->h; c++) {
            double sum = 0;
            for (uint64_t j = 0; j < s->n; j++)
                sum += in[1][t * s->n + j] * in[0][(uint64_t)places[t * s->n + j] * s->h + c];
            out[0][t * s->h + c] = sum;
        }
}

/* tokens, width, rows a token */
static const uint64_t mix_shapes[][3] = {{1, 1, 1}, {5, 7, 2}, {70, 33, 3}, {40, 64, 8}};

START_TEST(tokens_go_to_their_rows_and_come_back_mixed)
{
    const uint64_t *z = mix_shapes[_i % 4], t = z[0], h = z[1], top = z[2], n = t * top;
    if (!use_variant(_i / 4))
        return;
    struct shape s = {.b = 1, .t = t, .h = h, .n = top};
    struct tensor x = MAKE(KC_F32, 1, 1, t, h), rows = MAKE(KC_F32, 1, 1, t, top, h), place = MAKE(KC_I32, 0, 1, t, top);
    struct tensor share = MAKE(KC_F32, 1, 1, t, top), y = MAKE(KC_F32, 1, 1, t, h), dy = MAKE(KC_F32, 1, 1, t, h);
    struct tensor back[] = {MAKE(KC_F32, 1, 1, t, top, h), MAKE(KC_F32, 1, 1, t, top)};
    for (uint64_t i = 0; i < n; i++)
        numbers(&place)[i] = (int32_t)(n - 1 - i);
    places = numbers(&place);
    ck_assert_int_eq(run(KC_OP_DISPATCH_F, (struct tensor[]){x, place}, 2, &rows, 1, 0, NULL, NULL), 0);
    for (uint64_t i = 0; i < n; i++) {
        ck_assert_mem_eq(floats(&rows) + (uint64_t)places[i] * h, floats(&x) + i / top * h, h * sizeof(float));
        for (uint64_t c = 0; c < h; c++)
            rows.exact[(uint64_t)places[i] * h + c] = (double)(floats(&rows)[(uint64_t)places[i] * h + c] *= (float)(i + 1));
    }
    double *const exact[] = {rows.exact, share.exact};
    naive_combine(&s, exact, (double *const[]){y.exact});
    ck_assert_int_eq(run(KC_OP_COMBINE_F, (struct tensor[]){rows, place, share, none}, 4, &y, 1, 0, NULL, NULL), 0);
    same("combine", floats(&y), y.exact, y.n, 2e-6);
    for (uint64_t i = 0; i < y.n; i++)
        y.exact[i] += x.exact[i];
    ck_assert_int_eq(run(KC_OP_COMBINE_F, (struct tensor[]){rows, place, share, x}, 4, &x, 1, 0, NULL, NULL), 0);
    same("combine on a residual, in place", floats(&x), y.exact, y.n, 2e-6);
    ck_assert_int_eq(run(KC_OP_COMBINE_I, (struct tensor[]){dy, rows, place, share}, 4, back, 2, 0, NULL, NULL), 0);
    derivative_is_slope("combine drows", &back[0], naive_combine, &s, exact, 0, &dy, NULL, 1 + back[0].n / 200);
    derivative_is_slope("combine dshare", &back[1], naive_combine, &s, exact, 1, &dy, NULL, 1 + back[1].n / 200);

    /* a token's derivative is that of its rows together, and what reached it on other ways */
    for (uint64_t i = 0; i < y.n; i++)
        y.exact[i] = dy.exact[i];
    for (uint64_t i = 0; i < n * h; i++)
        y.exact[i / h / top * h + i % h] += (double)floats(&back[0])[(uint64_t)places[i / h] * h + i % h];
    ck_assert_int_eq(run(KC_OP_DISPATCH_I, (struct tensor[]){back[0], place, dy}, 3, &y, 1, 0, NULL, NULL), 0);
    same("dispatch.i", floats(&y), y.exact, y.n, 2e-6);
    drop(&x, 1), drop(&rows, 1), drop(&place, 1), drop(&share, 1), drop(&y, 1), drop(&dy, 1), drop(back, 2);
    end_variant();
}
END_TEST

/* ---- products by expert ---- */
static const int32_t *rows_of; /* counts */

static void naive_experts(const struct shape *s, double *const *in, double *const *out)
{
    for (uint64_t e = 0, r = 0; e < s->heads; e++)
        for (int32_t i = 0; i < rows_of[e]; i++, r++)
            for (uint64_t j = 0; j < s->n; j++) {
                double sum = 0;
                for (uint64_t k = 0; k < s->h; k++)
                    sum += in[0][r * s->h + k] * in[1][(e * s->n + j) * s->h + k];
                out[0][r * s->n + j] = sum;
            }
}

/* width in, width out, rows of each of four experts: nobody, one, many */
static const struct {
    uint64_t k, n;
    int32_t counts[4];
} expert_shapes[] = {{1, 1, {1, 0, 0, 0}}, {5, 7, {3, 0, 2, 1}}, {33, 130, {40, 1, 0, 29}}, {70, 20, {0, 0, 90, 0}}};

START_TEST(experts_multiply_their_own_rows)
{
    const uint64_t k = expert_shapes[_i % 4].k, n = expert_shapes[_i % 4].n;
    uint64_t rows = 0;
    if (!use_variant(_i / 4))
        return;
    struct tensor counts = MAKE(KC_I32, 0, 4);
    for (int e = 0; e < 4; e++)
        rows += (uint64_t)(numbers(&counts)[e] = expert_shapes[_i % 4].counts[e]);
    rows_of = numbers(&counts);
    struct shape s = {.t = rows, .h = k, .n = n, .heads = 4};
    struct tensor x = MAKE(KC_F32, 1, 1, rows, 1, k), w = MAKE(KC_F32, 1, 4, n, k), y = MAKE(KC_F32, 1, 1, rows, 1, n);
    struct tensor dy = MAKE(KC_F32, 1, 1, rows, 1, n), dx = MAKE(KC_F32, 1, 1, rows, 1, k), dw = MAKE(KC_F32, 1, 4, n, k);
    double *const exact[] = {x.exact, w.exact};
    naive_experts(&s, exact, (double *const[]){y.exact});
    ck_assert_int_eq(run(KC_OP_EXPERTS_F, (struct tensor[]){x, w, counts}, 3, &y, 1, 0, NULL, NULL), 0);
    same("experts", floats(&y), y.exact, y.n, 2e-6);
    for (int with = 0; with <= 1; with++) { /* without, and in place on what came another way */
        memcpy(floats(&dx), floats(&x), dx.n * sizeof(float));
        ck_assert_int_eq(run(KC_OP_EXPERTS_I, (struct tensor[]){dy, w, counts, with ? dx : none}, 4, &dx, 1, 0, NULL,
                             NULL), 0);
        derivative_is_slope("experts drows", &dx, naive_experts, &s, exact, 0, &dy, with ? x.exact : NULL,
                            1 + dx.n / 100);
    }
    for (int add = 0; add <= 1; add++) { /* an expert that saw nothing gets zeros, or keeps what it had */
        for (uint64_t i = 0; i < dw.n; i++)
            floats(&dw)[i] = (float)dw.exact[i];
        ck_assert_int_eq(run(KC_OP_EXPERTS_W, (struct tensor[]){dy, x, counts}, 3, &dw, 1, add, NULL, NULL), 0);
        derivative_is_slope("experts dw", &dw, naive_experts, &s, exact, 1, &dy, add ? dw.exact : NULL, 1 + dw.n / 100);
    }
    drop(&counts, 1), drop(&x, 1), drop(&w, 1), drop(&y, 1), drop(&dy, 1), drop(&dx, 1), drop(&dw, 1);
    end_variant();
}
END_TEST

START_TEST(more_experts_than_there_is_room_for_are_refused)
{
    ck_assert(use_variant(0));
    struct kc_error e = {{0}};
    struct tensor logits = MAKE(KC_F32, 1, 1, 2, 3);
    struct tensor out[] = {MAKE(KC_F32, 0, 1, 2, 3), MAKE(KC_I32, 0, 1, 2, 4), MAKE(KC_F32, 0, 1, 2, 4)};
    ck_assert_int_eq(run(KC_OP_ROUTE_F, &logits, 1, out, 3, 0, NULL, &e), -EINVAL);
    ck_assert_str_eq(e.text, "op route: 4 of 3 experts; there may be up to 64 of 1024");
    drop(&logits, 1), drop(out, 3);
    end_variant();
}
END_TEST

int main(void)
{
    Suite *s = suite_create("kernels of experts");
    TCase *t = tcase_create("ops");
    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, routing_is_right, 0, VARIANTS * 4);
    tcase_add_test(t, of_equal_probabilities_the_lower_number_is_chosen);
    tcase_add_test(t, rows_stand_by_expert_and_token);
    tcase_add_test(t, a_tally_is_begun_added_to_or_left_out);
    tcase_add_loop_test(t, tokens_go_to_their_rows_and_come_back_mixed, 0, VARIANTS * 4);
    tcase_add_loop_test(t, experts_multiply_their_own_rows, 0, VARIANTS * 4);
    tcase_add_test(t, more_experts_than_there_is_room_for_are_refused);
    suite_add_tcase(s, t);
    return suite_run(s);
}
