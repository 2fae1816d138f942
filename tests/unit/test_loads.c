/* test_loads.c - how often each expert is chosen: the tallies of a step are the same in every layout, count each choice of each
 * token once, and travel with the one vector that ranks agree on. And what a board and a console say of them. */
#include "tests/unit/fleet.h"
#include "tests/unit/graph_runner.h"
#include "tests/unit/suite.h"

#include "console/loads.h"
#include "shm/keeper.h"
#include "shm/probe.h"
#include "shm/reader.h"

#include <check.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { STEPS = 3, SEQUENCES = 12 };

/* tensor, context, expert, data, pipeline; sequence parallel; ZeRO; micro-batches of a rank; order; what is made again */
static const struct layout {
    uint32_t axis[KC_AXES], sequence, zero, micros, order, recompute;
} layouts[] = {
    {{1, 1, 1, 1, 1}, 0, 0, 1, KC_PIPELINE_1F1B, KC_RECOMPUTE_NONE},
    {{1, 1, 1, 1, 1}, 0, 0, 4, KC_PIPELINE_1F1B, KC_RECOMPUTE_NONE},
    {{1, 1, 1, 2, 1}, 0, 1, 3, KC_PIPELINE_1F1B, KC_RECOMPUTE_NONE},
    {{1, 1, 2, 1, 1}, 0, 0, 1, KC_PIPELINE_1F1B, KC_RECOMPUTE_NONE},
    {{2, 1, 1, 1, 1}, 0, 0, 1, KC_PIPELINE_1F1B, KC_RECOMPUTE_NONE},
    {{2, 1, 1, 1, 1}, 1, 0, 2, KC_PIPELINE_1F1B, KC_RECOMPUTE_NONE},
    {{1, 2, 1, 1, 1}, 0, 0, 1, KC_PIPELINE_1F1B, KC_RECOMPUTE_NONE},
    {{1, 1, 2, 2, 1}, 0, 3, 1, KC_PIPELINE_1F1B, KC_RECOMPUTE_NONE},
    {{2, 1, 2, 1, 1}, 0, 0, 3, KC_PIPELINE_1F1B, KC_RECOMPUTE_NONE},
    {{1, 2, 2, 1, 1}, 0, 0, 1, KC_PIPELINE_1F1B, KC_RECOMPUTE_NONE},
    {{1, 1, 1, 1, 3}, 0, 0, 4, KC_PIPELINE_ZERO_BUBBLE, KC_RECOMPUTE_NONE},
    {{1, 1, 2, 1, 2}, 0, 0, 3, KC_PIPELINE_1F1B, KC_RECOMPUTE_NONE},
    {{1, 1, 2, 1, 1}, 0, 0, 2, KC_PIPELINE_1F1B, KC_RECOMPUTE_FULL},
    {{2, 1, 1, 1, 2}, 0, 2, 2, KC_PIPELINE_1F1B, KC_RECOMPUTE_SELECTIVE},
};
enum { LAYOUTS = sizeof layouts / sizeof *layouts };

static struct kc_job_spec spec_of(const struct layout *l)
{
    struct kc_job_spec s = test_spec(3, 16, 4, 8, 29, 1);
    test_family(&s, KC_FAMILY_MOE);
    s.chunks = 1, s.lr = 1e-2, s.end_of_text = KC_NO_TOKEN, s.zero = l->zero, s.sequence = l->sequence;
    s.pipeline = l->order, s.recompute = l->recompute, s.ranks = 1;
    for (int a = 0; a < KC_AXES; a++)
        s.ranks *= s.axis[a] = l->axis[a];
    s.sequences = SEQUENCES, s.micro = SEQUENCES / (s.axis[KC_DATA] * s.axis[KC_EXPERT] * l->micros);
    return s;
}

/* The tallies of each step; the caller frees. */
static double *tallies_of(const struct kc_job_spec *spec, uint64_t *count)
{
    struct fleet f;
    double *all = NULL;
    fleet_make(&f, spec);
    for (uint64_t s = 0; s < STEPS; s++) {
        fleet_train(&f, s);
        const double *one = fleet_tallies(&f, count);
        all = realloc(all, (s + 1) * *count * sizeof *all);
        memcpy(all + s * *count, one, *count * sizeof *all);
        if (s == 1)
            fleet_evaluate(&f); /* counts nothing; clears as well, which a step does without it */
    }
    fleet_free(&f);
    return all;
}

static size_t resident(void)
{
    size_t pages[2] = {0};
    FILE *f = fopen("/proc/self/statm", "r");
    ck_assert(f && fscanf(f, "%zu %zu", &pages[0], &pages[1]) == 2);
    fclose(f);
    return pages[1] * (size_t)sysconf(_SC_PAGESIZE);
}

/* Rows for experts have room for all of them on one rank; what no row came to takes no memory. */
START_TEST(room_for_the_worst_case_is_committed_as_it_is_used)
{
    struct layout wide = layouts[3];
    struct kc_job_spec spec = spec_of(&wide);
    spec.context = 1024, spec.sequences = 64, spec.micro = 32;
    struct fleet f;
    const size_t before = resident();
    fleet_make(&f, &spec);
    const size_t work = f.plan[0]->work_bytes + f.plan[1]->work_bytes, grown = resident() - before;
    ck_assert_msg(work > 64u << 20 && grown < work / 2, "%zu bytes of %zu are there before a step", grown, work);
    fleet_free(&f);
}
END_TEST

START_TEST(every_layout_counts_each_choice_once)
{
    const struct kc_job_spec one = spec_of(&layouts[0]), spec = spec_of(&layouts[_i]);
    uint64_t n, m;
    double *want = tallies_of(&one, &n), *got = tallies_of(&spec, &m), uneven = 0;
    ck_assert_uint_eq(n, (uint64_t)one.layers * one.experts);
    ck_assert_uint_eq(m, n);
    for (uint64_t row = 0; row < STEPS * one.layers; row++) {
        double sum = 0;
        for (uint64_t x = 0; x < one.experts; x++) {
            sum += got[row * one.experts + x];
            uneven += got[row * one.experts + x] != got[row * one.experts];
        }
        ck_assert_double_eq(sum, (double)one.sequences * one.context * one.top_k);
    }
    ck_assert_double_gt(uneven, 0);
    ck_assert_mem_eq(got, want, STEPS * n * sizeof *got);
    free(want);
    free(got);
}
END_TEST

/* They stand behind the table of the vector of AGREE, in the order of layers: no collective is added. */
START_TEST(a_plan_agrees_on_tallies_with_the_rest)
{
    const struct kc_job_spec spec = spec_of(&layouts[7]);
    struct kc_job_spec none = spec_of(&layouts[0]);
    struct fleet f, g;
    struct kc_error e = {""};
    ck_assert_msg(fleet_plan(&f, &spec, &e) == 0, "%s", e.text);
    uint64_t at = KC_AGREES, agree = 0;
    const struct kc_plan_tensor *t = KC_AT(f.shard, struct kc_plan_tensor, f.shard->tensors);
    for (uint32_t i = 0, layer = 0; i < f.shard->tensors.count; i++)
        if (t[i].role == KC_RESULT && (int32_t)i != f.shard->result) {
            ck_assert_int_eq(t[i].layer, (int)layer++);
            ck_assert_uint_eq(t[i].offset, at);
            at += spec.experts;
        }
    const struct kc_plan_collective *c = KC_AT(f.comm, struct kc_plan_collective, f.comm->collectives);
    for (uint32_t i = 0; i < f.comm->collectives.count; i++)
        if (c[i].purpose == KC_PURPOSE_AGREE) {
            ck_assert_uint_eq(c[i].count, at);
            agree++;
        }
    ck_assert_uint_eq(agree, 1);
    ck_assert_uint_eq(kc_plan_tallies(f.shard), (uint64_t)spec.layers * spec.experts);
    none.family = KC_FAMILY_LLAMA, none.experts = none.top_k = 0;
    ck_assert_msg(fleet_plan(&g, &none, &e) == 0, "%s", e.text);
    ck_assert_uint_eq(kc_plan_tallies(g.shard), 0);
    fleet_free(&f);
    fleet_free(&g);
}
END_TEST

/* ---- the board ---- */

static struct kc_loads loads;

START_TEST(a_board_shows_the_last_step_whole)
{
    struct kc_probe *p[2];
    struct kc_reader *r = NULL;
    struct kc_error e = {""};
    static double choices[KC_LOADS + 1];
    for (int i = 0; i <= KC_LOADS; i++)
        choices[i] = 4e9 - i;
    ck_assert_int_eq(kc_probe_private(2, p, &e), 0);
    kc_reader_of_probe(p[0], &r, &e);
    ck_assert_int_eq(kc_reader_loads(r, &loads), -ENOENT);
    kc_probe_loads(p[1], 7, 1, 4, choices); /* not the leader */
    ck_assert_int_eq(kc_reader_loads(r, &loads), -ENOENT);
    static const uint32_t shape[][2] = {{1, 1}, {3, 5}, {2, 8}, {KC_LOADS / 64, 64}};
    for (uint64_t k = 0; k < sizeof shape / sizeof *shape; k++) {
        kc_probe_loads(p[0], k, shape[k][0], shape[k][1], choices + k % 2);
        ck_assert_int_eq(kc_reader_loads(r, &loads), 0);
        ck_assert(loads.step == k && loads.layers == shape[k][0] && loads.experts == shape[k][1] && loads.incarnation == 1);
        for (uint32_t i = 0; i < shape[k][0] * shape[k][1]; i++)
            ck_assert_uint_eq(loads.choices[i], (uint32_t)choices[i + k % 2]);
    }
    kc_probe_loads(p[0], 9, 1, KC_LOADS + 1, choices); /* more than are shown */
    ck_assert_int_eq(kc_reader_loads(r, &loads), 0);
    ck_assert_uint_eq(loads.step, 3);
    kc_reader_free(r);
    kc_probe_free(p[0]);
    kc_probe_free(p[1]);
}
END_TEST

START_TEST(a_new_incarnation_begins_without_and_a_saved_board_keeps_them)
{
    char instance[32], path[64];
    const struct kc_job_facts f = {.id = "demo-1", .name = "demo", .ranks = 1};
    struct kc_board *b = NULL;
    struct kc_probe *p = NULL;
    struct kc_reader *saved = NULL;
    struct kc_error e = {""};
    snprintf(instance, sizeof instance, "l%d", (int)getpid());
    snprintf(path, sizeof path, "/tmp/kc-loads.%d", (int)getpid());
    ck_assert_msg(kc_board_create(instance, &f, &b, &e) == 0, "%s", e.text);
    kc_board_incarnation(b, 1);
    ck_assert_int_eq(kc_probe_attach(dup(kc_board_fd(b)), 0, 1, &p, &e), 0);
    kc_probe_loads(p, 5, 1, 3, (const double[]){1, 2, 3});
    ck_assert_int_eq(kc_reader_save(kc_board_reader(b), path, &e), 0);
    kc_probe_free(p);
    ck_assert_int_eq(kc_probe_attach(dup(kc_board_fd(b)), 0, 2, &p, &e), 0);
    ck_assert_int_eq(kc_reader_loads(kc_board_reader(b), &loads), -ENOENT);
    ck_assert_msg(kc_reader_open(path, &saved, &e) == 0, "%s", e.text);
    ck_assert_int_eq(kc_reader_loads(saved, &loads), 0);
    ck_assert(loads.step == 5 && loads.experts == 3 && memcmp(loads.choices, (const uint32_t[]){1, 2, 3}, 12) == 0);
    kc_reader_free(saved);
    kc_probe_free(p);
    kc_board_free(b, 1);
    unlink(path);
}
END_TEST

/* ---- what people see ---- */

START_TEST(the_least_even_layer_is_told)
{
    static const uint32_t choices[] = {5, 5, 5, 5, /* even */ 2, 12, 0, 6, /* 20: mean 5 */ 8, 8, 4, 0};
    struct loads *l = loads_new(42, 3, 4, choices);
    struct loads_worst w;
    char text[160];
    loads_worst(l, &w);
    ck_assert(w.layer == 1 && w.busiest == 1 && w.idlest == 2);
    ck_assert_double_eq_tol(w.imbalance, 12 / 5.0, 1e-12);
    ck_assert_double_eq_tol(w.most, 12 / 20.0, 1e-12);
    ck_assert_double_eq(w.least, 0);
    loads_text(l, text, sizeof text);
    ck_assert_str_eq(text, "worst layer 1: expert 1 has 60.0% (2.40 x mean), expert 2 0.0%");
    json_t *o = loads_json(l), *row = json_array_get(json_object_get(o, "choices"), 2);
    ck_assert_int_eq(json_integer_value(json_object_get(o, "step")), 42);
    ck_assert_uint_eq(json_array_size(json_object_get(o, "choices")), 3);
    ck_assert(json_array_size(row) == 4 && json_integer_value(json_array_get(row, 2)) == 4);
    json_decref(o);
    memset(l->choices, 0, sizeof choices);
    loads_text(l, text, sizeof text);
    ck_assert_str_eq(text, "-");
    free(l);
    loads_text(NULL, text, sizeof text);
    ck_assert_str_eq(text, "-");
    o = loads_json(NULL);
    ck_assert(json_is_null(o));
    json_decref(o);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("loads");
    TCase *t = tcase_create("loads");
    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, every_layout_counts_each_choice_once, 0, LAYOUTS);
    tcase_add_test(t, room_for_the_worst_case_is_committed_as_it_is_used);
    tcase_add_test(t, a_plan_agrees_on_tallies_with_the_rest);
    tcase_add_test(t, a_board_shows_the_last_step_whole);
    tcase_add_test(t, a_new_incarnation_begins_without_and_a_saved_board_keeps_them);
    tcase_add_test(t, the_least_even_layer_is_told);
    suite_add_tcase(s, t);
    return suite_run(s);
}
