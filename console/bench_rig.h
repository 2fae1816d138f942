/* bench_rig.h - a real job for `kc bench`: random tokens, a folder and a kcd of its own below
 * $KC_HOME, so that nothing of the user's is touched and figures of the disk are those of his disk.
 */
#ifndef KC_CONSOLE_BENCH_RIG_H
#define KC_CONSOLE_BENCH_RIG_H

#include "bench.h"
#include "model.h"
#include "own_kcd.h"

#include "shm/records.h"

#define RIG_STEPS 4096 /* most that are kept */

/* What is run. */
struct bench_job {
    const char *model; /* what it is called: "10.8m", or "own" */
    uint32_t layers, hidden, heads, context, vocab, micro, accumulate, ranks, threads, zero;
    bool oversubscribe;
    const char *precision;
    uint64_t snapshot_every;      /* 0: none */
    uint32_t copies, full_every;  /* of snapshot, as in a spec; full_every 0: the default */
};
/* From the options. Exit codes, told. */
int bench_job_read(struct session *s, const struct arguments *a, struct bench_job *out);
/* Its parts, for --json. */
void bench_job_json(const struct bench_job *j, json_t *o);
void bench_job_print(const struct bench_job *j, FILE *out);
/* Tokens of a step over all ranks. */
uint64_t bench_job_tokens(const struct bench_job *j);
/* Matrix products of a step, causal attention counted half: what the peak of products bounds. */
double bench_job_flops(const struct bench_job *j);

/* What a job said of one snapshot, of rank 0: NaN unknown. */
struct bench_saving {
    double stall, copy, write; /* seconds */
    double bytes, raw_bytes;   /* on disk, and of the values */
};
#define RIG_SAVINGS 64 /* most that are kept */

/* What was seen of it. */
struct bench_rig {
    struct session *s;  /* the user's */
    struct own_kcd home;
    char id[JOB_ID_ROOM]; /* "": none yet */
    uint64_t typed;       /* kc_now() when `kc start` was */
    struct kc_step_record step[RIG_STEPS];
    size_t steps;
    uint64_t cursor;      /* how far the steps were read */
    double split[SPLITS][RIG_STEPS]; /* of rank 0, where a step's split was seen */
    size_t splits;
    struct bench_saving saving[RIG_SAVINGS];
    size_t savings;
    double saved, skipped;         /* snapshots, as counted by the job */
    uint64_t events[KC_RANKS_MAX]; /* how far those of each rank were read */
    char unsaved[256];             /* why the newest snapshot that failed did; "" none */
    double pss;        /* bytes of a rank, mean; NaN unknown */
    char variant[64];  /* of the kernels; "" unknown */
    bool costs_stored; /* its plan is made by the user's table of costs; false: by the built-in one */
};

/* The programs that it takes are there, and $KC_HOME may be written. */
int bench_rig_possible(struct session *s);
/* Make folder, tokens, spec, kcd; start the job. On any failure nothing is left. *out is owned
 * (bench_rig_close). */
int bench_rig_open(struct session *s, const struct bench_job *job, struct bench_rig **out);
/* Watch until so many steps are done. 128 + signal when interrupted; 1 if the job ended first. */
int bench_rig_follow(struct bench_rig *r, size_t steps);
/* The table of costs that its plan is made by: "stored" or "built-in". */
const char *bench_rig_costs(const struct bench_rig *r);
/* The job's folder of snapshots. */
void bench_rig_snapshots_path(const struct bench_rig *r, char *out, size_t room);
/* Stop looking: memory is read, kcd is asked to end, and its ranks are killed meanwhile (a snapshot
 * of random weights is worth nothing). */
void bench_rig_end(struct bench_rig *r);
/* bench_rig_end(), and the folder is removed. NULL is fine. */
void bench_rig_close(struct bench_rig *r);

#endif
