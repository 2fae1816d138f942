/* test_state_adapters.c - adapters in the state: a run begins from a model without them, goes on from a snapshot with them, in
 * any layout, is refused by numbers where they are others; an export has in its weights what they add, or has them alone, under
 * PEFT's names. Plans are the real ones of the golden models. */
#include "base/json.h"
#include "govern/spec.h"
#include "tests/unit/fleet.h"
#include "tests/unit/golden.h"
#include "tests/unit/state_rig.h"
#include "tests/unit/suite.h"

#include <check.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char folder[256], snapshots[300], out[300];

static void setup(void)
{
    rig_folder(folder, true);
    snprintf(snapshots, sizeof snapshots, "%s/snapshots", folder);
    snprintf(out, sizeof out, "%s/out", folder);
}

static void teardown(void)
{
    rig_remove(folder);
}

static const struct {
    const char *golden, *targets;
    size_t kinds; /* of weights that have adapters, and the first of them */
    const char *first;
} models[] = {{"gpt2", "[\"*.attn.*\",\"*.mlp.c_fc.*\"]", 3, "attn.c_attn"},
              {"llama", "[\"*.[qk]_proj.*\",\"*.o_proj.*\",\"*.down_proj.*\"]", 4, "self_attn.q_proj"},
              {"moe", "[\"*.v_proj.*\"]", 1, "self_attn.v_proj"}};
enum { MODELS = sizeof models / sizeof *models };
#define WHOLE "{\"data\":1}"
#define CUT "{\"tensor\":2,\"data\":2,\"zero\":1}"

/* A job of a golden model: its plan, and a state a rank. */
struct job {
    struct kc_arena arena;
    const struct kc_job_spec *spec;
    struct fleet plan;
    struct rig rig;
};

static json_t *model_block(const char *golden, const char *from)
{
    char path[128];
    snprintf(path, sizeof path, "tests/golden/%s/reference.json", golden);
    json_t *reference = json_load_file(path, 0, NULL), *a = json_object_get(reference, "arguments"), *model = json_object();
    static const char *const keys[] = {"family", "layers", "hidden", "heads", "context", "vocab", "kv_heads", "ffn", "tied", "experts",
                                       "top_k"};
    const int count = strcmp(golden, "gpt2") == 0 ? 6 : strcmp(golden, "moe") == 0 ? 11 : 9;
    for (int i = 0; i < count; i++)
        json_object_set(model, keys[i], json_object_get(a, keys[i]));
    json_object_set_new(model, "init", json_pack("{s:s?}", "from", from));
    json_decref(reference);
    return model;
}

/* lora: its JSON, or NULL. */
static void plan(struct job *j, int m, const char *lora, const char *parallel, const char *from)
{
    struct kc_error e = {""};
    memset(j, 0, sizeof *j);
    json_t *root = json_pack("{s:s, s:i, s:i, s:i, s:b, s:{s:s}, s:{s:i, s:i}, s:{s:f}, s:o, s:o}", "name", "adapters", "ranks",
                             strcmp(parallel, WHOLE) ? 4 : 1, "steps", 10, "seed", 7, "oversubscribe", 1, "data", "train", "/x",
                             "batch", "sequences", 2, "micro", 1, "optimizer", "lr", 0.1, "model",
                             model_block(models[m].golden, from), "parallel", json_loads(parallel, 0, NULL));
    if (lora)
        json_object_set_new(root, "lora", json_loads(lora, 0, NULL));
    char *text = json_dumps(root, 0), here[300];
    ck_assert_ptr_nonnull(text);
    ck_assert_ptr_nonnull(realpath(".", here));
    ck_assert_int_eq(kc_arena_new(&j->arena, 1 << 20), 0);
    ck_assert_msg(kc_spec_parse(text, here, &j->arena, &j->spec, &e) == 0, "%s", e.text);
    ck_assert_msg(fleet_plan(&j->plan, j->spec, &e) == 0, "%s", e.text);
    free(text);
    json_decref(root);
    j->rig.plan = (struct kc_shard_plan *)(uintptr_t)j->plan.shard;
    j->rig.ranks = j->spec->ranks;
    for (uint32_t i = 0; i < j->rig.ranks; i++) {
        struct kc_state_config c = {.spec = j->spec, .shard = j->plan.shard, .rank = i, .directory = snapshots, .variant = "portable",
                                    .plan = rig_plan_text, .guard = KC_GUARD_PHASE};
        ck_assert_msg(kc_state_new(&c, &j->rig.state[i], &e) == 0, "%s", e.text);
        ck_assert_int_eq(kc_state_offer(j->rig.state[i], "schedule", &j->rig.io[i]), 0);
    }
}

static int init(struct job *j, struct kc_error *e)
{
    int first = 0;
    for (uint32_t i = 0; i < j->rig.ranks; i++) {
        const int r = kc_state_init(j->rig.state[i], e);
        first = first ? first : r;
    }
    return first;
}

static void drop(struct job *j)
{
    for (uint32_t i = 0; i < j->rig.ranks; i++)
        kc_state_free(j->rig.state[i]);
    fleet_free(&j->plan);
    kc_arena_free(&j->arena);
}

static const char *lora_text(int m, int rank, double alpha)
{
    static char text[256];
    snprintf(text, sizeof text, "{\"rank\":%d,\"alpha\":%g,\"targets\":%s}", rank, alpha, models[m].targets);
    return text;
}

/* ---- values of a job of one rank ---- */

static const struct kc_plan_tensor *tensor(const struct job *j, uint32_t t)
{
    return KC_AT(j->plan.shard, struct kc_plan_tensor, j->plan.shard->tensors) + t;
}

/* The tensor of that name, of whole layouts as it lies in files; its elements. */
static const float *values(const struct job *j, const char *name, uint64_t *n)
{
    for (uint32_t t = 0; t < j->plan.shard->tensors.count; t++) {
        const struct kc_plan_tensor *p = tensor(j, t);
        if (p->role != KC_PARAMETER || strcmp(KC_TEXT(j->plan.shard, p->name), name) != 0)
            continue;
        *n = 1;
        for (int d = 0; d < p->rank; d++)
            *n *= p->global[d];
        const float *bucket = j->rig.io[0].read(j->rig.io[0].self, KC_STATE_PARAMETER, (uint32_t)p->bucket, NULL);
        return bucket + p->offset;
    }
    return NULL;
}

/* Adapters as some training might leave them. */
static void train(struct job *j)
{
    for (uint32_t t = 0; t < j->plan.shard->tensors.count; t++) {
        const struct kc_plan_tensor *p = tensor(j, t);
        void *data;
        uint64_t n;
        if (p->role != KC_PARAMETER || p->frozen)
            continue;
        values(j, KC_TEXT(j->plan.shard, p->name), &n);
        ck_assert_int_eq(j->rig.io[0].open(j->rig.io[0].self, KC_STATE_PARAMETER, (uint32_t)p->bucket, &data), 0);
        for (uint64_t i = 0; i < n; i++)
            ((float *)data)[p->offset + i] = rig_value(t % 8, 0, i, 3);
        j->rig.io[0].close(j->rig.io[0].self, KC_STATE_PARAMETER, (uint32_t)p->bucket);
    }
    kc_state_advance(j->rig.state[0], 100, 8, 5, 1);
}

/* A snapshot of a job with adapters of rank 3, alpha 6. */
static void save(int m, char root[33])
{
    struct job j;
    struct kc_error e = {""};
    char from[128];
    snprintf(from, sizeof from, "tests/golden/%s/model", models[m].golden);
    plan(&j, m, lora_text(m, 3, 6), WHOLE, from);
    ck_assert_msg(init(&j, &e) == 0, "%s", e.text);
    train(&j);
    ck_assert_int_eq(rig_snapshot(&j.rig), 0);
    rig_root(&j.rig, root);
    drop(&j);
}

/* ---- tests ---- */

START_TEST(a_run_begins_from_a_model_that_has_none)
{
    struct job j, seeded, cut;
    struct kc_error e = {""};
    char from[128], root[33], other[33];
    snprintf(from, sizeof from, "tests/golden/%s/model", models[_i].golden);
    plan(&j, _i, lora_text(_i, 3, 6), WHOLE, from);
    plan(&seeded, _i, lora_text(_i, 3, 6), WHOLE, NULL);
    plan(&cut, _i, lora_text(_i, 3, 6), CUT, from);
    ck_assert_msg(init(&j, &e) == 0 && init(&seeded, &e) == 0 && init(&cut, &e) == 0, "%s", e.text);
    snprintf(from, sizeof from, "tests/golden/%s/model/model.safetensors", models[_i].golden);
    struct safetensors file = safetensors_open(from);
    uint32_t adapters = 0, base = 0;
    for (uint32_t t = 0; t < j.plan.shard->tensors.count; t++) {
        const char *name = KC_TEXT(j.plan.shard, tensor(&j, t)->name);
        uint64_t n, there;
        const float *got = tensor(&j, t)->role == KC_PARAMETER ? values(&j, name, &n) : NULL;
        if (!got || strchr(name, '*'))
            continue;
        if (strstr(name, ".lora_")) {
            ck_assert_mem_eq(got, values(&seeded, name, &there), n * sizeof *got);
            for (uint64_t i = 0; i < n; i++)
                ck_assert((got[i] == 0) == (strstr(name, ".lora_B.") != NULL));
            adapters++;
        } else {
            float *want = safetensors_floats(&file, name, &there);
            ck_assert_mem_eq(got, want, n * sizeof *got);
            free(want);
            base++;
        }
    }
    ck_assert(adapters >= 4 && base > 10);
    rig_root(&j.rig, root);
    rig_root(&cut.rig, other);
    ck_assert_str_eq(root, other);
    safetensors_close(&file);
    drop(&j), drop(&seeded), drop(&cut);
}
END_TEST

START_TEST(any_layout_goes_on_from_them)
{
    struct job j;
    struct kc_error e = {""};
    char root[33], got[33];
    save(_i, root);
    const char *const parallel[] = {WHOLE, CUT};
    for (int way = 0; way < 4; way++) { /* restored, or begun from: their root differs by progress */
        plan(&j, _i, lora_text(_i, 3, 6), parallel[way % 2], way < 2 ? NULL : snapshots);
        ck_assert_msg((way < 2 ? rig_restore(&j.rig, 0, &e) : init(&j, &e)) == 0, "%s", e.text);
        rig_root(&j.rig, got);
        if (way < 3)
            ck_assert_int_eq(strcmp(got, root) == 0, way < 2);
        else
            ck_assert_str_eq(got, root);
        memcpy(root, got, sizeof root);
        drop(&j);
    }
}
END_TEST

static void refused(int m, const char *lora, const char *a, const char *b)
{
    for (int begins = 0; begins <= 1; begins++) {
        struct job j;
        struct kc_error e = {""};
        plan(&j, m, lora, WHOLE, begins ? snapshots : NULL);
        ck_assert_int_eq(begins ? init(&j, &e) : rig_restore(&j.rig, 0, &e), -EINVAL);
        ck_assert_msg(strstr(e.text, a) && strstr(e.text, b), "%s", e.text);
        ck_assert(!begins || strncmp(e.text, "model.init.from: ", 17) == 0);
        drop(&j);
    }
}

START_TEST(others_are_refused_by_their_numbers)
{
    char root[33];
    save(0, root);
    refused(0, lora_text(0, 4, 6), "have rank 3 and alpha 6, the spec's lora has rank 4 and alpha 6", "set them back");
    refused(0, lora_text(0, 3, 12), "have rank 3 and alpha 6, the spec's lora has rank 3 and alpha 12", "set them back");
    refused(0, "{\"rank\":3,\"alpha\":6,\"targets\":[\"*.c_fc.*\"]}",
            "adapters of 6 weights are in the snapshot, by the spec's lora.targets it is 2: transformer.h.0.attn.c_attn.weight has them there "
            "alone", "Set lora.targets back");
    refused(0, "{\"rank\":3,\"alpha\":6,\"targets\":[\"*.c_*.weight\"]}",
            "by the spec's lora.targets it is 8: transformer.h.0.mlp.c_proj.weight has them here alone", "");
    refused(0, NULL, "has adapters of rank 3 beside 6 weights, the spec has no lora", "kc snap export");
}
END_TEST

START_TEST(a_snapshot_without_them_is_a_beginning_alone)
{
    struct job j;
    struct kc_error e = {""};
    plan(&j, 1, NULL, WHOLE, "tests/golden/llama/model");
    ck_assert_msg(init(&j, &e) == 0, "%s", e.text);
    kc_state_advance(j.rig.state[0], 100, 8, 5, 1);
    ck_assert_int_eq(rig_snapshot(&j.rig), 0);
    drop(&j);
    plan(&j, 1, lora_text(1, 3, 6), WHOLE, snapshots);
    ck_assert_int_eq(rig_restore(&j.rig, 0, &e), -EINVAL);
    ck_assert_msg(strstr(e.text, "the snapshot has no adapters, the spec's lora has rank 3") != NULL, "%s", e.text);
    ck_assert_msg(init(&j, &e) == 0, "%s", e.text);
    struct kc_export c = {.out = out, .file_bytes = 1 << 30, .adapters = true};
    struct kc_export_info info;
    ck_assert_int_eq(kc_snapshot_export(snapshots, &c, &info, &e), -ENOTSUP);
    ck_assert_msg(strstr(e.text, "has no adapters: its job's spec had no lora") != NULL, "%s", e.text);
    drop(&j);
}
END_TEST

/* W + alpha/rank B A in f64, rounded, where W is [out, in]; turned, where it is [in, out]. */
static float merged(const float *w, const float *a, const float *b, uint64_t in, uint64_t wide, uint64_t i, int turned)
{
    const uint64_t row = turned ? i % wide : i / in, column = turned ? i / wide : i % in;
    double sum = 0;
    for (uint64_t k = 0; k < 3; k++)
        sum += (double)b[row * 3 + k] * (double)a[k * in + column];
    return (float)((double)w[i] + 6.0 / 3.0 * sum);
}

static void export_is(const struct job *j, const char *file_name, bool alone, int m)
{
    struct safetensors file = safetensors_open(file_name);
    size_t tensors = 0;
    for (uint32_t t = 0; t < j->plan.shard->tensors.count; t++) {
        const char *name = KC_TEXT(j->plan.shard, tensor(j, t)->name);
        char beside[160], theirs[200];
        uint64_t n, at_a, at_b, there;
        const float *w = tensor(j, t)->role == KC_PARAMETER ? values(j, name, &n) : NULL;
        if (!w || (strstr(name, ".lora_") != NULL) != alone)
            continue;
        tensors += strchr(name, '*') ? tensor(j, t)->global[0] : 1;
        if (strchr(name, '*'))
            continue;
        snprintf(theirs, sizeof theirs, "%s%s", alone ? "base_model.model." : "", name);
        float *got = safetensors_floats(&file, theirs, &there);
        ck_assert_uint_eq(there, n);
        snprintf(beside, sizeof beside, "%.*s.lora_A.weight", (int)(strlen(name) - 7), name);
        const float *a = alone ? NULL : values(j, beside, &at_a);
        snprintf(beside, sizeof beside, "%.*s.lora_B.weight", (int)(strlen(name) - 7), name);
        const float *b = alone ? NULL : values(j, beside, &at_b);
        for (uint64_t i = 0; i < n; i++) {
            const float want = a ? merged(w, a, b, at_a / 3, at_b / 3, i, m == 0) : w[i];
            ck_assert_msg(fabsf(got[i] - want) <= 1e-7f * fabsf(want), "%s[%llu]: %.9g for %.9g", name, (unsigned long long)i,
                          (double)got[i], (double)want);
        }
        free(got);
    }
    ck_assert_uint_eq(tensors, json_object_size(file.head) - 1);
    safetensors_close(&file);
}

START_TEST(exports_have_them_in_the_weights_or_alone)
{
    struct job j;
    struct kc_error e = {""};
    struct kc_export c = {.out = out, .file_bytes = 1 << 30, .origin = "/models/base"};
    struct kc_export_info info;
    char root[33], path[600];
    save(_i, root);
    plan(&j, _i, lora_text(_i, 3, 6), WHOLE, NULL);
    ck_assert_msg(rig_restore(&j.rig, 0, &e) == 0, "%s", e.text);
    ck_assert_msg(kc_snapshot_export(snapshots, &c, &info, &e) == 0, "%s", e.text);
    snprintf(path, sizeof path, "%s/model.safetensors", out);
    export_is(&j, path, false, _i);
    snprintf(out, sizeof out, "%s/alone", folder);
    c.adapters = true;
    ck_assert_msg(kc_snapshot_export(snapshots, &c, &info, &e) == 0, "%s", e.text);
    snprintf(path, sizeof path, "%s/adapter_model.safetensors", out);
    export_is(&j, path, true, _i);
    snprintf(path, sizeof path, "%s/adapter_config.json", out);
    json_t *config = json_load_file(path, 0, NULL), *targets = json_object_get(config, "target_modules");
    ck_assert_str_eq(kc_json_text(config, "peft_type", ""), "LORA");
    ck_assert_str_eq(kc_json_text(config, "base_model_name_or_path", ""), "/models/base");
    ck_assert_int_eq(kc_json_integer(config, "r", 0), 3);
    ck_assert_double_eq(kc_json_real(config, "lora_alpha", 0), 6);
    ck_assert(json_is_true(json_object_get(config, "fan_in_fan_out")) == (_i == 0));
    ck_assert_uint_eq(json_array_size(targets), models[_i].kinds); /* of every layer: a name once */
    ck_assert_str_eq(json_string_value(json_array_get(targets, 0)), models[_i].first);
    json_decref(config);
    drop(&j);
}
END_TEST

/* Some layers alone: an ending would mean the others too. */
START_TEST(targets_of_some_layers_are_named_in_full)
{
    struct job j;
    struct kc_error e = {""};
    struct kc_export c = {.out = out, .file_bytes = 1 << 30, .adapters = true};
    struct kc_export_info info;
    char path[600];
    plan(&j, 0, "{\"rank\":3,\"targets\":[\"*.h.1.attn.c_attn.*\",\"*.c_fc.*\"]}", WHOLE, NULL);
    ck_assert_int_eq(init(&j, &e), 0);
    train(&j);
    ck_assert_int_eq(rig_snapshot(&j.rig), 0);
    ck_assert_msg(kc_snapshot_export(snapshots, &c, &info, &e) == 0, "%s", e.text);
    snprintf(path, sizeof path, "%s/adapter_config.json", out);
    json_t *config = json_load_file(path, 0, NULL), *targets = json_object_get(config, "target_modules");
    ck_assert_uint_eq(json_array_size(targets), 2);
    ck_assert_str_eq(json_string_value(json_array_get(targets, 0)), "mlp.c_fc");
    ck_assert_str_eq(json_string_value(json_array_get(targets, 1)), "transformer.h.1.attn.c_attn");
    json_decref(config);
    drop(&j);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("adapters in the state");
    TCase *t = tcase_create("adapters");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, a_run_begins_from_a_model_that_has_none, 0, MODELS);
    tcase_add_loop_test(t, any_layout_goes_on_from_them, 0, MODELS);
    tcase_add_test(t, others_are_refused_by_their_numbers);
    tcase_add_test(t, a_snapshot_without_them_is_a_beginning_alone);
    tcase_add_loop_test(t, exports_have_them_in_the_weights_or_alone, 0, MODELS);
    tcase_add_test(t, targets_of_some_layers_are_named_in_full);
    suite_add_tcase(s, t);
    return suite_run(s);
}
