/* journal.h - the end of a job's events.jsonl, as JSON. */
#ifndef KC_CONSOLE_JOURNAL_H
#define KC_CONSOLE_JOURNAL_H

#include "base/json.h"

#define JOURNAL_END ((size_t)4 << 20) /* bytes that are looked at */

/* Whole lines, oldest first; a line that a crash cut is left out. An array, empty where there is nothing. New reference. */
json_t *journal_read(const char *directory);

#endif
