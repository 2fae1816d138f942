/* memory.c - see memory.h. */
#include "memory_impl.h"

#include <errno.h>
#include <stdlib.h>

int kc_plan_runs(const struct kc_shard_plan *s, enum kc_program_id program, uint32_t op)
{
    const struct kc_plan_op *ops = KC_AT(s, struct kc_plan_op, s->ops);
    switch (program) {
    case KC_PROGRAM_TRAIN:
        return op < s->evaluate_first || op >= s->backward_first;
    case KC_PROGRAM_EVALUATE:
        return op < s->logits_first;
    case KC_PROGRAM_FORWARD: /* its inputs are given */
        return op < s->evaluate_first ? ops[op].klass != KC_LOAD : op >= s->logits_first && op < s->backward_first;
    default:
        return 0;
    }
}

int kc_link_runs(const struct kc_shard_plan *s, enum kc_program_id program, const struct kc_plan_link *link)
{
    const struct kc_plan_op *ops = KC_AT(s, struct kc_plan_op, s->ops);
    for (uint32_t o = 0; o < s->ops.count; o++)
        for (uint32_t i = 0; i < ops[o].in.count && ops[o].stage == (int32_t)link->to; i++)
            if (KC_AT(s, int32_t, ops[o].in)[i] == link->tensor && kc_plan_runs(s, program, o))
                return 1;
    return 0;
}

uint64_t kc_tensor_elements(const struct kc_plan_tensor *t)
{
    uint64_t n = 1;
    for (int d = 0; d < t->rank; d++)
        n *= t->local[d];
    return n;
}

uint64_t kc_tensor_bytes(const struct kc_plan_tensor *t)
{
    return kc_tensor_elements(t) * kc_type_bytes[t->type];
}

int kc_tensor_in_work(const struct kc_plan_tensor *t)
{
    return t->role == KC_INPUT || t->role == KC_ACTIVATION || t->role == KC_DERIVATIVE;
}

static int larger_first(const void *a, const void *b)
{
    const struct block *x = *(struct block *const *)a, *y = *(struct block *const *)b;
    const uint64_t p = x->bytes * x->slots, q = y->bytes * y->slots;
    if (p != q)
        return p < q ? 1 : -1;
    return x < y ? -1 : 1; /* same array: the order of tensors, so that equal plans are placed alike */
}

static int live_together(const struct block *a, const struct block *b, uint32_t kinds)
{
    for (uint32_t k = 0; k < kinds; k++) {
        const struct life *x = &a->life[k], *y = &b->life[k];
        if (x->used && y->used && x->last >= y->first && x->first <= y->last)
            return 1;
    }
    return 0;
}

static uint64_t block_bytes(const struct block *b)
{
    return b->bytes * b->slots;
}

/* The smallest gap between the blocks that live at the same time; `placed` is sorted by offset. */
static uint64_t best_fit(const struct block *b, struct block *const *placed, uint32_t count, uint32_t kinds)
{
    uint64_t end = 0, best = 0, best_gap = UINT64_MAX;
    for (uint32_t i = 0; i < count; i++) {
        const struct block *p = placed[i];
        if (!live_together(p, b, kinds))
            continue;
        if (p->offset > end && p->offset - end >= block_bytes(b) && p->offset - end < best_gap)
            best = end, best_gap = p->offset - end;
        if (p->offset + block_bytes(p) > end)
            end = p->offset + block_bytes(p);
    }
    return best_gap == UINT64_MAX ? end : best;
}

static void place_all(struct block **order, struct block **placed, uint32_t count, uint32_t kinds,
                      struct kc_memory_plan *out)
{
    for (uint32_t i = 0; i < count; i++) {
        struct block *b = order[i];
        b->offset = best_fit(b, placed, i, kinds);
        if (b->offset + block_bytes(b) > out->bytes)
            out->bytes = b->offset + block_bytes(b);
        uint32_t at = i;
        for (; at > 0 && placed[at - 1]->offset > b->offset; at--)
            placed[at] = placed[at - 1];
        placed[at] = b;
    }
}

static int used(const struct block *b, uint32_t kinds)
{
    for (uint32_t k = 0; k < kinds; k++)
        if (b->life[k].used)
            return 1;
    return 0;
}

/* Lives are known: places, and what they come to. */
static void plan_fill(const struct kc_shard_plan *s, struct block *blocks, struct block **order, uint32_t kinds,
                      struct kc_memory_plan *m)
{
    const uint32_t n = memory_blocks(s);
    uint32_t roots = 0;
    for (uint32_t t = 0; t < n; t++) {
        m->unshared += used(&blocks[t], kinds) ? blocks[t].bytes * blocks[block_root(blocks, t)].slots : 0;
        if (used(&blocks[t], kinds) && blocks[t].into == t)
            order[roots++] = &blocks[t];
    }
    qsort(order, roots, sizeof *order, larger_first);
    place_all(order, order + n, roots, kinds, m);
    for (uint32_t t = 0; t < n; t++) {
        const struct block *root = &blocks[block_root(blocks, t)];
        m->offset[t] = root->offset, m->stride[t] = root->bytes, m->slots[t] = root->slots;
    }
}

/* Of a tensor, of a bucket of gradients, of one of parameters. */
static uint64_t bytes_of(const struct kc_shard_plan *s, uint32_t block)
{
    const struct kc_plan_bucket *buckets = KC_AT(s, struct kc_plan_bucket, s->buckets);
    if (block < s->tensors.count)
        return kc_tensor_bytes(KC_AT(s, struct kc_plan_tensor, s->tensors) + block);
    if (block < kc_memory_parameters(s, 0))
        return buckets[block - kc_memory_gradients(s, 0)].count * kc_type_bytes[KC_F32];
    const struct kc_plan_bucket *b = &buckets[block - kc_memory_parameters(s, 0)];
    return b->count * kc_type_bytes[b->type];
}

int kc_memory_plan_make(const struct kc_turns *turns, uint32_t coordinate, struct kc_memory_plan *out)
{
    const struct kc_shard_plan *s = turns->shard;
    const uint32_t n = memory_blocks(s), kinds = memory_kinds(turns);
    struct kc_memory_plan m = {0};
    struct block *blocks = calloc(n + 1u, sizeof *blocks);
    struct block **order = calloc(2u * n + 1u, sizeof *order);
    struct life *lives = calloc((size_t)n * kinds + 1, sizeof *lives);
    m.offset = calloc(n + 1u, sizeof *m.offset);
    m.stride = calloc(n + 1u, sizeof *m.stride);
    m.slots = calloc(n + 1u, sizeof *m.slots);
    int r = blocks && order && lives && m.offset && m.stride && m.slots ? 0 : -ENOMEM;
    for (uint32_t t = 0; r == 0 && t < n; t++) {
        blocks[t].life = lives + (size_t)t * kinds;
        blocks[t].bytes = (bytes_of(s, t) + MEMORY_ALIGN - 1) / MEMORY_ALIGN * MEMORY_ALIGN;
    }
    if (r == 0 && memory_lives(turns, coordinate, blocks) < 0)
        r = -ENOMEM;
    if (r == 0)
        plan_fill(s, blocks, order, kinds, &m);
    free(blocks);
    free(order);
    free(lives);
    if (r < 0)
        kc_memory_plan_free(&m);
    else
        *out = m;
    return r;
}

void kc_memory_plan_free(struct kc_memory_plan *m)
{
    free(m->offset);
    free(m->stride);
    free(m->slots);
    *m = (struct kc_memory_plan){0};
}
