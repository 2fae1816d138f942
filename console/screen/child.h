/* child.h - another kc, started by the screen: what it does, waits for or crashes in never stops the screen. */
#ifndef KC_CONSOLE_SCREEN_CHILD_H
#define KC_CONSOLE_SCREEN_CHILD_H

#include <stdbool.h>
#include <sys/types.h>

/* This program is kc: what is started is the program itself once more. Until that is said, as in tests, nothing can be started:
 * another program that ran itself for kc would run its own children, and they theirs. */
void child_allow(void);
/* Start kc with word[0], word[1] … (NULL ends them; word[0] is "kc"), in a process group of its own: a Ctrl-C on the terminal is
 * for the screen. What it writes can be read from *fd, which does not block; what it complains of too, if `complaints`. `bound`:
 * it ends with us. The pid; -ENOSYS: this program is not kc; -errno. */
pid_t child_start(const char *const *word, bool complaints, bool bound, int *fd);

#endif
