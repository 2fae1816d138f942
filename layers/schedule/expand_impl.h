/* expand_impl.h - what the files of the expansion share: expand.c (all programs, written down),
 * expand_train.c and expand_list.c. */
#ifndef KC_SCHEDULE_EXPAND_IMPL_H
#define KC_SCHEDULE_EXPAND_IMPL_H

#include "builder.h"
#include "turns.h"

#define EXPAND_SCRATCH_MIN 4096 /* the optimizer and the norm have no op in the graph that could ask for it */

/* An op on a run of a bucket that no op of the graph stands for: an update, a norm, a sum; to be given its refs. */
struct kc_exec_instruction expand_run(uint16_t opcode, enum kc_part part, const struct kc_plan_bucket *bucket, uint16_t outputs);
/* An instruction of the compute lane with at most one input and one output. */
void expand_simple(struct kc_builder *b, enum kc_instruction_kind kind, enum kc_part part, uint16_t opcode,
                   struct kc_exec_ref in, struct kc_exec_ref out);
/* The collectives of a purpose and bucket that this rank takes part in. */
void expand_collectives(struct kc_builder *b, enum kc_purpose purpose, int32_t bucket);
/* One side of all that goes from a stage to another in the program being built. */
void expand_links(struct kc_builder *b, const struct kc_turns *t, uint32_t from, uint32_t to, bool sends, uint32_t micro);
/* expand_list.c: the ops of a list for one micro-batch, with what buckets go through on the way: reductions behind the last op
 * of the step that adds to one (`left`: by bucket, gradients still to come; NULL: none come), or, where state keeps parts,
 * parameters gathered before they are read and gradients reduced when the list has made them. */
void expand_list(struct kc_builder *b, const struct kc_turns *t, uint32_t stage, enum turn_list list, uint32_t micro,
                 uint32_t *left);
/* Where state keeps a part of gradients, else nothing: an empty bucket to add to; and its reduced sum into state's part. */
void expand_clear(struct kc_builder *b, uint32_t bucket);
void expand_add(struct kc_builder *b, uint32_t bucket, uint32_t micro);
/* KC_PROGRAM_TRAIN. */
void expand_train(struct kc_builder *b, const struct kc_turns *t);

#endif
