/* prometheus.c */
#include "prometheus.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/version.h"
#include "supervisor/protocol.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A label value: \, " and newline are escaped. Ids are [a-z0-9-], but the format's rule is kept where the text is
 * made. */
static void label(FILE *out, const char *text)
{
    for (; *text; text++)
        if (*text == '\n')
            fputs("\\n", out);
        else if (*text == '\\' || *text == '"')
            fprintf(out, "\\%c", *text);
        else
            fputc(*text, out);
}

static void family(FILE *out, const char *name, const char *type, const char *help)
{
    fprintf(out, "# HELP %s ", name);
    for (; *help; help++) /* help: \ and newline are escaped */
        fputs(*help == '\n' ? "\\n" : *help == '\\' ? "\\\\" : (char[2]){*help, 0}, out);
    fprintf(out, "\n# TYPE %s %s\n", name, type);
}

static void value_of(FILE *out, double v)
{
    if (isinf(v)) {
        fprintf(out, " %cInf\n", v > 0 ? '+' : '-');
    } else {
        char text[40];
        snprintf(text, sizeof text, "%.15g", v); /* 0.1 rather than 0.10000000000000001 where that is exact */
        fprintf(out, strtod(text, NULL) == v ? " %.15g\n" : " %.17g\n", v);
    }
}

/* Figures of a process that is gone would stand still for ever: they are left out. */
static bool lives(const struct job *j, const struct job_rank *r)
{
    return j->keeper_alive &&
           (!r || (r->state != KC_RANK_ABSENT && r->state != KC_RANK_EXITED && r->state != KC_RANK_FAILED));
}

static void metric(const struct model *m, bool ended, int row, FILE *out)
{
    const struct kc_metric_row *r = &kc_metric_row[row];
    bool counter = r->kind == KC_METRIC_COUNTER, of_job = r->owner == KC_OWNER_SUPERVISOR, begun = false;
    char name[96];
    snprintf(name, sizeof name, "kc_%s%s", r->key, counter ? "_total" : "");
    for (size_t i = 0; i < m->count; i++) {
        const struct job *j = &m->job[i];
        if (job_ended(j) && !ended)
            continue;
        size_t samples = of_job ? 1 : j->ranks_known;
        for (size_t k = 0; k < samples; k++) {
            double v = of_job ? j->metric[row] : j->rank[k].metric[row];
            if (isnan(v) || !lives(j, of_job ? NULL : &j->rank[k]))
                continue;
            if (!begun)
                family(out, name, counter ? "counter" : "gauge", r->help);
            begun = true;
            fprintf(out, "%s{job=\"", name);
            label(out, j->id);
            if (of_job)
                fprintf(out, "\"}");
            else
                fprintf(out, "\",rank=\"%d\"}", j->rank[k].rank);
            value_of(out, v);
        }
    }
}

/* One sample per state, 1 for the one that it is: what OpenMetrics calls a state set. */
static void states(const struct model *m, bool ended, FILE *out)
{
    bool begun = false;
    for (size_t i = 0; i < m->count; i++) {
        const struct job *j = &m->job[i];
        if (j->state < 0 || (job_ended(j) && !ended))
            continue;
        if (!begun)
            family(out, "kc_job_state", "gauge", "1 for the state that the job is in, 0 for the others");
        begun = true;
        for (int state = 0; state < KC_JOB_STATES; state++) {
            if (state == KC_JOB_UNKNOWN)
                continue;
            fprintf(out, "kc_job_state{job=\"");
            label(out, j->id);
            fprintf(out, "\",state=\"%s\"} %d\n", kc_job_state_name[state], j->state == state);
        }
    }
    begun = false;
    for (size_t i = 0; i < m->count; i++)
        for (size_t k = 0; k < m->job[i].ranks_known; k++) {
            const struct job_rank *r = &m->job[i].rank[k];
            if (r->state < 0 || (job_ended(&m->job[i]) && !ended) || !m->job[i].keeper_alive)
                continue;
            if (!begun)
                family(out, "kc_rank_state", "gauge", "1 for the state that the rank is in, 0 for the others");
            begun = true;
            for (int state = 0; state < KC_RANK_STATES; state++) {
                if (state == KC_RANK_UNKNOWN)
                    continue;
                fprintf(out, "kc_rank_state{job=\"");
                label(out, m->job[i].id);
                fprintf(out, "\",rank=\"%d\",state=\"%s\"} %d\n", r->rank, kc_rank_state_name[state],
                        r->state == state);
            }
        }
}

void prometheus_print(const struct model *m, bool ended, FILE *out)
{
    family(out, "kc_build_info", "gauge", "always 1; the version is in the label");
    fprintf(out, "kc_build_info{version=\"%s\"} 1\n", KC_VERSION);
    family(out, "kc_heartbeat_timestamp_seconds", "gauge", "when these figures were read, in seconds since 1970");
    fprintf(out, "kc_heartbeat_timestamp_seconds");
    value_of(out, (double)(kc_wall() / KC_MILLISECOND) * 1e-3);
    states(m, ended, out);
    for (int row = 0; row < KC_METRICS; row++)
        metric(m, ended, row, out);
}

int prometheus_save(const struct model *m, const char *folder, struct kc_error *e)
{
    char path[PATH_MAX], next[PATH_MAX], *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    if (!out)
        return kc_fail(e, -ENOMEM, "no memory for the figures");
    prometheus_print(m, false, out);
    int rc = fclose(out) ? -ENOMEM : 0;
    if ((size_t)snprintf(path, sizeof path, "%s/" KC_FIGURES_FILE, folder) >= sizeof path ||
        (size_t)snprintf(next, sizeof next, "%s.next", path) >= sizeof next)
        rc = -ENAMETOOLONG;
    if (!rc)
        rc = kc_file_replace(next, text, bytes); /* for its owner alone, until it is whole */
    if (!rc && (chmod(next, 0644) || rename(next, path)))
        rc = -errno;
    free(text);
    return rc ? kc_fail(e, rc, "%s/" KC_FIGURES_FILE " can't be written: %s", folder, strerror(-rc)) : 0;
}
