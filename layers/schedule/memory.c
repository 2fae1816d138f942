/* memory.c - see memory.h. */
#include "memory.h"

#include <errno.h>
#include <stdlib.h>

/* Programs that lay different claims to memory. What evaluation adds reads nothing for longer than training does. */
enum { TRAINING, SAMPLING, KINDS };

/* Ops, both inclusive: an op's inputs and outputs live at the same time. */
struct life {
    uint32_t first, last;
    int used;
};

/* What shares one piece of memory: a tensor, or a chain of tensors that ops hand on in place. */
struct block {
    struct life life[KINDS];
    uint64_t bytes, offset;
    uint32_t into; /* the block this one was merged into; itself if none */
};

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

static void touch(struct life *l, uint32_t op)
{
    if (!l->used || op < l->first)
        l->first = op;
    if (!l->used || op > l->last)
        l->last = op;
    l->used = 1;
}

static int used(const struct block *b)
{
    return b->life[TRAINING].used || b->life[SAMPLING].used;
}

/* A collective goes on while the compute lane does other things: what it reads lives until its result is read, unless that
 * takes its place. */
static uint32_t in_flight_until(const struct kc_shard_plan *s, uint32_t op)
{
    const struct kc_plan_op *ops = KC_AT(s, struct kc_plan_op, s->ops);
    if (ops[op].collective < 0 || ops[op].in_place)
        return op;
    const int32_t made = KC_AT(s, int32_t, ops[op].out)[0];
    for (uint32_t o = op + 1; o < s->ops.count; o++)
        for (uint32_t i = 0; i < ops[o].in.count; i++)
            if (KC_AT(s, int32_t, ops[o].in)[i] == made)
                return o;
    return op;
}

static void live_ranges(const struct kc_shard_plan *s, uint32_t rank, struct block *blocks)
{
    const struct kc_plan_tensor *tensors = KC_AT(s, struct kc_plan_tensor, s->tensors);
    const struct kc_plan_op *ops = KC_AT(s, struct kc_plan_op, s->ops);
    for (uint32_t o = 0; o < s->ops.count; o++) {
        if (!kc_plan_runs_op(s, &ops[o], rank))
            continue;
        const struct kc_span spans[2] = {ops[o].in, ops[o].out};
        const uint32_t until = in_flight_until(s, o);
        const int runs[KINDS] = {[TRAINING] = o < s->logits_first || o >= s->backward_first,
                                 [SAMPLING] = kc_plan_runs(s, KC_PROGRAM_FORWARD, o)};
        for (int k = 0; k < 2; k++)
            for (uint32_t i = 0; i < spans[k].count; i++) {
                int32_t t = KC_AT(s, int32_t, spans[k])[i];
                for (int p = 0; p < KINDS && t >= 0 && kc_tensor_in_work(&tensors[t]); p++)
                    if (runs[p]) {
                        touch(&blocks[t].life[p], o);
                        touch(&blocks[t].life[p], k == 0 ? until : o);
                    }
            }
    }
    for (uint32_t t = 0; t < s->tensors.count; t++) {
        blocks[t].into = t;
        blocks[t].bytes = (kc_tensor_bytes(&tensors[t]) + MEMORY_ALIGN - 1) / MEMORY_ALIGN * MEMORY_ALIGN;
        if (tensors[t].role == KC_INPUT)
            touch(&blocks[t].life[SAMPLING], 0); /* kc sample fills inputs before the first op */
    }
    /* kc sample reads the logits when forward is over */
    if (s->logits >= 0 && s->backward_first)
        touch(&blocks[s->logits].life[SAMPLING], s->backward_first - 1);
}

static uint32_t root_of(const struct block *blocks, uint32_t t)
{
    while (blocks[t].into != t)
        t = blocks[t].into;
    return t;
}

/* May output 0 of the op take over the memory of its in-place input? */
static int may_take_over(const struct kc_shard_plan *s, const struct block *blocks, uint32_t o, int32_t in,
                         int32_t out)
{
    const struct kc_plan_tensor *tensors = KC_AT(s, struct kc_plan_tensor, s->tensors);
    const struct kc_plan_op *op = KC_AT(s, struct kc_plan_op, s->ops) + o;
    if (in < 0 || out < 0 || in == out || !kc_tensor_in_work(&tensors[in]) || !kc_tensor_in_work(&tensors[out]) ||
        tensors[in].role == KC_INPUT || kc_tensor_bytes(&tensors[in]) != kc_tensor_bytes(&tensors[out]))
        return 0;
    uint32_t times = 0;
    for (uint32_t i = 0; i < op->in.count; i++)
        times += KC_AT(s, int32_t, op->in)[i] == in;
    for (int p = 0; p < KINDS; p++) {
        const struct life *i = &blocks[in].life[p], *u = &blocks[out].life[p];
        if (i->used != u->used || (i->used && (i->last != o || u->first != o)))
            return 0;
    }
    return times == 1;
}

static void merge_in_place(const struct kc_shard_plan *s, struct block *blocks)
{
    const struct kc_plan_op *ops = KC_AT(s, struct kc_plan_op, s->ops);
    for (uint32_t o = 0; o < s->ops.count; o++) {
        if (!ops[o].in_place || ops[o].in_place > ops[o].in.count || ops[o].out.count == 0)
            continue;
        int32_t in = KC_AT(s, int32_t, ops[o].in)[ops[o].in_place - 1], out = KC_AT(s, int32_t, ops[o].out)[0];
        if (!may_take_over(s, blocks, o, in, out))
            continue;
        uint32_t root = root_of(blocks, (uint32_t)in);
        blocks[out].into = root;
        for (int p = 0; p < KINDS; p++)
            if (blocks[out].life[p].used)
                touch(&blocks[root].life[p], blocks[out].life[p].last);
    }
}

static int larger_first(const void *a, const void *b)
{
    const struct block *x = *(struct block *const *)a, *y = *(struct block *const *)b;
    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? 1 : -1;
    return x < y ? -1 : 1; /* same array: the order of tensors, so that equal plans are placed alike */
}

static int live_together(const struct block *a, const struct block *b)
{
    for (int p = 0; p < KINDS; p++) {
        const struct life *x = &a->life[p], *y = &b->life[p];
        if (x->used && y->used && x->last >= y->first && x->first <= y->last)
            return 1;
    }
    return 0;
}

/* The smallest gap between the blocks that live at the same time; `placed` is sorted by offset. */
static uint64_t best_fit(const struct block *b, struct block *const *placed, uint32_t count)
{
    uint64_t end = 0, best = 0, best_gap = UINT64_MAX;
    for (uint32_t i = 0; i < count; i++) {
        const struct block *p = placed[i];
        if (!live_together(p, b))
            continue;
        if (p->offset > end && p->offset - end >= b->bytes && p->offset - end < best_gap)
            best = end, best_gap = p->offset - end;
        if (p->offset + p->bytes > end)
            end = p->offset + p->bytes;
    }
    return best_gap == UINT64_MAX ? end : best;
}

static void place_all(struct block **order, struct block **placed, uint32_t count, struct kc_memory_plan *out)
{
    for (uint32_t i = 0; i < count; i++) {
        struct block *b = order[i];
        b->offset = best_fit(b, placed, i);
        if (b->offset + b->bytes > out->bytes)
            out->bytes = b->offset + b->bytes;
        uint32_t at = i;
        for (; at > 0 && placed[at - 1]->offset > b->offset; at--)
            placed[at] = placed[at - 1];
        placed[at] = b;
    }
}

int kc_memory_plan_make(const struct kc_shard_plan *s, uint32_t rank, struct kc_memory_plan *out)
{
    uint32_t n = s->tensors.count, roots = 0;
    struct kc_memory_plan m = {0};
    struct block *blocks = calloc(n + 1u, sizeof *blocks);
    struct block **order = calloc(2u * n + 1u, sizeof *order);
    m.offset = calloc(n + 1u, sizeof *m.offset);
    m.stride = calloc(n + 1u, sizeof *m.stride);
    m.slots = calloc(n + 1u, sizeof *m.slots);
    if (!blocks || !order || !m.offset || !m.stride || !m.slots) {
        free(blocks);
        free(order);
        kc_memory_plan_free(&m);
        return -ENOMEM;
    }
    live_ranges(s, rank, blocks);
    merge_in_place(s, blocks);
    for (uint32_t t = 0; t < n; t++) {
        m.unshared += used(&blocks[t]) ? blocks[t].bytes : 0;
        if (used(&blocks[t]) && blocks[t].into == t)
            order[roots++] = &blocks[t];
    }
    qsort(order, roots, sizeof *order, larger_first);
    place_all(order, order + n, roots, &m);
    for (uint32_t t = 0; t < n; t++) {
        m.offset[t] = blocks[root_of(blocks, t)].offset;
        m.slots[t] = 1;
    }
    free(blocks);
    free(order);
    *out = m;
    return 0;
}

void kc_memory_plan_free(struct kc_memory_plan *m)
{
    free(m->offset);
    free(m->stride);
    free(m->slots);
    *m = (struct kc_memory_plan){0};
}
