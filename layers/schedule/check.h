/* check.h - the rooms of the checker. Each takes final programs as they are and believes nothing of how they were
 * made. */
#ifndef KC_SCHEDULE_CHECK_H
#define KC_SCHEDULE_CHECK_H

#include "base/error.h"
#include "contracts/comm_plan.h"
#include "contracts/exec_plan.h"
#include "contracts/shard_plan.h"

/* check_shape.c: every index is in its array, refs are in bounds, collectives are those of comm_plan with its
 * signature, numbered per group from 0, and each stands as often as its purpose asks for. -EINVAL, -EPROTO. */
int kc_check_shape(const struct kc_exec_plan *p, const struct kc_shard_plan *shard, const struct kc_comm_plan *comm,
                   struct kc_error *e);
/* check_data.c: every op of the shard plan once a micro-batch, inputs before use, no live buffer overwritten, tickets
 * held, reductions after the last gradient, updates after AGREE and of each owned element once; what both lanes touch
 * is awaited. Only after kc_check_shape(). -EINVAL; -ENOMEM. */
int kc_check_data(const struct kc_exec_plan *p, const struct kc_shard_plan *shard, const struct kc_comm_plan *comm,
                  struct kc_error *e);
/* check_lanes.c: what both lanes touch is ordered by waits. -EINVAL, -ENOMEM. */
int kc_check_lanes(const struct kc_exec_plan *p, enum kc_program_id program, struct kc_error *e);
/* check_play.c: the collectives of a group stand in the same order on all members (-EPROTO, e: the first difference),
 * and all ranks, played together, come to their end (-EDEADLK, e: the cycle, or who waits for whom). */
int kc_check_order(const struct kc_exec_plan *const *plans, uint32_t ranks, const struct kc_comm_plan *comm,
                   enum kc_program_id program, struct kc_error *e);
int kc_check_play(const struct kc_exec_plan *const *plans, uint32_t ranks, const struct kc_comm_plan *comm,
                  enum kc_program_id program, struct kc_error *e);

/* ---- shared ---- */
static inline const struct kc_exec_instruction *kc_program_at(const struct kc_exec_plan *p,
                                                              enum kc_program_id program)
{
    return KC_AT(p, struct kc_exec_instruction, p->instructions) + p->programs[program].first;
}
static inline const struct kc_exec_ref *kc_refs_of(const struct kc_exec_plan *p, const struct kc_exec_instruction *i)
{
    return KC_AT(p, struct kc_exec_ref, p->refs) + i->refs; /* inputs, then outputs */
}
/* Elements that a member of a group of so many reads and writes in a collective. */
void kc_collective_elements(const struct kc_plan_collective *c, uint64_t members, uint64_t *reads, uint64_t *writes);
uint64_t kc_ref_elements(const struct kc_exec_ref *r);
uint64_t kc_ref_bytes(const struct kc_exec_ref *r);
/* "#57 compute 4 (layer 2, micro-batch 1)", "#44 reduce-scatter of bucket 2", for error lines. Returns out. */
const char *kc_instruction_text(const struct kc_exec_plan *p, enum kc_program_id program, uint32_t index,
                                const struct kc_comm_plan *comm, char *out, size_t room);

#endif
