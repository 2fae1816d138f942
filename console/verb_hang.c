/* verb_hang.c - kc hang: which rank, and why. */
#include "console/hang/gather.h"
#include "console/hang/report.h"
#include "model.h"
#include "session.h"
#include "verbs.h"

#include "shm/reader.h"
#include "supervisor/protocol.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* A job that left no board: its files alone say that it ended, or has not begun. */
static int without_board(const struct job *j, struct kc_evidence **out, struct kc_error *e)
{
    if (j->board_error)
        return kc_fail(e, j->board_error, "%s", j->board_text);
    int code = kc_evidence_new(j->ranks > 0 && j->ranks <= KC_RANKS_MAX ? (uint32_t)j->ranks : 1, out);
    if (code < 0)
        return kc_fail(e, code, "no memory for the evidence");
    snprintf((*out)->job, sizeof (*out)->job, "%.63s", j->id);
    (*out)->status = (struct kc_job_status){.state = j->state < 0 ? KC_JOB_UNKNOWN : (uint32_t)j->state, .failed_rank = -1};
    return 0;
}

static int gather_job(struct session *s, const char *id, struct kc_evidence **out, struct kc_error *e)
{
    struct job j;
    struct kc_reader *r = NULL;
    int rc = job_read(&s->home, id, &j, e);
    if (rc)
        return rc;
    if (j.board)
        rc = kc_reader_attach(*j.instance ? j.instance : s->home.instance, j.id, &r, e);
    if (rc == 0)
        rc = r ? kc_gather_live(r, KC_GATHER_GAP, out, e) : without_board(&j, out, e);
    kc_reader_free(r);
    job_free(&j);
    return rc;
}

static int gather_file(const char *path, struct kc_evidence **out, struct kc_error *e)
{
    struct kc_reader *r = NULL;
    int rc = kc_reader_open(path, &r, e);
    if (rc == 0)
        rc = kc_gather_board(r, out, e);
    kc_reader_free(r);
    return rc;
}

static int tell(struct session *s, const struct kc_evidence *e, const struct kc_diagnosis *d)
{
    if (s->json) {
        json_t *o = session_envelope(s);
        kc_report_json(e, d, o);
        return session_emit(s, o);
    }
    struct draft draft;
    FILE *out = draft_open(&draft);
    kc_report_text(e, d, out);
    return draft_close(s, &draft);
}

int verb_hang(struct session *s, const struct arguments *a)
{
    struct kc_evidence *evidence = NULL;
    struct kc_diagnosis *d = NULL;
    struct kc_error e = {""};
    bool file = strchr(a->word[0], '/') != NULL;
    int rc = file ? gather_file(a->word[0], &evidence, &e) : gather_job(s, a->word[0], &evidence, &e);
    if (rc == 0 && (rc = kc_diagnose(evidence, &d)) < 0)
        kc_fail(&e, rc, "no memory for the diagnosis");
    int code = rc ? session_fail(s, session_code(rc), "%s", e.text) : tell(s, evidence, d);
    if (code == KC_EXIT_OK && d->hung)
        code = KC_EXIT_FALSE;
    free(d);
    kc_evidence_free(evidence);
    return code;
}
