/* test_lora.c - adapters: numbers of Hugging Face PEFT (tests/golden), at their beginning they change no bit, nothing but them is
 * trained or costs backward anything, any layout trains as one rank does, and targets that cannot be are refused by name. */
#include "base/json.h"
#include "tests/unit/fleet.h"
#include "tests/unit/golden.h"
#include "tests/unit/suite.h"

#include <check.h>
#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef __SANITIZE_ADDRESS__ /* memory is used alike in every step; what adds up is looked at without the sanitizer */
enum { STEPS = 2 };
#else
enum { STEPS = 10 };
#endif

/* ---- PEFT's numbers ---- */

static const struct {
    const char *base, *patterns[3];
} cases[] = {
    {"gpt2", {"*.attn.*", "*.mlp.c_*.weight"}}, /* biases are meant too, and have none */
    {"llama", {"*_proj.weight"}},
    {"moe", {"*.[qv]_proj.weight", "*.o_proj.*"}},
};
static const char *const variants[] = {"auto", "avx512+blocked", "avx2+blocked", "portable"};
enum { CASES = sizeof cases / sizeof *cases, VARIANTS = sizeof variants / sizeof *variants };

struct rehearsal {
    struct golden base;
    char folder[64];
    json_t *reference, *steps;
    struct test_frozen spec;
    struct runner r;
};

static bool begin(struct rehearsal *h, int i, const char *variant, enum kc_precision precision)
{
    char path[128];
    memset(h, 0, sizeof *h);
    h->base = golden_open(cases[i].base);
    snprintf(h->folder, sizeof h->folder, "tests/golden/lora-%s", cases[i].base);
    snprintf(path, sizeof path, "%s/reference.json", h->folder);
    h->reference = json_load_file(path, 0, NULL);
    ck_assert_ptr_nonnull(h->reference);
    h->steps = json_object_get(h->reference, "steps");
    ck_assert_uint_eq(json_array_size(h->steps), 10);
    h->spec.spec = golden_spec(&h->base, (uint32_t)golden_number(&h->base, "sequences"));
    h->spec.spec.clip = kc_json_real(h->reference, "clip", 0);
    h->spec.spec.weight_decay = kc_json_real(h->reference, "decay", 0);
    h->spec.spec.precision = precision;
    for (int k = 0; k < 3 && cases[i].patterns[k]; k++)
        test_lora(&h->spec, cases[i].patterns[k], (uint32_t)kc_json_integer(h->reference, "rank", 0),
                  kc_json_real(h->reference, "alpha", 0));
    const int bad = graph_runner_new(&h->r, &h->spec.spec, variant, 1, 1, golden_load, &h->base, NULL);
    ck_assert(bad == 0 || bad == -ENOTSUP); /* the second: not on this processor */
    if (bad)
        return false;
    golden_parameters(&h->base, &h->r);
    golden_adapters(h->folder, &h->r);
    return true;
}

static void end(struct rehearsal *h, bool begun)
{
    if (begun)
        graph_runner_free(&h->r);
    json_decref(h->reference);
    golden_close(&h->base);
}

static void logits_compare(struct rehearsal *h)
{
    const struct kc_step_values v = {0};
    char path[128];
    uint64_t n;
    ck_assert_int_eq(graph_runner_run(&h->r, RUN_FORWARD, 0, 0, &v, NULL), 0);
    snprintf(path, sizeof path, "%s/logits.safetensors", h->folder);
    struct safetensors s = safetensors_open(path);
    float *want = safetensors_floats(&s, "logits", &n);
    const float *got = h->r.data[h->r.graph->logits];
    for (uint64_t i = 0; i < n; i++)
        ck_assert_double_eq_tol((double)got[i], (double)want[i], 1e-4);
    free(want);
    safetensors_close(&s);
}

/* The mean loss of step `s`, and the update. */
static double follow(struct rehearsal *h, uint64_t s, double *norm)
{
    const struct kc_job_spec *spec = &h->spec.spec;
    const double tokens = (double)spec->sequences * h->base.context;
    struct kc_step_values v = {.step = s, .tokens = (uint64_t)tokens, .sample_first = s * spec->sequences};
    const double *result = h->r.data[h->r.graph->result];
    ck_assert_int_eq(graph_runner_run(&h->r, RUN_TRAIN, 0, 0, &v, NULL), 0);
    *norm = graph_runner_gradient_norm(&h->r) / tokens;
    if (s == 0 && spec->precision == KC_PRECISION_FP32) {
        char path[128];
        snprintf(path, sizeof path, "%s/gradients.safetensors", h->folder);
        golden_compare(&h->r, KC_GRADIENT, 1 / tokens, path, 1e-4); /* these and no others */
    }
    v.lr = kc_json_real(h->reference, "lr", 0);
    v.scale = fmin(1, spec->clip / (*norm + 1e-6)) / tokens;
    v.beta1_power = pow(0.9, (double)s + 1), v.beta2_power = pow(0.95, (double)s + 1);
    ck_assert_int_eq(graph_runner_update(&h->r, &v, NULL), 0);
    return result[0] / result[1];
}

static void finals_compare(struct rehearsal *h)
{
    char path[128];
    uint64_t n, compared = 0;
    snprintf(path, sizeof path, "%s/final.safetensors", h->folder);
    struct safetensors s = safetensors_open(path);
    for (uint32_t i = 0; i < h->r.graph->tensors.count; i++) {
        const struct kc_graph_tensor *t = graph_runner_tensor(&h->r, (int32_t)i);
        if (t->role != KC_PARAMETER || !strstr(KC_TEXT(h->r.graph, t->name), ".lora_"))
            continue;
        float *want = safetensors_floats(&s, KC_TEXT(h->r.graph, t->name), &n);
        ck_assert_double_le(golden_apart(h->r.data[i], 1, want, 0, n), 1e-3);
        compared += n;
        free(want);
    }
    ck_assert_uint_eq(compared, (uint64_t)kc_json_integer(h->reference, "adapters", 0));
    ck_assert_uint_eq(h->r.graph->parameters, kc_model_parameters(&h->spec.spec) + compared);
    ck_assert_uint_eq(h->r.graph->trained, compared);
    safetensors_close(&s);
}

START_TEST(training_gives_pefts_numbers)
{
    struct rehearsal h;
    const bool begun = begin(&h, _i / VARIANTS, variants[_i % VARIANTS], KC_PRECISION_FP32);
    if (begun)
        logits_compare(&h);
    for (uint64_t s = 0; s < 10 && begun; s++) {
        double norm;
        const double loss = follow(&h, s, &norm);
        json_t *line = json_array_get(h.steps, s);
        const double want = kc_json_real(line, "loss", 0), length = kc_json_real(line, "grad_norm", 0);
        ck_assert_msg(fabs(loss - want) <= 1e-5 * want, "%s, step %d: loss %.9g for %.9g", h.folder, (int)s + 1, loss, want);
        ck_assert_msg(fabs(norm - length) <= 1e-4 * length, "%s, step %d: norm %.9g for %.9g", h.folder, (int)s + 1, norm, length);
    }
    if (begun)
        finals_compare(&h);
    end(&h, begun);
}
END_TEST

START_TEST(bf16_goes_the_same_way)
{
    struct rehearsal h;
    ck_assert(begin(&h, _i, "auto", KC_PRECISION_BF16));
    for (uint64_t s = 0; s < 10; s++) {
        double norm;
        const double loss = follow(&h, s, &norm), want = kc_json_real(json_array_get(h.steps, s), "loss", 0);
        ck_assert_msg(fabs(loss - want) <= 0.02 * want, "%s, step %d: loss %.9g for %.9g", h.folder, (int)s + 1, loss, want);
    }
    end(&h, true);
}
END_TEST

/* ---- the graph ---- */

static const struct regime {
    enum kc_family family;
    const char *patterns[2];
    int32_t below; /* of this layer backward has nothing to do */
} regimes[] = {
    {KC_FAMILY_GPT2, {"*.c_*.weight"}, 0},   {KC_FAMILY_GPT2, {"*.c_attn.weight"}, 0},   {KC_FAMILY_GPT2, {"*.h.[23].mlp.*"}, 2},
    {KC_FAMILY_LLAMA, {"*_proj.weight"}, 0}, {KC_FAMILY_LLAMA, {"*.3.*.[kv]_proj.*"}, 3}, {KC_FAMILY_LLAMA, {"*.down_proj.*", "*.o_proj.*"}, 0},
    {KC_FAMILY_MOE, {"*_proj.weight"}, 0},
};
enum { REGIMES = sizeof regimes / sizeof *regimes };

static struct test_frozen adapted(const struct regime *g)
{
    struct test_frozen f = {.spec = test_spec(4, 16, 4, 8, 29, 1)};
    test_family(&f.spec, g->family);
    f.spec.sequences = f.spec.micro = 8, f.spec.chunks = 1, f.spec.lr = 1e-2, f.spec.end_of_text = KC_NO_TOKEN;
    for (int i = 0; i < 2 && g->patterns[i]; i++)
        test_lora(&f, g->patterns[i], 2, 3);
    return f;
}

static int load(void *self, int evaluate, uint64_t position, uint32_t rows, const struct kc_load_part *part, int32_t *tokens,
                int32_t *targets, int32_t *starts, struct kc_error *e)
{
    (void)self, (void)evaluate, (void)position, (void)starts, (void)e;
    for (uint32_t i = 0; i < rows * part->context; i++)
        tokens[i] = (int32_t)(i * 7 % 29), targets[i] = (int32_t)(i * 5 % 29);
    return 0;
}

static bool is_b(const char *name)
{
    return strstr(name, ".lora_B.") != NULL;
}

/* Seeded values, B zero; or those of another runner. */
static void run(struct runner *r, const struct kc_job_spec *spec, const struct runner *values)
{
    const struct kc_step_values v = {.rows = 8};
    struct kc_error e = {""};
    ck_assert_msg(graph_runner_new(r, spec, NULL, 1, 1, load, NULL, &e) == 0, "%s", e.text);
    graph_runner_init_parameters(r, 3);
    for (uint32_t i = 0; i < r->graph->tensors.count; i++) {
        const struct kc_graph_tensor *t = graph_runner_tensor(r, (int32_t)i);
        const char *name = KC_TEXT(r->graph, t->name);
        const size_t bytes = graph_runner_elements(r, (int32_t)i) * kc_type_bytes[t->type];
        if (t->role == KC_PARAMETER && values)
            memcpy(r->data[i], values->data[graph_runner_find(values, KC_PARAMETER, name)], bytes);
        else if (t->role == KC_PARAMETER && is_b(name))
            memset(r->data[i], 0, bytes);
    }
    ck_assert_int_eq(graph_runner_run(r, RUN_TRAIN, 0, 0, &v, &e), 0);
}

/* B is zero: what comes of the model is what comes of it without adapters, bit for bit, and so A has no gradient yet. */
START_TEST(adapters_begin_without_changing_a_bit)
{
    struct test_frozen with = adapted(&regimes[_i / 2]);
    with.spec.precision = _i % 2 ? KC_PRECISION_BF16 : KC_PRECISION_FP32;
    struct kc_job_spec without = with.spec;
    without.lora_rank = 0, without.lora_targets = (struct kc_span){0};
    struct runner a, b;
    run(&a, &with.spec, NULL);
    run(&b, &without, &a);
    ck_assert_mem_eq(a.data[a.graph->result], b.data[b.graph->result], 2 * sizeof(double));
    for (uint32_t i = 0; i < a.graph->tensors.count; i++) {
        const struct kc_graph_tensor *t = graph_runner_tensor(&a, (int32_t)i);
        if (t->role != KC_GRADIENT)
            continue;
        double most = 0;
        for (uint64_t k = 0; k < graph_runner_elements(&a, (int32_t)i); k++)
            most = fmax(most, fabs((double)((float *)a.data[i])[k]));
        ck_assert_msg((most > 0) == is_b(KC_TEXT(a.graph, t->name)), "%s: %g", KC_TEXT(a.graph, t->name), most);
    }
    graph_runner_free(&a);
    graph_runner_free(&b);
}
END_TEST

START_TEST(nothing_but_adapters_is_trained)
{
    struct test_frozen f = adapted(&regimes[_i]);
    struct runner r;
    run(&r, &f.spec, NULL);
    uint32_t below = 0, adapters = 0;
    for (uint32_t i = 0; i < r.graph->tensors.count; i++) {
        const struct kc_graph_tensor *t = graph_runner_tensor(&r, (int32_t)i);
        const char *name = KC_TEXT(r.graph, t->name);
        const bool adapter = strstr(name, ".lora_") != NULL;
        if (t->role == KC_PARAMETER)
            ck_assert_msg(t->frozen == !adapter, "%s", name);
        if (t->role == KC_GRADIENT)
            ck_assert_msg(adapter, "%s", name);
        if (t->role != KC_PARAMETER || !adapter)
            continue;
        adapters++;
        const bool b = is_b(name);
        ck_assert_int_eq(t->init, b ? KC_INIT_ZERO : KC_INIT_NORMAL);
        double width = 1;
        for (int d = 1; d < t->rank && !b; d++)
            width *= (double)t->size[d];
        ck_assert_uint_eq(b ? t->size[t->rank - 1] : t->size[0], 2);
        if (!b) /* the variance of torch's kaiming_uniform_(a = √5), which is PEFT's default: U(±1/√in) */
            ck_assert_double_eq_tol((double)t->init_scale * (double)t->init_scale, 1 / (3 * width), 1e-6);
    }
    ck_assert_uint_gt(adapters, 0);
    const struct kc_graph_op *ops = KC_AT(r.graph, struct kc_graph_op, r.graph->ops);
    for (uint32_t o = r.graph->backward_first; o < r.graph->ops.count; o++)
        below += ops[o].opcode != KC_OP_TALLY && ops[o].layer >= 0 && ops[o].layer < regimes[_i].below;
    ck_assert_uint_eq(below, 0);
    graph_runner_free(&r);
}
END_TEST

static void refused(enum kc_family family, const char *pattern, const char *a, const char *b)
{
    struct test_frozen f = adapted(&(struct regime){family, {pattern}, 0});
    struct kc_arena arena;
    const struct kc_model_graph *g;
    struct kc_error e = {""};
    ck_assert_int_eq(kc_arena_new(&arena, 8 << 20), 0);
    ck_assert_int_eq(kc_model_graph_build(&f.spec, &arena, &g, &e), -EINVAL);
    ck_assert_msg(strstr(e.text, a) && strstr(e.text, b), "%s", e.text);
    kc_arena_free(&arena);
}

START_TEST(targets_that_cannot_be_are_refused_by_name)
{
    refused(KC_FAMILY_LLAMA, "*.query.*", "lora.targets[0] is \"*.query.*\", which no parameter's name matches; there are ", "model.layers.");
    refused(KC_FAMILY_GPT2, "*.ln_1.*", "lora.targets[0] is \"*.ln_1.*\", which no parameter's name matches", "there are transformer.h.0.");
    refused(KC_FAMILY_GPT2, "transformer.h.1.attn.c_atn.weight", "which no parameter's name matches", "there are transformer.h.1.attn.c_attn.weight, ");
    refused(KC_FAMILY_LLAMA, "*", "which means model.embed_tokens.weight too", "only the projections of attention and of a dense MLP do");
    refused(KC_FAMILY_MOE, "*.w1.*", "which means model.layers.0.block_sparse_moe.experts.*.w1.weight too: experts take no adapters", "");
    refused(KC_FAMILY_MOE, "*.gate.weight", "model.layers.0.block_sparse_moe.gate.weight", "routers take no adapters");
}
END_TEST

/* ---- plans and training ---- */

static const struct layout {
    uint32_t tensor, sequence, context, expert, data, zero, stages, chunks, micros;
    enum kc_pipeline order;
    enum kc_recompute recompute;
} layouts[] = {
    {1, 0, 1, 1, 2, 0, 1, 1, 2, KC_PIPELINE_1F1B, 0},        {1, 0, 1, 1, 4, 2, 1, 1, 2, KC_PIPELINE_1F1B, KC_RECOMPUTE_SELECTIVE},
    {1, 0, 1, 1, 2, 3, 1, 1, 2, KC_PIPELINE_1F1B, 0},        {2, 0, 1, 1, 1, 0, 1, 1, 2, KC_PIPELINE_1F1B, 0},
    {4, 0, 1, 1, 1, 0, 1, 1, 1, KC_PIPELINE_1F1B, 0},        {2, 1, 1, 1, 2, 3, 1, 1, 2, KC_PIPELINE_1F1B, 0},
    {4, 1, 1, 1, 1, 1, 1, 1, 1, KC_PIPELINE_1F1B, KC_RECOMPUTE_FULL}, {1, 0, 2, 1, 1, 0, 1, 1, 1, KC_PIPELINE_1F1B, 0},
    {2, 1, 2, 1, 1, 0, 1, 1, 1, KC_PIPELINE_1F1B, 0},        {1, 0, 1, 2, 1, 0, 1, 1, 2, KC_PIPELINE_1F1B, 0},
    {2, 0, 1, 2, 1, 1, 1, 1, 2, KC_PIPELINE_1F1B, 0},        {1, 0, 1, 1, 1, 0, 2, 1, 4, KC_PIPELINE_1F1B, 0},
    {1, 0, 1, 1, 1, 0, 4, 1, 4, KC_PIPELINE_GPIPE, 0},       {1, 0, 1, 1, 2, 1, 2, 2, 4, KC_PIPELINE_INTERLEAVED, 0},
    {1, 0, 1, 1, 2, 3, 2, 2, 4, KC_PIPELINE_ZERO_BUBBLE, 0}, {2, 1, 1, 1, 1, 0, 2, 1, 4, KC_PIPELINE_ZERO_BUBBLE, KC_RECOMPUTE_FULL},
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
    float *after;
    size_t count;
};

static struct trained train(const struct test_frozen *spec)
{
    struct trained t;
    struct fleet f;
    fleet_make(&f, &spec->spec);
    for (uint64_t s = 0; s < STEPS; s++)
        t.step[s] = fleet_train(&f, s);
    t.count = fleet_parameters(&f, &t.after);
    fleet_free(&f);
    return t;
}

START_TEST(layouts_train_alike)
{
    const struct regime *g = &regimes[_i];
    struct test_frozen spec = adapted(g);
    struct trained want = train(&spec);
    for (size_t i = 0; i < LAYOUTS; i++) {
        if (layouts[i].context > 1 && g->family == KC_FAMILY_MOE)
            continue;
        cut(&spec.spec, &layouts[i]);
        struct trained got = train(&spec);
        for (int s = 0; s < STEPS; s++)
            ck_assert_msg(fabs(got.step[s].loss - want.step[s].loss) <= 1e-4 * fabs(want.step[s].loss),
                          "layout %zu, step %d: loss %.9g, one rank has %.9g", i, s, got.step[s].loss, want.step[s].loss);
        ck_assert_msg(fabs(got.step[0].norm - want.step[0].norm) <= 1e-4 * want.step[0].norm, "layout %zu: norm %.9g, one rank has %.9g",
                      i, got.step[0].norm, want.step[0].norm);
        ck_assert_uint_eq(got.count, want.count);
        ck_assert_double_le(golden_apart(got.after, 1, want.after, 0, want.count), 1e-3);
        free(got.after);
    }
    free(want.after);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("adapters");
    TCase *numbers = tcase_create("numbers"), *graph = tcase_create("graph"), *training = tcase_create("training");
    tcase_set_timeout(numbers, 120);
    tcase_add_loop_test(numbers, training_gives_pefts_numbers, 0, CASES * VARIANTS);
    tcase_add_loop_test(numbers, bf16_goes_the_same_way, 0, CASES);
    tcase_add_loop_test(graph, adapters_begin_without_changing_a_bit, 0, REGIMES * 2);
    tcase_add_loop_test(graph, nothing_but_adapters_is_trained, 0, REGIMES);
    tcase_add_test(graph, targets_that_cannot_be_are_refused_by_name);
    tcase_set_timeout(training, 120);
    tcase_add_loop_test(training, layouts_train_alike, 0, REGIMES);
    suite_add_tcase(s, numbers);
    suite_add_tcase(s, graph);
    suite_add_tcase(s, training);
    return suite_run(s);
}
