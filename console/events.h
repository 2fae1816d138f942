/* events.h - the last events of a job as lines, from the end of its events.jsonl, for the screen: what came since is read on,
 * and a file that did not grow costs one stat. */
#ifndef KC_CONSOLE_EVENTS_H
#define KC_CONSOLE_EVENTS_H

#include "model.h"

#include "base/json.h"

#define EVENTS_KEPT 128

struct event_line {
    uint64_t wall;      /* kc_wall(); 0 unknown */
    int64_t rank, step; /* -1 */
    int kind;           /* enum kc_event_kind */
    char event[32];
    char text[256];     /* what it tells beside rank and step (event_words.h); "" */
};

struct events {
    char id[JOB_ID_ROOM];
    off_t at;           /* of the file, read */
    struct event_line line[EVENTS_KEPT]; /* ring */
    size_t first, count;
    unsigned long total; /* lines ever read */
    uint64_t launched;  /* when its ranks were started last, as far as these lines tell; 0 */
};

/* Read what is new; another job begins anew. A zeroed one is new, and nothing is to be freed. */
void events_read(struct events *e, const char *id, const char *directory);
/* The i-th, oldest first; NULL outside. */
const struct event_line *events_at(const struct events *e, size_t i);
/* How many there were at that time (kc_wall(); 0: now). */
size_t events_until(const struct events *e, uint64_t until);
/* One event of the journal; false: it is none. */
bool event_line_of(const json_t *event, struct event_line *out);
/* "rank 1 rank-exit killed by signal 9": without its time. Returns out. */
const char *event_line_text(const struct event_line *l, char *out, size_t room);

/* The last event of many jobs, for a list: read again only where a file has grown. */
struct events_newest {
    struct event_newest {
        char id[JOB_ID_ROOM];
        off_t size;
        unsigned look;  /* in which it was asked for last */
        struct event_line line;
    } *job;
    size_t count, room;
    unsigned look;
};
/* Before a round of questions: jobs that were not asked for in the one before are forgotten. */
void events_newest_look(struct events_newest *n);
/* NULL: it has none, or it cannot be read. Borrowed until the next question. */
const struct event_line *events_newest_of(struct events_newest *n, const char *id, const char *directory);
/* The same without looking at its file. */
const struct event_line *events_newest_known(const struct events_newest *n, const char *id);
void events_newest_free(struct events_newest *n);

#endif
