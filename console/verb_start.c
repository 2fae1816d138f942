/* verb_start.c - start. */
#include "check.h"
#include "client.h"
#include "follow.h"
#include "report.h"
#include "snapshots.h"
#include "text.h"
#include "verbs.h"

#include "govern/spec.h"
#include "supervisor/protocol.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- start ----------------------------------------------------------------------------------------------------- */

/* The folder that the spec's relative paths start from, absolute. */
static int folder_of(const char *path, char *out, size_t room)
{
    char *whole = realpath(path, NULL);
    if (!whole)
        return -errno;
    char *slash = strrchr(whole, '/');
    snprintf(out, room, "%.*s", slash == whole ? 1 : (int)(slash - whole), whole);
    free(whole);
    return 0;
}

static int wait_for(struct session *s, const char *id)
{
    struct job j;
    char line[1600];
    int code = follow_job(s, id, NULL, 0, !s->json, &j);
    if (code != KC_EXIT_OK && code != KC_EXIT_FALSE)
        return code;
    snapshots_newest(&j);
    report_outcome(&j, line, sizeof line);
    if (s->json) {
        json_t *o = session_envelope(s);
        json_object_set_new(o, "job", report_job(&j));
        session_emit(s, o);
        session_note(s, "%s", line);
    } else {
        fprintf(s->out, "%s\n", line);
    }
    job_free(&j);
    return code;
}

int verb_start(struct session *s, const struct arguments *a)
{
    struct check c;
    struct kc_error e = {""};
    char folder[PATH_MAX], id[JOB_ID_ROOM];
    json_t *reply = NULL;
    bool wait = a->option[OPTION_WAIT] != NULL;
    int code = check_spec(&s->home, a->word[0], false, CHECK_START, &c, &e);
    if (code)
        return session_fail(s, code, "%s", e.text);
    if (c.warning.text[0])
        session_note(s, "%s", c.warning.text);
    json_t *spec = kc_spec_json(c.spec);
    check_free(&c);
    int rc = folder_of(a->word[0], folder, sizeof folder);
    if (rc) {
        json_decref(spec);
        return session_fail(s, session_code(rc), "%s: %s", a->word[0], strerror(-rc));
    }
    code = client_ask(s, "start", json_pack("{s:o,s:s}", "spec", spec, "dir", folder), &reply);
    if (code)
        return code;
    snprintf(id, sizeof id, "%s", kc_json_text(reply, "job", ""));
    json_decref(reply);
    if (!s->json) {
        fprintf(s->out, "%s\n", id);
        fflush(s->out);
    } else if (wait) {
        session_note(s, "started %s", id);
    }
    if (wait)
        return wait_for(s, id);
    if (!s->json)
        return KC_EXIT_OK;
    struct job j;
    json_t *o = session_envelope(s);
    if (!job_read(&s->home, id, &j, NULL)) {
        json_object_set_new(o, "job", report_job(&j));
        job_free(&j);
    } else {
        json_object_set_new(o, "job", json_pack("{s:s}", "id", id));
    }
    return session_emit(s, o);
}
