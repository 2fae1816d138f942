/* verb_data.c - token files: made, and looked into. */
#include "report.h"
#include "session.h"
#include "text.h"
#include "verbs.h"

#include "base/suggest.h"
#include "jobs/data/prepare.h"
#include "jobs/data/tokenizer.h"
#include "jobs/data/tokens.h"
#include "supervisor/protocol.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int tokenizer_known(struct session *s, const char *name)
{
    const char *names[64];
    size_t n = 0;
    if (kc_tokenizer_find(name))
        return KC_EXIT_OK;
    while (n < 64 && (names[n] = kc_tokenizer_name(n)))
        n++;
    const char *near = kc_suggest(name, names, n);
    return session_fail(s, KC_EXIT_USAGE, "no tokenizer \"%.40s\". %s %s", name, near ? "Did you mean" : "There is",
                        near ? near : names[0]);
}

int verb_data_prepare(struct session *s, const struct arguments *a)
{
    const char *share = a->option[OPTION_VALIDATION] ? a->option[OPTION_VALIDATION] : "0.1";
    char *end = NULL, bytes[32];
    struct kc_prepare_request request = {
        .files = (const char *const *)a->word,
        .count = (size_t)a->words,
        .tokenizer = a->option[OPTION_TOKENIZER] ? a->option[OPTION_TOKENIZER] : "byte",
        .validation = strtod(share, &end),
        .out = a->option[OPTION_OUT],
    };
    struct kc_prepared p;
    struct kc_error e = {""};
    if (!request.out)
        return session_fail(s, KC_EXIT_USAGE, "where to? `kc data prepare --out DIR FILE…` writes DIR/train.bin and "
                            "DIR/val.bin");
    if (end == share || *end || !(request.validation >= 0 && request.validation <= 0.5))
        return session_fail(s, KC_EXIT_USAGE, "--validation wants a share from 0 to 0.5, not \"%.40s\"", share);
    int code = tokenizer_known(s, request.tokenizer);
    if (code)
        return code;
    int rc = kc_data_prepare(&request, &p, &e);
    if (rc)
        return session_fail(s, session_code(rc), "%s%s", *e.text ? e.text : strerror(-rc),
                            rc == -ENOENT ? "; name files of text" : "");
    if (s->json) {
        json_t *o = session_envelope(s);
        json_object_set_new(o, "train", session_text(p.train));
        json_object_set_new(o, "validation", session_text(p.validation));
        json_object_set_new(o, "vocab", json_integer(p.vocab));
        json_object_set_new(o, "files", json_integer(p.files));
        json_object_set_new(o, "text_bytes", json_integer((json_int_t)p.text_bytes));
        json_object_set_new(o, "train_tokens", json_integer((json_int_t)p.train_tokens));
        json_object_set_new(o, "validation_tokens", json_integer((json_int_t)p.validation_tokens));
        json_object_set_new(o, "distinct_tokens", json_integer(p.distinct));
        json_object_set_new(o, "train_entropy_nats", kc_json_number(p.train_entropy));
        json_object_set_new(o, "validation_cross_entropy_nats", kc_json_number(p.validation_cross_entropy));
        return session_emit(s, o);
    }
    fprintf(s->out, "text        %s in %u files\n", text_bytes((double)p.text_bytes, bytes, sizeof bytes), p.files);
    fprintf(s->out, "train       %s: %llu tokens\n", p.train, (unsigned long long)p.train_tokens);
    if (*p.validation)
        fprintf(s->out, "validation  %s: %llu tokens\n", p.validation, (unsigned long long)p.validation_tokens);
    fprintf(s->out, "vocabulary  %u, of which %u occur\n", p.vocab, p.distinct);
    fprintf(s->out, "entropy     %.4f nats a token: what a model that knows only frequencies would lose\n",
            p.train_entropy);
    return KC_EXIT_OK;
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
        json_object_set_new(o, "largest_token", json_integer(i.largest));
        json_object_set_new(o, "largest_token_at", json_integer((json_int_t)i.largest_at));
        json_object_set_new(o, "distinct_tokens", json_integer(i.distinct));
        json_object_set_new(o, "entropy_nats", kc_json_number(i.entropy));
        json_object_set_new(o, "first_tokens", first);
        return session_emit(s, o);
    }
    fprintf(s->out, "file        %s, %llu bytes\n", a->word[0], (unsigned long long)i.bytes);
    fprintf(s->out, "format      magic %d, version %d, %u bytes a token\n", i.magic, i.version, i.bytes_each);
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
