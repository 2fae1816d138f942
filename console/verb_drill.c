/* verb_drill.c - kc drill: faults on purpose, and what becomes of them. */
#include "bench.h"
#include "drill.h"
#include "text.h"
#include "verbs.h"

#include "base/clock.h"
#include "supervisor/protocol.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

#define AT_ONCE_MOST 64
#define NAME 26
#define SAID 36

struct telling {
    struct session *s;
    const struct drill_set *set;
    size_t told, right;
    double slowest_death, slowest_hang; /* seconds; of a hang, behind its limit */
    json_t *list; /* with --json */
};

/* ---- one drill ---- */

static const char *root_word(const struct drill *d, const struct drill_seen *seen, const char *reference)
{
    if (!d->same_root || !reference[0] || !seen->root[0])
        return "-";
    return strcmp(seen->root, reference) == 0 ? "same" : "differs";
}

static json_t *said_json(const struct drill_said *said)
{
    json_t *o = json_pack("{s:o, s:[]}", "word", session_text(said->word), "ranks");
    for (size_t i = 0; i < said->ranks; i++)
        json_array_append_new(json_object_get(o, "ranks"), json_integer(said->rank[i]));
    return o;
}

static json_t *expected_json(const struct drill *d)
{
    json_t *o = json_pack("{s:s}", "end", drill_end_name[d->end]);
    const struct {
        const char *key;
        const json_t *value;
    } of[] = {{"verdict", d->verdict}, {"fault", d->fault}, {"event", d->event}, {"without", d->without}, {"ranks", d->ranks}};
    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        json_object_set_new(o, of[i].key, of[i].value ? json_deep_copy(of[i].value) : json_null());
    json_object_set_new(o, "root", d->same_root ? json_string("same") : json_null());
    return o;
}

static json_t *drill_json(const struct drill *d, const struct drill_seen *s, const char *reference, bool right, const char *why)
{
    json_t *got = json_pack("{s:[], s:o, s:o, s:o, s:o}", "verdicts", "fault", said_json(&s->fault), "event", said_json(&s->event),
                            "end", session_text(s->end), "root", session_text(root_word(d, s, reference)));
    for (size_t i = 0; i < s->verdicts; i++)
        json_array_append_new(json_object_get(got, "verdicts"), said_json(&s->verdict[i]));
    return json_pack("{s:s, s:s, s:o, s:o, s:O, s:o, s:o, s:o, s:o, s:o, s:{s:i, s:i, s:i}, s:b, s:o}", "name", d->name, "layout", d->layout,
                     "cases", d->cases ? json_deep_copy(d->cases) : json_array(), "job", session_text(s->id), "inject", json_object_get(d->spec, "inject"), "expected", expected_json(d), "got",
                     got, "detected_seconds", kc_json_number(s->detected), "limit_seconds", kc_json_number(s->limit), "detected_by", session_text(s->by), "left", "processes",
                     (int)s->processes, "segments", (int)s->segments, "files", (int)s->files, "right", (int)right, "why",
                     session_text(why));
}

static void print_row(const struct telling *t, const struct drill *d, const struct drill_seen *s, const char *reference, bool right,
                      const char *why)
{
    char expected[256], got[256], found[32], left[32] = "nothing";
    drill_expected_text(d, expected, sizeof expected);
    drill_got_text(d, s, got, sizeof got);
    if (s->processes + s->segments + s->files)
        snprintf(left, sizeof left, "%zu", s->processes + s->segments + s->files);
    fprintf(t->s->out, "%-*s %-*s %-*s %9s  %-11s %-8s %-7s %s%s%s\n", NAME, d->name, SAID, expected, SAID, got,
            bench_seconds(s->detected, found, sizeof found), s->end[0] ? s->end : "-", left, root_word(d, s, reference),
            right ? "right" : "WRONG", *why ? ": " : "", why);
    fflush(t->s->out);
}

static void print_head(const struct session *s)
{
    fprintf(s->out, "%-*s %-*s %-*s %9s  %-11s %-8s %-7s\n", NAME, "drill", SAID, "expected", SAID, "got", "found in", "ended", "left",
            "state");
}

static void tell(void *self, const struct drill *d, const struct drill_seen *s, const char *reference)
{
    struct telling *t = self;
    char why[300];
    const bool right = drill_judge(d, s, reference, why, sizeof why);
    if (!t->told++ && !t->s->json)
        print_head(t->s);
    t->right += right;
    if (strcmp(s->by, "rank-exit") == 0 && s->detected > t->slowest_death)
        t->slowest_death = s->detected;
    if (strcmp(s->by, "hang") == 0 && s->detected - s->limit > t->slowest_hang)
        t->slowest_hang = s->detected - s->limit;
    if (t->s->json)
        json_array_append_new(t->list, drill_json(d, s, reference, right, why));
    else
        print_row(t, d, s, reference, right, why);
}

/* ---- all of them ---- */

static int run(struct session *s, const struct drill_set *set, uint32_t at_once)
{
    struct own_kcd k = {.s = s};
    struct telling t = {.s = s, .set = set, .list = json_array()};
    const uint64_t begin = kc_now();
    int code = own_kcd_make(&k, s, "drill");
    if (!code)
        code = own_kcd_tokens(&k, "train.bin", set->tokens, set->vocab);
    if (!code)
        code = own_kcd_start(&k, "--allow-drills");
    if (!code)
        code = drill_run(&k, set, at_once, tell, &t);
    own_kcd_end(&k, code != KC_EXIT_OK);
    own_kcd_remove(&k);
    const double seconds = (double)(kc_now() - begin) * 1e-9;
    if (!code && s->json) {
        json_t *o = session_envelope(s);
        json_object_set(o, "drills", t.list);
        json_object_set_new(o, "right", json_integer((json_int_t)t.right));
        json_object_set_new(o, "wrong", json_integer((json_int_t)(t.told - t.right)));
        json_object_set_new(o, "seconds", json_real(seconds));
        code = session_emit(s, o);
    } else if (!code) {
        char death[32], hang[32], all[32];
        fprintf(s->out, "%zu drills, %zu right, %zu wrong, in %s; a death was known after %s at most, a hang %s after its limit\n", t.told,
                t.right, t.told - t.right, text_seconds(seconds, all, sizeof all),
                t.slowest_death > 0 ? bench_seconds(t.slowest_death, death, sizeof death) : "-",
                t.slowest_hang > 0 ? bench_seconds(t.slowest_hang, hang, sizeof hang) : "-");
    }
    json_decref(t.list);
    return code ? code : t.right == t.told ? KC_EXIT_OK : KC_EXIT_FALSE;
}

/* --dry-run: what there is. */
static int list(struct session *s, const struct drill_set *set)
{
    json_t *o = session_envelope(s), *all = json_array();
    for (size_t i = 0; i < set->count; i++) {
        const struct drill *d = &set->drill[i];
        char expected[256];
        drill_expected_text(d, expected, sizeof expected);
        if (s->json)
            json_array_append_new(all, json_pack("{s:s, s:s, s:O, s:o}", "name", d->name, "layout", d->layout, "inject",
                                                 json_object_get(d->spec, "inject"), "expected", expected_json(d)));
        else
            fprintf(s->out, "%-*s %-10s %s; %s%s\n", NAME, d->name, d->layout, expected, drill_end_name[d->end],
                    d->same_root ? ", same state" : "");
    }
    json_object_set_new(o, "drills", all);
    if (s->json)
        return session_emit(s, o);
    json_decref(o);
    return KC_EXIT_OK;
}

static int drill(struct session *s, const struct arguments *a)
{
    char path[PATH_MAX + 64];
    struct drill_set set;
    struct kc_error e = {""};
    uint32_t at_once = 2;
    if (bench_whole(s, a, OPTION_AT_ONCE, 1, AT_ONCE_MOST, (uint32_t)sysconf(_SC_NPROCESSORS_ONLN), &at_once))
        return KC_EXIT_USAGE;
    drill_set_path(path, sizeof path);
    int rc = drill_set_read(a->words ? a->word[0] : path, a->option[OPTION_ONLY], &set, &e);
    if (rc)
        return session_fail(s, rc == -EINVAL ? KC_EXIT_INVALID : session_code(rc), "%s", e.text);
    int code = KC_EXIT_OK;
    if (a->option[OPTION_DRY_RUN])
        code = list(s, &set);
    else if (!(code = bench_program(s, "kcd")) && !(code = bench_program(s, "kc-rank")) && !(code = bench_home(s)))
        code = run(s, &set, at_once);
    drill_set_free(&set);
    return code;
}

int verb_drill(struct session *s, const struct arguments *a)
{
    return bench_guarded(s, a, drill);
}
