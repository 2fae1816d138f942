/* test_cut.c - models that are cut: plans of strategy, carried out in one thread with real kernels (cut_rig.h), give what one
 * rank gives; and conversions stand where the algebra says, and nowhere else. Expected counts and bytes are those of Megatron-LM
 * (Shoeybi et al. 2019; Korthikanti et al. 2022), not of our own output. */
#include "tests/unit/cut_rig.h"
#include "tests/unit/suite.h"

#include <check.h>
#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct layout {
    enum kc_family family;
    uint32_t tensor, sequence, context, expert, data, zero;
    uint32_t heads, kv_heads, vocab, hidden, ffn; /* 0: as the others have it */
    uint32_t masked, tied, sequences, recompute;
};

static uint32_t ranks_on(uint32_t axis)
{
    return axis ? axis : 1;
}

/* A step of eight sequences: two micro-batches. */
static struct kc_job_spec spec_of(const struct layout *l)
{
    const uint32_t heads = l->heads ? l->heads : 4, batch = ranks_on(l->data) * ranks_on(l->expert);
    struct kc_job_spec s = test_spec(2, l->hidden ? l->hidden : 8 * heads, heads, 24, l->vocab ? l->vocab : 61, 1);
    test_family(&s, l->family);
    s.ffn = l->ffn ? l->ffn : s.ffn;
    s.kv_heads = l->kv_heads ? l->kv_heads : s.kv_heads;
    s.sequences = l->sequences ? l->sequences : 8, s.micro = s.sequences / 2 / batch;
    s.tied = l->tied;
    if (l->masked)
        s.documents = KC_DOCUMENTS_MASKED;
    const uint32_t axis[KC_AXES] = {ranks_on(l->tensor), ranks_on(l->context), ranks_on(l->expert), ranks_on(l->data), 1};
    memcpy(s.axis, axis, sizeof axis);
    s.ranks = axis[KC_TENSOR] * axis[KC_CONTEXT] * batch;
    s.sequence = l->sequence, s.zero = l->zero, s.recompute = l->recompute;
    s.chunks = 1;
    return s;
}

static struct layout one_rank(struct layout l)
{
    l.tensor = l.context = l.expert = l.data = 1, l.zero = l.sequence = l.recompute = 0;
    return l;
}

static void layout_text(const struct layout *l, char out[128])
{
    snprintf(out, 128, "%s, tensor %u%s, context %u, expert %u, data %u, zero %u, recompute %s",
             kc_family_name[l->family], ranks_on(l->tensor), l->sequence ? " with sequence" : "", ranks_on(l->context),
             ranks_on(l->expert), ranks_on(l->data), l->zero, kc_recompute_name[l->recompute]);
}

static void near(const char *what, const char *layout, double got, double want)
{
    ck_assert_msg(fabs(got - want) <= 1e-4 * fabs(want), "%s: %s %.9g, one rank has %.9g", layout, what, got, want);
}

static void gradients_compare(const struct cut_rig *cut, const struct cut_rig *whole, const char *layout)
{
    for (uint32_t i = 0; i < whole->shard->tensors.count; i++) {
        const struct kc_plan_tensor *t = KC_AT(whole->shard, struct kc_plan_tensor, whole->shard->tensors) + i;
        if (t->role != KC_PARAMETER)
            continue;
        float *got = cut_rig_gradient(cut, (int32_t)i), *want = cut_rig_gradient(whole, (int32_t)i);
        double apart = 0, largest = 0;
        uint64_t n = 1;
        for (int d = 0; d < t->rank; d++)
            n *= t->global[d];
        for (uint64_t k = 0; k < n; k++) {
            const double delta = fabs((double)got[k] - (double)want[k]);
            apart = delta <= apart ? apart : delta;
            largest = fmax(largest, fabs((double)want[k]));
        }
        ck_assert_msg(apart <= 1e-4 * largest, "%s: gradient of %s is off by %.3g of its largest value", layout,
                      KC_TEXT(whole->shard, t->name), apart / largest);
        free(got);
        free(want);
    }
}

static const struct layout layouts[] = {
#define CUT(f, ...) {.family = KC_FAMILY_##f, __VA_ARGS__} /* an axis of 0: of one rank */
    CUT(GPT2, .data = 2), CUT(GPT2, .data = 4, .zero = 1), CUT(GPT2, .tensor = 2), CUT(GPT2, .tensor = 2, .sequence = 1),
    CUT(GPT2, .tensor = 4, .sequence = 1, .data = 2, .zero = 1), CUT(GPT2, .tensor = 3, .heads = 5), /* uneven */
    CUT(GPT2, .tensor = 3, .heads = 5, .sequence = 1), CUT(GPT2, .tensor = 2, .masked = 1, .data = 2),
    CUT(LLAMA, .data = 2), CUT(LLAMA, .tensor = 2), CUT(LLAMA, .tensor = 2, .sequence = 1),
    CUT(LLAMA, .tensor = 4), /* two key/value heads: each on two ranks */
    CUT(LLAMA, .tensor = 4, .sequence = 1, .data = 2, .zero = 1), CUT(LLAMA, .tensor = 3, .heads = 6, .kv_heads = 1),
    CUT(LLAMA, .tensor = 2, .tied = 1, .sequence = 1), CUT(LLAMA, .tensor = 3, .heads = 6, .kv_heads = 3, .ffn = 40),
    CUT(LLAMA, .tensor = 2, .heads = 5, .kv_heads = 5), CUT(LLAMA, .tensor = 3, .heads = 5, .kv_heads = 5, .context = 2),
    CUT(MOE, .data = 2), CUT(MOE, .expert = 2), CUT(MOE, .tensor = 2), CUT(MOE, .tensor = 2, .sequence = 1),
    CUT(MOE, .tensor = 4, .sequence = 1, .data = 2), CUT(GPT2, .expert = 2), CUT(LLAMA, .expert = 2, .data = 2, .zero = 1),
    CUT(LLAMA, .expert = 2, .tensor = 2, .data = 2, .sequence = 1), CUT(MOE, .expert = 4), CUT(MOE, .expert = 3, .sequences = 6),
    CUT(GPT2, .context = 2), CUT(GPT2, .context = 3, .masked = 1), CUT(LLAMA, .context = 2), CUT(LLAMA, .context = 4, .masked = 1),
    CUT(LLAMA, .context = 2, .tensor = 2, .sequence = 1), CUT(LLAMA, .context = 2, .tensor = 4, .data = 2, .zero = 1),
    CUT(GPT2, .context = 2, .tensor = 3, .heads = 5, .data = 2, .zero = 1), CUT(MOE, .context = 2),
    CUT(MOE, .context = 2, .expert = 2), CUT(MOE, .context = 2, .expert = 2, .tensor = 2, .sequence = 1),
    CUT(MOE, .expert = 2, .data = 2, .zero = 1), CUT(MOE, .expert = 2, .tensor = 2, .sequence = 1),
    CUT(GPT2, .recompute = KC_RECOMPUTE_FULL), CUT(GPT2, .recompute = KC_RECOMPUTE_SELECTIVE),
    CUT(LLAMA, .recompute = KC_RECOMPUTE_FULL),
    CUT(LLAMA, .context = 2, .recompute = KC_RECOMPUTE_SELECTIVE), CUT(MOE, .recompute = KC_RECOMPUTE_FULL),
    CUT(GPT2, .context = 2, .tensor = 2, .sequence = 1, .recompute = KC_RECOMPUTE_FULL),
    CUT(MOE, .expert = 2, .tensor = 2, .recompute = KC_RECOMPUTE_FULL),
};
enum { LAYOUTS = sizeof layouts / sizeof *layouts };

START_TEST(a_model_that_is_cut_gives_what_one_rank_gives)
{
    char name[128];
    layout_text(&layouts[_i], name);
    const struct layout alone = one_rank(layouts[_i]);
    const struct kc_job_spec spec = spec_of(&layouts[_i]);
    const struct kc_job_spec whole_spec = spec_of(&alone);
    struct cut_rig cut, whole;
    struct kc_error e = {""};
    int bad = cut_rig_new(&cut, &spec, &e);
    ck_assert_msg(bad == 0, "%s: %s", name, e.text);
    ck_assert_int_eq(cut_rig_new(&whole, &whole_spec, &e), 0);
    struct cut_result got = cut_rig_step(&cut, 0), want = cut_rig_step(&whole, 0);
    ck_assert_double_eq(got.tokens, want.tokens);
    near("loss", name, got.loss, want.loss);
    gradients_compare(&cut, &whole, name);
    near("gradient norm", name, got.norm, want.norm);
    near("loss of the first micro-batch", name, cut_rig_step(&cut, 1).loss, cut_rig_step(&whole, 1).loss);
    cut_rig_free(&cut);
    cut_rig_free(&whole);
}
END_TEST

/* ---- where conversions stand ---- */

/* Collectives that ops of a part of the plan call, by primitive. */
static void count_collectives(const struct cut_rig *r, uint32_t first, uint32_t end, uint32_t out[KC_PRIMITIVES])
{
    const struct kc_plan_op *ops = KC_AT(r->shard, struct kc_plan_op, r->shard->ops);
    const struct kc_plan_collective *c = KC_AT(r->comm, struct kc_plan_collective, r->comm->collectives);
    memset(out, 0, KC_PRIMITIVES * sizeof *out);
    for (uint32_t o = first; o < end; o++)
        if (ops[o].collective >= 0)
            out[c[ops[o].collective].primitive]++;
}

static void expect(const char *where, const uint32_t got[KC_PRIMITIVES], uint32_t reduce, uint32_t gather, uint32_t scatter)
{
    for (int p = 0; p < KC_PRIMITIVES; p++) {
        const uint32_t want = p == KC_ALL_REDUCE       ? reduce
                              : p == KC_ALL_GATHER     ? gather
                              : p == KC_REDUCE_SCATTER ? scatter
                                                       : 0;
        ck_assert_msg(got[p] == want, "%s: %u x %s, expected %u", where, got[p], kc_primitive_name[p], want);
    }
}

/* Megatron-LM: without sequence an all-reduce behind attention and behind the MLP, and before each on the way back; one for the
 * embedding, one for the derivative of what the head reads, two for a token's loss. With it, each all-reduce is a reduce-scatter
 * and an all-gather; backward gathers the activations again that products read, and the derivative for the embedding. */
START_TEST(a_layer_has_megatrons_collectives_and_no_others)
{
    static const enum kc_family families[] = {KC_FAMILY_GPT2, KC_FAMILY_LLAMA};
    for (int i = 0; i < 4; i++) {
        const struct layout l = {.family = families[i / 2], .tensor = 2, .sequence = i % 2};
        const struct kc_job_spec spec = spec_of(&l);
        const uint32_t layers = spec.layers;
        struct cut_rig r;
        struct kc_error e = {""};
        uint32_t got[KC_PRIMITIVES];
        ck_assert_int_eq(cut_rig_new(&r, &spec, &e), 0);
        const struct kc_shard_plan *s = r.shard;
        count_collectives(&r, 0, s->evaluate_first, got);
        if (l.sequence)
            expect("forward, sequence", got, 0, 2 * layers, 1 + 2 * layers);
        else
            expect("forward", got, 1 + 2 * layers, 0, 0);
        count_collectives(&r, s->evaluate_first, s->logits_first, got);
        expect("loss", got, 2 - l.sequence, l.sequence, l.sequence); /* alone, a loss may be summed over parts of a sequence */
        count_collectives(&r, s->logits_first, s->backward_first, got);
        expect("logits", got, 0, l.sequence, 0);
        count_collectives(&r, s->backward_first, s->ops.count, got);
        if (l.sequence)
            expect("backward, sequence", got, 2, 1 + 4 * layers + 1, 1 + 2 * layers);
        else
            expect("backward", got, 2 + 1 + 2 * layers, 0, 0);
        cut_rig_free(&r);
    }
}
END_TEST

/* Keys and values go round once in forward, and once more in backward with their derivatives, which go one further, home. Of
 * grouped heads only the few move. */
START_TEST(attention_goes_round_the_context_axis)
{
    static const enum kc_family families[] = {KC_FAMILY_GPT2, KC_FAMILY_LLAMA};
    for (int f = 0; f < 2; f++) {
        const struct layout l = {.family = families[f], .context = 4, .data = 2};
        const struct kc_job_spec spec = spec_of(&l);
        const uint32_t c = 4, heads = f ? spec.kv_heads : spec.heads;
        struct cut_rig r;
        struct kc_error e = {""};
        uint32_t shifts[2] = {0};
        ck_assert_int_eq(cut_rig_new(&r, &spec, &e), 0);
        const struct kc_plan_op *ops = KC_AT(r.shard, struct kc_plan_op, r.shard->ops);
        const struct kc_plan_collective *list = KC_AT(r.comm, struct kc_plan_collective, r.comm->collectives);
        for (uint32_t o = 0; o < r.shard->ops.count; o++) {
            if (ops[o].collective < 0)
                continue;
            const struct kc_plan_collective *k = &list[ops[o].collective];
            ck_assert(k->purpose == KC_PURPOSE_RING && k->primitive == KC_ALL_TO_ALL && k->shift == 1 && k->type == KC_F32);
            ck_assert_uint_eq(k->count, spec.micro * (spec.context / c) * heads * (spec.hidden / spec.heads));
            shifts[o >= r.shard->backward_first]++;
        }
        ck_assert_uint_eq(shifts[0], spec.layers * 2 * (c - 1));
        ck_assert_uint_eq(shifts[1], spec.layers * (2 * (c - 1) + 2 * c));
        ck_assert_uint_eq(r.shard->sequence_pairs, 1);
        cut_rig_free(&r);
    }
}
END_TEST

/* A layer asks once how many rows go where; rows go to their experts and back, and so do their derivatives. */
START_TEST(rows_go_to_their_experts_and_back)
{
    const struct kc_job_spec spec = spec_of(&(struct layout){.family = KC_FAMILY_MOE, .expert = 4});
    struct cut_rig r;
    struct kc_error e = {""};
    uint32_t asked = 0, to[2] = {0}, back[2] = {0};
    ck_assert_int_eq(cut_rig_new(&r, &spec, &e), 0);
    const struct kc_plan_op *ops = KC_AT(r.shard, struct kc_plan_op, r.shard->ops);
    const struct kc_plan_collective *list = KC_AT(r.comm, struct kc_plan_collective, r.comm->collectives);
    for (uint32_t o = 0; o < r.shard->ops.count; o++) {
        const struct kc_plan_collective *k = ops[o].collective < 0 ? NULL : &list[ops[o].collective];
        const uint32_t backward = o >= r.shard->backward_first;
        if (!k)
            continue;
        asked += k->primitive == KC_ALL_GATHER;
        ck_assert(k->primitive == KC_ALL_GATHER ? k->type == KC_I32 && k->count == spec.experts : k->counted != 0);
        to[backward] += k->counted == 1, back[backward] += k->counted == 2;
    }
    ck_assert_uint_eq(asked, spec.layers);
    for (int i = 0; i < 2; i++)
        ck_assert(to[i] == spec.layers && back[i] == spec.layers);
    cut_rig_free(&r);
}
END_TEST

START_TEST(bytes_of_a_step_follow_the_formula)
{
    for (uint32_t t = 2; t <= 4; t += 2)
        for (uint32_t sequence = 0; sequence < 2; sequence++) {
            const struct layout l = {.family = KC_FAMILY_GPT2, .tensor = t, .sequence = sequence};
            const struct kc_job_spec s = spec_of(&l);
            struct cut_rig r;
            struct kc_error e = {""};
            ck_assert_int_eq(cut_rig_new(&r, &s, &e), 0);
            cut_rig_step(&r, 0);
            const double part = (t - 1.0) / t, tokens = (double)s.micro * s.context, wide = 4 * tokens * s.hidden;
            /* a maximum and two sums a token, all-reduced; an all-reduce is two halves of what a gather is */
            const double loss = 2 * part * 4 * tokens * 3, halves = 2 * (1 + 2.0 * s.layers + 1 + 2 * s.layers);
            const double again = sequence ? 2.0 * s.layers : 0; /* what backward gathers that forward had */
            ck_assert_double_eq_tol(r.sent, loss + part * wide * (halves + again), 1);
            cut_rig_free(&r);
        }
}
END_TEST

/* The name of an op's opcode, from the table that runs it. */
static const char *op_name(const struct cut_rig *r, const struct kc_plan_op *op)
{
    return r->table->ops[op->opcode].name;
}

START_TEST(what_all_ranks_have_is_added_to_a_sum_by_the_first_alone)
{
    const struct layout l = {.family = KC_FAMILY_GPT2, .tensor = 2};
    const struct kc_job_spec spec = spec_of(&l);
    struct cut_rig r;
    struct kc_error e = {""};
    uint32_t adds = 0, results = 0;
    ck_assert_int_eq(cut_rig_new(&r, &spec, &e), 0);
    const struct kc_plan_op *ops = KC_AT(r.shard, struct kc_plan_op, r.shard->ops);
    for (uint32_t o = 0; o < r.shard->ops.count; o++) {
        const uint32_t *omit = KC_AT(r.shard, uint32_t, ops[o].omit);
        if (ops[o].collective >= 0)
            continue;
        ck_assert_str_ne(op_name(&r, &ops[o]), "box"); /* nothing is filled with zeros for it */
        if (strcmp(op_name(&r, &ops[o]), "linear-add") == 0) {
            ck_assert_uint_eq(ops[o].omit.count, 5); /* x, w, bias, residual, out */
            ck_assert(omit[0] == 0 && omit[1] == 0 && omit[2] == 1u << KC_TENSOR && omit[3] == 1u << KC_TENSOR && !omit[4]);
            adds++;
        }
        if (strcmp(op_name(&r, &ops[o]), "vocab-loss") == 0) {
            ck_assert_uint_eq(omit[3], 1u << KC_TENSOR); /* the loss is counted once */
            results++;
        }
    }
    ck_assert_uint_eq(adds, 2 * spec.layers);
    ck_assert_uint_eq(results, 2);
    cut_rig_free(&r);
}
END_TEST

static const struct kc_plan_family *family_find(const struct cut_rig *r, const char *name)
{
    const struct kc_plan_family *f = KC_AT(r->comm, struct kc_plan_family, r->comm->families);
    for (uint32_t i = 0; i < r->comm->families.count; i++)
        if (strcmp(KC_TEXT(r->comm, f[i].name), name) == 0)
            return &f[i];
    return NULL;
}

static void group_is(const struct cut_rig *r, const char *family, uint32_t group, uint32_t a, uint32_t b)
{
    const struct kc_plan_family *f = family_find(r, family);
    ck_assert_msg(f != NULL, "%s", family);
    ck_assert_uint_lt(group, f->groups_count);
    const struct kc_plan_group *g = KC_AT(r->comm, struct kc_plan_group, r->comm->groups) + f->groups_first + group;
    const uint32_t *ranks = KC_AT(r->comm, uint32_t, g->ranks);
    ck_assert_msg(g->ranks.count == 2 && ranks[0] == a && ranks[1] == b, "%s.%u", family, group);
    ck_assert_uint_eq(kc_comm_group_of(r->comm, (uint32_t)(f - KC_AT(r->comm, struct kc_plan_family, r->comm->families)), b),
                      f->groups_first + group);
}

START_TEST(families_follow_from_the_mesh)
{
    const struct layout l = {.family = KC_FAMILY_LLAMA, .tensor = 4, .expert = 2, .sequence = 1};
    const struct kc_job_spec spec = spec_of(&l);
    struct cut_rig r;
    struct kc_error e = {""};
    ck_assert_int_eq(cut_rig_new(&r, &spec, &e), 0);
    group_is(&r, "tensor/2", 0, 0, 1); /* two key/value heads on four ranks */
    group_is(&r, "tensor/2", 3, 6, 7);
    group_is(&r, "expert", 1, 1, 5); /* dense gradients: data, of one rank, is not told apart */
    ck_assert_uint_eq(family_find(&r, "tensor")->groups_count, 2);
    ck_assert_uint_eq(family_find(&r, "world")->groups_count, 1);
    ck_assert_uint_eq(family_find(&r, "data")->groups_count, 8); /* always there */
    ck_assert_ptr_null(family_find(&r, "context"));
    cut_rig_free(&r);
}
END_TEST

START_TEST(gradients_of_what_all_ranks_have_are_summed_with_sequence_alone)
{
    for (uint32_t sequence = 0; sequence < 2; sequence++) {
        const struct layout l = {.family = KC_FAMILY_GPT2, .tensor = 2, .data = 2, .zero = 1, .sequence = sequence};
        const struct kc_job_spec spec = spec_of(&l);
        struct cut_rig r;
        struct kc_error e = {""};
        uint32_t sums = 0;
        ck_assert_int_eq(cut_rig_new(&r, &spec, &e), 0);
        const struct kc_plan_collective *c = KC_AT(r.comm, struct kc_plan_collective, r.comm->collectives);
        const uint32_t tensor = (uint32_t)(family_find(&r, "tensor") - KC_AT(r.comm, struct kc_plan_family, r.comm->families));
        for (uint32_t i = 0; i < r.comm->collectives.count; i++)
            if (c[i].purpose == KC_PURPOSE_GRADIENT && c[i].family == tensor) {
                const struct kc_plan_bucket *b = KC_AT(r.shard, struct kc_plan_bucket, r.shard->buckets) + c[i].bucket;
                ck_assert_uint_eq(b->once, 1u << KC_TENSOR); /* norms and positions: whole on both */
                ck_assert_uint_eq(c[i].primitive, KC_ALL_REDUCE);
                ck_assert(c[i + 1].bucket == c[i].bucket && c[i + 1].primitive == KC_REDUCE_SCATTER); /* then data */
                sums++;
            }
        ck_assert(sequence ? sums > 0 : sums == 0);
        cut_rig_free(&r);
    }
}
END_TEST

static void refused(struct layout l, int code, const char *text)
{
    const struct kc_job_spec spec = spec_of(&l);
    struct cut_rig r;
    struct kc_error e = {""};
    int bad = cut_rig_new(&r, &spec, &e);
    ck_assert_msg(bad == code && strstr(e.text, text), "%d, expected %d: \"%s\", expected \"%s\"", bad, code, e.text, text);
    cut_rig_free(&r);
}

START_TEST(what_does_not_go_is_refused_with_its_numbers)
{
    refused((struct layout){.family = KC_FAMILY_LLAMA, .tensor = 3, .heads = 6, .kv_heads = 2}, -EINVAL,
            "2 key/value heads and parallel.tensor = 3");
    refused((struct layout){.family = KC_FAMILY_LLAMA, .tensor = 320, .heads = 320, .kv_heads = 1, .vocab = 640}, -EINVAL,
            "1 key/value heads and parallel.tensor = 320: each would be on 320 ranks, at most 255 may hold the same; lower "
            "parallel.tensor to 128");
    refused((struct layout){.family = KC_FAMILY_GPT2, .tensor = 4, .heads = 3}, -EINVAL,
            "dimension heads is 3, less than parallel.tensor = 4; lower that to 3");
    refused((struct layout){.family = KC_FAMILY_GPT2, .tensor = 5, .heads = 5, .sequence = 1}, -EINVAL,
            "model.context / parallel.context = 24 / 1 = 24 tokens are not a multiple of parallel.tensor = 5");
}
END_TEST

/* By tensor: 1 + the layer whose forward writes it, or layers from 1000 on for backward; 0 nobody. */
static void writers(const struct kc_shard_plan *s, int32_t *by)
{
    const struct kc_plan_op *ops = KC_AT(s, struct kc_plan_op, s->ops);
    for (uint32_t o = 0; o < s->ops.count; o++)
        for (uint32_t i = 0; i < ops[o].out.count; i++)
            if (KC_AT(s, int32_t, ops[o].out)[i] >= 0)
                by[KC_AT(s, int32_t, ops[o].out)[i]] = 1 + ops[o].layer + (o >= s->backward_first ? 1000 : 0);
}

START_TEST(backward_makes_anew_what_forward_does_not_keep)
{
    for (uint32_t f = 0; f < KC_FAMILIES; f++) {
        /* with sequence, what moe has gathered anew saves it a conversion, and a sum has another order */
        struct layout l = {.family = f, .tensor = 2, .sequence = f != KC_FAMILY_MOE};
        struct kc_job_spec spec = spec_of(&l);
        struct cut_rig keeps, anew;
        struct kc_error e = {""};
        ck_assert_int_eq(cut_rig_new(&keeps, &spec, &e), 0);
        spec.recompute = KC_RECOMPUTE_FULL;
        ck_assert_int_eq(cut_rig_new(&anew, &spec, &e), 0);
        const struct kc_shard_plan *s = anew.shard;
        const struct kc_plan_op *ops = KC_AT(s, struct kc_plan_op, s->ops);
        int32_t *by = calloc(s->tensors.count, sizeof *by);
        writers(s, by);
        for (uint32_t o = s->backward_first; o < s->ops.count; o++)
            for (uint32_t i = 0; i < ops[o].in.count && ops[o].layer >= 0; i++) {
                const int32_t t = KC_AT(s, int32_t, ops[o].in)[i];
                ck_assert_msg(t < 0 || by[t] != 1 + ops[o].layer, "%s: backward of layer %d reads what its forward made",
                              KC_TEXT(s, KC_AT(s, struct kc_plan_tensor, s->tensors)[t].name), ops[o].layer);
            }
        const struct cut_result a = cut_rig_step(&keeps, 0), b = cut_rig_step(&anew, 0);
        ck_assert_msg(a.loss == b.loss && a.norm == b.norm, "%s: norm %.17g and %.17g", kc_family_name[f], a.norm, b.norm);
        free(by);
        cut_rig_free(&keeps);
        cut_rig_free(&anew);
    }
}
END_TEST

/* Experts of two ranks: rows of both, should all choose one's, or what parallel.expert_memory holds. */
START_TEST(rows_of_experts_have_room_for_all_or_for_what_the_spec_says)
{
    const struct layout l = {.family = KC_FAMILY_MOE, .expert = 2, .context = 2};
    struct kc_job_spec spec = spec_of(&l);
    spec.ffn = 8, spec.layers = 1, spec.context = 2048; /* a rank has 2 rows of 1024 tokens, twice: 4096 rows */
    for (uint32_t bound = 0; bound < 2; bound++) {
        struct cut_rig r;
        struct kc_error e = {""};
        uint32_t seen = 0;
        spec.hidden = 512, spec.expert_memory = bound; /* 2 KiB a row: 512 rows a MiB */
        ck_assert_int_eq(cut_rig_plan(&r, &spec, &e), 0);
        const struct kc_plan_collective *c = KC_AT(r.comm, struct kc_plan_collective, r.comm->collectives);
        const struct kc_plan_op *ops = KC_AT(r.shard, struct kc_plan_op, r.shard->ops);
        for (uint32_t o = 0; o < r.shard->ops.count; o++) {
            if (ops[o].collective < 0 || !c[ops[o].collective].counted)
                continue;
            const bool back = c[ops[o].collective].counted == 2;
            const int32_t in = KC_AT(r.shard, int32_t, ops[o].in)[0], out = KC_AT(r.shard, int32_t, ops[o].out)[0];
            const struct kc_plan_tensor *t = KC_AT(r.shard, struct kc_plan_tensor, r.shard->tensors);
            for (uint32_t rank = 0; rank < spec.ranks; rank++) {
                struct kc_box theirs, home;
                kc_plan_box(r.shard, &t[back ? in : out], rank, &theirs);
                kc_plan_box(r.shard, &t[back ? out : in], rank, &home);
                ck_assert_uint_eq(kc_box_elements(&home, 4), 4096 * 512);
                ck_assert_uint_eq(kc_box_elements(&theirs, 4), (bound ? 512 : 8192) * 512);
            }
            ck_assert_uint_eq(c[ops[o].collective].count, (bound ? 512 : 8192) * 512);
            seen++;
        }
        ck_assert_uint_eq(seen, 4 * spec.layers);
        cut_rig_free(&r);
    }
}
END_TEST

START_TEST(the_same_arguments_give_the_same_bytes)
{
    const struct kc_job_spec spec = spec_of(&(struct layout){.family = KC_FAMILY_MOE, .tensor = 2, .data = 2, .sequence = 1});
    struct cut_rig a, b;
    struct kc_error e = {""};
    ck_assert_int_eq(cut_rig_new(&a, &spec, &e), 0);
    ck_assert_int_eq(cut_rig_new(&b, &spec, &e), 0);
    ck_assert_uint_eq(a.shard->head.bytes, b.shard->head.bytes);
    ck_assert_mem_eq(a.shard, b.shard, a.shard->head.bytes);
    ck_assert_mem_eq(a.comm, b.comm, a.comm->head.bytes);
    cut_rig_free(&a);
    cut_rig_free(&b);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("cut");
    TCase *t = tcase_create("equality");
    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, a_model_that_is_cut_gives_what_one_rank_gives, 0, LAYOUTS);
    suite_add_tcase(s, t);
    t = tcase_create("conversions");
    tcase_set_timeout(t, 60);
    tcase_add_test(t, a_layer_has_megatrons_collectives_and_no_others);
    tcase_add_test(t, attention_goes_round_the_context_axis);
    tcase_add_test(t, rows_go_to_their_experts_and_back);
    tcase_add_test(t, bytes_of_a_step_follow_the_formula);
    tcase_add_test(t, what_all_ranks_have_is_added_to_a_sum_by_the_first_alone);
    tcase_add_test(t, families_follow_from_the_mesh);
    tcase_add_test(t, gradients_of_what_all_ranks_have_are_summed_with_sequence_alone);
    tcase_add_test(t, what_does_not_go_is_refused_with_its_numbers);
    tcase_add_test(t, backward_makes_anew_what_forward_does_not_keep);
    tcase_add_test(t, rows_of_experts_have_room_for_all_or_for_what_the_spec_says);
    tcase_add_test(t, the_same_arguments_give_the_same_bytes);
    suite_add_tcase(s, t);
    return suite_run(s);
}
