/* verb_data.c - token files: made, and looked into. */
#include "bench.h"
#include "report.h"
#include "session.h"
#include "text.h"
#include "verbs.h"

#include "base/clock.h"
#include "base/suggest.h"
#include "jobs/data/info.h"
#include "jobs/data/prepare.h"
#include "jobs/data/tokenizer.h"
#include "supervisor/protocol.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

/* A tokenizer that there is, with the files that it wants. */
static int tokenizer_check(struct session *s, const char *name, const char *vocab, const char *merges)
{
    const char *names[64];
    size_t n = 0;
    while (n < 64 && (names[n] = kc_tokenizer_name(n)) && strcmp(names[n], name))
        n++;
    if (n < 64 && names[n]) {
        bool files = kc_tokenizer_takes_files(name);
        if (files && !(vocab && merges))
            return session_fail(s, KC_EXIT_USAGE,
                                "tokenizer %s wants --vocab vocab.json and --merges merges.txt, as they come "
                                "with the model",
                                name);
        return files || !(vocab || merges) ? KC_EXIT_OK
                                           : session_fail(s, KC_EXIT_USAGE,
                                                          "tokenizer %s takes no --vocab or --merges: did you "
                                                          "mean --tokenizer gpt2?",
                                                          name);
    }
    const char *near = kc_suggest(name, names, n);
    return session_fail(s, KC_EXIT_USAGE, "no tokenizer \"%.40s\". %s %s", name, near ? "Did you mean" : "There is",
                        near ? near : names[0]);
}

/* Cores that this process may run on. */
static uint32_t cores(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? (uint32_t)CPU_COUNT(&set) : 1;
}

struct progress {
    struct session *s;
    uint64_t begin;
};

static int tell(void *self, uint64_t done, uint64_t bytes)
{
    struct progress *p = self;
    double seconds = (double)(kc_now() - p->begin) * 1e-9, rate = (double)done / (seconds > 0 ? seconds : 1);
    char speed[32], left[32];
    if (seconds > 1) /* what is done at once needs no line */
        bench_progress(p->s, "%.0f %% of the text, %s/s, %s left", 100 * (double)done / (double)bytes,
                       text_bytes(rate, speed, sizeof speed),
                       text_seconds((double)(bytes - done) / rate, left, sizeof left));
    return interrupt_seen();
}

static int print_prepared(struct session *s, const struct kc_prepared *p)
{
    char bytes[32];
    if (s->json) {
        json_t *o = session_envelope(s);
        json_object_set_new(o, "train", session_text(p->train));
        json_object_set_new(o, "validation", session_text(p->validation));
        json_object_set_new(o, "train_mask", session_text(p->train_mask));
        json_object_set_new(o, "validation_mask", session_text(p->validation_mask));
        json_object_set_new(o, "vocab", json_integer(p->vocab));
        json_object_set_new(o, "end_of_text", p->end_of_text < 0 ? json_null() : json_integer(p->end_of_text));
        json_object_set_new(o, "files", json_integer(p->files));
        json_object_set_new(o, "text_bytes", json_integer((json_int_t)p->text_bytes));
        json_object_set_new(o, "train_tokens", json_integer((json_int_t)p->train_tokens));
        json_object_set_new(o, "validation_tokens", json_integer((json_int_t)p->validation_tokens));
        json_object_set_new(o, "prompt_tokens", json_integer((json_int_t)p->prompt_tokens));
        json_object_set_new(o, "distinct_tokens", json_integer(p->distinct));
        json_object_set_new(o, "train_entropy_nats", kc_json_number(p->train_entropy));
        json_object_set_new(o, "validation_cross_entropy_nats", kc_json_number(p->validation_cross_entropy));
        return session_emit(s, o);
    }
    fprintf(s->out, "text        %s in %u files\n", text_bytes((double)p->text_bytes, bytes, sizeof bytes), p->files);
    fprintf(s->out, "train       %s: %llu tokens\n", p->train, (unsigned long long)p->train_tokens);
    if (*p->validation)
        fprintf(s->out, "validation  %s: %llu tokens\n", p->validation, (unsigned long long)p->validation_tokens);
    if (*p->train_mask)
        fprintf(s->out, "masks       %s%s%s: %llu tokens of prompts do not count\n", p->train_mask,
                *p->validation_mask ? ", " : "", p->validation_mask, (unsigned long long)p->prompt_tokens);
    fprintf(s->out, "vocabulary  %u, of which %u occur\n", p->vocab, p->distinct);
    if (p->end_of_text >= 0)
        fprintf(s->out,
                "documents   begin with token %d: \"documents\":\"masked\",\"end_of_text\":%d tells them apart\n",
                p->end_of_text, p->end_of_text);
    fprintf(s->out, "entropy     %.4f nats a token: what a model that knows only frequencies would lose\n",
            p->train_entropy);
    return KC_EXIT_OK;
}

static int prepare(struct session *s, const struct arguments *a)
{
    const char *share = a->option[OPTION_VALIDATION] ? a->option[OPTION_VALIDATION] : "0.1";
    char *end = NULL;
    struct progress progress = {s, kc_now()};
    struct kc_prepare_request request = {
        .files = (const char *const *)a->word,
        .count = (size_t)a->words,
        .tokenizer = a->option[OPTION_TOKENIZER] ? a->option[OPTION_TOKENIZER] : "byte",
        .vocab = a->option[OPTION_VOCAB],
        .merges = a->option[OPTION_MERGES],
        .validation = strtod(share, &end),
        .out = a->option[OPTION_OUT],
        .progress = tell,
        .self = &progress,
    };
    struct kc_prepared p;
    struct kc_error e = {""};
    if (!request.out)
        return session_fail(s, KC_EXIT_USAGE, "where to? `kc data prepare --out DIR FILE…` writes DIR/train.bin and "
                            "DIR/val.bin");
    if (end == share || *end || !(request.validation >= 0 && request.validation <= 0.5))
        return session_fail(s, KC_EXIT_USAGE, "--validation wants a share from 0 to 0.5, not \"%.40s\"", share);
    int code = tokenizer_check(s, request.tokenizer, request.vocab, request.merges);
    if (!code)
        code = bench_whole(s, a, OPTION_THREADS, 1, 1024, cores(), &request.threads);
    if (code)
        return code;
    int rc = kc_data_prepare(&request, &p, &e);
    bench_progress_end(s);
    if (rc == -EINTR)
        return session_fail(s, interrupt_code(), "interrupted: nothing was written");
    if (rc)
        return session_fail(s, session_code(rc), "%s%s", *e.text ? e.text : strerror(-rc),
                            rc == -ENOENT ? "; name files of text" : "");
    return print_prepared(s, &p);
}

int verb_data_prepare(struct session *s, const struct arguments *a)
{
    return bench_guarded(s, a, prepare); /* there are temporary files to remove */
}

int verb_data_info(struct session *s, const struct arguments *a)
{
    struct kc_data_info i;
    struct kc_error e = {""};
    int rc = kc_data_info(a->word[0], &i, &e);
    if (rc)
        return session_fail(s, session_code(rc), "%s%s", *e.text ? e.text : strerror(-rc),
                            rc == -ENOENT ? "; make one with `kc data prepare --out DIR FILE…`" : "");
    if (s->json) {
        json_t *o = session_envelope(s), *first = json_array();
        for (uint32_t k = 0; k < i.first_count; k++)
            json_array_append_new(first, json_integer(i.first[k]));
        json_object_set_new(o, "path", session_text(a->word[0]));
        json_object_set_new(o, "magic", json_integer(i.magic));
        json_object_set_new(o, "version", json_integer(i.version));
        json_object_set_new(o, "tokens", json_integer((json_int_t)i.tokens));
        json_object_set_new(o, "bytes", json_integer((json_int_t)i.bytes));
        json_object_set_new(o, "token_bytes", json_integer(i.bytes_each));
        json_object_set_new(o, "kind", json_string(i.mask ? "mask" : "tokens"));
        json_object_set_new(o, "counted_tokens", i.mask ? json_integer((json_int_t)i.counted) : json_null());
        json_object_set_new(o, "largest_token", i.mask ? json_null() : json_integer(i.largest));
        json_object_set_new(o, "largest_token_at", i.mask ? json_null() : json_integer((json_int_t)i.largest_at));
        json_object_set_new(o, "distinct_tokens", i.mask ? json_null() : json_integer(i.distinct));
        json_object_set_new(o, "entropy_nats", i.mask ? json_null() : kc_json_number(i.entropy));
        json_object_set_new(o, "first_tokens", first);
        return session_emit(s, o);
    }
    fprintf(s->out, "file        %s, %llu bytes\n", a->word[0], (unsigned long long)i.bytes);
    fprintf(s->out, "format      %smagic %d, version %d, %u byte%s a token\n", i.mask ? "loss mask, " : "", i.magic,
            i.version, i.bytes_each, i.bytes_each == 1 ? "" : "s");
    if (i.mask) {
        fprintf(s->out, "tokens      %llu, of which %llu count (%.1f %%)\n", (unsigned long long)i.tokens,
                (unsigned long long)i.counted, 100 * (double)i.counted / (double)i.tokens);
        return KC_EXIT_OK;
    }
    fprintf(s->out, "tokens      %llu, of which %u are different; the largest is %u, at %llu\n",
            (unsigned long long)i.tokens, i.distinct, i.largest, (unsigned long long)i.largest_at);
    fprintf(s->out, "entropy     %.4f nats a token: what a model that knows only frequencies would lose\n",
            i.entropy);
    fprintf(s->out, "begins     ");
    for (uint32_t k = 0; k < i.first_count; k++)
        fprintf(s->out, " %u", i.first[k]);
    fputc('\n', s->out);
    return KC_EXIT_OK;
}
