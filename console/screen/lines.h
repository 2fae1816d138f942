/* lines.h - the last lines of something that grows: a log, the output of a statement. Bounded; the oldest go. */
#ifndef KC_CONSOLE_SCREEN_LINES_H
#define KC_CONSOLE_SCREEN_LINES_H

#include "console/model.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define LINES_KEPT 2000
#define LINES_WIDTH 512 /* bytes kept of a line */

struct lines {
    char *line[LINES_KEPT]; /* ring; owned */
    size_t first, count;
    char part[LINES_WIDTH]; /* a line that has not ended */
    size_t part_bytes;
    unsigned long total;    /* lines ever, so that a scrolled view can stay where it is */
};

void lines_free(struct lines *l);
/* The i-th line, oldest first; "" outside. */
const char *lines_at(const struct lines *l, size_t i);
/* Take bytes; every whole line becomes one, with `prefix` before it. */
void lines_feed(struct lines *l, const char *prefix, const char *data, size_t bytes);
/* What has no newline yet becomes a line. */
void lines_flush(struct lines *l, const char *prefix);

/* The logs of a job's ranks, followed from near their ends. */
struct log_tail {
    char id[JOB_ID_ROOM];
    int rank; /* -1: all */
    struct lines lines;
    struct {
        off_t at;
        bool open;
        char part[LINES_WIDTH];
        size_t part_bytes;
    } source[KC_RANKS_MAX];
};
/* Read on; another job or rank begins anew. */
void log_tail_read(struct log_tail *t, const struct job *j, int rank);
void log_tail_free(struct log_tail *t);

#endif
