/* test_state_files.c - parameters from safetensors files: both GPT-2 namings, sharded index, every type, and every
 * way in which a file can be wrong. Rows F36-F38 of the list of faults. */
#include "state/misfit.h"
#include "state_rig.h"

#include "base/bf16.h"
#include "tests/unit/suite.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[256], path[512];

static void setup(void)
{
    rig_folder(folder, true);
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
}

static void teardown(void)
{
    rig_remove(folder);
}

/* The model of golden/gpt2: names and shapes as transformers has them. */
enum { GPT2 = 28 };
static struct rig_tensor gpt2[GPT2];
static char names[GPT2][64];

static void gpt2_tensor(uint32_t *n, uint64_t a, uint64_t b, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vsnprintf(names[*n], sizeof names[0], format, list);
    va_end(list);
    gpt2[*n] = (struct rig_tensor){names[*n], b ? 2 : 1, {a, b}, KC_INIT_ZERO, 0};
    ++*n;
}

static void gpt2_model(void)
{
    uint32_t n = 0;
    gpt2_tensor(&n, 256, 32, "transformer.wte.weight");
    gpt2_tensor(&n, 32, 32, "transformer.wpe.weight");
    for (int l = 0; l < 2; l++) {
        gpt2_tensor(&n, 32, 0, "transformer.h.%d.ln_1.weight", l);
        gpt2_tensor(&n, 32, 0, "transformer.h.%d.ln_1.bias", l);
        gpt2_tensor(&n, 32, 96, "transformer.h.%d.attn.c_attn.weight", l);
        gpt2_tensor(&n, 96, 0, "transformer.h.%d.attn.c_attn.bias", l);
        gpt2_tensor(&n, 32, 32, "transformer.h.%d.attn.c_proj.weight", l);
        gpt2_tensor(&n, 32, 0, "transformer.h.%d.attn.c_proj.bias", l);
        gpt2_tensor(&n, 32, 0, "transformer.h.%d.ln_2.weight", l);
        gpt2_tensor(&n, 32, 0, "transformer.h.%d.ln_2.bias", l);
        gpt2_tensor(&n, 32, 128, "transformer.h.%d.mlp.c_fc.weight", l);
        gpt2_tensor(&n, 128, 0, "transformer.h.%d.mlp.c_fc.bias", l);
        gpt2_tensor(&n, 128, 32, "transformer.h.%d.mlp.c_proj.weight", l);
        gpt2_tensor(&n, 32, 0, "transformer.h.%d.mlp.c_proj.bias", l);
    }
    gpt2_tensor(&n, 32, 0, "transformer.ln_f.weight");
    gpt2_tensor(&n, 32, 0, "transformer.ln_f.bias");
    ck_assert_uint_eq(n, GPT2);
}

/* Init from `from`; the error's text, or "" when it worked. The state stays open in *r. */
static bool in_bf16;
static const char *init_from(struct rig *r, const struct rig_tensor *tensors, uint32_t count, const char *from,
                             int *code)
{
    static struct kc_error e;
    e.text[0] = 0;
    rig_open(r, tensors, count, (struct rig_layout){2, 1, 5, true, in_bf16}, NULL, NULL, from);
    *code = kc_state_init(r->state[1], &e);
    return e.text;
}

static const float *tensor_of(const struct rig *r, uint32_t t)
{
    const struct kc_plan_tensor *p = &KC_AT(r->plan, struct kc_plan_tensor, r->plan->tensors)[t];
    return (const float *)r->io[1].read(r->io[1].self, KC_STATE_PARAMETER, (uint32_t)p->bucket, NULL) + p->offset;
}

/* ---- the files that transformers wrote ---- */

START_TEST(both_namings_of_gpt2_give_the_same_values)
{
    static const char *const from[] = {"tests/golden/gpt2/model", "tests/golden/gpt2/model-hub-names",
        "tests/golden/gpt2/model/model.safetensors"};
    struct rig r[3];
    int code;
    gpt2_model();
    for (int i = 0; i < 3; i++) {
        const char *text = init_from(&r[i], gpt2, GPT2, from[i], &code);
        ck_assert_msg(code == 0, "%s", text);
        for (uint32_t t = 0; t < GPT2; t++) {
            uint64_t n = gpt2[t].size[0] * (gpt2[t].rank > 1 ? gpt2[t].size[1] : 1);
            ck_assert_mem_eq(tensor_of(&r[i], t), tensor_of(&r[0], t), n * sizeof(float));
        }
    }
    ck_assert(tensor_of(&r[0], 2)[0] != 0); /* the golden model's norm weights are not left at their initial 0 */
    for (int i = 0; i < 3; i++)
        rig_close(&r[i]);
}
END_TEST

/* Files are read as masters, and what a rank's ops read is these, rounded. */
START_TEST(a_file_gives_bf16_its_masters)
{
    struct rig r, f;
    int code;
    gpt2_model();
    const char *text = init_from(&f, gpt2, GPT2, "tests/golden/gpt2/model", &code);
    ck_assert_msg(code == 0, "%s", text);
    in_bf16 = true;
    text = init_from(&r, gpt2, GPT2, "tests/golden/gpt2/model", &code);
    ck_assert_msg(code == 0, "%s", text);
    in_bf16 = false;
    const struct kc_plan_bucket *b = KC_AT(r.plan, struct kc_plan_bucket, r.plan->buckets);
    for (uint32_t t = 0; t < GPT2; t++) {
        const struct kc_plan_tensor *p = &KC_AT(r.plan, struct kc_plan_tensor, r.plan->tensors)[t];
        const uint16_t *rounded = r.io[1].read(r.io[1].self, KC_STATE_PARAMETER, (uint32_t)p->bucket, NULL);
        uintptr_t masters = (uintptr_t)r.io[1].read(r.io[1].self, KC_STATE_MASTER, (uint32_t)p->bucket, NULL);
        const float *want = tensor_of(&f, t);
        uint64_t n = gpt2[t].size[0] * (gpt2[t].rank > 1 ? gpt2[t].size[1] : 1);
        for (uint64_t i = 0; i < n; i++) {
            ck_assert_uint_eq(rounded[p->offset + i], kc_bf16_from_float(want[i]));
            if ((p->offset + i) / b[p->bucket].shard == 1)
                ck_assert(*(const float *)(masters + (p->offset + i) * 4) == want[i]);
        }
    }
    rig_close(&r);
    rig_close(&f);
}
END_TEST

/* F37: another model's numbers are named, each with both values. */
START_TEST(config_is_compared_with_the_spec)
{
    struct rig r;
    struct kc_error e = {""};
    gpt2_model();
    rig_open(&r, gpt2, GPT2, (struct rig_layout){1, 0, 100, false, false}, NULL, NULL, "tests/golden/gpt2/model");
    struct kc_job_spec *spec = malloc(r.spec->head.bytes);
    memcpy(spec, r.spec, r.spec->head.bytes);
    spec->layers = 3, spec->heads = 8, spec->context = 64;
    struct kc_state *s;
    struct kc_state_config c = {.spec = spec, .shard = r.plan};
    ck_assert_int_eq(kc_state_new(&c, &s, &e), 0);
    ck_assert_int_eq(kc_state_init(s, &e), -EINVAL);
    ck_assert_msg(strstr(e.text, "n_layer is 2, model.layers is 3") &&
                      strstr(e.text, "n_head is 4, model.heads is 8") &&
                      strstr(e.text, "n_positions is 32, model.context is 64") && !strstr(e.text, "n_embd"),
                  "%s", e.text);
    kc_state_free(s);
    free(spec);
    rig_close(&r);
}
END_TEST

/* ---- files made here ---- */

struct piece {
    const char *name, *dtype, *shape;
    size_t bytes;
    const void *data;
};

/* Header with consecutive offsets, then the data. */
static void write_safetensors(const char *file, const struct piece *p, int count)
{
    char header[4096] = "{\"__metadata__\":{\"format\":\"pt\"}";
    size_t at = 0;
    for (int i = 0; i < count; i++) {
        size_t n = strlen(header);
        snprintf(header + n, sizeof header - n, ",\"%s\":{\"dtype\":\"%s\",\"shape\":%s,\"data_offsets\":[%zu,%zu]}",
                 p[i].name, p[i].dtype, p[i].shape, at, at + p[i].bytes);
        at += p[i].bytes;
    }
    snprintf(header + strlen(header), sizeof header - strlen(header), "}   "); /* padding is allowed */
    uint64_t length = strlen(header);
    FILE *f = fopen(file, "wbe");
    fwrite(&length, 8, 1, f);
    fwrite(header, 1, length, f);
    for (int i = 0; i < count; i++)
        fwrite(p[i].data, 1, p[i].bytes, f);
    fclose(f);
}

static const struct rig_tensor tiny[] = {{"transformer.wte.weight", 2, {3, 2}, KC_INIT_ZERO, 0},
    {"transformer.ln_f.weight", 1, {4}, KC_INIT_ZERO, 0}, {"transformer.ln_f.bias", 1, {4}, KC_INIT_ZERO, 0}};
#define TINY 3
static const float six[6] = {1, -2, 3, 0.5f, -0.25f, 8}, four[4] = {1, 2, 3, 4};

START_TEST(every_floating_type_becomes_f32)
{
    /* 1, -2, 0.5, 65504 (largest half), smallest subnormal half, -0 */
    static const uint16_t half[6] = {0x3c00, 0xc000, 0x3800, 0x7bff, 0x0001, 0x8000};
    static const uint16_t brain[4] = {0x3f80, 0xc000, 0x7f7f, 0x0001};
    static const double wide[4] = {0.1, -1e300, 1.0 / 3, 4};
    static const float half_value[6] = {1, -2, 0.5f, 65504, 0x1p-24f, -0.0f},
                       brain_value[4] = {1, -2, 0x1.fep127f, 0x1p-133f};
    const struct piece p[] = {{"wte.weight", "F16", "[3,2]", 12, half}, {"ln_f.weight", "BF16", "[4]", 8, brain},
        {"ln_f.bias", "F64", "[4]", 32, wide}};
    struct rig r;
    int code;
    write_safetensors(path, p, 3);
    const char *text = init_from(&r, tiny, TINY, path, &code);
    ck_assert_msg(code == 0, "%s", text);
    ck_assert_mem_eq(tensor_of(&r, 0), half_value, sizeof half_value);
    ck_assert_mem_eq(tensor_of(&r, 1), brain_value, sizeof brain_value);
    ck_assert(tensor_of(&r, 2)[0] == 0.1f && tensor_of(&r, 2)[2] == (float)(1.0 / 3));
    rig_close(&r);
}
END_TEST

/* F38: a tied head may be stored; as other values it would be another model. Masks are not parameters. */
START_TEST(tied_head_and_masks_are_accepted)
{
    float other[6] = {1, -2, 3, 0.5f, -0.25f, 9};
    struct piece p[] = {{"wte.weight", "F32", "[3,2]", 24, six}, {"ln_f.weight", "F32", "[4]", 16, four},
        {"ln_f.bias", "F32", "[4]", 16, four}, {"lm_head.weight", "F32", "[3,2]", 24, six},
        {"h.0.attn.bias", "U8", "[1,1,2,2]", 4, four}, {"transformer.h.1.attn.masked_bias", "F32", "[]", 4, four},
        {"model.layers.0.self_attn.rotary_emb.inv_freq", "F32", "[2]", 8, four}};
    struct rig r;
    int code;
    write_safetensors(path, p, 7);
    const char *text = init_from(&r, tiny, TINY, path, &code);
    ck_assert_msg(code == 0, "%s", text);
    rig_close(&r);
    p[3].data = other;
    write_safetensors(path, p, 7);
    text = init_from(&r, tiny, TINY, path, &code);
    ck_assert_int_eq(code, -EINVAL);
    ck_assert_msg(strstr(text, "lm_head.weight has other values than transformer.wte.weight") != NULL, "%s", text);
    rig_close(&r);
}
END_TEST

/* F37: everything that does not fit is listed, by kind and name. */
START_TEST(what_does_not_fit_is_listed)
{
    const struct piece p[] = {{"wte.weight", "F32", "[2,3]", 24, six}, {"ln_f.weight", "I32", "[4]", 16, four},
        {"transformer.ln_f.weight", "F32", "[4]", 16, four}, {"h.0.attn.c_attn.bias", "F32", "[4]", 16, four}};
    struct rig r;
    int code;
    write_safetensors(path, p, 4);
    const char *text = init_from(&r, tiny, TINY, path, &code);
    ck_assert_int_eq(code, -EINVAL);
    ck_assert_msg(strstr(text, "shape of wte.weight: [2, 3], the model has [3, 2]") &&
                      strstr(text, "type of ln_f.weight: I32") && strstr(text, "twice transformer.ln_f.weight") &&
                      strstr(text, "unexpected h.0.attn.c_attn.bias") &&
                      strstr(text, "missing transformer.ln_f.bias"),
                  "%s", text);
    rig_close(&r);
}
END_TEST

/* Of each kind the first three and how many more; fewer where they take too much room, and no name is cut. */
START_TEST(a_long_list_is_counted)
{
    static struct kc_misfits m;
    char text[400], want[400];
    memset(&m, 0, sizeof m);
    kc_misfits_text(&m, text, sizeof text);
    ck_assert_str_eq(text, "");
    for (int i = 0; i < 14; i++)
        kc_misfit(&m, KC_MISFIT_MISSING, "t%d", i);
    for (int i = 0; i < 2; i++)
        kc_misfit(&m, KC_MISFIT_SHAPE, "s%d: [2], the model has [3]", i);
    kc_misfits_text(&m, text, sizeof text);
    ck_assert_str_eq(text, "shape of s0: [2], the model has [3]; of s1: [2], the model has [3]; missing t0, t1, t2 and 11 more");
    ck_assert_uint_eq(kc_misfits_count(&m), 16);
    for (int most = 3; most >= 0; most--) {
        size_t n = 0;
        memset(&m, 0, sizeof m);
        for (int i = 0; i < 5; i++)
            kc_misfit(&m, KC_MISFIT_UNEXPECTED, "%0100d", i);
        for (int i = 0; i < most; i++)
            n += (size_t)snprintf(want + n, sizeof want - n, "%s%0100d", i ? ", " : "unexpected ", i);
        snprintf(want + n, sizeof want - n, most ? " and %d more" : "unexpected %d", 5 - most);
        kc_misfits_text(&m, text, strlen(want) + 1);
        ck_assert_str_eq(text, want);
    }
}
END_TEST

/* A name with a star is one tensor an index in files; which of them is missing, or of another shape or type, is named. */
static const struct rig_tensor experts[] = {{"experts.*.w1.weight", 3, {3, 2, 2}, KC_INIT_ZERO, 0},
    {"transformer.ln_f.weight", 1, {4}, KC_INIT_ZERO, 0}, {"transformer.wte.weight", 2, {3, 2}, KC_INIT_ZERO, 0}};

START_TEST(experts_are_a_tensor_each)
{
    static const uint16_t brain[4] = {0x3f80, 0xc000, 0x4040, 0x0000}; /* 1, -2, 3, 0 */
    struct piece p[] = {{"experts.2.w1.weight", "F32", "[2,2]", 16, four + 0}, {"experts.0.w1.weight", "BF16", "[2,2]", 8, brain},
        {"ln_f.weight", "F32", "[4]", 16, four}, {"wte.weight", "F32", "[3,2]", 24, six},
        {"experts.1.w1.weight", "F32", "[2,2]", 16, six}};
    static const float want[12] = {1, -2, 3, 0, 1, -2, 3, 0.5f, 1, 2, 3, 4};
    struct rig r;
    int code;
    write_safetensors(path, p, 5);
    const char *text = init_from(&r, experts, 3, path, &code);
    ck_assert_msg(code == 0, "%s", text);
    ck_assert_mem_eq(tensor_of(&r, 0), want, sizeof want);
    rig_close(&r);
    p[0].name = "experts.3.w1.weight"; /* there are three */
    p[1].shape = "[4,1]";
    p[4].dtype = "U32";
    write_safetensors(path, p, 5);
    text = init_from(&r, experts, 3, path, &code);
    ck_assert_int_eq(code, -EINVAL);
    ck_assert_msg(strstr(text, "missing experts.2.w1.weight") && strstr(text, "unexpected experts.3.w1.weight") &&
                      strstr(text, "shape of experts.0.w1.weight: [4, 1], the model has [2, 2]") &&
                      strstr(text, "type of experts.1.w1.weight: U32"),
                  "%s", text);
    rig_close(&r);
    static const char *const no[] = {"experts.01.w1.weight", "experts.w1.weight", "experts.*.w1.weight", "experts.1.w1.weight2",
                                     "experts.99999999999.w1.weight"};
    for (size_t i = 0; i < sizeof no / sizeof no[0]; i++) {
        p[4] = (struct piece){no[i], "F32", "[2,2]", 16, six};
        write_safetensors(path, p, 5);
        text = init_from(&r, experts, 3, path, &code);
        ck_assert_msg(code == -EINVAL && strstr(text, "missing experts.1.w1.weight") && strstr(text, "unexpected"), "%s", text);
        rig_close(&r);
    }
}
END_TEST

/* F36: lengths, expected and found, and the tensor. */
START_TEST(files_of_a_wrong_length_are_refused)
{
    const struct piece p[] = {{"wte.weight", "F32", "[3,2]", 24, six}, {"ln_f.weight", "F32", "[4]", 16, four},
        {"ln_f.bias", "F32", "[4]", 16, four}};
    static const struct {
        long change;
        const char *says;
    } row[] = {{-1, "cut short in tensor ln_f.bias"}, {-17, "cut short in tensor ln_f.weight"},
        {-56, "cut short in tensor wte.weight"}, {1, "1 bytes lie behind the last tensor, ln_f.bias"},
        {-70, "its header should have"}, {0, NULL}};
    for (int i = 0; row[i].says; i++) {
        struct rig r;
        int code;
        char want[128];
        write_safetensors(path, p, 3);
        long whole = rig_file_bytes(path);
        rig_truncate(path, row[i].change);
        const char *text = init_from(&r, tiny, TINY, path, &code);
        ck_assert_int_eq(code, -EBADMSG);
        ck_assert_msg(strstr(text, row[i].says) != NULL, "%s", text);
        snprintf(want, sizeof want, "is %ld bytes long, its header describes %ld", whole + row[i].change, whole);
        ck_assert_msg(row[i].change == -70 || strstr(text, want), "%s", text);
        rig_close(&r);
    }
}
END_TEST

static void write_raw(const char *file, const char *header, uint64_t length, size_t data)
{
    FILE *f = fopen(file, "wbe");
    fwrite(&length, 8, 1, f);
    fwrite(header, 1, strlen(header), f);
    for (size_t i = 0; i < data; i++)
        fputc(0, f);
    fclose(f);
}

START_TEST(hostile_headers_are_refused)
{
    static const struct {
        const char *header;
        uint64_t length; /* 0: the header's */
        size_t data;
    } row[] = {
        {"", UINT64_MAX, 0},
        {"{", 100000001, 0},
        {"[]", 0, 0},
        {"x", 0, 0},
        {"{}", 0, 5},
        {"", 0, 0},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},\"a\":{\"dtype\":\"F32\",\"shape\":[1],"
         "\"data_offsets\":[4,8]}}",
         0, 8},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}", 0, 8}, /* a hole */
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},\"b\":{\"dtype\":\"F32\",\"shape\":[1],"
         "\"data_offsets\":[0,4]}}",
         0, 4}, /* an overlap */
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]}}", 0, 4},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]}}", 0, 4},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,0]}}", 0, 0},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[8,4]}}", 0, 4},
        {"{\"a\":{\"dtype\":\"F31\",\"shape\":[1],\"data_offsets\":[0,4]}}", 0, 4},
        {"{\"a\":{\"dtype\":7,\"shape\":{},\"data_offsets\":[0,4]}}", 0, 4},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4,8]}}", 0, 4},
        {"{\"a\":[]}", 0, 0},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,99999999999999999999]}}", 0, 4}};
    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
        struct rig r;
        int code;
        write_raw(path, row[i].header, row[i].length ? row[i].length : strlen(row[i].header), row[i].data);
        const char *text = init_from(&r, tiny, TINY, path, &code);
        ck_assert_msg(code == -EBADMSG, "row %zu: %d %s", i, code, text);
        ck_assert_ptr_nonnull(strstr(text, "model.init.from"));
        ck_assert_ptr_nonnull(strstr(text, path));
        rig_close(&r);
    }
    struct rig r;
    int code;
    ck_assert_int_eq(truncate(path, 4), 0);
    init_from(&r, tiny, TINY, path, &code);
    ck_assert_int_eq(code, -EBADMSG);
    rig_close(&r);
    const char *text = init_from(&r, tiny, TINY, "/nonexistent/file", &code);
    ck_assert_int_eq(code, -ENOENT);
    ck_assert_msg(strstr(text, "/nonexistent/file") != NULL, "%s", text);
    rig_close(&r);
    init_from(&r, tiny, TINY, folder, &code); /* a folder without config.json */
    ck_assert_int_eq(code, -ENOENT);
    rig_close(&r);
    init_from(&r, tiny, TINY, "/dev/null", &code); /* not a regular file */
    ck_assert_int_lt(code, 0);
    rig_close(&r);
}
END_TEST

static void write_text(const char *name, const char *text)
{
    char file[512];
    snprintf(file, sizeof file, "%s/%s", folder, name);
    FILE *f = fopen(file, "we");
    fputs(text, f);
    fclose(f);
}

START_TEST(a_sharded_model_is_read_through_its_index)
{
    const struct piece a[] = {{"wte.weight", "F32", "[3,2]", 24, six}, {"ln_f.weight", "F32", "[4]", 16, four}};
    const struct piece b[] = {{"ln_f.bias", "F32", "[4]", 16, four + 0}};
    char one[512], two[512];
    struct rig r;
    int code;
    snprintf(one, sizeof one, "%s/model-00001-of-00002.safetensors", folder);
    snprintf(two, sizeof two, "%s/model-00002-of-00002.safetensors", folder);
    write_text("config.json", "{\"model_type\":\"gpt2\",\"n_layer\":2,\"n_embd\":32,\"n_head\":4,\"n_positions\":32,"
                              "\"vocab_size\":256}");
    write_safetensors(one, a, 2);
    write_safetensors(two, b, 1);
    static const struct {
        const char *index, *says;
    } row[] = {{"{\"weight_map\":{\"wte.weight\":\"model-00001-of-00002.safetensors\",\"ln_f.weight\":"
                "\"model-00001-of-00002.safetensors\",\"ln_f.bias\":\"model-00002-of-00002.safetensors\"}}", NULL},
        {"{\"weight_map\":{\"wte.weight\":\"model-00001-of-00002.safetensors\",\"ln_f.weight\":"
         "\"model-00001-of-00002.safetensors\"}}", "missing transformer.ln_f.bias"},
        {"{\"weight_map\":{\"wte.weight\":\"model-00001-of-00002.safetensors\",\"ln_f.weight\":"
         "\"model-00002-of-00002.safetensors\",\"ln_f.bias\":\"model-00002-of-00002.safetensors\"}}",
            "the index does not name ln_f.weight in model-00001-of-00002.safetensors"},
        {"{\"weight_map\":{\"wte.weight\":\"../x\"}}", "no plain file"}, {"{\"weight\":{}}", "no weight_map"},
        {"{\"weight_map\":{\"wte.weight\":\"gone.safetensors\"}}", "gone.safetensors"}, {"[", "no JSON object"}};
    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
        write_text("model.safetensors.index.json", row[i].index);
        const char *text = init_from(&r, tiny, TINY, folder, &code);
        ck_assert_msg(row[i].says ? code < 0 && strstr(text, row[i].says) : code == 0, "row %zu: %s", i, text);
        if (!row[i].says)
            ck_assert_mem_eq(tensor_of(&r, 2), four, sizeof four);
        rig_close(&r);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("state_files");
    TCase *c = tcase_create("safetensors");
    tcase_set_timeout(c, 60);
    tcase_add_checked_fixture(c, setup, teardown);
    tcase_add_test(c, both_namings_of_gpt2_give_the_same_values);
    tcase_add_test(c, a_file_gives_bf16_its_masters);
    tcase_add_test(c, config_is_compared_with_the_spec);
    tcase_add_test(c, every_floating_type_becomes_f32);
    tcase_add_test(c, tied_head_and_masks_are_accepted);
    tcase_add_test(c, what_does_not_fit_is_listed);
    tcase_add_test(c, a_long_list_is_counted);
    tcase_add_test(c, experts_are_a_tensor_each);
    tcase_add_test(c, files_of_a_wrong_length_are_refused);
    tcase_add_test(c, hostile_headers_are_refused);
    tcase_add_test(c, a_sharded_model_is_read_through_its_index);
    suite_add_tcase(suite, c);
    return suite_run(suite);
}
