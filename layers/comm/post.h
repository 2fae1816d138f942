/* post.h - signatures: writing ours where peers see it, and comparing theirs with it. */
#ifndef COMM_POST_H
#define COMM_POST_H

#include "op.h"

/* Publish the signature of an operation, and where its buffers lie. */
void post_write(struct kc_comm_op *op);
/* Does our own part of this buffer lie where peers can read it? */
bool post_in_window(const struct kc_comm_op *op, const void *buffer, size_t bytes);
/* Look at a member's post of the same number: 0 not there yet, 1 it agrees, and member->in and out are set;
 * -EPROTO it differs, or no honest member can have written it: op->error says what. */
int post_look(struct kc_comm_op *op, uint32_t member);
/* All-to-all, when all posts are there: compare the counts of every pair, set *most to the largest. 0 or -EPROTO. */
int post_compare_counts(struct kc_comm_op *op, uint64_t *most);

#endif
