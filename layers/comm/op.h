/* op.h - one operation in flight, and what the algorithms (direct.c, ring.c, tree.c) need of it.
 *
 * Life: QUEUED behind older operations of its channel; POSTED its signature and waiting for those of all members;
 * RUNNING its algorithm; ENDED, with a result, until its owner collects it. Only the head of a channel is past
 * QUEUED. */
#ifndef COMM_OP_H
#define COMM_OP_H

#include "call.h"
#include "reduce.h"
#include "stream.h"

enum op_stage { OP_QUEUED, OP_POSTED, OP_RUNNING, OP_ENDED };

/* How the bytes travel; chosen from the posts of all members, so all choose the same. */
enum op_way { WAY_NOTHING, WAY_ALONE, WAY_WINDOW, WAY_REMOTE, WAY_STAGED, WAY_RING_WINDOW, WAY_RING_STAGED,
              WAY_TREE };

/* What one look at an operation did. FAILED: op->error says what, and the run cannot go on. */
enum advance { BLOCKED, MOVED, FINISHED, FAILED };

struct kc_comm_op {
    struct channel *channel;
    struct kc_comm_op *next;
    struct kc_comm_call call; /* normalised */
    uint64_t number;          /* in its channel, from 1 */
    uint64_t record;          /* flight recorder */
    uint64_t checked;         /* POSTED: members whose signature agrees, a bit each */
    uint32_t cursor;          /* members that have reached what is waited for now */
    uint8_t stage, way;       /* enums */
    bool waited;              /* not posted at once, when it was started */
    int result;
    /* progress of the algorithm */
    bool streams;             /* the result is too large for the caches: written past them */
    bool middle;              /* direct, staged: reduced by slices, then gathered (see direct.c) */
    uint64_t rounds, produced, reduced, consumed;
    uint32_t step;            /* ring: within the round; tree: sums that are in; windows: sources read; a message that
                                 both ends copy: pieces that we have copied */
    size_t piece;             /* elements of a round: of the vector, or of each strip */
    size_t at;                /* direct, window and remote: elements of what is under way that are finished; a message
                                 that both ends copy: 0, its pieces once all are taken, or GONE (remote.c) */
    struct kc_error error;    /* what the owner is told if result is not 0; last, it is large */
};

void op_free_spare(struct slot *s);
/* Free what is still queued: nobody can collect it any more. */
void op_free_queue(struct channel *c);

/* ---- for the algorithms ---- */

static inline uint32_t op_members(const struct kc_comm_op *op)
{
    return op->channel->members;
}

static inline uint32_t op_self(const struct kc_comm_op *op)
{
    return op->channel->self;
}

static inline size_t op_bytes(const struct kc_comm_op *op)
{
    return kc_type_bytes[op->call.type];
}

/* The arithmetic of this operation. */
static inline struct reduce op_reduce(const struct kc_comm_op *op)
{
    return (struct reduce){.type = op->call.type,
                           .reduce = op->call.reduce,
                           .wide = op->channel->transport->wide,
                           .past = op->streams,
                           .divide = op->call.reduce == KC_AVG ? op_members(op) : 1};
}

/* Copy a part of the result, or nothing if it is there. */
static inline void op_copy(const struct kc_comm_op *op, void *to, const void *from, size_t bytes)
{
    bool wide = op->channel->transport->wide;
    if (to == from || !bytes)
        return;
    if (!op->streams) {
        memcpy(to, from, bytes);
        return;
    }
    stream_copy(to, from, bytes, wide);
    stream_end(wide);
}

/* A member's staging chunk for a round of this operation. The half of an operation is free again when all members
 * have posted the next one, which an operation of the same parity comes after; the two buffers of a half
 * alternate. */
static inline uint8_t *op_chunk(const struct kc_comm_op *op, uint32_t member, uint64_t round)
{
    const struct channel *c = op->channel;
    return c->member[member].staging + ((op->number & 1) * 2 + (round & 1)) * c->chunk;
}

/* Something was published that a member, or all (-1), may wait for. Not rung at once: the fence before it waits until
 * our stores have reached the cores that read them, and the next look at the peers' words need not. channel_settle()
 * in op.c rings when a look finds nothing, and before control goes back to the caller. */
static inline void op_owe(const struct kc_comm_op *op, int whom)
{
    struct channel *c = op->channel;
    c->owed |= whom < 0 ? channel_all(c) & ~(UINT64_C(1) << c->self) : UINT64_C(1) << whom;
}

/* Say how far we are (steps or rounds of this operation), to a member or to all (-1). */
static inline void op_say_ready(const struct kc_comm_op *op, uint64_t steps, int whom)
{
    const struct channel *c = op->channel;
    transport_publish(&c->member[c->self].cell->ready, c->ready + steps);
    op_owe(op, whom);
}

static inline void op_say_done(const struct kc_comm_op *op, uint64_t rounds, int whom)
{
    const struct channel *c = op->channel;
    transport_publish(&c->member[c->self].cell->done, c->done + rounds);
    op_owe(op, whom);
}

/* A member whose first round came with its post need not be asked for it: one line less that changes hands. */
static inline bool op_is_ready(const struct kc_comm_op *op, uint32_t member, uint64_t steps)
{
    const struct member *m = &op->channel->member[member];
    return (steps == 1 && m->first) || atomic_load(&m->cell->ready) >= op->channel->ready + steps;
}

static inline bool op_is_done(const struct kc_comm_op *op, uint32_t member, uint64_t rounds)
{
    return atomic_load(&op->channel->member[member].cell->done) >= op->channel->done + rounds;
}

/* Have all other members come that far? Members once seen are not looked at again until all have. */
static inline bool op_all_ready(struct kc_comm_op *op, uint64_t steps)
{
    for (; op->cursor < op_members(op); op->cursor++) {
        if (op->cursor != op_self(op) && !op_is_ready(op, op->cursor, steps))
            return false;
    }
    op->cursor = 0;
    return true;
}

static inline bool op_all_done(struct kc_comm_op *op, uint64_t rounds)
{
    for (; op->cursor < op_members(op); op->cursor++) {
        if (op->cursor != op_self(op) && !op_is_done(op, op->cursor, rounds))
            return false;
    }
    op->cursor = 0;
    return true;
}

/* ---- direct.c ---- */
/* Elements that the staged rounds walk through: of the vector, or of each member's strip; not for all-to-all. */
size_t direct_length(const struct kc_comm_op *op);
/* Plan the staged rounds for that length; for all-to-all the largest count of any pair. */
void direct_plan(struct kc_comm_op *op, uint64_t longest);
/* Produce the first round before the post, so that who sees the post has the data too. The post tells of it. */
void direct_produce_first(struct kc_comm_op *op);
enum advance direct_advance_staged(struct kc_comm_op *op);
enum advance direct_advance_window(struct kc_comm_op *op); /* and remote */
/* Our slice of n elements, in whole cache lines, so that no two members write to one. */
void direct_slice(const struct kc_comm_op *op, uint32_t member, size_t n, size_t *first, size_t *count);
/* So much of `of` elements from one source is there: go on with it, or with the next of so many sources. */
enum advance direct_next_source(struct kc_comm_op *op, size_t moved, size_t of, uint32_t sources);
/* The whole operation of a group of one. */
void direct_alone(struct kc_comm_op *op);

/* ---- remote.c ---- */
#define REMOTE_PIECE (1 << 20) /* bytes that one look reads: a system call's cost is nothing beside it */
/* Is this worth reading from the members' own memory, if all can? `most`: all-to-all, the largest block. */
bool remote_is_worth(const struct kc_comm_op *op, uint64_t most);
/* Copy what lies `at` bytes into a member's input or output. 0; -EAGAIN the member is gone, an abort stands or will;
 * else what the kernel says, and op->error. */
int remote_read(struct kc_comm_op *op, uint32_t member, bool output, size_t at, void *to, size_t bytes);
/* Is a message between two members so long that both copy it? */
bool remote_shares(const struct kc_comm_op *op);
/* One piece of such a message. */
enum advance remote_share(struct kc_comm_op *op, uint32_t source);
/* One piece of: summing our part of all inputs; reading the other members' sums. FINISHED: that was the last. */
enum advance remote_reduce(struct kc_comm_op *op);
enum advance remote_gather(struct kc_comm_op *op);

/* ---- ring.c ---- */
void ring_plan(struct kc_comm_op *op);
/* Steps that one round adds to `ready`. */
uint32_t ring_steps(const struct kc_comm_op *op);
enum advance ring_advance(struct kc_comm_op *op);

/* ---- tree.c ---- */
void tree_plan(struct kc_comm_op *op);
/* Steps that one round adds to `ready`. */
uint32_t tree_steps(const struct kc_comm_op *op);
enum advance tree_advance(struct kc_comm_op *op);

#endif
