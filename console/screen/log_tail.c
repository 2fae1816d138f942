/* log_tail.c */
#include "log_tail.h"

#include "console/text.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TAIL_BYTES 65536   /* of each log, when it is opened */
#define LINES_AT_ONCE 20000

void log_tail_free(struct log_tail *t)
{
    for (size_t i = 0; i < LOG_KEPT; i++)
        free(t->line[i].text);
    if (t->open)
        logs_close(&t->logs);
    memset(t, 0, sizeof *t);
}

const struct log_kept *log_tail_at(const struct log_tail *t, size_t i)
{
    return i < t->count ? &t->line[(t->first + i) % LOG_KEPT] : NULL;
}

/* Tabs become blanks; what would not fit is cut. */
static char *clean_line(const struct log_line *l)
{
    char flat[LOG_WIDTH], safe[LOG_WIDTH + 1];
    size_t used = 0;
    for (size_t i = 0; i < l->bytes && used < sizeof flat; i++) {
        if (l->text[i] == '\r' && i + 1 == l->bytes)
            break;
        for (int k = 0; k < 4 && l->text[i] == '\t' && used < sizeof flat; k++)
            flat[used++] = ' ';
        if (l->text[i] != '\t')
            flat[used++] = l->text[i];
    }
    text_clean(flat, used, 0, safe, sizeof safe);
    return strdup(safe);
}

/* Takes the text. */
static void keep(struct log_tail *t, struct log_kept line)
{
    if (!line.text)
        return;
    if (t->count == LOG_KEPT) {
        free(t->line[t->first].text);
        t->first = (t->first + 1) % LOG_KEPT;
        t->count--;
    }
    t->line[(t->first + t->count++) % LOG_KEPT] = line;
    t->total++;
}

void log_tail_add(struct log_tail *t, const struct log_line *l)
{
    keep(t, (struct log_kept){l->rank, l->wall, log_is_error(l->text, l->bytes), false, clean_line(l)});
    log_error_take(&t->error, l, t->since);
}

void log_tail_event(struct log_tail *t, const struct event_line *e)
{
    char text[512];
    event_line_text(e, text, sizeof text);
    keep(t, (struct log_kept){(int)e->rank, e->wall, e->kind == KC_EVENT_KIND_FAULT, true, strdup(text)});
}

/* Events that came before `wall`; 0: all there are. */
static void take_events(struct log_tail *t, const struct events *e, uint64_t wall)
{
    const size_t until = events_until(e, t->until);
    for (size_t i = 0; i < until; i++) {
        const struct event_line *l = events_at(e, i);
        if (e->total - e->count + i < t->events || (t->rank >= 0 && l->rank >= 0 && l->rank != t->rank))
            continue;
        if (wall && l->wall > wall)
            return;
        log_tail_event(t, l);
        t->events = e->total - e->count + i + 1;
    }
}

static void begin(struct log_tail *t, const struct job *j, int rank, uint64_t until, uint64_t since)
{
    log_tail_free(t);
    snprintf(t->id, sizeof t->id, "%s", j->id);
    t->rank = rank;
    t->until = until;
    t->since = since;
    const int rc = logs_open(&t->logs, j, rank, TAIL_BYTES, until);
    t->open = rc == 0;
    t->untimed = t->open && until && !t->logs.times.known;
    if (rc == -ENOENT)
        snprintf(t->trouble, sizeof t->trouble, "%s",
                 until ? "a board has no log, and its job has no folder here" : "the folder of the job is removed");
    else if (rc)
        snprintf(t->trouble, sizeof t->trouble, "its logs: %s", strerror(-rc));
}

bool log_tail_read(struct log_tail *t, const struct job *j, int rank, uint64_t until, const struct events *e)
{
    struct log_line l;
    if (strcmp(t->id, j->id) || t->rank != rank || t->until != until || t->since != e->launched || !t->open || t->logs.count == 0)
        begin(t, j, rank, until, e->launched);
    if (t->open && !t->untimed)
        logs_refresh(&t->logs);
    for (int i = 0; t->open && !t->untimed && i < LINES_AT_ONCE; i++) {
        if (!logs_next(&t->logs, until != 0 || job_ended(j), &l))
            break;
        if (l.wall)
            take_events(t, e, l.wall);
        log_tail_add(t, &l);
        if (i == LINES_AT_ONCE - 1)
            return true;
    }
    take_events(t, e, 0);
    return false;
}
