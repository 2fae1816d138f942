/* bench_job.c - what `kc bench` runs, from its options; and what can be computed of it. */
#include "bench_rig.h"

#include "base/print.h"
#include "contracts/job_spec.h"
#include "supervisor/protocol.h"

#include <string.h>

/* The sizes that are compared with others (tests/bench/README.md). */
static const struct bench_job presets[] = {
    {.model = "0.84m",
     .layers = 4,
     .hidden = 128,
     .heads = 4,
     .context = 128,
     .vocab = 256,
     .micro = 8,
     .accumulate = 2},
    {.model = "10.8m",
     .layers = 6,
     .hidden = 384,
     .heads = 6,
     .context = 256,
     .vocab = 256,
     .micro = 4,
     .accumulate = 1},
    {.model = "124m",
     .layers = 12,
     .hidden = 768,
     .heads = 12,
     .context = 256,
     .vocab = 50257,
     .micro = 4,
     .accumulate = 1},
};
#define PRESETS           (sizeof presets / sizeof *presets)
#define BENCH_TOKENS_MOST (1u << 22) /* of a step: four of them are made up */

static int choose(struct session *s, const struct arguments *a, struct bench_job *out)
{
    const char *name = a->option[OPTION_MODEL] ? a->option[OPTION_MODEL] : "10.8m";
    for (size_t i = 0; i < PRESETS; i++)
        if (!strcmp(presets[i].model, name)) {
            *out = presets[i];
            return KC_EXIT_OK;
        }
    return session_fail(s, KC_EXIT_USAGE,
                        "--model %.40s: there are 0.84m, 10.8m and 124m; other sizes by --layers, "
                        "--hidden, --heads, --vocab",
                        name);
}

/* What the spec would refuse, in the words of the options and before anything is measured. */
static int check(struct session *s, const struct bench_job *j)
{
    size_t known = 0;
    char names[64] = "";
    while (known < KC_PRECISIONS && strcmp(j->precision, kc_precision_name[known]) != 0)
        known++;
    for (size_t i = 0, n = 0; i < KC_PRECISIONS && n < sizeof names; i++)
        n += (size_t)snprintf(names + n, sizeof names - n, "%s%s", i ? " or " : "", kc_precision_name[i]);
    if (known == KC_PRECISIONS)
        return session_fail(s, KC_EXIT_USAGE, "--precision wants %s, not \"%.40s\"", names, j->precision);
    if (j->hidden % j->heads) {
        uint32_t heads = j->heads;
        while (j->hidden % heads)
            heads--;
        return session_fail(s, KC_EXIT_USAGE,
                            "--heads %u does not divide --hidden %u: --heads %u would do", j->heads,
                            j->hidden, heads);
    }
    if (bench_job_tokens(j) > BENCH_TOKENS_MOST)
        return session_fail(s, KC_EXIT_USAGE,
                            "%llu tokens a step are more than a bench makes up, %u; lower --micro, "
                            "--accumulate, --context or --ranks",
                            (unsigned long long)bench_job_tokens(j), BENCH_TOKENS_MOST);
    return KC_EXIT_OK;
}

/* Bounds here keep numbers sane; check() looks whether they go together. */
int bench_job_read(struct session *s, const struct arguments *a, struct bench_job *out)
{
    struct bench_job j;
    int code = choose(s, a, &j);
    if (code)
        return code;
    uint32_t heads = a->option[OPTION_HIDDEN] ? 0 : j.heads;
    const struct {
        enum option_id id;
        uint32_t least, most, otherwise, *to;
    } numbers[] = {
        {OPTION_LAYERS, 1, 1024, j.layers, &j.layers},
        {OPTION_HIDDEN, 1, 65536, j.hidden, &j.hidden},
        {OPTION_HEADS, 1, 1024, heads, &j.heads},
        {OPTION_CONTEXT, 1, 1u << 20, j.context, &j.context},
        {OPTION_VOCAB, 2, 65536, j.vocab, &j.vocab},
        {OPTION_MICRO, 1, 4096, j.micro, &j.micro},
        {OPTION_RANKS, 1, KC_RANKS_MAX, 2, &j.ranks},
        {OPTION_THREADS, 1, 64, 1, &j.threads},
        {OPTION_ZERO, 0, 3, 0, &j.zero},
        {OPTION_ACCUMULATE, 1, 4096, j.accumulate, &j.accumulate},
    };
    for (size_t i = 0; !code && i < sizeof numbers / sizeof *numbers; i++)
        code = bench_whole(s, a, numbers[i].id, numbers[i].least, numbers[i].most,
                           numbers[i].otherwise, numbers[i].to);
    if (code)
        return code;
    if (j.heads == 0)
        j.heads = j.hidden < 128 ? 1 : j.hidden / 64;
    if (a->option[OPTION_LAYERS] || a->option[OPTION_HIDDEN] || a->option[OPTION_VOCAB])
        j.model = "own";
    j.oversubscribe = a->option[OPTION_OVERSUBSCRIBE] != NULL;
    j.precision = a->option[OPTION_PRECISION] ? a->option[OPTION_PRECISION] : "fp32";
    code = check(s, &j);
    if (!code)
        *out = j;
    return code;
}

void bench_job_json(const struct bench_job *j, json_t *o)
{
    json_object_set_new(o, "model",
                        json_pack("{s:s,s:I,s:I,s:I,s:I,s:I}", "name", j->model, "layers",
                                  (json_int_t)j->layers, "hidden", (json_int_t)j->hidden, "heads",
                                  (json_int_t)j->heads, "context", (json_int_t)j->context, "vocab",
                                  (json_int_t)j->vocab));
    json_object_set_new(o, "precision", json_string(j->precision));
    json_object_set_new(o, "ranks", json_integer(j->ranks));
    json_object_set_new(o, "threads", json_integer(j->threads));
    json_object_set_new(o, "micro", json_integer(j->micro));
    json_object_set_new(o, "accumulate", json_integer(j->accumulate));
    json_object_set_new(o, "zero", json_integer(j->zero));
}

void bench_job_print(const struct bench_job *j, FILE *out)
{
    fprintf(out, "job         %s: %u layers, %u wide, %u heads, context %u, vocabulary %u; %s\n",
            j->model, j->layers, j->hidden, j->heads, j->context, j->vocab, j->precision);
    fprintf(out,
            "            %u rank%s x %u thread%s, %u micro-batch%s of %u sequence%s a rank, zero %u\n",
            j->ranks, kc_plural(j->ranks), j->threads, kc_plural(j->threads), j->accumulate, j->accumulate == 1 ? "" : "es", j->micro,
            kc_plural(j->micro), j->zero);
}

uint64_t bench_job_tokens(const struct bench_job *j)
{
    return (uint64_t)j->ranks * j->micro * j->accumulate * j->context;
}

double bench_job_flops(const struct bench_job *j)
{
    double l = j->layers, h = j->hidden, v = j->vocab, t = j->context,
           tokens = (double)bench_job_tokens(j);
    return 6 * (12 * l * h * h + v * h) * tokens + 6 * l * h * t * tokens;
}
