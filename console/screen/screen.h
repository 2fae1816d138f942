/* screen.h - the screen: ncurses around pure drawing. Opens when both ends are a terminal. */
#ifndef KC_CONSOLE_SCREEN_SCREEN_H
#define KC_CONSOLE_SCREEN_SCREEN_H

#include "console/replay.h"
#include "console/session.h"

/* Until q. `job` NULL: the list of jobs; else the detail of that job, and the screen leaves when it ends. Returns
 * an exit code. The terminal is put back on every way out, a signal or a crash included. */
int screen_run(struct session *s, const char *job);
/* A job as it was, from where `replay` stands; keys walk through time, and nothing can be done to it. */
int screen_replay(struct session *s, struct replay *replay);

#endif
