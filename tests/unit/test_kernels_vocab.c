/* test_kernels_vocab.c - the loss in steps, with the vocabulary cut into uneven parts: every part's ops, what they exchange
 * added up, against the formulas in f64 and against the op that has all columns. */
#include "base/bf16.h"
#include "jobs/jobs.h"
#include "tests/unit/kernel_rig.h"
#include "tests/unit/suite.h"

#include <check.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct tensor none = {.view = {0}};

/* Operands of the loss, in f32 or rounded to bf16 with the same values. */
static struct tensor stored(int type, int rank, const uint64_t *size, double scale)
{
    struct tensor f = make(KC_F32, rank, size, scale);
    if (type == KC_F32)
        return f;
    struct tensor t = make(type, rank, size, 0);
    for (uint64_t i = 0; i < t.n; i++) {
        ((uint16_t *)t.view.data)[i] = kc_bf16_from_float(floats(&f)[i]);
        t.exact[i] = (double)kc_bf16_to_float(((uint16_t *)t.view.data)[i]);
    }
    drop(&f, 1);
    return t;
}
#define STORED(type, scale, ...) \
    stored(type, sizeof((uint64_t[]){__VA_ARGS__}) / 8, (const uint64_t[]){__VA_ARGS__}, scale)

static double value(const struct tensor *t, uint64_t i)
{
    return t->view.type == KC_BF16 ? (double)kc_bf16_to_float(((uint16_t *)t->view.data)[i]) : (double)floats(t)[i];
}

/* Loss sum, dw and dx in f64, into `exact` of what they are given. */
static double naive(const struct tensor *x, const struct tensor *w, const int32_t *targets, uint64_t rows, uint64_t h,
                    uint64_t v, double *dw, double *dx)
{
    double *z = malloc(v * sizeof *z), loss = 0;
    for (uint64_t r = 0; r < rows; r++) {
        double sum = 0;
        for (uint64_t j = 0; j < v; j++) {
            z[j] = 0;
            for (uint64_t k = 0; k < h; k++)
                z[j] += x->exact[r * h + k] * w->exact[j * h + k];
            sum += exp(z[j]);
        }
        if (targets[r] < 0)
            continue;
        loss += log(sum) - z[targets[r]];
        for (uint64_t j = 0; j < v; j++) {
            const double d = exp(z[j]) / sum - (j == (uint64_t)targets[r]);
            for (uint64_t k = 0; k < h; k++) {
                dx[r * h + k] += d * w->exact[j * h + k];
                dw[j * h + k] += d * x->exact[r * h + k];
            }
        }
    }
    free(z);
    return loss;
}

/* A rank's part of the vocabulary, as a view on the whole weight. */
struct part {
    uint64_t first, v;
    struct tensor w, logits, dw, dx;
};

static void part_begin(struct part *p, const struct tensor *w, const struct tensor *x, uint64_t n, uint64_t i)
{
    const uint64_t v = w->view.size[0], h = w->view.size[1], b = x->view.size[0], t = x->view.size[1];
    p->first = v * i / n;
    p->v = v * (i + 1) / n - p->first;
    p->w = *w;
    p->w.view.data = (char *)w->view.data + p->first * h * kc_type_bytes[w->view.type];
    p->w.view.size[0] = p->v;
    p->w.view.first[0] = p->first;
    p->logits = MAKE(KC_F32, 0, b, t, p->v);
    p->logits.view.first[2] = p->first;
    p->dw = MAKE(KC_F32, 0, p->v, h);
    p->dx = STORED(x->view.type, 0, b, t, h);
    ck_assert_int_eq(run(KC_OP_HEAD_F, (struct tensor[]){*x, p->w}, 2, &p->logits, 1, 0, NULL, NULL), 0);
}

/* to = to + from, or the larger */
static void reduce(struct tensor *to, const struct tensor *from, int largest)
{
    for (uint64_t i = 0; i < to->n; i++)
        floats(to)[i] = largest ? fmaxf(floats(to)[i], floats(from)[i]) : floats(to)[i] + floats(from)[i];
}

/* What the parts exchange: `largest` and `sums` as all of them have these afterwards. */
static void exchange(struct part *part, uint64_t parts, const struct tensor *targets, struct tensor *largest,
                     struct tensor *sums)
{
    const uint64_t b = targets->view.size[0], t = targets->view.size[1];
    for (int sum = 0; sum <= 1; sum++)
        for (uint64_t i = 0; i < parts; i++) {
            struct tensor own = sum ? MAKE(KC_F32, 0, b, t, 2) : MAKE(KC_F32, 0, b, t), *all = sum ? sums : largest;
            struct tensor in[] = {part[i].logits, *targets, *largest};
            ck_assert_int_eq(run(sum ? KC_OP_VOCAB_SUM : KC_OP_VOCAB_MAX, in, sum ? 3 : 1, &own, 1, 0, NULL, NULL), 0);
            if (i == 0)
                memcpy(all->view.data, own.view.data, own.n * sizeof(float));
            else
                reduce(all, &own, !sum);
            drop(&own, 1);
        }
}

/* rows in batch and sequence, hidden, vocabulary, parts of it */
static const uint64_t shapes[][5] = {{1, 1, 4, 3, 2}, {3, 25, 16, 61, 3}, {2, 40, 33, 257, 4}, {1, 70, 5, 7, 5}, {2, 9, 8, 50, 1}};

START_TEST(a_cut_vocabulary_has_the_loss_and_gradients_of_the_whole)
{
    const uint64_t *z = shapes[_i % 5], rows = z[0] * z[1], h = z[2], v = z[3], parts = z[4];
    const int type = _i / 5 % 2 ? KC_BF16 : KC_F32;
    if (!use_variant(_i / 10))
        return;
    const double exact = type == KC_F32 ? 5e-6 : 8e-3; /* bf16: dx is rounded, part by part */
    struct tensor x = STORED(type, 3, z[0], z[1], h), w = STORED(type, 1, v, h), targets = MAKE(KC_I32, 0, z[0], z[1]);
    struct tensor largest = MAKE(KC_F32, 0, z[0], z[1]), sums = MAKE(KC_F32, 0, z[0], z[1], 2);
    struct tensor out[] = {MAKE(KC_F32, 0, v, h), STORED(type, 0, z[0], z[1], h), MAKE(KC_F64, 0, 2)};
    double *result = out[2].view.data, count = 0, *dw = calloc(v * h, sizeof *dw), *dx = calloc(rows * h, sizeof *dx);
    int32_t *target = targets.view.data;
    for (uint64_t r = 0; r < rows; r++) {
        target[r] = r % 4 == 2 ? -1 : (int32_t)(r * 7 % v);
        count += target[r] >= 0;
    }
    const double loss = naive(&x, &w, target, rows, h, v, dw, dx);
    struct part part[5];
    float *sum = calloc(rows * h, sizeof *sum);
    for (uint64_t i = 0; i < parts; i++)
        part_begin(&part[i], &w, &x, parts, i);
    exchange(part, parts, &targets, &largest, &sums);
    result[0] = 5, result[1] = 7;
    for (int add = 1; add >= 0; add--) {
        ck_assert_int_eq(run(KC_OP_VOCAB_LOSS, (struct tensor[]){targets, largest, sums}, 3, &out[2], 1, add, NULL, NULL), 0);
        ck_assert_double_eq_tol(result[0], 5 * add + loss, 2e-6 * loss + 1e-6);
        ck_assert_double_eq(result[1], 7 * add + count);
    }
    struct tensor left_out = none; /* by ranks whose tokens another one counts */
    ck_assert_int_eq(run(KC_OP_VOCAB_LOSS, (struct tensor[]){targets, largest, sums}, 3, &left_out, 1, 0, NULL, NULL), 0);
    for (uint64_t i = 0; i < parts; i++) {
        struct part *p = &part[i];
        ck_assert_int_eq(run(KC_OP_VOCAB_SLOPE, (struct tensor[]){p->logits, targets, largest, sums}, 4, &p->logits, 1, 0,
                             NULL, NULL), 0); /* in place */
        ck_assert_int_eq(run(KC_OP_PROJECT_W, (struct tensor[]){p->logits, x}, 2, &p->dw, 1, 0, NULL, NULL), 0);
        same("dw", floats(&p->dw), dw + p->first * h, p->dw.n, 5e-6);
        ck_assert_int_eq(run(KC_OP_PROJECT_I, (struct tensor[]){p->logits, p->w, none}, 3, &p->dx, 1, 0, NULL, NULL), 0);
        for (uint64_t k = 0; k < rows * h; k++)
            sum[k] += (float)value(&p->dx, k);
    }
    same("dx", sum, dx, rows * h, exact);

    /* the op that has all columns says the same, and leaves its result out where it is told to */
    ck_assert_int_eq(run(KC_OP_HEAD_LOSS_G, (struct tensor[]){x, w, targets}, 3, out, 3, 0, NULL, NULL), 0);
    ck_assert_double_eq_tol(result[0], loss, 2e-6 * loss + 1e-6);
    struct tensor silent[] = {MAKE(KC_F32, 0, v, h), STORED(type, 0, z[0], z[1], h), none};
    ck_assert_int_eq(run(KC_OP_HEAD_LOSS_G, (struct tensor[]){x, w, targets}, 3, silent, 3, 0, NULL, NULL), 0);
    ck_assert_mem_eq(floats(&silent[0]), floats(&out[0]), v * h * sizeof(float));
    ck_assert_int_eq(run(KC_OP_HEAD_LOSS_F, (struct tensor[]){x, w, targets}, 3, &left_out, 1, 0, NULL, NULL), 0);
    for (uint64_t i = 0; i < parts; i++)
        drop(&part[i].logits, 1), drop(&part[i].dw, 1), drop(&part[i].dx, 1);
    free(dw), free(dx), free(sum);
    drop(&x, 1), drop(&w, 1), drop(&targets, 1), drop(&largest, 1), drop(&sums, 1), drop(out, 3), drop(silent, 2);
    end_variant();
}
END_TEST

START_TEST(large_logits_and_what_is_not_a_number_survive_the_cut)
{
    if (!use_variant(_i))
        return;
    struct tensor logits = MAKE(KC_F32, 300, 1, 2, 20), targets = MAKE(KC_I32, 0, 1, 2);
    struct tensor largest = MAKE(KC_F32, 0, 1, 2), sums = MAKE(KC_F32, 0, 1, 2, 2), result = MAKE(KC_F64, 0, 2);
    int32_t *target = targets.view.data;
    target[0] = 25, target[1] = 3; /* the second is with another rank */
    logits.view.first[2] = 10;
    ck_assert_int_eq(run(KC_OP_VOCAB_MAX, &logits, 1, &largest, 1, 0, NULL, NULL), 0);
    ck_assert_int_eq(run(KC_OP_VOCAB_SUM, (struct tensor[]){logits, targets, largest}, 3, &sums, 1, 0, NULL, NULL), 0);
    for (int r = 0; r < 2; r++) {
        double most = -1e30, sum = 0;
        for (int j = 0; j < 20; j++)
            most = fmax(most, logits.exact[20 * r + j]);
        for (int j = 0; j < 20; j++)
            sum += exp(logits.exact[20 * r + j] - most);
        ck_assert_float_eq(floats(&largest)[r], (float)most);
        ck_assert_double_eq_tol((double)floats(&sums)[2 * r], sum, 1e-6 * sum);
        ck_assert_float_eq(floats(&sums)[2 * r + 1], r ? 0 : floats(&logits)[15]);
    }
    floats(&logits)[33] = NAN;
    ck_assert_int_eq(run(KC_OP_VOCAB_MAX, &logits, 1, &largest, 1, 0, NULL, NULL), 0);
    ck_assert_int_eq(run(KC_OP_VOCAB_SUM, (struct tensor[]){logits, targets, largest}, 3, &sums, 1, 0, NULL, NULL), 0);
    ck_assert_int_eq(run(KC_OP_VOCAB_LOSS, (struct tensor[]){targets, largest, sums}, 3, &result, 1, 0, NULL, NULL), 0);
    ck_assert(isnan(((double *)result.view.data)[0]) && isnan(floats(&sums)[2]) && !isnan(floats(&sums)[0]));
    drop(&logits, 1), drop(&targets, 1), drop(&largest, 1), drop(&sums, 1), drop(&result, 1);
    end_variant();
}
END_TEST

int main(void)
{
    Suite *s = suite_create("kernels of a cut vocabulary");
    TCase *t = tcase_create("ops");
    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, a_cut_vocabulary_has_the_loss_and_gradients_of_the_whole, 0, VARIANTS * 10);
    tcase_add_loop_test(t, large_logits_and_what_is_not_a_number_survive_the_cut, 0, VARIANTS);
    suite_add_tcase(s, t);
    return suite_run(s);
}
