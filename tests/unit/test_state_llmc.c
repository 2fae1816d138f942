/* test_state_llmc.c - model files of llm.c: where its train_gpt2.py puts every value, written here once more by that rule, and
 * every way in which a file can be wrong. Row F36 of the list of faults. */
#include "rig_faults.h"
#include "state_rig.h"

#include "base/bf16.h"
#include "tests/unit/suite.h"

#include <check.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The numbers of the rig's spec. */
enum { LAYERS = 2, HIDDEN = 32, HEADS = 4, CONTEXT = 32, VOCAB = 256, TENSORS = 4 + 12 * LAYERS };

static uint32_t padded; /* rows of the embedding in the file */
static char folder[256], path[512];
static struct rig_tensor model[TENSORS];
static char names[TENSORS][64];

static void tensor(uint32_t *n, uint64_t a, uint64_t b, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vsnprintf(names[*n], sizeof names[0], format, list);
    va_end(list);
    model[*n] = (struct rig_tensor){names[*n], b ? 2 : 1, {a, b}, KC_INIT_ZERO, 0};
    ++*n;
}

static void setup(void)
{
    uint32_t n = 0;
    padded = 384;
    rig_folder(folder, true);
    snprintf(path, sizeof path, "%s/model.bin", folder);
    tensor(&n, VOCAB, HIDDEN, "transformer.wte.weight");
    tensor(&n, CONTEXT, HIDDEN, "transformer.wpe.weight");
    for (int l = 0; l < LAYERS; l++) {
        tensor(&n, HIDDEN, 0, "transformer.h.%d.ln_1.weight", l);
        tensor(&n, HIDDEN, 0, "transformer.h.%d.ln_1.bias", l);
        tensor(&n, HIDDEN, 3 * HIDDEN, "transformer.h.%d.attn.c_attn.weight", l);
        tensor(&n, 3 * HIDDEN, 0, "transformer.h.%d.attn.c_attn.bias", l);
        tensor(&n, HIDDEN, HIDDEN, "transformer.h.%d.attn.c_proj.weight", l);
        tensor(&n, HIDDEN, 0, "transformer.h.%d.attn.c_proj.bias", l);
        tensor(&n, HIDDEN, 0, "transformer.h.%d.ln_2.weight", l);
        tensor(&n, HIDDEN, 0, "transformer.h.%d.ln_2.bias", l);
        tensor(&n, HIDDEN, 4 * HIDDEN, "transformer.h.%d.mlp.c_fc.weight", l);
        tensor(&n, 4 * HIDDEN, 0, "transformer.h.%d.mlp.c_fc.bias", l);
        tensor(&n, 4 * HIDDEN, HIDDEN, "transformer.h.%d.mlp.c_proj.weight", l);
        tensor(&n, HIDDEN, 0, "transformer.h.%d.mlp.c_proj.bias", l);
    }
    tensor(&n, HIDDEN, 0, "transformer.ln_f.weight");
    tensor(&n, HIDDEN, 0, "transformer.ln_f.bias");
    ck_assert_uint_eq(n, TENSORS);
}

static void teardown(void)
{
    rig_remove(folder);
}

/* Exact in bf16, another for each place. */
static float value(uint32_t t, uint64_t row, uint64_t column)
{
    return (float)((t * 31 + row * 7 + column * 3) % 251) / 256 - 0.5f;
}

static void put(FILE *f, float v, bool bf16)
{
    const uint16_t half = kc_bf16_from_float(v);
    fwrite(bf16 ? (const void *)&half : (const void *)&v, bf16 ? 2 : 4, 1, f);
}

/* As write_tensors() of train_gpt2.py: kind by kind, all layers of one before the next; linear weights as
 * torch.nn.Linear has them, (out, in); the embedding padded with zero rows. */
static void write_tensors(FILE *f, bool bf16)
{
    for (uint32_t kind = 0; kind < 16; kind++) {
        const bool layered = kind > 1 && kind < 14;
        for (uint32_t l = 0; l < (layered ? LAYERS : 1); l++) {
            const uint32_t t = kind < 2 ? kind : layered ? 2 + 12 * l + kind - 2 : 2 + 12 * LAYERS + kind - 14;
            const uint64_t a = model[t].size[0], b = model[t].rank > 1 ? model[t].size[1] : 1;
            const bool linear = layered && model[t].rank > 1;
            for (uint64_t i = 0; i < (linear ? b : a); i++)
                for (uint64_t k = 0; k < (linear ? a : b); k++)
                    put(f, linear ? value(t, k, i) : value(t, i, k), bf16);
            for (uint64_t i = 0; t == 0 && i < (padded - VOCAB) * HIDDEN; i++)
                put(f, 0, bf16);
        }
    }
}

static int32_t head[256];

static void write_file(bool bf16)
{
    const int32_t numbers[] = {20240326, 3, CONTEXT, VOCAB, LAYERS, HEADS, HIDDEN, (int32_t)padded};
    memset(head, 0, sizeof head);
    memcpy(head, numbers, sizeof numbers);
    head[1] = bf16 ? 5 : 3;
    FILE *f = fopen(path, "wbe");
    fwrite(head, sizeof head, 1, f);
    write_tensors(f, bf16);
    fclose(f);
}

static void patch(int at, int32_t v)
{
    FILE *f = fopen(path, "r+be");
    fseek(f, at * 4, SEEK_SET);
    fwrite(&v, 4, 1, f);
    fclose(f);
}

static const char *init(struct rig *r, int *code)
{
    static struct kc_error e;
    e.text[0] = 0;
    rig_open(r, model, TENSORS, (struct rig_layout){2, 1, 5, true, false}, NULL, NULL, path);
    *code = kc_state_init(r->state[1], &e);
    return e.text;
}

START_TEST(every_value_is_in_its_place)
{
    for (int bf16 = 0; bf16 < 2; bf16++) {
        struct rig r;
        int code;
        write_file(bf16);
        const char *text = init(&r, &code);
        ck_assert_msg(code == 0, "%s", text);
        for (uint32_t t = 0; t < TENSORS; t++) {
            const struct kc_plan_tensor *p = &KC_AT(r.plan, struct kc_plan_tensor, r.plan->tensors)[t];
            const float *v = (const float *)r.io[1].read(r.io[1].self, KC_STATE_PARAMETER, (uint32_t)p->bucket, NULL) + p->offset;
            const uint64_t a = model[t].size[0], b = model[t].rank > 1 ? model[t].size[1] : 1;
            for (uint64_t i = 0; i < a * b; i++)
                if (v[i] != value(t, i / b, i % b))
                    ck_abort_msg("%s element %" PRIu64 ": %g, not %g", model[t].name, i, (double)v[i], (double)value(t, i / b, i % b));
        }
        rig_close(&r);
    }
}
END_TEST

static void refused(const char *says)
{
    struct rig r;
    int code;
    const char *text = init(&r, &code);
    ck_assert_msg(code < 0 && strstr(text, says), "%d: %s", code, text);
    rig_close(&r);
}

/* F36: what was expected, and what was found. */
START_TEST(F36_a_file_that_is_not_whole_is_named_with_both_lengths)
{
    char says[200];
    write_file(false);
    const long bytes = rig_file_bytes(path);
    rig_truncate(path, -4);
    snprintf(says, sizeof says, "is %ld bytes long, its header describes %ld: cut short in tensor transformer.ln_f.bias, which ends at %ld",
             bytes - 4, bytes, bytes);
    refused(says);
    rig_truncate(path, 12);
    snprintf(says, sizeof says, "is %ld bytes long, its header describes %ld: 8 bytes lie behind the last tensor, transformer.ln_f.bias",
             bytes + 8, bytes);
    refused(says);
    ck_assert_int_eq(truncate(path, 1024 + 4L * padded * HIDDEN + 4), 0);
    refused("cut short in tensor transformer.wpe.weight");
    ck_assert_int_eq(truncate(path, 1000), 0);
    refused("has 1000 bytes; the header of an llm.c model has 1024");
    ck_assert_int_eq(truncate(path, 2), 0);
    refused("has 2 bytes; the header of an llm.c model has 1024");
    ck_assert_int_eq(truncate(path, 0), 0);
    refused("has 0 bytes");
}
END_TEST

START_TEST(a_header_of_another_file_is_named)
{
    write_file(false);
    patch(0, 20240520);
    refused("begins with 20240520, a model file of llm.c with 20240326: it is a token file of llm.c");
    patch(0, 0x04034b50);
    refused("it is a torch file: save the model with safetensors");
    patch(0, 7);
    refused("it is no model file of llm.c");
    patch(0, 20240326);
    patch(1, 1);
    refused("is of version 1; 3 (f32) and 5 (bf16) are read");
    patch(1, 5);
    refused("its header describes"); /* half as many bytes */
    patch(1, 3);
    patch(7, VOCAB - 1);
    refused("vocabulary 256 (255 with padding)");
    patch(7, INT32_MAX);
    refused("which is no model");
    patch(7, (int32_t)padded);
    patch(6, -32);
    refused("hidden -32, which is no model");
    patch(6, HIDDEN);
    patch(5, 5);
    refused("5 heads, hidden 32, which is no model");
}
END_TEST

START_TEST(another_model_is_refused_with_both_numbers)
{
    struct rig r;
    struct kc_error e = {""};
    struct kc_state *s;
    write_file(false);
    rig_open(&r, model, TENSORS, (struct rig_layout){1, 0, 100, false, false}, NULL, NULL, path);
    struct kc_job_spec *spec = malloc(r.spec->head.bytes);
    memcpy(spec, r.spec, r.spec->head.bytes);
    spec->layers = 3, spec->context = 64;
    struct kc_state_config c = {.spec = spec, .shard = r.plan};
    ck_assert_int_eq(kc_state_new(&c, &s, &e), 0);
    ck_assert_int_eq(kc_state_init(s, &e), -EINVAL);
    ck_assert_msg(strstr(e.text, "it has 2, model.layers is 3") && strstr(e.text, "it has 32, model.context is 64") &&
                      !strstr(e.text, "hidden"), "%s", e.text);
    spec->layers = LAYERS, spec->context = CONTEXT, spec->family = KC_FAMILY_LLAMA;
    ck_assert_int_eq(kc_state_init(s, &e), -EINVAL);
    ck_assert_msg(strstr(e.text, "it is gpt2, model.family is \"llama\"") != NULL, "%s", e.text);
    kc_state_free(s);
    free(spec);
    rig_close(&r);
}
END_TEST

static char *slurp(const char *name, long *bytes)
{
    FILE *f = fopen(name, "rbe");
    ck_assert_msg(f != NULL, "%s", name);
    *bytes = rig_file_bytes(name);
    char *data = malloc((size_t)*bytes + 1);
    ck_assert_uint_eq(fread(data, 1, (size_t)*bytes, f), (size_t)*bytes);
    fclose(f);
    return data;
}

/* What is exported is, byte for byte, what llm.c would have written of the same values; whatever layout the snapshot had. */
START_TEST(an_export_is_the_file_that_was_read)
{
    static const struct rig_layout layouts[] = {{1, 0, 100, false, false}, {3, 1, 4, true, false}, {4, 3, 1, false, false}};
    char snapshots[512], out[512];
    padded = 256; /* the next multiple of 128 */
    for (size_t i = 0; i < 2 * sizeof layouts / sizeof layouts[0]; i++) {
        const bool bf16 = i % 2;
        struct kc_export c = {.format = KC_EXPORT_LLMC, .out = out, .bf16 = bf16};
        struct kc_export_info info;
        struct kc_error e = {""};
        struct rig r;
        long have, want;
        snprintf(snapshots, sizeof snapshots, "%s/snapshots-%zu", folder, i);
        snprintf(out, sizeof out, "%s/out-%zu.bin", folder, i);
        write_file(bf16);
        rig_open(&r, model, TENSORS, layouts[i / 2], snapshots, NULL, path);
        for (uint32_t k = 0; k < r.ranks; k++)
            ck_assert_msg(kc_state_init(r.state[k], &e) == 0, "%s", e.text);
        ck_assert_int_eq(rig_snapshot(&r), 0);
        rig_close(&r);
        ck_assert_msg(kc_snapshot_export(snapshots, &c, &info, &e) == 0, "%s", e.text);
        char *a = slurp(out, &have), *b = slurp(path, &want);
        ck_assert_int_eq(have, want);
        ck_assert_uint_eq(info.bytes, (uint64_t)want);
        for (long k = 0; k < want; k++)
            if (a[k] != b[k])
                ck_abort_msg("layout %zu: byte %ld is %d, not %d", i, k, a[k], b[k]);
        free(a);
        free(b);
        ck_assert_int_eq(kc_snapshot_export(snapshots, &c, &info, &e), -EEXIST);
        ck_assert_msg(strstr(e.text, "is there: name a new file") != NULL, "%s", e.text);
    }
}
END_TEST

/* Whichever call fails, the file is whole or it is not there, and nothing is left beside it. */
START_TEST(an_export_that_fails_leaves_nothing)
{
    char snapshots[512], out[512], tmp[600];
    struct kc_error e = {""};
    struct rig_faults f;
    struct rig r;
    uint64_t at = 1;
    snprintf(snapshots, sizeof snapshots, "%s/snapshots", folder);
    snprintf(out, sizeof out, "%s/out.bin", folder);
    snprintf(tmp, sizeof tmp, "%s.tmp", out);
    write_file(false);
    rig_open(&r, model, TENSORS, (struct rig_layout){1, 0, 100, false, false}, snapshots, NULL, path);
    ck_assert_int_eq(kc_state_init(r.state[0], &e), 0);
    ck_assert_int_eq(rig_snapshot(&r), 0);
    rig_close(&r);
    for (;; at++) {
        struct kc_export_info info;
        rig_faults(&f);
        f.at = at;
        f.code = -ENOSPC;
        f.writes_only = true;
        const struct kc_export c = {.format = KC_EXPORT_LLMC, .out = out, .storage = &f.storage};
        const int code = kc_snapshot_export(snapshots, &c, &info, &e);
        ck_assert_msg((code == 0) == (f.failed == NULL), "call %llu (%s): %d", (unsigned long long)at, f.failed, code);
        ck_assert_msg(access(tmp, F_OK) != 0, "call %llu (%s)", (unsigned long long)at, f.failed);
        if (code == 0)
            break;
        ck_assert_msg(f.failed && (access(out, F_OK) != 0 || remove(out) == 0), "call %llu", (unsigned long long)at);
    }
    ck_assert_uint_gt(at, 20);
}
END_TEST

START_TEST(another_family_is_not_exported)
{
    char snapshots[512], out[512];
    struct kc_export c = {.format = KC_EXPORT_LLMC, .out = out};
    struct kc_export_info info;
    struct kc_error e = {""};
    struct rig r;
    snprintf(snapshots, sizeof snapshots, "%s/snapshots", folder);
    snprintf(out, sizeof out, "%s/out.bin", folder);
    rig_open(&r, rig_small, rig_small_count, (struct rig_layout){1, 0, 100, false, false}, snapshots, NULL, "");
    rig_train(&r);
    ck_assert_int_eq(rig_snapshot(&r), 0);
    rig_close(&r);
    ck_assert_int_eq(kc_snapshot_export(snapshots, &c, &info, &e), -ENOTSUP); /* the numbers, but not the tensors */
    ck_assert_msg(strstr(e.text, "an llm.c model has") && access(out, F_OK) != 0, "%s", e.text);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("state_llmc");
    TCase *c = tcase_create("llmc");
    tcase_add_checked_fixture(c, setup, teardown);
    tcase_add_test(c, every_value_is_in_its_place);
    tcase_add_test(c, F36_a_file_that_is_not_whole_is_named_with_both_lengths);
    tcase_add_test(c, a_header_of_another_file_is_named);
    tcase_add_test(c, another_model_is_refused_with_both_numbers);
    tcase_add_test(c, an_export_is_the_file_that_was_read);
    tcase_add_test(c, an_export_that_fails_leaves_nothing);
    tcase_add_test(c, another_family_is_not_exported);
    suite_add_tcase(suite, c);
    return suite_run(suite);
}
