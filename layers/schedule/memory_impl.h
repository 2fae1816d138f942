/* memory_impl.h - what the files of the memory plan share: memory_life.c says when what lives, memory.c where it lies. */
#ifndef KC_SCHEDULE_MEMORY_IMPL_H
#define KC_SCHEDULE_MEMORY_IMPL_H

#include "memory.h"
#include "turns.h"

/* Ops by turn_when(), both inclusive: an op's inputs and outputs live at the same time. */
struct life {
    uint32_t first, last;
    int used;
};

/* What shares one piece of memory: a tensor, or a chain of tensors that ops hand on in place. */
struct block {
    struct life *life; /* by kind of time: see memory_kinds() */
    uint64_t bytes;    /* of one slot */
    uint64_t offset;
    uint32_t slots;
    uint32_t into;     /* the block this one was merged into; itself if none */
};

/* Times that are told apart: TURN_TRAIN a stage of the coordinate, then evaluation, then sampling. */
uint32_t memory_kinds(const struct kc_turns *t);
/* Tensors, buckets of gradients, buckets of parameters. */
static inline uint32_t memory_blocks(const struct kc_shard_plan *s)
{
    return s->tensors.count + 2 * s->buckets.count;
}
/* Fill lives, slots and merges of `blocks`, whose life arrays are zero. -ENOMEM. */
int memory_lives(const struct kc_turns *t, uint32_t coordinate, struct block *blocks);

static inline uint32_t block_root(const struct block *blocks, uint32_t t)
{
    while (blocks[t].into != t)
        t = blocks[t].into;
    return t;
}

#endif
