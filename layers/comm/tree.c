/* tree.c - the algorithm `tree`: a binomial tree, so that no member waits for more than log2(members) others.
 *
 * Places in the tree are positions counted from the root (of a broadcast; position 0 for an all-reduce). The parent
 * of place v is v without its lowest bit; its children are v + 1, v + 2, v + 4 … below that bit. All-reduce: each
 * adds the sums of its children to its own input, in this order: S(v) = x(v) ∘ S(v+1) ∘ S(v+2) ∘ S(v+4) …; place 0
 * has the result, which goes down the same way. Broadcast: only down.
 *
 * Everything passes through staging in rounds of one chunk, wherever the buffers lie: a sum under way (f32 for bf16)
 * has no other place. The up of a round comes before the down of the round before it, so that both directions are
 * busy. `ready` counts ups and downs, `done` downs. A chunk is reused after two rounds: the children have then read
 * the result in it, and the parent the sum, without which there would be no result. */
#include "op.h"

static bool sums(const struct kc_comm_op *op)
{
    return op->call.primitive == KC_ALL_REDUCE;
}

static uint32_t place(const struct kc_comm_op *op)
{
    uint32_t root = sums(op) ? 0 : (uint32_t)op->call.peer;
    return (op_self(op) + op_members(op) - root) % op_members(op);
}

static uint32_t position_of(const struct kc_comm_op *op, uint32_t v)
{
    uint32_t root = sums(op) ? 0 : (uint32_t)op->call.peer;
    return (v + root) % op_members(op);
}

static uint32_t parent(const struct kc_comm_op *op)
{
    return position_of(op, place(op) & (place(op) - 1));
}

/* Child number k: 2^k places further. */
static bool has_child(const struct kc_comm_op *op, uint32_t k)
{
    uint32_t v = place(op), step = UINT32_C(1) << k;
    return (v == 0 || step < (v & -v)) && v + step < op_members(op);
}

static uint32_t child(const struct kc_comm_op *op, uint32_t k)
{
    return position_of(op, place(op) + (UINT32_C(1) << k));
}

void tree_plan(struct kc_comm_op *op)
{
    size_t bytes = sums(op) ? reduce_accumulator_bytes(op->call.type) : op_bytes(op);
    op->piece = op->channel->chunk / bytes;
    op->rounds = (op->call.count + op->piece - 1) / op->piece;
    op->step = 0;
}

uint32_t tree_steps(const struct kc_comm_op *op)
{
    return sums(op) ? 2 : 1;
}

/* `ready` after the up and the down of round k, in the order up 0, up 1, down 0, up 2, down 1, … */
static uint64_t after_up(uint64_t k)
{
    return k == 0 ? 1 : 2 * k;
}

static uint64_t after_down(const struct kc_comm_op *op, uint64_t k)
{
    if (!sums(op))
        return k + 1;
    return k + 1 < op->rounds ? 2 * k + 3 : 2 * op->rounds;
}

static size_t elements_of(const struct kc_comm_op *op, uint64_t k)
{
    size_t left = op->call.count - k * op->piece;
    return left < op->piece ? left : op->piece;
}

/* Have all children read what lay in the chunk that round k writes to? */
static bool is_free(const struct kc_comm_op *op, uint64_t k)
{
    for (uint32_t i = 0; k >= 2 && has_child(op, i); i++) {
        if (!op_is_done(op, child(op, i), k - 1))
            return false;
    }
    return true;
}

/* Add what is there: op->step counts our input and then the children. */
static enum advance up(struct kc_comm_op *op)
{
    uint64_t k = op->reduced;
    size_t n = elements_of(op, k);
    uint8_t *sum = op_chunk(op, op_self(op), k);
    if (op->step == 0) {
        if (!is_free(op, k))
            return BLOCKED;
        reduce_start(op_reduce(op), sum, (const uint8_t *)op->call.in + k * op->piece * op_bytes(op), n);
        op->step = 1;
    }
    for (; has_child(op, op->step - 1); op->step++) {
        uint32_t from = child(op, op->step - 1);
        if (!op_is_ready(op, from, after_up(k)))
            return BLOCKED;
        reduce_join(op_reduce(op), sum, op_chunk(op, from, k), n);
    }
    op->step = 0;
    op->reduced++;
    op_say_ready(op, after_up(k), place(op) ? (int)parent(op) : -1);
    return MOVED;
}

static void say_down(struct kc_comm_op *op, uint64_t k)
{
    op->consumed++;
    op_say_ready(op, after_down(op, k), -1);
    if (place(op) && k + 2 < op->rounds) /* who would reuse the chunk waits for it */
        op_say_done(op, k + 1, (int)parent(op));
}

/* The result of a round: made at place 0, else the parent's; to our output, and to our chunk for the children. */
static enum advance down(struct kc_comm_op *op)
{
    uint64_t k = op->consumed;
    size_t b = op_bytes(op), n = elements_of(op, k), at = k * op->piece * b;
    uint8_t *chunk = op_chunk(op, op_self(op), k), *out = (uint8_t *)op->call.out;
    const uint8_t *source = chunk;
    if (place(op)) {
        if (!op_is_ready(op, parent(op), after_down(op, k)))
            return BLOCKED;
        source = op_chunk(op, parent(op), k);
    } else if (sums(op)) {
        reduce_finish(op_reduce(op), chunk, chunk, n);
    } else {
        source = (const uint8_t *)op->call.in + at;
    }
    if (!sums(op) && !is_free(op, k))
        return BLOCKED;
    if (has_child(op, 0) && source != chunk)
        memcpy(chunk, source, n * b);
    if (out && out + at != source)
        memcpy(out + at, source, n * b);
    say_down(op, k);
    return MOVED;
}

enum advance tree_advance(struct kc_comm_op *op)
{
    if (op->consumed == op->rounds)
        return FINISHED;
    if (sums(op) && op->reduced < op->rounds && op->reduced < op->consumed + 2)
        return up(op);
    return down(op);
}
