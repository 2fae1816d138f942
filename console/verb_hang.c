/* verb_hang.c - kc hang: which rank, and why. */
#include "console/hang/dump.h"
#include "console/hang/gather.h"
#include "console/hang/mortem.h"
#include "console/hang/report.h"
#include "model.h"
#include "replay.h"
#include "session.h"
#include "verbs.h"

#include "base/clock.h"
#include "shm/reader.h"
#include "supervisor/protocol.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

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
    snprintf((*out)->status.text, sizeof (*out)->status.text, "%.255s", job_failed(j) ? j->text : "");
    return 0;
}

/* What was asked for: a job, a saved board, a folder that a dump left, or a moment of a recording. */
struct subject {
    struct kc_evidence *evidence;
    struct kc_reader *board; /* NULL: it left none */
    uint64_t wall;           /* of the moment; 0: it is of no recording */
};

static int open_job(struct session *s, const char *id, struct subject *out, struct kc_error *e)
{
    struct job j;
    int rc = job_read(&s->home, id, &j, e);
    if (rc)
        return rc;
    if (j.board)
        rc = kc_reader_attach(*j.instance ? j.instance : s->home.instance, j.id, &out->board, e);
    if (rc == 0)
        rc = out->board ? kc_gather_live(out->board, KC_GATHER_GAP, &out->evidence, e) : without_board(&j, &out->evidence, e);
    job_free(&j);
    return rc;
}

/* Two looks as far apart as those at what lives, where the recording reaches back so far. `when` NULL: its end. */
static int open_recording(struct session *s, const char *what, const char *when, struct subject *out, struct kc_error *e)
{
    struct replay r;
    struct kc_reader *before = NULL;
    struct kc_evidence *first = NULL;
    struct kc_error none;
    int rc = replay_open(&s->home, what, &r, e);
    if (rc)
        return rc;
    if (when)
        rc = replay_seek(&r, when, e);
    if (rc == 0 && replay_board_before(&r, KC_GATHER_GAP, &before, &none) == 0)
        rc = kc_gather_board(before, &first, e);
    if (rc == 0)
        rc = replay_board(&r, &out->board, e);
    if (rc == 0)
        rc = kc_gather_board(out->board, &out->evidence, e);
    if (rc == 0 && first)
        kc_gather_compare(first, out->evidence);
    out->wall = r.wall;
    kc_evidence_free(first);
    kc_reader_free(before);
    replay_close(&r);
    return rc;
}

static int open_file(const char *path, struct subject *out, struct kc_error *e)
{
    char board[JOB_PATH_ROOM];
    struct stat st;
    bool folder = stat(path, &st) == 0 && S_ISDIR(st.st_mode);
    snprintf(board, sizeof board, folder ? "%.*s/board" : "%.*s", JOB_PATH_ROOM - 16, path);
    int rc = kc_reader_open(board, &out->board, e);
    if (rc == 0)
        rc = folder ? kc_dump_read(path, &out->evidence, e) : kc_gather_board(out->board, &out->evidence, e);
    return rc;
}

static void subject_close(struct subject *u)
{
    kc_evidence_free(u->evidence);
    kc_reader_free(u->board);
    *u = (struct subject){0};
}

/* What the keeper had found out by then, with a look at the processes that nobody has any more; "": nothing. */
static const char *found_then(const struct subject *u, struct kc_watch_seen *w)
{
    return u->wall && u->board && kc_reader_watch(u->board, w) == 0 && w->since ? w->text : "";
}

static json_t *answer_json(struct session *s, const struct subject *u, const struct kc_diagnosis *d)
{
    json_t *o = session_envelope(s);
    struct kc_watch_seen w;
    char at[32];
    kc_wall_text(u->wall, at);
    json_object_set_new(o, "at", u->wall ? json_string(at) : json_null());
    json_object_set_new(o, "found_then", session_text(found_then(u, &w)));
    kc_report_json(u->evidence, d, o);
    return o;
}

static int dump(struct session *s, const struct arguments *a, const struct subject *u, const struct kc_diagnosis *d, struct kc_error *e)
{
    if (!a->option[OPTION_DUMP])
        return 0;
    json_t *answer = answer_json(s, u, d);
    const struct kc_dump dump = {.evidence = u->evidence, .diagnosis = d, .answer = answer, .board = u->board,
                                 .stacks = !a->option[OPTION_NO_STACKS]};
    int rc = kc_dump_write(a->option[OPTION_DUMP], &dump, e);
    json_decref(answer);
    return rc;
}

/* The rest of a post-mortem, once the answer is out: who asked may go on with it. */
static void fill(struct session *s, const struct arguments *a, const struct kc_evidence *e)
{
    struct kc_error error = {""};
    fflush(s->out);
    if (a->option[OPTION_DUMP] && *e->facts.directory &&
        kc_mortem_fill(&s->home, a->option[OPTION_DUMP], e->facts.directory, e->ranks, &error) < 0)
        session_note(s, "%s is not complete: %s", a->option[OPTION_DUMP], error.text);
}

static int tell(struct session *s, const struct subject *u, const struct kc_diagnosis *d)
{
    struct kc_watch_seen w;
    char at[32];
    if (s->json)
        return session_emit(s, answer_json(s, u, d));
    struct draft draft;
    FILE *out = draft_open(&draft);
    kc_wall_text(u->wall, at);
    if (u->wall)
        fprintf(out, "as it was at %s\n", at);
    if (*found_then(u, &w))
        fprintf(out, "found then: %s\n", w.text);
    kc_report_text(u->evidence, d, out);
    return draft_close(s, &draft);
}

static int open_any(struct session *s, const struct arguments *a, struct subject *out, struct kc_error *e)
{
    const char *what = a->word[0], *when = a->option[OPTION_AT];
    struct kc_error other;
    if (when)
        return open_recording(s, what, when, out, e);
    if (!strchr(what, '/'))
        return open_job(s, what, out, e);
    int rc = open_file(what, out, e);
    if (rc == 0)
        return 0;
    subject_close(out); /* a board may be open that can't be judged */
    return open_recording(s, what, NULL, out, &other) == 0 ? 0 : rc;
}

int verb_hang(struct session *s, const struct arguments *a)
{
    struct subject u = {0};
    struct kc_diagnosis *d = NULL;
    struct kc_error e = {""};
    int rc = open_any(s, a, &u, &e);
    if (rc == 0 && (rc = kc_diagnose(u.evidence, &d)) < 0)
        kc_fail(&e, rc, "no memory for the diagnosis");
    if (rc == 0)
        rc = dump(s, a, &u, d, &e);
    int code = rc ? session_fail(s, rc == -EEXIST ? KC_EXIT_REFUSED : session_code(rc), "%s", e.text) : tell(s, &u, d);
    if (rc == 0)
        fill(s, a, u.evidence);
    if (code == KC_EXIT_OK && d->hung)
        code = KC_EXIT_FALSE;
    free(d);
    subject_close(&u);
    return code;
}
