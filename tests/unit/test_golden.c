/* test_golden.c - every family, run op by op without any layer, gives the numbers that PyTorch gave (tests/golden): logits,
 * losses, norms, gradients, learning rates, final parameters. In bf16 it stays near them. */
#include "base/json.h"
#include "tests/unit/golden.h"
#include "tests/unit/suite.h"

#include <check.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* The loop in bench of a step: `parts` micro-batches; returns the mean loss. */
static double run_step(struct runner *r, struct kc_step_values *v, uint32_t parts, enum runner_program program)
{
    double *result = r->data[r->graph->result];
    result[0] = result[1] = 0;
    for (uint32_t k = 0; k < parts; k++)
        ck_assert_int_eq(graph_runner_run(r, program, k > 0, k, v, NULL), 0);
    return result[0] / result[1];
}

static double relative(double got, double want)
{
    return fabs(got - want) / fabs(want);
}

/* What a run must be: "auto" in one and in two micro-batches, and every other variant. */
static const struct {
    const char *variant;
    uint32_t parts;
} ways[] = {{"auto", 1}, {"auto", 2}, {"avx512+blocked", 1}, {"avx2+blocked", 1}, {"portable", 1}};
static const char *const names[] = {"gpt2", "llama", "llama-tied", "moe", "moe-balance"};
enum { WAYS = sizeof ways / sizeof *ways, NAMES = sizeof names / sizeof *names };

static void logits_compare(const struct golden *g, struct runner *r)
{
    char path[128];
    snprintf(path, sizeof path, "%s/logits.safetensors", g->folder);
    struct safetensors s = safetensors_open(path);
    uint64_t n;
    const float *want = safetensors_floats(&s, "logits", &n), *got = r->data[r->graph->logits];
    ck_assert_uint_eq(n, 2 * g->context * (uint64_t)golden_number(g, "vocab")); /* of the first two rows */
    for (uint64_t i = 0; i < n; i++)
        ck_assert_double_eq_tol((double)got[i], (double)want[i], 1e-4);
    free((void *)want);
    safetensors_close(&s);
}

/* One step of the loop: compared with line `s` of the reference, then the update. */
static void step_follow(const struct golden *g, struct runner *r, struct kc_step_values *v, uint64_t s, uint32_t parts)
{
    json_t *want = json_array_get(g->steps, s);
    const double tokens = (double)r->spec->sequences * g->context;
    v->step = s;
    v->tokens = (uint64_t)tokens;
    v->sample_first = s * r->spec->sequences;
    double loss = run_step(r, v, parts, RUN_TRAIN), norm = graph_runner_gradient_norm(r) / tokens;
    ck_assert_msg(relative(loss, kc_json_real(want, "loss", 0)) <= 1e-5, "%s: loss of step %d: %.9g", g->folder,
                  (int)s + 1, loss);
    ck_assert_msg(relative(norm, kc_json_real(want, "grad_norm", 0)) <= 1e-4, "%s: norm of step %d: %.9g", g->folder,
                  (int)s + 1, norm);
    if (s == 0) {
        char path[128];
        snprintf(path, sizeof path, "%s/gradients.safetensors", g->folder);
        golden_compare(r, KC_GRADIENT, 1 / tokens, path, 1e-4);
    }
    v->lr = golden_rate(g, s);
    ck_assert_double_eq_tol(v->lr, kc_json_real(want, "lr", 0), 1e-12);
    v->scale = fmin(1, r->spec->clip / (norm + 1e-6)) / tokens;
    v->beta1_power = pow(0.9, (double)s + 1);
    v->beta2_power = pow(0.95, (double)s + 1);
    ck_assert_int_eq(graph_runner_update(r, v, NULL), 0);
}

START_TEST(training_gives_pytorchs_numbers)
{
    struct golden g = golden_open(names[_i / WAYS]);
    const uint32_t parts = ways[_i % WAYS].parts, all = (uint32_t)golden_number(&g, "sequences");
    struct kc_job_spec spec = golden_spec(&g, all / parts);
    struct runner r;
    int bad = graph_runner_new(&r, &spec, ways[_i % WAYS].variant, 1, 1, golden_load, &g, NULL);
    if (bad == -ENOTSUP) /* not on this processor */
        return;
    ck_assert_int_eq(bad, 0);
    ck_assert_uint_eq(r.graph->parameters, (uint64_t)kc_json_integer(g.reference, "parameters", 0));
    ck_assert_uint_eq(kc_model_parameters(&spec), r.graph->parameters);
    golden_parameters(&g, &r);
    struct kc_step_values v = {0};
    if (parts == 1) {
        run_step(&r, &v, 1, RUN_FORWARD);
        logits_compare(&g, &r);
    }
    ck_assert_uint_eq(json_array_size(g.steps), 20);
    for (uint64_t s = 0; s < 20; s++)
        step_follow(&g, &r, &v, s, parts);
    char path[128];
    snprintf(path, sizeof path, "%s/final.safetensors", g.folder);
    golden_compare(&r, KC_PARAMETER, 1, path, 1e-3);
    json_t *after = json_object_get(g.reference, "loss_after_on_first_4_batches");
    for (uint64_t k = 0; k < 4; k++) {
        v.sample_first = k * all;
        ck_assert_double_eq_tol(run_step(&r, &v, parts, RUN_EVALUATE), json_real_value(json_array_get(after, k)), 1e-4);
    }
    graph_runner_free(&r);
    golden_close(&g);
}
END_TEST

/* Eight bits of each number on the way: the run goes the same way, not through the same numbers. */
START_TEST(bf16_goes_the_same_way)
{
    struct golden g = golden_open(names[_i]);
    struct kc_job_spec spec = golden_spec(&g, (uint32_t)golden_number(&g, "sequences"));
    const double tokens = (double)spec.sequences * g.context;
    struct runner r;
    spec.precision = KC_PRECISION_BF16;
    ck_assert_int_eq(graph_runner_new(&r, &spec, "auto", 1, 1, golden_load, &g, NULL), 0);
    golden_parameters(&g, &r);
    struct kc_step_values v = {0};
    for (uint64_t s = 0; s < 20; s++) {
        v.step = s, v.tokens = (uint64_t)tokens, v.sample_first = s * spec.sequences;
        const double loss = run_step(&r, &v, 1, RUN_TRAIN), norm = graph_runner_gradient_norm(&r) / tokens;
        const double want = kc_json_real(json_array_get(g.steps, s), "loss", 0);
        ck_assert_msg(relative(loss, want) <= 0.02, "%s: loss of step %d: %.9g for %.9g", g.folder, (int)s + 1, loss,
                      want);
        v.lr = golden_rate(&g, s);
        v.scale = fmin(1, spec.clip / (norm + 1e-6)) / tokens;
        v.beta1_power = pow(0.9, (double)s + 1), v.beta2_power = pow(0.95, (double)s + 1);
        ck_assert_int_eq(graph_runner_update(&r, &v, NULL), 0);
    }
    graph_runner_free(&r);
    golden_close(&g);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("golden");
    TCase *t = tcase_create("numbers");
    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, training_gives_pytorchs_numbers, 0, NAMES * WAYS);
    tcase_add_loop_test(t, bf16_goes_the_same_way, 0, NAMES);
    suite_add_tcase(s, t);
    return suite_run(s);
}
