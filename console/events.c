/* events.c */
#include "events.h"

#include "event_words.h"

#include "base/clock.h"
#include "shm/names.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define TAIL_BYTES 65536 /* of a journal that is opened */

/* RFC 3339 in UTC, as kc_wall_text() writes it. 0: it is none. */
static uint64_t wall_of(const char *text)
{
    struct tm tm = {0};
    int ms;
    if (sscanf(text, "%d-%d-%dT%d:%d:%d.%3dZ", &tm.tm_year, &tm.tm_mon, &tm.tm_mday, &tm.tm_hour, &tm.tm_min, &tm.tm_sec, &ms) != 7)
        return 0;
    tm.tm_year -= 1900;
    tm.tm_mon--;
    const time_t seconds = timegm(&tm);
    return seconds < 0 || ms < 0 ? 0 : (uint64_t)seconds * KC_SECOND + (uint64_t)ms * KC_MILLISECOND;
}

/* Its table has it; what two of the supervisor are depends on what they tell. */
static int kind_of(const json_t *o, const char *event)
{
    const int of_rank = kc_name_find(kc_event_name, KC_EVENTS, event), told = kc_name_find(kc_told_name, KC_TOLDS, event);
    if (of_rank >= 0)
        return kc_event_row[of_rank].kind;
    if (told == KC_TOLD_RANK_EXIT && (kc_json_integer(o, "exit_code", 0) != 0 || kc_json_integer(o, "signal", 0) != 0))
        return KC_EVENT_KIND_WARNING;
    if (told == KC_TOLD_STATE && !strcmp(kc_json_text(o, "state", ""), kc_job_state_name[KC_JOB_FAILED]))
        return KC_EVENT_KIND_FAULT;
    return told >= 0 ? kc_told_row[told].kind : KC_EVENT_KIND_INFO;
}

bool event_line_of(const json_t *o, struct event_line *out)
{
    const char *event = kc_json_text(o, "event", "");
    if (!*event)
        return false;
    *out = (struct event_line){.wall = wall_of(kc_json_text(o, "time", "")),
                               .rank = kc_json_integer(o, "rank", -1),
                               .step = kc_json_integer(o, "step", -1),
                               .kind = kind_of(o, event)};
    snprintf(out->event, sizeof out->event, "%s", event);
    event_words(o, out->text, sizeof out->text);
    return true;
}

const char *event_line_text(const struct event_line *l, char *out, size_t room)
{
    char rank[32] = "", step[40] = "";
    if (!strncmp(l->text, "rank ", 5)) { /* it says itself whose it is, and when */
        snprintf(out, room, "%s: %s", l->event, l->text);
        return out;
    }
    if (l->rank >= 0)
        snprintf(rank, sizeof rank, "rank %lld ", (long long)l->rank);
    if (l->step >= 0)
        snprintf(step, sizeof step, " at step %lld", (long long)l->step);
    snprintf(out, room, "%s%s%s%s%s", rank, l->event, step, *l->text ? ": " : "", l->text);
    return out;
}

static void keep(struct events *e, const struct event_line *l)
{
    if (!strcmp(l->event, "launched"))
        e->launched = l->wall;
    e->total++;
    if (e->count == EVENTS_KEPT) {
        e->first = (e->first + 1) % EVENTS_KEPT;
        e->count--;
    }
    e->line[(e->first + e->count++) % EVENTS_KEPT] = *l;
}

typedef void take_fn(void *to, const struct event_line *l);

static void keep_line(void *to, const struct event_line *l)
{
    keep(to, l);
}

static void keep_last(void *to, const struct event_line *l)
{
    *(struct event_line *)to = *l;
}

/* Whole lines of text; returns the bytes they take. `cut`: the first one's beginning is not here. */
static size_t take_lines(const char *text, size_t bytes, bool cut, take_fn *take, void *to)
{
    const char *line = text, *end;
    for (; (end = memchr(line, '\n', (size_t)(text + bytes - line))); line = end + 1) {
        json_t *o = cut ? NULL : json_loadb(line, (size_t)(end - line), 0, NULL);
        struct event_line l;
        if (event_line_of(o, &l))
            take(to, &l);
        json_decref(o);
        cut = false;
    }
    return (size_t)(line - text);
}

static off_t size_of(const char *path)
{
    struct stat st;
    return stat(path, &st) || !S_ISREG(st.st_mode) ? 0 : st.st_size;
}

/* Lines from `from` on, of which the first may be cut. Returns where the last whole one ends. */
static off_t read_from(const char *path, off_t from, bool cut, take_fn *take, void *to)
{
    char *text = malloc(TAIL_BYTES);
    const int fd = text ? open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK) : -1;
    for (ssize_t n; fd >= 0 && (n = pread(fd, text, TAIL_BYTES, from)) > 0;) {
        const size_t used = take_lines(text, (size_t)n, cut, take, to);
        if (used == 0)
            break;
        from += (off_t)used;
        cut = false;
    }
    if (fd >= 0)
        close(fd);
    free(text);
    return from;
}

void events_read(struct events *e, const char *id, const char *directory)
{
    char path[JOB_PATH_ROOM + 16];
    snprintf(path, sizeof path, "%s/events.jsonl", directory);
    const off_t size = size_of(path);
    if (strcmp(e->id, id) || size < e->at) {
        *e = (struct events){.at = 0};
        snprintf(e->id, sizeof e->id, "%s", id);
        const off_t from = size > TAIL_BYTES ? size - TAIL_BYTES : 0;
        e->at = read_from(path, from, from > 0, keep_line, e);
    } else if (size > e->at) {
        e->at = read_from(path, e->at, false, keep_line, e);
    }
}

const struct event_line *events_at(const struct events *e, size_t i)
{
    return i < e->count ? &e->line[(e->first + i) % EVENTS_KEPT] : NULL;
}

size_t events_until(const struct events *e, uint64_t until)
{
    size_t n = e->count;
    while (until && n > 0 && events_at(e, n - 1)->wall > until)
        n--;
    return n;
}

/* ---- the newest of many -------------------------------------------------------------------------------------- */

void events_newest_look(struct events_newest *n)
{
    size_t kept = 0;
    for (size_t i = 0; i < n->count; i++)
        if (n->job[i].look == n->look)
            n->job[kept++] = n->job[i];
    n->count = kept;
    n->look++;
}

static struct event_newest *find(struct events_newest *n, const char *id)
{
    for (size_t i = 0; i < n->count; i++)
        if (!strcmp(n->job[i].id, id))
            return &n->job[i];
    if (n->count == n->room) {
        const size_t room = n->room ? 2 * n->room : 16;
        struct event_newest *more = realloc(n->job, room * sizeof *more);
        if (!more)
            return NULL;
        n->job = more;
        n->room = room;
    }
    struct event_newest *new = &n->job[n->count++];
    *new = (struct event_newest){.size = -1};
    snprintf(new->id, sizeof new->id, "%s", id);
    return new;
}

const struct event_line *events_newest_of(struct events_newest *n, const char *id, const char *directory)
{
    char path[JOB_PATH_ROOM + 16];
    struct event_newest *job = find(n, id);
    if (!job)
        return NULL;
    job->look = n->look;
    snprintf(path, sizeof path, "%s/events.jsonl", directory);
    const off_t size = size_of(path);
    if (size != job->size) {
        const off_t piece = size > 4096 ? size - 4096 : 0; /* no line of ours is as long, but for one with a stack */
        job->size = size;
        job->line.event[0] = 0;
        read_from(path, piece, piece > 0, keep_last, &job->line);
    }
    return job->line.event[0] ? &job->line : NULL;
}

const struct event_line *events_newest_known(const struct events_newest *n, const char *id)
{
    for (size_t i = 0; n && i < n->count; i++)
        if (!strcmp(n->job[i].id, id))
            return n->job[i].line.event[0] ? &n->job[i].line : NULL;
    return NULL;
}

void events_newest_free(struct events_newest *n)
{
    free(n->job);
    *n = (struct events_newest){.count = 0};
}
