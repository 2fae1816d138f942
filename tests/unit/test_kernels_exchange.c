/* test_kernels_exchange.c - rows on their way to the ranks of their experts: an example by hand, and what is sent and sorted on one
 * side is there, in the order of (expert, source, row), on the other. */
#include "tests/unit/kernel_rig.h"
#include "tests/unit/suite.h"

#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS = 3, EXPERTS = 5, WIDTH = 4, ROWS = 20 };
/* Experts 0; 1, 2; 3, 4 are on ranks 0; 1; 2: parts as even as can be of five over three. */
static const uint64_t first[RANKS + 1] = {0, 1, 3, 5};
static const int32_t counts[RANKS][EXPERTS] = {{2, 0, 1, 3, 0}, {0, 0, 4, 1, 1}, {1, 2, 0, 0, 3}};

static struct tensor whole_numbers(int rank, const uint64_t *size, const int32_t *values, uint64_t at)
{
    struct tensor t = make(KC_I32, rank, size, 0);
    if (values)
        memcpy(t.view.data, values, t.n * sizeof *values);
    t.view.first[0] = at;
    return t;
}

struct plan {
    struct tensor in[2], out[2]; /* counts, table; moves, own */
};

static struct plan plan_of(uint32_t rank)
{
    const uint64_t experts = EXPERTS, all[2] = {RANKS, EXPERTS}, moves[2] = {2, RANKS}, here = first[rank + 1] - first[rank];
    struct plan p = {.in = {whole_numbers(1, &experts, counts[rank], 0), whole_numbers(2, all, counts[0], 0)},
                     .out = {whole_numbers(2, moves, NULL, 0), whole_numbers(1, &here, NULL, first[rank])}};
    struct kc_error e = {""};
    ck_assert_msg(run(KC_OP_EXCHANGE_PLAN, p.in, 2, p.out, 2, 0, NULL, &e) == 0, "%s", e.text);
    return p;
}

static void plan_drop(struct plan *p)
{
    drop(p->in, 2);
    drop(p->out, 2);
}

START_TEST(a_plan_says_how_many_go_where)
{
    static const int32_t moves[RANKS][2 * RANKS] = {{2, 1, 3, 2, 0, 1}, {0, 4, 2, 1, 4, 2}, {1, 2, 3, 3, 2, 3}};
    static const int32_t own[RANKS][2] = {{3}, {2, 5}, {4, 4}};
    ck_assert(use_variant(0));
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        struct plan p = plan_of(rank);
        ck_assert_mem_eq(p.out[0].view.data, moves[rank], sizeof moves[rank]);
        ck_assert_mem_eq(p.out[1].view.data, own[rank], p.out[1].n * sizeof(int32_t));
        plan_drop(&p);
    }
    end_variant();
}
END_TEST

START_TEST(rows_stand_by_expert_then_source_and_go_back_as_they_came)
{
    const uint64_t size[4] = {1, ROWS / 2, 2, WIDTH};
    ck_assert(use_variant(0));
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        struct plan p = plan_of(rank);
        struct tensor in[3] = {MAKE(KC_F32, 1, 1, ROWS / 2, 2, WIDTH), p.in[1], p.out[1]},
                      sorted = make(KC_F32, 4, size, 0), back = make(KC_F32, 4, size, 0);
        float *row = in[0].view.data, *at = sorted.view.data;
        uint64_t n = 0;
        for (uint64_t m = 0; m < RANKS; m++) /* what arrives: by source, then expert */
            for (uint64_t x = first[rank]; x < first[rank + 1]; x++)
                for (int32_t i = 0; i < counts[m][x]; i++, n++)
                    for (int k = 0; k < WIDTH; k++)
                        row[n * WIDTH + (uint64_t)k] = (float)(1000 * x + 100 * m + 10 * (uint64_t)i) + (float)k;
        struct kc_error e = {""};
        ck_assert_msg(run(KC_OP_EXCHANGE_SORT, in, 3, &sorted, 1, 0, NULL, &e) == 0, "%s", e.text);
        for (uint64_t r = 1; r < n; r++)
            ck_assert_double_gt((double)at[r * WIDTH], (double)at[(r - 1) * WIDTH]);
        in[1] = p.in[1], in[2] = p.out[1];
        const struct tensor again[3] = {sorted, p.in[1], p.out[1]};
        ck_assert_int_eq(run(KC_OP_EXCHANGE_UNSORT, again, 3, &back, 1, 0, NULL, &e), 0);
        ck_assert_mem_eq(back.view.data, in[0].view.data, n * WIDTH * sizeof(float));
        drop(in, 1);
        drop(&sorted, 1);
        drop(&back, 1);
        plan_drop(&p);
    }
    end_variant();
}
END_TEST

START_TEST(on_one_rank_nothing_moves)
{
    ck_assert(use_variant(0));
    struct tensor in[4] = {MAKE(KC_F32, 1, 1, 5, 2, WIDTH), MAKE(KC_I32, 0, 1, EXPERTS), MAKE(KC_I32, 0, 2, 1),
                           MAKE(KC_I32, 0, EXPERTS)},
                  out = MAKE(KC_F32, 0, 1, 5, 2, WIDTH), copy = MAKE(KC_I32, 0, 1, EXPERTS);
    memcpy(in[3].view.data, counts[1], sizeof counts[1]);
    struct kc_error e = {""};
    ck_assert_int_eq(run(KC_OP_TO_EXPERTS, in, 4, &out, 1, 0, NULL, &e), 0);
    ck_assert_mem_eq(out.view.data, in[0].view.data, in[0].n * sizeof(float));
    const uint64_t tiles = lane.enqueued;
    struct tensor same_memory = in[0];
    ck_assert_int_eq(run(KC_OP_FROM_EXPERTS, in, 4, &same_memory, 1, 0, NULL, &e), 0);
    ck_assert_uint_eq(lane.enqueued, tiles); /* not even a copy */
    ck_assert_int_eq(run(KC_OP_EXCHANGE_COUNTS, &in[3], 1, &copy, 1, 0, NULL, &e), 0);
    ck_assert_mem_eq(copy.view.data, counts[1], sizeof counts[1]);
    drop(in, 4);
    drop(&out, 1);
    drop(&copy, 1);
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
    memcpy((int32_t *)taken.view.data, (const int32_t[]){3, 0, 11, 7, 1, 5}, 6 * sizeof(int32_t));
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

/* Nothing is written where there is no room; the next op says so. */
START_TEST(more_rows_than_there_is_room_for_are_an_error)
{
    ck_assert(use_variant(0));
    struct plan p = plan_of(1); /* seven rows */
    struct kc_error e = {""};
    struct tensor rows = MAKE(KC_F32, 1, 1, 3, 2, WIDTH), out = MAKE(KC_F32, 0, 1, 3, 2, WIDTH), sum = MAKE(KC_F64, 0, 1);
    ck_assert_int_eq(run(KC_OP_EXCHANGE_SORT, (struct tensor[]){rows, p.in[1], p.out[1]}, 3, &out, 1, 0, NULL, &e), 0);
    ck_assert_int_eq(run(KC_OP_NORM, &rows, 1, &sum, 1, 0, NULL, &e), -EIO);
    ck_assert_str_eq(e.text, "op exchange.sort: 7 rows for the experts of this rank, there is room for 6");
    drop(&rows, 1), drop(&out, 1), drop(&sum, 1);
    plan_drop(&p);
    end_variant();
}
END_TEST

int main(void)
{
    Suite *s = suite_create("kernels of the exchange");
    TCase *t = tcase_create("rows");
    tcase_add_test(t, a_plan_says_how_many_go_where);
    tcase_add_test(t, rows_stand_by_expert_then_source_and_go_back_as_they_came);
    tcase_add_test(t, on_one_rank_nothing_moves);
    tcase_add_test(t, more_rows_than_there_is_room_for_are_an_error);
    tcase_add_loop_test(t, swiglu_takes_the_rows_that_came, 0, VARIANTS);
    suite_add_tcase(s, t);
    return suite_run(s);
}
