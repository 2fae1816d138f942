/* journal.h - a job's events.jsonl: its end as JSON, read on as it grows; and which lines are worth parsing. */
#ifndef KC_CONSOLE_JOURNAL_H
#define KC_CONSOLE_JOURNAL_H

#include "base/json.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define JOURNAL_END ((size_t)4 << 20)  /* bytes that are looked at of what was there before */
#define JOURNAL_PIECE ((size_t)1 << 19) /* bytes that are read at once */

/* Whole lines, oldest first; a line that a crash cut is left out. An array, empty where there is nothing. New reference. */
json_t *journal_read(const char *directory);

/* How far one was read. A zeroed one is new. */
struct journal {
    ino_t inode; /* 0: nothing was read */
    off_t at;
    bool cut;    /* the beginning of the line at `at` is not wanted */
};

/* By the name of an event: is it wanted? */
typedef bool journal_wants(const char *event);

/* The next piece: events that `wants` names (NULL: all) are added to `events`, and no others are parsed. 1: there is more, go on;
 * 0: that is all for now; -ESTALE: the file is another, or was cut back: what it told before is void, go on. */
int journal_read_on(struct journal *j, const char *directory, journal_wants *wants, json_t *events);

/* Might a line tell of this event? Sees that without parsing where the line is as a supervisor writes it. */
bool journal_may_tell(const char *line, size_t bytes, const char *event);

#endif
