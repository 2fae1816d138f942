/* group.h - groups and the channels below them.
 *
 * A group is immutable: who is in it. What moves lies elsewhere: in the transport, one `struct slot` per group
 * with its channels; a channel is the private side of one sequence of operations, all of whose members take part
 * in each: the collectives of a group, or the sends of one member to another (two members: 0 the sender, 1 the
 * receiver). */
#ifndef COMM_GROUP_H
#define COMM_GROUP_H

#include "local.h"

struct kc_group {
    struct kc_transport *const transport;
    const uint32_t id, slot, count, position;
    const uint8_t ranks[KC_RANKS_MAX];
};

/* A member of a channel, as this rank sees it. */
struct member {
    struct cell *cell;
    struct counts *counts; /* two, by parity; NULL in a pair's channel */
    uint8_t *staging;      /* four chunks: half (parity of the operation) × buffer (parity of the round) */
    uint32_t rank;         /* on the transport */
    /* Of the operation at the head, once its post was checked: NULL where it does not lie in a window. */
    const uint8_t *in;
    uint8_t *out;
    uint64_t remote_in, remote_out; /* where they lie in its own memory, if not in a window */
    bool first;                     /* its first round was staged before it posted */
    bool even;                      /* all-to-all: it says that each sends each `each` elements */
    uint64_t each;
};

struct channel {
    struct kc_transport *transport;
    const struct kc_group *group;
    uint32_t members, self;
    bool pair;
    bool reach;        /* we can read the own memory of all members */
    bool reached;      /* all members can, as they say in their posts */
    size_t chunk;      /* bytes */
    uint64_t number;   /* of the last operation posted by us */
    uint64_t joined;   /* all members have posted this one (only ever number or number - 1) */
    uint64_t ready, done; /* bases of the head operation: the sums of all before it, the same on all members */
    uint64_t owed;     /* members that may sleep on what we have published since we last rang, a bit each */
    struct kc_comm_op *head, *tail;
    struct member member[];
};

struct slot {
    struct channel *collectives;
    struct channel *send[KC_RANKS_MAX], *receive[KC_RANKS_MAX]; /* by position; NULL for ourselves */
    uint32_t pairs;             /* operations in flight between pairs */
    struct kc_comm_op *spare;   /* freed operations, for the next start */
};

/* All members, a bit each. */
static inline uint64_t channel_all(const struct channel *c)
{
    return c->members == 64 ? UINT64_MAX : (UINT64_C(1) << c->members) - 1;
}

/* Free what kc_group_new put into the transport. */
void group_free_slots(struct kc_transport *t);

static inline struct slot *group_slot(const struct kc_group *g)
{
    return g->transport->slot[g->slot];
}

#endif
