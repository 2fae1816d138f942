/* executor_impl.h - what the files of the executor share: executor.c (life, one run), compute.c and communicate.c
 * (the lanes). */
#ifndef KC_SCHEDULE_EXECUTOR_IMPL_H
#define KC_SCHEDULE_EXECUTOR_IMPL_H

#include "schedule/schedule.h"

#include "contracts/trace_if.h"

#include "progress.h"
#include "team.h"

#include <pthread.h>

#define OPERANDS_MAX 16 /* inputs or outputs of one instruction */

/* A bucket of a class of state as this program sees it. */
struct kc_place {
    void *data; /* NULL: not looked up yet */
    bool open;  /* under a ticket */
};

/* hunt.c: where a value that is not finite was made, and what of it. */
struct kc_hunt_find {
    const struct kc_exec_instruction *instruction; /* NULL: nothing */
    uint32_t operand;
    uint64_t element;
    double value;
};
struct kc_hunt {
    struct kc_hunt_find worse, minus; /* the first of NaN and +inf, and of -inf */
    uint8_t reads;                    /* the worst that the op under way reads */
    bool saw;                         /* this rank had seen a value that is not finite: its -inf may be why */
    bool of_minus;                    /* agreed: nobody found worse than -inf */
    uint64_t origins;                 /* agreed: ranks that found something */
    bool over;                        /* the step was run once more */
};

struct kc_executor {
    struct kc_executor_config c;
    struct kc_team *team;
    unsigned char *memory; /* work, scratch, result: one mapping, touched at construction, but for work with room for a worst case */
    size_t memory_bytes;
    unsigned char *work, *scratch, *result;
    uint64_t *store;         /* state's */
    struct kc_place *places; /* KC_STATES × buckets */
    uint64_t *next;          /* by family: sequence number of its next collective */
    uint32_t *position;      /* by family: ours; UINT32_MAX not a member */
    uint64_t *counts;        /* of all-to-alls: elements for each member, then from each */
    uint32_t *counts_first;  /* by collective: index in counts */
    int32_t *first_reduction;/* by bucket: the collective that its gradients leave this rank by; -1 */
    uint32_t spins;

    /* ---- one run. Written before the comm lane starts, then read by both lanes. ---- */
    enum kc_program_id program;
    struct kc_run *run;
    const struct kc_exec_instruction *instructions;
    uint32_t count;
    uint64_t *base; /* by family: sequence at the start of the program */
    uint32_t step;  /* of the trace, from 1 */
    const struct kc_trace_if *watch; /* who looks on; NULL nobody */
    bool skip;      /* compute lane: leave updates out */
    struct kc_hunt *hunt; /* this run is one; NULL */

    /* How far a lane is: 1 + the index of its last complete instruction. The failed bit of both is set when either
     * fails. */
    struct kc_progress_word done[KC_LANES];

    /* ---- comm lane ---- */
    pthread_t thread;
    bool thread_made;
    struct kc_progress_word start, finished; /* numbers of runs; failed: end the thread */
    uint32_t runs;
    _Atomic uint32_t in_flight; /* 1 from before a collective starts until it is complete */
    int comm_code;              /* valid when finished */
    struct kc_error comm_error;
    uint64_t comm_ns;  /* inside collectives, this run */
    uint64_t away_ns;  /* outside of them while the compute lane stood still for it: this rank's own time, not its peers' */
    _Atomic uint64_t stands_since; /* compute lane: kc_now() since when it stands still; 0 it does not */
    int64_t nonfinite; /* what this rank saw first: tensor of the shard plan, -2 the loss, -1 nothing */
    bool broken;       /* a lane may still be inside a collective */
};

/* Where a ref lies. NULL: state not looked up (comm lane) or without a ticket (write). */
void *kc_executor_at(struct kc_executor *x, const struct kc_exec_ref *r, bool write);
/* Both lanes: wake the other one for good. */
void kc_executor_fail(struct kc_executor *x);
/* Wait until an instruction of the other lane is complete; false if a lane failed. */
bool kc_executor_await(struct kc_executor *x, int lane, uint32_t instruction, uint32_t spins);

/* Either lane, from its own thread: instruction n of the program of this run has ended. To the trace of the board. */
void kc_executor_trace(const struct kc_executor *x, enum kc_lane_id lane, uint32_t n, uint64_t begin, uint64_t end);

/* Show an operand of an instruction to who looks on. */
static inline void kc_executor_show(const struct kc_executor *x, const struct kc_exec_instruction *i, uint32_t operand,
                                    const void *data)
{
    if (x->watch && data)
        x->watch->seen(x->watch->self, (uint32_t)(i - x->instructions), operand, data);
}

/* hunt.c, on the compute lane: before and after an op; and what goes into the vector that is summed. */
void kc_hunt_before(struct kc_executor *x, const struct kc_exec_instruction *i, const struct kc_view *in, const struct kc_view *out);
void kc_hunt_after(struct kc_executor *x, const struct kc_exec_instruction *i, const struct kc_view *out);
void kc_hunt_vote(const struct kc_hunt *h, uint32_t rank, double *own);
void kc_hunt_count(struct kc_hunt *h, const double *agreed);

/* compute.c: where somebody looks on, clear outputs that are overwritten before the instruction runs. Rows for experts have room for
 * more than come, and what an earlier tensor left behind them is nobody's value. */
void kc_executor_blank(struct kc_executor *x, const struct kc_exec_instruction *i);

/* compute.c: walk the program on the calling thread. 0, or the error in e (-ECANCELED: the other lane failed). */
int kc_compute_lane(struct kc_executor *x, struct kc_error *e);
/* communicate.c: what collectives need beside their operands; groups are known. -ENOMEM. */
int kc_comm_prepare(struct kc_executor *x, struct kc_error *e);
/* communicate.c, on the compute lane once the ranks have agreed: gradients that are not added to others' were not looked
 * through on their way out; when the norm is not finite, find out which it was (x->nonfinite). */
void kc_comm_look_at_own(struct kc_executor *x);
/* communicate.c: the comm lane's thread. */
void *kc_comm_lane(void *executor);
/* AGREE_NONFINITE of one rank: how many ranks in the low 7 bits, so that the sum counts them; where, in the bits
 * above, readable when one rank alone saw something. A sum of KC_RANKS_MAX stays exact in a double. */
double kc_nonfinite_encode(uint32_t rank, int64_t where);
void kc_nonfinite_decode(double sum, uint32_t *ranks, uint32_t *rank, int64_t *where);

#endif
