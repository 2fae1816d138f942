/* test_state_export.c - a model as others load it: config.json of every family, and an export that is whole or not there.
 * That transformers loads what is written is tests/check/transformers' to say. */
#include "rig_faults.h"
#include "state_rig.h"

#include "base/json.h"
#include "state/config.h"
#include "tests/unit/suite.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

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

/* ---- config.json ---- */

/* What transformers wrote of the golden models (tests/golden/README.md). */
static const struct {
    const char *path;
    struct kc_model_numbers numbers;
} golden[] = {
    {"tests/golden/gpt2/model/config.json",
     {.family = "gpt2", .layers = 2, .hidden = 32, .heads = 4, .context = 32, .vocab = 256, .kv_heads = 4, .ffn = 128, .tied = 1}},
    {"tests/golden/llama/model/config.json",
     {.family = "llama", .layers = 2, .hidden = 48, .heads = 6, .context = 32, .vocab = 259, .kv_heads = 2, .ffn = 80,
      .rope_theta = 10000, .rms_eps = 1e-5}},
    {"tests/golden/llama-tied/model/config.json",
     {.family = "llama", .layers = 3, .hidden = 32, .heads = 4, .context = 32, .vocab = 131, .kv_heads = 4, .ffn = 56, .tied = 1,
      .rope_theta = 500000, .rms_eps = 1e-5}},
    {"tests/golden/moe/model/config.json",
     {.family = "moe", .layers = 2, .hidden = 32, .heads = 4, .context = 32, .vocab = 256, .kv_heads = 2, .ffn = 48, .experts = 4,
      .top_k = 2, .rope_theta = 10000, .rms_eps = 1e-5}}};
#define GOLDEN (sizeof golden / sizeof golden[0])

START_TEST(config_of_every_family_is_compared)
{
    struct kc_error e = {""};
    for (size_t i = 0; i < GOLDEN; i++) {
        struct kc_model_numbers m = golden[i].numbers;
        ck_assert_msg(kc_config_check(&m, golden[i].path, &e) == 0, "%s", e.text);
        m.layers++, m.hidden *= 2, m.vocab--;
        ck_assert_int_eq(kc_config_check(&m, golden[i].path, &e), -EINVAL);
        ck_assert_msg(strstr(e.text, "model.layers is") && strstr(e.text, "model.hidden is") && strstr(e.text, "model.vocab is") &&
                          !strstr(e.text, "_heads is"),
                      "%s", e.text);
    }
    struct kc_model_numbers m = golden[3].numbers;
    m.kv_heads = 4, m.ffn = 47, m.experts = 8, m.top_k = 1, m.rope_theta = 1e6, m.rms_eps = 1e-6, m.tied = 1;
    ck_assert_int_eq(kc_config_check(&m, golden[3].path, &e), -EINVAL);
    ck_assert_msg(strstr(e.text, "num_key_value_heads is 2, model.kv_heads is 4") &&
                      strstr(e.text, "intermediate_size is 48, model.ffn is 47") &&
                      strstr(e.text, "num_local_experts is 4, model.experts is 8") &&
                      strstr(e.text, "num_experts_per_tok is 2, model.top_k is 1") &&
                      strstr(e.text, "rope_theta is 10000, model.rope_theta is 1000000") &&
                      strstr(e.text, "rms_norm_eps is 1e-05, model.rms_eps is 1e-06") &&
                      strstr(e.text, "tie_word_embeddings is 0, model.tied is 1"),
                  "%s", e.text);
    m = golden[1].numbers;
    m.context = 16; /* a model may be trained on less than it could be */
    ck_assert_int_eq(kc_config_check(&m, golden[1].path, &e), 0);
    m.context = 64;
    ck_assert_int_eq(kc_config_check(&m, golden[1].path, &e), -EINVAL);
    ck_assert_msg(strstr(e.text, "max_position_embeddings is 32, model.context is 64") != NULL, "%s", e.text);
}
END_TEST

/* A model that has the numbers but computes otherwise is another model. */
START_TEST(a_config_that_is_not_ours_is_refused)
{
    static const struct {
        int of;
        const char *change, *says;
    } row[] = {{0, "{\"activation_function\":\"relu\"}", "activation_function is \"relu\", this family has \"gelu_new\""},
               {0, "{\"scale_attn_by_inverse_layer_idx\":true}", "scale_attn_by_inverse_layer_idx is true"},
               {1, "{\"attention_bias\":true}", "attention_bias is true, this family has false"},
               {1, "{\"head_dim\":16}", "head_dim is 16, model.hidden / model.heads is 8"},
               {1, "{\"rope_parameters\":{\"rope_type\":\"llama3\",\"rope_theta\":10000.0}}", "rope_type is \"llama3\""},
               {1, "{\"rope_scaling\":{\"type\":\"linear\",\"factor\":2.0}}", "rope_scaling is \"linear\""},
               {3, "{\"sliding_window\":4096}", "sliding_window is 4096"},
               {1, "{\"model_type\":\"mistral\"}", "model_type is \"mistral\""},
               {1, "{\"rms_norm_eps\":\"small\"}", "rms_norm_eps is missing"},
               {1, "{\"rope_parameters\":null,\"rope_theta\":10000}", NULL}, /* as older files have it */
               {0, "{\"resid_pdrop\":0.1,\"eos_token_id\":50256}", NULL}};
    char path[600];
    snprintf(path, sizeof path, "%s/config.json", folder);
    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
        struct kc_error e = {""};
        json_t *json = json_load_file(golden[row[i].of].path, 0, NULL), *change = json_loads(row[i].change, 0, NULL);
        json_object_update(json, change);
        ck_assert_int_eq(json_dump_file(json, path, 0), 0);
        const int r = kc_config_check(&golden[row[i].of].numbers, path, &e);
        ck_assert_msg(row[i].says ? r == -EINVAL && strstr(e.text, row[i].says) : r == 0, "row %zu: %s", i, e.text);
        json_decref(change);
        json_decref(json);
    }
}
END_TEST

START_TEST(config_is_written_as_it_is_read)
{
    for (size_t i = 0; i < GOLDEN; i++) {
        struct kc_error e = {""};
        char path[600];
        ck_assert_msg(kc_config_write(&kc_storage_posix, folder, &golden[i].numbers, i % 2, NULL, &e) == 0, "%s", e.text);
        snprintf(path, sizeof path, "%s/config.json", folder);
        ck_assert_msg(kc_config_check(&golden[i].numbers, path, &e) == 0, "%s", e.text);
        /* every number that it has, transformers' file of the same model has as well */
        json_t *ours = json_load_file(path, 0, NULL), *theirs = json_load_file(golden[i].path, 0, NULL), *value;
        const char *key;
        ck_assert_str_eq(kc_json_text(ours, "dtype", ""), i % 2 ? "bfloat16" : "float32");
        json_object_foreach(ours, key, value)
            ck_assert_msg(!json_is_number(value) || json_number_value(value) == json_number_value(json_object_get(theirs, key)),
                          "%s", key);
        json_decref(ours);
        json_decref(theirs);
        remove(path);
    }
    struct kc_model_numbers old = golden[1].numbers; /* as a snapshot of format 1 knows it */
    struct kc_error e = {""};
    old.kv_heads = old.ffn = 0, old.rope_theta = old.rms_eps = 0;
    ck_assert_int_eq(kc_config_write(&kc_storage_posix, folder, &old, false, NULL, &e), -ENOTSUP);
    ck_assert_msg(strstr(e.text, "does not say what model.kv_heads was") != NULL, "%s", e.text);
}
END_TEST

/* ---- exports ---- */

static void save(void)
{
    struct rig r;
    rig_open(&r, rig_small, rig_small_count, (struct rig_layout){2, 1, 2, false, false}, snapshots, NULL, "");
    rig_train(&r);
    ck_assert_int_eq(rig_snapshot(&r), 0);
    rig_close(&r);
}

static bool there(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0;
}

START_TEST(an_export_writes_over_nothing)
{
    struct kc_export c = {.out = out, .file_bytes = 1 << 30};
    struct kc_export_info info;
    struct kc_error e = {""};
    char path[600];
    save();
    ck_assert_msg(kc_snapshot_export(snapshots, &c, &info, &e) == 0, "%s", e.text);
    ck_assert_int_eq(kc_snapshot_export(snapshots, &c, &info, &e), -ENOTEMPTY);
    ck_assert_msg(strstr(e.text, "is not empty") != NULL, "%s", e.text);
    rig_remove(out);
    ck_assert_int_eq(mkdir(out, 0700), 0); /* an empty folder is taken */
    ck_assert_int_eq(kc_snapshot_export(snapshots, &c, &info, &e), 0);
    rig_remove(out);
    snprintf(path, sizeof path, "%s.tmp", out);
    ck_assert_int_eq(mkdir(path, 0700), 0);
    ck_assert_int_eq(kc_snapshot_export(snapshots, &c, &info, &e), -EEXIST);
    ck_assert(!there(out) && strstr(e.text, "Remove it"));
    rig_remove(path);
    c.out = "/";
    ck_assert_int_lt(kc_snapshot_export(snapshots, &c, &info, &e), 0);
    c.out = snapshots;
    ck_assert_int_eq(kc_snapshot_export(snapshots, &c, &info, &e), -ENOTEMPTY);
}
END_TEST

START_TEST(a_damaged_snapshot_is_not_exported)
{
    const struct kc_export c = {.out = out, .file_bytes = 1 << 30};
    struct kc_export_info info;
    struct kc_error e = {""};
    char pack[600], tmp[600];
    save();
    snprintf(pack, sizeof pack, "%s/v00000001/rank-1.pack", snapshots);
    snprintf(tmp, sizeof tmp, "%s.tmp", out);
    rig_flip(pack, 4096 + 8);
    ck_assert_int_eq(kc_snapshot_export(snapshots, &c, &info, &e), -EBADMSG);
    ck_assert_msg(strstr(e.text, "rank-1.pack: the extent at byte 4096 is damaged") != NULL, "%s", e.text);
    ck_assert(!there(out) && !there(tmp));
}
END_TEST

/* Whichever call fails, the folder is whole or it is not there, and nothing is left beside it. */
START_TEST(an_export_that_fails_leaves_nothing)
{
    struct kc_error e = {""};
    struct rig_faults f;
    uint64_t at = 1;
    char tmp[600], config[600];
    save();
    snprintf(tmp, sizeof tmp, "%s.tmp", out);
    snprintf(config, sizeof config, "%s/config.json", out);
    for (;; at++) {
        struct kc_export_info info;
        rig_faults(&f);
        f.at = at;
        f.code = -ENOSPC;
        f.writes_only = true;
        const struct kc_export c = {.out = out, .file_bytes = 2000, .storage = &f.storage};
        const int r = kc_snapshot_export(snapshots, &c, &info, &e);
        ck_assert_msg((r == 0) == (f.failed == NULL), "call %llu (%s): %d", (unsigned long long)at, f.failed, r);
        ck_assert_msg(!there(tmp), "call %llu (%s)", (unsigned long long)at, f.failed);
        ck_assert(there(out) == there(config));
        if (there(out))
            rig_remove(out);
        if (r == 0)
            break;
    }
    ck_assert_uint_gt(at, 20);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("state_export");
    TCase *c = tcase_create("export");
    tcase_set_timeout(c, 60);
    tcase_add_checked_fixture(c, setup, teardown);
    tcase_add_test(c, config_of_every_family_is_compared);
    tcase_add_test(c, a_config_that_is_not_ours_is_refused);
    tcase_add_test(c, config_is_written_as_it_is_read);
    tcase_add_test(c, an_export_writes_over_nothing);
    tcase_add_test(c, a_damaged_snapshot_is_not_exported);
    tcase_add_test(c, an_export_that_fails_leaves_nothing);
    suite_add_tcase(suite, c);
    return suite_run(suite);
}
