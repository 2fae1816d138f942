/* words.h - a line becomes words, as a shell user expects: blanks part them, quotes hold them together, a
 * backslash takes the next letter as it is, # at the start of a word begins a comment. Nothing is expanded. */
#ifndef KC_CONSOLE_WORDS_H
#define KC_CONSOLE_WORDS_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>

/* Cuts `line` in place; word[] points into it. *count may be 0. -EINVAL a quote that is not closed, or more than
 * `room`. */
int words_split(char *line, const char **word, size_t room, size_t *count, struct kc_error *e);
/* A word as it may stand in a line: words_split() gives back the same one. False: it did not fit, and is cut. */
bool words_quote(const char *word, char *out, size_t room);

#endif
