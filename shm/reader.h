/* reader.h - reading the board: read-only, never in a writer's way, never trusting what it reads. Live segments
 * (also of dead processes) and saved boards look the same. Every count and index is bounded, every text ends. A
 * record that can't be read whole is reported as torn (-EAGAIN), not guessed: its writer is busy in it, or died
 * in it. */
#ifndef KC_SHM_READER_H
#define KC_SHM_READER_H

#include "base/error.h"
#include "shm/probe.h"
#include "shm/records.h"

#include <stdbool.h>
#include <stdint.h>

struct kc_reader;
struct kc_segment;

/* ---- opening ---- */
/* id NULL: the directory of the instance. Errors as kc_segment_attach(). */
int kc_reader_attach(const char *instance, const char *id, struct kc_reader **out, struct kc_error *e);
/* A saved board, copied into memory. -EBADMSG, -EPROTO as there. */
int kc_reader_open(const char *path, struct kc_reader **out, struct kc_error *e);
/* Does the file begin as a board does, whatever is behind? */
bool kc_reader_is_board(const char *path);
/* The board that a probe writes to, for tests and for `kc-rank --task`; must be freed before the probe. */
int kc_reader_of_probe(struct kc_probe *p, struct kc_reader **out, struct kc_error *e);
/* NULL is fine. */
void kc_reader_free(struct kc_reader *r);
/* Write the whole segment to a file (replaced atomically), each record whole, or marked as torn. */
int kc_reader_save(struct kc_reader *r, const char *path, struct kc_error *e);
/* The same into memory, within milliseconds whatever the disk does. A descriptor (close-on-exec), which kc_reader_open() can
 * open as a path below /proc/self/fd; or -errno. */
int kc_reader_save_memory(struct kc_reader *r, struct kc_error *e);
/* What became known of a rank's process since that descriptor was made. -EINVAL rank, -EIO. */
int kc_saved_process(int fd, uint32_t rank, const struct kc_rank_process *process);

/* Segments of this user's instance (NULL: all instances) that are there, live or not: for a console without kcd.
 * Calls `each` with instance and id (NULL: a directory) until it returns non-zero. Returns that, 0, or -errno. */
int kc_reader_list(const char *instance, int (*each)(void *self, const char *instance, const char *id), void *self);

struct kc_segment_info {
    char name[144], instance[56];
    uint32_t ranks;          /* 0: a directory */
    uint32_t creator;        /* pid of keeper or kcd */
    int creator_alive;       /* now; 0 for a saved board */
    int saved;               /* 1: from a file */
    int recorded;            /* 1: a moment of a recording (recording.h); creator_alive is not known then */
    int replaced;            /* 1: the name now belongs to another segment, or none: attach again */
    uint64_t generation, created_wall;
    uint64_t saved_wall;
};
void kc_reader_info(const struct kc_reader *r, struct kc_segment_info *out);
/* The clock that ages are measured by: kc_now(), or the moment at which the board was saved. */
uint64_t kc_reader_now(const struct kc_reader *r);
uint32_t kc_reader_ranks(const struct kc_reader *r);

/* ---- job: 0, -EAGAIN torn, -ENOENT never written ---- */
int kc_reader_facts(const struct kc_reader *r, struct kc_job_facts *out);
int kc_reader_status(const struct kc_reader *r, struct kc_job_status *out);
int kc_reader_ack(const struct kc_reader *r, struct kc_ack *out);
int kc_reader_plan(const struct kc_reader *r, struct kc_plan_facts *out);
uint64_t kc_reader_control(const struct kc_reader *r); /* KC_CONTROL_…, probe.h */
uint64_t kc_reader_abort(const struct kc_reader *r);   /* KC_ABORT_…, probe.h */
/* The group with that id. */
int kc_reader_group(const struct kc_reader *r, uint32_t id, struct kc_group_entry *out);
/* Its name alone, for who asks of every rank. -ENOENT also where it is torn. */
int kc_reader_group_name(const struct kc_reader *r, uint32_t id, char out[32]);

/* Is it getting on, as the keeper sees it. */
int kc_reader_watch(const struct kc_reader *r, struct kc_watch_seen *out);

struct kc_metrics {
    uint64_t valid[KC_METRICS_MAX / 64];
    double value[KC_METRICS_MAX];
};
/* 1 and the value, or 0: unknown. */
int kc_metric_get(const struct kc_metrics *m, enum kc_metric which, double *value);
void kc_reader_job_metrics(const struct kc_reader *r, struct kc_metrics *out); /* of layer "supervisor" */

/* ---- ranks ---- */
#define KC_TORN_IDENTITY 1u
#define KC_TORN_WAIT 2u
#define KC_TORN_WORDS 4u
#define KC_TORN_PROCESS 8u
struct kc_rank_view {
    struct kc_identity identity;     /* pid 0: nobody has taken the slot in this incarnation */
    struct kc_rank_process process;  /* what the keeper says; pid 0: not started */
    enum kc_rank_state state;        /* both together: EXITED, FAILED once the keeper saw it end */
    enum kc_phase phase;
    uint64_t step, since;            /* since: last change of state, phase or step */
    struct kc_waiting wait;          /* the one that the rank hangs on (waits.def); what NONE: none */
    struct kc_waiting waits[KC_WAIT_SLOTS]; /* all of them */
    uint32_t waits_count;
    struct kc_last_words words;      /* time 0: none */
    struct kc_metrics metrics;
    uint64_t ops;                    /* operations begun in all */
    uint64_t events;
    uint32_t torn;                   /* KC_TORN_…: these parts are zero */
    char letter;                     /* for a grid: the phase while it runs, else the state */
};
/* Slots that a former incarnation left are shown as not taken. -EINVAL rank. */
int kc_reader_rank(const struct kc_reader *r, uint32_t rank, struct kc_rank_view *out);
/* How late the rank comes to what all do together. As the job's records; of a former incarnation: -ENOENT. */
int kc_reader_pace(const struct kc_reader *r, uint32_t rank, struct kc_rank_pace *out);
/* What the threads of a rank wrote in answer to `request`, in the order of their slots. Returns how many, -EINVAL rank. */
int kc_reader_stacks(const struct kc_reader *r, uint32_t rank, uint64_t request,
                     struct kc_stack_seen out[KC_STACK_SLOTS]);
/* How far a rank is, in a few words, for who looks often and at all of them: two that are equal say that nothing moved. */
struct kc_pulse {
    uint64_t step, ops;              /* ops: begun in all */
    uint64_t trace[KC_TRACE_LANES];  /* instructions that have ended */
    enum kc_rank_state state;
    enum kc_phase phase;
    bool there;                      /* its process was started and has not ended, as far as the keeper knows; else all is 0 */
    bool waits;                      /* for a peer, with one of its threads; nothing that moved */
};
/* -EINVAL rank. */
int kc_reader_pulse(const struct kc_reader *r, uint32_t rank, struct kc_pulse *out);
/* The newest operations of a rank, oldest first, at most `max`. Returns how many; *torn (may be NULL) counts
 * entries left out because they could not be read whole. -EINVAL rank. */
int kc_reader_ops(const struct kc_reader *r, uint32_t rank, struct kc_op_seen *out, uint32_t max, uint32_t *torn);

/* ---- histories, as streams ---- */
/* *cursor is the number of the next record (0: from the oldest there is); it
 * moves past what was given. *lost (may be NULL) grows by the records that were overwritten before they were
 * read, or can't be read because their writer died in them. Returns how many were given; 0: none yet. */
int kc_reader_steps(const struct kc_reader *r, uint64_t *cursor, struct kc_step_record *out, uint32_t max,
                    uint64_t *lost);
int kc_reader_evaluations(const struct kc_reader *r, uint64_t *cursor, struct kc_evaluation *out, uint32_t max,
                          uint64_t *lost);
int kc_reader_events(const struct kc_reader *r, uint32_t rank, uint64_t *cursor, struct kc_event_seen *out,
                     uint32_t max, uint64_t *lost);
/* The trace of a lane of a rank, of its present incarnation. *cursor KC_TRACE_NEW: nothing is given, and it becomes
 * the number of what comes next. -EINVAL rank or lane. */
#define KC_TRACE_NEW UINT64_MAX
int kc_reader_trace(const struct kc_reader *r, uint32_t rank, uint32_t lane, uint64_t *cursor,
                    struct kc_trace_seen *out, uint32_t max, uint64_t *lost);
/* The newest step record, and the one written `back` before it: -ENOENT if there is none, or no longer. */
int kc_reader_last_step(const struct kc_reader *r, struct kc_step_record *out);
int kc_reader_step_before(const struct kc_reader *r, uint32_t back, struct kc_step_record *out);
int kc_reader_last_evaluation(const struct kc_reader *r, struct kc_evaluation *out);

/* -ENOENT too where the model has no experts, or too many to be shown. `out` is written on failure as well. */
int kc_reader_loads(const struct kc_reader *r, struct kc_loads *out);

/* The whole run's loss curve, ascending, at most KC_CURVE + 1 points (the last may stand for fewer steps than the
 * others). Returns how many, -EAGAIN torn. */
int kc_reader_curve(const struct kc_reader *r, struct kc_curve_point out[KC_CURVE + 1]);
/* The snapshot index, newest first, one entry a version. Returns how many. */
int kc_reader_snapshots(const struct kc_reader *r, struct kc_snapshot_entry out[KC_SNAPSHOTS], uint32_t *torn);

/* ---- directory: 0, -EAGAIN torn, -ENOENT free or never written, -EINVAL index ---- */
int kc_reader_directory(const struct kc_reader *r, struct kc_directory_facts *out);
int kc_reader_directory_job(const struct kc_reader *r, uint32_t i, struct kc_directory_job *out);
int kc_reader_directory_device(const struct kc_reader *r, uint32_t i, struct kc_directory_device *out);

#endif
