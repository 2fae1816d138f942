/* test_kernels_ring.c - attention with the sequence cut over c ranks: all rounds of all ranks run here, keys and values and
 * what is owed to them handed on by the test, and what comes of it is that of formulas in f64 over the whole sequence. */
#include "base/bf16.h"
#include "jobs/jobs.h"
#include "tests/unit/kernel_rig.h"
#include "tests/unit/suite.h"

#include <check.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS = 4, Q = 0, K, V, DY, WHOLE };
static const struct tensor none = {.view = {0}};

/* ranks, batch, tokens of a chunk, query heads, key/value heads, width of a head, documents */
static const struct form {
    uint64_t c, b, chunk, heads, kv_heads, d;
    int documents;
} forms[] = {
    {1, 1, 5, 1, 1, 4, 0},    {2, 2, 3, 2, 1, 6, 1},    {2, 1, 70, 4, 2, 8, 0},  {2, 1, 70, 3, 1, 8, 1},
    {3, 1, 1, 2, 2, 3, 0},    {3, 2, 33, 4, 2, 10, 1},  {4, 1, 40, 2, 2, 64, 1}, {4, 1, 150, 2, 1, 16, 0},
    {2, 1, 160, 1, 1, 20, 1}, {4, 1, 5, 6, 3, 7, 1},    {2, 1, 66, 2, 1, 160, 0},
};
enum { FORMS = sizeof forms / sizeof *forms };

/* Whole operands in f64, and what is wanted of them. */
struct whole {
    struct form f;
    int type;
    uint64_t t;
    double *in[WHOLE], *y, *lse, *dq, *dk, *dv; /* (B, T, A or KV, D); lse (B, A, T) */
    int32_t *starts;                            /* (B, T) */
};

static double *doubles(uint64_t n)
{
    return calloc(n + 1, sizeof(double));
}

/* A number that the type can hold. */
static double held(int type, double x)
{
    return type == KC_BF16 ? (double)kc_bf16_to_float(kc_bf16_from_float((float)x)) : (double)(float)x;
}

static double dot(const double *a, const double *b, uint64_t n)
{
    double sum = 0;
    for (uint64_t i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

/* y, lse and the derivatives of Σ dy·y of one query: dV = PᵀdY, dS = P∘(dY·Vᵀ − Σ P∘dY·Vᵀ), dQ = dS·K/√d, dK = dSᵀ·Q/√d */
static void naive_query(struct whole *w, uint64_t b, uint64_t a, uint64_t i, double *p)
{
    const struct form *f = &w->f;
    const uint64_t d = f->d, at = ((b * w->t + i) * f->heads + a) * d, ldk = f->kv_heads * d;
    const uint64_t kv = b * w->t * ldk + a / (f->heads / f->kv_heads) * d, first = (uint64_t)w->starts[b * w->t + i];
    const double root = sqrt((double)d), *q = w->in[Q] + at, *dy = w->in[DY] + at;
    double sum = 0, mean = 0, largest = -1e300;
    for (uint64_t j = first; j <= i; j++)
        largest = fmax(largest, p[j] = dot(q, w->in[K] + kv + j * ldk, d) / root);
    for (uint64_t j = first; j <= i; j++)
        sum += p[j] = exp(p[j] - largest);
    w->lse[(b * f->heads + a) * w->t + i] = largest + log(sum);
    for (uint64_t j = first; j <= i; j++)
        mean += (p[j] /= sum) * dot(dy, w->in[V] + kv + j * ldk, d);
    for (uint64_t j = first; j <= i; j++) {
        const double *k = w->in[K] + kv + j * ldk, *v = w->in[V] + kv + j * ldk;
        const double ds = p[j] * (dot(dy, v, d) - mean) / root;
        for (uint64_t c = 0; c < d; c++) {
            w->y[at + c] += p[j] * v[c];
            w->dq[at + c] += ds * k[c];
            w->dk[kv + j * ldk + c] += ds * q[c];
            w->dv[kv + j * ldk + c] += p[j] * dy[c];
        }
    }
}

static struct whole whole_make(const struct form *f, int type, double scale)
{
    struct whole w = {.f = *f, .type = type, .t = 2 * f->c * f->chunk};
    const uint64_t tokens = f->b * w.t, wide = tokens * f->heads * f->d, narrow = tokens * f->kv_heads * f->d;
    for (int i = 0; i < WHOLE; i++) {
        w.in[i] = doubles(i == Q || i == DY ? wide : narrow);
        for (uint64_t n = 0; n < (i == Q || i == DY ? wide : narrow); n++)
            w.in[i][n] = held(type, (i == DY ? 1 : scale) * noise());
    }
    w.y = doubles(wide), w.dq = doubles(wide), w.lse = doubles(tokens * f->heads);
    w.dk = doubles(narrow), w.dv = doubles(narrow), w.starts = calloc(tokens, sizeof *w.starts);
    for (uint64_t n = 0; f->documents && n < tokens; n++) { /* of one token, of a few, of many chunks */
        const uint64_t i = n % w.t, b = n / w.t;
        const int begins = i == w.t / 2 + 1 || i == w.t / 2 + 2 || i == (b + 1) * w.t / 5 || i == w.t - 2;
        w.starts[n] = i == 0 ? 0 : begins ? (int32_t)i : w.starts[n - 1];
    }
    double *p = doubles(w.t);
    for (uint64_t n = 0; n < tokens * f->heads; n++)
        naive_query(&w, n / f->heads / w.t, n % f->heads, n / f->heads % w.t, p);
    free(p);
    return w;
}

static void whole_free(struct whole *w)
{
    for (int i = 0; i < WHOLE; i++)
        free(w->in[i]);
    free(w->y), free(w->lse), free(w->dq), free(w->dk), free(w->dv), free(w->starts);
}

/* Where in the sequence row t of a rank stands. */
static uint64_t position(const struct form *f, uint64_t rank, uint64_t t)
{
    return (t < f->chunk ? rank : 2 * f->c - 2 - rank) * f->chunk + t;
}

/* A rank's rows of (B, T, heads, D), empty where `from` is NULL; the exact numbers beside them. */
static struct tensor rows_of(const struct whole *w, uint64_t rank, uint64_t heads, int type, const double *from)
{
    const struct form *f = &w->f;
    struct tensor t = MAKE(type, 0, f->b, 2 * f->chunk, heads, f->d);
    t.view.first[1] = rank * 2 * f->chunk;
    const uint64_t width = heads * f->d;
    for (uint64_t i = 0; from && i < t.n; i++) {
        const uint64_t row = i / width, b = row / (2 * f->chunk), at = position(f, rank, row % (2 * f->chunk));
        const double x = t.exact[i] = from[(b * w->t + at) * width + i % width];
        if (type == KC_BF16)
            ((uint16_t *)t.view.data)[i] = kc_bf16_from_float((float)x);
        else
            floats(&t)[i] = (float)x;
    }
    return t;
}

struct rank {
    struct tensor in[WHOLE], positions, starts, y, stored, lse, dq, dk, dv;
};

static struct rank rank_make(const struct whole *w, uint64_t i)
{
    const struct form *f = &w->f;
    struct rank r = {.positions = MAKE(KC_I32, 0, f->b, 2 * f->chunk), .starts = none,
                     .lse = MAKE(KC_F32, 0, f->b, f->heads, 2 * f->chunk)};
    if (f->documents)
        r.starts = MAKE(KC_I32, 0, f->b, 2 * f->chunk);
    for (uint64_t n = 0; n < r.positions.n; n++) {
        const uint64_t at = position(f, i, n % (2 * f->chunk));
        ((int32_t *)r.positions.view.data)[n] = (int32_t)at;
        if (f->documents)
            ((int32_t *)r.starts.view.data)[n] = w->starts[n / (2 * f->chunk) * w->t + at];
    }
    for (int k = 0; k < WHOLE; k++)
        r.in[k] = rows_of(w, i, k == Q || k == DY ? f->heads : f->kv_heads, w->type, w->in[k]);
    r.y = rows_of(w, i, f->heads, KC_F32, w->y), r.dq = rows_of(w, i, f->heads, KC_F32, w->dq);
    r.stored = rows_of(w, i, f->heads, w->type, NULL);
    r.dk = rows_of(w, i, f->kv_heads, KC_F32, w->dk), r.dv = rows_of(w, i, f->kv_heads, KC_F32, w->dv);
    for (uint64_t n = 0; n < r.lse.n; n++)
        r.lse.exact[n] = w->lse[n / (2 * f->chunk) * w->t + position(f, i, n % (2 * f->chunk))];
    return r;
}

static void rank_free(struct rank *r)
{
    drop(r->in, WHOLE);
    drop(&r->positions, 1), drop(&r->starts, 1), drop(&r->y, 1), drop(&r->stored, 1), drop(&r->lse, 1);
    drop(&r->dq, 1), drop(&r->dk, 1), drop(&r->dv, 1);
}

/* Something else than zeros in what is to be written. */
static void spoil(struct tensor *t)
{
    for (uint64_t i = 0; i < t->n; i++)
        floats(t)[i] = 1e9f;
}

static void call(const struct form *f, enum kc_opcode op, const struct tensor *in, int ins, struct tensor *out, int outs,
                 uint64_t round)
{
    struct kc_error e = {{0}};
    const double attr[] = {(double)(f->heads / f->kv_heads), (double)round, (double)f->c};
    const uint32_t skip = f->heads == f->kv_heads; /* then one head each may go unsaid */
    ck_assert_msg(run_attrs(op, in, ins, out, outs, 0, attr + skip, 3 - skip, &e) == 0, "%s", e.text);
}

/* All rounds of a rank; y in place from the second on, as plans have it, lse from memory to memory. */
static void forward(const struct whole *w, struct rank *ranks, uint64_t i)
{
    const struct form *f = &w->f;
    struct rank *own = &ranks[i];
    struct tensor other = MAKE(KC_F32, 0, f->b, f->heads, 2 * f->chunk), *lse[] = {&own->lse, &other};
    spoil(&own->y), spoil(&own->lse), spoil(&other);
    for (uint64_t r = 0; r < f->c; r++) {
        const struct rank *with = &ranks[(i + f->c - r) % f->c];
        const struct tensor in[] = {own->in[Q], with->in[K], with->in[V], own->positions, own->starts, r ? own->y : none,
                                    r ? *lse[(r + 1) % 2] : none};
        call(f, KC_OP_RING_F, in, 7, (struct tensor[]){own->y, *lse[r % 2]}, 2, r);
    }
    memcpy(floats(&own->lse), floats(lse[(f->c + 1) % 2]), own->lse.n * sizeof(float));
    drop(&other, 1);
    ck_assert_int_eq(run(KC_OP_CONVERT, &own->y, 1, &own->stored, 1, 0, NULL, NULL), 0);
}

/* One round of a rank: dq in place, dk and dv from what comes with k and v to new memory. */
static void backward(const struct whole *w, struct rank *ranks, uint64_t i, uint64_t round)
{
    const struct form *f = &w->f;
    struct rank *own = &ranks[i], *with = &ranks[(i + f->c - round) % f->c];
    struct tensor out[] = {own->dq, rows_of(w, i, f->kv_heads, KC_F32, NULL), rows_of(w, i, f->kv_heads, KC_F32, NULL)};
    const struct tensor in[] = {own->in[DY], own->in[Q], with->in[K], with->in[V], own->stored, own->lse, own->positions,
                                own->starts, round ? own->dq : none, round ? with->dk : none, round ? with->dv : none};
    spoil(&out[1]), spoil(&out[2]);
    if (round == 0)
        spoil(&own->dq);
    call(f, KC_OP_RING_I, in, 11, out, 3, round);
    memcpy(floats(&with->dk), floats(&out[1]), out[1].n * sizeof(float));
    memcpy(floats(&with->dv), floats(&out[2]), out[2].n * sizeof(float));
    drop(out + 1, 2);
}

START_TEST(rounds_make_the_attention_of_the_whole)
{
    const struct form *f = &forms[_i % FORMS];
    const int type = _i / FORMS % 2 ? KC_BF16 : KC_F32;
    if (!use_variant(_i / FORMS / 2))
        return;
    struct whole w = whole_make(f, type, 2);
    struct rank ranks[RANKS];
    for (uint64_t i = 0; i < f->c; i++)
        ranks[i] = rank_make(&w, i);
    for (uint64_t i = 0; i < f->c; i++) {
        forward(&w, ranks, i);
        same("y", floats(&ranks[i].y), ranks[i].y.exact, ranks[i].y.n, 5e-6); /* f32 of either precision */
        same("lse", floats(&ranks[i].lse), ranks[i].lse.exact, ranks[i].lse.n, 3e-6);
    }
    for (uint64_t r = 0; r < f->c; r++)
        for (uint64_t i = 0; i < f->c; i++)
            backward(&w, ranks, i, r);
    const double exact = type == KC_F32 ? 2e-5 : 1e-2; /* y was rounded */
    for (uint64_t i = 0; i < f->c; i++) {
        same("dq", floats(&ranks[i].dq), ranks[i].dq.exact, ranks[i].dq.n, exact);
        same("dk", floats(&ranks[i].dk), ranks[i].dk.exact, ranks[i].dk.n, exact);
        same("dv", floats(&ranks[i].dv), ranks[i].dv.exact, ranks[i].dv.n, exact);
        rank_free(&ranks[i]);
    }
    whole_free(&w);
    end_variant();
}
END_TEST

/* Heads cut over ranks as well, unevenly: each rank's heads with the key/value heads that it holds. */
START_TEST(heads_may_be_cut_as_well)
{
    if (!use_variant(_i))
        return;
    const struct form f = {2, 1, 40, 6, 3, 8, 1};
    struct whole w = whole_make(&f, KC_F32, 2);
    const uint64_t own = 1, first = 3, heads = 3, kv_first = 1, kv = 2; /* query heads 3, 4, 5 read 1, 2 and 2 */
    struct rank whole = rank_make(&w, own), with = rank_make(&w, 0);
    struct tensor y = MAKE(KC_F32, 0, 1, 80, heads, 8), lse = MAKE(KC_F32, 0, 1, heads, 80);
    for (uint64_t r = 0; r < 2; r++) {
        const struct rank *from = r ? &with : &whole;
        struct tensor in[] = {MAKE(KC_F32, 0, 1, 80, heads, 8), MAKE(KC_F32, 0, 1, 80, kv, 8), MAKE(KC_F32, 0, 1, 80, kv, 8),
                              whole.positions, whole.starts, r ? y : none, r ? lse : none};
        for (uint64_t t = 0; t < 80; t++) {
            memcpy(floats(&in[0]) + t * heads * 8, floats(&whole.in[Q]) + (t * 6 + first) * 8, heads * 8 * sizeof(float));
            for (int k = 1; k < 3; k++)
                memcpy(floats(&in[k]) + t * kv * 8, floats(&from->in[k]) + (t * 3 + kv_first) * 8, kv * 8 * sizeof(float));
        }
        in[0].view.first[1] = own * 80, in[0].view.first[2] = first, in[1].view.first[2] = kv_first;
        call(&f, KC_OP_RING_F, in, 7, (struct tensor[]){y, lse}, 2, r);
        drop(in, 3);
    }
    for (uint64_t t = 0; t < 80; t++)
        memcpy(y.exact + t * heads * 8, whole.y.exact + (t * 6 + first) * 8, heads * 8 * sizeof(double));
    same("y of some heads", floats(&y), y.exact, y.n, 5e-6);
    drop(&y, 1), drop(&lse, 1), rank_free(&whole), rank_free(&with), whole_free(&w);
    end_variant();
}
END_TEST

START_TEST(large_scores_and_what_is_not_a_number_go_round)
{
    if (!use_variant(_i))
        return;
    const struct form f = {2, 1, 30, 1, 1, 8, 0};
    struct whole w = whole_make(&f, KC_F32, 20); /* scores near ±300 */
    struct rank ranks[] = {rank_make(&w, 0), rank_make(&w, 1)};
    for (uint64_t i = 0; i < 2; i++) {
        forward(&w, ranks, i);
        same("y", floats(&ranks[i].y), ranks[i].y.exact, ranks[i].y.n, 1e-3);
    }
    floats(&ranks[1].in[V])[0] = NAN; /* at position 30: the first of rank 1's first chunk */
    for (uint64_t i = 0; i < 2; i++) {
        forward(&w, ranks, i);
        for (uint64_t t = 0; t < 60; t++)
            ck_assert_int_eq(isnan(floats(&ranks[i].y)[8 * t]), position(&f, i, t) >= 30);
    }
    rank_free(&ranks[0]), rank_free(&ranks[1]), whole_free(&w);
    end_variant();
}
END_TEST

START_TEST(rows_that_are_no_pair_of_chunks_are_refused)
{
    ck_assert(use_variant(0));
    struct kc_error e = {{0}};
    struct tensor q = MAKE(KC_F32, 1, 1, 6, 1, 4), at = MAKE(KC_I32, 0, 1, 6);
    struct tensor out[] = {MAKE(KC_F32, 0, 1, 6, 1, 4), MAKE(KC_F32, 0, 1, 1, 6)};
    const struct tensor in[] = {q, q, q, at, none, none, none};
    ck_assert_int_eq(run_attrs(KC_OP_RING_F, in, 7, out, 2, 0, (const double[]){2, 2}, 2, &e), -EINVAL);
    ck_assert_str_eq(e.text, "op ring-attention: takes two or three attributes, a round and rounds the last; has 2");
    struct tensor moved[7];
    memcpy(moved, in, sizeof in);
    moved[0].view.first[1] = 12;
    ck_assert_int_eq(run_attrs(KC_OP_RING_F, moved, 7, out, 2, 0, (const double[]){0, 2}, 2, &e), -EINVAL);
    ck_assert_str_eq(e.text, "op ring-attention: rows 12 to 18 are no pair of chunks of 2 ranks");
    ck_assert_int_eq(run_attrs(KC_OP_RING_F, in, 7, out, 2, 0, (const double[]){2, 0, 2}, 3, &e), 0);
    moved[0].view.first[1] = 0, moved[1].view.first[2] = 1;
    ck_assert_int_eq(run_attrs(KC_OP_RING_F, moved, 7, out, 2, 0, (const double[]){0, 2}, 2, &e), -EINVAL);
    ck_assert_ptr_nonnull(strstr(e.text, "which are here from 1 on: 1"));
    drop(&q, 1), drop(&at, 1), drop(out, 2);
    end_variant();
}
END_TEST

START_TEST(split_and_join_are_each_others_way_back)
{
    if (!use_variant(_i))
        return;
    const uint64_t b = 2, t = 35, a = 3, d = 5;
    struct tensor qkv = MAKE(KC_F32, 1, b, t, 3, a, d), back = MAKE(KC_F32, 0, b, t, 3, a, d), half = MAKE(KC_BF16, 0, b, t, 3, a, d);
    struct tensor part[] = {MAKE(KC_F32, 0, b, t, a, d), MAKE(KC_F32, 0, b, t, a, d), MAKE(KC_F32, 0, b, t, a, d)};
    ck_assert_int_eq(run(KC_OP_SPLIT, &qkv, 1, part, 3, 0, NULL, NULL), 0);
    for (uint64_t i = 0; i < qkv.n; i++)
        ck_assert_float_eq(floats(&part[i / (a * d) % 3])[i / (3 * a * d) * a * d + i % (a * d)], floats(&qkv)[i]);
    ck_assert_int_eq(run(KC_OP_JOIN, part, 3, &back, 1, 0, NULL, NULL), 0);
    ck_assert_mem_eq(floats(&back), floats(&qkv), qkv.n * sizeof(float));
    ck_assert_int_eq(run(KC_OP_JOIN, part, 3, &half, 1, 0, NULL, NULL), 0); /* and rounded on the way */
    for (uint64_t i = 0; i < qkv.n; i++)
        ck_assert_uint_eq(((uint16_t *)half.view.data)[i], kc_bf16_from_float(floats(&qkv)[i]));
    drop(&qkv, 1), drop(&back, 1), drop(&half, 1), drop(part, 3);
    end_variant();
}
END_TEST

int main(void)
{
    Suite *s = suite_create("kernels in rounds");
    TCase *t = tcase_create("ops");
    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, rounds_make_the_attention_of_the_whole, 0, VARIANTS * 2 * FORMS);
    tcase_add_loop_test(t, heads_may_be_cut_as_well, 0, VARIANTS);
    tcase_add_loop_test(t, large_scores_and_what_is_not_a_number_go_round, 0, VARIANTS);
    tcase_add_test(t, rows_that_are_no_pair_of_chunks_are_refused);
    tcase_add_loop_test(t, split_and_join_are_each_others_way_back, 0, VARIANTS);
    suite_add_tcase(s, t);
    return suite_run(s);
}
