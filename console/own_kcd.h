/* own_kcd.h - a folder and a kcd of its own below the user's $KC_HOME, for verbs that run jobs which are not the user's: nothing of
 * his is touched, and nothing of theirs is left. Functions that return an int give exit codes, and have told why if it is not 0. */
#ifndef KC_CONSOLE_OWN_KCD_H
#define KC_CONSOLE_OWN_KCD_H

#include "model.h"
#include "session.h"

#include <limits.h>
#include <sys/types.h>

struct own_kcd {
    struct session *s;  /* the user's */
    struct session own; /* of this home and instance */
    char folder[PATH_MAX]; /* "": none yet */
    pid_t kcd;          /* 0: none */
};

/* Make the folder. `what` begins its name and the instance's: "bench". */
int own_kcd_make(struct own_kcd *k, struct session *s, const char *what);
/* A file in it. */
int own_kcd_write(struct own_kcd *k, const char *name, const void *data, size_t bytes);
/* `count` random tokens below `vocab`, as a token file in it. */
int own_kcd_tokens(struct own_kcd *k, const char *name, uint64_t count, uint32_t vocab);
/* Start kcd, with one more word (NULL: none), and wait until it answers. */
int own_kcd_start(struct own_kcd *k, const char *word);
/* `kc start` of a file in the folder; id has JOB_ID_ROOM. */
int own_kcd_job(struct own_kcd *k, const char *spec, char *id);
/* kcd is asked to end. `kill_ranks`: without waiting for what its jobs would save. */
void own_kcd_end(struct own_kcd *k, bool kill_ranks);
/* own_kcd_end(), and the folder is removed. */
void own_kcd_remove(struct own_kcd *k);

#endif
