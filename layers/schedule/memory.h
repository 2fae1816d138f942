/* memory.h - the static memory plan: where every activation and derivative lies. Pure.
 *
 * A tensor lives from the op that writes it to the last op that reads it. Time is counted in turns (turns.h) and ops within
 * them: what a turn makes for itself shares memory with what other turns make for themselves; what one turn makes and another
 * reads, such as an activation that is saved for backward, is kept in every turn that may come between, in as many slots
 * as the order has micro-batches under way. What goes from rank to rank has memory of its own, so that no transfer holds up
 * a turn. An op that may work in place takes over its input's memory when nobody reads that input later.
 * Placement is greedy by size with best fit (Pisarchyk and Lee 2020, "Efficient Memory Management for Deep
 * Neural Net Inference", as in TensorFlow Lite): large blocks first, each into the smallest gap that is free for
 * its whole life. One plan serves all programs, and all ranks of one coordinate on the pipeline axis. What evaluation or
 * sampling alone makes lies where activations lie that training saves for backward: they are dead there. */
#ifndef KC_SCHEDULE_MEMORY_H
#define KC_SCHEDULE_MEMORY_H

#include "contracts/exec_plan.h"
#include "contracts/shard_plan.h"

struct kc_turns;

#define MEMORY_ALIGN 64

struct kc_memory_plan {
    uint64_t *offset;  /* bytes, by tensor; only of tensors that live in work memory. Then by bucket of gradients, and by
                          bucket of parameters, where state keeps a part of them alone (zero >= 2, 3) */
    uint64_t *stride;  /* bytes from slot to slot, by tensor */
    uint32_t *slots;   /* so many micro-batches are kept, by tensor: micro-batch m in slot m % slots */
    uint64_t bytes;    /* of the whole */
    uint64_t unshared; /* if no two tensors shared memory */
};

/* Does the program run this op of the shard plan? (In training, once a micro-batch.) */
int kc_plan_runs(const struct kc_shard_plan *shard, enum kc_program_id program, uint32_t op);

/* Does it pass what the link moves on? */
int kc_link_runs(const struct kc_shard_plan *shard, enum kc_program_id program, const struct kc_plan_link *link);

/* Local elements and bytes of a tensor. */
uint64_t kc_tensor_elements(const struct kc_plan_tensor *t);
uint64_t kc_tensor_bytes(const struct kc_plan_tensor *t);
/* Where the whole of a bucket stands in the plan's arrays while ops work on it. */
static inline uint32_t kc_memory_gradients(const struct kc_shard_plan *s, uint32_t bucket)
{
    return s->tensors.count + bucket;
}
static inline uint32_t kc_memory_parameters(const struct kc_shard_plan *s, uint32_t bucket)
{
    return s->tensors.count + s->buckets.count + bucket;
}
/* Where a micro-batch's tensor lies behind its offset. */
static inline uint64_t kc_memory_slot(const struct kc_memory_plan *m, uint32_t tensor, uint32_t micro)
{
    return micro % m->slots[tensor] * m->stride[tensor];
}
/* Does it live in work memory: inputs, activations, derivatives. */
int kc_tensor_in_work(const struct kc_plan_tensor *t);

/* That of the ranks at a coordinate of the pipeline axis. *out owns its arrays until kc_memory_plan_free(). -ENOMEM. */
int kc_memory_plan_make(const struct kc_turns *turns, uint32_t coordinate, struct kc_memory_plan *out);
void kc_memory_plan_free(struct kc_memory_plan *m);

#endif
