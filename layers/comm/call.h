/* call.h - one call, before it becomes an operation: are its arguments sound, how many bytes does it read and
 * write, and how is it told to a person. Pure functions. */
#ifndef COMM_CALL_H
#define COMM_CALL_H

#include "group.h"

#define CALL_TEXT 128

static inline bool call_reduces(const struct kc_comm_call *c)
{
    return c->primitive == KC_ALL_REDUCE || c->primitive == KC_REDUCE_SCATTER;
}

static inline bool call_pairs(const struct kc_comm_call *c)
{
    return c->primitive == KC_SEND || c->primitive == KC_RECV;
}

/* Elements that a member reads and writes, where they do not depend on counts of its own (all-to-all). */
size_t call_in_count(const struct kc_comm_call *c, uint32_t members, uint32_t position);
size_t call_out_count(const struct kc_comm_call *c, uint32_t members, uint32_t position);

/* 0, or -EINVAL and the argument in e. */
int call_check(const struct kc_group *g, const struct kc_comm_call *c, struct kc_error *e);
/* Fields that the primitive does not use are set to one value, so that signatures can be compared field by field. */
void call_normalise(struct kc_comm_call *c);

/* The signature as a person reads it: "all-reduce f32 sum direct 4096 #17". `peer`: for send and recv the rank at
 * the other end, else as in the call. */
void call_text(const struct kc_comm_call *c, int32_t peer, char out[CALL_TEXT]);

#endif
