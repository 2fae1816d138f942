/* kcd_impl.h - kcd's state, for its own files: kcd.c (beginning, loop, end), kcd_jobs.c (the list, records),
 * kcd_start.c (queue), kcd_lost.c (keepers that ended, or are found), kcd_sweep.c (what the dead left), kcd_verbs.c (what clients ask), kcd_intake.c (jobs that
 * come, or come again). Only jobs that have not ended are in memory; ended ones are read from their files when somebody asks. */
#ifndef KC_SUPERVISOR_KCD_IMPL_H
#define KC_SUPERVISOR_KCD_IMPL_H

#include "devices.h"
#include "kcd.h"
#include "life.h"
#include "link.h"
#include "loop.h"
#include "outside.h"
#include "record.h"

#include "shm/keeper.h"

struct kc_kcd;
struct kc_kcd_job;

struct kc_kcd_client {
    struct kc_kcd_client *next;
    struct kc_kcd *kcd;
    struct kc_link link;
};

/* A request that is under way: forwarded to the keeper, or waiting for the job's end. */
struct kc_kcd_waiter {
    struct kc_kcd_waiter *next;
    struct kc_kcd_client *client; /* NULL: it hung up */
    enum kc_life_event verb;
    json_int_t tag;
};

/* Where a job that has not ended stands, for kcd. */
enum kc_kcd_hold {
    KC_HOLD_QUEUE,  /* waits for devices */
    KC_HOLD_LINKED, /* its keeper lives and is connected */
    KC_HOLD_FIND,   /* its keeper lives, but does not answer yet */
    KC_HOLD_RANKS,  /* its keeper is lost: waits for its ranks to go */
    KC_HOLD_RECORD, /* it has ended, without a keeper: waits for its record to be written */
};

struct kc_kcd_job {
    struct kc_kcd_job *next;   /* in the order of the queue */
    struct kc_kcd *kcd;
    struct kc_record record;
    enum kc_kcd_hold hold;
    bool recover;              /* the next keeper must read what the lost one's ranks left */
    struct kc_link link;
    struct kc_source keeper;   /* pidfd; -1 */
    pid_t keeper_pid;          /* of that one; the record's is 0 as soon as the job has ended */
    uint64_t retry, kill_at;   /* kc_now(); in the queue: not before */
    struct kc_kcd_waiter *waiters;
    int slot;                  /* in the board's directory; -1 */
    char unsaved[KC_UNSAVED_ROOM]; /* why its record can't be written, by us or by its keeper; "" it is */
    bool over;                 /* if so: nothing is left of it but that */
    long long told, told_unsaved; /* of its journal: what is before that was read; step of the failed snapshot that was told last */
    uint64_t rewrite;          /* if so, and we write it: kc_now() of the next try */
};

struct kc_kcd {
    struct kc_loop loop;
    const struct kc_home *home;
    char boot[40];
    int lock;                  /* kcd.lock */
    char socket[PATH_MAX];
    struct kc_source signals, listener;
    struct kc_devices_pool *devices;
    struct kc_directory *directory;
    bool slots[KC_DIRECTORY_JOBS];
    uint32_t devices_shown;
    struct kc_kcd_job *jobs;
    struct kc_kcd_client *clients, *shutdown_client;
    json_int_t tags;
    bool draining;             /* stop every job, then end */
    bool detached;             /* end now, leave the jobs */
    struct kc_outside outside;
    uint64_t next_schedule, started; /* kc_now(); kc_wall() */
};

/* kcd.c */
void kc_kcd_log(const char *format, ...) __attribute__((format(printf, 1, 2)));
void kc_kcd_publish(struct kc_kcd *d);                       /* devices, on the board's directory */
void kc_kcd_show_facts(struct kc_kcd *d);                    /* who we are and what we do, there too */
void kc_kcd_wake(struct kc_kcd *d, uint64_t when);

/* kcd_sweep.c */
void kc_kcd_sweep(struct kc_kcd *d);                         /* what dead ones left; our own lock is held */
/* Open a lock file and lock it, if nobody has; -EWOULDBLOCK somebody has, else -errno. Never one that is removed by then. */
int kc_kcd_lock_file(const char *path, int flags);

/* kcd_jobs.c */
#define KC_KEEPER_RETRY (50 * KC_MILLISECOND) /* a keeper that does not answer yet, ranks that are not gone yet */
struct kc_kcd_job *kc_kcd_find(struct kc_kcd *d, const char *id);
struct kc_kcd_job *kc_kcd_enqueue(struct kc_kcd *d, const struct kc_record *record); /* NULL: no memory */
void kc_kcd_jobs_tick(struct kc_kcd *d);
/* A job without a keeper ends. It is gone then, unless its record can't be written: then it stays until it is. */
void kc_kcd_end(struct kc_kcd_job *job, enum kc_job_state state, const char *why);
void kc_kcd_bury(struct kc_kcd_job *job);                    /* it has ended, and nothing of it is left */
bool kc_kcd_waits(const struct kc_kcd *d);                   /* is there a job that is not over? */
void kc_kcd_forward(struct kc_kcd_job *job, struct kc_kcd_waiter *w);
int kc_kcd_record(struct kc_kcd_job *job);                   /* write state.json, show it on the directory */
void kc_kcd_show(struct kc_kcd_job *job);                    /* on the directory */
void kc_kcd_reread(struct kc_kcd_job *job);                  /* what its keeper wrote */
int kc_kcd_lock(const struct kc_kcd *d, const char *id);     /* the job's lock, as a descriptor; -EWOULDBLOCK: a keeper has it */
void kc_kcd_connect(struct kc_kcd_job *job, int fd);         /* to its keeper; takes fd */
void kc_kcd_drop(struct kc_kcd_job *job);                    /* the connection, and the watch over the keeper */
void kc_kcd_jobs_leave(struct kc_kcd *d);                    /* forget all, touch nothing */

/* kcd_tell.c */
void kc_kcd_tell_begin(struct kc_kcd_job *job);              /* what its journal has by now is not told */
void kc_kcd_tell(struct kc_kcd_job *job, bool recorded);     /* what came since, to the program of --on-event; its end, if that is recorded */

/* kcd_start.c */
void kc_kcd_schedule(struct kc_kcd *d);                      /* start whoever has devices, first come first */

/* kcd_shrink.c: leases of fewer ranks than the spec says, which it says then. -EBUSY: policy, batch or devices don't allow it now,
 * and *e stays as it was. */
int kc_kcd_shrink(struct kc_kcd_job *job, const struct kc_job_spec *spec, struct kc_job_leases **out, struct kc_error *e);
int kc_kcd_grow(struct kc_record *record, struct kc_error *e); /* back to what was asked for; -errno with one line */

/* kcd_lost.c */
void kc_kcd_scan(struct kc_kcd *d);                          /* files of jobs that have not ended become jobs again */
int kc_kcd_watch(struct kc_kcd_job *job);                    /* be told when its keeper ends */
void kc_kcd_find_keeper(struct kc_kcd_job *job);             /* it lives, and does not answer yet */
void kc_kcd_wait_for_ranks(struct kc_kcd_job *job);          /* it is lost, and its ranks may live on */

/* kcd_verbs.c */
int kc_kcd_listen(struct kc_kcd *d, struct kc_error *e);
void kc_kcd_unlisten(struct kc_kcd *d);
void kc_kcd_reply(struct kc_kcd_client *client, json_t *reply); /* takes reply; client may be NULL */
void kc_kcd_stop_all(struct kc_kcd *d);
/* Everybody who waited for a job that has ended and is forgotten; takes the waiters. */
void kc_kcd_ask_again(struct kc_kcd *d, struct kc_kcd_job *job); /* what its keeper was asked; may end the job */
void kc_kcd_answer_over(struct kc_kcd_job *job);             /* everybody who waits: it has ended, unrecorded */
void kc_kcd_answer_ended(struct kc_kcd *d, const struct kc_record *record, struct kc_kcd_waiter *waiters);

/* What a client is told: no; yes or no about a job, `note` continuing "job 'x' …"; with what is wrong with its record; and the exit
 * code of an error. */
json_t *kc_kcd_no(int code, const char *text);
json_t *kc_kcd_about(const struct kc_record *record, bool ok, const char *note);
json_t *kc_kcd_with_trouble(const struct kc_kcd_job *job, json_t *reply);
int kc_kcd_code(int error);

/* kcd_intake.c */
json_t *kc_kcd_start(struct kc_kcd *d, const json_t *request);
json_t *kc_kcd_requeue(struct kc_kcd *d, struct kc_record *record); /* of a job that has ended */

#endif
