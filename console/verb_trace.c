/* verb_trace.c - kc trace: a digest of all that a step computes. */
#include "bench.h"
#include "trace_file.h"
#include "trace_make.h"
#include "text.h"
#include "verbs.h"

#include "base/print.h"
#include "supervisor/protocol.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static json_t *row_json(const struct kc_step_trace *t, const struct kc_traced *r)
{
    char digest[24];
    snprintf(digest, sizeof digest, "%016" PRIx64, r->digest);
    return json_pack("{s:I,s:I,s:o,s:o,s:o,s:s,s:o,s:o,s:I,s:s,s:o,s:o,s:o,s:I}", "rank", (json_int_t)t->rank, "instruction",
                     (json_int_t)r->instruction, "op", session_text(KC_TEXT(t, r->op)), "what", session_text(KC_TEXT(t, r->what)),
                     "tensor", session_text(KC_TEXT(t, r->tensor)), "when", kc_traced_name[r->when], "layer",
                     r->layer < 0 ? json_null() : json_integer(r->layer), "micro", json_integer(r->micro), "count",
                     (json_int_t)r->count, "digest", digest, "sum", kc_json_number(r->sum), "squares", kc_json_number(r->squares),
                     "largest", kc_json_number(r->largest), "nonfinite", (json_int_t)r->nonfinite);
}

static void print_row(FILE *out, const struct kc_step_trace *t, const struct kc_traced *r)
{
    char layer[16] = "-";
    if (r->layer >= 0)
        snprintf(layer, sizeof layer, "%d", r->layer);
    fprintf(out, "%4u %5u %-24s %5s %5u  %-5s %-10s %-40s %10" PRIu64 "  %016" PRIx64 " %12.5g %12.5g", t->rank, r->instruction,
            KC_TEXT(t, r->op), layer, r->micro, r->when == KC_TRACED_NOT ? "-" : kc_traced_name[r->when], KC_TEXT(t, r->what),
            KC_TEXT(t, r->tensor), r->count, r->digest, r->sum, r->largest);
    if (r->nonfinite)
        fprintf(out, "  %" PRIu64 " not finite", r->nonfinite);
    fputc('\n', out);
}

static uint64_t rows_of(const struct trace *t)
{
    uint64_t n = 0;
    for (uint32_t r = 0; r < t->ranks; r++)
        n += t->rank[r]->rows.count;
    return n;
}

static int emit(struct session *s, const char *job, const char *path, const struct trace_made *made, const struct trace *t, bool digests)
{
    json_t *o = session_envelope(s), *rows = json_array();
    for (uint32_t r = 0; r < t->ranks && digests; r++)
        for (uint32_t i = 0; i < t->rank[r]->rows.count; i++)
            json_array_append_new(rows, row_json(t->rank[r], &trace_rows(t->rank[r])[i]));
    json_object_set_new(o, "job", json_string(job));
    json_object_set_new(o, "step", json_integer((json_int_t)t->rank[0]->step));
    json_object_set_new(o, "file", session_text(path));
    json_object_set_new(o, "from_version", made->version ? json_integer((json_int_t)made->version) : json_null());
    json_object_set_new(o, "loss", kc_json_number(made->loss));
    json_object_set_new(o, "same_loss", json_boolean(!made->other));
    json_object_set_new(o, "ranks", json_integer(t->ranks));
    json_object_set_new(o, "rows", json_integer((json_int_t)rows_of(t)));
    json_object_set_new(o, "digests", digests ? json_incref(rows) : json_null());
    json_decref(rows);
    return session_emit(s, o);
}

static int print(struct session *s, const char *job, const char *path, const struct trace_made *made, const struct trace *t, bool digests)
{
    struct draft page;
    char from[32] = "the beginning";
    FILE *out = draft_open(&page);
    if (digests)
        fprintf(out, "RANK     # %-24s LAYER MICRO  WHEN  %-10s %-40s %10s  %-16s %12s %12s\n", "OP", "WHAT", "TENSOR", "COUNT",
                "DIGEST", "SUM", "LARGEST");
    for (uint32_t r = 0; r < t->ranks && digests; r++)
        for (uint32_t i = 0; i < t->rank[r]->rows.count; i++)
            print_row(out, t->rank[r], &trace_rows(t->rank[r])[i]);
    if (made->version)
        snprintf(from, sizeof from, "v%08" PRIu64, made->version);
    fprintf(out, "%s  step %" PRIu64 " of %s, from %s: loss %.9g, %u rank%s, %" PRIu64 " rows\n", path, t->rank[0]->step, job, from,
            made->loss, t->ranks, kc_plural(t->ranks), rows_of(t));
    return draft_close(s, &page);
}

static int trace(struct session *s, const struct arguments *a)
{
    char path[PATH_MAX];
    const char *text = a->option[OPTION_STEP], *job = a->word[0];
    char *end = NULL;
    struct trace_made made;
    struct trace t = {0};
    struct kc_error e = {""};
    if (!text)
        return session_fail(s, KC_EXIT_USAGE, "trace wants a step. An example: kc trace %s --step 100 --digest", job);
    errno = 0;
    const unsigned long long step = strtoull(text, &end, 10);
    if (*end || errno || *text == '-' || step == 0)
        return session_fail(s, KC_EXIT_USAGE, "--step wants a step, from 1, not \"%.40s\"", text);
    if (a->option[OPTION_OUT])
        snprintf(path, sizeof path, "%s", a->option[OPTION_OUT]);
    else
        snprintf(path, sizeof path, "%s-step-%llu.trace", job, step);
    int code = trace_make(s, job, step, path, &made);
    int rc = code ? 0 : trace_load(path, &t, &e);
    if (rc)
        code = session_fail(s, session_code(rc), "%s", e.text);
    const bool digests = a->option[OPTION_DIGEST] != NULL;
    if (!code)
        code = s->json ? emit(s, job, path, &made, &t, digests) : print(s, job, path, &made, &t, digests);
    trace_free(&t);
    if (!code && made.other)
        code = KC_EXIT_INCOMPLETE;
    return code;
}

int verb_trace(struct session *s, const struct arguments *a)
{
    return bench_guarded(s, a, trace);
}
