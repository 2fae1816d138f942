/* exec_plan.h - the programs of one rank: what its executor runs, instruction by instruction, with every buffer placed.
 * Writer: schedule. Readers: schedule's checker and executor, govern, trace, engine, console, drill. */
#ifndef KC_CONTRACTS_EXEC_PLAN_H
#define KC_CONTRACTS_EXEC_PLAN_H

#include "base/contract.h"
#include "contracts/comm_plan.h"
#include "contracts/types.h"

#include <assert.h>

#define KC_EXEC_PLAN_VERSION 7

#define KC_PROGRAM_TABLE(X)                                                                                            \
    X(PROGRAM_DIGEST, "digest", 0)     /* compare the contracts' digests of all ranks */                               \
    X(PROGRAM_TRAIN, "train", 0)       /* one optimizer step */                                                        \
    X(PROGRAM_EVALUATE, "evaluate", 0) /* one forward micro-batch of validation data, summed into the result */        \
    /* A snapshot: each waits for what this rank does in the background, sums over the ranks, starts the next. */        \
    X(PROGRAM_SNAPSHOT_BEGIN, "snapshot-begin", 0) X(PROGRAM_SNAPSHOT_COPIED, "snapshot-copied", 0)                    \
    X(PROGRAM_SNAPSHOT_WRITTEN, "snapshot-written", 0) X(PROGRAM_SNAPSHOT_COMMITTED, "snapshot-committed", 0)          \
    X(PROGRAM_RESTORE, "restore", 0)                                                                                   \
    X(PROGRAM_ROOT, "root", 0)         /* state_root alone */                                                          \
    X(PROGRAM_AGREE, "agree", 0)       /* the control word alone: held by a pause, nothing is trained */               \
    X(PROGRAM_FORWARD, "forward", 0)   /* forward only, logits readable afterwards: kc sample */                       \
    X(PROGRAM_REPLICA, "replica", 0)   /* which rank holds other bits, and of which parameter: some ranks a round */
enum kc_program_id { KC_PROGRAM_TABLE(KC_ENUM_ROW) KC_PROGRAMS };

#define KC_LANE_TABLE(X) X(LANE_COMPUTE, "compute", 0) X(LANE_COMM, "comm", 0)
enum kc_lane_id { KC_LANE_TABLE(KC_ENUM_ROW) KC_LANES };

#define KC_INSTRUCTION_TABLE(X)                                                                                        \
    X(I_COMPUTE, "compute", 0)       /* an op of the op table (LOAD, F, I, W, UPDATE, norm) */                         \
    X(I_COLLECTIVE, "collective", 0) /* one collective of comm_plan */                                                 \
    X(I_CLEAR, "clear", 0)           /* zero a buffer */                                                               \
    X(I_OPEN, "open", 0)             /* open a ticket: class and bucket of ref out[0] */                               \
    X(I_CLOSE, "close", 0)           /* close it */                                                                    \
    X(I_STATE, "state", 0)           /* a storage verb of state_if, number in `opcode` */                              \
    X(I_AGREE, "agree", 0)           /* after the AGREE collective: read the vector, compute clip, stop on non-finite */\
    X(I_COMPARE, "compare", 0)       /* after the DIGEST collective: are all ranks' digests the same? */
enum kc_instruction_kind { KC_INSTRUCTION_TABLE(KC_ENUM_ROW) KC_INSTRUCTIONS };

/* Where the time of a step goes: every instruction belongs to one part. */
#define KC_PART_TABLE(X)                                                                                               \
    X(PART_DATA, "data", 0) X(PART_FORWARD, "forward", 0) X(PART_BACKWARD, "backward", 0)                              \
    X(PART_COMM, "communication", 0) X(PART_OPTIMIZER, "optimizer", 0) X(PART_STATE, "state", 0)
enum kc_part { KC_PART_TABLE(KC_ENUM_ROW) KC_PARTS };

/* Memory spaces a buffer can lie in. */
#define KC_SPACE_TABLE(X)                                                                                              \
    X(SPACE_NONE, "none", 0)       /* operand left out */                                                              \
    X(SPACE_WORK, "work", 0)       /* activations and derivatives: static plan, offset in bytes */                     \
    X(SPACE_RESULT, "result", 0)   /* AGREE and DIGEST vectors: offset in bytes, see KC_RESULT_* */                    \
    X(SPACE_PARAMETER, "parameter", 0) X(SPACE_GRADIENT, "gradient", 0) X(SPACE_MOMENT1, "moment1", 0)                 \
    X(SPACE_MOMENT2, "moment2", 0) /* state: bucket and offset in bytes from its start; moments with zero ≥ 1: the     \
                                      offset is still that of the whole bucket, state knows which part it holds */    \
    X(SPACE_STORE, "store", 0)     /* state's u64 vector for roots and agreement: offset in bytes */                   \
    X(SPACE_MASTER, "master", 0)   /* state, as moments; only of buckets whose parameters are not f32 */
enum kc_space { KC_SPACE_TABLE(KC_ENUM_ROW) KC_SPACES };

/* The class of state whose buckets lie in a space; -1: none does. */
static inline int kc_space_state(uint8_t space)
{
    static_assert(KC_SPACE_MOMENT2 - KC_SPACE_PARAMETER == KC_STATE_MOMENT2, "spaces of state stand as its classes");
    if (space == KC_SPACE_MASTER)
        return KC_STATE_MASTER;
    return space >= KC_SPACE_PARAMETER && space <= KC_SPACE_MOMENT2 ? space - KC_SPACE_PARAMETER : -1;
}

struct kc_exec_ref {
    uint8_t space, type, rank, pad;
    int32_t bucket;            /* state spaces; else -1 */
    uint64_t offset;           /* bytes */
    uint64_t size[KC_DIMS_MAX];/* this rank's; rank 0: one element */
    uint64_t first[KC_DIMS_MAX];/* where that begins in the logical tensor */
};

struct kc_exec_instruction {
    uint8_t kind, lane, part, accumulate;
    uint16_t opcode;         /* I_COMPUTE: jobs' id; I_STATE: enum kc_state_verb */
    uint16_t micro;          /* micro-batch */
    int32_t layer;
    int32_t collective;      /* I_COLLECTIVE: index in comm_plan; else -1 */
    int32_t op;              /* I_COMPUTE, I_COLLECTIVE: index of the op in shard_plan that it carries out; -1 for the
                                optimizer, the norm, and collectives of a bucket, a vector or a link */
    uint32_t sequence;       /* I_COLLECTIVE: number in its group within this program, from 0 */
    uint32_t refs;           /* index of its first ref in refs: inputs, then outputs */
    uint16_t inputs, outputs;/* I_COLLECTIVE: one each; a send has no output, a receive no input, and one that is
                                counted has its moves as second input */
    uint32_t attrs;          /* index in attrs */
    uint16_t attr_count, wait_count;
    uint32_t waits;          /* index in waits: instructions of the other lane that must be complete before it starts */
    uint32_t pad;
    uint64_t scratch;        /* bytes */
};

struct kc_exec_program {
    uint32_t first, count;   /* range in instructions */
    struct kc_span sequences;/* uint32_t per family of comm_plan: collectives this program runs in its group */
};

struct kc_exec_plan {
    struct kc_contract head;
    uint32_t rank, ranks;
    uint64_t work_bytes;          /* the static memory plan */
    uint64_t work_bytes_unshared; /* what it would be if every tensor had memory of its own */
    uint64_t scratch_bytes;       /* of one worker */
    uint64_t result_bytes;
    uint64_t tallies;             /* f64 behind the table in an AGREE vector: kc_plan_tallies() */
    struct kc_exec_program programs[KC_PROGRAMS];
    struct kc_span instructions; /* struct kc_exec_instruction */
    struct kc_span refs;         /* struct kc_exec_ref */
    struct kc_span attrs;        /* double */
    struct kc_span waits;        /* uint32_t, instruction index within the program */
    /* of PROGRAM_FORWARD: filled by the caller; with -1; with 0, 1 … in each row; with 0; read. positions and starts may
     * be left out (KC_SPACE_NONE) */
    struct kc_exec_ref tokens, targets, positions, starts, logits;
};

/* SPACE_RESULT, offsets in bytes: this rank's AGREE vector (comm_plan.h) with its tallies, the summed one, this rank's
 * digests, everybody's by rank. */
#define KC_RESULT_OWN 0
#define KC_RESULT_TALLIES (KC_AGREES * 8) /* of the own vector */
#define KC_RESULT_AGREED(tallies) ((KC_AGREES + (uint64_t)(tallies)) * 8)
#define KC_RESULT_DIGESTS(tallies) ((KC_AGREES + (uint64_t)(tallies)) * 16)
#define KC_RESULT_GATHERED(tallies) (KC_RESULT_DIGESTS(tallies) + KC_DIGESTS * 8)
#define KC_RESULT_BYTES(tallies, ranks) (KC_RESULT_GATHERED(tallies) + (uint64_t)(ranks) * KC_DIGESTS * 8)

extern const struct kc_layout kc_exec_plan_layout;
extern const char *const kc_program_name[KC_PROGRAMS], *const kc_lane_name[KC_LANES],
    *const kc_instruction_name[KC_INSTRUCTIONS], *const kc_part_name[KC_PARTS], *const kc_space_name[KC_SPACES];

#endif
