/* runner.h - a statement of the `:` line: another kc, so that what it does, waits for or crashes in never stops
 * the screen. */
#ifndef KC_CONSOLE_SCREEN_RUNNER_H
#define KC_CONSOLE_SCREEN_RUNNER_H

#include "lines.h"

#include <sys/types.h>

struct runner {
    pid_t pid;  /* 0: none */
    int fd;     /* its stdout and stderr; -1 */
    int code;   /* of the last one */
    struct lines lines;
};

/* Start `statement`; the output of the one before is gone. -errno; -EINVAL: a quote is not closed (it is told in
 * lines). */
int runner_start(struct runner *r, const char *statement);
/* Take what it has written; notices its end. */
void runner_read(struct runner *r);
/* As Ctrl-C would: it ends, the job it looks at goes on. */
void runner_interrupt(struct runner *r);
/* End it, with time to clean up, and forget all. */
void runner_free(struct runner *r);

#endif
