/* trace_make.c */
#include "trace_make.h"

#include "bench.h"
#include "losses.h"
#include "rollbacks.h"
#include "scratch.h"

#include "base/file.h"
#include "contracts/step_trace.h"
#include "supervisor/protocol.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct making {
    struct session *s;
    uint64_t first, step;
    double loss;
};

static bool on_step(void *self, uint64_t step, double loss)
{
    struct making *m = self;
    bench_progress(m->s, "step %llu, to %llu", (unsigned long long)step, (unsigned long long)m->step);
    m->loss = loss;
    return true;
}

/* The newest whole snapshot before the step; its own bits are the state's, whatever layout wrote it. */
static const struct kc_snapshot_info *before(const struct snapshots *l, uint64_t step)
{
    for (size_t i = l->count; i-- > 0;)
        if (!l->info[i].error && l->info[i].step < step)
            return &l->info[i];
    return NULL;
}

/* The oldest whole one that is not before it. */
static const struct kc_snapshot_info *after(const struct snapshots *l, uint64_t step)
{
    for (size_t i = 0; i < l->count; i++)
        if (!l->info[i].error && l->info[i].step >= step)
            return &l->info[i];
    return NULL;
}

static int keep(struct session *s, const struct scratch *sc, const char *path)
{
    char from[PATH_MAX + 16], *data = NULL;
    size_t bytes = 0;
    scratch_trace(sc, from, sizeof from);
    int rc = kc_file_read(from, KC_STEP_TRACE_MOST, &data, &bytes);
    if (!rc)
        rc = kc_file_replace(path, data, bytes);
    free(data);
    return rc ? session_fail(s, KC_EXIT_SYSTEM, "%s can't be written: %s", path, strerror(-rc)) : KC_EXIT_OK;
}

/* A trace of another run than the job's is worth knowing about. */
static bool has_other_loss(struct session *s, const struct job *j, const struct making *m)
{
    struct losses l;
    if (losses_read(j->directory, j->steps, &l, NULL))
        return false;
    const bool other = losses_has(&l, m->step) && !losses_same(l.loss[m->step], m->loss);
    if (other)
        session_note(s, "step %llu of %s had the loss %.17g, and %.17g in the run that was traced. If the layout or precision was "
                     "changed since that step, last bits differ by that; else `kc snap prove %s` finds the first step that differs", (unsigned long long)m->step, j->id, l.loss[m->step], m->loss, j->id);
    losses_free(&l);
    return other;
}

/* Samples that a rollback left out stand in the next snapshot, and there alone (as in kc snap prove). Behind one that none tells, up
 * to `step`, other samples would be trained than the job did. *skips: one at `from` that `to` tells. */
static int look_at_rollbacks(struct session *s, const struct job *j, const struct kc_snapshot_info *from,
                             const struct kc_snapshot_info *to, uint64_t step, bool *skips)
{
    struct kc_error e = {""};
    struct rollbacks r;
    const uint64_t begin = from ? from->step : 0;
    int rc = rollbacks_read(j->directory, begin, &r, &e);
    if (rc)
        return session_fail(s, session_code(rc), "%s", e.text);
    const bool untold = r.at && (!to || r.next < to->step);
    if (untold || r.next < step)
        return session_fail(s, KC_EXIT_INCOMPLETE,
                            "%s went back to step %llu because a step was not finite, and no snapshot %s which samples it left out since: "
                            "step %llu can't be done again", j->id, (unsigned long long)(untold ? begin : r.next),
                            untold && !to ? "tells yet" : "tells", (unsigned long long)step);
    *skips = r.at;
    return KC_EXIT_OK;
}

int trace_make(struct session *s, const char *id, uint64_t step, const char *path, struct trace_made *out)
{
    struct job j;
    struct scratch sc = {.s = s};
    struct kc_error e = {""};
    int rc = job_read(&s->home, id, &j, &e);
    if (rc)
        return session_fail(s, session_code(rc), "%s", e.text);
    int code = j.steps >= 0 && step > (uint64_t)j.steps
                   ? session_fail(s, KC_EXIT_USAGE, "%s has %lld steps: there is no step %llu", id, (long long)j.steps,
                                  (unsigned long long)step)
                   : scratch_open(s, &j, &sc);
    if (!code) {
        const struct kc_snapshot_info *from = before(&sc.list, step);
        struct making m = {.s = s, .first = from ? from->step + 1 : 1, .step = step, .loss = NAN};
        struct scratch_run run = {.version = from ? from->version : 0, .until = step, .trace = step, .step = on_step, .self = &m};
        const struct kc_snapshot_info *to = after(&sc.list, step);
        bool skips = false;
        code = look_at_rollbacks(s, &j, from, to, step, &skips);
        if (!code)
            code = scratch_position(&sc, from, skips ? to : NULL, &run.position);
        if (!code)
            code = scratch_run(&sc, &run);
        bench_progress_end(s);
        if (!code && !run.whole)
            code = session_fail(s, KC_EXIT_SYSTEM, "the replay ended before step %llu", (unsigned long long)step);
        if (!code)
            code = keep(s, &sc, path);
        *out = (struct trace_made){.version = run.version, .loss = m.loss, .other = !code && has_other_loss(s, &j, &m)};
    }
    scratch_close(&sc);
    job_free(&j);
    return code;
}
