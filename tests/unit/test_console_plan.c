/* test_console_plan.c - kc plan: the figures that it shows follow from the model's sizes by formulas; no data is looked at. */
#include "console_home.h"

#include "base/json.h"
#include "supervisor/protocol.h"
#include "tests/unit/suite.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct console_home home;

enum { LAYERS = 3, HIDDEN = 96, CONTEXT = 16, VOCAB = 61, MICROS = 2 };

static const char *path_of(const char *name)
{
    static char path[512];
    snprintf(path, sizeof path, "%s/%s", home.path, name);
    return path;
}

static void write_spec(unsigned ranks, unsigned zero)
{
    char text[1024];
    snprintf(text, sizeof text,
             "{\"name\":\"p\",\"ranks\":%u,\"steps\":3,\"model\":{\"family\":\"gpt2\",\"layers\":%d,\"hidden\":%d,\"heads\":3,"
             "\"context\":%d,\"vocab\":%d},\"data\":{\"train\":\"not-there.bin\"},\"batch\":{\"sequences\":%u,\"micro\":2},"
             "\"optimizer\":{\"lr\":0.001},\"parallel\":{\"data\":%u,\"zero\":%u}}",
             ranks, LAYERS, HIDDEN, CONTEXT, VOCAB, 2 * ranks * MICROS, ranks, zero);
    console_home_write(&home, "spec.json", text);
}

static void setup(void)
{
    console_home_make(&home);
}

static void teardown(void)
{
    console_home_remove(&home);
}

static json_t *planned(void)
{
    struct console_answer a;
    CONSOLE_RUN(&a, "plan", path_of("spec.json"), "--json");
    ck_assert_msg(a.code == 0, "%s", a.err);
    json_t *o = json_loads(a.out, 0, NULL);
    ck_assert_str_eq(kc_json_text(o, "schema", ""), "kc.plan/1");
    console_answer_free(&a);
    return o;
}

/* The row of a purpose and primitive; NULL. */
static json_t *traffic_of(json_t *plan, const char *purpose, const char *primitive)
{
    size_t i;
    json_t *row;
    json_array_foreach(json_object_get(plan, "communication"), i, row)
        if (!strcmp(kc_json_text(row, "purpose", ""), purpose) && !strcmp(kc_json_text(row, "primitive", ""), primitive))
            return row;
    return NULL;
}

static long long sum_of(json_t *list, const char *role, const char *key)
{
    size_t i;
    json_t *row;
    long long sum = 0;
    json_array_foreach(list, i, row)
        if (!role || !strcmp(kc_json_text(row, "role", ""), role))
            sum += kc_json_integer(row, key, 0);
    return sum;
}

static const long long parameters =
    LAYERS * (12 * HIDDEN * HIDDEN + 13 * HIDDEN) + VOCAB * HIDDEN + CONTEXT * HIDDEN + 2 * HIDDEN;

START_TEST(tensors_and_traffic_follow_from_the_sizes)
{
    write_spec(2, 1);
    json_t *o = planned(), *scatter = traffic_of(o, "gradient", "reduce-scatter"),
           *gather = traffic_of(o, "parameter", "all-gather"), *agree = traffic_of(o, "agree", "all-reduce");
    ck_assert_int_eq(kc_json_integer(o, "parameters", 0), parameters);
    ck_assert_int_eq(sum_of(json_object_get(o, "tensors"), "parameter", "local_bytes"), 4 * parameters);
    ck_assert_int_eq(sum_of(json_object_get(o, "tensors"), "gradient", "local_bytes"), 4 * parameters);
    ck_assert_int_eq(sum_of(json_object_get(o, "tensors"), "input", "local_bytes"), 3 * 4 * 2 * CONTEXT); /* tokens, targets, positions */
    /* every gradient once, with no more than 63 elements of padding a tensor and 128 a bucket */
    const long long moved = kc_json_integer(scatter, "rank_bytes", 0);
    ck_assert(moved >= 4 * parameters && moved <= 4 * (parameters + 63 * (12 * LAYERS + 4) + 128 * 8));
    ck_assert_int_eq(kc_json_integer(gather, "rank_bytes", 0), moved);
    ck_assert_int_eq(kc_json_integer(gather, "rank_calls", 0), kc_json_integer(scatter, "rank_calls", -1));
    ck_assert_int_eq(kc_json_integer(scatter, "all_bytes", 0), 2 * moved);
    ck_assert(kc_json_integer(agree, "rank_calls", 0) == 1 && kc_json_integer(agree, "rank_bytes", 0) == 8 * 8);
    ck_assert(json_is_null(json_object_get(o, "pipeline")));
    json_decref(o);
}
END_TEST

START_TEST(memory_is_told_by_kind_and_for_ranks_that_differ)
{
    static const char *const kinds[] = {"parameters_bytes", "gradients_bytes", "optimizer_bytes", "activations_bytes",
                                        "scratch_bytes",    "windows_bytes",   "copies_bytes",    "program_bytes"};
    long long optimizer[2];
    for (unsigned zero = 0; zero < 2; zero++) {
        write_spec(2, zero);
        json_t *o = planned(), *memory = json_object_get(o, "memory"), *row;
        size_t i, ranks = 0;
        long long all = 0, sum = 0, copies = 0;
        json_array_foreach(memory, i, row) {
            const size_t here = json_array_size(json_object_get(row, "ranks"));
            ranks += here;
            all += (long long)here * kc_json_integer(row, "rank_bytes", 0);
            copies += (long long)here * kc_json_integer(row, "copies_bytes", 0);
        }
        row = json_array_get(memory, 0);
        for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
            sum += kc_json_integer(row, kinds[k], -1);
        ck_assert_uint_eq(ranks, 2);
        ck_assert_int_eq(all, kc_json_integer(o, "memory_bytes", 0));
        ck_assert_int_eq(sum, kc_json_integer(row, "rank_bytes", 0)); /* nothing is unnamed */
        ck_assert_int_eq(kc_json_integer(row, "executor_bytes", 0),
                         kc_json_integer(row, "activations_bytes", 0) + kc_json_integer(row, "scratch_bytes", 0));
        ck_assert_int_ge(copies, 2 * 3 * 4 * parameters); /* snapshot.copies of masters and moments, each once */
        ck_assert_int_le(copies, 2 * 3 * 4 * parameters * 5 / 4 + (2 << 20)); /* aligned, with room for manifests */
        optimizer[zero] = kc_json_integer(row, "optimizer_bytes", 0);
        ck_assert_int_ge(kc_json_integer(row, "gradients_bytes", 0), 4 * parameters);
        json_decref(o);
    }
    ck_assert(optimizer[0] >= 8 * parameters && optimizer[1] < optimizer[0] * 6 / 10);
}
END_TEST

/* A line that no terminal of 80 columns breaks. */
static void fits(const char *text)
{
    for (const char *line = text, *end; (end = strchr(line, '\n')); line = end + 1)
        ck_assert_msg(end - line <= 80, "%.*s", (int)(end - line), line);
}

static void spec_again(const char *recompute)
{
    char text[1024];
    snprintf(text, sizeof text,
             "{\"name\":\"p\",\"ranks\":2,\"steps\":3,\"model\":{\"family\":\"gpt2\",\"layers\":12,\"hidden\":%d,\"heads\":3,"
             "\"context\":512,\"vocab\":%d},\"data\":{\"train\":\"not-there.bin\"},\"batch\":{\"sequences\":32,\"micro\":8},"
             "\"optimizer\":{\"lr\":0.001},\"parallel\":{\"pipeline\":2,%s}}",
             HIDDEN, VOCAB, recompute);
    console_home_write(&home, "spec.json", text);
}

static json_t *planned_again(const char *recompute)
{
    spec_again(recompute);
    return planned();
}

static long long most_memory(json_t *plan)
{
    size_t i;
    json_t *row;
    long long most = 0;
    json_array_foreach(json_object_get(plan, "memory"), i, row)
        most = kc_json_integer(row, "rank_bytes", 0) > most ? kc_json_integer(row, "rank_bytes", 0) : most;
    return most;
}

/* Between none and all of a stage's six: with a bound that n layers just fit n are found, and no more. */
START_TEST(auto_makes_as_few_layers_again_as_fit)
{
    long long before = 0;
    for (int n = 0; n <= 6; n += 2) {
        char how[128];
        struct console_answer a;
        snprintf(how, sizeof how, n ? "\"recompute\":\"full\",\"recompute_layers\":%d" : "\"recompute\":\"none\"", n);
        json_t *o = planned_again(how);
        const long long need = most_memory(o);
        ck_assert(n == 0 || need < before - (1 << 20)); /* by more than the unit in which the bound is told */
        before = need;
        json_decref(o);
        snprintf(how, sizeof how, "\"recompute\":\"auto\",\"recompute_memory\":%lld", (need >> 20) + 1);
        o = planned_again(how);
        ck_assert_int_eq(kc_json_integer(o, "recompute_layers", -1), n);
        ck_assert_int_eq(most_memory(o), need);
        json_decref(o);
        CONSOLE_RUN(&a, "plan", path_of("spec.json"));
        char line[64];
        snprintf(line, sizeof line, n ? "made again: the first %d layers of each stage\n" : "made again: none", n);
        ck_assert_msg(strstr(a.out, line) != NULL, "%s", a.out);
        console_answer_free(&a);
    }
    json_t *o = planned_again("\"recompute\":\"full\"");
    ck_assert_int_eq(most_memory(o), before);
    json_decref(o);
    char how[128];
    struct console_answer a;
    snprintf(how, sizeof how, "\"recompute\":\"auto\",\"recompute_memory\":%lld", (before >> 20) - 1);
    spec_again(how);
    CONSOLE_RUN(&a, "plan", path_of("spec.json"));
    ck_assert_int_eq(a.code, 10);
    ck_assert_msg(strstr(a.err, "with every layer made again: raise it, lower batch.micro, or "), "%s", a.err);
    console_answer_free(&a);
}
END_TEST

START_TEST(a_plan_fits_80_columns_and_needs_no_such_machine)
{
    struct console_answer a;
    write_spec(64, 0); /* more ranks than cores, which start and check refuse unless they share */
    CONSOLE_RUN(&a, "plan", path_of("spec.json"));
    ck_assert_msg(a.code == 0, "%s", a.err);
    fits(a.out);
    ck_assert_ptr_nonnull(strstr(a.out, "64 ranks, zero 0"));
    ck_assert_ptr_nonnull(strstr(a.out, "transformer.h.*.mlp.c_fc.weight x 3"));
    console_answer_free(&a);
    CONSOLE_RUN(&a, "plan", "/nowhere/spec.json");
    ck_assert_int_eq(a.code, KC_EXIT_NO_OBJECT);
    console_answer_free(&a);
}
END_TEST

/* 8·8·8 ranks with 64 micro-batches: stages differ, of a stage the ranks of the tensor axis, of these those of the data axis
 * do not. */
START_TEST(ranks_that_no_job_has_are_planned_by_kinds)
{
    struct console_answer a;
    console_home_write(&home, "spec.json",
                       "{\"name\":\"p\",\"ranks\":512,\"steps\":3,\"model\":{\"family\":\"llama\",\"layers\":17,\"hidden\":96,"
                       "\"heads\":16,\"kv_heads\":8,\"ffn\":250,\"context\":16,\"vocab\":61},\"data\":{\"train\":\"not-there.bin\"},"
                       "\"batch\":{\"sequences\":512,\"micro\":1},\"optimizer\":{\"lr\":0.001},"
                       "\"parallel\":{\"tensor\":8,\"data\":8,\"pipeline\":8,\"pipeline_order\":\"zero-bubble\"}}");
    json_t *o = planned(), *cost = json_object_get(o, "cost"), *pipeline = json_object_get(o, "pipeline");
    ck_assert_int_ge(kc_json_integer(cost, "programs", 0), 8);
    ck_assert_int_le(kc_json_integer(cost, "programs", 0), 64);
    printf("512 ranks, 64 micro-batches planned and proved in %.3f s\n", json_real_value(json_object_get(cost, "seconds")));
    ck_assert_uint_eq(json_array_size(json_object_get(pipeline, "stages")), 8);
    ck_assert_int_eq(sum_of(json_object_get(pipeline, "stages"), NULL, "layers"), 17);
    const double bubble = json_real_value(json_object_get(pipeline, "bubble"));
    ck_assert(bubble > 0 && bubble < 1);
    json_t *row = traffic_of(o, "transfer", "send");
    ck_assert_int_eq(kc_json_integer(row, "rank_calls", 0), 64); /* a micro-batch goes on once */
    ck_assert_int_eq(kc_json_integer(row, "rank_bytes", 0), 64 * 4 * 16 * 96);
    json_decref(o);
    CONSOLE_RUN(&a, "plan", path_of("spec.json"));
    fits(a.out);
    ck_assert_ptr_nonnull(strstr(a.out, "zero-bubble, 8 stages on 8 places, 64 micro-batches"));
    console_answer_free(&a);
    CONSOLE_RUN(&a, "start", path_of("spec.json"));
    ck_assert_int_eq(a.code, KC_EXIT_INVALID);
    ck_assert_ptr_nonnull(strstr(a.err, "ranks is 512, but a job has 64 at most"));
    console_answer_free(&a);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("console plan");
    TCase *t = tcase_create("plan");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, tensors_and_traffic_follow_from_the_sizes);
    tcase_add_test(t, memory_is_told_by_kind_and_for_ranks_that_differ);
    tcase_add_test(t, auto_makes_as_few_layers_again_as_fit);
    tcase_add_test(t, ranks_that_no_job_has_are_planned_by_kinds);
    tcase_add_test(t, a_plan_fits_80_columns_and_needs_no_such_machine);
    suite_add_tcase(s, t);
    return suite_run(s);
}
