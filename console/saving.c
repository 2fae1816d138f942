/* saving.c - see saving.h. */
#include "saving.h"

#include "base/print.h"
#include "text.h"

#include <math.h>

static double most(const struct job *j, enum kc_metric m)
{
    double v = NAN;
    for (size_t i = 0; i < j->ranks_known; i++)
        v = fmax(v, j->rank[i].metric[m]); /* NaN yields to a number */
    return v;
}

static double sum(const struct job *j, enum kc_metric m)
{
    double v = NAN;
    for (size_t i = 0; i < j->ranks_known; i++)
        if (!isnan(j->rank[i].metric[m]))
            v = (isnan(v) ? 0 : v) + j->rank[i].metric[m];
    return v;
}

void saving_clear(struct saving *out)
{
    const double n = (double)NAN;
    *out = (struct saving){-1, n, n, n, n, n, n, n, n, n, n, n, n};
}

/* A stage goes through all values twice. */
static void look_at_stage(const struct job *j, struct saving *out)
{
    const double done = sum(j, KC_METRIC_SNAPSHOT_DONE_BYTES), due = sum(j, KC_METRIC_SNAPSHOT_DUE_BYTES);
    out->step = j->ranks_known ? j->rank[0].metric[KC_METRIC_SNAPSHOT_STEP] : (double)NAN;
    out->values = due / 2;
    out->through = due > 0 ? fmin(done / due, 1) : (double)NAN;
    out->seconds = most(j, KC_METRIC_SNAPSHOT_STAGE_SECONDS);
}

void saving_of(const struct job *j, struct saving *out)
{
    const double stage = j->ranks_known ? j->rank[0].metric[KC_METRIC_SNAPSHOT_STAGE] : NAN;
    *out = (struct saving){.stage = stage >= 0 && stage < KC_SAVINGS ? (int)stage : -1,
                           .stall = most(j, KC_METRIC_SNAPSHOT_STALL_SECONDS),
                           .copy = most(j, KC_METRIC_SNAPSHOT_COPY_SECONDS),
                           .write = most(j, KC_METRIC_SNAPSHOT_WRITE_SECONDS),
                           .bytes = most(j, KC_METRIC_SNAPSHOT_BYTES),
                           .raw_bytes = most(j, KC_METRIC_SNAPSHOT_RAW_BYTES),
                           .left_out = most(j, KC_METRIC_SNAPSHOTS_SKIPPED),
                           .rollbacks = most(j, KC_METRIC_ROLLBACKS),
                           .samples = most(j, KC_METRIC_SKIPPED_SAMPLES)};
    look_at_stage(j, out);
}

const char *saving_stage(const struct saving *s)
{
    return s->stage > KC_SAVING_NONE ? kc_saving_name[s->stage] : NULL;
}

double saving_rate(const struct saving *s)
{
    return s->seconds > 0 && s->through > 0 ? s->values * s->through / s->seconds : (double)NAN;
}

double saving_left(const struct saving *s)
{
    return s->values * (1 - s->through) / saving_rate(s);
}

void saving_progress_text(const struct saving *s, char *out, size_t room)
{
    char a[32];
    struct kc_print p = {.out = out, .room = room};
    out[0] = 0;
    if (!saving_stage(s))
        return;
    kc_print(&p, "%s step %s", saving_stage(s), text_number(s->step, "%.0f", a, sizeof a));
    if (!isnan(s->through))
        kc_print(&p, ": %.0f %% of %s", 100 * s->through, text_bytes(s->values, a, sizeof a));
    if (!isnan(saving_rate(s))) {
        kc_print(&p, ", %s/s", text_bytes(saving_rate(s), a, sizeof a));
        kc_print(&p, ", %s left", text_seconds(saving_left(s), a, sizeof a));
    }
}

json_t *saving_progress_json(const struct saving *s)
{
    if (!saving_stage(s))
        return json_null();
    return json_pack("{s:s,s:o,s:o,s:o,s:o,s:o,s:o}", "stage", saving_stage(s), "step",
                     isnan(s->step) ? json_null() : json_integer((json_int_t)s->step), "values", kc_json_number(s->values), "through",
                     kc_json_number(s->through), "seconds", kc_json_number(s->seconds), "bytes_per_second",
                     kc_json_number(saving_rate(s)), "seconds_left", kc_json_number(saving_left(s)));
}

void saving_text(const struct saving *s, char *out, size_t room)
{
    char a[32], b[32];
    struct kc_print p = {.out = out, .room = room};
    out[0] = 0;
    if (!isnan(s->stall)) {
        kc_print(&p, "training stood %s; copied in %s, ", text_seconds(s->stall, a, sizeof a), text_seconds(s->copy, b, sizeof b));
        kc_print(&p, "written in %s, ", text_seconds(s->write, a, sizeof a));
        kc_print(&p, "%s for %s", text_bytes(s->bytes, a, sizeof a), text_bytes(s->raw_bytes, b, sizeof b));
    }
    if (s->left_out > 0)
        kc_print(&p, "%s%.0f left out", p.length ? "; " : "", s->left_out);
}

json_t *saving_json(const struct saving *s)
{
    if (s->stage < 0)
        return json_null();
    return json_pack("{s:s,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o}", "stage", kc_saving_name[s->stage], "stall_seconds",
                     kc_json_number(s->stall), "copy_seconds", kc_json_number(s->copy), "write_seconds",
                     kc_json_number(s->write), "bytes", kc_json_number(s->bytes), "raw_bytes", kc_json_number(s->raw_bytes),
                     "left_out", kc_json_number(s->left_out), "rollbacks", kc_json_number(s->rollbacks), "skipped_samples",
                     kc_json_number(s->samples));
}
