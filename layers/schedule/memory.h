/* memory.h - the static memory plan: where every activation and derivative of a micro-batch lies. Pure.
 *
 * A tensor lives from the op that writes it to the last op that reads it; a saved activation thus lives until
 * backward has read it. An op that may work in place takes over its input's memory when nobody reads that input
 * later. Placement is greedy by size with best fit (Pisarchyk and Lee 2020, "Efficient Memory Management for Deep
 * Neural Net Inference", as in TensorFlow Lite): large blocks first, each into the smallest gap that is free for
 * its whole life. One plan serves all programs. What only sampling makes, the logits, lives in its program alone:
 * there the activations that training saves for backward are dead, so the logits lie where those do and cost
 * nothing. */
#ifndef KC_SCHEDULE_MEMORY_H
#define KC_SCHEDULE_MEMORY_H

#include "contracts/exec_plan.h"
#include "contracts/shard_plan.h"

#define MEMORY_ALIGN 64

struct kc_memory_plan {
    uint64_t *offset;  /* bytes, by tensor; only of tensors that live in work memory */
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
/* Where a micro-batch's tensor lies behind its offset. */
static inline uint64_t kc_memory_slot(const struct kc_memory_plan *m, uint32_t tensor, uint32_t micro)
{
    return micro % m->slots[tensor] * m->stride[tensor];
}
/* Does it live in work memory: inputs, activations, derivatives. */
int kc_tensor_in_work(const struct kc_plan_tensor *t);

/* That of one rank. *out owns its arrays until kc_memory_plan_free(). -ENOMEM. */
int kc_memory_plan_make(const struct kc_shard_plan *shard, uint32_t rank, struct kc_memory_plan *out);
void kc_memory_plan_free(struct kc_memory_plan *m);

#endif
