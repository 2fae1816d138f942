/* kcd_impl.h - kcd's state, for its own files: kcd.c (beginning, loop, end), kcd_jobs.c (queue, keepers), kcd_verbs.c
 * (clients). Only jobs that have not ended are in memory; ended ones are read from their files when somebody asks. */
#ifndef KC_SUPERVISOR_KCD_IMPL_H
#define KC_SUPERVISOR_KCD_IMPL_H

#include "devices.h"
#include "kcd.h"
#include "life.h"
#include "link.h"
#include "loop.h"
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
    uint64_t next_schedule, started; /* kc_now(); kc_wall() */
};

/* kcd.c */
void kc_kcd_log(const char *format, ...) __attribute__((format(printf, 1, 2)));
void kc_kcd_publish(struct kc_kcd *d);                       /* devices, on the board's directory */
void kc_kcd_show_facts(struct kc_kcd *d);                    /* who we are and what we do, there too */
void kc_kcd_wake(struct kc_kcd *d, uint64_t when);

/* kcd_jobs.c */
void kc_kcd_scan(struct kc_kcd *d);                          /* files of jobs that have not ended become jobs again */
struct kc_kcd_job *kc_kcd_find(struct kc_kcd *d, const char *id);
struct kc_kcd_job *kc_kcd_enqueue(struct kc_kcd *d, const struct kc_record *record); /* NULL: no memory */
void kc_kcd_schedule(struct kc_kcd *d);                      /* start whoever has devices, first come first */
void kc_kcd_jobs_tick(struct kc_kcd *d);
/* A job without a keeper ends. It is gone then, unless its record can't be written: then it stays until it is. */
void kc_kcd_end(struct kc_kcd_job *job, enum kc_job_state state, const char *why);
bool kc_kcd_waits(const struct kc_kcd *d);                   /* is there a job that is not over? */
void kc_kcd_forward(struct kc_kcd_job *job, struct kc_kcd_waiter *w);
int kc_kcd_record(struct kc_kcd_job *job);                   /* write state.json, show it on the directory */
void kc_kcd_reread(struct kc_kcd_job *job);                  /* what its keeper wrote */
void kc_kcd_jobs_leave(struct kc_kcd *d);                    /* forget all, touch nothing */

/* kcd_verbs.c */
int kc_kcd_listen(struct kc_kcd *d, struct kc_error *e);
void kc_kcd_unlisten(struct kc_kcd *d);
void kc_kcd_reply(struct kc_kcd_client *client, json_t *reply); /* takes reply; client may be NULL */
void kc_kcd_stop_all(struct kc_kcd *d);
/* Everybody who waited for a job that has ended and is forgotten; takes the waiters. */
void kc_kcd_answer_over(struct kc_kcd_job *job);             /* everybody who waits: it has ended, unrecorded */
void kc_kcd_answer_ended(struct kc_kcd *d, const struct kc_record *record, struct kc_kcd_waiter *waiters);

#endif
