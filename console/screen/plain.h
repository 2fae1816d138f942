/* plain.h - the screen as text: for copy mode, in which the terminal's own selection takes it, and for a file. */
#ifndef KC_CONSOLE_SCREEN_PLAIN_H
#define KC_CONSOLE_SCREEN_PLAIN_H

#include "view.h"

/* The view that has the keys, alone, without what stands around it; one that lists with all of its rows, also those that the
 * screen has no room for. `c` says what letters there are. Changes nothing. Owned by the caller; NULL: no memory. */
char *plain_view(const struct view *v, const struct canvas *c);
/* Keep a text in a new file of the current folder: kc-NAME-TIME.txt; `out` is what it is called. 0 or -errno. */
int plain_save(const char *name, const char *text, char *out, size_t room);

#endif
