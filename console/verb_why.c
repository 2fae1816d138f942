/* verb_why.c - kc why: the story of a job's last fault. Reads files alone, so it needs nobody. */
#include "console/hang/why.h"
#include "journal.h"
#include "model.h"
#include "session.h"
#include "verbs.h"

#include "base/file.h"
#include "supervisor/protocol.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define VERDICT_MOST ((size_t)4 << 20)

static json_t *read_verdict(const char *directory, const char *folder)
{
    char path[JOB_PATH_ROOM + 256], *text = NULL;
    size_t bytes;
    json_t *verdict = NULL;
    if (!folder || strstr(folder, ".."))
        return NULL;
    snprintf(path, sizeof path, "%s/%.128s/verdict.json", directory, folder);
    if (kc_file_read(path, VERDICT_MOST, &text, &bytes) == 0)
        verdict = json_loadb(text, bytes, 0, NULL);
    free(text);
    return verdict;
}

int verb_why(struct session *s, const struct arguments *a)
{
    struct job j;
    struct kc_error e = {""};
    struct kc_why why;
    int rc = job_read(&s->home, a->word[0], &j, &e), code;
    if (rc)
        return session_fail(s, session_code(rc), "%s", e.text);
    json_t *events = journal_read(j.directory), *verdict = read_verdict(j.directory, kc_why_folder(events));
    kc_why(&j, events, verdict, &why);
    if (s->json) {
        json_t *o = session_envelope(s);
        json_object_set_new(o, "id", json_string(j.id));
        json_object_set_new(o, "state", json_string(job_state_text(&j)));
        kc_why_json(&why, o);
        code = session_emit(s, o);
    } else {
        struct draft d;
        kc_why_text(&why, draft_open(&d));
        code = draft_close(s, &d);
    }
    json_decref(verdict);
    json_decref(events);
    job_free(&j);
    return code;
}
