/* test_contracts.c - a layout that misses a field would hide a difference between ranks: every byte must be named
 * once. */
#include "base/contract.h"
#include "contracts/comm_costs.h"
#include "contracts/comm_plan.h"
#include "contracts/device_view.h"
#include "contracts/exec_plan.h"
#include "contracts/job_spec.h"
#include "contracts/model_graph.h"
#include "contracts/shard_plan.h"
#include "contracts/state_if.h"
#include "contracts/step_trace.h"
#include "tests/unit/suite.h"

#include <check.h>
#include <jansson.h>
#include <string.h>

static const struct kc_layout *const roots[] = {
    &kc_job_spec_layout,   &kc_device_view_layout, &kc_comm_costs_layout, &kc_model_graph_layout,
    &kc_shard_plan_layout, &kc_comm_plan_layout,   &kc_exec_plan_layout,  &kc_step_trace_layout,
};

static size_t field_size(const struct kc_field *f)
{
    static const size_t scalar[] = {1, 2, 4, 8, 4, 8, 4, 8, 4};
    switch (f->kind) {
    case KC_FIELD_SPAN:
        return sizeof(struct kc_span);
    case KC_FIELD_STRUCT:
        return f->of->bytes * (size_t)f->count;
    case KC_FIELD_HIDDEN:
        return f->count;
    default:
        return scalar[f->kind] * f->count;
    }
}

/* Bytes of the struct that are named other than once, here or in a struct below. */
static unsigned holes(const struct kc_layout *l)
{
    unsigned char named[4096] = {0};
    ck_assert_uint_le(l->bytes, sizeof named);
    unsigned bad = 0;
    for (uint32_t i = 0; i < l->count; i++) {
        const struct kc_field *f = &l->fields[i];
        ck_assert_uint_le(f->offset + field_size(f), l->bytes);
        for (size_t k = 0; k < field_size(f); k++)
            named[f->offset + k]++;
        if (f->of)
            bad += holes(f->of);
    }
    for (uint32_t k = 0; k < l->bytes; k++)
        bad += named[k] != 1;
    return bad;
}

START_TEST(every_byte_of_a_contract_is_named_exactly_once)
{
    for (size_t i = 0; i < sizeof roots / sizeof *roots; i++)
        ck_assert_msg(holes(roots[i]) == 0, "%s: %u bytes are named other than once", roots[i]->name,
                      holes(roots[i]));
}
END_TEST

START_TEST(a_layout_with_a_hole_or_an_overlap_is_seen)
{
    static const struct kc_field hole[] = {{"a", 0, 1, KC_FIELD_U32, 0, NULL, NULL, 0}};
    static const struct kc_field twice[] = {{"a", 0, 1, KC_FIELD_U64, 0, NULL, NULL, 0},
                                            {"b", 4, 1, KC_FIELD_U32, 0, NULL, NULL, 0}};
    ck_assert_uint_eq(holes(&(struct kc_layout){"hole", 8, 1, hole}), 4);
    ck_assert_uint_eq(holes(&(struct kc_layout){"twice", 8, 2, twice}), 4);
}
END_TEST

START_TEST(enum_names_are_complete)
{
    const struct {
        const char *const *names;
        size_t count;
    } tables[] = {
        {kc_program_name, KC_PROGRAMS},
        {kc_lane_name, KC_LANES},
        {kc_instruction_name, KC_INSTRUCTIONS},
        {kc_part_name, KC_PARTS},
        {kc_space_name, KC_SPACES},
        {kc_agree_name, KC_AGREES},
        {kc_state_verb_name, KC_STATE_VERBS},
        {kc_place_name, KC_PLACES},
        {kc_purpose_name, KC_PURPOSES},
        {kc_distance_name, KC_DISTANCES},
        {kc_digest_name, KC_DIGESTS},
    };
    for (size_t t = 0; t < sizeof tables / sizeof *tables; t++)
        for (size_t i = 0; i < tables[t].count; i++)
            ck_assert_ptr_nonnull(tables[t].names[i]);
    ck_assert_str_eq(kc_state_verb_name[KC_VERB_STORE_AGREE], "store-agree");
    ck_assert_str_eq(kc_on_crash_name[KC_CRASH_STOP], "stop");
    ck_assert_str_eq(kc_lr_name[KC_LR_WSD], "wsd");
}
END_TEST

static const struct kc_comm_plan *small_plan(struct kc_arena *a, uint64_t count)
{
    ck_assert_int_eq(kc_arena_new(a, 8192), 0);
    struct kc_comm_plan *p = kc_contract_begin(a, KC_CONTRACT_COMM_PLAN, KC_COMM_PLAN_VERSION, sizeof *p);
    struct kc_plan_group *g = kc_contract_array(a, &p->groups, 1, sizeof *g);
    g->name = kc_contract_text(a, "world");
    g->family = 0;
    uint32_t *ranks = kc_contract_array(a, &g->ranks, 2, sizeof *ranks);
    ranks[1] = 1;
    struct kc_plan_collective *c = kc_contract_array(a, &p->collectives, 1, sizeof *c);
    c->primitive = KC_REDUCE_SCATTER;
    c->count = count;
    ck_assert_int_eq(kc_contract_seal(a), 0);
    return p;
}

START_TEST(json_and_difference_follow_the_layout)
{
    struct kc_arena a, b;
    const struct kc_comm_plan *p = small_plan(&a, 128), *q = small_plan(&b, 192);
    json_t *j = kc_contract_json(p, &kc_comm_plan_layout);
    json_t *c = json_array_get(json_object_get(j, "collectives"), 0);
    ck_assert_str_eq(json_string_value(json_object_get(c, "primitive")), "reduce-scatter");
    ck_assert_int_eq(json_integer_value(json_object_get(c, "count")), 128);
    json_t *g = json_array_get(json_object_get(j, "groups"), 0);
    ck_assert_str_eq(json_string_value(json_object_get(g, "name")), "world");
    ck_assert_uint_eq(json_array_size(json_object_get(g, "ranks")), 2);
    json_decref(j);

    char text[200] = "";
    ck_assert_int_eq(kc_contract_difference(p, p, &kc_comm_plan_layout, text, sizeof text), 0);
    ck_assert_int_eq(kc_contract_difference(p, q, &kc_comm_plan_layout, text, sizeof text), 1);
    ck_assert_str_eq(text, "collectives[0].count: 128 and 192");
    kc_arena_free(&a);
    kc_arena_free(&b);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("contracts");
    TCase *t = tcase_create("layouts");
    tcase_add_test(t, every_byte_of_a_contract_is_named_exactly_once);
    tcase_add_test(t, a_layout_with_a_hole_or_an_overlap_is_seen);
    tcase_add_test(t, enum_names_are_complete);
    tcase_add_test(t, json_and_difference_follow_the_layout);
    suite_add_tcase(s, t);
    return suite_run(s);
}
