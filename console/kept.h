/* kept.h - what is remembered of jobs from one look to the next, so that to look twice a second at fifty of them costs
 * little: boards stay attached, a file is read again only when it is another, and metrics.jsonl and events.jsonl are read on
 * where they were left. What is read is the same with it and without: nothing here is believed for longer than its file
 * stands. */
#ifndef KC_CONSOLE_KEPT_H
#define KC_CONSOLE_KEPT_H

#include "model.h"

#include "base/json.h"

#include <sys/stat.h>

struct kc_reader;

/* A small file as JSON, and of which bytes. */
struct kept_file {
    struct stat of;
    bool there;
    json_t *o; /* NULL: it is none */
};

/* How far a file of lines was read. */
struct kept_lines {
    struct stat of;
    int64_t at; /* behind a newline; 0: nothing was read yet */
};

enum kept_name { KEPT_SPEC, KEPT_STATE, KEPT_RESULT, KEPT_FILES };

struct kept_job {
    char id[JOB_ID_ROOM];
    unsigned look;          /* in which it was there last */
    struct kept_file file[KEPT_FILES];
    struct kept_lines metrics, events;
    bool saved_known;       /* a job that has ended: `saved` is its newest snapshot. Until one of its files is another */
    struct job_snapshot saved;
    struct job *told;       /* what those lines told; NULL: nothing yet */
    struct kc_reader *board;/* NULL: not attached */
    char instance[56];      /* in which it is */
};

void kept_job_clear(struct kept_job *k); /* forget all of it */

/* NULL: no memory; then all goes on without. */
struct kept *kept_new(void);
void kept_free(struct kept *k); /* NULL is fine */
/* A look begins, and ends: jobs that were not there in between are forgotten. */
void kept_begin(struct kept *k);
void kept_end(struct kept *k);
/* What is kept of a job, made if there is nothing yet. NULL: nothing can be. */
struct kept_job *kept_job(struct kept *k, const char *id);

/* The board of a job that was looked at in this look; NULL: it has none. Borrowed, until the next look. */
struct kc_reader *kept_reader(struct kept *k, const char *id);

/* ---- for who reads ---- */
/* The file as JSON, borrowed until the next time; NULL: it is not there, or no object. */
const json_t *kept_json(struct kept_job *k, enum kept_name which, const char *path);
/* The job's board, attached anew where another one has taken its name. Borrowed. Errors as kc_reader_attach(). */
int kept_board(struct kept_job *k, const char *instance, struct kc_reader **out, struct kc_error *e);
void kept_leave_board(struct kept_job *k);

#endif
