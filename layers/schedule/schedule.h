/* schedule.h - orders operations: expands the plans into one program set per rank, proves that they cannot deadlock,
 * and runs them over a compute lane and a communication lane. Never changes a cut, merges, splits or reorders
 * collectives, or knows what an opcode means. */
#ifndef KC_SCHEDULE_H
#define KC_SCHEDULE_H

#include "base/arena.h"
#include "base/error.h"
#include "contracts/comm_if.h"
#include "contracts/comm_plan.h"
#include "contracts/exec_plan.h"
#include "contracts/op_table.h"
#include "contracts/shard_plan.h"
#include "contracts/state_if.h"

#include <stdbool.h>

struct kc_probe;
struct kc_trace_if; /* contracts/trace_if.h */

/* ---- pure: expansion and proof ---- */
/* The programs of `rank`, with every buffer placed, sealed in a fresh arena. -ENOSPC see arena->need; -EINVAL e. */
int kc_schedule_expand(const struct kc_shard_plan *shard, const struct kc_comm_plan *comm, uint32_t rank,
                       struct kc_arena *arena, const struct kc_exec_plan **out, struct kc_error *e);
/* kind[r], one for every rank: ranks of one number have programs that differ in offsets alone, in a tensor and in what they
 * own of a bucket. Who only plans makes them once for all ranks of a kind. -ENOMEM. */
int kc_schedule_kinds(const struct kc_shard_plan *shard, const struct kc_comm_plan *comm, uint64_t *kind);
/* A fingerprint of one rank's programs: ops, verbs and collectives in their order. */
struct kc_digest kc_schedule_digest(const struct kc_exec_plan *plan);
/* Play the final programs of all ranks without a device: sends rendezvous, lanes are FIFO, every op of the plan once,
 * inputs before use, buffers awaited before reuse, every collective is one of comm_plan and stands exactly as often
 * and with the same signature and order on all members, one consistent order across a rank's groups, progress to the
 * end. `plans` has shard->ranks entries; ranks of a kind may share those of the first of them. -EDEADLK (e: the cycle, or who waits for what), -EPROTO (e: first
 * difference), -EINVAL. */
int kc_schedule_check(const struct kc_exec_plan *const *plans, const struct kc_shard_plan *shard,
                      const struct kc_comm_plan *comm, struct kc_error *e);
/* The program as a table for people (one line an instruction); returns the length it would have. */
size_t kc_schedule_table(const struct kc_exec_plan *plan, enum kc_program_id program, char *out, size_t room);

/* ---- the executor of one rank ---- */
struct kc_executor;

struct kc_executor_config {
    const struct kc_shard_plan *shard;
    const struct kc_comm_plan *comm_plan;
    const struct kc_exec_plan *plan;
    const struct kc_op_table *ops;
    const struct kc_comm_if *comm;
    const struct kc_state_if *state;
    const struct kc_trace_if *trace; /* who looks on; may be NULL */
    struct kc_probe *probe; /* may be NULL */
    uint32_t threads;       /* compute workers, the calling thread among them */
    bool oversubscribe;     /* ranks share cores: nobody spins long */
    double clip;            /* global norm limit; 0 none */
    uint64_t
        digest[KC_DIGESTS]; /* what PROGRAM_DIGEST compares; the executor fills in those of shard and communication plan */
};

/* Memory of the static plan is allocated and first touched here, threads are started here; running allocates nothing.
 */
int kc_executor_new(const struct kc_executor_config *config, struct kc_executor **out, struct kc_error *e);
void kc_executor_free(struct kc_executor *x);

/* Who saw in a step, before it was added to others', a value that is not finite. A tensor: index in the shard plan; -2 the loss,
 * -1 nothing. */
struct kc_nonfinite {
    uint32_t ranks;     /* how many; the same on all ranks */
    uint32_t rank;      /* if one: which */
    int64_t where, own; /* if one: in what; and this rank, in what */
};
/* What govern gives and gets with one run of a program. */
struct kc_run {
    struct kc_step_values values; /* in; executor sets scale after AGREE */
    double stop_vote, control;    /* in: this rank's contribution to AGREE (control: rank 0 only) */
    double background;            /* in: 1 where this rank does nothing in the background, else 0 */
    double replica_digest;        /* in: kc_state_replica_digest(), or 0 when it is not compared */
    double agreed[KC_AGREES];     /* out: the summed vector, the same on all ranks */
    const double *tallies;        /* out: of a step, summed: tallies_count of them; until the next run */
    uint64_t tallies_count;
    double loss, grad_norm;       /* out: mean loss over the step's tokens; global norm after division by tokens */
    double seconds[KC_PARTS]; /* out: time per part; PART_COMM: only what was exposed (compute lane stood still) */
    double waited;            /* out: seconds in which this rank stood still inside a collective: what it needed peers for */
    bool skipped;             /* out: not finite, and its update left out */
    struct kc_nonfinite nonfinite; /* out: if so, who saw it */
};

/* Run one program to its end; tickets are opened and closed by the program. After an error that all ranks agreed on
 * (a storage verb) the next program may run. After any other one a lane may still stand in a collective: run()
 * then answers -ESHUTDOWN, and the group must be aborted before kc_executor_free(), which waits for that lane. The
 * result vector is cleared before PROGRAM_TRAIN and before the first of a series of PROGRAM_EVALUATE
 * (kc_executor_clear). -ESHUTDOWN the group was aborted, -EPROTO signatures differ, -EIO data or storage, -ETIMEDOUT. */
int kc_executor_run(struct kc_executor *x, enum kc_program_id program, struct kc_run *run, struct kc_error *e);
/* What made a step not finite. */
struct kc_suspect {
    uint64_t origins; /* ranks where an op made such a value of finite ones, or a parameter was one; the same on all ranks */
    int32_t rank;     /* the first of them, or who alone saw one; -1 none in particular; the same on all ranks */
    char text[320];   /* "step 7: rank 1: …": on an origin with op, layer, micro-batch, tensor and element */
    char seen[192];   /* on an origin: in what it was seen before that was added to others'; "" in nothing */
};
/* All ranks, after a step that was skipped, and before anything else runs: find out why. `look_again`, the same on all ranks:
 * by running it once more, its update left out again. As kc_executor_run(). */
int kc_executor_find_nonfinite(struct kc_executor *x, struct kc_run *run, bool look_again, struct kc_suspect *out,
                               struct kc_error *e);
void kc_executor_clear(struct kc_executor *x);
/* Row `row` (batch row · context + position) of the logits of the last PROGRAM_FORWARD → out, vocab values. */
void kc_executor_logits(const struct kc_executor *x, uint64_t row, float *out);
/* The token input buffer of PROGRAM_FORWARD (i32, micro × context), to be filled by the caller before the run. */
int32_t *kc_executor_tokens(struct kc_executor *x);
/* Bytes the executor holds (work, scratch, results), for the memory check before start. */
uint64_t kc_schedule_memory(const struct kc_exec_plan *plan);

#endif
