/* model.h - what is known about jobs, from their files under $KC_HOME/jobs and, while a job runs, from its board.
 * The one source of figures: the screen, ps, show, wait and metrics all read it here, so they say the same.
 *
 * Unknown is not zero: NaN for reals, -1 for whole numbers and states, "" for texts. */
#ifndef KC_CONSOLE_MODEL_H
#define KC_CONSOLE_MODEL_H

#include "base/error.h"
#include "base/home.h"
#include "console/loads.h"
#include "contracts/types.h"
#include "shm/names.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define JOB_ID_ROOM 64
#define JOB_PATH_ROOM 4096

/* What a rank hangs on right now. what KC_WAIT_NONE: nothing, or nothing worth telling (job_wait_tells); -1: unknown. */
struct job_wait {
    int what;        /* enum kc_wait */
    char group[33];  /* name of the group; "" none */
    int64_t sequence;/* of the operation in its group; -1 none */
    double seconds;  /* so long already */
};

/* Parts of a board whose writer died within: nothing is known of them. Bits of job.torn. */
#define JOB_TORN_TABLE(X)                                                                                              \
    X(FACTS, "facts") X(STATUS, "status") X(WATCH, "progress") X(STEPS, "steps") X(SNAPSHOTS, "snapshots") X(LOADS, "experts")
#define JOB_TORN_ROW(id, name) JOB_TORN_##id,
enum job_torn { JOB_TORN_TABLE(JOB_TORN_ROW) JOB_TORNS };
#undef JOB_TORN_ROW
extern const char *const job_torn_name[JOB_TORNS];

struct job_rank {
    int rank, node;  /* node: number of its machine among the job's; -1 */
    int64_t pid;     /* -1 */
    int state, phase;/* enums kc_rank_state, kc_phase; -1 */
    int64_t step, incarnation;
    double age;      /* seconds since its state, phase or step changed */
    struct job_wait wait;
    char letter;     /* for grids; '?' unknown */
    bool torn;       /* something of what it says is torn: its identity, wait or words, or what its keeper says of it */
    char cores[64];
    char words[320]; /* last words as one line; "" none */
    double metric[KC_METRICS];
    double busy;     /* seconds that it needs itself for a step, median of the last ones; NaN */
};

/* The first failure, as the keeper named it; reason "": none. */
struct job_failure {
    int64_t rank, step; /* -1: none of the ranks */
    char phase[24], reason[512];
    int64_t followers;
};

/* What a snapshot cost, as its ranks measured it: by enum kc_figure; NaN unknown. */
struct job_cost {
    uint64_t version, step; /* version 0: unknown */
    double figure[KC_FIGURES];
};

struct job_snapshot {
    int64_t version, step; /* -1: there is none */
    double bytes;
    bool verified;
    char root[33];
    struct job_cost cost;  /* once costs_newest() looked it up */
};

/* Where the time of the last step went, seconds. Order of the split bar. */
#define SPLIT_TABLE(X)                                                                                                 \
    X(DATA, "data", 'd') X(FORWARD, "forward", 'f') X(BACKWARD, "backward", 'b') X(COMM_EXPOSED, "communication", 'c') \
    X(OPTIMIZER, "optimizer", 'o')
enum job_split {
#define SPLIT_ROW(id, name, letter) SPLIT_##id,
    SPLIT_TABLE(SPLIT_ROW)
#undef SPLIT_ROW
    SPLITS
};
extern const char *const split_name[SPLITS];
extern const char split_letter[SPLITS];

struct job {
    char id[JOB_ID_ROOM], name[JOB_ID_ROOM];
    char directory[JOB_PATH_ROOM];
    char host[72], instance[56]; /* where it runs */
    char model[128];             /* "gpt2, 4 layers, 128 wide" */
    int64_t owner;               /* uid that its folder belongs to; -1 */
    int state;                   /* enum kc_job_state */
    int64_t step, steps, ranks, zero, restarts, incarnation, exit_code, keeper;
    int64_t queue;               /* place in the queue from 1; -1: not queued, or no kcd to ask */
    double loss, validation_loss, grad_norm, lr, step_seconds, seconds;
    double pace_seconds;         /* of a step, as a mean over the last minute: what is left of the run goes by it */
    double tokens_per_second;    /* over the last minute: known only while it runs and does not hang */
    int64_t validation_step;
    double split[SPLITS];        /* of rank 0, whose step `step_seconds` is too: parts of one step of one rank */
    char state_root[33];         /* of the state at `step` */
    char text[512];              /* the last fault as one line, survived or not; "" none */
    double hangs;                /* seconds for which it has stood still, if its keeper says that it hangs; NaN: it does not */
    char hang_text[256];         /* if so: what the diagnosis said; else "" */
    int64_t hang_rank;           /* with a text: the one rank that it accuses; else -1 */
    double restart_in;           /* seconds until its ranks are started again; NaN: nothing waits for that */
    char restart_why[56];        /* if so: "third crash without progress" */
    int64_t asked_ranks;         /* it goes on with fewer than that; -1: it has all */
    char device[160];            /* the faulty device that it lost last, and why; "" none */
    char waits[512];             /* queued: why its devices are not to be had now; "" */
    char unsaved[512];           /* why the last snapshot failed; "" it did not, or nobody knows */
    int64_t failed_saves;        /* snapshots that failed since the last that did not, as far as the journal's end tells */
    int64_t failed_step;         /* the last of them is of that step */
    char created[40];            /* RFC 3339 */
    struct job_failure failure;
    struct job_snapshot snapshot;/* the newest */
    uint32_t algorithms[KC_PRIMITIVES]; /* of its collectives: a bit each; see check_algorithms() */
    bool planned;                /* they are known, and these: */
    char layout[160];            /* "2 ranks: data 2; zero 1, 1f1b, recompute none" */
    uint64_t parameters, trained;/* elements of the model, and of those that are not frozen */
    bool board;                  /* its board was read */
    unsigned torn;               /* of which these parts could not be: a bit per enum job_torn */
    bool keeper_alive;           /* means something with a board */
    int board_error;             /* -errno why not, 0 */
    char board_text[256];
    double metric[KC_METRICS];   /* those of the keeper */
    struct loads *loads;         /* of its experts in the last step; NULL: it has none, or unknown */
    double imbalance;            /* of the worst layer of the last step, also of an ended job; NaN: the same */
    struct job_rank *rank;       /* [0, ranks_known) */
    size_t ranks_known;
};

struct model {
    struct job *job; /* newest first */
    size_t count;
};

struct kept; /* what is remembered between two looks (kept.h) */
struct kept_job;

/* All jobs; none is 0 with count 0. `kept` NULL: nothing is remembered. -errno if the folder of jobs is there and can't be
 * read. */
int model_read(const struct kc_home *home, struct kept *kept, struct model *out, struct kc_error *e);
void model_free(struct model *m);
/* One job. -ENOENT: no such job, e with the nearest id. -EINVAL: not an id. */
int job_read(const struct kc_home *home, const char *id, struct job *out, struct kc_error *e);
/* The same for who looks again and again. */
int job_look(const struct kc_home *home, struct kept *kept, const char *id, struct job *out, struct kc_error *e);
void job_free(struct job *j);

struct kc_reader;
/* A job as a saved or recorded board shows it, and nothing else: whether it had ended too. -ENOENT: the board says of no
 * job. */
int job_of_board(const struct kc_reader *r, struct job *out, struct kc_error *e);
/* "torn: status, ranks 3,5 and 7 more"; "" if nothing is. Returns out. */
const char *job_torn_text(const struct job *j, char *out, size_t room);

bool job_ended(const struct job *j);
/* It ended, and not as somebody wanted: failed or interrupted, or without its last snapshot. */
bool job_failed(const struct job *j);
/* It ended as somebody wanted, but its last snapshot failed: what was trained since the one before is lost. */
bool job_unsaved(const struct job *j);
const char *job_state_text(const struct job *j); /* "running", "?" */
/* "restarts in 8 s: third crash without progress"; "" where nothing waits for that. Returns out. */
/* "hangs for 41 s: rank 3 is stopped"; "" if it does not. Returns `out`. */
const char *job_hang_text(const struct job *j, char *out, size_t room);
const char *job_restart_text(const struct job *j, char *out, size_t room);
/* Seconds the rest would take at the speed of the last step; NaN unless it runs and does not hang. */
double job_eta(const struct job *j);
/* Seconds since any of its ranks changed its state, phase or step; NaN where no rank lives. */
double job_unchanged(const struct job *j);
/* Is a rank to blame that the job hangs, by the keeper's diagnosis, or does it stand still and wait for no other? The latter is
 * told if its keeper says that the job hangs, or after three steps and 10 s. */
bool job_rank_hangs(const struct job *j, const struct job_rank *r);
/* How often it was started again; -1. */
int64_t job_rank_restarts(const struct job_rank *r);
/* Is a wait worth telling? A wait for a thread of the same rank is ordinary, many times a step, until nothing has
 * moved for 5 s. `seconds`: so long already; `age`: since the rank's state, phase or step changed. */
bool job_wait_tells(int what, double seconds, double age);

/* Parts of job_read(), each filling what it knows. */
void job_clear(struct job *j, const char *id, const char *directory);
void job_rank_clear(struct job_rank *r, int rank);
int job_read_files(struct job *j, struct kept_job *kept); /* -ENOENT: not a job */
void job_read_board(struct job *j, const struct kc_home *home, struct kept_job *kept);

#endif
