/* outside.h - what kcd runs for programs that are not ours: `kc metrics --textfile`, and the user's own program for what happened
 * to a job. A few at once, each for so long; nobody waits for them, and what they say is not read. */
#ifndef KC_SUPERVISOR_OUTSIDE_H
#define KC_SUPERVISOR_OUTSIDE_H

#include "base/error.h"
#include "base/home.h"
#include "base/json.h"

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define KC_OUTSIDE_AT_ONCE 4          /* of the user's program */
#define KC_OUTSIDE_WAITING 64         /* what happened and is not told yet; of more, the newest is left out */
#define KC_OUTSIDE_SECONDS 30         /* then it is ended */
#define KC_TEXTFILE_SECONDS 15        /* from one writing of the figures to the next, at most */

struct kc_outside {
    const struct kc_home *home;
    char folder[PATH_MAX], command[PATH_MAX], console[PATH_MAX]; /* "": not asked for */
    int lock;                         /* of the folder: one kcd writes there; -1 */
    uint64_t write;                   /* kc_now() when figures are due */
    bool failed;                      /* to write them, the last time */
    struct kc_outside_child {
        pid_t pid;                    /* 0: none */
        uint64_t deadline;
        bool late;                    /* it was killed for that */
    } writer, program[KC_OUTSIDE_AT_ONCE];
    json_t *waiting;                  /* objects, oldest first */
    uint64_t dropped;
    void (*log)(const char *format, ...) __attribute__((format(printf, 1, 2)));
};

/* Either may be NULL: it is not asked for. -EBUSY, -errno with one line. Forks nothing yet. */
int kc_outside_open(struct kc_outside *o, const struct kc_home *home, const char *folder, const char *command, struct kc_error *e);
/* Programs that are under way go on by themselves, not longer than they may; the figures go, since nobody keeps them fresh. */
void kc_outside_close(struct kc_outside *o);
/* Something is other than it was: figures are written within a second. */
void kc_outside_changed(struct kc_outside *o);
/* Run the user's program with this on its standard input, as soon as there is room. Takes it. */
void kc_outside_tell(struct kc_outside *o, json_t *what);
/* A child of kcd has ended: was it one of these? */
bool kc_outside_take(struct kc_outside *o, pid_t pid, int status);
/* Begin what is due, end what is late. When to be called again, as kc_now(); 0: not before something happens. */
uint64_t kc_outside_tick(struct kc_outside *o);
/* Children that are under way, at most `room`; how many. */
size_t kc_outside_children(const struct kc_outside *o, pid_t *out, size_t room);

#endif
