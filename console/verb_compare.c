/* verb_compare.c - kc compare: where two runs, or two layouts, differ first. */
#include "bench.h"
#include "losses.h"
#include "model.h"
#include "text.h"
#include "trace_compare.h"
#include "trace_make.h"
#include "verbs.h"

#include "base/arena.h"
#include "contracts/job_spec.h"
#include "govern/spec.h"
#include "supervisor/protocol.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What a word names: a trace in a file, a step of a job, or a job. */
struct side {
    const char *word;
    char job[JOB_ID_ROOM]; /* "" a file */
    uint64_t step;         /* 0: of a job none in particular */
    struct trace trace;
    bool other;            /* traced for this, and not what the job did at that step */
};

struct comparison {
    struct session *s;
    struct side side[2];
    double tolerance; /* NaN: not said */
};

/* ---- the words ---- */

static int read_side(struct session *s, const char *word, struct side *out)
{
    const char *at = strrchr(word, '@');
    struct job j;
    char *end = NULL;
    *out = (struct side){.word = word};
    const size_t length = at ? (size_t)(at - word) : strlen(word);
    if (length == 0 || length >= sizeof out->job || strchr(word, '/') || (at && access(word, R_OK) == 0))
        return KC_EXIT_OK; /* a file */
    snprintf(out->job, sizeof out->job, "%.*s", (int)length, word);
    out->step = at ? strtoull(at + 1, &end, 10) : 0;
    if (at && (*end || !out->step))
        return session_fail(s, KC_EXIT_USAGE, "\"%.80s\": a step from 1 is expected behind the @: %s@100", word, out->job);
    struct kc_error e = {""};
    int rc = job_read(&s->home, out->job, &j, &e);
    if (rc == 0)
        job_free(&j);
    else if (!at && access(word, R_OK) == 0)
        out->job[0] = 0;
    else
        return session_fail(s, session_code(rc), "%s", e.text);
    return KC_EXIT_OK;
}

/* A file, or a trace that is made for this and gone afterwards. */
static int load(struct session *s, struct side *side)
{
    char path[PATH_MAX];
    struct trace_made made;
    struct kc_error e = {""};
    int code = KC_EXIT_OK;
    snprintf(path, sizeof path, "%s", side->word);
    if (side->job[0]) {
        snprintf(path, sizeof path, "%s/compare.XXXXXX", s->home.home);
        int fd = mkstemp(path);
        if (fd < 0)
            return session_fail(s, KC_EXIT_SYSTEM, "%s: no file can be made: %s", s->home.home, strerror(errno));
        close(fd);
        code = trace_make(s, side->job, side->step, path, &made);
        side->other = !code && made.other;
    }
    int rc = code ? 0 : trace_load(path, &side->trace, &e);
    if (side->job[0])
        unlink(path);
    return rc ? session_fail(s, session_code(rc), "%s", e.text) : code;
}

/* ---- two traces ---- */

static json_t *side_json(const struct trace *t, const struct trace_side *side)
{
    char digest[24];
    snprintf(digest, sizeof digest, "%016" PRIx64, side->digest);
    return json_pack("{s:s,s:I,s:o,s:o,s:o,s:I,s:s}", "digest", digest, "count", (json_int_t)side->count, "sum",
                     kc_json_number(side->sum), "squares", kc_json_number(side->squares), "largest", kc_json_number(side->largest),
                     "nonfinite", (json_int_t)side->nonfinite, "op", KC_TEXT(t->rank[side->rank], side->row->op));
}

static json_t *first_json(const struct comparison *c, const struct trace_difference *d)
{
    const struct trace *t = &c->side[0].trace;
    const struct kc_step_trace *of = t->rank[d->a.rank];
    const struct kc_traced *r = d->a.row;
    return json_pack("{s:I,s:I,s:I,s:o,s:o,s:o,s:o,s:I,s:s,s:o,s:o,s:o}", "step", (json_int_t)of->step, "rank", (json_int_t)of->rank,
                     "instruction", (json_int_t)r->instruction, "op", session_text(KC_TEXT(of, r->op)), "what",
                     session_text(KC_TEXT(of, r->what)), "tensor", session_text(KC_TEXT(of, r->tensor)), "layer",
                     r->layer < 0 ? json_null() : json_integer(r->layer), "micro", (json_int_t)r->micro, "when", kc_traced_name[r->when],
                     "relative", kc_json_number(d->relative), "a", side_json(t, &d->a), "b", side_json(&c->side[1].trace, &d->b));
}

static int emit(const struct comparison *c, const struct trace_difference *d)
{
    json_t *o = session_envelope(c->s);
    json_object_set_new(o, "same", json_boolean(d->same));
    json_object_set_new(o, "by", json_string(d->bits ? "bits" : "figures"));
    json_object_set_new(o, "tolerance", kc_json_number(d->tolerance));
    json_object_set_new(o, "step", json_integer((json_int_t)c->side[0].trace.rank[0]->step));
    json_object_set_new(o, "compared", json_integer(d->compared));
    json_object_set_new(o, "left_out", json_integer(d->left_out));
    json_object_set_new(o, "differ", json_integer(d->differ));
    json_object_set_new(o, "first", d->same ? json_null() : first_json(c, d));
    return session_emit(c->s, o);
}

static void print_trace(FILE *out, const char *name, const struct side *side)
{
    const struct kc_step_trace *t = side->trace.rank[0];
    fprintf(out, "%s  %s: step %" PRIu64 ", %u rank%s (", name, side->word, t->step, t->ranks, t->ranks == 1 ? "" : "s");
    for (int a = 0; a < KC_AXES; a++)
        if (t->axis[a] > 1)
            fprintf(out, "%s %u, ", kc_axis_name[a], t->axis[a]);
    fprintf(out, "zero %u, %u micro-batch%s), %s\n", t->zero, t->micro_batches, t->micro_batches == 1 ? "" : "es", KC_TEXT(t, t->variant));
}

static void print_first(FILE *out, const struct comparison *c, const struct trace_difference *d)
{
    const struct kc_step_trace *of = c->side[0].trace.rank[d->a.rank];
    const struct kc_traced *r = d->a.row;
    char layer[32] = "no layer";
    if (r->layer >= 0)
        snprintf(layer, sizeof layer, "layer %d", r->layer);
    fprintf(out, "\nfirst difference: step %" PRIu64 ", rank %u, %s (instruction %u), %s %s, %s, micro-batch %u\n", of->step, of->rank,
            KC_TEXT(of, r->op), r->instruction, KC_TEXT(of, r->what), KC_TEXT(of, r->tensor), layer, r->micro);
    fprintf(out, "%-11s %22s %22s\n", "", "A", "B");
    fprintf(out, "%-11s       %016" PRIx64 "       %016" PRIx64 "\n", "digest", d->a.digest, d->b.digest);
    fprintf(out, "%-11s %22.15g %22.15g\n%-11s %22.15g %22.15g\n%-11s %22.15g %22.15g\n", "sum", d->a.sum, d->b.sum, "squares",
            d->a.squares, d->b.squares, "largest", d->a.largest, d->b.largest);
    fprintf(out, "%-11s %22" PRIu64 " %22" PRIu64 "\n", "not finite", d->a.nonfinite, d->b.nonfinite);
    if (!isnan(d->relative))
        fprintf(out, "%-11s %22.3g   (%.3g may be)\n", "relative", d->relative, d->tolerance);
    if (r->when == KC_TRACED_FOUND && of->step > 1)
        fprintf(out, "the step found it so: what made it differ came before. Compare step %" PRIu64 "\n", of->step - 1);
}

static int print(const struct comparison *c, const struct trace_difference *d)
{
    struct draft page;
    FILE *out = draft_open(&page);
    char how[64];
    print_trace(out, "A", &c->side[0]);
    print_trace(out, "B", &c->side[1]);
    snprintf(how, sizeof how, d->bits ? "bit by bit" : "by their figures, within %.3g", d->tolerance);
    if (d->same)
        fprintf(out, "the same: %u %s, compared %s", d->compared, d->bits ? "operands" : "tensors", how);
    else
        fprintf(out, "%u of %u %s differ, compared %s", d->differ, d->compared, d->bits ? "operands" : "tensors", how);
    if (d->left_out)
        fprintf(out, "; %u more can't be compared: only one has them, or in parts that are no whole", d->left_out);
    fputc('\n', out);
    if (!d->same)
        print_first(out, c, d);
    return draft_close(c->s, &page);
}

static int compare_traces(struct comparison *c)
{
    struct trace_difference d;
    int code = load(c->s, &c->side[0]);
    if (!code && c->side[1].job[0] && !c->side[1].step)
        c->side[1].step = c->side[0].trace.rank[0]->step;
    if (!code)
        code = load(c->s, &c->side[1]);
    if (!code && c->side[0].trace.rank[0]->step != c->side[1].trace.rank[0]->step)
        session_note(c->s, "these are different steps: %" PRIu64 " and %" PRIu64, c->side[0].trace.rank[0]->step,
                     c->side[1].trace.rank[0]->step);
    if (!code && trace_compare(&c->side[0].trace, &c->side[1].trace, c->tolerance, &d))
        code = session_fail(c->s, KC_EXIT_SYSTEM, "no memory to compare these traces");
    if (!code)
        code = c->s->json ? emit(c, &d) : print(c, &d);
    return code ? code : d.same ? KC_EXIT_OK : KC_EXIT_FALSE;
}

/* ---- two jobs ---- */

/* Do both sum in the same order? Then their losses are the same to the bit, or something differs. */
static int same_layout(struct session *s, const char *directory[2], bool *out)
{
    const struct kc_job_spec *spec[2];
    struct kc_arena arena[2] = {{0}, {0}};
    struct kc_error e = {""};
    int rc = 0;
    for (int i = 0; i < 2 && !rc; i++) {
        char path[JOB_PATH_ROOM + 16];
        snprintf(path, sizeof path, "%s/spec.json", directory[i]);
        rc = kc_arena_new(&arena[i], 2 * KC_SPEC_BYTES_MAX);
        if (!rc)
            rc = kc_spec_load(path, &arena[i], &spec[i], &e);
    }
    if (!rc)
        *out = !memcmp(spec[0]->axis, spec[1]->axis, sizeof spec[0]->axis) && spec[0]->zero == spec[1]->zero &&
               spec[0]->micro == spec[1]->micro && spec[0]->sequence == spec[1]->sequence && spec[0]->chunks == spec[1]->chunks &&
               spec[0]->precision == spec[1]->precision && !memcmp(spec[0]->algorithm, spec[1]->algorithm, sizeof spec[0]->algorithm);
    kc_arena_free(&arena[0]);
    kc_arena_free(&arena[1]);
    return rc ? session_fail(s, session_code(rc), "%s", e.text[0] ? e.text : strerror(-rc)) : KC_EXIT_OK;
}

struct losses_difference {
    uint64_t step, compared; /* step 0: there is none */
    double a, b, tolerance;  /* tolerance 0: not a bit */
};

static void find_loss(const struct losses *a, const struct losses *b, double tolerance, struct losses_difference *out)
{
    *out = (struct losses_difference){.tolerance = tolerance};
    for (uint64_t step = 0; step < a->room && step < b->room && !out->step; step++) {
        if (!a->known[step] || !b->known[step])
            continue;
        const double x = a->loss[step], y = b->loss[step];
        out->compared++;
        if (!losses_same(x, y) && !(fabs(x - y) <= tolerance * fmax(fabs(x), fabs(y))))
            out->step = step, out->a = x, out->b = y;
    }
}

static int tell_losses(const struct comparison *c, const struct losses_difference *d)
{
    const char *a = c->side[0].job, *b = c->side[1].job;
    if (c->s->json) {
        json_t *o = session_envelope(c->s);
        json_object_set_new(o, "same", json_boolean(d->step == 0));
        json_object_set_new(o, "by", json_string("losses"));
        json_object_set_new(o, "tolerance", kc_json_number(d->tolerance));
        json_object_set_new(o, "step", d->step ? json_integer((json_int_t)d->step) : json_null());
        json_object_set_new(o, "compared", json_integer((json_int_t)d->compared));
        json_object_set_new(o, "a", d->step ? kc_json_number(d->a) : json_null());
        json_object_set_new(o, "b", d->step ? kc_json_number(d->b) : json_null());
        return session_emit(c->s, o);
    }
    FILE *out = c->s->out;
    char within[48] = "to the bit";
    if (d->tolerance > 0)
        snprintf(within, sizeof within, "within %.3g", d->tolerance);
    if (!d->step)
        fprintf(out, "the same: %" PRIu64 " losses of %s and %s, %s\n", d->compared, a, b, within);
    else
        fprintf(out, "first difference: step %" PRIu64 ": the loss of %s is %.17g, of %s %.17g (%.3g of it; the same %s before: %" PRIu64
                ")\nfind where: kc compare %s@%" PRIu64 " %s@%" PRIu64 "\n", d->step, a, d->a, b, d->b, fabs(d->a - d->b) / fabs(d->a),
                within, d->compared - 1, a, d->step, b, d->step);
    return session_written(c->s);
}

static int compare_losses(struct comparison *c)
{
    struct job j[2];
    struct losses l[2] = {{NULL, NULL, 0}, {NULL, NULL, 0}};
    struct losses_difference d = {0};
    struct kc_error e = {""};
    int rc = job_read(&c->s->home, c->side[0].job, &j[0], &e), code;
    if (rc)
        return session_fail(c->s, session_code(rc), "%s", e.text);
    rc = job_read(&c->s->home, c->side[1].job, &j[1], &e);
    if (rc) {
        job_free(&j[0]);
        return session_fail(c->s, session_code(rc), "%s", e.text);
    }
    bool same = false;
    code = same_layout(c->s, (const char *[]){j[0].directory, j[1].directory}, &same);
    for (int i = 0; i < 2 && !code; i++)
        if ((rc = losses_read(j[i].directory, j[i].steps, &l[i], &e)))
            code = session_fail(c->s, session_code(rc), "%s", e.text);
    if (!code)
        find_loss(&l[0], &l[1], !isnan(c->tolerance) ? c->tolerance : same ? 0 : TRACE_TOLERANCE, &d);
    if (!code && !d.compared)
        code = session_fail(c->s, KC_EXIT_INCOMPLETE, "%s and %s have no step in common yet", j[0].id, j[1].id);
    if (!code)
        code = tell_losses(c, &d);
    for (int i = 0; i < 2; i++) {
        losses_free(&l[i]);
        job_free(&j[i]);
    }
    return code ? code : d.step ? KC_EXIT_FALSE : KC_EXIT_OK;
}

static int compare(struct session *s, const struct arguments *a)
{
    struct comparison c = {.s = s, .tolerance = NAN};
    const char *text = a->option[OPTION_TOLERANCE];
    char *end = NULL;
    if (text && (c.tolerance = strtod(text, &end), end == text || *end || !(c.tolerance >= 0 && c.tolerance <= 1)))
        return session_fail(s, KC_EXIT_USAGE, "--tolerance wants a share from 0 to 1, as 1e-4, not \"%.40s\"", text);
    int code = read_side(s, a->word[0], &c.side[0]);
    if (!code)
        code = read_side(s, a->word[1], &c.side[1]);
    struct side *x = &c.side[0], *y = &c.side[1];
    if (!code && x->job[0] && !x->step && y->step) /* a job beside a step of another: the same step */
        x->step = y->step;
    if (!code && x->job[0] && !x->step && !y->job[0])
        code = session_fail(s, KC_EXIT_USAGE, "which step of %s? kc compare %s@STEP %s", x->job, x->job, y->word);
    if (!code)
        code = c.side[0].job[0] && !c.side[0].step ? compare_losses(&c) : compare_traces(&c);
    trace_free(&c.side[0].trace);
    trace_free(&c.side[1].trace);
    if (!code && (c.side[0].other || c.side[1].other))
        code = KC_EXIT_INCOMPLETE;
    return code;
}

int verb_compare(struct session *s, const struct arguments *a)
{
    return bench_guarded(s, a, compare);
}
