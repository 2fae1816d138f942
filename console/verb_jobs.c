/* verb_jobs.c - ps, show, wait: what is read, not changed. */
#include "check.h"
#include "client.h"
#include "follow.h"
#include "replay.h"
#include "report.h"
#include "costs.h"
#include "snapshots.h"
#include "verbs.h"

#include "supervisor/protocol.h"

#include <errno.h>

/* A board of another version is read by nobody: what the files say is shown, and the exit code says that it is not
 * all. */
static int board_told(struct session *s, const struct job *j)
{
    if (!j->board_error)
        return KC_EXIT_OK;
    session_note(s, "%s", j->board_text);
    return j->board_error == -EPROTO ? KC_EXIT_VERSION : KC_EXIT_INCOMPLETE;
}

int verb_ps(struct session *s, const struct arguments *a)
{
    (void)a;
    struct model m;
    struct kc_error e = {""};
    int rc = model_read(&s->home, NULL, &m, &e), code = KC_EXIT_OK;
    if (rc)
        return session_fail(s, session_code(rc), "%s", e.text);
    if (s->json) {
        json_t *o = session_envelope(s), *jobs = json_array();
        for (size_t i = 0; i < m.count; i++) {
            snapshots_newest(&m.job[i]);
            json_array_append_new(jobs, report_job(&m.job[i]));
        }
        json_object_set_new(o, "jobs", jobs);
        code = session_emit(s, o);
    } else if (m.count) {
        struct draft d;
        report_list(&m, draft_open(&d));
        code = draft_close(s, &d);
    } else {
        session_note(s, "no jobs in %s. Start one: kc start SPEC", s->home.home);
    }
    for (size_t i = 0; i < m.count; i++) {
        int told = board_told(s, &m.job[i]);
        code = code ? code : told;
    }
    model_free(&m);
    return code;
}

/* `algorithms`: NULL leaves the key out, and those of the experts and of parameters. Taken over. */
static int emit_job(struct session *s, struct job *j, json_t *algorithms)
{
    json_t *o = session_envelope(s), *job;
    snapshots_newest(j);
    costs_newest(j);
    job = report_job(j);
    if (algorithms) {
        json_object_set_new(job, "algorithms", algorithms);
        json_object_set_new(job, "experts", loads_json(j->loads));
        json_object_set_new(job, "layout", j->planned ? json_string(j->layout) : json_null());
        json_object_set_new(job, "parameters", j->planned ? json_integer((json_int_t)j->parameters) : json_null());
        json_object_set_new(job, "trained", j->planned ? json_integer((json_int_t)j->trained) : json_null());
    }
    json_object_set_new(o, "job", job);
    return session_emit(s, o);
}

int verb_show(struct session *s, const struct arguments *a)
{
    struct job j;
    struct kc_error e = {""};
    if (a->option[OPTION_AT] || replay_is_path(a->word[0]))
        return replay_show(s, a->word[0], a->option[OPTION_AT]);
    int rc = job_read(&s->home, a->word[0], &j, &e), code = KC_EXIT_OK;
    if (rc)
        return session_fail(s, session_code(rc), "%s", e.text);
    check_algorithms(&s->home, &j);
    if (s->json) {
        code = emit_job(s, &j, report_algorithms(&j));
    } else {
        struct draft d;
        snapshots_newest(&j);
        costs_newest(&j);
        report_page(&j, draft_open(&d));
        code = draft_close(s, &d);
    }
    int told = board_told(s, &j);
    job_free(&j);
    return code ? code : told;
}

int verb_wait(struct session *s, const struct arguments *a)
{
    struct job j;
    struct filter c;
    struct kc_error e = {""};
    uint64_t limit = 0;
    char line[1600];
    const char *text = a->option[OPTION_FOR], *timeout = a->option[OPTION_TIMEOUT];
    if ((text && condition_parse(text, &c, &e)) || (timeout && duration_parse(timeout, &limit, &e)))
        return session_fail(s, KC_EXIT_USAGE, "%s", e.text);
    if (timeout && limit == 0)
        limit = 1; /* look once */
    int code = follow_job(s, a->word[0], text ? &c : NULL, limit, false, &j);
    if (code != KC_EXIT_OK && code != KC_EXIT_FALSE)
        return code;
    if (s->json)
        emit_job(s, &j, NULL);
    if (job_ended(&j) && (code == KC_EXIT_FALSE || !text)) {
        snapshots_newest(&j);
        report_outcome(&j, line, sizeof line);
        session_note(s, "%s%s", line, text ? ". What was waited for did not come" : "");
    }
    job_free(&j);
    return code;
}
