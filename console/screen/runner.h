/* runner.h - what the `:` line and the menu run: another kc for each statement, so that what it does, waits for or crashes in
 * never stops the screen. All that is run is kept for `kc history` (statements.h). */
#ifndef KC_CONSOLE_SCREEN_RUNNER_H
#define KC_CONSOLE_SCREEN_RUNNER_H

#include "lines.h"

#include "console/statements.h"

#include <stdint.h>
#include <sys/types.h>

#define RUNNER_ROOM 16384

struct runner {
    pid_t pid;  /* 0: none */
    int fd;     /* its stdout and stderr; -1 */
    int code;   /* of the last one; of several, of the first that failed */
    struct lines lines;
    const struct kc_home *home;
    char id[STATEMENT_ID];    /* of the one that runs, in the history; "": it is not kept */
    uint64_t began;
    bool several;             /* each is told before what it prints */
    char queue[RUNNER_ROOM];  /* what comes after it, one a line */
};

/* Start `statements`, one a line, one after the other, whether or not the one before failed; the output of those before is
 * gone. What is wrong with one is told in lines. */
void runner_start(struct runner *r, const struct kc_home *home, const char *statements);
/* Take what it has written; notices its end, and goes on with the next. */
void runner_read(struct runner *r);
/* As Ctrl-C would: it ends, the job it looks at goes on. Those after it are not run. */
void runner_interrupt(struct runner *r);
/* End it, with time to clean up, and forget all. */
void runner_free(struct runner *r);

#endif
