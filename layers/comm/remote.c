/* remote.c - buffers that lie in the members' own memory: who wants what is there asks the kernel to copy it (cross
 * memory attach), once, instead of through two copies in staging. Only where every member may read every other's
 * memory, which each has tried when the transport was made and says in its posts.
 *
 * Writing is for messages between two members alone: see remote_share().
 *
 * The addresses come from peers and are never followed here: the kernel checks them. Sums need their sources side by
 * side, so pieces of them are read into our own staging, which such an operation has no other use for. */
#include "op.h"

#include <errno.h>
#include <sys/uio.h>

#define LINE 64
#define WORTH (8 << 10)      /* bytes from a member, below which two copies are faster than a system call */
#define WORTH_SUM (32 << 10) /* and of a part that is summed, which has a second pass */
#define PIECE_LEAST (16 << 10)
#define SHARED (512 << 10)   /* bytes of a message from which on both ends copy; shorter ones stay in a cache */
#define SHARES 16            /* pieces of it, unless they would be larger than a look's */
#define GONE SIZE_MAX        /* op->at of such a message whose other end is gone, with a piece that we had taken */

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Elements of each member's that are summed at a time. */
static size_t piece_of(const struct kc_comm_op *op)
{
    return 2 * op->channel->chunk / op_members(op) / LINE * LINE / op_bytes(op);
}

bool remote_is_worth(const struct kc_comm_op *op, uint64_t most)
{
    const struct kc_comm_call *c = &op->call;
    size_t n = c->primitive == KC_ALL_TO_ALL ? most : c->count;
    if (!call_reduces(c))
        return n * op_bytes(op) >= WORTH;
    return n / op_members(op) * op_bytes(op) >= WORTH_SUM && piece_of(op) * op_bytes(op) >= PIECE_LEAST;
}

/* Bytes of a piece of a message that both ends copy. */
static size_t shared_piece(size_t bytes)
{
    return least((bytes / SHARES + WINDOW_PAGE - 1) / WINDOW_PAGE * WINDOW_PAGE, REMOTE_PIECE);
}

static int refused(struct kc_comm_op *op, uint32_t member, bool write, uint64_t address, size_t bytes, int code)
{
    return kc_fail(&op->error, code, "%s %zu bytes of the memory of rank %u at %llx: %s (group %u)",
                   write ? "writing" : "reading", bytes, op->channel->member[member].rank,
                   (unsigned long long)address, strerror(-code), op->channel->group->id);
}

/* Between our memory and a member's own. Not after an abort: once it stands, the keeper may reap the member, and its
 * pid may become another process's. */
static int attach(struct kc_comm_op *op, uint32_t member, bool write, uint64_t address, void *own, size_t bytes)
{
    const struct kc_transport *t = op->channel->transport;
    int32_t pid = t->peer[op->channel->member[member].rank].pid;
    for (size_t done = 0; done < bytes;) {
        if (transport_aborted(t))
            return -EAGAIN;
        struct iovec local = {.iov_base = (uint8_t *)own + done, .iov_len = bytes - done};
        struct iovec there = {.iov_base = (void *)(uintptr_t)(address + done), .iov_len = bytes - done};
        ssize_t n = write ? process_vm_writev(pid, &local, 1, &there, 1, 0)
                          : process_vm_readv(pid, &local, 1, &there, 1, 0);
        if (n < 0 && errno == ESRCH)
            return -EAGAIN;
        if (n <= 0)
            return refused(op, member, write, address + done, bytes - done, n < 0 ? -errno : -EFAULT);
        done += (size_t)n;
    }
    return 0;
}

int remote_read(struct kc_comm_op *op, uint32_t member, bool output, size_t at, void *to, size_t bytes)
{
    const struct member *m = &op->channel->member[member];
    const uint8_t *here = output ? m->out : m->in;
    if (!here)
        return attach(op, member, false, (output ? m->remote_out : m->remote_in) + at, to, bytes);
    op_copy(op, to, here + at, bytes);
    return 0;
}

static int remote_write(struct kc_comm_op *op, uint32_t member, size_t at, const void *from, size_t bytes)
{
    const struct member *m = &op->channel->member[member];
    if (!m->out)
        return attach(op, member, true, m->remote_out + at, (void *)(uintptr_t)from, bytes);
    op_copy(op, m->out + at, from, bytes);
    return 0;
}

bool remote_shares(const struct kc_comm_op *op)
{
    return op->way == WAY_REMOTE && op_members(op) == 2 && op->call.count * op_bytes(op) >= SHARED;
}

/* Who gives the message would only wait for the other to read it. So whoever has time takes the next piece: a
 * giver that is busy elsewhere takes none, and holds nobody up. The taker waits only for what the giver has taken.
 *
 * A piece that was taken and cannot be copied, because the other end is gone, is nobody's any more. The other may
 * have said that it is ready before: such a message is never whole, and waits for the abort. */
enum advance remote_share(struct kc_comm_op *op, uint32_t source)
{
    const struct channel *c = op->channel;
    bool gives = source == c->self;
    size_t bytes = op->call.count * op_bytes(op), piece = shared_piece(bytes), pieces = (bytes + piece - 1) / piece;
    if (op->at == GONE)
        return BLOCKED;
    if (op->at == pieces) /* all are taken */
        return gives || op->step == pieces || op_is_ready(op, source, 1) ? FINISHED : BLOCKED;
    uint64_t taken = atomic_fetch_add(&c->member[source].cell->taken, gives ? UINT64_C(1) << 32 : 1);
    uint64_t front = taken & UINT32_MAX, back = taken >> 32;
    if (front + back >= pieces) {
        op->at = pieces;
        return MOVED;
    }
    size_t at = (gives ? pieces - 1 - back : front) * piece, n = least(piece, bytes - at);
    int code = gives ? remote_write(op, !source, at, (const uint8_t *)op->call.in + at, n)
                     : remote_read(op, source, false, at, (uint8_t *)op->call.out + at, n);
    if (code == -EAGAIN)
        op->at = GONE;
    if (code)
        return code == -EAGAIN ? BLOCKED : FAILED;
    op->step++;
    return MOVED;
}

enum advance remote_reduce(struct kc_comm_op *op)
{
    const struct channel *c = op->channel;
    size_t b = op_bytes(op), first = 0, n = direct_length(op), piece = piece_of(op);
    if (op->call.primitive == KC_ALL_REDUCE)
        direct_slice(op, c->self, op->call.count, &first, &n);
    else
        first = c->self * n;
    size_t count = least(piece, n - op->at), at = (first + op->at) * b;
    uint8_t *scratch = op_chunk(op, c->self, 0); /* both buffers of this parity lie side by side */
    const void *in[KC_RANKS_MAX];
    for (uint32_t i = 0; i < c->members; i++) {
        in[i] = c->member[i].in ? c->member[i].in + at : scratch + i * piece * b;
        int code = c->member[i].in ? 0 : remote_read(op, i, false, at, scratch + i * piece * b, count * b);
        if (code)
            return code == -EAGAIN ? BLOCKED : FAILED;
    }
    void *out = (uint8_t *)op->call.out + (op->call.primitive == KC_ALL_REDUCE ? at : op->at * b);
    if (count)
        reduce_fold(op_reduce(op), 1, &out, c->members, in, count);
    op->at += count;
    return op->at == n ? FINISHED : MOVED;
}

enum advance remote_gather(struct kc_comm_op *op)
{
    const struct channel *c = op->channel;
    uint32_t source = (c->self + 1 + op->step) % c->members;
    size_t b = op_bytes(op), first, n;
    direct_slice(op, source, op->call.count, &first, &n);
    size_t count = least(REMOTE_PIECE / b, n - op->at), at = (first + op->at) * b;
    int code = remote_read(op, source, true, at, (uint8_t *)op->call.out + at, count * b);
    if (code)
        return code == -EAGAIN ? BLOCKED : FAILED;
    return direct_next_source(op, count, n, c->members - 1);
}
