/* test_placement.c - a new placement is written in strategy/axes.h alone. This program has an axes.c of its own, with one placement
 * more than the real one: the context axis cuts the MLP as well, so that its ranks bring their tokens together before it and
 * share the sums behind it. All other objects are those of the programs: buckets, families, conversions, program, proof,
 * executor and kernels follow, and the job trains as one rank does. */
#include "strategy/axes.h"
#include "strategy/placement.h"
#include "tests/unit/fleet.h"
#include "tests/unit/suite.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static int widened; /* 0: as the real ones */

bool kc_axis_cuts(const struct kc_job_spec *spec, enum kc_axis axis, uint8_t dim)
{
    (void)spec;
    if (axis == KC_CONTEXT)
        return dim == KC_SEQUENCE || (widened && dim == KC_FFN);
    return axis == KC_DATA && dim == KC_BATCH;
}

static struct kc_placement by(uint8_t dim, const struct kc_graph_tensor *t)
{
    for (int d = 0; d < t->rank; d++)
        if (t->dim[d] == dim)
            return place_sharded(dim);
    return place_replicated();
}

struct kc_placement kc_axis_input(enum kc_axis axis, const struct kc_graph_tensor *t)
{
    return by(axis == KC_CONTEXT ? KC_SEQUENCE : KC_BATCH, t);
}

struct kc_placement kc_axis_parameter(enum kc_axis axis, const struct kc_graph_tensor *t)
{
    return widened && axis == KC_CONTEXT ? by(KC_FFN, t) : place_replicated();
}

/* ---- */

enum { STEPS = 3 };

struct run {
    struct fleet_step step[STEPS];
    float *values;
    size_t count;
    uint32_t cut; /* parameters that the context axis cuts */
};

static uint32_t parameters_cut(const struct kc_shard_plan *s)
{
    const struct kc_plan_tensor *t = KC_AT(s, struct kc_plan_tensor, s->tensors);
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->tensors.count; i++)
        n += t[i].role == KC_PARAMETER && t[i].place[KC_CONTEXT].kind == KC_PLACE_SHARDED;
    return n;
}

static struct run run_of(const struct kc_job_spec *spec, int wide)
{
    struct run r;
    struct fleet fleet;
    widened = wide;
    fleet_make(&fleet, spec);
    for (uint64_t s = 0; s < STEPS; s++)
        r.step[s] = fleet_train(&fleet, s);
    r.count = fleet_parameters(&fleet, &r.values);
    r.cut = parameters_cut(fleet.shard);
    fleet_free(&fleet);
    return r;
}

static struct kc_job_spec on_axes(struct kc_job_spec s, uint32_t context, uint32_t data, uint32_t zero)
{
    s.axis[KC_CONTEXT] = context, s.axis[KC_DATA] = data;
    s.ranks = context * data, s.zero = zero;
    s.micro = s.sequences / data / 2;
    return s;
}

static const struct {
    enum kc_family family;
    uint32_t data, zero, parameters; /* of a layer's MLP: GPT-2's first product has a bias that is cut with it */
} layouts[] = {{KC_FAMILY_GPT2, 1, 0, 3}, {KC_FAMILY_LLAMA, 1, 0, 3}, {KC_FAMILY_LLAMA, 2, 1, 3}, {KC_FAMILY_LLAMA, 2, 3, 3}};

START_TEST(a_placement_that_only_strategy_knows_trains_as_one_rank_does)
{
    const struct kc_job_spec one = fleet_small(layouts[_i].family, 0);
    const struct kc_job_spec two = on_axes(one, 2, layouts[_i].data, layouts[_i].zero);
    const struct run want = run_of(&one, 0), plain = run_of(&two, 0), wide = run_of(&two, 1);
    ck_assert_uint_eq(plain.cut, 0);
    ck_assert_uint_eq(wide.cut, one.layers * layouts[_i].parameters);
    ck_assert_uint_eq(wide.count, want.count);
    for (int s = 0; s < STEPS; s++) {
        ck_assert_double_eq(wide.step[s].tokens, want.step[s].tokens);
        ck_assert_double_eq_tol(wide.step[s].loss / want.step[s].loss, 1, 1e-5);
        ck_assert_double_eq_tol(wide.step[s].norm / want.step[s].norm, 1, 1e-5);
    }
    for (size_t i = 0; i < want.count; i++)
        ck_assert_msg(fabsf(wide.values[i] - want.values[i]) <= 2e-3f, "element %zu: %.9g for %.9g", i,
                      (double)wide.values[i], (double)want.values[i]);
    free(want.values);
    free(plain.values);
    free(wide.values);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("placement");
    TCase *t = tcase_create("a new one");
    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, a_placement_that_only_strategy_knows_trains_as_one_rank_does, 0, sizeof layouts / sizeof *layouts);
    suite_add_tcase(s, t);
    return suite_run(s);
}
