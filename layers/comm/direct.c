/* direct.c - the algorithm `direct`: everybody reads from everybody. Elements are summed in the order of
 * positions.
 *
 * Window way (buffers where peers can read them): one pass, then a barrier, since the buffers may be rewritten
 * when the operation is complete. All-reduce: each member sums its slice of all inputs and writes it to all
 * outputs. The remote way is the same on buffers in the members' own memory (remote.c); outputs of others cannot be
 * written there, so an all-reduce gathers the sums after all have made theirs.
 *
 * Staged way: rounds of one chunk. A member produces a round (copies into its staging), and consumes it from its
 * peers' staging; production runs one round ahead. All-reduce of long vectors by more than two has a middle: each
 * member sums its slice of the chunk where it lies in its own staging, and consuming is gathering. Round k's
 * buffer is reused by round k + 2 once all have consumed k. `ready` counts productions (with a middle: production,
 * sum, production, sum …), `done` consumed rounds. */
#include "op.h"

#include <errno.h>

#define WINDOW_PIECE (256 << 10) /* bytes of work of one look at an operation */
#define SHORT_BYTES (32 << 10)   /* vectors of all members together that one member sums alone */
#define LINE 64

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* ---- who does what ---- */

/* The one whose data all others want, or -1: all give and take. */
static int only_source(const struct kc_comm_op *op)
{
    if (op->channel->pair)
        return 0;
    return op->call.primitive == KC_BROADCAST ? op->call.peer : -1;
}

static bool produces(const struct kc_comm_op *op)
{
    int source = only_source(op);
    return source < 0 || source == (int)op_self(op);
}

static bool consumes(const struct kc_comm_op *op)
{
    return only_source(op) != (int)op_self(op);
}

size_t direct_length(const struct kc_comm_op *op)
{
    return op->call.primitive == KC_REDUCE_SCATTER ? op->call.count / op_members(op) : op->call.count;
}

void direct_slice(const struct kc_comm_op *op, uint32_t member, size_t n, size_t *first, size_t *count)
{
    size_t line = LINE / op_bytes(op), lines = (n + line - 1) / line, members = op_members(op);
    size_t each = (lines + members - 1) / members * line;
    *first = least(member * each, n);
    *count = least(each, n - *first);
}

void direct_plan(struct kc_comm_op *op, uint64_t longest)
{
    uint8_t p = op->call.primitive;
    bool strips = p == KC_REDUCE_SCATTER || p == KC_ALL_TO_ALL;
    size_t bytes = strips ? op->channel->chunk / op_members(op) / LINE * LINE : op->channel->chunk;
    op->piece = bytes / op_bytes(op);
    /* With two members, or when all vectors together are short, everybody sums everything: one barrier less. */
    op->middle = p == KC_ALL_REDUCE && op_members(op) > 2 && longest * op_bytes(op) * op_members(op) > SHORT_BYTES;
    op->rounds = (longest + op->piece - 1) / op->piece;
}

/* ---- staged ---- */

static void copy(void *to, const void *from, size_t bytes)
{
    if (to != from && bytes)
        memcpy(to, from, bytes);
}

/* What of `count` elements falls into round k. */
static size_t piece_of(const struct kc_comm_op *op, uint64_t k, size_t count)
{
    size_t at = k * op->piece;
    return at < count ? least(op->piece, count - at) : 0;
}

static void produce(struct kc_comm_op *op, uint64_t k)
{
    size_t b = op_bytes(op), at = k * op->piece;
    uint8_t *chunk = op_chunk(op, op_self(op), k);
    const uint8_t *in = op->call.in;
    if (op->call.primitive == KC_REDUCE_SCATTER) {
        size_t part = direct_length(op), n = piece_of(op, k, part);
        for (uint32_t j = 0; j < op_members(op); j++) {
            if (j != op_self(op))
                copy(chunk + j * op->piece * b, in + (j * part + at) * b, n * b);
        }
    } else if (op->call.primitive == KC_ALL_TO_ALL) {
        size_t before = 0;
        for (uint32_t j = 0; j < op_members(op); j++) {
            size_t n = j == op_self(op) ? 0 : piece_of(op, k, op->call.send_counts[j]);
            copy(chunk + j * op->piece * b, in + (before + at) * b, n * b);
            before += op->call.send_counts[j];
        }
    } else {
        copy(chunk, in + at * b, piece_of(op, k, op->call.count) * b);
    }
}

/* Sum the strip or vector piece that lies `at` bytes into every member's chunk; ours is `own`, or NULL: there too. */
static void fold_chunks(struct kc_comm_op *op, uint64_t k, size_t at, const void *own, void *out, size_t n)
{
    const void *in[KC_RANKS_MAX];
    for (uint32_t i = 0; i < op_members(op); i++)
        in[i] = own && i == op_self(op) ? own : op_chunk(op, i, k) + at;
    reduce_fold(op_reduce(op), 1, &out, op_members(op), in, n);
}

static void reduce_middle(struct kc_comm_op *op, uint64_t k)
{
    size_t first, n;
    direct_slice(op, op_self(op), piece_of(op, k, op->call.count), &first, &n);
    fold_chunks(op, k, first * op_bytes(op), NULL, op_chunk(op, op_self(op), k) + first * op_bytes(op), n);
}

static void consume_all_reduce(struct kc_comm_op *op, uint64_t k)
{
    size_t b = op_bytes(op), n = piece_of(op, k, op->call.count);
    uint8_t *out = (uint8_t *)op->call.out + k * op->piece * b;
    if (!op->middle) {
        fold_chunks(op, k, 0, NULL, out, n);
        return;
    }
    for (uint32_t i = 0; i < op_members(op); i++) {
        size_t first, count;
        direct_slice(op, i, n, &first, &count);
        copy(out + first * b, op_chunk(op, i, k) + first * b, count * b);
    }
}

static void consume_all_to_all(struct kc_comm_op *op, uint64_t k)
{
    size_t b = op_bytes(op), before = 0, own = 0;
    for (uint32_t i = 0; i < op_self(op); i++)
        own += op->call.send_counts[i];
    for (uint32_t i = 0; i < op_members(op); i++) {
        size_t n = piece_of(op, k, op->call.recv_counts[i]);
        const uint8_t *from = op_chunk(op, i, k) + op_self(op) * op->piece * b;
        if (i == op_self(op)) /* it has not left */
            from = (const uint8_t *)op->call.in + (own + k * op->piece) * b;
        copy((uint8_t *)op->call.out + (before + k * op->piece) * b, from, n * b);
        before += op->call.recv_counts[i];
    }
}

static void consume(struct kc_comm_op *op, uint64_t k)
{
    size_t b = op_bytes(op), at = k * op->piece;
    uint8_t *out = op->call.out;
    switch ((enum kc_primitive)op->call.primitive) {
    case KC_ALL_REDUCE: consume_all_reduce(op, k); break;
    case KC_ALL_TO_ALL: consume_all_to_all(op, k); break;
    case KC_REDUCE_SCATTER:
        fold_chunks(op, k, op_self(op) * op->piece * b,
                    (const uint8_t *)op->call.in + (op_self(op) * direct_length(op) + at) * b, out + at * b,
                    piece_of(op, k, direct_length(op)));
        break;
    case KC_ALL_GATHER:
        for (uint32_t i = 0; i < op_members(op); i++)
            copy(out + (i * op->call.count + at) * b, op_chunk(op, i, k), piece_of(op, k, op->call.count) * b);
        break;
    default: /* broadcast, recv */
        copy(out + at * b, op_chunk(op, (uint32_t)only_source(op), k), piece_of(op, k, op->call.count) * b);
    }
}

static enum advance step_produce(struct kc_comm_op *op)
{
    uint64_t k = op->produced;
    if (produces(op)) {
        if (k >= 2 && !op_all_done(op, k - 1))
            return BLOCKED;
        produce(op, k);
        op_say_ready(op, op->middle ? 2 * k + 1 : k + 1, -1);
    }
    op->produced++;
    return MOVED;
}

static enum advance step_middle(struct kc_comm_op *op)
{
    uint64_t k = op->reduced;
    if (!op_all_ready(op, 2 * k + 1))
        return BLOCKED;
    reduce_middle(op, k);
    op_say_ready(op, 2 * k + 2, -1);
    op->reduced++;
    return MOVED;
}

static enum advance step_consume(struct kc_comm_op *op)
{
    uint64_t k = op->consumed, wanted = op->middle ? 2 * k + 2 : k + 1;
    if (consumes(op)) {
        int source = only_source(op);
        if (source < 0 ? !op_all_ready(op, wanted) : !op_is_ready(op, (uint32_t)source, wanted))
            return BLOCKED;
        consume(op, k);
        if (k + 2 < op->rounds) /* who would reuse the buffer waits for it */
            op_say_done(op, k + 1, source);
    } else if (op->call.primitive == KC_BROADCAST && op->call.out) {
        size_t at = k * op->piece * op_bytes(op);
        copy((uint8_t *)op->call.out + at, (const uint8_t *)op->call.in + at,
             piece_of(op, k, op->call.count) * op_bytes(op));
    }
    op->consumed++;
    return MOVED;
}

void direct_produce_first(struct kc_comm_op *op)
{
    if (!produces(op))
        return;
    struct channel *c = op->channel;
    produce(op, 0);
    atomic_store_explicit(&c->member[c->self].cell->ready, c->ready + 1, memory_order_release);
    op->produced = 1;
}

enum advance direct_advance_staged(struct kc_comm_op *op)
{
    if (op->middle && op->reduced < op->produced)
        return step_middle(op);
    if (op->produced < op->rounds && op->produced < op->consumed + 2)
        return step_produce(op);
    if (op->consumed < op->rounds)
        return step_consume(op);
    return FINISHED;
}

/* ---- window, remote ---- */

/* A piece of our slice: sum all inputs, write all outputs. */
static enum advance window_reduce(struct kc_comm_op *op)
{
    const struct channel *c = op->channel;
    size_t b = op_bytes(op), first, n;
    direct_slice(op, c->self, op->call.count, &first, &n);
    size_t count = least(WINDOW_PIECE / b, n - op->at), at = (first + op->at) * b;
    const void *in[KC_RANKS_MAX];
    void *out[KC_RANKS_MAX];
    for (uint32_t i = 0; i < c->members; i++) {
        in[i] = c->member[i].in + at;
        out[i] = c->member[i].out + at;
    }
    if (count)
        reduce_fold(op_reduce(op), c->members, out, c->members, in, count);
    op->at += count;
    return op->at == n ? FINISHED : MOVED;
}

static enum advance window_reduce_scatter(struct kc_comm_op *op)
{
    const struct channel *c = op->channel;
    size_t b = op_bytes(op), part = direct_length(op), count = least(WINDOW_PIECE / b, part - op->at);
    const void *in[KC_RANKS_MAX];
    for (uint32_t i = 0; i < c->members; i++)
        in[i] = c->member[i].in + (c->self * part + op->at) * b;
    void *out = (uint8_t *)op->call.out + op->at * b;
    if (count)
        reduce_fold(op_reduce(op), 1, &out, c->members, in, count);
    op->at += count;
    return op->at == part ? FINISHED : MOVED;
}

enum advance direct_next_source(struct kc_comm_op *op, size_t moved, size_t of, uint32_t sources)
{
    op->at += moved;
    if (op->at < of)
        return MOVED;
    op->at = 0;
    return ++op->step == sources ? FINISHED : MOVED;
}

/* A root that also wants its data elsewhere. */
static bool copies_own(const struct kc_comm_op *op)
{
    return only_source(op) == (int)op_self(op) && op->call.out && op->call.out != op->call.in;
}

/* A piece of what one source has for us; op->step counts the sources, from the one after us so that not all read the
 * same window at once. */
static enum advance read_piece(struct kc_comm_op *op)
{
    const struct channel *c = op->channel;
    int only = only_source(op);
    uint32_t source = only >= 0 ? (uint32_t)only : (c->self + 1 + op->step) % c->members;
    size_t b = op_bytes(op), n = op->call.count, to = 0;
    if (only >= 0 && remote_shares(op) && !copies_own(op))
        return remote_share(op, source);
    if (op->call.primitive == KC_ALL_TO_ALL) {
        n = op->call.recv_counts[source];
        for (uint32_t i = 0; i < source; i++)
            to += op->call.recv_counts[i];
    } else if (op->call.primitive == KC_ALL_GATHER) {
        to = source * n;
    }
    if (!op->call.out)
        return FINISHED; /* send, or a root without an output of its own */
    size_t count = least((op->way == WAY_REMOTE ? REMOTE_PIECE : WINDOW_PIECE) / b, n - op->at);
    int code = remote_read(op, source, false, op->at * b, (uint8_t *)op->call.out + (to + op->at) * b, count * b);
    if (code)
        return code == -EAGAIN ? BLOCKED : FAILED;
    return direct_next_source(op, count, n, only >= 0 ? 1 : c->members);
}

static enum advance read_and_sum(struct kc_comm_op *op)
{
    if (!call_reduces(&op->call))
        return read_piece(op);
    if (op->way == WAY_REMOTE)
        return remote_reduce(op);
    return op->call.primitive == KC_ALL_REDUCE ? window_reduce(op) : window_reduce_scatter(op);
}

/* op->consumed counts the passes that are finished: one, or two where sums are gathered. */
enum advance direct_advance_window(struct kc_comm_op *op)
{
    uint64_t passes = op->way == WAY_REMOTE && op->call.primitive == KC_ALL_REDUCE ? 2 : 1;
    if (op->consumed == passes)
        return !produces(op) || op_all_ready(op, passes) ? FINISHED : BLOCKED;
    if (op->consumed == 1 && op->at == 0 && op->step == 0 && !op_all_ready(op, 1))
        return BLOCKED;
    enum advance a = op->consumed == 0 ? read_and_sum(op) : remote_gather(op);
    if (a != FINISHED)
        return a;
    op->at = op->step = 0;
    op->consumed++;
    op_say_ready(op, op->consumed, only_source(op) == (int)op_self(op) ? -1 : only_source(op));
    return MOVED;
}

void direct_alone(struct kc_comm_op *op)
{
    size_t b = op_bytes(op), n = op->call.primitive == KC_ALL_TO_ALL ? op->call.send_counts[0] : op->call.count;
    if (op->call.out)
        copy(op->call.out, op->call.in, n * b);
}
