/* test_order.c - the orders of a pipeline: their lists for every shape, what the papers say that they cost and keep,
 * the proof and its faults, the chart. */
#include "contracts/shard_plan.h"
#include "schedule/order.h"

#include "suite.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const names[] = {"gpipe", "1f1b", "interleaved", "zero-bubble"};
#define NAMES (sizeof names / sizeof *names)

static struct kc_order_lists lists_of(const char *name, uint32_t ranks, uint32_t chunks, uint32_t micros,
                                      const struct kc_order_costs *costs)
{
    const struct kc_order_row *row;
    struct kc_order_lists l;
    struct kc_error e = {""};
    ck_assert_msg(kc_order_find(name, chunks, &row, &e) == 0, "%s", e.text);
    const struct kc_order_shape shape = {.ranks = ranks, .chunks = chunks, .micros = micros};
    ck_assert_msg(kc_order_new(row, shape, costs, &l, &e) == 0, "%s", e.text);
    return l;
}

static struct kc_order_times times_of(const char *name, uint32_t ranks, uint32_t chunks, uint32_t micros,
                                      const struct kc_order_costs *costs)
{
    struct kc_order_lists l = lists_of(name, ranks, chunks, micros, costs);
    struct kc_order_times t;
    struct kc_error e = {""};
    ck_assert_msg(kc_order_play(&l, costs, &t, NULL, &e) == 0, "%s", e.text);
    kc_order_free(&l);
    return t;
}

/* Every stage costs the same. */
#define STAGES_MOST 64
struct even {
    struct kc_stage_cost stage[STAGES_MOST];
    struct kc_order_costs costs;
};
static const struct kc_order_costs *even_costs(struct even *u, double f, double i, double w, double send)
{
    for (uint32_t s = 0; s < STAGES_MOST; s++)
        u->stage[s] = (struct kc_stage_cost){f, i, w};
    u->costs = (struct kc_order_costs){u->stage, send};
    return &u->costs;
}

static void ck_near(double a, double b)
{
    ck_assert_msg(fabs(a - b) <= 1e-9 * (1 + fabs(b)), "%.12g is not %.12g", a, b);
}

/* ---- lists ---- */

static uint32_t holder(const struct kc_order_lists *l, uint32_t stage)
{
    return kc_stage_coordinate((enum kc_pipeline)l->row->pipeline, l->shape.ranks, l->shape.chunks, stage);
}

/* A tensor is made in one turn of a rank and used last in another. */
struct life {
    struct kc_turn_at from, to;
};

static bool is(const struct kc_turn *t, struct kc_turn_at at)
{
    return t->stage == at.stage &&
           (t->kind == at.kind || (t->kind == KC_TURN_B && (at.kind == KC_TURN_I || at.kind == KC_TURN_W)));
}

/* Play it: its slot is free when it is written, and holds it when it is used. */
static bool slots_are_free(const struct kc_order_lists *l, struct life life)
{
    uint32_t held[64] = {0};
    const uint32_t rank = holder(l, life.from.stage),
                   slots = kc_order_slots(l, life.from, life.to);
    for (uint32_t i = l->first[rank]; slots && i < l->first[rank + 1]; i++) { /* none: that turn is not in the list */
        const struct kc_turn *t = &l->turns[i];
        uint32_t *slot = &held[t->micro % slots];
        if (is(t, life.from)) {
            if (*slot)
                return false;
            *slot = t->micro + 1;
        }
        if (is(t, life.to)) {
            if (*slot != t->micro + 1)
                return false;
            *slot = 0;
        }
    }
    return true;
}

static bool every_slot_is_free(const struct kc_order_lists *l)
{
    bool good = true;
    for (uint32_t s = 0; s < l->shape.ranks * l->shape.chunks; s++) {
        const struct life life[] = {
            {{KC_TURN_F, s}, {KC_TURN_W, s}},      {{KC_TURN_F, s}, {KC_TURN_I, s}},
            {{KC_TURN_F, s}, {KC_TURN_SEND_F, s}}, {{KC_TURN_RECV_F, s}, {KC_TURN_W, s}},
            {{KC_TURN_I, s}, {KC_TURN_W, s}},      {{KC_TURN_RECV_I, s}, {KC_TURN_I, s}},
        };
        for (size_t k = 0; k < sizeof life / sizeof *life; k++)
            good = good && slots_are_free(l, life[k]);
        if (s && holder(l, s - 1) == holder(l, s))
            good = good && slots_are_free(l, (struct life){{KC_TURN_F, s - 1}, {KC_TURN_W, s}});
    }
    return good;
}

/* Under a sanitizer every fifth number of micro-batches: it looks for other faults than those of orders. */
#ifdef __SANITIZE_ADDRESS__
#define MICROS_STEP 5
#else
#define MICROS_STEP 1
#endif

START_TEST(every_order_of_every_shape_comes_to_its_end)
{
    const struct kc_order_row *row;
    struct kc_error e = {""};
    const uint32_t chunks = (uint32_t)_i % 4 + 1, ranks = (uint32_t)_i / 4 + 1;
    for (size_t n = 0; n < NAMES; n++)
        for (uint32_t micros = 1; micros <= 64; micros += MICROS_STEP) {
            if (kc_order_find(names[n], chunks, &row, NULL))
                break;
            struct kc_order_lists l = lists_of(names[n], ranks, chunks, micros, NULL);
            ck_assert_msg(kc_order_check(&l, &e) == 0, "%s", e.text);
            if (micros % 10 == 1)
                ck_assert_msg(every_slot_is_free(&l), "%s, %u ranks, %u chunks, %u micro-batches", names[n], ranks,
                              chunks, micros);
            kc_order_free(&l);
        }
}
END_TEST

START_TEST(costs_move_transfers_and_break_nothing)
{
    const double send[] = {0, 0.3, 2.5};
    struct kc_stage_cost stage[STAGES_MOST];
    uint32_t noise = 12345;
    for (int round = 0; round < 12; round++) {
        for (uint32_t s = 0; s < STAGES_MOST; s++) {
            double *const part[] = {&stage[s].f, &stage[s].i, &stage[s].w};
            for (int k = 0; k < 3; k++) /* an eighth of all turns takes no time at all */
                noise = noise * 1664525 + 1013904223, *part[k] = noise >> 29 ? (noise >> 24) / 64.0 : 0;
        }
        const struct kc_order_costs costs = {stage, send[round % 3]};
        const uint32_t ranks = 1 + (uint32_t)round % 7, micros = 1 + (uint32_t)round * 3;
        for (size_t n = 0; n < NAMES; n++)
            for (uint32_t chunks = 1; chunks <= 3; chunks++) {
                if (kc_order_find(names[n], chunks, &(const struct kc_order_row *){NULL}, NULL))
                    continue;
                struct kc_order_lists l = lists_of(names[n], ranks, chunks, micros, &costs);
                struct kc_order_times t;
                struct kc_error e = {""};
                ck_assert_msg(kc_order_play(&l, &costs, &t, NULL, &e) == 0, "%s", e.text);
                ck_assert(every_slot_is_free(&l));
                double way = 0; /* of one micro-batch, down and back: no order is faster than it */
                for (uint32_t s = 0; s < ranks * chunks; s++)
                    way += stage[s].f + stage[s].i;
                const uint32_t borders = ranks > 1 ? ranks * chunks - 1 - (chunks > 1 && holder(&l, ranks) == ranks - 1) : 0;
                ck_assert(t.total >= (way + 2 * borders * costs.send) * (1 - 1e-12) &&
                          t.total >= t.busiest * (1 - 1e-12));
                kc_order_free(&l);
            }
    }
}
END_TEST

START_TEST(the_same_arguments_give_the_same_lists)
{
    struct even u;
    const struct kc_order_costs *costs = even_costs(&u, 1, 1.5, 0.5, 0.2);
    struct kc_order_lists a = lists_of("interleaved", 4, 3, 10, costs), b = lists_of("interleaved", 4, 3, 10, costs);
    ck_assert_int_eq(memcmp(a.first, b.first, 5 * sizeof *a.first), 0);
    ck_assert_int_eq(memcmp(a.turns, b.turns, a.first[4] * sizeof *a.turns), 0);
    kc_order_free(&a);
    kc_order_free(&b);
}
END_TEST

START_TEST(a_rank_holds_its_chunks_and_no_others)
{
    for (uint32_t ranks = 1; ranks <= 9; ranks++)
        for (uint32_t chunks = 1; chunks <= 4; chunks++)
            for (size_t n = 0; n < NAMES; n++) {
                const struct kc_order_row *row;
                if (kc_order_find(names[n], chunks, &row, NULL))
                    continue;
                const enum kc_pipeline order = (enum kc_pipeline)row->pipeline;
                uint64_t seen = 0;
                ck_assert_str_eq(kc_pipeline_name[order], names[n]);
                for (uint32_t r = 0; r < ranks; r++)
                    for (uint32_t c = 0; c < chunks; c++) {
                        const uint32_t stage = kc_stage_of(order, ranks, chunks, r, c);
                        ck_assert_uint_eq(kc_stage_coordinate(order, ranks, chunks, stage), r);
                        seen |= 1ull << stage;
                    }
                ck_assert(seen == (1ull << (ranks * chunks)) - 1);
            }
    /* the V: stages r and 2p - 1 - r */
    for (uint32_t r = 0; r < 4; r++)
        ck_assert_uint_eq(kc_stage_of(KC_PIPELINE_ZERO_BUBBLE, 4, 2, r, 1), 7 - r);
}
END_TEST

/* Megatron-LM's table for 2 ranks, 2 chunks, 5 micro-batches in groups of 3 and 2. */
START_TEST(interleaved_groups_that_do_not_divide_are_those_of_megatron)
{
    const uint32_t micro[] = {0, 1, 2, 0, 1, 2, 3, 4, 3, 4}, chunk[] = {0, 0, 0, 1, 1, 1, 0, 0, 1, 1};
    struct kc_order_lists l = lists_of("interleaved", 2, 2, 5, NULL);
    for (uint32_t r = 0; r < 2; r++) {
        uint32_t f = 0, b = 0;
        for (uint32_t i = l.first[r]; i < l.first[r + 1]; i++) {
            const struct kc_turn *t = &l.turns[i];
            if (t->kind == KC_TURN_F) {
                ck_assert_uint_eq(t->micro, micro[f]);
                ck_assert_uint_eq(t->stage, chunk[f] * 2 + r);
                f++;
            }
            if (t->kind == KC_TURN_B) {
                ck_assert_uint_eq(t->micro, micro[b]);
                ck_assert_uint_eq(t->stage, (1 - chunk[b]) * 2 + r);
                b++;
            }
        }
        ck_assert_uint_eq(f, 10);
        ck_assert_uint_eq(b, 10);
    }
    kc_order_free(&l);
}
END_TEST

START_TEST(an_evaluation_runs_forwards_alone)
{
    for (size_t n = 0; n < NAMES; n++) {
        const uint32_t chunks = strcmp(names[n], "interleaved") == 0 ? 2 : 1;
        const struct kc_order_row *row;
        struct kc_order_lists l;
        struct kc_order_times t;
        ck_assert_int_eq(kc_order_find(names[n], chunks, &row, NULL), 0);
        const struct kc_order_shape shape = {.ranks = 4, .chunks = chunks, .micros = 6, .forward = true};
        ck_assert_int_eq(kc_order_new(row, shape, NULL, &l, NULL), 0);
        for (uint32_t i = 0; i < l.first[4]; i++)
            ck_assert(l.turns[i].kind == KC_TURN_F || l.turns[i].kind == KC_TURN_SEND_F ||
                      l.turns[i].kind == KC_TURN_RECV_F);
        ck_assert_int_eq(kc_order_play(&l, NULL, &t, NULL, NULL), 0);
        ck_near(t.total, 6 * chunks + 3); /* the pipeline fills, then nobody waits */
        ck_assert_uint_eq(kc_order_in_flight(&l, 0), 1);
        kc_order_free(&l);
    }
}
END_TEST

/* ---- what the papers say ---- */

/* Narayanan et al. 2021, section 2.2: the bubble of GPipe and 1F1B is (p - 1)(F + B), whatever F and B take, so
 * (p - 1) / m of the ideal time; interleaving divides it by v. */
START_TEST(bubbles_of_whole_backwards_are_those_of_narayanan_2021)
{
    struct even u;
    const double cost[][3] = {{1, 1, 1}, {1, 1.25, 0.5}, {2, 1, 2}};
    for (size_t k = 0; k < sizeof cost / sizeof *cost; k++) {
        const struct kc_order_costs *costs = even_costs(&u, cost[k][0], cost[k][1], cost[k][2], 0);
        for (uint32_t p = 1; p <= 8; p++)
            for (uint32_t m = 1; m <= 26; m++) {
                const double bubble = (double)(p - 1) / m;
                struct kc_order_times t = times_of("1f1b", p, 1, m, costs);
                ck_near(t.total / t.busiest - 1, bubble);
                ck_near(t.bubble, bubble / (1 + bubble));
                t = times_of("gpipe", p, 1, m, costs);
                ck_near(t.total / t.busiest - 1, bubble);
                for (uint32_t v = 2; v <= 4 && m >= p; v++) { /* also where m is no multiple of p */
                    t = times_of("interleaved", p, v, m, costs);
                    ck_near(t.total / t.busiest - 1, bubble / v);
                }
            }
    }
}
END_TEST

/* Qi et al. 2023, table 2: ZB-H1 has (p - 1)(F + I - W); where all three are equal that is a third of 1F1B. */
START_TEST(the_bubble_of_zb_h1_is_that_of_qi_2023)
{
    struct even u;
    const double cost[][3] = {{1, 1, 1}, {1, 1.25, 0.75}, {2, 1.5, 1}};
    for (size_t k = 0; k < sizeof cost / sizeof *cost; k++) {
        const double *c = cost[k];
        const struct kc_order_costs *costs = even_costs(&u, c[0], c[1], c[2], 0);
        for (uint32_t p = 1; p <= 8; p++)
            for (uint32_t m = p; m <= 24; m++)
                ck_near(times_of("zero-bubble", p, 1, m, costs).total,
                        m * (c[0] + c[1] + c[2]) + (p - 1) * (c[0] + c[1] - c[2]));
    }
    const struct kc_order_times zb = times_of("zero-bubble", 4, 1, 16, NULL),
                                plain = times_of("1f1b", 4, 1, 16, NULL);
    ck_near((zb.total - zb.busiest) * 3, plain.total - plain.busiest);
}
END_TEST

/* Qi et al. 2024: in the V no rank stands still between its first turn and its last. As all wait for the norm, the
 * way of the first micro-batch down the ranks is left: p - 1 forwards of half a rank's layers. */
START_TEST(zb_v_has_no_bubble_between_its_turns)
{
    for (uint32_t p = 1; p <= 12; p++)
        for (uint32_t m = 2 * p - 1; m <= 30; m++) {
            const struct kc_order_times t = times_of("zero-bubble", p, 2, m, NULL);
            ck_near(t.gaps, 0);
            ck_near(t.total, 6 * m + p - 1);
        }
}
END_TEST

/* Peak memory in micro-batches: GPipe all; 1F1B p - r (Narayanan et al. 2019); interleaved p·v + p - 1 chunks on rank
 * 0 (Korthikanti et al. 2022: 1 + (p - 1) / (p·v) times 1F1B); ZB-H1 as rank 0 of 1F1B on every rank (Qi et al.
 * 2023), ZB-V the same in chunks of half the size (Qi et al. 2024). */
START_TEST(as_many_micro_batches_are_in_flight_as_the_papers_say)
{
    for (uint32_t p = 1; p <= 8; p++)
        for (uint32_t r = 0; r < p; r++) {
            const uint32_t m = 3 * p;
            struct kc_order_lists l = lists_of("gpipe", p, 1, m, NULL);
            ck_assert_uint_eq(kc_order_in_flight(&l, r), m);
            kc_order_free(&l);
            l = lists_of("1f1b", p, 1, m, NULL);
            ck_assert_uint_eq(kc_order_in_flight(&l, r), p - r);
            const struct kc_turn_at f = {KC_TURN_F, r}, i = {KC_TURN_I, r}, w = {KC_TURN_W, r};
            ck_assert_uint_eq(kc_order_slots(&l, f, w), p - r);
            ck_assert_uint_eq(kc_order_slots(&l, i, w), 1); /* a whole backward keeps nothing for later */
            kc_order_free(&l);
            l = lists_of("zero-bubble", p, 1, m, NULL);
            ck_assert_uint_eq(kc_order_in_flight(&l, r), p);
            ck_assert_uint_eq(kc_order_slots(&l, f, i), p - r);
            ck_assert_uint_eq(kc_order_slots(&l, i, w), r + 1);
            kc_order_free(&l);
            l = lists_of("zero-bubble", p, 2, m, NULL);
            ck_assert_uint_eq(kc_order_in_flight(&l, r), 2 * p);
            kc_order_free(&l);
            for (uint32_t v = 2; v <= 4; v++) {
                l = lists_of("interleaved", p, v, m, NULL);
                ck_assert_uint_eq(kc_order_in_flight(&l, r), p * v + p - 1 - 2 * r);
                kc_order_free(&l);
            }
        }
}
END_TEST

START_TEST(a_transfer_takes_time_on_the_way_of_a_micro_batch)
{
    struct even u;
    for (uint32_t p = 1; p <= 5; p++) {
        const struct kc_order_costs *costs = even_costs(&u, 1, 2, 0, 0.5);
        ck_near(times_of("1f1b", p, 1, 1, costs).total, 3 * p + 2 * 0.5 * (p - 1));
        ck_near(times_of("gpipe", p, 1, 7, costs).total, 3 * (p + 6) + 2 * 0.5 * (p - 1));
    }
    /* the V turns on the last rank, without a transfer */
    ck_near(times_of("zero-bubble", 3, 2, 1, even_costs(&u, 1, 2, 0, 0.5)).total, 6 * 3 + 2 * 0.5 * 4);
}
END_TEST

START_TEST(transfers_of_a_rank_wait_for_each_other)
{
    const struct kc_order_row *row;
    struct kc_order_lists l;
    struct kc_order_times t;
    struct even u;
    ck_assert_int_eq(kc_order_find("gpipe", 1, &row, NULL), 0);
    const struct kc_order_shape shape = {.ranks = 2, .chunks = 1, .micros = 5, .forward = true};
    const struct kc_order_costs *costs = even_costs(&u, 1, 0, 0, 3);
    ck_assert_int_eq(kc_order_new(row, shape, costs, &l, NULL), 0);
    ck_assert_int_eq(kc_order_play(&l, costs, &t, NULL, NULL), 0);
    ck_near(t.total, 1 + 5 * 3 + 1); /* one after the other: F, five transfers, F */
    kc_order_free(&l);
}
END_TEST

/* ---- refusals ---- */

static void refused(int code, int wanted, const struct kc_error *e, const char *text)
{
    ck_assert_int_eq(code, wanted);
    ck_assert_msg(strstr(e->text, text) != NULL, "'%s' is not in '%s'", text, e->text);
}

START_TEST(what_an_order_does_not_take_is_told_with_what_does)
{
    const struct kc_order_row *row = NULL;
    struct kc_order_lists l;
    struct kc_error e = {""};
    refused(kc_order_find("1fb1", 1, &row, &e), -ENOENT, &e,
            "pipeline order '1fb1' is not known, did you mean '1f1b'? Choose one of gpipe, 1f1b, interleaved, "
            "zero-bubble");
    refused(
        kc_order_find("1f1b", 2, &row, &e), -EINVAL, &e,
        "pipeline order 1f1b with chunks = 2: it takes 1 a rank. Set chunks so, or choose gpipe or interleaved or "
        "zero-bubble");
    refused(kc_order_find("interleaved", 1, &row, &e), -EINVAL, &e, "chunks = 1: it takes 2 or more a rank");
    refused(kc_order_find("zero-bubble", 3, &row, &e), -EINVAL, &e, "chunks = 3: it takes 1 or 2 a rank");
    ck_assert_ptr_null(row);
    ck_assert_int_eq(kc_order_find("gpipe", 1, &row, &e), 0);
    const struct kc_order_shape none = {.ranks = 2, .chunks = 1}, huge = {.ranks = 9000, .chunks = 1, .micros = 9000};
    refused(kc_order_new(row, none, NULL, &l, &e), -EINVAL, &e, "on 2 ranks with chunks = 1 and 0 micro-batches");
    refused(kc_order_new(row, huge, NULL, &l, &e), -E2BIG, &e, "is 567000000 turns, at most 67108864");
}
END_TEST

/* ---- the proof finds ---- */

static struct kc_turn *turn_at(struct kc_order_lists *l, uint32_t rank, uint32_t kind, uint32_t micro)
{
    for (uint32_t i = l->first[rank]; i < l->first[rank + 1]; i++)
        if (l->turns[i].kind == kind && l->turns[i].micro == micro)
            return &l->turns[i];
    ck_abort_msg("no such turn");
    return NULL;
}

static void swap(struct kc_turn *a, struct kc_turn *b)
{
    const struct kc_turn t = *a;
    *a = *b, *b = t;
}

/* Take a turn out of its rank's list. */
static void drop(struct kc_order_lists *l, uint32_t rank, struct kc_turn *t)
{
    memmove(t, t + 1, (size_t)(l->turns + l->first[l->shape.ranks] - t - 1) * sizeof *t);
    for (uint32_t r = rank + 1; r <= l->shape.ranks; r++)
        l->first[r]--;
}

static void fault(struct kc_order_lists *l, int wanted, const char *text)
{
    struct kc_error e = {""};
    struct kc_order_times t;
    refused(kc_order_check(l, &e), wanted, &e, text);
    ck_assert_int_eq(kc_order_play(l, NULL, &t, NULL, NULL), wanted);
    ck_assert_uint_eq(kc_order_chart(l, NULL, 0), 0);
    kc_order_free(l);
}

START_TEST(the_proof_names_a_turn_that_is_missing_or_too_much)
{
    struct kc_order_lists l = lists_of("zero-bubble", 3, 1, 4, NULL);
    drop(&l, 1, turn_at(&l, 1, KC_TURN_W, 2));
    fault(&l, -EPROTO, "rank 1 lacks W of stage 1, micro-batch 2");
    l = lists_of("1f1b", 3, 1, 4, NULL);
    drop(&l, 2, turn_at(&l, 2, KC_TURN_RECV_F, 3));
    fault(&l, -EPROTO, "rank 2 lacks recv F of stage 2, micro-batch 3");
    l = lists_of("1f1b", 3, 1, 4, NULL);
    *turn_at(&l, 0, KC_TURN_F, 1) = (struct kc_turn){KC_TURN_F, 0, 0};
    fault(&l, -EPROTO, "rank 0 has F of stage 0, micro-batch 0 twice");
    l = lists_of("zero-bubble", 2, 1, 4, NULL);
    turn_at(&l, 0, KC_TURN_I, 1)->kind = KC_TURN_B;
    fault(&l, -EPROTO, "rank 0 has W of stage 0, micro-batch 1, which nothing asks for");
    l = lists_of("1f1b", 3, 1, 4, NULL);
    turn_at(&l, 0, KC_TURN_F, 1)->stage = 1;
    fault(&l, -EPROTO, "rank 0 has F of stage 1, micro-batch 1, but rank 1 holds that stage");
    l = lists_of("gpipe", 1, 1, 4, NULL);
    swap(turn_at(&l, 0, KC_TURN_F, 1), turn_at(&l, 0, KC_TURN_F, 2));
    fault(&l, -EPROTO, "rank 0 has F of stage 0, micro-batch 1 behind micro-batch 2: they must ascend");
    l = lists_of("gpipe", 1, 1, 4, NULL);
    turn_at(&l, 0, KC_TURN_F, 1)->micro = 4;
    fault(&l, -EPROTO, "there are 8 kinds, 1 stages, 4 micro-batches");
}
END_TEST

START_TEST(the_proof_names_who_waits_for_whom)
{
    /* both ends of two transfers face each other the other way round: the classic one of 1F1B with blocking sends */
    struct kc_order_lists l = lists_of("1f1b", 2, 1, 4, NULL);
    swap(turn_at(&l, 0, KC_TURN_SEND_F, 1), turn_at(&l, 0, KC_TURN_RECV_I, 0));
    fault(&l, -EDEADLK,
          "rank 0 stands at recv I of stage 0, micro-batch 0 and waits for rank 1; rank 1 stands at recv F "
          "of stage 1, micro-batch 1 and waits for rank 0");
    l = lists_of("zero-bubble", 2, 1, 4, NULL);
    swap(turn_at(&l, 0, KC_TURN_I, 3), turn_at(&l, 0, KC_TURN_W, 3));
    fault(&l, -EDEADLK, "rank 0 stands before W of stage 0, micro-batch 3, which needs a turn that comes later");
    l = lists_of("1f1b", 2, 1, 4, NULL);
    swap(turn_at(&l, 1, KC_TURN_F, 0), turn_at(&l, 1, KC_TURN_RECV_F, 0));
    fault(&l, -EDEADLK, "rank 1 stands before F of stage 1, micro-batch 0, which needs a turn that comes later");
}
END_TEST

static void nothing(const struct kc_order_shape *s, uint32_t rank, struct kc_order_pen *out)
{
    (void)s, (void)rank, (void)out;
}

START_TEST(an_order_that_lists_nothing_does_not_pass)
{
    const struct kc_order_row *gpipe;
    struct kc_order_lists l;
    ck_assert_int_eq(kc_order_find("gpipe", 1, &gpipe, NULL), 0);
    struct kc_order_row row = *gpipe;
    row.fill = nothing;
    const struct kc_order_shape shape = {.ranks = 2, .chunks = 1, .micros = 2};
    ck_assert_int_eq(kc_order_new(&row, shape, NULL, &l, NULL), 0);
    fault(&l, -EPROTO, "rank 0 lacks F of stage 0, micro-batch 0");
}
END_TEST

/* ---- the chart ---- */

static void chart(const char *name, uint32_t ranks, uint32_t chunks, uint32_t micros, const char *wanted)
{
    struct kc_order_lists l = lists_of(name, ranks, chunks, micros, NULL);
    char text[4096], little[16];
    const size_t n = kc_order_chart(&l, text, sizeof text);
    ck_assert_str_eq(text, wanted);
    ck_assert_uint_eq(n, strlen(wanted));
    ck_assert_uint_eq(kc_order_chart(&l, NULL, 0), n);
    ck_assert_uint_eq(kc_order_chart(&l, little, sizeof little), n);
    ck_assert(strlen(little) == sizeof little - 1 && strncmp(little, wanted, sizeof little - 1) == 0);
    kc_order_free(&l);
}

/* All drawn by hand from the definitions; 1F1B is figure 4 of Narayanan et al. 2021 with four micro-batches. */
START_TEST(charts_are_as_drawn_by_hand)
{
    chart("gpipe", 2, 1, 4,
          "0 F0 F1 F2 F3 .. .. .. B0 -- B1 -- B2 -- B3 --\n"
          "1 .. F0 F1 F2 F3 B0 -- B1 -- B2 -- B3 -- .. ..\n");
    chart("1f1b", 4, 1, 4,
          "0 F0 F1 F2 F3 .. .. .. .. .. .. B0 -- .. B1 -- .. B2 -- .. B3 --\n"
          "1 .. F0 F1 F2 .. .. .. .. B0 -- F3 B1 -- .. B2 -- .. B3 -- .. ..\n"
          "2 .. .. F0 F1 .. .. B0 -- F2 B1 -- F3 B2 -- .. B3 -- .. .. .. ..\n"
          "3 .. .. .. F0 B0 -- F1 B1 -- F2 B2 -- F3 B3 -- .. .. .. .. .. ..\n");
    chart("zero-bubble", 3, 1, 4,
          "0 F0 F1 F2 .. .. I0 W0 F3 I1 W1 I2 W2 I3 W3\n"
          "1 .. F0 F1 .. I0 F2 I1 W0 F3 I2 W1 I3 W2 W3\n"
          "2 .. .. F0 I0 F1 I1 F2 I2 W0 F3 I3 W1 W2 W3\n");
    chart("zero-bubble", 2, 2, 3,
          "0 F0a F1a F2a F0b I0b W0b F1b I1b W1b I0a W0a F2b I2b W2b I1a W1a I2a W2a ...\n"
          "1 ... F0a F0b F1a F1b I0b W0b F2a I0a W0a F2b I1b W1b I1a I2b I2a W1a W2b W2a\n");
    chart("interleaved", 2, 2, 4,
          "slots 0 to 18 of 27\n"
          "0 F0a F1a F0b F1b F2a ... B0b --- F3a B1b --- F2b B0a --- F3b B1a --- ... B2b\n"
          "1 ... F0a F1a F0b B0b --- F1b B1b --- F2a B0a --- F3a B1a --- F2b B2b --- F3b\n"
          "slots 19 to 26\n"
          "0 --- ... B3b --- B2a --- B3a ---\n"
          "1 B3b --- B2a --- B3a --- ... ...\n");
    chart("1f1b", 1, 1, 2, "0 F0 B0 -- F1 B1 --\n");
}
END_TEST

START_TEST(a_long_chart_is_cut_in_the_middle_and_keeps_80_columns)
{
    chart("1f1b", 2, 1, 64,
          "slots 0 to 18 of 195\n"
          "0 F0  F1  ... ... B0  --- F2  B1  --- F3  B2  --- F4  B3  --- F5  B4  --- F6\n"
          "1 ... F0  B0  --- F1  B1  --- F2  B2  --- F3  B3  --- F4  B4  --- F5  B5  ---\n"
          "slots 19 to 175 are left out\n"
          "slots 176 to 194\n"
          "0 --- F59 B58 --- F60 B59 --- F61 B60 --- F62 B61 --- F63 B62 --- ... B63 ---\n"
          "1 B58 --- F59 B59 --- F60 B60 --- F61 B61 --- F62 B62 --- F63 B63 --- ... ...\n");
    struct kc_order_lists l = lists_of("interleaved", 16, 4, 1000, NULL);
    char text[8192];
    ck_assert_uint_lt(kc_order_chart(&l, text, sizeof text), sizeof text);
    for (const char *at = text; *at; at += strcspn(at, "\n") + 1)
        ck_assert_uint_le(strcspn(at, "\n"), 80);
    kc_order_free(&l);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("order");
    TCase *t = tcase_create("lists");
    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, every_order_of_every_shape_comes_to_its_end, 0, 16 * 4);
    tcase_add_test(t, costs_move_transfers_and_break_nothing);
    tcase_add_test(t, the_same_arguments_give_the_same_lists);
    tcase_add_test(t, a_rank_holds_its_chunks_and_no_others);
    tcase_add_test(t, interleaved_groups_that_do_not_divide_are_those_of_megatron);
    tcase_add_test(t, an_evaluation_runs_forwards_alone);
    suite_add_tcase(s, t);
    t = tcase_create("papers");
    tcase_set_timeout(t, 60);
    tcase_add_test(t, bubbles_of_whole_backwards_are_those_of_narayanan_2021);
    tcase_add_test(t, the_bubble_of_zb_h1_is_that_of_qi_2023);
    tcase_add_test(t, zb_v_has_no_bubble_between_its_turns);
    tcase_add_test(t, as_many_micro_batches_are_in_flight_as_the_papers_say);
    tcase_add_test(t, a_transfer_takes_time_on_the_way_of_a_micro_batch);
    tcase_add_test(t, transfers_of_a_rank_wait_for_each_other);
    suite_add_tcase(s, t);
    t = tcase_create("refusals");
    tcase_add_test(t, what_an_order_does_not_take_is_told_with_what_does);
    suite_add_tcase(s, t);
    t = tcase_create("proof");
    tcase_add_test(t, the_proof_names_a_turn_that_is_missing_or_too_much);
    tcase_add_test(t, the_proof_names_who_waits_for_whom);
    tcase_add_test(t, an_order_that_lists_nothing_does_not_pass);
    suite_add_tcase(s, t);
    t = tcase_create("chart");
    tcase_add_test(t, charts_are_as_drawn_by_hand);
    tcase_add_test(t, a_long_chart_is_cut_in_the_middle_and_keeps_80_columns);
    suite_add_tcase(s, t);
    return suite_run(s);
}
