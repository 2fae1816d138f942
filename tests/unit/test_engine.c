/* test_engine.c - the whole engine in one process: what the six layers compute together is what PyTorch computed. */
#include "base/file.h"
#include "engine/engine.h"
#include "govern/spec.h"
#include "jobs/data/tokens.h"
#include "shm/probe.h"
#include "tests/unit/suite.h"

#include <check.h>
#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CONTEXT = 32, VOCAB = 256 };

static const char *const spec_text =
    "{\"name\":\"t\",\"ranks\":1,\"steps\":1,\"oversubscribe\":true,\"model\":{\"family\":\"gpt2\",\"layers\":2,\"hidden\":32,"
    "\"heads\":4,\"context\":32,\"vocab\":256,\"init\":{\"from\":\"%s\"}},\"data\":{\"train\":\"train.bin\"},"
    "\"batch\":{\"sequences\":1,\"micro\":1},\"optimizer\":{\"lr\":0}}";

/* (2, CONTEXT, VOCAB) from logits.safetensors: one tensor, header and bytes. */
static const float *read_logits(char **owner)
{
    size_t bytes;
    uint64_t header;
    ck_assert_int_eq(kc_file_read("tests/golden/gpt2/logits.safetensors", 1 << 20, owner, &bytes), 0);
    memcpy(&header, *owner, sizeof header);
    ck_assert_uint_eq(bytes, 8 + header + 2ul * CONTEXT * VOCAB * sizeof(float));
    return (const float *)(*owner + 8 + header);
}

static void each_logit_of_the_golden_model(const char *source)
{
    char text[8192], full[PATH_MAX], *file;
    struct kc_arena arena;
    struct kc_error e = {""};
    const struct kc_job_spec *spec;
    struct kc_probe *probe;
    struct kc_engine *engine;
    enum kc_reason reason;
    struct kc_tokens *tokens;
    int32_t input[2 * CONTEXT];
    ck_assert_ptr_nonnull(realpath(source, full));
    snprintf(text, sizeof text, spec_text, full);
    ck_assert_int_eq(kc_arena_new(&arena, 1 << 16), 0);
    ck_assert_msg(kc_spec_parse(text, "/", &arena, &spec, &e) == 0, "%s", e.text);
    ck_assert_int_eq(kc_probe_private(1, &probe, &e), 0);
    struct kc_engine_config c = {.spec = spec, .incarnation = 1, .leases = "cpu:0", .probe = probe};
    ck_assert_msg(kc_engine_new(&c, &engine, &reason, &e) == 0, "%s: %s", kc_reason_name[reason], e.text);
    ck_assert_msg(kc_engine_init(engine, &e) == 0, "%s", e.text);
    ck_assert_int_eq(kc_tokens_open("tests/golden/gpt2/train.bin", &tokens, &e), 0);
    ck_assert_int_eq(kc_tokens_copy(tokens, 0, 2 * CONTEXT, input, NULL, &e), 0);
    const float *want = read_logits(&file);
    /* a prefix of n tokens gives row n − 1: attention looks back only */
    for (int s = 0; s < 2; s++)
        for (uint32_t n = 1; n <= CONTEXT; n++) {
            float got[VOCAB];
            ck_assert_msg(kc_engine_forward(engine, input + s * CONTEXT, n, got, &e) == 0, "%s", e.text);
            for (int v = 0; v < VOCAB; v++) {
                double w = (double)want[((size_t)s * CONTEXT + n - 1) * VOCAB + (size_t)v];
                ck_assert_msg(fabs((double)got[v] - w) <= 1e-4, "sample %d, row %u, token %d: %g, PyTorch %g", s, n - 1, v,
                              (double)got[v], w);
            }
        }
    free(file);
    kc_tokens_close(tokens);
    kc_engine_free(engine);
    kc_probe_free(probe);
    kc_arena_free(&arena);
}

START_TEST(logits_are_pytorchs)
{
    each_logit_of_the_golden_model("tests/golden/gpt2/model");
}
END_TEST

START_TEST(logits_are_the_same_under_hub_names)
{
    each_logit_of_the_golden_model("tests/golden/gpt2/model-hub-names");
}
END_TEST

START_TEST(a_plan_that_cannot_be_had_leaves_nothing)
{
    struct kc_arena arena;
    struct kc_error e = {""};
    const struct kc_job_spec *spec;
    struct kc_probe *probe;
    struct kc_engine *engine = NULL;
    enum kc_reason reason;
    char text[8192];
    snprintf(text, sizeof text, spec_text, "/nowhere");
    ck_assert_int_eq(kc_arena_new(&arena, 1 << 16), 0);
    ck_assert_int_eq(kc_spec_parse(text, "/", &arena, &spec, &e), 0);
    ck_assert_int_eq(kc_probe_private(1, &probe, &e), 0);
    struct kc_engine_config c = {.spec = spec, .incarnation = 1, .leases = "cpu:60000", .probe = probe};
    ck_assert_int_lt(kc_engine_new(&c, &engine, &reason, &e), 0);
    ck_assert_int_eq(reason, KC_REASON_LEASE);
    ck_assert_ptr_null(engine);
    ck_assert_uint_gt(strlen(e.text), 0);
    c.leases = "cpu:0";
    c.load = true; /* train.bin of "/" is not there */
    ck_assert_int_lt(kc_engine_new(&c, &engine, &reason, &e), 0);
    ck_assert_int_eq(reason, KC_REASON_DATA);
    ck_assert_msg(strstr(e.text, "train.bin"), "%s", e.text);
    kc_probe_free(probe);
    kc_arena_free(&arena);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("engine");
    TCase *t = tcase_create("engine");
    tcase_set_timeout(t, 60);
    tcase_add_test(t, logits_are_pytorchs);
    tcase_add_test(t, logits_are_the_same_under_hub_names);
    tcase_add_test(t, a_plan_that_cannot_be_had_leaves_nothing);
    suite_add_tcase(s, t);
    return suite_run(s);
}
