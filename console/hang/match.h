/* match.h - operations of all ranks put together: which stand open, who is in them, who has not come, who went past, and
 * where signatures differ. Pure: a function of the evidence alone.
 *
 * A collective is known by (group, generation, sequence), a message by its two ends as well. Only what somebody stands in,
 * or was refused, is kept: what all have done needs no explanation. Ranks of a former incarnation take part in nothing. */
#ifndef KC_CONSOLE_HANG_MATCH_H
#define KC_CONSOLE_HANG_MATCH_H

#include "evidence.h"

#define KC_BIT(rank) (UINT64_C(1) << (rank))

struct kc_match_op {
    uint32_t group, generation;
    uint64_t sequence;
    bool pair;           /* a message between two */
    uint32_t wait;       /* enum kc_wait: where a wait alone tells of it and no ring has it; KC_WAIT_NONE */
    /* ranks, a bit each. Every member is in exactly one of here, absent, passed and unknown. */
    uint64_t members;
    uint64_t here;       /* a record of it, of whatever signature */
    uint64_t absent;     /* have not come to it yet */
    uint64_t passed;     /* came to later ones of the group, and never to this */
    uint64_t unknown;    /* what could be read of them does not tell: wrapped, torn, not readable */
    /* of those that are here */
    uint64_t begun;      /* takes part: its peers may see its data */
    uint64_t open;       /* stands in it */
    uint64_t cut;        /* stood in it until the group was aborted */
    uint64_t refused;    /* was refused, for signatures differed */
    const struct kc_op_seen *seen[KC_RANKS_MAX]; /* by rank; NULL without a record */
    uint64_t since[KC_RANKS_MAX];                /* by rank: kc_now() since when it stands in it; 0 */
    const struct kc_op_seen *other[KC_RANKS_MAX];/* a message: what its end does under this number instead; NULL */
};

#define KC_MATCH_OPS 256
struct kc_match {
    uint32_t incarnation;      /* of the job: what belongs to another one is left out */
    uint64_t alive;            /* ranks of this incarnation that have a process which has not ended */
    uint64_t stale;            /* ranks whose slot is still that of a former incarnation, or empty */
    uint32_t count;
    struct kc_match_op op[KC_MATCH_OPS];
    uint64_t stands[KC_RANKS_MAX]; /* ranks that each rank waits for, a bit each; of maybe[] it is not known */
    uint64_t maybe[KC_RANKS_MAX];
    int32_t in[KC_RANKS_MAX];  /* index of the operation that the rank stands in (the oldest), -1: in none */
};

/* -ENOMEM. To be freed with free(). */
int kc_match(const struct kc_evidence *e, struct kc_match **out);

/* How two records of one operation differ, as the word of a verdict; KC_HANG_WORDS: they agree. Counts of an all-to-all
 * may differ; a send agrees with a recv. */
enum kc_hang_word kc_signatures_differ(const struct kc_op_seen *a, const struct kc_op_seen *b);
/* The ranks of `op` that hold the signature most of its members hold, where that is more than half of all members; 0:
 * there is no such. */
uint64_t kc_match_majority(const struct kc_match_op *op);
/* The ranks of `op` that hold the same signature as rank `r`. */
uint64_t kc_match_like(const struct kc_match_op *op, uint32_t r);

/* "all-reduce f32 sum 65536", "send f32 4096 to rank 1", "all-to-all" (a wait alone). */
void kc_match_text(const struct kc_match_op *op, uint32_t r, char *out, unsigned room);

static inline uint32_t kc_bits(uint64_t ranks)
{
    return (uint32_t)__builtin_popcountll(ranks);
}
static inline uint32_t kc_first(uint64_t ranks)
{
    return (uint32_t)__builtin_ctzll(ranks);
}
/* for (KC_EACH(r, set)): r walks through the ranks of a set */
#define KC_EACH(r, set)                                                                                              \
    uint64_t each_##r = (set), r = each_##r ? kc_first(each_##r) : 0; each_##r;                                        \
    each_##r &= each_##r - 1, r = each_##r ? kc_first(each_##r) : 0

#endif
