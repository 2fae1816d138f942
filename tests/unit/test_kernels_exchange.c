/* test_kernels_exchange.c - an MLP of experts whose weights are with several ranks: every rank's ops run here, the rows and
 * counts between them carried by the test as `amounts` says, and what comes of it is what one rank with all experts has. */
#include "jobs/jobs.h"
#include "tests/unit/kernel_rig.h"
#include "tests/unit/suite.h"

#include <check.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS = 4 };

/* ranks, experts, tokens of a rank, experts a token, hidden, width of an expert; 1: nobody chooses the first half */
static const struct form {
    uint64_t ranks, experts, tokens, top, h, f;
    int skewed;
} forms[] = {{1, 4, 9, 2, 6, 5, 0}, {2, 4, 35, 2, 8, 5, 0}, {2, 8, 7, 3, 5, 9, 1}, {4, 8, 40, 2, 12, 7, 0}, {4, 4, 6, 1, 3, 2, 1}};
enum { FORMS = sizeof forms / sizeof *forms };

static const struct form *form;

static int32_t *numbers(const struct tensor *t)
{
    return t->view.data;
}

static uint64_t here(void)
{
    return form->experts / form->ranks;
}

static void call(enum kc_opcode op, const struct tensor *in, int ins, struct tensor *out, int outs, int home)
{
    struct kc_error e = {{0}};
    const double attr[] = {(double)form->ranks, home};
    ck_assert_msg(run_attrs(op, in, ins, out, outs, 0, attr, 2, &e) == 0, "%s", e.text);
}

/* The MLP of tokens on one rank: y = w·rows of each expert, and the derivative of the weights. */
struct rank {
    struct tensor x, choice, share, counts, place, rows, taken, amounts, mine, y, dy, home;
};

/* What a rank has of `tokens` tokens from number `first` on; room for rows of all tokens in `mine`. */
static struct rank rank_make(uint64_t tokens, uint64_t first, uint64_t room, const struct tensor *x, const struct tensor *choice)
{
    const uint64_t top = form->top, h = form->h;
    struct rank r = {.x = MAKE(KC_F32, 0, 1, tokens, h), .choice = MAKE(KC_I32, 0, 1, tokens, top),
                     .share = MAKE(KC_F32, 0, 1, tokens, top), .counts = MAKE(KC_I32, 0, form->experts),
                     .place = MAKE(KC_I32, 0, 1, tokens, top), .rows = MAKE(KC_F32, 0, 1, tokens, top, h),
                     .taken = MAKE(KC_I32, 0, form->experts), .amounts = MAKE(KC_I32, 0, 2, form->ranks),
                     .mine = MAKE(KC_F32, 1, 1, room, top, h), .y = MAKE(KC_F32, 1, 1, room, top, form->f),
                     .dy = MAKE(KC_F32, 1, 1, room, top, h), .home = MAKE(KC_F32, 0, 1, tokens, top, form->f)};
    memcpy(r.x.view.data, floats(x) + first * h, r.x.n * sizeof(float));
    memcpy(r.choice.view.data, numbers(choice) + first * top, r.choice.n * sizeof(int32_t));
    for (uint64_t i = 0; i < r.share.n; i++)
        floats(&r.share)[i] = 0.25f + (float)((first * top + i) % 7);
    call(KC_OP_ARRANGE_F, &r.choice, 1, (struct tensor[]){r.counts, r.place}, 2, 0);
    call(KC_OP_DISPATCH_F, (struct tensor[]){r.x, r.place}, 2, &r.rows, 1, 0);
    return r;
}

static void rank_free(struct rank *r)
{
    struct tensor all[] = {r->x, r->choice, r->share, r->counts, r->place, r->rows, r->taken, r->amounts, r->mine, r->y,
                           r->dy, r->home};
    drop(all, 12);
}

/* An all-to-all: from each rank's `from` as many rows as its amounts say to each other one, by source. */
static void carry(struct rank *ranks, struct tensor *const *from, struct tensor *const *to, uint64_t width)
{
    uint64_t went[RANKS] = {0};
    for (uint64_t r = 0; r < form->ranks; r++) {
        float *at = floats(to[r]);
        for (uint64_t s = 0; s < form->ranks; s++) {
            const int32_t n = numbers(&ranks[r].amounts)[form->ranks + s];
            ck_assert_int_eq(n, numbers(&ranks[s].amounts)[r]);
            memcpy(at, floats(from[s]) + went[s] * width, (size_t)n * width * sizeof(float));
            at += (uint64_t)n * width, went[s] += (uint64_t)n;
        }
    }
}

static void exchange_counts(struct rank *ranks)
{
    for (uint64_t r = 0; r < form->ranks; r++)
        for (uint64_t s = 0; s < form->ranks; s++)
            memcpy(numbers(&ranks[r].taken) + s * here(), numbers(&ranks[s].counts) + r * here(), here() * sizeof(int32_t));
}

/* Rows of all ranks to the ranks of their experts, in their order there. */
static void outward(struct rank *ranks)
{
    struct tensor got[RANKS], *from[RANKS], *to[RANKS];
    exchange_counts(ranks);
    for (uint64_t r = 0; r < form->ranks; r++) {
        call(KC_OP_AMOUNTS, (struct tensor[]){ranks[r].counts, ranks[r].taken}, 2, &ranks[r].amounts, 1, 0);
        got[r] = MAKE(KC_F32, 0, 1, ranks[r].mine.view.size[1], form->top, form->h);
        from[r] = &ranks[r].rows, to[r] = &got[r];
    }
    carry(ranks, from, to, form->h);
    for (uint64_t r = 0; r < form->ranks; r++)
        call(KC_OP_ORDER, (struct tensor[]){got[r], ranks[r].taken}, 2, &ranks[r].mine, 1, 0);
    drop(got, (int)form->ranks);
}

static void homeward(struct rank *ranks)
{
    struct tensor ordered[RANKS], *from[RANKS], *to[RANKS];
    for (uint64_t r = 0; r < form->ranks; r++) {
        call(KC_OP_AMOUNTS, (struct tensor[]){ranks[r].counts, ranks[r].taken}, 2, &ranks[r].amounts, 1, 1);
        ordered[r] = MAKE(KC_F32, 0, 1, ranks[r].y.view.size[1], form->top, form->f);
        call(KC_OP_ORDER, (struct tensor[]){ranks[r].y, ranks[r].taken}, 2, &ordered[r], 1, 1);
        from[r] = &ordered[r], to[r] = &ranks[r].home;
    }
    carry(ranks, from, to, form->f);
    drop(ordered, (int)form->ranks);
}

static void choices_fill(struct tensor *choice)
{
    for (uint64_t t = 0; t < choice->n / form->top; t++)
        for (uint64_t j = 0; j < form->top; j++) {
            const uint64_t half = form->experts / 2, pick = t * t * 5 + t / 3 + j;
            numbers(choice)[t * form->top + j] = (int32_t)(form->skewed ? half + pick % half : pick % form->experts);
        }
}

/* A rank's part of weights (experts, …): a view. */
static struct tensor weights_of(const struct tensor *w, uint64_t rank, uint64_t experts)
{
    struct tensor part = *w;
    part.view.size[0] = experts, part.view.first[0] = rank * experts;
    part.n = w->n / w->view.size[0] * experts;
    part.view.data = floats(w) + rank * part.n;
    return part;
}

START_TEST(experts_of_several_ranks_do_what_those_of_one_do)
{
    form = &forms[_i % FORMS];
    if (!use_variant(_i / FORMS))
        return;
    const uint64_t all = form->ranks * form->tokens, h = form->h, f = form->f;
    struct tensor x = MAKE(KC_F32, 1, 1, all, h), choice = MAKE(KC_I32, 0, 1, all, form->top), none = {.view = {0}};
    struct tensor w = MAKE(KC_F32, 1, form->experts, f, h), dw = MAKE(KC_F32, 0, form->experts, f, h);
    struct tensor parts = MAKE(KC_F32, 0, form->experts, f, h), y = MAKE(KC_F32, 0, 1, all, f), out = MAKE(KC_F32, 0, 1, form->tokens, f);
    choices_fill(&choice);
    struct rank one = rank_make(all, 0, all, &x, &choice), ranks[RANKS];
    call(KC_OP_EXPERTS_F, (struct tensor[]){one.rows, w, one.counts}, 3, &one.home, 1, 0);
    call(KC_OP_COMBINE_F, (struct tensor[]){one.home, one.place, one.share, none}, 4, &y, 1, 0);
    call(KC_OP_EXPERTS_W, (struct tensor[]){one.home, one.rows, one.counts}, 3, &dw, 1, 0);
    for (uint64_t i = 0; i < y.n; i++)
        y.exact[i] = (double)floats(&y)[i];
    for (uint64_t i = 0; i < dw.n; i++)
        dw.exact[i] = (double)floats(&dw)[i];

    for (uint64_t r = 0; r < form->ranks; r++)
        ranks[r] = rank_make(form->tokens, r * form->tokens, all, &x, &choice);
    outward(ranks);
    for (uint64_t r = 0; r < form->ranks; r++) {
        struct tensor own = weights_of(&w, r, here()), gradient = weights_of(&parts, r, here());
        call(KC_OP_EXPERTS_F, (struct tensor[]){ranks[r].mine, own, ranks[r].taken}, 3, &ranks[r].y, 1, 0);
        call(KC_OP_EXPERTS_W, (struct tensor[]){ranks[r].y, ranks[r].mine, ranks[r].taken}, 3, &gradient, 1, 0);
        /* y as the derivative of itself: back through the weights, against the formula */
        call(KC_OP_EXPERTS_I, (struct tensor[]){ranks[r].y, own, ranks[r].taken, none}, 4, &ranks[r].dy, 1, 0);
        for (uint64_t e = 0, row = 0; e < here(); e++)
            for (uint64_t s = 0; s < form->ranks; s++)
                for (int32_t i = 0; i < numbers(&ranks[r].taken)[s * here() + e]; i++, row++)
                    for (uint64_t k = 0; k < h; k++) {
                        double sum = 0;
                        for (uint64_t j = 0; j < f; j++)
                            sum += (double)floats(&ranks[r].y)[row * f + j] * own.exact[(r * here() + e) * f * h + j * h + k];
                        ck_assert_double_eq_tol((double)floats(&ranks[r].dy)[row * h + k], sum, 1e-4);
                    }
    }
    homeward(ranks);
    for (uint64_t r = 0; r < form->ranks; r++) {
        call(KC_OP_COMBINE_F, (struct tensor[]){ranks[r].home, ranks[r].place, ranks[r].share, none}, 4, &out, 1, 0);
        same("y", floats(&out), y.exact + r * form->tokens * f, form->tokens * f, 1e-6);
    }
    same("dw", floats(&parts), dw.exact, dw.n, 1e-6);
    for (uint64_t r = 0; r < form->ranks; r++)
        rank_free(&ranks[r]);
    rank_free(&one);
    drop(&x, 1), drop(&choice, 1), drop(&w, 1), drop(&dw, 1), drop(&parts, 1), drop(&y, 1), drop(&out, 1);
    end_variant();
}
END_TEST

/* As many rows as came are worked on, and no others: behind them nobody has written. */
START_TEST(swiglu_takes_the_rows_that_came)
{
    if (!use_variant(_i))
        return;
    const uint64_t rows = 40, f = 700; /* two tiles */
    struct tensor gate = MAKE(KC_F32, 3, 1, rows, 1, f), up = MAKE(KC_F32, 1, 1, rows, 1, f), dy = MAKE(KC_F32, 1, 1, rows, 1, f);
    struct tensor all[] = {MAKE(KC_F32, 0, 1, rows, 1, f), MAKE(KC_F32, 0, 1, rows, 1, f), MAKE(KC_F32, 0, 1, rows, 1, f)};
    struct tensor some[] = {MAKE(KC_F32, 0, 1, rows, 1, f), MAKE(KC_F32, 0, 1, rows, 1, f), MAKE(KC_F32, 0, 1, rows, 1, f)};
    struct tensor taken = MAKE(KC_I32, 0, 6);
    memcpy(numbers(&taken), (const int32_t[]){3, 0, 11, 7, 1, 5}, 6 * sizeof(int32_t));
    ck_assert_int_eq(run(KC_OP_SWIGLU_F, (struct tensor[]){gate, up}, 2, &all[0], 1, 0, NULL, NULL), 0);
    ck_assert_int_eq(run(KC_OP_SWIGLU_I, (struct tensor[]){dy, gate, up}, 3, all + 1, 2, 0, NULL, NULL), 0);
    ck_assert_int_eq(run(KC_OP_SWIGLU_ROWS_F, (struct tensor[]){gate, up, taken}, 3, &some[0], 1, 0, NULL, NULL), 0);
    ck_assert_int_eq(run(KC_OP_SWIGLU_ROWS_I, (struct tensor[]){dy, gate, up, taken}, 4, some + 1, 2, 0, NULL, NULL), 0);
    for (int k = 0; k < 3; k++) {
        ck_assert_mem_eq(floats(&some[k]), floats(&all[k]), 27 * f * sizeof(float));
        for (uint64_t i = 27 * f; i < rows * f; i++)
            ck_assert_float_eq(floats(&some[k])[i], 0);
    }
    drop(&gate, 1), drop(&up, 1), drop(&dy, 1), drop(all, 3), drop(some, 3), drop(&taken, 1);
    end_variant();
}
END_TEST

START_TEST(where_all_experts_are_rows_stay_in_place)
{
    static const struct form one = {1, 3, 4, 2, 5, 5, 0};
    form = &one;
    ck_assert(use_variant(0));
    struct tensor rows = MAKE(KC_F32, 1, 1, 4, 2, 5), other = MAKE(KC_F32, 0, 1, 4, 2, 5);
    struct tensor counts = MAKE(KC_I32, 0, 3), taken = MAKE(KC_I32, 0, 3);
    memcpy(numbers(&counts), (const int32_t[]){4, 1, 3}, 3 * sizeof(int32_t));
    lane.enqueued = 0;
    call(KC_OP_OUTWARD_F, (struct tensor[]){rows, counts}, 2, (struct tensor[]){rows, taken}, 2, 0);
    call(KC_OP_HOMEWARD_F, (struct tensor[]){rows, counts, taken}, 3, &rows, 1, 1);
    ck_assert_mem_eq(numbers(&taken), numbers(&counts), 3 * sizeof(int32_t));
    ck_assert_uint_eq(lane.enqueued, 1); /* the counts */
    call(KC_OP_OUTWARD_I, (struct tensor[]){rows, counts, taken}, 3, &other, 1, 0); /* or go to other memory */
    ck_assert_mem_eq(floats(&other), floats(&rows), rows.n * sizeof(float));
    drop(&rows, 1), drop(&other, 1), drop(&counts, 1), drop(&taken, 1);
    end_variant();
}
END_TEST

START_TEST(more_rows_than_there_is_room_for_are_an_error)
{
    static const struct form two = {2, 4, 2, 1, 3, 3, 0};
    form = &two;
    ck_assert(use_variant(0));
    struct kc_error e = {{0}};
    struct tensor rows = MAKE(KC_F32, 1, 1, 4, 1, 3), out = MAKE(KC_F32, 0, 1, 4, 1, 3), taken = MAKE(KC_I32, 0, 4);
    struct tensor few = MAKE(KC_I32, 0, 3), w = MAKE(KC_F32, 1, 2, 3, 3), x = MAKE(KC_F32, 1, 4), sum = MAKE(KC_F64, 0, 1);
    ck_assert_int_eq(run(KC_OP_EXPERTS_F, (struct tensor[]){rows, w, few}, 3, &out, 1, 0, NULL, &e), -EINVAL);
    ck_assert_str_eq(e.text, "op experts: 3 counts of rows for 2 experts");
    memcpy(numbers(&taken), (const int32_t[]){2, 1, 1, 1}, 4 * sizeof(int32_t));
    call(KC_OP_ORDER, (struct tensor[]){rows, taken}, 2, &out, 1, 0);
    ck_assert_int_eq(run(KC_OP_NORM, &x, 1, &sum, 1, 0, NULL, &e), -EIO);
    ck_assert_str_eq(e.text, "op order: 5 rows for the experts of this rank, there is room for 4");
    drop(&rows, 1), drop(&out, 1), drop(&taken, 1), drop(&few, 1), drop(&w, 1), drop(&x, 1), drop(&sum, 1);
    end_variant();
}
END_TEST

int main(void)
{
    Suite *s = suite_create("kernels of experts on several ranks");
    TCase *t = tcase_create("ops");
    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, experts_of_several_ranks_do_what_those_of_one_do, 0, VARIANTS * FORMS);
    tcase_add_loop_test(t, swiglu_takes_the_rows_that_came, 0, VARIANTS);
    tcase_add_test(t, where_all_experts_are_rows_stay_in_place);
    tcase_add_test(t, more_rows_than_there_is_room_for_are_an_error);
    suite_add_tcase(s, t);
    return suite_run(s);
}
