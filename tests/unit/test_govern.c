/* test_govern.c - the spec parser and the policy table. */
#include "base/json.h"
#include "contracts/comm_if.h"
#include "contracts/exec_plan.h"
#include "contracts/op_table.h"
#include "contracts/state_if.h"
#include "govern/control.h"
#include "govern/policy.h"
#include "govern/spec.h"
#include "govern/startup.h"
#include "schedule/order.h"
#include "tests/unit/suite.h"

#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* A whole spec with the required fields only; tests change one thing at a time. */
static const char *const least =
    "{\"name\":\"t\",\"ranks\":2,\"steps\":10,\"model\":{\"family\":\"gpt2\",\"layers\":2,\"hidden\":32,\"heads\":4,"
    "\"context\":32,\"vocab\":256},\"data\":{\"train\":\"train.bin\"},\"batch\":{\"sequences\":8,\"micro\":2},"
    "\"optimizer\":{\"lr\":0.01},\"parallel\":{\"data\":2}}";

static struct kc_arena arena;
static struct kc_error error;
static const struct kc_job_spec *spec;

static int parse(const char *text)
{
    kc_arena_free(&arena);
    ck_assert_int_eq(kc_arena_new(&arena, 1 << 16), 0);
    memset(&error, 0, sizeof error);
    return kc_spec_parse(text, "/data", &arena, &spec, &error);
}

/* Set "a.b" of the least spec to a JSON value (NULL: remove it) and parse. */
static int with(const char *path, const char *value)
{
    json_t *root = json_loads(least, 0, NULL), *at = root;
    char part[64];
    for (size_t n = strcspn(path, "."); path[n]; n = strcspn(path, ".")) {
        snprintf(part, sizeof part, "%.*s", (int)n, path);
        json_t *next = json_object_get(at, part);
        if (!next)
            json_object_set_new(at, part, next = json_object());
        at = next;
        path += n + 1;
    }
    if (value)
        json_object_set_new(at, path, json_loads(value, JSON_DECODE_ANY, NULL));
    else
        json_object_del(at, path);
    char *text = json_dumps(root, 0);
    int code = parse(text);
    free(text);
    json_decref(root);
    return code;
}

#define LLAMA "{\"family\":\"llama\",\"layers\":2,\"context\":32,\"vocab\":256%s}"
#define SIX ",\"hidden\":36,\"heads\":6"

START_TEST(a_family_has_fields_and_defaults_of_its_own)
{
    static const struct {
        const char *more, *error; /* NULL: it is a spec */
    } cases[] = {{SIX ",\"ffn\":80", NULL},
                 {SIX ",\"ffn\":80,\"kv_heads\":2,\"tied\":true,\"rope_theta\":5e5,\"rms_eps\":1e-6", NULL},
                 {SIX, "model.ffn is missing"},
                 {SIX ",\"ffn\":80,\"kv_heads\":4", "model.kv_heads is 4, which does not divide model.heads = 6: model.kv_heads 3 "
                                                "would do"},
                 {",\"hidden\":36,\"heads\":4,\"ffn\":80", "a head is 9 wide"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char model[256];
        snprintf(model, sizeof model, LLAMA, cases[i].more);
        const int code = with("model", model);
        if (cases[i].error) {
            ck_assert_int_eq(code, -EINVAL);
            ck_assert_msg(strstr(error.text, cases[i].error) != NULL, "%s", error.text);
            continue;
        }
        ck_assert_msg(code == 0, "%s", error.text);
        ck_assert(spec->family == KC_FAMILY_LLAMA && spec->ffn == 80);
        ck_assert(spec->kv_heads == (i ? 2 : 6) && spec->tied == i && spec->rope_theta == (i ? 5e5 : 10000) &&
                  spec->rms_eps == (i ? 1e-6 : 1e-5));
    }
}
END_TEST

START_TEST(the_least_spec_gets_the_documented_defaults)
{
    ck_assert_msg(parse(least) == 0, "%s", error.text);
    ck_assert_uint_eq(spec->device, KC_DEVICE_CPU);
    ck_assert_uint_eq(spec->threads, 1);
    ck_assert_uint_eq(spec->seed, 1);
    ck_assert_uint_eq(spec->order, KC_ORDER_SHUFFLED);
    ck_assert(spec->kv_heads == 4 && spec->ffn == 128 && spec->tied == 1 && spec->rope_theta == 0 && spec->rms_eps == 0);
    ck_assert_uint_eq(spec->lr_kind, KC_LR_CONSTANT);
    ck_assert_double_eq(spec->beta1, 0.9);
    ck_assert_double_eq(spec->beta2, 0.95);
    ck_assert_double_eq(spec->eps, 1e-8);
    ck_assert_double_eq(spec->weight_decay, 0.1);
    ck_assert_double_eq(spec->clip, 1.0);
    ck_assert_double_eq(spec->floor, 0.1);
    ck_assert_uint_eq(spec->zero, 0);
    ck_assert_uint_eq(spec->snapshot_every, 0);
    ck_assert_uint_eq(spec->snapshot_keep, 2);
    ck_assert_uint_eq(spec->evaluate_batches, 8);
    ck_assert_uint_eq(spec->max_restarts, 3);
    ck_assert_double_eq(spec->grace_seconds, 10);
    ck_assert_uint_eq(spec->log_max_mib, 64);
    const struct kc_spec_file *file = KC_AT(spec, struct kc_spec_file, spec->train);
    ck_assert_uint_eq(spec->train.count, 1);
    ck_assert_str_eq(KC_TEXT(spec, file->path), "/data/train.bin");
    ck_assert_str_eq(KC_TEXT(spec, file->mask), "");
    ck_assert_double_eq(file->weight, KC_WEIGHT_BY_SIZE);
    ck_assert_uint_eq(spec->validation.count, 0);
    ck_assert_uint_eq(spec->documents, KC_DOCUMENTS_JOINED);
    ck_assert_uint_eq(spec->end_of_text, KC_NO_TOKEN);
    for (int a = 0; a < KC_AXES; a++)
        ck_assert_uint_eq(spec->axis[a], a == KC_DATA ? 2 : 1);
    ck_assert(spec->sequence == 0 && spec->pipeline == KC_PIPELINE_1F1B && spec->chunks == 1 &&
              spec->recompute == KC_RECOMPUTE_NONE && spec->recompute_layers == 0 && spec->recompute_memory == 0 &&
              spec->expert_memory == 0);
    for (int p = 0; p < KC_PRIMITIVES; p++)
        ck_assert_uint_eq(spec->algorithm[p], KC_CHOICE_AUTO);
}
END_TEST

START_TEST(an_algorithm_is_named_for_its_primitive_alone)
{
    ck_assert_msg(with("parallel.algorithms.all-gather", "\"ring\"") == 0, "%s", error.text);
    for (int p = 0; p < KC_PRIMITIVES; p++)
        ck_assert_uint_eq(spec->algorithm[p], p == KC_ALL_GATHER ? KC_CHOICE_RING : KC_CHOICE_AUTO);
    /* strategy takes the rows of the two enums as they stand */
    for (int a = 0; a < KC_ALGORITHMS; a++)
        ck_assert_str_eq(kc_choice_name[1 + a], kc_algorithm_name[a]);
}
END_TEST

START_TEST(alpha_of_adapters_is_their_rank_if_nobody_says)
{
    ck_assert_msg(with("lora", "{\"rank\":8,\"targets\":[\"*.c_attn.*\",\"*.c_fc.weight\"]}") == 0, "%s", error.text);
    ck_assert_uint_eq(spec->lora_rank, 8);
    ck_assert_double_eq(spec->lora_alpha, 8);
    ck_assert_uint_eq(spec->lora_targets.count, 2);
    ck_assert_str_eq(KC_TEXT(spec, KC_AT(spec, kc_text, spec->lora_targets)[1]), "*.c_fc.weight");
    ck_assert_msg(with("lora", "{\"rank\":8,\"alpha\":0.5,\"targets\":[\"*\"]}") == 0, "%s", error.text);
    ck_assert_double_eq(spec->lora_alpha, 0.5);
}
END_TEST

START_TEST(the_files_of_a_job_have_weights_and_masks)
{
    ck_assert_msg(with("data", "{\"train\":[{\"path\":\"a.bin\",\"weight\":0.7},{\"path\":\"/b.bin\",\"weight\":0,\"mask\":\"b.mask\"}],"
                               "\"validation\":{\"path\":\"v.bin\",\"mask\":null},\"documents\":\"masked\",\"end_of_text\":0}") == 0,
                  "%s", error.text);
    const struct kc_spec_file *train = KC_AT(spec, struct kc_spec_file, spec->train);
    ck_assert_uint_eq(spec->train.count, 2);
    ck_assert_str_eq(KC_TEXT(spec, train[0].path), "/data/a.bin");
    ck_assert_str_eq(KC_TEXT(spec, train[0].mask), "");
    ck_assert_double_eq(train[0].weight, 0.7);
    ck_assert_str_eq(KC_TEXT(spec, train[1].path), "/b.bin");
    ck_assert_str_eq(KC_TEXT(spec, train[1].mask), "/data/b.mask");
    ck_assert_double_eq(train[1].weight, 0);
    ck_assert_uint_eq(spec->validation.count, 1);
    ck_assert_str_eq(KC_TEXT(spec, KC_AT(spec, struct kc_spec_file, spec->validation)->path), "/data/v.bin");
    ck_assert_uint_eq(spec->documents, KC_DOCUMENTS_MASKED);
    ck_assert_uint_eq(spec->end_of_text, 0);
    ck_assert_msg(with("data.train", "[\"a.bin\",\"b.bin\"]") == 0, "%s", error.text);
    train = KC_AT(spec, struct kc_spec_file, spec->train);
    ck_assert(spec->train.count == 2 && train[0].weight == KC_WEIGHT_BY_SIZE && train[1].weight == KC_WEIGHT_BY_SIZE);
}
END_TEST

START_TEST(a_stored_spec_parses_to_the_same_contract)
{
    static const char *const fields[][2] = {
        {"env", "{\"A\":\"1\",\"B\":\"two\"}"},
        {"data", "{\"train\":[\"a\",{\"path\":\"b\",\"mask\":\"m\"}],\"validation\":\"v\"}"},
        {"data", "{\"train\":{\"path\":\"a\",\"weight\":0.1},\"validation\":{\"path\":\"v\",\"mask\":\"m\"},\"documents\":\"masked\","
                 "\"end_of_text\":7}"},
        {"parallel", "{\"tensor\":2,\"sequence\":true,\"zero\":3,\"pipeline_order\":\"gpipe\",\"recompute\":\"full\"}"},
        {"inject", "[{\"rank\":1,\"step\":7,\"what\":\"exit\",\"code\":3},{\"phase\":\"start\",\"what\":\"sleep\","
                   "\"milliseconds\":20,\"again\":true},{\"step\":2,\"what\":\"skip\",\"nth\":4}]"},
    };
    ck_assert_int_eq(with(fields[_i][0], fields[_i][1]), 0);
    json_t *full = kc_spec_json(spec);
    char *text = json_dumps(full, JSON_REAL_PRECISION(17));
    struct kc_arena second;
    const struct kc_job_spec *again;
    ck_assert_int_eq(kc_arena_new(&second, 1 << 16), 0);
    ck_assert_msg(kc_spec_parse(text, "/elsewhere", &second, &again, &error) == 0, "%s", error.text);
    char difference[256] = "";
    ck_assert_msg(kc_contract_difference(spec, again, &kc_job_spec_layout, difference, sizeof difference) == 0, "%s",
                  difference);
    free(text);
    json_decref(full);
    kc_arena_free(&second);
}
END_TEST

static const struct {
    const char *path, *value, *says; /* says: what the line must contain */
} bad[] = { /* says NULL: it is a spec */
    {"name", NULL, "name is missing"},
    {"name", "\"Has Space\"", "name is \"Has Space\""},
    {"name", "\"\"", "name is \"\""},
    {"name", "7", "name is 7"},
    {"ranks", NULL, "ranks is missing"},
    {"ranks", "0", "ranks is 0: it must be a whole number from 1 to 16384"},
    {"ranks", "16385", "from 1 to 16384"},
    {"ranks", "1.5", "ranks is 1.5"},
    {"ranks", "\"2\"", "ranks is \"2\""},
    {"ranks", "4", "ranks = 4, but tensor·context·expert·data·pipeline = 1·1·1·2·1 = 2: set ranks to 2, or parallel.data to 4"},
    {"steps", "0", "steps is 0"},
    {"steps", NULL, "steps is missing"},
    {"threads", "0", "threads is 0"},
    {"seed", "-1", "seed is -1"},
    {"device", "\"gpu\"", "device is \"gpu\": it must be one of cpu"},
    {"precision", "\"fp16\"", "precision is \"fp16\": it must be one of fp32, bf16"},
    {"oversubscribe", "1", "oversubscribe is 1: it must be true or false"},
    {"model.family", "\"gtp2\"", "did you mean \"gpt2\""},
    {"model.family", NULL, "model.family is missing"},
    {"model.layers", NULL, "model.layers is missing"},
    {"model.hidden", "null", "model.hidden is null"},
    {"model.heads", "5", "model.heads is 5, which does not divide model.hidden = 32: model.heads 4 would do"},
    {"model.context", "0", "model.context is 0"},
    {"model.vocab", "1", "model.vocab is 1"},
    {"model.kv_heads", "2", "model.kv_heads is a field that model.family \"gpt2\" does not have: leave it out"},
    {"model.init.from", "3", "model.init.from is 3: it must be the path of a file, or null"},
    {"model.init", "\"x\"", "model.init is \"x\": it must be an object"},
    {"data.train", NULL, "data.train is missing"},
    {"data.train", "\"\"", "data.train is \"\""},
    {"data.order", "\"random\"", "data.order is \"random\": it must be one of shuffled, sequential"},
    {"data.train", "7", "data.train is 7: it must be the path of a file, {\"path\":…}, or a list of these"},
    {"data.train", "[]", "data.train lists 0 files: it must be 1 to 4096"},
    {"data.train", "[\"a\",3]", "data.train[1] is 3: it must be the path of a file"},
    {"data.train", "[\"a\",{\"weight\":1}]", "data.train[1] has no path"},
    {"data.train", "[{\"path\":\"\"}]", "data.train[0].path is \"\""},
    {"data.train", "{\"path\":\"a\",\"maks\":\"b\"}", "data.train.maks is no field of a file: path, weight and mask are; did you mean "
                                                  "\"mask\"?"},
    {"data.train", "[{\"path\":\"a\",\"weight\":-1}]", "data.train[0].weight is -1: it must be a number from 0 to 1000000"},
    {"data.train", "[{\"path\":\"a\",\"weight\":\"1\"}]", "data.train[0].weight is \"1\""},
    {"data.train", "[{\"path\":\"a\",\"weight\":1},\"b\",\"c\"]", "data.train: 1 of 3 files have a weight: give one to all, or to none"},
    {"data.train", "[{\"path\":\"a\",\"weight\":0},{\"path\":\"b\",\"weight\":0}]", "data.train: the weights of its 2 files sum to 0"},
    {"data.train", "[{\"path\":\"a\",\"mask\":3}]", "data.train[0].mask is 3: it must be the path of a file, or null"},
    {"data.validation", "[\"a\"]", "data.validation is [\"a\"]: it must be the path of a file, {\"path\":…}, or null"},
    {"data.validation", "{\"path\":\"a\",\"weight\":1}", "data.validation.weight: one file is read in file order, a weight has no meaning"},
    {"data.documents", "\"mask\"", "data.documents is \"mask\": it must be one of joined, masked"},
    {"lora", "{\"rank\":8}", "lora.rank is 8, but lora.targets is missing: name the weights that get adapters, such as [\"*.c_attn.weight\"]"},
    {"lora", "{\"targets\":[\"*.c_fc.*\"]}", "lora.targets is given, but lora.rank is missing or 0"},
    {"lora", "{\"alpha\":16}", "lora.alpha is given, but lora.rank is missing or 0"},
    {"lora", "{\"rank\":65537,\"targets\":[\"a\"]}", "lora.rank is 65537: it must be a whole number from 0 to 65536"},
    {"lora", "{\"rank\":8,\"targets\":[\"\"]}", "lora.targets[0] is \"\": it must be a pattern"},
    {"lora", "{\"rnak\":8}", "lora.rnak is no field of a spec; the nearest is lora.rank"},
    {"data.documents", "\"masked\"", "data.documents is masked, but data.end_of_text is missing"},
    {"data.end_of_text", "0", "data.end_of_text is 0, but data.documents is joined"},
    {"data.end_of_text", "-1", "data.end_of_text is -1: it must be a whole number from 0 to 16777215"},
    {"data", "{\"train\":\"a\",\"documents\":\"masked\",\"end_of_text\":256}", "data.end_of_text is 256, but model.vocab is 256"},
    {"batch.sequences", "6", "batch.sequences is 6, which batch.micro × parallel.expert × parallel.data = 2 × 1 × 2 = 4 does not divide: "
                             "batch.sequences 8 would do, or for the same batch batch.micro 1"},
    {"batch.micro", NULL, "batch.micro is missing"},
    {"optimizer.lr", NULL, "optimizer.lr is missing"},
    {"optimizer.lr", "-0.1", "optimizer.lr is -0.1"},
    {"optimizer.beta1", "1", "optimizer.beta1 is 1"},
    {"optimizer.eps", "0", "optimizer.eps is 0"},
    {"optimizer.weight_decay", "-1", "optimizer.weight_decay is -1"},
    {"optimizer.clip", "-1", "optimizer.clip is -1"},
    {"optimizer.kind", "\"sgd\"", "optimizer.kind is \"sgd\": it must be one of adamw"},
    {"lr_schedule.kind", "\"cos\"", "lr_schedule.kind is \"cos\""},
    {"lr_schedule.floor", "1.5", "lr_schedule.floor is 1.5"},
    {"parallel.zero", "4", "parallel.zero is 4: it must be a whole number from 0 to 3"},
    {"parallel.algorithms", "\"ring\"", "parallel.algorithms is \"ring\": it must be an object"},
    {"parallel.algorithms.all-reduce", "\"rings\"", "must be one of auto, direct, ring, tree"},
    {"parallel.algorithms.all-reduce", "\"rings\"", "did you mean \"ring\"?"},
    {"parallel.algorithms.allreduce", "\"ring\"", "the nearest is parallel.algorithms.all-reduce"},
    {"parallel.algoritms", "{}", "parallel.algoritms is no field of a spec; the nearest is parallel.algorithms"},
    {"parallel.algorithms.all-gather", "\"tree\"", "it must be one of auto, direct, ring"},
    {"parallel.algorithms.broadcast", "\"ring\"", "parallel.algorithms.broadcast is \"ring\": it must be one of auto, direct, tree"},
    {"parallel.tensor", "0", "parallel.tensor is 0: it must be a whole number from 1 to 16384"},
    {"parallel.tensor", "2", "ranks = 2, but tensor·context·expert·data·pipeline = 2·1·1·2·1 = 4: set ranks to 4, or parallel.data to 1"},
    {"parallel.pipeline", "3", "ranks = 2, but tensor·context·expert·data·pipeline = 1·1·1·2·3 = 6: set ranks to 6"},
    {"parallel", "{\"context\":2}", NULL},
    {"parallel", "{\"expert\":2}", NULL},
    {"parallel.sequence", "1", "parallel.sequence is 1: it must be true or false"},
    {"parallel.sequence", "true", "parallel.sequence is true, but parallel.tensor is 1"},
    {"parallel", "{\"tensor\":2,\"sequence\":true}", NULL},
    {"parallel.pipeline_order", "\"gpip\"", "must be one of 1f1b, gpipe, interleaved, zero-bubble; did you mean \"gpipe\"?"},
    {"parallel.pipeline_order", "\"interleaved\"", "parallel.chunks is 1, but parallel.pipeline_order \"interleaved\" takes 2 or more a "
                                                 "rank"},
    {"parallel.pipeline_order", "\"gpipe\"", NULL},
    {"parallel.chunks", "2", "parallel.chunks is 2, but parallel.pipeline_order \"1f1b\" takes 1 a rank"},
    {"parallel", "{\"data\":2,\"pipeline_order\":\"gpipe\",\"chunks\":2}", "parallel.chunks is 2, but parallel.pipeline is 1"},
    {"parallel", "{\"pipeline\":2,\"pipeline_order\":\"zero-bubble\",\"chunks\":3}", "parallel.chunks is 3, but "
     "parallel.pipeline_order \"zero-bubble\" takes 1 or 2 a rank"},
    {"parallel", "{\"pipeline\":2,\"pipeline_order\":\"zero-bubble\",\"chunks\":2}", "model.layers is 2, but parallel.pipeline × "
     "parallel.chunks = 2 × 2 = 4 stages"},
    {"parallel", "{\"pipeline\":2,\"pipeline_order\":\"zero-bubble\"}", NULL},
    {"parallel.recompute", "\"all\"", "parallel.recompute is \"all\": it must be one of none, selective, full, auto"},
    {"parallel.recompute_layers", "2", "parallel.recompute_layers is 2, but parallel.recompute is \"none\": layers are counted with \"full\""},
    {"parallel.recompute_memory", "2", "parallel.recompute is \"none\" and parallel.recompute_memory 2"},
    {"parallel.recompute", "\"auto\"", "parallel.recompute is \"auto\" and parallel.recompute_memory 0"},
    {"parallel", "{\"data\":2,\"recompute\":\"auto\",\"recompute_memory\":100}", NULL},
    {"parallel", "{\"data\":2,\"recompute\":\"full\",\"recompute_layers\":1}", NULL},
    {"parallel.expert_memory", "5", "parallel.expert_memory is 5, but parallel.expert is 1 and model.experts 0"},
    {"snapshot.keep", "0", "snapshot.keep is 0"},
    {"snapshot.copies", "3", "snapshot.copies is 3: it must be a whole number from 0 to 2"},
    {"snapshot.busy", "\"wait for it\"", "snapshot.busy is \"wait for it\": it must be one of skip, wait"},
    {"snapshot.mib_per_second", "-1", "snapshot.mib_per_second is -1: it must be a whole number from 0 to 1000000"},
    {"snapshot.full_every", "0", "snapshot.full_every is 0: it must be a whole number from 1 to 1000000"},
    {"snapshot.keep_nonfinite", "1", "snapshot.keep_nonfinite is 1: it must be true or false"},
    {"snapshot.copy", "1", "the nearest is snapshot.copies"},
    {"policy.on_nonfinite", "\"rolback\"", "it must be one of stop, skip, rollback; did you mean \"rollback\"?"},
    {"policy.max_rollbacks", "1.5", "policy.max_rollbacks is 1.5: it must be a whole number from 0 to 1000000"},
    {"policy.replica_every", "-1", "policy.replica_every is -1"},
    {"evaluate.every", "5", "evaluate.every is 5, but data.validation is missing"},
    {"policy.on_crash", "\"retry\"", "policy.on_crash is \"retry\": it must be one of restart, stop"},
    {"policy.on_hang", "\"kill\"", "policy.on_hang is \"kill\": it must be one of report, dump, restart"},
    {"policy.hang_floor_seconds", "0", "policy.hang_floor_seconds is 0: it must be a number from 0.1 to 86400"},
    {"policy.hang_ceiling_seconds", "10", "policy.hang_ceiling_seconds is 10, but policy.hang_floor_seconds is 30"},
    {"policy.straggler_score", "2", "policy.straggler_score is 2: it must be a number from 0 to 1"},
    {"policy.shrink", "1", "policy.shrink is 1: it must be true or false"},
    {"stop.grace_seconds", "-1", "stop.grace_seconds is -1"},
    {"log.max_mib", "0", "log.max_mib is 0"},
    {"env", "[]", "env is []"},
    {"env.KC_HOME", "\"x\"", "env.KC_HOME"},
    {"env.A", "1", "env.A is 1: it must be a text"},
    {"env.9", "\"1\"", "env.9"},
    {"inject", "3", "inject is 3: it must be a list of at most 256 faults"},
    {"inject", "[{}]", "inject[0] has no \"what\""},
    {"inject", "[{\"what\":\"stop\",\"step\":1},3]", "inject[1] is 3: it must be an object"},
    {"inject", "[{\"what\":\"explode\"}]", "inject[0].what is \"explode\": it must be one of exit, signal"},
    {"inject", "[{\"what\":\"exit\",\"step\":3,\"rank\":2}]", "inject[0].rank is 2, but ranks is 2: the last one is 1"},
    {"inject", "[{\"what\":\"exit\",\"rank\":1}]", "inject[0] has no step, which a fault of the phase \"forward\" needs"},
    {"inject", "[{\"what\":\"exit\",\"phase\":\"start\",\"step\":1}]", "the phase \"start\" is in no step"},
    {"inject", "[{\"what\":\"exit\",\"step\":1,\"mib\":1}]", "inject[0].mib is no field of the fault \"exit\""},
    {"inject", "[{\"what\":\"exit\",\"step\":1,\"code\":256}]", "inject[0].code is 256: it must be a whole number from 0 to 255"},
    {"inject", "[{\"what\":\"leak\",\"step\":1}]", "inject[0] has no mib, which the fault \"leak\" needs"},
    {"inject", "[{\"what\":\"swap\",\"step\":1,\"phase\":\"data\"}]", "inject[0].phase is \"data\", where the fault \"swap\" can't happen"},
    {"inject", "[{\"what\":\"stop\",\"step\":1,\"again\":1}]", "inject[0].again is 1: it must be true or false"},
    {"optimiser", "{}", "the nearest is optimizer"},
    {"optimizer.learning_rate", "1", "optimizer.learning_rate is no field"},
    {"lr_shedule.warmup", "1", "lr_shedule is no field of a spec; the nearest is lr_schedule"},
    {"stepz", "1", "stepz is no field of a spec; the nearest is steps"},
    {"batch.sequence", "8", "batch.sequence is no field of a spec; the nearest is batch.sequences"},
};

START_TEST(a_bad_field_is_named_with_its_path_and_numbers)
{
    int code = with(bad[_i].path, bad[_i].value);
    if (!bad[_i].says) {
        ck_assert_msg(code == 0, "%s", error.text);
        return;
    }
    ck_assert_msg(code == -EINVAL, "%s accepted", bad[_i].path);
    ck_assert_msg(strstr(error.text, bad[_i].says), "%s\nwanted: %s", error.text, bad[_i].says);
    ck_assert_ptr_null(strchr(error.text, '\n'));
}
END_TEST

#define MOE "{\"name\":\"t\",\"ranks\":24,\"steps\":1,\"model\":{\"family\":\"moe\",\"layers\":5,\"hidden\":32,\"heads\":4," \
            "\"context\":%u,\"vocab\":61,\"ffn\":44,\"experts\":%u,\"top_k\":1},\"data\":{\"train\":\"t.bin\"}," \
            "\"batch\":{\"sequences\":%u,\"micro\":3},\"optimizer\":{\"lr\":0.1},\"parallel\":{\"tensor\":2," \
            "\"sequence\":true,\"context\":2,\"expert\":3,\"expert_memory\":7,\"pipeline\":2,\"zero\":3," \
            "\"pipeline_order\":\"interleaved\",\"chunks\":2,\"recompute\":\"selective\"}}"

START_TEST(every_axis_fits_batch_context_and_experts)
{
    static const struct {
        uint32_t context, experts, sequences;
        const char *says; /* NULL: it is a spec */
    } cases[] = {{20, 4, 18, NULL},
                 {18, 4, 18, "model.context is 18, which 2 × parallel.context = 2 × 2 = 4 does not divide: model.context 20 would do"},
                 {20, 2, 18, "parallel.expert is 3, but model.experts is 2"},
                 {20, 4, 12, "batch.sequences is 12, which batch.micro × parallel.expert × parallel.data = 3 × 3 × 1 = 9 does not "
                             "divide: batch.sequences 18 would do"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[1024];
        snprintf(text, sizeof text, MOE, cases[i].context, cases[i].experts, cases[i].sequences);
        const int code = parse(text);
        ck_assert_int_eq(code, cases[i].says ? -EINVAL : 0);
        ck_assert_msg(!cases[i].says || strstr(error.text, cases[i].says), "%s", error.text);
    }
}
END_TEST

/* kcd has the parser and no orders: the table of the one must say what the other does. */
START_TEST(an_order_takes_as_many_chunks_in_a_spec_as_in_schedule)
{
    for (int order = 0; order < KC_PIPELINES; order++)
        for (uint32_t chunks = 1; chunks <= 6; chunks++) {
            char parallel[128];
            const struct kc_order_row *row;
            snprintf(parallel, sizeof parallel, "{\"pipeline\":2,\"pipeline_order\":\"%s\",\"chunks\":%u}",
                     kc_pipeline_name[order], chunks);
            const int found = kc_order_find(kc_pipeline_name[order], chunks, &row, &error), code = with("parallel", parallel);
            const bool refused = code < 0 && strstr(error.text, "parallel.chunks is") != NULL;
            ck_assert_msg(refused == (found < 0), "%s with %u chunks: %s", kc_pipeline_name[order], chunks, error.text);
        }
}
END_TEST

START_TEST(zero_learning_rate_decay_and_clip_are_valid)
{
    ck_assert_int_eq(with("optimizer.lr", "0"), 0);
    ck_assert_int_eq(with("optimizer.weight_decay", "0"), 0);
    ck_assert_int_eq(with("optimizer.clip", "0"), 0);
    ck_assert_int_eq(with("lr_schedule.warmup", "1000"), 0);
}
END_TEST

START_TEST(what_is_no_json_object_is_refused)
{
    ck_assert_int_eq(parse("{\"name\":"), -EINVAL);
    ck_assert_ptr_nonnull(strstr(error.text, "line 1"));
    ck_assert_int_eq(parse("[]"), -EINVAL);
    ck_assert_int_eq(parse("{\"name\":\"a\",\"name\":\"b\"}"), -EINVAL);
}
END_TEST

START_TEST(a_fault_gets_the_action_of_the_spec)
{
    struct kc_policy_history none = {0}, many = {.restarts = 3}, same = {.same_step_faults = 2};
    ck_assert_int_eq(parse(least), 0);
    ck_assert_int_eq(kc_policy_decide(KC_FAULT_CRASH, spec, &none), KC_ACTION_RESTART);
    ck_assert_int_eq(kc_policy_decide(KC_FAULT_CRASH, spec, &many), KC_ACTION_FAIL);
    ck_assert_int_eq(kc_policy_decide(KC_FAULT_CRASH, spec, &same), KC_ACTION_FAIL);
    ck_assert_int_eq(kc_policy_decide(KC_FAULT_NONFINITE, spec, &none), KC_ACTION_FAIL);
    ck_assert_int_eq(kc_policy_decide(KC_FAULT_SNAPSHOT, spec, &many), KC_ACTION_GO_ON);
    ck_assert_int_eq(kc_policy_decide(KC_FAULT_SPEC, spec, &none), KC_ACTION_FAIL);
    ck_assert_int_eq(with("policy.on_crash", "\"stop\""), 0);
    ck_assert_int_eq(kc_policy_decide(KC_FAULT_CRASH, spec, &none), KC_ACTION_FAIL);
    ck_assert_int_eq(kc_policy_decide(KC_FAULT_HANG, spec, &none), KC_ACTION_GO_ON);
    ck_assert_int_eq(with("policy.on_hang", "\"restart\""), 0);
    ck_assert_int_eq(kc_policy_decide(KC_FAULT_HANG, spec, &none), KC_ACTION_RESTART);
    ck_assert_int_eq(kc_policy_decide(KC_FAULT_HANG, spec, &many), KC_ACTION_FAIL);
    ck_assert_int_eq(with("policy.on_nonfinite", "\"skip\""), 0);
    ck_assert_int_eq(kc_policy_decide(KC_FAULT_NONFINITE, spec, &none), KC_ACTION_SKIP);
    ck_assert_int_eq(with("policy", "{\"on_nonfinite\":\"rollback\",\"max_rollbacks\":2}"), 0);
    ck_assert_int_eq(kc_policy_decide(KC_FAULT_NONFINITE, spec, &none), KC_ACTION_ROLLBACK);
    ck_assert_int_eq(kc_policy_decide(KC_FAULT_NONFINITE, spec, &(struct kc_policy_history){.rollbacks = 1}), KC_ACTION_ROLLBACK);
    ck_assert_int_eq(kc_policy_decide(KC_FAULT_NONFINITE, spec, &(struct kc_policy_history){.rollbacks = 2}), KC_ACTION_FAIL);
}
END_TEST

/* Requests × states, as kc-job's users see them: what all ranks do between two steps. */
#define AT(at) .step = at, .steps = 10
#define UNDER_WAY(stage, of) .saving = KC_SAVING_##stage, .saving_step = of
static const struct {
    const char *when;
    struct kc_next_input in;
    enum kc_next want;
} nexts[] = {
    {"nothing is asked", {AT(5), .trained = true}, KC_NEXT_TRAIN},
    {"every divides the step", {AT(6), .every = 3, .trained = true}, KC_NEXT_BEGIN},
    {"every divides the step, but that was decided already", {AT(6), .every = 3}, KC_NEXT_TRAIN},
    {"it was tried and failed: the next one is for later", {AT(6), .every = 3, .trained = true, .tried = true}, KC_NEXT_TRAIN},
    {"the last step is saved when snapshots are on", {AT(10), .every = 3, .trained = true}, KC_NEXT_BEGIN},
    {"the last step is not saved when they are off", {AT(10), .trained = true}, KC_NEXT_LEAVE},
    {"a last step that could not be saved is left all the same", {AT(10), .every = 3, .tried = true}, KC_NEXT_LEAVE},
    {"pause holds", {.wish = {.pause = true}, AT(5), .trained = true}, KC_NEXT_HOLD},
    {"pause before the first step holds there", {.wish = {.pause = true}, AT(0)}, KC_NEXT_HOLD},
    {"the last step finishes instead of pausing", {.wish = {.pause = true}, AT(10), .trained = true}, KC_NEXT_LEAVE},
    {"checkpoint while held saves", {.wish = {.pause = true, .checkpoints = 1}, AT(5)}, KC_NEXT_BEGIN},
    {"a second checkpoint of the same step writes nothing",
     {.wish = {.pause = true, .checkpoints = 2}, AT(5), .answered = 1, .saved = true}, KC_NEXT_ANSWER},
    {"stop saves, also with every 0", {.wish = {.stop = true}, AT(5), .trained = true}, KC_NEXT_BEGIN},
    {"stop wakes who is held", {.wish = {.stop = true, .pause = true}, AT(5)}, KC_NEXT_BEGIN},
    {"stop of a saved step leaves at once", {.wish = {.stop = true}, AT(6), .every = 3, .saved = true}, KC_NEXT_LEAVE},
    {"stop whose save failed leaves", {.wish = {.stop = true}, AT(6), .tried = true}, KC_NEXT_LEAVE},
    {"who asks for a checkpoint after one failed gets a new one",
     {.wish = {.checkpoints = 2}, AT(6), .answered = 1, .tried = true}, KC_NEXT_BEGIN},
    /* one under way */
    {"it is at work: train", {AT(7), .trained = true, UNDER_WAY(COPYING, 6)}, KC_NEXT_TRAIN},
    {"its stage is done everywhere: the next", {AT(7), .trained = true, UNDER_WAY(COPYING, 6), .ready = true}, KC_NEXT_ADVANCE},
    {"also while held", {.wish = {.pause = true}, AT(7), UNDER_WAY(WRITING, 6), .ready = true}, KC_NEXT_ADVANCE},
    {"held while it is at work", {.wish = {.pause = true}, AT(6), UNDER_WAY(WRITING, 6)}, KC_NEXT_HOLD},
    {"due meanwhile: left out", {AT(9), .every = 3, .trained = true, UNDER_WAY(WRITING, 6)}, KC_NEXT_SKIP},
    {"due meanwhile: finished first", {AT(9), .every = 3, .trained = true, .wait = true, UNDER_WAY(WRITING, 6)}, KC_NEXT_ADVANCE},
    {"waiting is for what is due alone", {AT(8), .every = 3, .trained = true, .wait = true, UNDER_WAY(WRITING, 6)}, KC_NEXT_TRAIN},
    {"a checkpoint is asked for meanwhile: after it",
     {.wish = {.checkpoints = 1}, AT(8), .trained = true, UNDER_WAY(WRITING, 6)}, KC_NEXT_TRAIN},
    {"and then begins", {.wish = {.checkpoints = 1}, AT(9), .trained = true}, KC_NEXT_BEGIN},
    {"one of this very step is not saved twice", {AT(6), .every = 3, .trained = true, UNDER_WAY(COPYING, 6)}, KC_NEXT_TRAIN},
    {"stop finishes it", {.wish = {.stop = true}, AT(8), .trained = true, UNDER_WAY(COPYING, 6)}, KC_NEXT_ADVANCE},
    {"and saves then", {.wish = {.stop = true}, AT(8), .trained = true}, KC_NEXT_BEGIN},
    {"the last step finishes it", {AT(10), .every = 3, .trained = true, UNDER_WAY(COMMITTING, 9)}, KC_NEXT_ADVANCE},
};

START_TEST(what_comes_next_follows_from_what_was_agreed)
{
    const enum kc_next got = kc_next_decide(&nexts[_i].in);
    ck_assert_msg(got == nexts[_i].want, "%s: %s, not %s", nexts[_i].when, kc_next_name[got], kc_next_name[nexts[_i].want]);
}
END_TEST

/* What would do is said: the copies where they alone are too much, else what the rest is made of. */
START_TEST(too_little_memory_is_told_with_what_would_do)
{
    const uint64_t mib = 1 << 20;
    const struct kc_memory_need n = {.parameters = 10 * mib, .gradients = 10 * mib, .moments = 20 * mib, .work = 40 * mib,
                                     .copies = 80 * mib, .program = 20 * mib, .rank = 180 * mib};
    ck_assert_int_eq(kc_startup_memory_check(&n, 360 * mib, 360 * mib, &error), 0);
    ck_assert_int_eq(kc_startup_memory_check(&n, 360 * mib, 0, &error), 0);
    ck_assert_int_eq(kc_startup_memory_check(&n, 360 * mib, 359 * mib, &error), -ENOMEM);
    ck_assert_str_eq(error.text, "the job needs 360 MiB (180 MiB a rank: parameters 10.0 MiB, gradients 10.0 MiB, moments "
                     "20.0 MiB, masters 0 B, work 40.0 MiB, communication 0 B, copies 80.0 MiB, program 20.0 MiB), 359 MiB are free. Lower snapshot.copies; with 0 no "
                     "memory is taken for them, and training waits for the disk");
    ck_assert_int_eq(kc_startup_memory_check(&n, 360 * mib, 199 * mib, &error), -ENOMEM);
    ck_assert_msg(!strstr(error.text, "snapshot.copies") && strstr(error.text, "Lower batch.micro"), "%s", error.text);
}
END_TEST

START_TEST(one_vote_stops_all)
{
    double agreed[KC_AGREES] = {[KC_AGREE_STOP] = 1, [KC_AGREE_CONTROL] = 3};
    struct kc_wish w = kc_wish_read(agreed); /* F13 */
    ck_assert(w.stop && !w.pause);
    ck_assert_uint_eq(w.checkpoints, 3);
}
END_TEST

static int a_start(void *self, const struct kc_group *g, const struct kc_comm_call *c, struct kc_comm_op **op, struct kc_error *e)
{
    (void)self, (void)g, (void)c, (void)op, (void)e;
    return 0;
}
static int a_test(void *self, struct kc_comm_op **op, struct kc_error *e)
{
    (void)self, (void)op, (void)e;
    return 0;
}
static int a_wait(void *self, struct kc_comm_op **op, uint64_t deadline, struct kc_error *e)
{
    (void)self, (void)op, (void)deadline, (void)e;
    return 0;
}
static const struct kc_group *a_group(void *self, uint32_t index)
{
    (void)self, (void)index;
    return NULL;
}
static const void *a_read(void *self, enum kc_state_class what, uint32_t bucket, uint64_t *version)
{
    (void)self, (void)what, (void)bucket, (void)version;
    return NULL;
}
static int an_open(void *self, enum kc_state_class what, uint32_t bucket, void **data)
{
    (void)self, (void)what, (void)bucket, (void)data;
    return 0;
}
static void a_close(void *self, enum kc_state_class what, uint32_t bucket)
{
    (void)self, (void)what, (void)bucket;
}
static int op_failed(void *self, struct kc_error *e)
{
    (void)self, (void)e;
    return 0;
}

static int a_verb(void *self, enum kc_state_verb verb, struct kc_error *e)
{
    (void)self, (void)verb, (void)e;
    return 0;
}
static uint64_t *a_store(void *self, size_t *count)
{
    (void)self, (void)count;
    return NULL;
}

START_TEST(wiring_for_another_caller_or_with_a_hole_is_refused)
{
    const struct kc_op op = {0};
    struct kc_comm_if comm = {.built_for = "schedule", .start = a_start, .test = a_test, .wait = a_wait, .group = a_group};
    struct kc_state_if state = {.built_for = "schedule", .read = a_read, .open = an_open, .close = a_close, .verb = a_verb,
                                .store = a_store};
    struct kc_op_table ops = {.device = "cpu", .variant = "portable", .ops = &op, .count = 1, .failed = op_failed};
    ck_assert_msg(kc_startup_wiring(&comm, &state, &ops, &error) == 0, "%s", error.text);
    comm.built_for = "strategy";
    ck_assert_int_eq(kc_startup_wiring(&comm, &state, &ops, &error), -EPERM);
    ck_assert_ptr_nonnull(strstr(error.text, "comm was built for \"strategy\""));
    comm.built_for = "schedule";
    state.close = NULL;
    ck_assert_int_eq(kc_startup_wiring(&comm, &state, &ops, &error), -EPERM);
    state.close = a_close;
    ops.count = 0;
    ck_assert_int_eq(kc_startup_wiring(&comm, &state, &ops, &error), -EPERM);
    ops.count = 1;
    ops.failed = NULL;
    ck_assert_int_eq(kc_startup_wiring(&comm, &state, &ops, &error), -EPERM);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("govern");
    TCase *t = tcase_create("spec");
    tcase_add_test(t, the_least_spec_gets_the_documented_defaults);
    tcase_add_test(t, a_family_has_fields_and_defaults_of_its_own);
    tcase_add_test(t, an_algorithm_is_named_for_its_primitive_alone);
    tcase_add_test(t, alpha_of_adapters_is_their_rank_if_nobody_says);
    tcase_add_test(t, the_files_of_a_job_have_weights_and_masks);
    tcase_add_loop_test(t, a_stored_spec_parses_to_the_same_contract, 0, 5);
    tcase_add_loop_test(t, a_bad_field_is_named_with_its_path_and_numbers, 0, sizeof bad / sizeof bad[0]);
    tcase_add_test(t, every_axis_fits_batch_context_and_experts);
    tcase_add_test(t, an_order_takes_as_many_chunks_in_a_spec_as_in_schedule);
    tcase_add_test(t, zero_learning_rate_decay_and_clip_are_valid);
    tcase_add_test(t, what_is_no_json_object_is_refused);
    tcase_add_test(t, a_fault_gets_the_action_of_the_spec);
    tcase_add_loop_test(t, what_comes_next_follows_from_what_was_agreed, 0, sizeof nexts / sizeof nexts[0]);
    tcase_add_test(t, too_little_memory_is_told_with_what_would_do);
    tcase_add_test(t, one_vote_stops_all);
    tcase_add_test(t, wiring_for_another_caller_or_with_a_hole_is_refused);
    suite_add_tcase(s, t);
    return suite_run(s);
}
