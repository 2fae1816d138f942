/* verb_control.c - pause, resume, checkpoint, stop, rm, shutdown: requests to kcd that return when they are done. */
#include "client.h"
#include "report.h"
#include "snapshots.h"
#include "verbs.h"

#include "supervisor/protocol.h"

#include <inttypes.h>

/* A job that was asked to stop and failed instead: no success, whatever the reply's "ok" says of the request. "" it did
 * not. A fault that it survived before is none of the stop's. */
static const char *failed_instead(const json_t *reply)
{
    int state = kc_name_find(kc_job_state_name, KC_JOB_STATES, kc_json_text(reply, "state", ""));
    if (state != KC_JOB_FAILED && state != KC_JOB_INTERRUPTED)
        return "";
    return kc_json_text(reply, "failure", "no reason was recorded");
}

/* Ask kcd, then say what came of it: `done` continues "JOB …". */
static int control(struct session *s, const struct arguments *a, const char *verb, const char *done)
{
    const char *id = a->word[0];
    json_t *reply = NULL;
    struct kc_error e = {""};
    struct job j;
    interrupt_catch();
    int code = client_present(s);
    if (code)
        return code;
    /* A job that is not there is told by the files, with the nearest id. */
    int rc = job_read(&s->home, id, &j, &e);
    if (rc)
        return session_fail(s, session_code(rc), "%s", e.text);
    job_free(&j);
    code = client_ask(s, verb, json_pack("{s:s}", "job", id), &reply);
    if (code)
        return code;
    long long step = kc_json_integer(reply, "step", -1);
    const char *note = kc_json_text(reply, "note", ""), *failure = failed_instead(reply);
    if (*note)
        session_note(s, "%s", note);
    if (*failure)
        session_note(s, "%s %s while it was to stop, at step %lld: %s. Once mended: kc resume %s", id,
                     kc_json_text(reply, "state", ""), step, failure, id);
    if (s->json) {
        json_t *o = session_envelope(s);
        json_object_set_new(o, "note", session_text(note));
        json_object_set_new(o, "failure", session_text(failure));
        json_object_set(o, "path", json_object_get(reply, "path") ? json_object_get(reply, "path") : json_null());
        if (!job_read(&s->home, id, &j, NULL)) {
            snapshots_newest(&j);
            json_object_set_new(o, "job", report_job(&j));
            job_free(&j);
        } else { /* removed */
            json_object_set_new(o, "job", json_pack("{s:s}", "id", id));
        }
        code = session_emit(s, o);
    } else if (!*failure) {
        const char *path = kc_json_text(reply, "path", "");
        struct draft d;
        FILE *out = draft_open(&d);
        fprintf(out, "%s %s", id, done);
        if (step >= 0)
            fprintf(out, " at step %lld", step);
        fprintf(out, "%s%s\n", *path ? ": " : "", path);
        code = draft_close(s, &d);
    }
    if (*failure && !code)
        code = KC_EXIT_FALSE;
    json_decref(reply);
    return code;
}

int verb_pause(struct session *s, const struct arguments *a)
{
    return control(s, a, "pause", "paused");
}

int verb_resume(struct session *s, const struct arguments *a)
{
    return control(s, a, "resume", "goes on");
}

int verb_checkpoint(struct session *s, const struct arguments *a)
{
    return control(s, a, "checkpoint", "saved");
}

int verb_stop(struct session *s, const struct arguments *a)
{
    return control(s, a, "stop", "ended");
}

int verb_remove(struct session *s, const struct arguments *a)
{
    return control(s, a, "remove", "removed");
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
