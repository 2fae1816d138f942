/* screen.h - the screen: ncurses around pure drawing. Opens when both ends are a terminal. */
#ifndef KC_CONSOLE_SCREEN_SCREEN_H
#define KC_CONSOLE_SCREEN_SCREEN_H

#include "console/session.h"

/* Until q. `job` NULL: the list of jobs; else the detail of that job, and the screen leaves when it ends. Returns
 * an exit code. The terminal is put back on every way out, a signal or a crash included. */
int screen_run(struct session *s, const char *job);

#endif
