/* log_tail.h - the last lines that the ranks of a job printed, kept for the screen: merged (console/logs.h), with the job's events
 * between them, bounded, the oldest go; and the first that tells of an error, which stays. */
#ifndef KC_CONSOLE_SCREEN_LOG_TAIL_H
#define KC_CONSOLE_SCREEN_LOG_TAIL_H

#include "console/events.h"
#include "console/logs.h"

#define LOG_KEPT 4000
#define LOG_WIDTH 512 /* bytes kept of a line */

struct log_kept {
    int rank;
    uint64_t wall;          /* when it came, kc_wall(); 0 unknown */
    bool error;             /* log_is_error(), or an event of kind fault */
    bool event;             /* no line of a rank but an event of the job, in words; rank -1: of none */
    char *text;             /* clean; owned */
};

struct log_tail {
    char id[JOB_ID_ROOM];
    int rank;               /* -1: all */
    uint64_t until, since;  /* of a replay's moment, 0: now; errors before `since` are of ranks that are no more */
    bool open;
    struct logs logs;
    struct log_kept line[LOG_KEPT]; /* ring */
    size_t first, count;
    unsigned long total;    /* lines ever, so that a scrolled view can stay where it is */
    unsigned long events;   /* of struct events, taken */
    struct log_error error; /* the first one */
    bool untimed;           /* a replay's, and nobody noted when lines came: there are none */
    char trouble[160];      /* why they can't be read; "" */
};

/* Read on; another job, rank or moment begins anew. `e`: events of the job, which are read. True: there is more to read at once. */
bool log_tail_read(struct log_tail *t, const struct job *j, int rank, uint64_t until, const struct events *e);
void log_tail_free(struct log_tail *t);
/* A line comes, as printed. */
void log_tail_add(struct log_tail *t, const struct log_line *l);
void log_tail_event(struct log_tail *t, const struct event_line *e);
/* The i-th, oldest first; NULL outside. */
const struct log_kept *log_tail_at(const struct log_tail *t, size_t i);

#endif
