/* lines.h - the last lines of a statement's output, which grows. Bounded; the oldest go. */
#ifndef KC_CONSOLE_SCREEN_LINES_H
#define KC_CONSOLE_SCREEN_LINES_H

#include <stdbool.h>
#include <stddef.h>

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

#endif
