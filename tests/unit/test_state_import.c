/* test_state_import.c - a model from elsewhere as a snapshot, and what goes along with it. */
#include "state_rig.h"

#include "base/json.h"
#include "tests/unit/suite.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[256], out[300], from[300];

static void setup(void)
{
    rig_folder(folder, true);
    snprintf(out, sizeof out, "%s/model", folder);
    snprintf(from, sizeof from, "%s/from", folder);
    ck_assert_int_eq(mkdir(from, 0700), 0);
}

static void teardown(void)
{
    rig_remove(folder);
}

static void write_text(const char *in, const char *name, const char *text)
{
    char path[1000];
    snprintf(path, sizeof path, "%s/%s", in, name);
    FILE *f = fopen(path, "wbe");
    fputs(text, f);
    fclose(f);
}

static bool there(const char *in, const char *name)
{
    char path[1000];
    snprintf(path, sizeof path, "%s/%s", in, name);
    return access(path, F_OK) == 0;
}

/* One tensor of two that a model of the rig's numbers does not have: import looks at config.json, then at tensors. */
static const struct rig_tensor tiny[] = {{"transformer.wte.weight", 2, {3, 2}, KC_INIT_ZERO, 0},
    {"transformer.ln_f.weight", 1, {4}, KC_INIT_ZERO, 0}};
static const float values[10] = {1, -2, 3, 0.5f, -0.25f, 8, 4, 3, 2, 1};

static void write_model(size_t bytes)
{
    static const char header[] = "{\"wte.weight\":{\"dtype\":\"F32\",\"shape\":[3,2],\"data_offsets\":[0,24]},"
                                 "\"ln_f.weight\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[24,40]}}";
    char path[1000];
    const uint64_t length = sizeof header - 1;
    snprintf(path, sizeof path, "%s/model.safetensors", from);
    FILE *f = fopen(path, "wbe");
    fwrite(&length, 8, 1, f);
    fwrite(header, 1, length, f);
    fwrite(values, 1, bytes, f);
    fclose(f);
    write_text(from, "config.json", "{\"model_type\":\"gpt2\",\"n_layer\":2,\"n_embd\":32,\"n_head\":4,\"n_positions\":32,"
                                    "\"vocab_size\":256,\"bos_token_id\":7,\"eos_token_id\":[7,8],\"pad_token_id\":null}");
}

static int import(struct rig *r, struct kc_snapshot_info *info, uint32_t *copied, struct kc_error *e)
{
    rig_open(r, tiny, 2, (struct rig_layout){1, 0, 100, false, false}, NULL, NULL, from);
    return kc_snapshot_import(r->spec, r->plan, out, info, copied, e);
}

START_TEST(a_folder_becomes_version_1_of_step_0)
{
    struct rig r, again;
    struct kc_snapshot_info info, verified;
    struct kc_snapshot_view *v;
    struct kc_error e = {""};
    uint32_t copied;
    write_model(sizeof values);
    ck_assert_msg(import(&r, &info, &copied, &e) == 0, "%s", e.text);
    rig_close(&r);
    ck_assert(info.version == 1 && info.step == 0 && copied == 0 && !there(out, "tokenizer"));
    ck_assert_msg(kc_snapshot_verify(out, true, &verified, &e) == 0, "%s", e.text);
    ck_assert_str_eq(verified.state_root, info.state_root);
    ck_assert_int_eq(kc_snapshot_look(out, &v, &e), 0);
    for (int k = 0; k < KC_SNAPSHOT_KINDS; k++)
        ck_assert_uint_eq(v->bytes[k], 40); /* moments are there */
    kc_snapshot_view_free(v);
    /* a run begins from it, with these values */
    rig_open(&again, tiny, 2, (struct rig_layout){2, 1, 100, false, false}, NULL, NULL, out);
    ck_assert_msg(kc_state_init(again.state[0], &e) == 0, "%s", e.text);
    for (uint32_t t = 0; t < 2; t++) {
        const struct kc_plan_tensor *p = &KC_AT(again.plan, struct kc_plan_tensor, again.plan->tensors)[t];
        const float *have = again.io[0].read(again.io[0].self, KC_STATE_PARAMETER, (uint32_t)p->bucket, NULL);
        ck_assert_mem_eq(have + p->offset, values + 6 * t, t ? 16 : 24);
    }
    rig_close(&again);
    /* moments are 0: the state that a run has before its first step */
    char path[600];
    struct kc_snapshot_diff *d;
    snprintf(path, sizeof path, "%s/fresh", folder);
    rig_open(&again, tiny, 2, (struct rig_layout){1, 0, 100, false, false}, path, NULL, from);
    ck_assert_int_eq(kc_state_init(again.state[0], &e), 0);
    ck_assert_int_eq(rig_snapshot(&again), 0);
    rig_close(&again);
    ck_assert_int_eq(kc_snapshot_compare(out, path, &d, &e), 0);
    ck_assert(d->same);
    kc_snapshot_diff_free(d);
}
END_TEST

/* The tokenizer is kept and passed on, from the import and from a job that began from it. */
START_TEST(tokenizer_files_go_along)
{
    struct rig r;
    struct kc_snapshot_info info;
    struct kc_export_info exported;
    struct kc_error e = {""};
    uint32_t copied;
    char path[700], to[400];
    write_model(sizeof values);
    write_text(from, "tokenizer.json", "{\"a\":1}");
    write_text(from, "merges.txt", "#version\n");
    write_text(from, "pytorch_model.bin", "not this");
    ck_assert_msg(import(&r, &info, &copied, &e) == 0, "%s", e.text);
    rig_close(&r);
    snprintf(path, sizeof path, "%s/tokenizer", out);
    ck_assert(copied == 3 && there(path, "tokenizer.json") && there(path, "merges.txt") && there(path, "config.json") &&
              !there(path, "pytorch_model.bin"));
    snprintf(to, sizeof to, "%s/to", folder);
    struct kc_export c = {.out = to, .file_bytes = 1 << 20};
    ck_assert_msg(kc_snapshot_export(out, &c, &exported, &e) == 0, "%s", e.text);
    ck_assert(exported.copied == 2 && there(to, "tokenizer.json") && there(to, "merges.txt"));
    snprintf(path, sizeof path, "%s/config.json", to);
    json_t *config = json_load_file(path, 0, NULL); /* and special tokens stand in config.json */
    ck_assert_int_eq(kc_json_integer(config, "bos_token_id", -1), 7);
    ck_assert_uint_eq(json_array_size(json_object_get(config, "eos_token_id")), 2);
    ck_assert(json_is_null(json_object_get(config, "pad_token_id")) || !json_object_get(config, "pad_token_id"));
    json_decref(config);
    /* of another snapshot, by what it began from, and by name */
    snprintf(path, sizeof path, "%s/snapshots", folder);
    rig_open(&r, tiny, 2, (struct rig_layout){1, 0, 100, false, false}, path, NULL, out);
    ck_assert_int_eq(kc_state_init(r.state[0], &e), 0);
    ck_assert_int_eq(rig_snapshot(&r), 0);
    rig_close(&r);
    for (int i = 0; i < 4; i++) {
        const char *const origin[] = {NULL, out, info.path, from};
        rig_remove(to);
        c.origin = origin[i];
        ck_assert_msg(kc_snapshot_export(path, &c, &exported, &e) == 0, "%s", e.text);
        ck_assert_uint_eq(exported.copied, i ? 2 : 0);
    }
    rig_remove(to);
    c.tokenizer = from;
    ck_assert_int_eq(kc_snapshot_export(path, &c, &exported, &e), 0);
    ck_assert_uint_eq(exported.copied, 2);
    rig_remove(to);
    c.tokenizer = folder;
    ck_assert_int_eq(kc_snapshot_export(path, &c, &exported, &e), -ENOENT);
    ck_assert_msg(strstr(e.text, "has no files of a tokenizer") && !there(folder, "to") && !there(folder, "to.tmp"), "%s", e.text);
}
END_TEST

START_TEST(an_import_is_whole_or_not_there)
{
    struct rig r;
    struct kc_snapshot_info info;
    struct kc_error e = {""};
    uint32_t copied;
    write_text(from, "tokenizer.json", "{}");
    write_model(sizeof values - 4);
    ck_assert_int_eq(import(&r, &info, &copied, &e), -EBADMSG);
    rig_close(&r);
    ck_assert_msg(strstr(e.text, "cut short in tensor ln_f.weight") && !there(folder, "model") && !there(folder, "model.tmp"), "%s",
                  e.text);
    write_model(sizeof values);
    ck_assert_msg(import(&r, &info, &copied, &e) == 0, "%s", e.text);
    rig_close(&r);
    ck_assert_int_eq(import(&r, &info, &copied, &e), -ENOTEMPTY);
    rig_close(&r);
    ck_assert_msg(strstr(e.text, "is not empty") != NULL, "%s", e.text);
}
END_TEST

/* The model block of a spec. */
START_TEST(what_model_a_folder_has)
{
    static const struct {
        const char *path, *model;
    } row[] = {
        {"tests/golden/gpt2/model", "{\"family\":\"gpt2\",\"layers\":2,\"hidden\":32,\"heads\":4,\"context\":32,\"vocab\":256}"},
        {"tests/golden/llama-tied/model",
         "{\"family\":\"llama\",\"layers\":3,\"hidden\":32,\"heads\":4,\"kv_heads\":4,\"ffn\":56,\"context\":32,\"vocab\":131,"
         "\"tied\":true,\"rope_theta\":500000.0,\"rms_eps\":1e-05}"},
        {"tests/golden/moe/model",
         "{\"family\":\"moe\",\"layers\":2,\"hidden\":32,\"heads\":4,\"kv_heads\":2,\"ffn\":48,\"context\":32,\"vocab\":256,"
         "\"experts\":4,\"top_k\":2,\"tied\":false,\"rope_theta\":10000.0,\"rms_eps\":1e-05}"}};
    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
        struct kc_error e = {""};
        json_t *have = NULL, *want = json_loads(row[i].model, 0, NULL);
        ck_assert_msg(kc_weights_model(row[i].path, &have, &e) == 0, "%s", e.text);
        char *text = json_dumps(have, JSON_COMPACT);
        ck_assert_msg(json_equal(have, want), "%s", text);
        free(text);
        json_decref(have);
        json_decref(want);
    }
}
END_TEST

START_TEST(a_model_that_is_not_ours_is_told)
{
    static const struct {
        const char *config, *says;
    } row[] = {{"{\"model_type\":\"bert\"}", "model_type is \"bert\"; gpt2, llama and mixtral are read"},
               {"{\"model_type\":\"gpt2\",\"n_layer\":2}", "n_embd is missing; n_head is missing"},
               {"{\"model_type\":\"gpt2\",\"n_layer\":2,\"n_embd\":8,\"n_head\":2,\"n_positions\":4,\"vocab_size\":9,"
                "\"activation_function\":\"relu\"}", "activation_function is \"relu\""},
               {"{\"model_type\":\"gpt2\",\"n_layer\":2,\"n_embd\":8,\"n_head\":2,\"n_positions\":4,\"vocab_size\":9,"
                "\"n_inner\":9}", "n_inner is 9, this family has 4 n_embd = 32"}};
    struct kc_error e = {""};
    json_t *model;
    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
        write_text(from, "config.json", row[i].config);
        ck_assert_int_eq(kc_weights_model(from, &model, &e), -EINVAL);
        ck_assert_msg(strstr(e.text, row[i].says) != NULL, "%s", e.text);
    }
    ck_assert_int_eq(kc_weights_model("tests/golden/gpt2/model/model.safetensors", &model, &e), -EINVAL);
    ck_assert_msg(strstr(e.text, "does not say what model it is: name the folder with config.json") != NULL, "%s", e.text);
    ck_assert_int_eq(kc_weights_model(folder, &model, &e), -ENOENT);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("state_import");
    TCase *c = tcase_create("import");
    tcase_set_timeout(c, 60);
    tcase_add_checked_fixture(c, setup, teardown);
    tcase_add_test(c, a_folder_becomes_version_1_of_step_0);
    tcase_add_test(c, tokenizer_files_go_along);
    tcase_add_test(c, an_import_is_whole_or_not_there);
    tcase_add_test(c, what_model_a_folder_has);
    tcase_add_test(c, a_model_that_is_not_ours_is_told);
    suite_add_tcase(suite, c);
    return suite_run(suite);
}
