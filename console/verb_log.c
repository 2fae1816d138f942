/* verb_log.c - what ranks printed, all of it, as one stream (logs.h). */
#include "command.h"
#include "follow.h"
#include "logs.h"
#include "session.h"
#include "text.h"
#include "verbs.h"

#include "base/clock.h"
#include "supervisor/protocol.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define FOLLOW_NAP_NS (50 * KC_MILLISECOND)

struct log_printer {
    struct session *s;
    const char *id;
    bool prefix;      /* several ranks: each line says whose it is */
    json_t *lines;    /* --json without -f: all of them */
    bool stream;      /* --json with -f: an object a line */
    struct log_error error;
};

/* New reference. */
static json_t *line_json(int rank, uint64_t wall, const char *safe)
{
    return json_pack("{s:i,s:o,s:s}", "rank", rank, "time", session_time(wall), "text", safe);
}

static int print_json(struct log_printer *p, const struct log_line *l)
{
    int code = KC_EXIT_OK;
    char *safe = malloc(l->bytes * 4 + 1);
    if (!safe)
        return KC_EXIT_SYSTEM;
    text_clean(l->text, l->bytes, TEXT_KEEP_LINES, safe, l->bytes * 4 + 1);
    json_t *line = line_json(l->rank, l->wall, safe);
    free(safe);
    if (p->stream) {
        json_t *o = session_envelope(p->s);
        json_object_set_new(o, "id", json_string(p->id));
        json_object_update_missing(o, line);
        code = session_emit(p->s, o);
        json_decref(line);
    } else {
        json_array_append_new(p->lines, line);
    }
    return code;
}

static int print_line(struct log_printer *p, const struct log_line *l)
{
    if (p->lines || p->stream)
        return print_json(p, l);
    if (p->prefix)
        fprintf(p->s->out, "%d| ", l->rank);
    session_foreign(p->s, l->text, l->bytes);
    fputc('\n', p->s->out);
    return KC_EXIT_OK;
}

/* All that is there. */
static int read_on(struct log_printer *p, struct logs *logs, bool last)
{
    struct log_line line;
    int code = KC_EXIT_OK;
    while (!code && !interrupt_seen() && !ferror(p->s->out) && logs_next(logs, last, &line)) {
        log_error_take(&p->error, &line, 0);
        code = print_line(p, &line);
    }
    return code;
}

static int follow_logs(struct log_printer *p, struct logs *logs)
{
    struct session *s = p->s;
    const struct timespec nap = {.tv_nsec = FOLLOW_NAP_NS};
    for (int code = KC_EXIT_OK;;) {
        struct job j;
        bool ended = job_read(&s->home, p->id, &j, NULL) != 0;
        if (!ended) {
            ended = job_ended(&j);
            job_free(&j);
        }
        logs_refresh(logs);
        code = read_on(p, logs, false);
        fflush(s->out);
        if (interrupt_seen())
            return interrupt_told(s, p->id);
        if (code || ended || session_gone(s))
            return code; /* it had ended before that last look, so nothing more comes */
        nanosleep(&nap, NULL);
    }
}

static int print_object(struct log_printer *p)
{
    json_t *o = session_envelope(p->s);
    const struct log_error *e = &p->error;
    json_object_set_new(o, "id", json_string(p->id));
    json_object_set(o, "lines", p->lines);
    json_object_set_new(o, "first_error", e->known ? line_json(e->rank, e->wall, e->text) : json_null());
    return session_emit(p->s, o);
}

int verb_log(struct session *s, const struct arguments *a)
{
    struct kc_error e = {""};
    struct job j;
    struct logs logs;
    char id[JOB_ID_ROOM];
    int rank, code = KC_EXIT_OK;
    const bool follow = a->option[OPTION_FOLLOW] != NULL;
    if (argument_target(a->word[0], "log", id, sizeof id, &rank, &e))
        return session_fail(s, KC_EXIT_USAGE, "%s", e.text);
    int rc = job_read(&s->home, id, &j, &e);
    if (rc)
        return session_fail(s, session_code(rc), "%s", e.text);
    struct log_printer p = {.s = s, .id = id, .prefix = rank < 0 && j.ranks != 1, .stream = s->json && follow,
                            .lines = s->json && !follow ? json_array() : NULL};
    rc = logs_open(&logs, &j, rank, 0, 0);
    if (rc)
        code = session_fail(s, session_code(rc), "the logs of %s cannot be read: %s", id, strerror(-rc));
    else if (logs.count == 0 && rank >= 0)
        code = session_fail(s, KC_EXIT_NO_OBJECT, "rank %d of %s has no log: it has %lld ranks, from 0", rank, id,
                            (long long)j.ranks);
    if (follow && !code)
        interrupt_catch();
    if (!code)
        code = read_on(&p, &logs, !follow);
    if (!code && follow)
        code = follow_logs(&p, &logs);
    else if (!code && p.lines)
        code = print_object(&p);
    json_decref(p.lines);
    if (!rc)
        logs_close(&logs);
    job_free(&j);
    return code;
}
