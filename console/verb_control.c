/* verb_control.c - pause, resume, checkpoint, stop, rm, shutdown: requests to kcd that return when they are done. */
#include "check.h"
#include "client.h"
#include "report.h"
#include "snapshots.h"
#include "verbs.h"

#include "govern/spec.h"
#include "supervisor/protocol.h"

#include <inttypes.h>
#include <string.h>

/* What kcd is asked for. */
struct deed {
    const char *verb;
    const char *done; /* continues "JOB …" */
    bool resumes;
};

/* A job that was asked to stop and failed instead: no success, whatever the reply's "ok" says of the request. "" it did
 * not. A fault that it survived before is none of the stop's. */
static const char *failed_instead(const json_t *reply, const struct job *before)
{
    int state = kc_name_find(kc_job_state_name, KC_JOB_STATES, kc_json_text(reply, "state", ""));
    if (state != KC_JOB_FAILED && state != KC_JOB_INTERRUPTED)
        return "";
    return kc_json_text(reply, "failure", *before->text ? before->text : "no reason was recorded");
}

/* The data of a job that has ended may have gone since: told before anything starts, as `kc start` does. A spec that
 * can't be read is for kcd to tell. */
static int data_is_there(struct session *s, const struct job *j)
{
    struct kc_arena arena;
    const struct kc_job_spec *spec = NULL;
    struct kc_error e = {""};
    char path[JOB_PATH_ROOM + 16];
    int code = KC_EXIT_OK;
    snprintf(path, sizeof path, "%s/spec.json", j->directory);
    if (kc_arena_new(&arena, 2 * KC_SPEC_BYTES_MAX))
        return KC_EXIT_OK;
    if (!kc_spec_load(path, &arena, &spec, NULL) && check_data(spec, &e))
        code = session_fail(s, KC_EXIT_INVALID, "%s: %s", j->id, e.text);
    kc_arena_free(&arena);
    return code;
}

/* A note names its job as kcd does; on a line of ours that begins with the job it goes without. */
static const char *without_job(const char *note, const char *id)
{
    char begin[JOB_ID_ROOM + 16];
    snprintf(begin, sizeof begin, "job '%s' ", id);
    return strncmp(note, begin, strlen(begin)) ? note : note + strlen(begin);
}

static void print_resumed(FILE *out, struct job *before)
{
    snapshots_newest(before);
    const int64_t lost = before->step - before->snapshot.step;
    struct snapshots all = {0};
    if (before->snapshot.step >= 0) {
        fprintf(out, "%s is queued again; it goes on from its newest verified snapshot (step %" PRId64 " of snapshots/)", before->id,
                before->snapshot.step);
        if (lost > 0)
            fprintf(out, "; the %" PRId64 " step%s after it %s lost and done again", lost, lost == 1 ? "" : "s",
                    lost == 1 ? "is" : "are");
        fputc('\n', out);
        return;
    }
    if (snapshots_of_job(before, &all, NULL) == 0 && all.count)
        fprintf(out, "%s is queued again, but none of its %zu snapshot%s is whole: it can't go on from there and will fail. "
                "`kc snap ls %s` says why\n", before->id, all.count, all.count == 1 ? "" : "s", before->id);
    else
        fprintf(out, "%s is queued again; it has no snapshot and begins anew\n", before->id);
    snapshots_free(&all);
}

/* The answer as one line. A step is told only where it is the one of now: that of a job which waits for its devices,
 * begins, or has gone on meanwhile is an old one. */
static int print_done(struct session *s, const struct deed *deed, const json_t *reply, struct job *before)
{
    const char *path = kc_json_text(reply, "path", ""), *note = kc_json_text(reply, "note", "");
    int state = kc_name_find(kc_job_state_name, KC_JOB_STATES, kc_json_text(reply, "state", ""));
    long long step = kc_json_integer(reply, "step", -1);
    struct draft d;
    FILE *out = draft_open(&d);
    if (deed->resumes && before->state == KC_JOB_PAUSED && before->board && before->step >= 0)
        step = before->step; /* where it was held; it has gone on since */
    if (state == KC_JOB_QUEUED && job_ended(before)) {
        print_resumed(out, before);
    } else if (state == KC_JOB_QUEUED && *note) {
        fprintf(out, "%s %s\n", before->id, without_job(note, before->id));
    } else {
        fprintf(out, "%s %s", before->id, deed->done);
        if (step >= 0 && state != KC_JOB_STARTING && state != KC_JOB_RESTARTING && state != KC_JOB_RUNNING)
            fprintf(out, " at step %lld", step);
        fprintf(out, "%s%s\n", *path ? ": " : "", path);
    }
    return draft_close(s, &d);
}

static json_t *done_json(struct session *s, const char *id, const json_t *reply, const char *failure)
{
    json_t *o = session_envelope(s);
    struct job j;
    json_object_set_new(o, "note", session_text(kc_json_text(reply, "note", "")));
    json_object_set_new(o, "failure", session_text(failure));
    json_object_set(o, "path", json_object_get(reply, "path") ? json_object_get(reply, "path") : json_null());
    if (!job_read(&s->home, id, &j, NULL)) {
        snapshots_newest(&j);
        json_object_set_new(o, "job", report_job(&j));
        job_free(&j);
    } else { /* removed */
        json_object_set_new(o, "job", json_pack("{s:s}", "id", id));
    }
    return o;
}

/* Ask kcd, then say what came of it. */
static int ask(struct session *s, const struct deed *deed, struct job *before)
{
    const char *id = before->id;
    json_t *reply = NULL;
    int code = client_ask(s, deed->verb, json_pack("{s:s}", "job", id), &reply);
    if (code)
        return code;
    const char *note = kc_json_text(reply, "note", ""), *failure = failed_instead(reply, before);
    bool queued = !strcmp(kc_json_text(reply, "state", ""), kc_job_state_name[KC_JOB_QUEUED]);
    const bool long_ago = *failure && job_ended(before);
    if (*note && !long_ago && (s->json || !queued)) /* else it is the answer */
        session_note(s, "%s", note);
    if (*failure)
        session_note(s, "%s %s%s%s, at step %lld: %s. Once mended: kc resume %s", id, long_ago ? "ended already: " : "",
                     kc_json_text(reply, "state", ""), long_ago ? "" : " while it was to stop", kc_json_integer(reply, "step", -1), failure, id);
    if (s->json)
        code = session_emit(s, done_json(s, id, reply, failure));
    else if (!*failure)
        code = print_done(s, deed, reply, before);
    if (*failure && !code)
        code = KC_EXIT_FALSE;
    json_decref(reply);
    return code;
}

static int control(struct session *s, const struct arguments *a, struct deed deed)
{
    struct kc_error e = {""};
    struct job before;
    interrupt_catch();
    int code = client_present(s);
    if (code)
        return code;
    /* A job that is not there is told by the files, with the nearest id. */
    int rc = job_read(&s->home, a->word[0], &before, &e);
    if (rc)
        return session_fail(s, session_code(rc), "%s", e.text);
    if (deed.resumes && job_ended(&before) && (before.state != KC_JOB_FINISHED || job_unsaved(&before)))
        code = data_is_there(s, &before);
    if (!code)
        code = ask(s, &deed, &before);
    job_free(&before);
    return code;
}

int verb_pause(struct session *s, const struct arguments *a)
{
    return control(s, a, (struct deed){"pause", "paused", false});
}

int verb_resume(struct session *s, const struct arguments *a)
{
    return control(s, a, (struct deed){"resume", "goes on", true});
}

int verb_checkpoint(struct session *s, const struct arguments *a)
{
    return control(s, a, (struct deed){"checkpoint", "saved", false});
}

int verb_stop(struct session *s, const struct arguments *a)
{
    return control(s, a, (struct deed){"stop", "ended", false});
}

int verb_remove(struct session *s, const struct arguments *a)
{
    return control(s, a, (struct deed){"remove", "removed", false});
}

int verb_shutdown(struct session *s, const struct arguments *a)
{
    bool detach = a->option[OPTION_DETACH] != NULL;
    json_t *reply = NULL;
    interrupt_catch();
    int code = client_ask(s, "shutdown", json_pack("{s:b}", "detach", detach), &reply);
    if (code)
        return code;
    const char *note = kc_json_text(reply, "note", "");
    if (*note)
        session_note(s, "%s", note);
    if (s->json) {
        json_t *o = session_envelope(s);
        json_object_set_new(o, "detached", json_boolean(detach));
        code = session_emit(s, o);
    } else {
        fprintf(s->out, detach ? "kcd has ended; its jobs go on\n" : "every job and kcd have ended\n");
    }
    json_decref(reply);
    return code;
}
