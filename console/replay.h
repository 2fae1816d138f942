/* replay.h - a job's recording, walked through: where it lies, at which moment one stands, and what was known then. A saved
 * board is a recording of one moment. */
#ifndef KC_CONSOLE_REPLAY_H
#define KC_CONSOLE_REPLAY_H

#include "history.h"
#include "model.h"

#include "base/json.h"
#include "shm/recording.h"

struct session;

struct replay {
    struct kc_recording *recording; /* NULL: `path` is a saved board */
    struct kc_recording_info info;
    char path[JOB_PATH_ROOM]; /* of the file or folder */
    uint32_t at;              /* moment */
    bool saved_wrong;         /* a saved board: something was wrong when it was saved */
    uint64_t wall;            /* what the clock shows: of the moment, or later where nothing changed */
};

/* `what`: a job's id; or with a / in it, or the name of something that is there, a recording, a segment of one, a
 * folder that holds one (a job's, a postmortem), or a saved board. Stands at the end. -ENOENT, else as kc_recording_open(). */
int replay_open(const struct kc_home *home, const char *what, struct replay *out, struct kc_error *e);
void replay_close(struct replay *r);
/* Read it again, where it goes on: a job that runs is recorded on. Stays at its time. */
int replay_again(struct replay *r, struct kc_error *e);

/* Moment i, as kc_recording_moment(). */
int replay_moment(const struct replay *r, uint32_t i, struct kc_moment *m);
/* Does a verb's word name a file or folder to look into, and no job? */
bool replay_is_path(const char *what);

/* Go to a time as typed (when.h). -EINVAL, -ERANGE; then it stays. */
int replay_seek(struct replay *r, const char *when, struct kc_error *e);
/* Walk. False: there is nothing further that way. */
enum replay_walk { REPLAY_BACK, REPLAY_FORTH, REPLAY_MINUTE_BACK, REPLAY_MINUTE_FORTH, REPLAY_FIRST, REPLAY_LAST,
                   REPLAY_WRONG_BACK, REPLAY_WRONG_FORTH };
bool replay_walk(struct replay *r, enum replay_walk how);

/* The board as it was. The reader is owned by the caller. */
int replay_board(struct replay *r, struct kc_reader **out, struct kc_error *e);
/* The same so long before, or longer: what stood still between them. -ENOENT: the recording does not reach back so far. */
int replay_board_before(struct replay *r, uint64_t nanoseconds, struct kc_reader **out, struct kc_error *e);
/* The job as it was, and (not NULL) its losses until then: the history is one of no file. */
int replay_job(struct replay *r, struct job *j, struct history *h, struct kc_error *e);
/* Something was wrong at the moment. */
bool replay_is_wrong(const struct replay *r);
/* {"time": …, "moment": …, "of": …, "wrong": …, "detail": "seconds"|"minutes"} of where it stands. New reference. */
json_t *replay_json(const struct replay *r);

/* The job as it was, for verbs that take --at; it has told what is wrong. Returns an exit code; then the job is the caller's. */
int replay_job_at(struct session *s, const char *what, const char *when, struct job *j);
/* Print the job as it was: what `kc show --at` and, without a screen, `kc replay --at` do. Returns an exit code. */
int replay_show(struct session *s, const char *what, const char *when);

#endif
