/* test_pipeline.c - every order of a pipeline trains as one rank does: the real plans, programs and kernels, ranks as threads. */
#include "tests/unit/fleet.h"
#include "tests/unit/graph_runner.h"
#include "tests/unit/suite.h"

#include "schedule/check.h"

#include <check.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#ifdef __SANITIZE_ADDRESS__ /* memory is used alike in every step */
enum { STEPS = 2 };
#else
enum { STEPS = 3 };
#endif

struct run {
    struct fleet_step step[STEPS];
    double evaluated;
    float *values;
    size_t count;
};

static struct run run_of(const struct kc_job_spec *spec)
{
    struct run r;
    struct fleet fleet;
    fleet_make(&fleet, spec);
    for (uint64_t s = 0; s < STEPS; s++)
        r.step[s] = fleet_train(&fleet, s);
    r.count = fleet_parameters(&fleet, &r.values);
    r.evaluated = fleet_evaluate(&fleet);
    fleet_free(&fleet);
    return r;
}

static void near(const char *what, double got, double want, double tolerance)
{
    ck_assert_msg(fabs(got - want) <= tolerance * fabs(want), "%s: %.9g for %.9g", what, got, want);
}

/* Losses and norms to 1e-5, and what both trained. */
static void same_training(const struct run *got, const struct run *want)
{
    for (int s = 0; s < STEPS; s++) {
        ck_assert_double_eq(got->step[s].tokens, want->step[s].tokens);
        near("loss", got->step[s].loss, want->step[s].loss, 1e-5);
        near("norm", got->step[s].norm, want->step[s].norm, 1e-5);
    }
    ck_assert_uint_eq(got->count, want->count);
    for (size_t i = 0; i < got->count; i++)
        ck_assert_msg(fabsf(got->values[i] - want->values[i]) <= 2e-3f, "element %zu: %.9g for %.9g", i,
                      (double)got->values[i], (double)want->values[i]);
}

static void same_bits(const struct run *a, const struct run *b)
{
    ck_assert_mem_eq(a->step, b->step, sizeof a->step);
    ck_assert_mem_eq(a->values, b->values, a->count * sizeof *a->values);
}

/* `s` trains as `one` does, and twice with the same bits. */
static void trains_as(const struct kc_job_spec *s, const struct kc_job_spec *one)
{
    const struct run want = run_of(one), got = run_of(s), again = run_of(s);
    same_training(&got, &want);
    same_bits(&got, &again);
    free(want.values);
    free(got.values);
    free(again.values);
}

static const struct {
    enum kc_pipeline order;
    uint32_t stages, chunks, data, micros;
} layouts[] = {
    {KC_PIPELINE_GPIPE, 2, 1, 1, 4},       {KC_PIPELINE_GPIPE, 3, 1, 1, 2},       {KC_PIPELINE_GPIPE, 4, 1, 1, 8},
    {KC_PIPELINE_GPIPE, 2, 3, 1, 4},       {KC_PIPELINE_1F1B, 2, 1, 1, 1},        {KC_PIPELINE_1F1B, 2, 1, 1, 4},
    {KC_PIPELINE_1F1B, 3, 1, 1, 8},        {KC_PIPELINE_1F1B, 4, 1, 1, 2},        {KC_PIPELINE_1F1B, 4, 1, 1, 8},
    {KC_PIPELINE_1F1B, 6, 1, 1, 8},        {KC_PIPELINE_1F1B, 2, 1, 2, 4},        {KC_PIPELINE_INTERLEAVED, 2, 2, 1, 4},
    {KC_PIPELINE_INTERLEAVED, 2, 3, 1, 8}, {KC_PIPELINE_INTERLEAVED, 3, 2, 1, 4}, {KC_PIPELINE_INTERLEAVED, 3, 2, 1, 2},
    {KC_PIPELINE_INTERLEAVED, 2, 2, 2, 2}, {KC_PIPELINE_ZERO_BUBBLE, 2, 1, 1, 4}, {KC_PIPELINE_ZERO_BUBBLE, 3, 1, 1, 8},
    {KC_PIPELINE_ZERO_BUBBLE, 4, 1, 1, 2}, {KC_PIPELINE_ZERO_BUBBLE, 2, 2, 1, 4}, {KC_PIPELINE_ZERO_BUBBLE, 3, 2, 1, 8},
    {KC_PIPELINE_ZERO_BUBBLE, 2, 2, 2, 4}, {KC_PIPELINE_ZERO_BUBBLE, 3, 2, 1, 2},
};
enum { LAYOUTS = sizeof layouts / sizeof *layouts };

static void every_order_trains_as_one(enum kc_family family, uint32_t tied, uint32_t zero)
{
    const struct kc_job_spec one = fleet_small(family, tied);
    const struct run want = run_of(&one);
    for (size_t i = 0; i < LAYOUTS; i++) {
        struct kc_job_spec s = fleet_cut(one, layouts[i].order, layouts[i].stages, layouts[i].chunks, layouts[i].data,
                                   layouts[i].micros);
        s.zero = zero;
        const struct run got = run_of(&s), again = run_of(&s);
        same_training(&got, &want);
        same_bits(&got, &again);
        free(got.values);
        free(again.values);
    }
    free(want.values);
}

START_TEST(every_order_trains_gpt2_whose_head_is_tied_across_stages_as_one_rank_does)
{
    every_order_trains_as_one(KC_FAMILY_GPT2, 1, 0);
}
END_TEST

START_TEST(every_order_trains_llama_as_one_rank_does)
{
    every_order_trains_as_one(KC_FAMILY_LLAMA, 0, 1);
}
END_TEST

START_TEST(every_order_trains_tied_llama_as_one_rank_does)
{
    every_order_trains_as_one(KC_FAMILY_LLAMA, 1, 1);
}
END_TEST

START_TEST(a_mixture_of_experts_passes_stages)
{
    const struct kc_job_spec one = fleet_small(KC_FAMILY_MOE, 0);
    struct kc_job_spec few = fleet_cut(one, KC_PIPELINE_1F1B, 1, 1, 1, 4), s = fleet_cut(one, KC_PIPELINE_1F1B, 3, 1, 1, 4);
    const struct run want = run_of(&few), got = run_of(&s);
    same_training(&got, &want);
    free(got.values);
    free(want.values);
}
END_TEST

/* Stages whose ops are cut along other axes as well: what passes between them are parts. */
static const struct {
    enum kc_family family;
    uint32_t tensor, sequence, context, expert, data, stages, chunks;
    enum kc_pipeline order;
} crossed[] = {
    {KC_FAMILY_GPT2, 2, 0, 1, 1, 1, 2, 1, KC_PIPELINE_1F1B},
    {KC_FAMILY_LLAMA, 2, 1, 1, 1, 1, 3, 1, KC_PIPELINE_1F1B},
    {KC_FAMILY_LLAMA, 2, 1, 1, 1, 2, 2, 1, KC_PIPELINE_ZERO_BUBBLE},
    {KC_FAMILY_GPT2, 4, 1, 1, 1, 1, 2, 2, KC_PIPELINE_ZERO_BUBBLE},
    {KC_FAMILY_LLAMA, 2, 0, 1, 1, 2, 2, 3, KC_PIPELINE_INTERLEAVED},
    {KC_FAMILY_MOE, 2, 0, 1, 1, 1, 2, 1, KC_PIPELINE_GPIPE},
    {KC_FAMILY_MOE, 1, 0, 1, 2, 1, 2, 1, KC_PIPELINE_1F1B},
};
enum { CROSSED = sizeof crossed / sizeof *crossed };

START_TEST(other_axes_cross_a_pipeline)
{
    const struct kc_job_spec one = fleet_small(crossed[_i].family, 0);
    struct kc_job_spec s = fleet_cut(one, crossed[_i].order, crossed[_i].stages, crossed[_i].chunks, crossed[_i].data, 4);
    s.axis[KC_TENSOR] = crossed[_i].tensor, s.sequence = crossed[_i].sequence, s.axis[KC_CONTEXT] = crossed[_i].context;
    s.axis[KC_EXPERT] = crossed[_i].expert, s.micro /= crossed[_i].expert;
    s.ranks *= crossed[_i].tensor * crossed[_i].context * crossed[_i].expert;
    s.zero = crossed[_i].data > 1;
    trains_as(&s, &one);
}
END_TEST

/* State keeps parts of gradients, then of parameters too: alone, under every order, with a tied head across stages, and with
 * other axes. */
static const struct {
    enum kc_family family;
    uint32_t zero, tensor, sequence, expert, data, stages, chunks, micros;
    enum kc_pipeline order;
} sharded[] = {
    {KC_FAMILY_GPT2, 2, 1, 0, 1, 1, 1, 1, 2, KC_PIPELINE_1F1B},
    {KC_FAMILY_GPT2, 3, 1, 0, 1, 1, 1, 1, 2, KC_PIPELINE_1F1B},
    {KC_FAMILY_GPT2, 2, 1, 0, 1, 4, 1, 1, 2, KC_PIPELINE_1F1B},
    {KC_FAMILY_LLAMA, 3, 1, 0, 1, 4, 1, 1, 2, KC_PIPELINE_1F1B},
    {KC_FAMILY_MOE, 3, 1, 0, 1, 2, 1, 1, 2, KC_PIPELINE_1F1B},
    {KC_FAMILY_LLAMA, 2, 2, 1, 1, 2, 1, 1, 2, KC_PIPELINE_1F1B},
    {KC_FAMILY_LLAMA, 3, 2, 1, 1, 2, 1, 1, 2, KC_PIPELINE_1F1B},
    {KC_FAMILY_MOE, 3, 1, 0, 2, 2, 1, 1, 2, KC_PIPELINE_1F1B},
    {KC_FAMILY_GPT2, 2, 1, 0, 1, 2, 2, 1, 4, KC_PIPELINE_1F1B},
    {KC_FAMILY_GPT2, 3, 1, 0, 1, 2, 3, 1, 4, KC_PIPELINE_1F1B},
    {KC_FAMILY_GPT2, 3, 1, 0, 1, 2, 2, 2, 4, KC_PIPELINE_ZERO_BUBBLE},
    {KC_FAMILY_LLAMA, 2, 1, 0, 1, 2, 3, 1, 4, KC_PIPELINE_ZERO_BUBBLE},
    {KC_FAMILY_LLAMA, 3, 1, 0, 1, 2, 2, 3, 4, KC_PIPELINE_INTERLEAVED},
    {KC_FAMILY_GPT2, 3, 2, 1, 1, 2, 2, 1, 4, KC_PIPELINE_GPIPE},
};
enum { SHARDED = sizeof sharded / sizeof *sharded };

START_TEST(parts_of_gradients_and_parameters_train_as_wholes_do)
{
    const struct kc_job_spec one = fleet_small(sharded[_i].family, 1);
    struct kc_job_spec s =
        fleet_cut(one, sharded[_i].order, sharded[_i].stages, sharded[_i].chunks, sharded[_i].data, sharded[_i].micros);
    s.zero = sharded[_i].zero, s.axis[KC_TENSOR] = sharded[_i].tensor, s.sequence = sharded[_i].sequence;
    s.axis[KC_EXPERT] = sharded[_i].expert, s.micro /= sharded[_i].expert;
    s.ranks *= sharded[_i].tensor * sharded[_i].expert;
    trains_as(&s, &one);
}
END_TEST

/* What is made again has the same bits; it is not kept from forward to backward. */
static const struct {
    enum kc_family family;
    enum kc_recompute recompute;
    uint32_t tensor, sequence, context, expert, data, zero, stages, chunks, micros;
    enum kc_pipeline order;
} repeated[] = {
    {KC_FAMILY_GPT2, KC_RECOMPUTE_SELECTIVE, 1, 0, 1, 1, 1, 0, 1, 1, 2, KC_PIPELINE_1F1B},
    {KC_FAMILY_GPT2, KC_RECOMPUTE_FULL, 1, 0, 1, 1, 1, 0, 1, 1, 2, KC_PIPELINE_1F1B},
    {KC_FAMILY_LLAMA, KC_RECOMPUTE_SELECTIVE, 1, 0, 1, 1, 1, 0, 1, 1, 1, KC_PIPELINE_1F1B},
    {KC_FAMILY_LLAMA, KC_RECOMPUTE_FULL, 1, 0, 1, 1, 1, 0, 1, 1, 1, KC_PIPELINE_1F1B},
    {KC_FAMILY_MOE, KC_RECOMPUTE_SELECTIVE, 1, 0, 1, 1, 1, 0, 1, 1, 2, KC_PIPELINE_1F1B},
    {KC_FAMILY_MOE, KC_RECOMPUTE_FULL, 1, 0, 1, 1, 1, 0, 1, 1, 2, KC_PIPELINE_1F1B},
    {KC_FAMILY_LLAMA, KC_RECOMPUTE_FULL, 2, 1, 1, 1, 1, 0, 1, 1, 2, KC_PIPELINE_1F1B},
    {KC_FAMILY_GPT2, KC_RECOMPUTE_SELECTIVE, 2, 1, 2, 1, 1, 0, 1, 1, 2, KC_PIPELINE_1F1B},
    {KC_FAMILY_LLAMA, KC_RECOMPUTE_FULL, 1, 0, 2, 1, 1, 0, 1, 1, 2, KC_PIPELINE_1F1B},
    {KC_FAMILY_MOE, KC_RECOMPUTE_FULL, 1, 0, 1, 2, 1, 0, 1, 1, 2, KC_PIPELINE_1F1B},
    {KC_FAMILY_LLAMA, KC_RECOMPUTE_FULL, 1, 0, 1, 1, 2, 3, 3, 1, 4, KC_PIPELINE_ZERO_BUBBLE},
    {KC_FAMILY_GPT2, KC_RECOMPUTE_FULL, 2, 1, 1, 1, 1, 0, 2, 2, 4, KC_PIPELINE_INTERLEAVED},
};
enum { REPEATED = sizeof repeated / sizeof *repeated };

static uint64_t most_work(const struct kc_job_spec *spec)
{
    struct fleet f;
    struct kc_error e = {""};
    uint64_t most = 0;
    ck_assert_msg(fleet_plan(&f, spec, &e) == 0, "%s", e.text);
    for (uint32_t r = 0; r < spec->ranks; r++)
        most = f.plan[r]->work_bytes > most ? f.plan[r]->work_bytes : most;
    fleet_free(&f);
    return most;
}

START_TEST(what_is_made_again_trains_alike_in_less_memory)
{
    const struct kc_job_spec one = fleet_small(repeated[_i].family, 1);
    struct kc_job_spec s =
        fleet_cut(one, repeated[_i].order, repeated[_i].stages, repeated[_i].chunks, repeated[_i].data, repeated[_i].micros);
    s.zero = repeated[_i].zero, s.axis[KC_TENSOR] = repeated[_i].tensor, s.sequence = repeated[_i].sequence;
    s.axis[KC_CONTEXT] = repeated[_i].context, s.axis[KC_EXPERT] = repeated[_i].expert, s.micro /= repeated[_i].expert;
    s.ranks *= repeated[_i].tensor * repeated[_i].context * repeated[_i].expert;
    const uint64_t kept = most_work(&s);
    const struct run want = run_of(&s);
    s.recompute = repeated[_i].recompute;
    const struct run got = run_of(&s);
    same_bits(&got, &want);
    ck_assert_uint_lt(most_work(&s), kept);
    free(want.values);
    free(got.values);
}
END_TEST

static const struct kc_plan_op *op_at(const struct fleet *f, int32_t op)
{
    return KC_AT(f->shard, struct kc_plan_op, f->shard->ops) + op;
}

/* Layers of which backward has an op of forward. */
static void layers_again(const struct fleet *f, bool *again)
{
    for (uint32_t o = f->shard->backward_first; o < f->shard->ops.count; o++)
        for (uint32_t k = 0; k < f->shard->evaluate_first; k++) {
            const struct kc_plan_op *back = op_at(f, (int32_t)o), *forward = op_at(f, (int32_t)k);
            if (back->layer >= 0 && back->layer == forward->layer && back->opcode == forward->opcode && forward->collective < 0 &&
                back->collective < 0)
                again[back->layer] = true;
        }
}

/* Layer by layer: of each stage the first n, as Megatron-LM's --recompute-method block has it; each costs memory less, never a
 * bit, and all of them are what "full" is. */
START_TEST(the_first_layers_of_each_stage_are_made_again)
{
    struct kc_job_spec s = fleet_cut(fleet_small(_i ? KC_FAMILY_MOE : KC_FAMILY_LLAMA, 0),
                                     _i ? KC_PIPELINE_1F1B : KC_PIPELINE_ZERO_BUBBLE, 2, 1, 1, 4);
    const struct run want = run_of(&s);
    uint64_t before = most_work(&s);
    s.recompute = KC_RECOMPUTE_FULL;
    const uint64_t all = most_work(&s);
    for (s.recompute_layers = 1; s.recompute_layers <= 3; s.recompute_layers++) { /* six layers on two stages */
        struct fleet f;
        struct kc_error e = {""};
        ck_assert_msg(fleet_plan(&f, &s, &e) == 0, "%s", e.text);
        const struct kc_plan_stage *stage = KC_AT(f.shard, struct kc_plan_stage, f.shard->stages);
        bool again[6] = {false};
        layers_again(&f, again);
        for (uint32_t p = 0; p < 2; p++)
            for (uint32_t l = 0; l < stage[p].layers; l++)
                ck_assert_int_eq(again[stage[p].layer_first + l], l < s.recompute_layers);
        fleet_free(&f);
        const uint64_t now = most_work(&s);
        const struct run got = run_of(&s);
        same_bits(&got, &want);
        ck_assert_uint_le(now, before);
        before = now;
        free(got.values);
    }
    ck_assert_uint_eq(before, all);
    free(want.values);
}
END_TEST

START_TEST(an_evaluation_passes_all_stages)
{
    struct kc_job_spec one = fleet_small(KC_FAMILY_GPT2, 1);
    one.micro = 2;
    const struct run want = run_of(&one);
    for (size_t i = 0; i < LAYOUTS; i++) {
        if (layouts[i].data > 1 || layouts[i].micros != 4)
            continue;
        const struct kc_job_spec s = fleet_cut(one, layouts[i].order, layouts[i].stages, layouts[i].chunks, 1, 4);
        const struct run got = run_of(&s);
        near("loss", got.evaluated, want.evaluated, 1e-4);
        free(got.values);
    }
    free(want.values);
}
END_TEST

/* ---- memory ---- */

/* Does a backward op read the tensor? */
static bool is_saved(const struct fleet *f, int32_t tensor)
{
    for (uint32_t o = f->shard->backward_first; o < f->shard->ops.count; o++)
        for (uint32_t i = 0; i < op_at(f, (int32_t)o)->in.count; i++)
            if (KC_AT(f->shard, int32_t, op_at(f, (int32_t)o)->in)[i] == tensor)
                return true;
    return false;
}

/* In how many places the micro-batches of a rank's saved activations lie; all of them alike, but for those that the head alone
 * reads again. */
static uint32_t places_of(const struct fleet *f, uint32_t rank)
{
    const struct kc_exec_plan *p = f->plan[rank];
    const struct kc_exec_instruction *ins = kc_program_at(p, KC_PROGRAM_TRAIN);
    uint32_t most = 0;
    for (uint32_t o = 0; o < f->shard->evaluate_first; o++) {
        const struct kc_plan_op *op = op_at(f, (int32_t)o);
        if (op->layer < 0 || op->out.count == 0 || !is_saved(f, KC_AT(f->shard, int32_t, op->out)[0]))
            continue;
        uint64_t seen[64];
        uint32_t count = 0;
        for (uint32_t i = 0; i < p->programs[KC_PROGRAM_TRAIN].count; i++) {
            const uint64_t at = ins[i].op == (int32_t)o ? kc_refs_of(p, &ins[i])[ins[i].inputs].offset : 0;
            uint32_t k = 0;
            while (ins[i].op == (int32_t)o && k < count && seen[k] != at)
                k++;
            if (ins[i].op == (int32_t)o && k == count)
                seen[count++] = at;
        }
        most = count > most ? count : most;
    }
    return most;
}

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* GPipe keeps them all, 1F1B on rank r of p as many as there are ranks from it on, and W that is put off as many as there are
 * ranks. */
START_TEST(a_saved_activation_has_as_many_slots_as_the_order_has_micro_batches_under_way)
{
    const struct kc_job_spec one = fleet_small(KC_FAMILY_GPT2, 1);
    for (uint32_t stages = 2; stages <= 4; stages++)
        for (uint32_t micros = 1; micros <= 8; micros *= 2)
            for (int order = 0; order < 3; order++) {
                static const enum kc_pipeline orders[] = {KC_PIPELINE_GPIPE, KC_PIPELINE_1F1B, KC_PIPELINE_ZERO_BUBBLE};
                const struct kc_job_spec s = fleet_cut(one, orders[order], stages, 1, 1, micros);
                struct fleet f;
                struct kc_error e = {""};
                ck_assert_msg(fleet_plan(&f, &s, &e) == 0, "%s", e.text);
                for (uint32_t r = 0; r < stages; r++) {
                    const uint32_t want[] = {micros, least(stages - r, micros), least(stages, micros)};
                    ck_assert_msg(places_of(&f, r) == want[order], "%s, %u micro-batches, rank %u of %u: %u slots for %u",
                                  kc_pipeline_name[orders[order]], micros, r, stages, places_of(&f, r), want[order]);
                }
                fleet_free(&f);
            }
}
END_TEST

/* From when a bucket of gradients is cleared until its sum is with state's. */
START_TEST(two_whole_buckets_of_gradients_are_live_at_most)
{
    struct kc_job_spec one = fleet_small(KC_FAMILY_LLAMA, 0);
    one.hidden = 64, one.ffn = 134; /* a layer is a bucket */
    struct kc_job_spec s = fleet_cut(one, KC_PIPELINE_1F1B, 1, 1, 2, 2);
    s.zero = 2;
    struct fleet f;
    struct kc_error e = {""};
    ck_assert_msg(fleet_plan(&f, &s, &e) == 0, "%s", e.text);
    ck_assert_uint_ge(f.shard->buckets.count, 6);
    const struct kc_exec_instruction *ins = kc_program_at(f.plan[1], KC_PROGRAM_TRAIN);
    struct kc_exec_ref live[8];
    uint32_t count = 0, most = 0, cleared = 0;
    for (uint32_t i = 0; i < f.plan[1]->programs[KC_PROGRAM_TRAIN].count; i++) {
        const struct kc_exec_ref *r = kc_refs_of(f.plan[1], &ins[i]);
        if (ins[i].kind == KC_I_CLEAR && r->space == KC_SPACE_WORK) {
            live[count++] = *r;
            most = count > most ? count : most;
            cleared++;
        }
        for (uint32_t k = 0; ins[i].op < 0 && ins[i].opcode == KC_OP_ADD && k < count; k++)
            if (r->offset >= live[k].offset && r->offset < live[k].offset + kc_ref_bytes(&live[k]))
                live[k--] = live[--count];
    }
    ck_assert_uint_eq(cleared, 2 * f.shard->buckets.count); /* once a micro-batch */
    ck_assert_uint_eq(most, 2);
    fleet_free(&f);
}
END_TEST

/* ---- refusals ---- */

static void refused(const struct kc_job_spec *s, const char *words)
{
    struct fleet f;
    struct kc_error e = {""};
    ck_assert_int_lt(fleet_plan(&f, s, &e), 0);
    ck_assert_msg(strstr(e.text, words), "\"%s\" has no \"%s\"", e.text, words);
    fleet_free(&f);
}

/* By layer, how many forward ops of one micro-batch a rank's program has. */
static void count_layers(const struct fleet *f, uint32_t rank, uint32_t *ops)
{
    const struct kc_exec_plan *p = f->plan[rank];
    const struct kc_exec_instruction *ins = kc_program_at(p, KC_PROGRAM_TRAIN);
    for (uint32_t i = 0; i < p->programs[KC_PROGRAM_TRAIN].count; i++)
        if (ins[i].kind == KC_I_COMPUTE && ins[i].op >= 0 && ins[i].micro == 0 && op_at(f, ins[i].op)->klass == KC_FORWARD &&
            ins[i].part == KC_PART_FORWARD && ins[i].layer >= 0)
            ops[ins[i].layer]++;
}

/* No layer is left out or done twice, however unevenly they fall on the stages: 30 on 4 are 30. */
START_TEST(F45_every_layer_is_on_exactly_one_stage)
{
    static const uint32_t cuts[][3] = {{30, 4, 1}, {7, 4, 1}, {5, 2, 1}, {11, 2, 3}, {13, 3, 2}}; /* layers, ranks, stages a rank */
    for (size_t k = 0; k < sizeof cuts / sizeof *cuts; k++) {
        const uint32_t layers = cuts[k][0], ranks = cuts[k][1];
        struct kc_job_spec one = fleet_small(KC_FAMILY_GPT2, 1);
        struct kc_error e = {""};
        struct fleet f;
        uint32_t whole[32] = {0}, uneven = 0;
        one.layers = layers;
        ck_assert_msg(fleet_plan(&f, &one, &e) == 0, "%s", e.text);
        count_layers(&f, 0, whole);
        fleet_free(&f);
        const struct kc_job_spec s =
            fleet_cut(one, cuts[k][2] > 1 ? KC_PIPELINE_INTERLEAVED : KC_PIPELINE_1F1B, ranks, cuts[k][2], 1, ranks == 3 ? 1 : 4);
        ck_assert_msg(fleet_plan(&f, &s, &e) == 0, "%s", e.text);
        uint32_t where[32] = {0};
        for (uint32_t r = 0; r < ranks; r++) {
            uint32_t own[32] = {0}, count = 0;
            count_layers(&f, r, own);
            for (uint32_t l = 0; l < layers; l++) {
                ck_assert_msg(own[l] == 0 || own[l] == whole[l], "layer %u of %u on %u ranks: %u of its %u ops on rank %u", l,
                              layers, ranks, own[l], whole[l], r);
                where[l] += own[l] != 0, count += own[l] != 0;
            }
            uneven += count != layers / ranks;
        }
        for (uint32_t l = 0; l < layers; l++)
            ck_assert_msg(where[l] == 1, "layer %u of %u is on %u of %u ranks", l, layers, where[l], ranks);
        ck_assert_uint_gt(uneven, 0);
        fleet_free(&f);
    }
}
END_TEST

START_TEST(a_pipeline_that_cannot_be_is_refused_with_its_numbers)
{
    const struct kc_job_spec one = fleet_small(KC_FAMILY_GPT2, 1);
    struct kc_job_spec s = fleet_cut(one, KC_PIPELINE_1F1B, 7, 1, 1, 8);
    refused(&s, "model.layers = 6, but parallel.pipeline·parallel.chunks = 7·1 = 7 stages");
    s = fleet_cut(one, KC_PIPELINE_1F1B, 2, 2, 1, 8);
    refused(&s, "pipeline order 1f1b with chunks = 2: it takes 1 a rank");
    s = fleet_cut(one, KC_PIPELINE_ZERO_BUBBLE, 2, 3, 1, 8);
    refused(&s, "pipeline order zero-bubble with chunks = 3: it takes 1 or 2 a rank");
}
END_TEST

int main(void)
{
    Suite *s = suite_create("pipeline");
    TCase *t = tcase_create("orders");
    tcase_set_timeout(t, 300);
    tcase_add_test(t, every_order_trains_gpt2_whose_head_is_tied_across_stages_as_one_rank_does);
    tcase_add_test(t, every_order_trains_llama_as_one_rank_does);
    tcase_add_test(t, every_order_trains_tied_llama_as_one_rank_does);
    tcase_add_test(t, a_mixture_of_experts_passes_stages);
    tcase_add_loop_test(t, other_axes_cross_a_pipeline, 0, CROSSED);
    tcase_add_loop_test(t, parts_of_gradients_and_parameters_train_as_wholes_do, 0, SHARDED);
    tcase_add_loop_test(t, what_is_made_again_trains_alike_in_less_memory, 0, REPEATED);
    tcase_add_loop_test(t, the_first_layers_of_each_stage_are_made_again, 0, 2);
    tcase_add_test(t, an_evaluation_passes_all_stages);
    suite_add_tcase(s, t);
    t = tcase_create("plans");
    tcase_set_timeout(t, 60);
    tcase_add_test(t, a_saved_activation_has_as_many_slots_as_the_order_has_micro_batches_under_way);
    tcase_add_test(t, two_whole_buckets_of_gradients_are_live_at_most);
    tcase_add_test(t, F45_every_layer_is_on_exactly_one_stage);
    tcase_add_test(t, a_pipeline_that_cannot_be_is_refused_with_its_numbers);
    suite_add_tcase(s, t);
    return suite_run(s);
}
