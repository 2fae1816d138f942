/* verb_metrics.c - figures for a monitoring system. */
#include "prometheus.h"
#include "report.h"
#include "session.h"
#include "verbs.h"

#include "supervisor/protocol.h"

#include <errno.h>
#include <math.h>
#include <string.h>

/* A count is written as one: 134, not 134.0. */
static json_t *figure_json(double v)
{
    bool whole = v == floor(v) && fabs(v) < 9007199254740992.0;
    return whole ? json_integer((json_int_t)v) : kc_json_number(v);
}

static json_t *row_json(const double *metric, bool of_job)
{
    json_t *o = json_object();
    for (int i = 0; i < KC_METRICS; i++)
        if ((kc_metric_row[i].owner == KC_OWNER_SUPERVISOR) == of_job)
            json_object_set_new(o, kc_metric_row[i].key, figure_json(metric[i]));
    return o;
}

static int emit_metrics(struct session *s, const struct model *m, bool ended)
{
    json_t *o = session_envelope(s), *jobs = json_array();
    for (size_t i = 0; i < m->count; i++) {
        const struct job *j = &m->job[i];
        json_t *ranks = json_array(), *one;
        if (job_ended(j) && !ended) {
            json_decref(ranks);
            continue;
        }
        for (size_t k = 0; k < j->ranks_known; k++) {
            json_t *rank = row_json(j->rank[k].metric, false);
            json_object_set_new(rank, "rank", json_integer(j->rank[k].rank));
            json_array_append_new(ranks, rank);
        }
        one = row_json(j->metric, true);
        json_object_set_new(one, "id", json_string(j->id));
        json_object_set_new(one, "state", session_text(j->state < 0 ? NULL : kc_job_state_name[j->state]));
        json_object_set_new(one, "ranks", ranks);
        json_array_append_new(jobs, one);
    }
    json_object_set_new(o, "jobs", jobs);
    return session_emit(s, o);
}

/* One file a node has what is of that node. */
static void leave_out_others(struct model *m, const char *host)
{
    size_t kept = 0;
    for (size_t i = 0; i < m->count; i++)
        if (*m->job[i].host && strcmp(m->job[i].host, host))
            job_free(&m->job[i]);
        else
            m->job[kept++] = m->job[i];
    m->count = kept;
}

static int textfile(struct session *s, struct model *m, const char *folder)
{
    struct kc_error e = {""};
    leave_out_others(m, s->home.host);
    int rc = prometheus_save(m, folder, &e);
    if (rc)
        return session_fail(s, session_code(rc), "%s", e.text);
    if (!s->json)
        return KC_EXIT_OK;
    json_t *o = session_envelope(s);
    json_object_set_new(o, "path", json_sprintf("%s/" KC_FIGURES_FILE, folder));
    return session_emit(s, o);
}

int verb_metrics(struct session *s, const struct arguments *a)
{
    struct model m = {0};
    struct job one;
    struct kc_error e = {""};
    const char *folder = a->option[OPTION_TEXTFILE];
    bool named = a->words > 0;
    if (named && folder)
        return session_fail(s, KC_EXIT_USAGE, "--textfile is of all jobs: name none");
    int rc = named ? job_read(&s->home, a->word[0], &one, &e) : model_read(&s->home, NULL, &m, &e), code = KC_EXIT_OK;
    if (rc)
        return session_fail(s, session_code(rc), "%s", e.text);
    struct model shown = named ? (struct model){&one, 1} : m;
    if (folder)
        code = textfile(s, &m, folder);
    else if (s->json)
        code = emit_metrics(s, &shown, named);
    else
        prometheus_print(&shown, named, s->out);
    for (size_t i = 0; i < shown.count && !folder; i++)
        if (shown.job[i].board_error) {
            session_note(s, "%s", shown.job[i].board_text);
            code = code ? code : shown.job[i].board_error == -EPROTO ? KC_EXIT_VERSION : KC_EXIT_INCOMPLETE;
        }
    if (named)
        job_free(&one);
    model_free(&m);
    return code;
}
