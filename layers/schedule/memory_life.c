/* memory_life.c - when every tensor lives, from the turns of one coordinate. */
#include "memory_impl.h"

#include <stdlib.h>

#define ALWAYS UINT64_MAX
#define END    UINT32_MAX /* as the last op of a life: to the end of the turn */

/* Where a tensor comes from, and who has it besides ops. */
struct origin {
    struct kc_turn_at made;    /* the turn that makes it here, or the receive */
    uint32_t kind;             /* of time; UINT32_MAX: nothing of training makes it here */
    bool comes, goes;          /* from another rank, to another rank */
    struct kc_turn_at leaves;  /* its send */
};

struct lives {
    const struct kc_turns *t;
    const struct kc_plan_tensor *tensors;
    const struct kc_plan_op *ops;
    uint32_t coordinate, kinds;
    struct block *blocks;
    struct origin *origin; /* by tensor */
    uint64_t *between;     /* (kind made, kind read): bits of kinds that may come between; ALWAYS all */
    uint8_t *known;        /* likewise: between is there */
};

uint32_t memory_kinds(const struct kc_turns *t)
{
    return t->shard->chunks * TURN_TRAIN + 2;
}

static uint32_t kind_of(const struct lives *l, uint32_t stage, enum turn_list list)
{
    return list == TURN_EVALUATE ? l->kinds - 2
           : list == TURN_SAMPLE ? l->kinds - 1
                                 : l->t->chunk[stage] * TURN_TRAIN + list;
}

static bool here(const struct lives *l, uint32_t stage)
{
    return turn_coordinate(l->t, stage) == l->coordinate;
}

static int32_t operand(const struct lives *l, const struct kc_plan_op *op, uint32_t i)
{
    return i < op->in.count ? KC_AT(l->t->shard, int32_t, op->in)[i]
                            : KC_AT(l->t->shard, int32_t, op->out)[i - op->in.count];
}

static void touch(struct life *l, uint32_t op)
{
    if (!l->used || op < l->first)
        l->first = op;
    if (!l->used || op > l->last)
        l->last = op;
    l->used = 1;
}

/* ---- what ops touch ---- */

/* A collective goes on while the compute lane does other things: what it reads lives until its result is read, unless that
 * takes its place. */
static uint32_t in_flight_until(const struct lives *l, const uint32_t *at, const uint32_t *end)
{
    const struct kc_plan_op *op = &l->ops[*at];
    if (op->collective < 0 || op->in_place)
        return *at;
    for (const uint32_t *o = at + 1; o < end; o++)
        for (uint32_t i = 0; i < l->ops[*o].in.count; i++)
            if (operand(l, &l->ops[*o], i) == operand(l, op, op->in.count))
                return *o;
    return *at;
}

static void touch_list(struct lives *l, uint32_t stage, enum turn_list list)
{
    const uint32_t kind = kind_of(l, stage, list), *first = &l->t->first[stage * TURN_LISTS + list];
    for (const uint32_t *o = l->t->ops + first[0]; o < l->t->ops + first[1]; o++) {
        const struct kc_plan_op *op = &l->ops[*o];
        const uint32_t until = in_flight_until(l, o, l->t->ops + first[1]);
        for (uint32_t i = 0; i < op->in.count + op->out.count; i++) {
            const int32_t t = operand(l, op, i);
            if (t < 0 || !kc_tensor_in_work(&l->tensors[t]))
                continue;
            touch(&l->blocks[t].life[kind], turn_when(l->t, *o));
            touch(&l->blocks[t].life[kind], turn_when(l->t, i < op->in.count ? until : *o));
            struct origin *from = &l->origin[t];
            if (i >= op->in.count && list < TURN_TRAIN && from->kind == UINT32_MAX) {
                from->kind = kind;
                from->made = (struct kc_turn_at){list == TURN_F   ? KC_TURN_F
                                                 : list == TURN_W ? KC_TURN_W
                                                                  : KC_TURN_I,
                                                 stage};
            }
        }
    }
}

/* A bucket of parameters is there from when the one before it is used first; one of gradients until the one behind it is
 * complete, since it is reduced meanwhile; what two ranks add to, all the time. */
static void touch_buckets(struct lives *l, uint32_t stage, enum turn_list list)
{
    const struct kc_plan_bucket *buckets = KC_AT(l->t->shard, struct kc_plan_bucket, l->t->shard->buckets);
    const uint32_t kind = kind_of(l, stage, list), *ops = l->t->ops;
    uint32_t n;
    const struct turn_use *u = turn_uses(l->t, stage, list, TURN_READS, &n);
    for (uint32_t i = 0; i < n; i++) {
        struct life *life = &l->blocks[kc_memory_parameters(l->t->shard, u[i].bucket)].life[kind];
        touch(life, i ? turn_when(l->t, ops[u[i - 1].first]) : turn_when(l->t, ops[l->t->first[stage * TURN_LISTS + list]]));
        touch(life, turn_when(l->t, ops[u[i].last]));
    }
    u = turn_uses(l->t, stage, list, TURN_ADDS, &n);
    for (uint32_t i = 0; i < n; i++) {
        struct life *life = l->blocks[kc_memory_gradients(l->t->shard, u[i].bucket)].life;
        touch(&life[kind], turn_when(l->t, ops[u[i].first]));
        uint32_t next = i + 1; /* what two ranks add to is not reduced here */
        while (next < n && turn_shares(l->t, &buckets[u[next].bucket]))
            next++;
        touch(&life[kind], next < n ? turn_when(l->t, ops[u[next].last]) : END);
        for (uint32_t k = 0; k + 2 < l->kinds && turn_shares(l->t, &buckets[u[i].bucket]); k++)
            life[k] = (struct life){.first = 0, .last = END, .used = 1};
    }
}

/* kc sample fills inputs before the first op, and reads the logits when forward is over. */
static void touch_sample(struct lives *l)
{
    const struct kc_shard_plan *s = l->t->shard;
    for (uint32_t t = 0; t < s->tensors.count; t++)
        if (l->tensors[t].role == KC_INPUT)
            touch(&l->blocks[t].life[l->kinds - 1], 0);
    if (s->logits >= 0 && l->blocks[s->logits].life[l->kinds - 1].used)
        touch(&l->blocks[s->logits].life[l->kinds - 1], END);
}

static void touch_links(struct lives *l)
{
    const struct kc_plan_link *links = KC_AT(l->t->shard, struct kc_plan_link, l->t->shard->links);
    for (uint32_t i = 0; i < l->t->shard->links.count; i++) {
        struct origin *o = &l->origin[links[i].tensor];
        const bool on = links[i].to > links[i].from;
        if (links[i].send < 0)
            continue;
        if (here(l, links[i].to)) {
            o->comes = true;
            o->made = (struct kc_turn_at){on ? KC_TURN_RECV_F : KC_TURN_RECV_I, links[i].to};
        }
        if (here(l, links[i].from)) {
            o->goes = true;
            o->leaves = (struct kc_turn_at){on ? KC_TURN_SEND_F : KC_TURN_SEND_I, links[i].from};
        }
    }
}

/* ---- in place ---- */

/* In the time that the op runs in, the input ends with it and the output begins; in others there is no input. */
static bool hands_over(const struct lives *l, uint32_t op, int32_t in, int32_t out, uint64_t runs)
{
    const uint32_t when = turn_when(l->t, op);
    for (uint32_t k = 0; k < l->kinds; k++) {
        const struct life *i = &l->blocks[in].life[k], *u = &l->blocks[out].life[k];
        if (!(k < 64 && runs >> k & 1) ? i->used : !i->used || !u->used || i->last != when || u->first != when)
            return false;
    }
    return true;
}

/* May output 0 of the op take over the memory of its in-place input? */
static bool may_take_over(const struct lives *l, uint32_t op, int32_t in, int32_t out, uint64_t runs)
{
    const struct kc_plan_tensor *t = l->tensors;
    if (in < 0 || out < 0 || in == out || !kc_tensor_in_work(&t[in]) || !kc_tensor_in_work(&t[out]) ||
        t[in].role == KC_INPUT || l->origin[in].goes || l->origin[in].comes ||
        kc_tensor_bytes(&t[in]) != kc_tensor_bytes(&t[out]))
        return false;
    uint32_t times = 0;
    for (uint32_t i = 0; i < l->ops[op].in.count; i++)
        times += operand(l, &l->ops[op], i) == in;
    return times == 1 && hands_over(l, op, in, out, runs);
}

static void merge(struct lives *l, uint32_t op, uint64_t runs)
{
    const struct kc_plan_op *o = &l->ops[op];
    if (!o->in_place || o->in_place > o->in.count || o->out.count == 0)
        return;
    const int32_t in = operand(l, o, o->in_place - 1u), out = operand(l, o, o->in.count);
    if (!may_take_over(l, op, in, out, runs))
        return;
    const uint32_t root = block_root(l->blocks, (uint32_t)in);
    l->blocks[out].into = root;
    for (uint32_t k = 0; k < l->kinds; k++)
        if (l->blocks[out].life[k].used) {
            touch(&l->blocks[root].life[k], l->blocks[out].life[k].first);
            touch(&l->blocks[root].life[k], l->blocks[out].life[k].last);
        }
    l->origin[root].goes |= l->origin[out].goes;
    if (l->origin[out].goes)
        l->origin[root].leaves = l->origin[out].leaves;
}

static int merge_all(struct lives *l)
{
    const uint32_t ops = l->t->shard->ops.count;
    uint64_t *runs = calloc(ops + 1u, sizeof *runs); /* by op: bits of kinds; those beyond 64 merge nothing */
    if (!runs)
        return -1;
    for (uint32_t s = 0; s < l->t->stages; s++)
        for (uint32_t k = 0; k < TURN_LISTS && here(l, s); k++)
            for (uint32_t i = l->t->first[s * TURN_LISTS + k]; i < l->t->first[s * TURN_LISTS + k + 1]; i++)
                if (kind_of(l, s, (enum turn_list)k) < 64)
                    runs[l->t->ops[i]] |= UINT64_C(1) << kind_of(l, s, (enum turn_list)k);
    for (uint32_t o = 0; o < ops; o++)
        if (runs[o])
            merge(l, o, runs[o]);
    free(runs);
    return 0;
}

/* ---- from turn to turn ---- */

static struct kc_turn_at turn_at(const struct lives *l, uint32_t kind)
{
    static const enum kc_turn_kind names[TURN_TRAIN] = {[TURN_F] = KC_TURN_F, [TURN_B] = KC_TURN_I, [TURN_W] = KC_TURN_W};
    uint32_t stage = 0;
    while (!here(l, stage) || l->t->chunk[stage] != kind / TURN_TRAIN)
        stage++;
    return (struct kc_turn_at){names[kind % TURN_TRAIN], stage};
}

/* Kinds of turns that the coordinate takes between one of kind `made` and that of kind `read` of the same micro-batch. */
static uint64_t between(struct lives *l, uint32_t made, uint32_t read)
{
    const struct kc_order_lists *order = &l->t->order;
    uint64_t *to = &l->between[made * l->kinds + read];
    uint32_t live = 0;
    if (l->known[made * l->kinds + read] || l->kinds > 64)
        return l->kinds > 64 ? ALWAYS : *to;
    l->known[made * l->kinds + read] = 1;
    for (uint32_t i = order->first[l->coordinate]; i < order->first[l->coordinate + 1]; i++) {
        const struct kc_turn *turn = &order->turns[i];
        if (turn->kind > KC_TURN_W)
            continue;
        const uint32_t kind = kind_of(l, turn->stage, turn_list_of((enum kc_turn_kind)turn->kind));
        live -= kind == read && live;
        *to |= live ? UINT64_C(1) << kind : 0;
        live += kind == made;
    }
    return *to;
}

static void keep(struct block *b, uint32_t kind)
{
    b->life[kind] = (struct life){.first = 0, .last = END, .used = 1};
}

/* A block that one turn makes and others read: it lives on behind its op, before theirs, and all the time between. */
static void carry(struct lives *l, struct block *b, const struct origin *from)
{
    uint64_t kept = from->comes || from->goes ? ALWAYS : 0;
    for (uint32_t k = 0; k + 2 < l->kinds; k++) {
        if (!b->life[k].used)
            continue;
        const uint32_t slots = kc_order_slots(&l->t->order, from->made, turn_at(l, k));
        b->slots = slots > b->slots ? slots : b->slots;
        if (kept == ALWAYS || k == from->kind)
            continue;
        kept |= between(l, from->kind, k);
        b->life[k].first = 0;
        b->life[from->kind].last = END;
    }
    if (from->goes) {
        const uint32_t slots = kc_order_slots(&l->t->order, from->made, from->leaves);
        b->slots = slots > b->slots ? slots : b->slots;
    }
    for (uint32_t k = 0; k < l->kinds; k++)
        if (kept == ALWAYS || (k < 64 && kept >> k & 1))
            keep(b, k);
}

static void carry_all(struct lives *l)
{
    for (uint32_t t = 0; t < l->t->shard->tensors.count; t++) {
        struct block *b = &l->blocks[t];
        if (b->into == t && (l->origin[t].kind != UINT32_MAX || l->origin[t].comes))
            carry(l, b, &l->origin[t]);
    }
}

int memory_lives(const struct kc_turns *t, uint32_t coordinate, struct block *blocks)
{
    const struct kc_shard_plan *s = t->shard;
    struct lives l = {.t = t,
                      .tensors = KC_AT(s, struct kc_plan_tensor, s->tensors),
                      .ops = KC_AT(s, struct kc_plan_op, s->ops),
                      .coordinate = coordinate,
                      .kinds = memory_kinds(t),
                      .blocks = blocks};
    l.origin = calloc(s->tensors.count + 1u, sizeof *l.origin);
    l.between = calloc((size_t)l.kinds * l.kinds, sizeof *l.between);
    l.known = calloc((size_t)l.kinds * l.kinds, 1);
    int r = l.origin && l.between && l.known ? 0 : -1;
    for (uint32_t i = 0; r == 0 && i < s->tensors.count; i++)
        l.origin[i].kind = UINT32_MAX;
    for (uint32_t i = 0; i < memory_blocks(s); i++)
        blocks[i].into = i, blocks[i].slots = 1;
    for (uint32_t stage = 0; r == 0 && stage < t->stages; stage++)
        for (uint32_t k = 0; k < TURN_LISTS && here(&l, stage); k++)
            touch_list(&l, stage, (enum turn_list)k), touch_buckets(&l, stage, (enum turn_list)k);
    if (r == 0) {
        touch_sample(&l);
        touch_links(&l);
        r = merge_all(&l);
    }
    if (r == 0)
        carry_all(&l);
    free(l.origin);
    free(l.between);
    free(l.known);
    return r;
}
