/* turns.h - a shard plan as turns of a pipeline: in which order each coordinate of the pipeline axis takes them (order.h), and
 * the ops of each. Read for every rank, the same for all. Pure but for its memory. */
#ifndef KC_SCHEDULE_TURNS_H
#define KC_SCHEDULE_TURNS_H

#include "contracts/exec_plan.h"
#include "contracts/shard_plan.h"
#include "order.h"

/* Ops of a stage that run one after the other. TURN_B holds the whole backward where an order does not split it, else what
 * leads to the gradient of the stage's input; TURN_W what is left. */
enum turn_list { TURN_F, TURN_B, TURN_W, TURN_EVALUATE, TURN_SAMPLE, TURN_LISTS };
#define TURN_TRAIN 3 /* so many of them make a step */

/* A bucket that ops of a list read parameters of, or add gradients to: from which to which, as indices in kc_turns.ops. */
struct turn_use {
    uint32_t bucket, first, last;
};
enum { TURN_READS, TURN_ADDS, TURN_USES }; /* parameters as they are read first; gradients as they are complete */

struct kc_turns {
    const struct kc_shard_plan *shard;
    struct kc_order_lists order; /* of a step */
    uint32_t stages;
    bool split;                  /* the order has I and W */
    uint32_t *ops, *first;       /* (stage, enum turn_list): ops[first[i]] to ops[first[i + 1] - 1], those of
                                    every stage first, then ascending */
    struct turn_use *uses;       /* where buckets are not whole on every rank, zero >= 2; by (stage, enum turn_list, reads or
                                    adds): uses[uses_first[i]] to uses[uses_first[i + 1] - 1] */
    uint32_t *uses_first;
    uint32_t *chunk;             /* by stage: which of its coordinate's stages it is */
    uint32_t *links;             /* by link: bits 1 << enum kc_program_id of the programs in which it moves something */
};

/* *out is the caller's until kc_turns_free(). -EINVAL (e) the order does not take such a pipeline, or the plan's stages are
 * not where the order has them; -E2BIG, -ENOMEM. */
int kc_turns_new(const struct kc_shard_plan *shard, struct kc_turns *out, struct kc_error *e);
void kc_turns_free(struct kc_turns *t);

static inline uint32_t turn_coordinate(const struct kc_turns *t, uint32_t stage)
{
    return KC_AT(t->shard, struct kc_plan_stage, t->shard->stages)[stage].coordinate;
}
/* Uses of a list; *count says how many. */
static inline const struct turn_use *turn_uses(const struct kc_turns *t, uint32_t stage, enum turn_list list, int what,
                                               uint32_t *count)
{
    const uint32_t *first = &t->uses_first[(stage * TURN_LISTS + list) * TURN_USES + (uint32_t)what];
    *count = first[1] - first[0];
    return t->uses + first[0];
}
/* A bucket of two ranks of the pipeline: its gradients are kept to the end of all turns. */
static inline bool turn_shares(const struct kc_turns *t, const struct kc_plan_bucket *b)
{
    const struct kc_plan_stage *s = KC_AT(t->shard, struct kc_plan_stage, t->shard->stages);
    return b->tied >= 0 && s[b->tied].coordinate != s[b->stage].coordinate;
}
/* Rises from op to op of a list. */
static inline uint32_t turn_when(const struct kc_turns *t, uint32_t op)
{
    const bool every = KC_AT(t->shard, struct kc_plan_op, t->shard->ops)[op].stage == KC_EVERY_STAGE;
    return every ? op : op + t->shard->ops.count;
}
/* The list of a turn that computes. */
static inline enum turn_list turn_list_of(enum kc_turn_kind kind)
{
    return kind == KC_TURN_F ? TURN_F : kind == KC_TURN_W ? TURN_W : TURN_B;
}

#endif
