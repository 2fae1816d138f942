/* screen.h - the screen: ncurses around pure drawing. Opens when both ends are a terminal. */
#ifndef KC_CONSOLE_SCREEN_SCREEN_H
#define KC_CONSOLE_SCREEN_SCREEN_H

#include "console/replay.h"
#include "console/session.h"

struct arguments;

/* Until q. `job` NULL: the list of jobs; else the detail of that job, and the screen leaves when it ends. `a`: options of
 * OF_SCREEN, or NULL. Returns an exit code. The terminal is put back on every way out, a signal or a crash included. */
int screen_run(struct session *s, const char *job, const struct arguments *a);
/* A job as it was, from where `replay` stands; keys walk through time, and nothing can be done to it. */
int screen_replay(struct session *s, struct replay *replay, const struct arguments *a);

#endif
