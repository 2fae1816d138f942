/* verb_snap_prove.c - kc snap prove: the steps after a snapshot once more, apart from the job, and whether they give the same. */
#include "bench.h"
#include "losses.h"
#include "rollbacks.h"
#include "scratch.h"
#include "verbs.h"

#include "base/clock.h"
#include "supervisor/protocol.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct proof {
    struct session *s;
    const struct job *job;
    struct losses losses;
    const struct kc_snapshot_info *from, *to; /* from NULL: the beginning; to NULL: one step, to no snapshot */
    uint64_t first, until;                    /* steps that are compared */
    uint64_t compared;                        /* losses that were the same */
    uint64_t differs;                         /* the step; 0 none */
    double ours, theirs;                      /* its loss: of the job, of the replay */
    bool root_differs;
    char root[33];                            /* of the replay at `to` */
    double seconds;
};

/* ---- from which snapshot to which ---- */

static const struct kc_snapshot_info *whole_after(const struct snapshots *l, uint64_t version)
{
    for (size_t i = 0; i < l->count; i++)
        if (l->info[i].version > version && !l->info[i].error)
            return &l->info[i];
    return NULL;
}

static const struct kc_snapshot_info *whole_before(const struct snapshots *l, uint64_t version)
{
    for (size_t i = l->count; i-- > 0;)
        if (l->info[i].version < version && !l->info[i].error)
            return &l->info[i];
    return NULL;
}

static const struct kc_snapshot_info *whole_at(const struct snapshots *l, uint64_t version)
{
    for (size_t i = 0; i < l->count; i++)
        if (l->info[i].version == version && !l->info[i].error)
            return &l->info[i];
    return NULL;
}

/* The second newest whole version and the newest; the newest alone and the step after it; or what --from says. */
static int choose(struct proof *p, const struct snapshots *l, const char *from)
{
    const struct kc_snapshot_info *newest = whole_before(l, UINT64_MAX);
    char *end = NULL;
    const uint64_t version = from ? strtoull(from + (*from == 'v'), &end, 10) : 0;
    if (from && (!*from || *end))
        return session_fail(p->s, KC_EXIT_USAGE, "--from wants a version, 3 or v00000003, or 0 for the beginning, not \"%.40s\"", from);
    if (!newest)
        return session_fail(p->s, KC_EXIT_NO_OBJECT, "%s has no snapshot yet. Write one: kc checkpoint %s", p->job->id, p->job->id);
    if (from && version && !whole_at(l, version))
        return session_fail(p->s, KC_EXIT_NO_OBJECT, "%s has no whole snapshot of version %llu. `kc snap ls %s` lists those there are",
                            p->job->id, (unsigned long long)version, p->job->id);
    if (from)
        p->from = version ? whole_at(l, version) : NULL;
    else
        p->from = whole_before(l, newest->version) ? whole_before(l, newest->version) : newest;
    p->to = whole_after(l, p->from ? p->from->version : 0);
    p->first = p->from ? p->from->step + 1 : 1;
    p->until = p->to ? p->to->step : p->first;
    return KC_EXIT_OK;
}

/* Samples that a rollback left out stand in the next snapshot, and there alone. Behind a rollback that no snapshot of these steps
 * tells, the replay would train others than the job did: it is compared up to there, or not at all. */
static int look_at_rollbacks(struct proof *p)
{
    struct kc_error e = {""};
    struct rollbacks r;
    int rc = rollbacks_read(p->job->directory, p->first - 1, &r, &e);
    if (rc)
        return session_fail(p->s, session_code(rc), "%s", e.text);
    if (r.at && (!p->to || r.next < p->until))
        return session_fail(p->s, KC_EXIT_INCOMPLETE,
                            "%s went back to step %llu because a step was not finite, and which samples it left out since no snapshot "
                            "tells yet: nothing after that step can be proved until %s. kc checkpoint %s writes a snapshot, or prove "
                            "--from another one (0: the beginning)", p->job->id, (unsigned long long)p->first - 1,
                            p->to ? "another one is there" : "the next one is written", p->job->id);
    if (r.next < p->until) {
        session_note(p->s, "%s went back to step %llu because a step was not finite: what is proved ends there", p->job->id,
                     (unsigned long long)r.next);
        p->until = r.next;
        p->to = NULL;
    }
    return KC_EXIT_OK;
}

/* What the replay is compared with must be known. */
static int look_at_losses(struct proof *p)
{
    struct kc_error e = {""};
    int rc = losses_read(p->job->directory, p->job->steps, &p->losses, &e);
    if (rc)
        return session_fail(p->s, session_code(rc), "%s", e.text);
    for (uint64_t step = p->first; step <= p->until; step++)
        if (!losses_has(&p->losses, step))
            return p->to ? session_fail(p->s, KC_EXIT_INCOMPLETE, "metrics.jsonl of %s has no loss of step %llu", p->job->id,
                                        (unsigned long long)step)
                         : session_fail(p->s, KC_EXIT_INCOMPLETE,
                                        "%s has trained no step after its newest snapshot, v%08llu: kc wait %s --for 'step>=%llu', or "
                                        "--from an older one (0: the beginning)", p->job->id, (unsigned long long)p->from->version,
                                        p->job->id, (unsigned long long)step);
    return KC_EXIT_OK;
}

/* ---- the replay ---- */

static bool on_step(void *self, uint64_t step, double loss)
{
    struct proof *p = self;
    bench_progress(p->s, "step %llu, to %llu", (unsigned long long)step,
                   (unsigned long long)p->until);
    if (losses_has(&p->losses, step) && losses_same(p->losses.loss[step], loss)) {
        p->compared++;
        return true;
    }
    p->differs = step;
    p->ours = losses_has(&p->losses, step) ? p->losses.loss[step] : NAN;
    p->theirs = loss;
    return false;
}

static int prove(struct proof *p, struct scratch *sc)
{
    struct scratch_run run = {.version = p->from ? p->from->version : 0, .until = p->until, .step = on_step, .self = p};
    const uint64_t start = kc_now();
    if (p->first > p->until)
        return session_fail(p->s, KC_EXIT_REFUSED, "no step lies between v%08llu and v%08llu", (unsigned long long)p->from->version,
                            (unsigned long long)p->to->version);
    int code = p->to ? scratch_same_layout(sc, p->to) : KC_EXIT_OK;
    if (!code)
        code = scratch_position(sc, p->from, p->to, &run.position);
    if (!code)
        code = scratch_run(sc, &run);
    bench_progress_end(p->s);
    p->seconds = (double)(kc_now() - start) * 1e-9;
    if (code)
        return code;
    if (!p->differs && !run.whole)
        return session_fail(p->s, KC_EXIT_SYSTEM, "the replay ended before step %llu", (unsigned long long)p->until);
    snprintf(p->root, sizeof p->root, "%s", run.root);
    p->root_differs = !p->differs && p->to && strcmp(run.root, p->to->state_root) != 0;
    return KC_EXIT_OK;
}

/* ---- saying so ---- */

static json_t *snapshot_json(const struct kc_snapshot_info *i)
{
    return i ? json_pack("{s:I,s:I,s:s}", "version", (json_int_t)i->version, "step", (json_int_t)i->step, "state_root", i->state_root)
             : json_null();
}

/* A text: it is about the last bit, and numbers have nine digits. */
static json_t *bits_json(double loss)
{
    char text[32];
    snprintf(text, sizeof text, "%.17g", loss);
    return isfinite(loss) ? json_string(text) : json_null();
}

static int emit(const struct proof *p)
{
    json_t *o = session_envelope(p->s), *difference = json_null();
    if (p->differs)
        difference = json_pack("{s:s,s:I,s:o,s:o}", "what", "loss", "step", (json_int_t)p->differs, "job", bits_json(p->ours),
                               "replay", bits_json(p->theirs));
    else if (p->root_differs)
        difference = json_pack("{s:s,s:I,s:s,s:s}", "what", "state_root", "step", (json_int_t)p->until, "job", p->to->state_root,
                               "replay", p->root);
    json_object_set_new(o, "job", json_string(p->job->id));
    json_object_set_new(o, "proved", json_boolean(!p->differs && !p->root_differs));
    json_object_set_new(o, "from", snapshot_json(p->from));
    json_object_set_new(o, "to", snapshot_json(p->to));
    json_object_set_new(o, "first_step", json_integer((json_int_t)p->first));
    json_object_set_new(o, "last_step", json_integer((json_int_t)p->until));
    json_object_set_new(o, "losses_same", json_integer((json_int_t)p->compared));
    json_object_set_new(o, "difference", difference);
    json_object_set_new(o, "seconds", kc_json_number(p->seconds));
    return session_emit(p->s, o);
}

static int print(const struct proof *p)
{
    FILE *out = p->s->out;
    char from[32] = "the beginning", to[48] = "";
    if (p->from)
        snprintf(from, sizeof from, "v%08llu", (unsigned long long)p->from->version);
    if (p->to)
        snprintf(to, sizeof to, " and the state_root of v%08llu", (unsigned long long)p->to->version);
    if (p->differs)
        fprintf(out, "DIFFERS  %s from %s: step %llu: the job's loss was %.17g, the replay's is %.17g\n", p->job->id, from,
                (unsigned long long)p->differs, p->ours, p->theirs);
    else if (p->root_differs)
        fprintf(out, "DIFFERS  %s from %s: step %llu: the losses are the same, state_root of v%08llu is %s, the replay's %s\n", p->job->id,
                from, (unsigned long long)p->until, (unsigned long long)p->to->version, p->to->state_root, p->root);
    else
        fprintf(out, "PROVED  %s from %s, steps %llu to %llu: %llu loss%s%s are the same to the bit (%.1f s)\n", p->job->id, from,
                (unsigned long long)p->first, (unsigned long long)p->until, (unsigned long long)p->compared,
                p->compared == 1 ? "" : "es", to, p->seconds);
    if (p->differs)
        fprintf(out, "find where: kc trace %s --step %llu --digest, and compare it with one of a run that you trust\n", p->job->id,
                (unsigned long long)p->differs);
    return session_written(p->s);
}

static int snap_prove(struct session *s, const struct arguments *a)
{
    struct job j;
    struct scratch sc = {.s = s};
    struct kc_error e = {""};
    int rc = job_read(&s->home, a->word[0], &j, &e);
    if (rc)
        return session_fail(s, session_code(rc), "%s", e.text);
    struct proof p = {.s = s, .job = &j, .ours = NAN, .theirs = NAN};
    int code = scratch_open(s, &j, &sc);
    if (!code)
        code = choose(&p, &sc.list, a->option[OPTION_FROM]);
    if (!code)
        code = look_at_rollbacks(&p);
    if (!code)
        code = look_at_losses(&p);
    if (!code)
        code = prove(&p, &sc);
    if (!code)
        code = s->json ? emit(&p) : print(&p);
    code = code ? code : p.differs || p.root_differs ? KC_EXIT_FALSE : KC_EXIT_OK;
    losses_free(&p.losses);
    scratch_close(&sc);
    job_free(&j);
    return code;
}

int verb_snap_prove(struct session *s, const struct arguments *a)
{
    return bench_guarded(s, a, snap_prove);
}
