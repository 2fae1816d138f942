/* verb_events.c - ranks and events: rows alone, listing.h makes what is printed of them. An event's id is where its line
 * ends in events.jsonl, which is only ever appended to. */
#include "event_words.h"
#include "follow.h"
#include "replay.h"
#include "report.h"
#include "session.h"
#include "verbs.h"

#include "base/clock.h"
#include "supervisor/protocol.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define LINE_MOST 65536
#define TEXT_MOST 4096
#define NAP_NS (50 * KC_MILLISECOND)

/* As it is, or as it was. Returns an exit code. */
static int read_job(struct session *s, const struct arguments *a, struct job *j)
{
    struct kc_error e = {""};
    if (a->option[OPTION_AT] || replay_is_path(a->word[0]))
        return replay_job_at(s, a->word[0], a->option[OPTION_AT], j);
    int rc = job_read(&s->home, a->word[0], j, &e);
    return rc ? session_fail(s, session_code(rc), "%s", e.text) : KC_EXIT_OK;
}

int verb_ranks(struct session *s, const struct arguments *a)
{
    struct job j;
    int code = read_job(s, a, &j);
    if (code)
        return code;
    json_t *o = session_envelope(s), *job = report_job(&j);
    json_object_set_new(o, "id", json_string(j.id));
    json_object_set(o, "state", json_object_get(job, "state"));
    json_object_set(o, "ranks", json_object_get(job, "ranks"));
    if (j.ranks_known == 0)
        session_note(s, "%s has no ranks to be seen: %s", j.id, job_ended(&j) ? "it has ended" : "its board is not there");
    json_decref(job);
    job_free(&j);
    return session_emit(s, o);
}

struct event_file {
    struct session *s;
    const char *id;
    int fd;
    long long at;     /* what is before it was told */
    json_t *rows;     /* NULL: each is told as it comes */
    char buffer[LINE_MOST];
};

static int tell(struct event_file *f, const char *line, size_t bytes, long long end)
{
    json_t *row = json_loadb(line, bytes, 0, NULL);
    if (!json_is_object(row)) {
        json_decref(row);
        return KC_EXIT_OK; /* a line that a crash cut */
    }
    json_object_set_new(row, "id", json_integer(end));
    if (f->s->listing && f->s->listing->form != LISTING_JSON) {
        char words[TEXT_MOST];
        event_words(row, words, sizeof words);
        if (words[0])
            json_object_set_new(row, "text", json_string(words)); /* not UTF-8: as it was */
    }
    if (f->rows)
        return json_array_append_new(f->rows, row) ? KC_EXIT_SYSTEM : KC_EXIT_OK;
    json_t *o = session_envelope(f->s);
    json_object_set_new(o, "id", json_string(f->id));
    json_object_set_new(o, "events", json_pack("[o]", row));
    return session_emit(f->s, o);
}

/* All whole lines that are there and were not told yet. */
static int read_on(struct event_file *f)
{
    for (;;) {
        ssize_t n = pread(f->fd, f->buffer, sizeof f->buffer, f->at);
        if (n < 0 && errno == EINTR && !interrupt_seen())
            continue;
        size_t begin = 0, have = n > 0 ? (size_t)n : 0;
        for (char *end; (end = memchr(f->buffer + begin, '\n', have - begin)); begin = (size_t)(end - f->buffer) + 1) {
            long long id = f->at + (end - f->buffer) + 1;
            int code = tell(f, f->buffer + begin, (size_t)(end - f->buffer) - begin, id);
            if (code)
                return code;
        }
        if (begin == 0 && have == sizeof f->buffer)
            begin = have; /* no line of ours is as long */
        f->at += (long long)begin;
        if (begin == 0)
            return KC_EXIT_OK;
    }
}

static int follow(struct event_file *f)
{
    const struct timespec nap = {.tv_nsec = NAP_NS};
    interrupt_catch();
    for (;;) {
        struct job j;
        bool ended = job_read(&f->s->home, f->id, &j, NULL) != 0;
        if (!ended) {
            ended = job_ended(&j);
            job_free(&j);
        }
        int code = read_on(f);
        if (code)
            return code;
        if (interrupt_seen())
            return interrupt_told(f->s, f->id);
        if (ended || session_gone(f->s))
            return KC_EXIT_OK; /* it had ended before that last look, so nothing more comes */
        nanosleep(&nap, NULL);
    }
}

static int parse_since(const char *text, long long size, long long *out, struct kc_error *e)
{
    char *end;
    *out = 0;
    if (!text)
        return 0;
    errno = 0;
    *out = strtoll(text, &end, 10);
    if (errno || end == text || *end || *out < 0)
        return kc_fail(e, -EINVAL, "--since wants the id of an event, as `kc events` shows it, not \"%.40s\"", text);
    if (*out > size)
        return kc_fail(e, -EINVAL, "--since %lld is not the id of an event of this job: its events end at %lld", *out, size);
    return 0;
}

/* All that there is in one piece, so that a table has its widths; then, if asked, what comes. */
static int tell_all(struct event_file *f, bool follows)
{
    json_t *o = session_envelope(f->s);
    f->rows = json_array();
    json_object_set_new(o, "id", json_string(f->id));
    json_object_set_new(o, "events", f->rows);
    int code = read_on(f);
    if (code)
        json_decref(o);
    else
        code = session_emit(f->s, o);
    f->rows = NULL;
    if (code || !follows)
        return code;
    if (f->s->listing)
        f->s->listing->stream = true;
    return follow(f);
}

int verb_events(struct session *s, const struct arguments *a)
{
    static struct event_file f;
    struct job j;
    struct kc_error e = {""};
    struct stat st;
    char path[JOB_PATH_ROOM + 16], id[JOB_ID_ROOM];
    int rc = job_read(&s->home, a->word[0], &j, &e), code;
    if (rc)
        return session_fail(s, session_code(rc), "%s", e.text);
    snprintf(path, sizeof path, "%s/events.jsonl", j.directory);
    snprintf(id, sizeof id, "%s", j.id);
    job_free(&j);
    f = (struct event_file){.s = s, .id = id, .fd = open(path, O_RDONLY | O_CLOEXEC)};
    if (f.fd < 0 || fstat(f.fd, &st) != 0)
        code = session_fail(s, session_code(-errno), "%s: %s", path, strerror(errno));
    else if (parse_since(a->option[OPTION_SINCE], st.st_size, &f.at, &e) < 0)
        code = session_fail(s, KC_EXIT_USAGE, "%s", e.text);
    else
        code = tell_all(&f, a->option[OPTION_FOLLOW] != NULL);
    if (f.fd >= 0)
        close(f.fd);
    return code;
}
