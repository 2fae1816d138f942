/* helper.h - another of our programs (kc-rank, kcd, kc), run for a verb: what must compute does not
 * run in the console. It ends with us. */
#ifndef KC_CONSOLE_HELPER_H
#define KC_CONSOLE_HELPER_H

#include "session.h"

#include <stddef.h>
#include <sys/types.h>

struct helper {
    pid_t pid;
    const char *name; /* words[0], which lives as long as this */
    int out, errors; /* what it writes; what it complains of */
    char text[8192]; /* the first complaints; more are read and forgotten, so that their writer does
                        not wait for us */
    size_t bytes;
};

/* Where `program` lies: beside kc. */
void helper_path(const char *program, char *out, size_t room);
/* Start words[0] with the arguments behind it (NULL ends them). `home`: of another place than ours
 * (NULL: ours). -errno. */
int helper_start(const char *const *words, const struct kc_home *home, struct helper *out);
/* Some of what it writes, as read(2) gives it; hears complaints meanwhile. -1 when we were interrupted. */
ssize_t helper_read(struct helper *h, char *to, size_t room);
/* The next line it writes, without its newline; what is kept between calls is in `line`. NULL: no
 * more. */
struct helper_line {
    char text[4096];
    size_t used, given;
};
char *helper_read_line(struct helper *h, struct helper_line *line);
/* Hear the rest, wait for its end, close all. Tells its complaints, a line each, as ours: it is a
 * part of kc to who asked. Returns its exit code; when that is not 0, the last line told is the
 * failure. When we were interrupted it is asked to end, and only that is told. */
int helper_end(struct session *s, struct helper *h);
/* End it and tell nothing. */
void helper_drop(struct helper *h);

#endif
