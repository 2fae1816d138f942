/* ring.c - the algorithm `ring`: everybody reads from the member before it only, so that traffic follows the order
 * in which the devices are near each other.
 *
 * All-reduce and reduce-scatter: the vector has one segment a member. The sum of segment j starts at position j+1
 * and goes once round to position j: in step s position r adds its input to what its left neighbour made in step
 * s-1, for segment r-1-s. All-reduce then passes the finished segments round once more. Sums under way are
 * accumulators (f32 for bf16). All-gather: the parts are passed round. Broadcast: a chain from the root.
 *
 * Staged: rounds; in each, a strip of every segment goes all the way, through the staging chunk, where strip j
 * lies at j. A strip that is passed round finished overwrites the sum under way at the same place: the right
 * neighbour has read that, or the segment could not have been finished. Window: rounds too, but what is read are
 * inputs and outputs themselves.
 *
 * `ready` counts steps over all rounds, `done` rounds. A staging buffer is reused after two rounds, once the right
 * neighbour is done with it. */
#include "op.h"

#define WINDOW_PIECE (128 << 10) /* bytes of a round where buffers lie in windows */
#define LINE 64

static uint32_t left(const struct kc_comm_op *op)
{
    return (op_self(op) + op_members(op) - 1) % op_members(op);
}

static uint32_t right(const struct kc_comm_op *op)
{
    return (op_self(op) + 1) % op_members(op);
}

/* r - back, modulo the members; back < 2 · members */
static uint32_t behind(const struct kc_comm_op *op, uint32_t back)
{
    return (op_self(op) + 2 * op_members(op) - back) % op_members(op);
}

static bool in_windows(const struct kc_comm_op *op)
{
    return op->way == WAY_RING_WINDOW;
}

static bool is_chain(const struct kc_comm_op *op)
{
    return op->call.primitive == KC_BROADCAST;
}

/* Elements of a segment; the last ones of an all-reduce may be shorter or empty. */
static size_t segment(const struct kc_comm_op *op)
{
    size_t members = op_members(op);
    switch ((enum kc_primitive)op->call.primitive) {
    case KC_ALL_REDUCE: return (op->call.count + members - 1) / members;
    case KC_REDUCE_SCATTER: return op->call.count / members;
    default: return op->call.count;
    }
}

/* Elements of the vector that the segments lie in. */
static size_t vector(const struct kc_comm_op *op)
{
    return op->call.primitive == KC_ALL_GATHER ? op->call.count * op_members(op) : op->call.count;
}

void ring_plan(struct kc_comm_op *op)
{
    size_t all = segment(op);
    if (in_windows(op)) {
        op->piece = WINDOW_PIECE / op_bytes(op);
    } else {
        bool sums = call_reduces(&op->call);
        size_t bytes = sums ? reduce_accumulator_bytes(op->call.type) : op_bytes(op);
        size_t strip = is_chain(op) ? op->channel->chunk : op->channel->chunk / op_members(op) / LINE * LINE;
        op->piece = strip / bytes;
    }
    op->rounds = (all + op->piece - 1) / op->piece;
}

uint32_t ring_steps(const struct kc_comm_op *op)
{
    switch ((enum kc_primitive)op->call.primitive) {
    case KC_ALL_REDUCE: return 2 * op_members(op) - 1;
    case KC_BROADCAST: return 1;
    default: return op_members(op);
    }
}

/* ---- where things lie ---- */

/* The strip of segment j in this round: first element in the vector, and how many. */
static size_t strip_of(const struct kc_comm_op *op, uint32_t j, size_t *first)
{
    size_t within = op->consumed * op->piece, n = segment(op) - within < op->piece ? segment(op) - within : op->piece;
    *first = j * segment(op) + within;
    return *first >= vector(op) ? 0 : vector(op) - *first < n ? vector(op) - *first : n;
}

static uint8_t *staged_strip(const struct kc_comm_op *op, uint32_t member, uint32_t j)
{
    size_t bytes = call_reduces(&op->call) ? reduce_accumulator_bytes(op->call.type) : op_bytes(op);
    return op_chunk(op, member, op->consumed) + j * op->piece * bytes;
}

/* What the left neighbour made of segment j in the step before. */
static const uint8_t *from_left(const struct kc_comm_op *op, uint32_t j, size_t first)
{
    const struct member *m = &op->channel->member[left(op)];
    if (!in_windows(op))
        return staged_strip(op, left(op), j);
    if (op->step > 1)
        return m->out + first * op_bytes(op);
    return op->call.primitive == KC_ALL_GATHER ? m->in + op->consumed * op->piece * op_bytes(op)
                                               : m->in + first * op_bytes(op);
}

static void copy(void *to, const void *from, size_t bytes)
{
    if (to != from && bytes)
        memcpy(to, from, bytes);
}

/* ---- the steps ---- */

/* Steps 0 … members-1: the sum of one segment, one member further. */
static void step_sum(struct kc_comm_op *op)
{
    uint32_t j = behind(op, 1 + op->step), last = op_members(op) - 1;
    size_t first, n = strip_of(op, j, &first), b = op_bytes(op);
    struct reduce r = op_reduce(op);
    const uint8_t *in = (const uint8_t *)op->call.in + first * b;
    uint8_t *out = (uint8_t *)op->call.out;
    out += op->call.primitive == KC_REDUCE_SCATTER ? op->consumed * op->piece * b : first * b;
    if (!n)
        return;
    if (op->step == 0) {
        if (!in_windows(op))
            reduce_start(r, staged_strip(op, op_self(op), j), in, n);
        return; /* in windows the left neighbour's input is where it is read */
    }
    const uint8_t *sofar = from_left(op, j, first);
    uint8_t *sum = in_windows(op) ? out : staged_strip(op, op_self(op), j);
    reduce_add(r, sum, sofar, in, n);
    if (op->step < last)
        return;
    reduce_finish(r, out, sum, n);
    if (op->call.primitive == KC_ALL_REDUCE && !in_windows(op))
        copy(sum, out, n * b);
}

/* Pass on segment j, finished or an all-gather's part: to our output, and (staged) to where the right one reads. */
static void pass_on(struct kc_comm_op *op, uint32_t j, bool last)
{
    size_t first, n = strip_of(op, j, &first), b = op_bytes(op);
    const uint8_t *source = from_left(op, j, first);
    copy((uint8_t *)op->call.out + first * b, source, n * b);
    if (!last && !in_windows(op))
        copy(staged_strip(op, op_self(op), j), source, n * b);
}

static void step_gather(struct kc_comm_op *op)
{
    uint32_t j = behind(op, op->step);
    if (op->step > 0) {
        pass_on(op, j, op->step == op_members(op) - 1);
        return;
    }
    size_t first, n = strip_of(op, j, &first), b = op_bytes(op);
    const uint8_t *in = (const uint8_t *)op->call.in + op->consumed * op->piece * b;
    copy((uint8_t *)op->call.out + first * b, in, n * b);
    if (!in_windows(op))
        copy(staged_strip(op, op_self(op), j), in, n * b);
}

/* The number of the member in the chain, from the root. */
static uint32_t link_of(const struct kc_comm_op *op)
{
    return behind(op, (uint32_t)op->call.peer);
}

static void step_chain(struct kc_comm_op *op)
{
    size_t b = op_bytes(op), at = op->consumed * op->piece, n = op->call.count - at;
    n = n < op->piece ? n : op->piece;
    uint8_t *staged = in_windows(op) ? NULL : op_chunk(op, op_self(op), op->consumed);
    const uint8_t *source = (const uint8_t *)op->call.in + at * b;
    if (link_of(op) > 0 && in_windows(op))
        source = (link_of(op) == 1 ? op->channel->member[left(op)].in : op->channel->member[left(op)].out) + at * b;
    else if (link_of(op) > 0)
        source = op_chunk(op, left(op), op->consumed);
    if (op->call.out)
        copy((uint8_t *)op->call.out + at * b, source, n * b);
    if (staged && link_of(op) + 1 < op_members(op))
        copy(staged, source, n * b);
}

static void step(struct kc_comm_op *op)
{
    if (is_chain(op))
        step_chain(op);
    else if (op->call.primitive == KC_ALL_GATHER)
        step_gather(op);
    else if (op->step < op_members(op))
        step_sum(op);
    else
        pass_on(op, behind(op, 1 + op->step - op_members(op)), op->step == 2 * op_members(op) - 2);
}

/* May the next step run? Its source must be there, and the place it writes to must have been read. */
static bool may_step(const struct kc_comm_op *op)
{
    uint64_t k = op->consumed, steps = k * ring_steps(op) + op->step;
    bool ends_here = is_chain(op) && link_of(op) + 1 == op_members(op);
    if (op->step == 0 && k >= 2 && !in_windows(op) && !ends_here && !op_is_done(op, right(op), k - 1))
        return false;
    if (is_chain(op))
        return link_of(op) == 0 || op_is_ready(op, left(op), steps + 1);
    return op->step == 0 || op_is_ready(op, left(op), steps);
}

enum advance ring_advance(struct kc_comm_op *op)
{
    if (op->consumed == op->rounds) {
        /* Our buffers are the caller's again when the right neighbour has read them. */
        bool read = in_windows(op) && !(is_chain(op) && link_of(op) + 1 == op_members(op));
        return read && !op_is_done(op, right(op), op->rounds) ? BLOCKED : FINISHED;
    }
    if (!may_step(op))
        return BLOCKED;
    step(op);
    op->step++;
    op_say_ready(op, op->consumed * ring_steps(op) + op->step, (int)right(op));
    if (op->step == ring_steps(op)) {
        op->step = 0;
        op->consumed++;
        op_say_done(op, op->consumed, (int)left(op));
    }
    return MOVED;
}
