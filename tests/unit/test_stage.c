/* test_stage.c - which layers make a stage: against all cuts there are. */
#include "strategy/stage.h"

#include "suite.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#define LAYERS_MOST 10

/* The cheapest most expensive stage over all cuts of layers from `at` on into `left` stages. */
static uint64_t best_of_all(const struct kc_layer_costs *c, uint32_t stages, uint32_t left, uint32_t at)
{
    uint64_t best = UINT64_MAX, sum = left == stages ? c->embedding : 0;
    if (left == 1) {
        for (sum += c->head; at < c->layers; at++)
            sum += c->layer[at];
        return sum;
    }
    for (uint32_t end = at + 1; end + left - 1 <= c->layers; end++) {
        sum += c->layer[end - 1];
        const uint64_t rest = best_of_all(c, stages, left - 1, end), most = sum > rest ? sum : rest;
        if (most < best)
            best = most;
    }
    return best;
}

static uint64_t most_of(const struct kc_layer_costs *c, uint32_t stages, const uint32_t *first)
{
    uint64_t most = 0;
    for (uint32_t s = 0; s < stages; s++)
        if (kc_stage_cost(c, stages, first, s) > most)
            most = kc_stage_cost(c, stages, first, s);
    return most;
}

/* Neither layer on a border would make its two stages more equal on the other side. */
static bool borders_are_even(const struct kc_layer_costs *c, uint32_t stages, const uint32_t *first)
{
    for (uint32_t s = 0; s + 1 < stages; s++) {
        const uint64_t a = kc_stage_cost(c, stages, first, s), b = kc_stage_cost(c, stages, first, s + 1);
        const uint32_t border = first[s + 1];
        const uint64_t before = c->layer[border - 1], behind = c->layer[border];
        if ((border - first[s] > 1 && before && b + before < a) ||
            (first[s + 2] - border > 1 && behind && a + behind < b))
            return false;
    }
    return true;
}

START_TEST(no_cut_has_a_cheaper_most_expensive_stage_and_borders_are_even)
{
    uint64_t layer[LAYERS_MOST];
    uint32_t noise = 7;
    for (int round = 0; round < 1200; round++) {
        struct kc_layer_costs c = {.layer = layer, .layers = 1 + (uint32_t)round % LAYERS_MOST};
        const uint32_t most = round % 3 == 0 ? 2 : round % 3 == 1 ? 20 : 1u << 31; /* many ties, some, none */
        for (uint32_t i = 0; i < c.layers; i++)
            noise = noise * 1664525 + 1013904223, layer[i] = noise % most;
        noise = noise * 1664525 + 1013904223, c.embedding = round % 5 ? noise % most : 0;
        noise = noise * 1664525 + 1013904223, c.head = round % 5 ? noise % most * (uint64_t)3 : 0;
        for (uint32_t stages = 1; stages <= c.layers; stages++) {
            uint32_t first[LAYERS_MOST + 1];
            ck_assert_int_eq(kc_stage_cut(&c, stages, 1, first, NULL), 0);
            ck_assert_uint_eq(first[0], 0);
            ck_assert_uint_eq(first[stages], c.layers);
            for (uint32_t s = 0; s < stages; s++)
                ck_assert_uint_lt(first[s], first[s + 1]);
            ck_assert_uint_eq(most_of(&c, stages, first), best_of_all(&c, stages, stages, 0));
            ck_assert(borders_are_even(&c, stages, first));
        }
    }
}
END_TEST

START_TEST(equal_layers_are_spread_evenly_and_earlier_stages_are_the_lighter_ones)
{
    uint64_t layer[64];
    for (uint32_t i = 0; i < 64; i++)
        layer[i] = 5;
    for (uint32_t layers = 1; layers <= 64; layers++)
        for (uint32_t stages = 1; stages <= layers; stages++) {
            const struct kc_layer_costs c = {.layer = layer, .layers = layers};
            uint32_t first[65];
            ck_assert_int_eq(kc_stage_cut(&c, 1, stages, first, NULL), 0);
            for (uint32_t s = 0; s < stages; s++)
                ck_assert_uint_eq(first[s + 1] - first[s], layers / stages + (s >= stages - layers % stages));
        }
}
END_TEST

START_TEST(embedding_and_head_count)
{
    const uint64_t layer[] = {4, 4, 4, 4, 4, 4, 4, 4, 4, 4};
    const struct kc_layer_costs c = {.layer = layer, .layers = 10, .embedding = 4, .head = 8};
    const uint32_t wanted[] = {0, 2, 5, 8, 10}; /* 12, 12, 12, 16: not even, but the head moves no more */
    uint32_t first[5];
    ck_assert_int_eq(kc_stage_cut(&c, 2, 2, first, NULL), 0);
    ck_assert_int_eq(memcmp(first, wanted, sizeof wanted), 0);
    ck_assert_uint_eq(kc_stage_cost(&c, 4, first, 0), 12);
    ck_assert_uint_eq(kc_stage_cost(&c, 4, first, 3), 16);
}
END_TEST

START_TEST(fewer_layers_than_stages_are_refused_with_both_numbers)
{
    const uint64_t layer[] = {1, 1, 1, 1, 1, 1};
    const struct kc_layer_costs c = {.layer = layer, .layers = 6};
    uint32_t first[9] = {77};
    struct kc_error e = {""};
    ck_assert_int_eq(kc_stage_cut(&c, 4, 2, first, &e), -EINVAL);
    ck_assert_str_eq(e.text,
                     "model.layers = 6, but parallel.pipeline·parallel.chunks = 4·2 = 8 stages of at least one "
                     "layer. Lower pipeline or chunks");
    ck_assert_int_eq(kc_stage_cut(&c, 7, 1, first, &e), -EINVAL);
    ck_assert_int_eq(kc_stage_cut(&c, 0, 2, first, &e), -EINVAL);
    ck_assert_uint_eq(first[0], 77);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("stage");
    TCase *t = tcase_create("stage");
    suite_add_tcase(s, t);
    tcase_add_test(t, no_cut_has_a_cheaper_most_expensive_stage_and_borders_are_even);
    tcase_add_test(t, equal_layers_are_spread_evenly_and_earlier_stages_are_the_lighter_ones);
    tcase_add_test(t, embedding_and_head_count);
    tcase_add_test(t, fewer_layers_than_stages_are_refused_with_both_numbers);
    return suite_run(s);
}
