/* task_sample.c - one rank, forward only, values from a snapshot. */
#include "task.h"

#include "base/file.h"
#include "base/json.h"
#include "engine/engine.h"
#include "govern/spec.h"
#include "jobs/data/tokenizer.h"
#include "jobs/sample.h"
#include "shm/probe.h"

#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct wish {
    const char *snapshot, *prompt;
    unsigned long tokens;
    double temperature;
    unsigned long long seed;
};

static const char usage[] =
    "usage: kc-rank --task sample --snapshot DIR [--prompt TEXT] [--tokens N] [--temperature T] [--seed S]\n"
    "Writes the prompt's continuation to standard output. Normally started by `kc sample`.\n";

static int read_arguments(int argc, char **argv, struct wish *out)
{
    static const struct option options[] = {{"snapshot", required_argument, NULL, 's'},
                                            {"prompt", required_argument, NULL, 'p'},
                                            {"tokens", required_argument, NULL, 'n'},
                                            {"temperature", required_argument, NULL, 't'},
                                            {"seed", required_argument, NULL, 'r'},
                                            {NULL, 0, NULL, 0}};
    struct wish w = {.prompt = "", .tokens = 200, .temperature = 1, .seed = 1};
    char *end = "";
    optind = 1;
    for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1 && !*end;) {
        errno = 0;
        switch (c) {
        case 's': w.snapshot = optarg; break;
        case 'p': w.prompt = optarg; break;
        case 'n': w.tokens = strtoul(optarg, &end, 10); break;
        case 't': w.temperature = strtod(optarg, &end); break;
        case 'r': w.seed = strtoull(optarg, &end, 10); break;
        default: return -EINVAL;
        }
        if (errno)
            end = "?";
    }
    if (*end || !w.snapshot || optind < argc || !(w.temperature >= 0) || w.tokens > 1000000)
        return -EINVAL;
    *out = w;
    return 0;
}

/* What says which model it is, from the folder of a version or that of all: the spec of the job that wrote it, or what an
 * import left (`*model`: a model alone). */
static int find_spec(const char *snapshot, char path[PATH_MAX], bool *model, struct kc_error *e)
{
    static const char *const places[] = {"../../spec.json", "../spec.json", "../model.json", "model.json"};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        const int n = snprintf(path, PATH_MAX, "%s/%s", snapshot, places[i]);
        if (n < 0 || n >= PATH_MAX)
            return kc_fail(e, -ENAMETOOLONG, "%s: too long a path", snapshot);
        *model = i > 1;
        if (access(path, R_OK) == 0)
            return 0;
    }
    snprintf(path, PATH_MAX, "%.*s/config.json", PATH_MAX - 16, snapshot);
    if (access(path, F_OK) == 0)
        return kc_fail(e, -EINVAL, "%s is a Hugging Face folder, no snapshot. `kc snap import %s --name NAME` makes one of it, "
                       "then `kc sample NAME`", snapshot, snapshot);
    return kc_fail(e, -ENOENT, "%s has neither a job's spec.json above it nor an import's model.json. A snapshot is read where its "
                   "job wrote it: <job>/snapshots/<version>", snapshot);
}

/* The spec of the job that wrote the snapshot, made a job of one rank and one sequence whose values are the snapshot's. */
static int spec_of(const char *snapshot, struct kc_arena *arena, const struct kc_job_spec **out, struct kc_error *e)
{
    char path[PATH_MAX], *text;
    size_t bytes;
    bool alone = false;
    json_error_t at;
    int code = find_spec(snapshot, path, &alone, e);
    if (code < 0)
        return code;
    code = kc_file_read(path, KC_SPEC_BYTES_MAX, &text, &bytes);
    if (code < 0)
        return kc_fail(e, code, "%s: %s", path, strerror(-code));
    json_t *root = json_loads(text, 0, &at);
    free(text);
    json_t *model = json_object_get(root, "model");
    if (!root)
        return kc_fail(e, -EINVAL, "%s: line %d: %s", path, at.line, at.text);
    if (!json_is_object(model)) {
        json_decref(root);
        return kc_fail(e, -EINVAL, "%s has no model", path);
    }
    if (alone)
        json_object_update_new(root, json_pack("{s:s,s:i,s:{s:s},s:{s:i}}", "name", "sample", "steps", 1, "data", "train", "none",
                                               "optimizer", "lr", 0));
    json_object_set_new(root, "ranks", json_integer(1));
    json_object_set_new(root, "parallel", json_pack("{s:i,s:i}", "data", 1, "zero", 0));
    json_object_set_new(root, "batch", json_pack("{s:i,s:i}", "sequences", 1, "micro", 1));
    json_object_set_new(root, "oversubscribe", json_true());
    json_object_set_new(model, "init", json_pack("{s:s}", "from", snapshot));
    text = json_dumps(root, JSON_REAL_PRECISION(17));
    json_decref(root);
    if (!text)
        return -ENOMEM;
    code = kc_arena_new(arena, 1 << 20);
    if (code == 0)
        code = kc_spec_parse(text, "/", arena, out, e);
    free(text);
    return code;
}

static int generate(struct kc_engine *engine, const struct kc_job_spec *spec, const struct wish *w, struct kc_error *e)
{
    size_t length = strlen(w->prompt), room = length + w->tokens + 1;
    int32_t *text = calloc(room, sizeof *text);
    float *logits = calloc(spec->vocab, sizeof *logits);
    size_t have = 0;
    int code = 0;
    if (!text || !logits) {
        code = kc_fail(e, -ENOMEM, "no memory for %zu tokens", room);
        goto out;
    }
    for (; have < length; have++)
        text[have] = (unsigned char)w->prompt[have];
    if (have == 0)
        text[have++] = '\n'; /* a model needs something to go on from */
    for (size_t end = have + w->tokens; code == 0 && have < end; have++) {
        size_t window = have < spec->context ? have : spec->context;
        code = kc_engine_forward(engine, text + have - window, (uint32_t)window, logits, e);
        if (code < 0)
            break;
        text[have] = (int32_t)kc_sample_pick(logits, spec->vocab, w->temperature, w->seed, have);
        unsigned char byte = (unsigned char)text[have];
        code = kc_write_all(STDOUT_FILENO, &byte, 1);
        if (code == -EPIPE)
            code = 0, end = have;
        else if (code < 0)
            kc_fail(e, code, "standard output: %s", strerror(-code));
    }
out:
    free(logits);
    free(text);
    return code;
}

int task_sample(int argc, char **argv)
{
    struct wish w;
    struct kc_arena arena = {0};
    const struct kc_job_spec *spec;
    struct kc_error e = {""};
    struct kc_probe *probe = NULL;
    struct kc_engine *engine = NULL;
    enum kc_reason reason;
    char full[PATH_MAX];
    if (read_arguments(argc, argv, &w) < 0) {
        fputs(usage, stderr);
        return 2;
    }
    int code = realpath(w.snapshot, full) ? 0 : kc_fail(&e, -errno, "%s: %s", w.snapshot, strerror(errno));
    if (code == 0)
        code = spec_of(full, &arena, &spec, &e);
    if (code == 0 && spec->vocab > 256)
        code = kc_fail(&e, -EINVAL, "model.vocab is %u: only byte-level models (256) can be sampled", spec->vocab);
    if (code == 0)
        code = kc_probe_private(1, &probe, &e);
    if (code == 0) {
        struct kc_engine_config c = {
            .spec = spec, .incarnation = 1, .leases = "cpu:0", .probe = probe};
        code = kc_engine_new(&c, &engine, &reason, &e);
    }
    if (code == 0)
        code = kc_engine_init(engine, &e);
    if (code == 0)
        code = generate(engine, spec, &w, &e);
    kc_engine_free(engine);
    kc_probe_free(probe);
    kc_arena_free(&arena);
    if (code < 0)
        fprintf(stderr, "kc-rank: %s\n", e.text[0] ? e.text : strerror(-code));
    return code == 0 ? 0 : code == -ENOENT ? 4 : 9;
}
