/* test_freeze.c - what is frozen stays as it is, costs nothing, and changes nothing of what is trained: gradients are those of
 * the whole model bit for bit, and any layout trains as one rank does. */
#include "tests/unit/fleet.h"
#include "tests/unit/graph_runner.h"
#include "tests/unit/suite.h"

#include "contracts/comm_plan.h"
#include "contracts/shard_plan.h"
#include "state/state.h"

#include <check.h>
#include <errno.h>
#include <fnmatch.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PAGE = 65536 /* buckets of state start on it */ };
#ifdef __SANITIZE_ADDRESS__ /* memory is used alike in every step; what adds up is looked at without the sanitizer */
enum { STEPS = 2 };
#else
enum { STEPS = 10 };
#endif

/* Each for one family; the numbers of layers below which backward has nothing to do. */
static const struct regime {
    enum kc_family family;
    const char *patterns[4];
    int32_t below;
} regimes[] = {
    {KC_FAMILY_GPT2, {"*.wte.*", "*.wpe.*"}, 0},
    {KC_FAMILY_GPT2, {"*weight"}, 0},                          /* biases alone */
    {KC_FAMILY_GPT2, {"*.bias"}, 0},
    {KC_FAMILY_GPT2, {"*.h.[01].*", "*.wte.weight", "*.wpe.weight"}, 2},
    {KC_FAMILY_GPT2, {"*.wte.*", "*.wpe.*", "*.ln_*.bias", "*.h.0.*"}, 1},
    {KC_FAMILY_GPT2, {"*.h.*", "*.wpe.*"}, 0},                 /* the embedding, which is the head */
    {KC_FAMILY_LLAMA, {"*.embed_tokens.*", "lm_head.*"}, 0},
    {KC_FAMILY_LLAMA, {"model.*"}, 4},                         /* the head alone */
    {KC_FAMILY_LLAMA, {"*.mlp.*", "*norm*"}, 0},
    {KC_FAMILY_LLAMA, {"*.layers.[0-2].*", "*.embed_tokens.*"}, 3},
    {KC_FAMILY_MOE, {"*.experts.*"}, 0},
    {KC_FAMILY_MOE, {"*.layers.0.*", "*.embed_tokens.*", "*.gate.weight"}, 1},
};
enum { REGIMES = sizeof regimes / sizeof *regimes };

static struct test_frozen frozen(const struct regime *g)
{
    struct test_frozen f = {.spec = test_spec(4, 16, 4, 8, 29, 1)};
    test_family(&f.spec, g->family);
    f.spec.sequences = f.spec.micro = 8, f.spec.chunks = 1, f.spec.lr = 1e-2, f.spec.end_of_text = KC_NO_TOKEN;
    for (int i = 0; i < 4 && g->patterns[i]; i++)
        test_freeze(&f, g->patterns[i]);
    return f;
}

static bool is_frozen(const struct regime *g, const char *name)
{
    bool match = false;
    for (int i = 0; i < 4 && g->patterns[i]; i++)
        match |= fnmatch(g->patterns[i], name, 0) == 0;
    return match;
}

/* ---- the graph ---- */

static int load(void *self, int evaluate, uint64_t position, uint32_t rows, const struct kc_load_part *part, int32_t *tokens,
                int32_t *targets, int32_t *starts, struct kc_error *e)
{
    (void)self, (void)evaluate, (void)position, (void)starts, (void)e;
    for (uint32_t i = 0; i < rows * part->context; i++)
        tokens[i] = (int32_t)(i * 7 % 29), targets[i] = (int32_t)(i * 5 % 29);
    return 0;
}

static void run(struct runner *r, const struct kc_job_spec *spec)
{
    const struct kc_step_values values = {.rows = 8};
    struct kc_error e = {""};
    ck_assert_msg(graph_runner_new(r, spec, NULL, 1, 1, load, NULL, &e) == 0, "%s", e.text);
    graph_runner_init_parameters(r, 3);
    ck_assert_int_eq(graph_runner_run(r, RUN_TRAIN, 0, 0, &values, &e), 0);
    ck_assert_int_eq(graph_runner_run(r, RUN_TRAIN, 1, 0, &values, &e), 0);
}

START_TEST(what_is_trained_has_the_gradients_that_it_has_in_the_whole_model)
{
    struct test_frozen part = frozen(&regimes[_i]);
    struct kc_job_spec all = part.spec;
    all.freeze = (struct kc_span){0};
    struct runner a, b;
    run(&a, &part.spec);
    run(&b, &all);
    uint32_t trained = 0;
    for (uint32_t t = 0; t < b.graph->tensors.count; t++) {
        const struct kc_graph_tensor *p = graph_runner_tensor(&b, (int32_t)t);
        if (p->role != KC_GRADIENT)
            continue;
        const char *name = KC_TEXT(b.graph, p->name), *of = KC_TEXT(b.graph, graph_runner_tensor(&b, p->of)->name);
        const int32_t there = graph_runner_find(&a, KC_GRADIENT, name);
        ck_assert_msg((there < 0) == is_frozen(&regimes[_i], of), "%s", name);
        trained += there >= 0;
        if (there >= 0)
            ck_assert_msg(memcmp(a.data[there], b.data[t], graph_runner_elements(&b, (int32_t)t) * 4) == 0, "%s", name);
    }
    ck_assert_uint_gt(trained, 0);
    const struct kc_graph_op *ops = KC_AT(a.graph, struct kc_graph_op, a.graph->ops);
    uint32_t below = 0, reached = 0;
    for (uint32_t o = a.graph->backward_first; o < a.graph->ops.count; o++) {
        if (ops[o].opcode == KC_OP_TALLY) /* of every layer: what is seen of a step does not depend on what is trained */
            continue;
        below += ops[o].layer >= 0 && ops[o].layer < regimes[_i].below;
        reached += ops[o].layer == regimes[_i].below;
    }
    ck_assert_uint_eq(below, 0);
    ck_assert(reached > 0 || regimes[_i].below == 4);
    ck_assert_uint_lt(a.graph->ops.count - a.graph->backward_first, b.graph->ops.count - b.graph->backward_first + 1);
    graph_runner_free(&a);
    graph_runner_free(&b);
}
END_TEST

static void refused(const char *pattern, const char *family_pattern, const char *a, const char *b)
{
    struct test_frozen f = frozen(&(struct regime){KC_FAMILY_GPT2, {family_pattern}, 0});
    test_freeze(&f, pattern);
    struct kc_arena arena;
    const struct kc_model_graph *g;
    struct kc_error e = {""};
    ck_assert_int_eq(kc_arena_new(&arena, 8 << 20), 0);
    ck_assert_int_eq(kc_model_graph_build(&f.spec, &arena, &g, &e), -EINVAL);
    ck_assert_msg(strstr(e.text, a) && strstr(e.text, b), "%s", e.text);
    kc_arena_free(&arena);
}

START_TEST(a_pattern_that_matches_nothing_is_refused_with_the_nearest_names)
{
    refused("transformer.h.0.ln1.weight", "*.wte.*", "freeze[1] is \"transformer.h.0.ln1.weight\"",
            "there are transformer.h.0.ln_1.weight, ");
    refused("*", "*.wte.*", "match every parameter", "leave one to train");
}
END_TEST

/* ---- plans and training ---- */

static const struct layout {
    uint32_t tensor, sequence, context, expert, data, zero, stages, chunks, micros;
    enum kc_pipeline order;
    enum kc_recompute recompute;
} layouts[] = {
    {1, 0, 1, 1, 2, 0, 1, 1, 2, KC_PIPELINE_1F1B, 0},       {1, 0, 1, 1, 2, 1, 1, 1, 1, KC_PIPELINE_1F1B, 0},
    {1, 0, 1, 1, 4, 2, 1, 1, 2, KC_PIPELINE_1F1B, 0},       {1, 0, 1, 1, 2, 3, 1, 1, 2, KC_PIPELINE_1F1B, 0},
    {2, 0, 1, 1, 1, 0, 1, 1, 2, KC_PIPELINE_1F1B, 0},       {2, 1, 1, 1, 2, 3, 1, 1, 2, KC_PIPELINE_1F1B, 0},
    {1, 0, 2, 1, 1, 0, 1, 1, 1, KC_PIPELINE_1F1B, 0},       {1, 0, 1, 2, 1, 0, 1, 1, 2, KC_PIPELINE_1F1B, 0},
    {1, 0, 1, 1, 1, 0, 2, 1, 4, KC_PIPELINE_1F1B, 0},       {1, 0, 1, 1, 1, 0, 4, 1, 4, KC_PIPELINE_GPIPE, 0},
    {1, 0, 1, 1, 2, 1, 2, 2, 4, KC_PIPELINE_INTERLEAVED, 0}, {1, 0, 1, 1, 1, 0, 2, 1, 4, KC_PIPELINE_ZERO_BUBBLE, 0},
    {1, 0, 1, 1, 2, 3, 2, 2, 4, KC_PIPELINE_ZERO_BUBBLE, 0}, {2, 0, 1, 1, 1, 0, 2, 1, 4, KC_PIPELINE_1F1B, KC_RECOMPUTE_FULL},
};
enum { LAYOUTS = sizeof layouts / sizeof *layouts };

static void cut(struct kc_job_spec *s, const struct layout *l)
{
    const uint32_t axis[KC_AXES] = {l->tensor, l->context, l->expert, l->data, l->stages};
    memcpy(s->axis, axis, sizeof axis);
    s->ranks = l->tensor * l->context * l->expert * l->data * l->stages;
    s->sequence = l->sequence, s->zero = l->zero, s->pipeline = l->order, s->chunks = l->chunks, s->recompute = l->recompute;
    s->micro = s->sequences / l->data / l->expert / l->micros;
}

struct trained {
    struct fleet_step step[STEPS];
    float *before, *after;
};

/* Frozen parameters keep every bit. */
static void compare(const struct fleet *f, const struct regime *g, const struct trained *t)
{
    size_t at = 0;
    uint32_t moved = 0;
    for (uint32_t i = 0; i < f->shard->tensors.count; i++) {
        const struct kc_plan_tensor *p = KC_AT(f->shard, struct kc_plan_tensor, f->shard->tensors) + i;
        size_t n = p->role == KC_PARAMETER;
        for (int d = 0; d < p->rank; d++)
            n *= p->global[d];
        const bool same = memcmp(t->before + at, t->after + at, n * sizeof *t->after) == 0;
        if (p->role == KC_PARAMETER && is_frozen(g, KC_TEXT(f->shard, p->name)))
            ck_assert_msg(same, "%s has changed", KC_TEXT(f->shard, p->name));
        else
            moved += !same;
        at += n;
    }
    ck_assert_uint_gt(moved, 0);
}

/* No collective adds up or spreads what nothing changes, and state has nothing for it but the parameters. */
static void costs_nothing(const struct fleet *f)
{
    const struct kc_plan_bucket *b = KC_AT(f->shard, struct kc_plan_bucket, f->shard->buckets);
    const struct kc_plan_collective *c = KC_AT(f->comm, struct kc_plan_collective, f->comm->collectives);
    uint32_t some = 0;
    for (uint32_t i = 0; i < f->comm->collectives.count; i++)
        if (c[i].bucket >= 0 && b[c[i].bucket].frozen)
            ck_assert(c[i].purpose == KC_PURPOSE_PARAMETER && f->shard->zero == 3);
    for (uint32_t k = 0; k < f->shard->buckets.count; k++)
        some += b[k].frozen;
    ck_assert_uint_gt(some, 0);
    const size_t moments = kc_state_class_bytes(f->shard, 0, KC_STATE_MOMENT1);
    size_t trained = 0;
    for (uint32_t k = 0; k < f->shard->buckets.count; k++)
        if (!b[k].frozen && kc_plan_holds(f->shard, &b[k], 0))
            trained += (4 * (f->shard->zero ? b[k].shard : b[k].count) + PAGE - 1) / PAGE * PAGE;
    ck_assert_uint_eq(moments, trained);
}

/* Backward has nothing to do in the layers below what is trained, also where it would make layers again: it counts for people. */
static void nothing_below(const struct fleet *f, const struct regime *g)
{
    const struct kc_plan_op *op = KC_AT(f->shard, struct kc_plan_op, f->shard->ops);
    const struct kc_plan_tensor *t = KC_AT(f->shard, struct kc_plan_tensor, f->shard->tensors);
    for (uint32_t o = f->shard->backward_first; o < f->shard->ops.count; o++)
        for (uint32_t i = 0; i < op[o].out.count && op[o].layer >= 0 && op[o].layer < g->below; i++)
            ck_assert_int_eq(t[KC_AT(f->shard, int32_t, op[o].out)[i]].role, KC_RESULT);
}

static struct trained train(const struct test_frozen *spec, const struct regime *g)
{
    struct trained t;
    struct fleet f;
    fleet_make(&f, &spec->spec);
    costs_nothing(&f);
    nothing_below(&f, g);
    fleet_parameters(&f, &t.before);
    for (uint64_t s = 0; s < STEPS; s++)
        t.step[s] = fleet_train(&f, s);
    fleet_parameters(&f, &t.after);
    compare(&f, g, &t);
    fleet_free(&f);
    return t;
}

static void trained_free(struct trained *t)
{
    free(t->before);
    free(t->after);
}

START_TEST(frozen_parameters_keep_every_bit_and_layouts_train_alike)
{
    const struct regime *g = &regimes[_i];
    struct test_frozen spec = frozen(g);
    struct trained want = train(&spec, g);
    for (size_t i = 0; i < LAYOUTS; i++) {
        if (layouts[i].context > 1 && g->family == KC_FAMILY_MOE)
            continue;
        cut(&spec.spec, &layouts[i]);
        struct trained got = train(&spec, g);
        for (int s = 0; s < STEPS; s++) {
            ck_assert_double_eq(got.step[s].tokens, want.step[s].tokens);
            ck_assert_msg(fabs(got.step[s].loss - want.step[s].loss) <= 1e-4 * fabs(want.step[s].loss),
                          "layout %zu, step %d: loss %.9g, one rank has %.9g", i, s, got.step[s].loss, want.step[s].loss);
        }
        ck_assert_double_eq_tol(got.step[0].norm, want.step[0].norm, 1e-4 * want.step[0].norm);
        trained_free(&got);
    }
    trained_free(&want);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("freeze");
    TCase *graph = tcase_create("graph"), *training = tcase_create("training");
    tcase_add_loop_test(graph, what_is_trained_has_the_gradients_that_it_has_in_the_whole_model, 0, REGIMES);
    tcase_add_test(graph, a_pattern_that_matches_nothing_is_refused_with_the_nearest_names);
    tcase_set_timeout(training, 120);
    tcase_add_loop_test(training, frozen_parameters_keep_every_bit_and_layouts_train_alike, 0, REGIMES);
    suite_add_tcase(s, graph);
    suite_add_tcase(s, training);
    return suite_run(s);
}
