/* comm_plan.h - every group and every collective of a step, with type, count, algorithm and why it exists. Schedule may
 * order them; it may not change, merge or split one.
 * Writer: strategy. Readers: schedule, govern, trace, engine, console, drill. */
#ifndef KC_CONTRACTS_COMM_PLAN_H
#define KC_CONTRACTS_COMM_PLAN_H

#include "base/contract.h"
#include "contracts/types.h"

#define KC_COMM_PLAN_VERSION 4

#define KC_PURPOSE_TABLE(X)                                                                                            \
    X(PURPOSE_GRADIENT, "gradient", 0)     /* once a bucket, after its last W of the step */                           \
    X(PURPOSE_AGREE, "agree", 0)           /* norm, loss, tokens, control: before the optimizer */                     \
    X(PURPOSE_PARAMETER, "parameter", 0)   /* gather updated shards, after the optimizer */                            \
    X(PURPOSE_DIGEST, "digest", 0)         /* compare contracts before step 1 */                                       \
    X(PURPOSE_ROOT, "state-root", 0)       /* sum the owners' parts of state_root */                                   \
    X(PURPOSE_STORE, "store", 0)           /* agree that a snapshot or restore step worked everywhere */               \
    X(PURPOSE_ACTIVATION, "activation", 0) /* a conversion inside the graph, once a micro-batch */                     \
    X(PURPOSE_TRANSFER, "transfer", 0)     /* from stage to stage, once a micro-batch */                               \
    X(PURPOSE_RING, "ring", 0)             /* a part goes on to the next rank of the context axis */
enum kc_purpose { KC_PURPOSE_TABLE(KC_ENUM_ROW) KC_PURPOSES };
extern const char *const kc_purpose_name[KC_PURPOSES];

/* The f64 vector that AGREE sums over all ranks. Each rank adds its own part; then all read the same. Behind the table stand
 * the tallies: what the plan's RESULT tensors besides loss and tokens have (kc_plan_tensor.offset). */
#define KC_AGREE_TABLE(X)                                                                                              \
    X(AGREE_LOSS, "loss_sum", 0)      /* natural log, summed over this rank's tokens */                                \
    X(AGREE_TOKENS, "tokens", 0)      /* unmasked tokens */                                                            \
    X(AGREE_NORM, "square_norm", 0)   /* Σ g² of what this rank owns, before division by tokens */                     \
    X(AGREE_NONFINITE, "nonfinite", 0)/* ranks that saw a value that is not finite before the reduction */             \
    X(AGREE_DIGEST, "replica_digest", 0) /* digests of parameters, weighted: Σ is 0 if ranks that hold the same agree */ \
    X(AGREE_STOP, "stop_votes", 0)    /* ranks that were told to stop */                                               \
    X(AGREE_CONTROL, "control", 0)    /* rank 0's control word; others add 0 */                                        \
    X(AGREE_BACKGROUND, "background", 0) /* ranks that do nothing in the background for a snapshot */
enum kc_agree { KC_AGREE_TABLE(KC_ENUM_ROW) KC_AGREES };

/* What PROGRAM_DIGEST compares between ranks before step 1: 64 bits each. */
#define KC_DIGEST_TABLE(X)                                                                                             \
    X(DIGEST_SPEC, "job_spec", 0) X(DIGEST_GRAPH, "model_graph", 0) X(DIGEST_SHARD, "shard_plan", 0)                   \
    X(DIGEST_COMM, "comm_plan", 0) X(DIGEST_EXEC, "exec_plan", 0) /* those of all ranks, which each of them makes */    \
    X(DIGEST_VARIANT, "kernel variant", 0) X(DIGEST_RULES, "boundary rules", 0) X(DIGEST_STATE, "state", 0)
enum kc_digest_of { KC_DIGEST_TABLE(KC_ENUM_ROW) KC_DIGESTS };
extern const char *const kc_agree_name[KC_AGREES], *const kc_digest_name[KC_DIGESTS];

/* u64 elements of the vector that ROOT sums (state_if.h): failures, bytes, and four limbs a parameter tensor for masters and
 * both moments. STORE sums the first two. */
#define KC_STORE_COUNT(parameter_tensors) (2 + 12 * (uint64_t)(parameter_tensors))

#define KC_NOT_MEMBER UINT32_MAX

/* Groups of one kind: no rank is in two of them. A collective names a family; which group it is follows from the rank.
 * Family 0 is the world. */
struct kc_plan_family {
    kc_text name;  /* "world", "data", "tensor", "data+context", … */
    uint32_t axes; /* bits 1 << enum kc_axis along which its ranks lie */
    uint32_t groups_first, groups_count;
};

struct kc_plan_group {
    kc_text name;         /* "world", "data.0", … */
    uint32_t family;
    struct kc_span ranks; /* uint32_t, ascending; index = position in the group */
};

struct kc_plan_collective {
    uint8_t primitive, type, reduce, algorithm; /* enums */
    uint8_t purpose;
    uint8_t counted; /* all-to-all of an op with in = {rows, moves}, moves (2, members) i32: 1: moves[0][m] rows go to member m,
                        moves[1][m] come from it; 2: the other way round. A row is the last dimension of in[0]. 0: see shift */
    uint8_t pad[2];
    uint32_t family; /* index */
    int32_t shift;   /* all-to-all: 0 every member gets count / members of each; else all of it goes to the member so many
                        positions further, round the group */
    int32_t bucket;  /* what it moves; -1: a vector named by purpose, or tensors of an op of shard_plan */
    uint32_t pad2;
    uint64_t count;  /* elements: all-reduce the vector; reduce-scatter the whole input; all-gather one rank's part; counted: the
                        most that a rank sends or receives. Of a tensor it is that of the largest part that any rank has */
};

struct kc_comm_plan {
    struct kc_contract head;
    struct kc_span families;    /* struct kc_plan_family */
    struct kc_span groups;      /* struct kc_plan_group, by family */
    struct kc_span members;     /* uint32_t, families × ranks: the rank's group, or KC_NOT_MEMBER */
    uint32_t ranks, pad;
    struct kc_span collectives; /* struct kc_plan_collective */
};

/* The group of a family that a rank is in; KC_NOT_MEMBER. */
static inline uint32_t kc_comm_group_of(const struct kc_comm_plan *p, uint32_t family, uint32_t rank)
{
    return KC_AT(p, uint32_t, p->members)[(size_t)family * p->ranks + rank];
}

extern const struct kc_layout kc_comm_plan_layout;

#endif
