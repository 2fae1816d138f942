/* post.c - signatures. What a peer wrote is copied once, then checked, then used: a corrupt peer can make an
 * operation fail or its own data wrong, never make us touch memory outside its window. */
#include "post.h"

#include <errno.h>
#include <inttypes.h>

bool post_in_window(const struct kc_comm_op *op, const void *buffer, size_t bytes)
{
    const struct peer *p = &op->channel->transport->peer[op->channel->transport->rank];
    uintptr_t at = (uintptr_t)buffer, data = (uintptr_t)p->data;
    return bytes && at >= data && at - data <= p->data_bytes && bytes <= p->data_bytes - (at - data);
}

/* Where a buffer lies: an offset in our data area, and the flag that says so, or its address. */
static uint64_t place_of(const struct kc_comm_op *op, const void *buffer, size_t count, uint8_t flag, uint8_t *flags)
{
    const struct kc_transport *t = op->channel->transport;
    if (!post_in_window(op, buffer, count * op_bytes(op)))
        return (uintptr_t)buffer;
    *flags |= flag;
    return (uint64_t)((const uint8_t *)buffer - t->peer[t->rank].data);
}

/* A pair's channel has two members, but the call speaks of the whole group: neither count depends on it there. */
static size_t in_count(const struct kc_comm_op *op, uint32_t member)
{
    return call_in_count(&op->call, op_members(op), member);
}

/* Does each send each as much? Then one number says it, and nobody has to read the counts of the others. */
static bool even_counts(const struct kc_comm_op *op)
{
    const struct kc_comm_call *call = &op->call;
    bool even = call->primitive == KC_ALL_TO_ALL;
    for (uint32_t i = 0; even && i < op_members(op); i++)
        even = call->send_counts[i] == call->send_counts[0] && call->recv_counts[i] == call->send_counts[0];
    return even;
}

void post_write(struct kc_comm_op *op)
{
    struct channel *c = op->channel;
    struct member *m = &c->member[c->self];
    const struct kc_comm_call *call = &op->call;
    if (call->primitive == KC_ALL_TO_ALL) {
        struct counts *counts = &m->counts[op->number & 1];
        memcpy(counts->send, call->send_counts, c->members * sizeof counts->send[0]);
        memcpy(counts->receive, call->recv_counts, c->members * sizeof counts->receive[0]);
    }
    atomic_store_explicit(&m->cell->taken, 0, memory_order_relaxed);
    struct post *p = &m->cell->post[op->number & 1];
    p->sequence = call->sequence;
    m->even = even_counts(op);
    m->each = m->even ? call->send_counts[0] : 0;
    p->count = m->even ? m->each : call->count;
    uint8_t flags = (uint8_t)((call->in == call->out ? POST_IN_PLACE : 0) | (c->reach ? POST_REACH : 0) |
                              (op->produced ? POST_FIRST : 0) | (m->even ? POST_EVEN : 0));
    p->in_at = place_of(op, call->in, in_count(op, c->self), POST_IN_WINDOW, &flags);
    p->out_at = place_of(op, call->out, call_out_count(call, c->members, c->self), POST_OUT_WINDOW, &flags);
    p->peer = c->pair ? -1 : call->peer;
    p->primitive = call->primitive;
    p->type = call->type;
    p->reduce = call->reduce;
    p->algorithm = call->algorithm;
    p->flags = flags;
    c->reached = c->reach && !(call->primitive == KC_ALL_TO_ALL && flags & POST_IN_PLACE);
    m->in = call->in;
    m->out = call->out;
    m->first = op->produced;
    transport_publish(&p->number, op->number);
}

/* What a member is expected to have called: in a pair one sends and the other receives. */
static uint8_t expected_primitive(const struct kc_comm_op *op, uint32_t member)
{
    if (!op->channel->pair)
        return op->call.primitive;
    return member == 0 ? KC_SEND : KC_RECV;
}

static int refuse(struct kc_comm_op *op, uint32_t member, const struct post *p)
{
    const struct channel *c = op->channel;
    struct kc_comm_call theirs = {.primitive = p->primitive, .type = p->type, .reduce = p->reduce,
                                  .algorithm = p->algorithm, .sequence = p->sequence, .count = p->count};
    uint32_t rank[2] = {c->member[c->self].rank, c->member[member].rank};
    char text[2][CALL_TEXT];
    call_text(&op->call, c->pair ? (int32_t)rank[1] : op->call.peer, text[0]);
    call_text(&theirs, c->pair ? (int32_t)rank[0] : p->peer, text[1]);
    int high = rank[1] > rank[0];
    return kc_fail(&op->error, -EPROTO,
                   "rank %u called %s, rank %u %s (group %u): refused before any data moved; all ranks "
                   "must run the same program",
                   rank[high], text[high], rank[!high], text[!high], c->group->id);
}

static int corrupt(struct kc_comm_op *op, uint32_t member, const char *what, uint64_t value)
{
    return kc_fail(&op->error, -EPROTO,
                   "the window of rank %u is corrupt: %s %" PRIu64 " is out of bounds (group %u, #%" PRIu64
                   "); that rank has written where it should not",
                   op->channel->member[member].rank, what, value, op->channel->group->id, op->call.sequence);
}

/* Is a buffer of `count` elements at `at` inside the member's data area? Sets *out to it, or NULL if it does not lie
 * in a window, and then *remote to its address, which means nothing here: who reads there asks the kernel. */
static bool locate(const struct kc_comm_op *op, uint32_t member, bool window, uint64_t at, uint64_t count,
                   uint8_t **out, uint64_t *remote)
{
    const struct peer *p = &op->channel->transport->peer[op->channel->member[member].rank];
    *out = NULL;
    *remote = window ? 0 : at;
    if (!window)
        return true;
    size_t b = op_bytes(op);
    if (at > p->data_bytes || at % b || count > (p->data_bytes - at) / b)
        return false;
    *out = p->data + at;
    return true;
}

static struct post copy_post(const struct post *p)
{
    return (struct post){.sequence = p->sequence, .count = p->count, .in_at = p->in_at, .out_at = p->out_at,
                         .peer = p->peer, .primitive = p->primitive, .type = p->type, .reduce = p->reduce,
                         .algorithm = p->algorithm, .flags = p->flags};
}

int post_look(struct kc_comm_op *op, uint32_t member)
{
    struct member *m = &op->channel->member[member];
    const struct post *there = &m->cell->post[op->number & 1];
    uint64_t number = atomic_load(&there->number);
    if (number < op->number)
        return 0;
    if (number > op->number)
        return corrupt(op, member, "operation number", number);
    struct post p = copy_post(there);
    const struct kc_comm_call *own = &op->call;
    if (p.primitive != expected_primitive(op, member) || p.type != own->type || p.reduce != own->reduce ||
        p.algorithm != own->algorithm || p.sequence != own->sequence ||
        (own->primitive != KC_ALL_TO_ALL && p.count != own->count) ||
        (!op->channel->pair && p.peer != own->peer))
        return refuse(op, member, &p);
    uint64_t ins = own->count, outs = call_out_count(own, op_members(op), member);
    if (own->primitive == KC_ALL_TO_ALL)
        ins = outs = 0; /* where its blocks lie is checked with the counts */
    uint8_t *in = NULL, *out = NULL;
    if (!locate(op, member, p.flags & POST_IN_WINDOW, p.in_at, ins, &in, &m->remote_in))
        return corrupt(op, member, "input at", p.in_at);
    if (!locate(op, member, p.flags & POST_OUT_WINDOW, p.out_at, outs, &out, &m->remote_out))
        return corrupt(op, member, "output at", p.out_at);
    bool rewritten = own->primitive == KC_ALL_TO_ALL && p.flags & POST_IN_PLACE;
    m->in = rewritten ? NULL : in;
    m->out = out;
    m->first = p.flags & POST_FIRST;
    m->even = p.flags & POST_EVEN;
    m->each = m->even ? p.count : 0;
    op->channel->reached &= p.flags & POST_REACH && !rewritten;
    return 1;
}

static int counts_differ(struct kc_comm_op *op, uint32_t from, uint32_t to, uint64_t sent, uint64_t expected)
{
    const struct channel *c = op->channel;
    char text[CALL_TEXT];
    call_text(&op->call, -1, text);
    return kc_fail(&op->error, -EPROTO,
                   "%s: rank %u sends rank %u %" PRIu64 " elements, rank %u expects %" PRIu64
                   " (group %u): refused before any data moved; exchange the counts first",
                   text, c->member[from].rank, c->member[to].rank, sent, c->member[to].rank, expected, c->group->id);
}

/* Every pair's counts. *before[i]: elements that member i has for those before us. */
static int compare_each(struct kc_comm_op *op, uint64_t before[], uint64_t *most)
{
    const struct channel *c = op->channel;
    for (uint32_t i = 0; i < c->members; i++) {
        const struct counts *sender = &c->member[i].counts[op->number & 1];
        before[i] = 0;
        for (uint32_t j = 0; j < c->members; j++) {
            uint64_t sent = sender->send[j], expected = c->member[j].counts[op->number & 1].receive[i];
            if (sent != expected)
                return counts_differ(op, i, j, sent, expected);
            *most = sent > *most ? sent : *most;
            before[i] += j < c->self ? sent : 0;
        }
    }
    return 0;
}

/* Do the posts alone say that all counts are the same? */
static bool all_even(const struct channel *c)
{
    uint32_t i = 0;
    while (i < c->members && c->member[i].even && c->member[i].each == c->member[0].each)
        i++;
    return i == c->members;
}

int post_compare_counts(struct kc_comm_op *op, uint64_t *most)
{
    struct channel *c = op->channel;
    uint64_t before[KC_RANKS_MAX];
    *most = 0;
    if (all_even(c)) {
        *most = c->member[c->self].each;
        for (uint32_t i = 0; i < c->members; i++)
            before[i] = c->self * *most;
    } else {
        int code = compare_each(op, before, most);
        if (code)
            return code;
    }
    /* from here on `in` of a member is its block for us */
    for (uint32_t i = 0; i < c->members; i++) {
        struct member *m = &c->member[i];
        m->remote_in += before[i] * op_bytes(op);
        if (!m->in)
            continue;
        const struct peer *p = &c->transport->peer[m->rank];
        uint64_t room = i == c->self ? UINT64_MAX : (uint64_t)(p->data + p->data_bytes - m->in) / op_bytes(op);
        if (before[i] > room || op->call.recv_counts[i] > room - before[i])
            return corrupt(op, i, "all-to-all count", before[i]);
        m->in += before[i] * op_bytes(op);
    }
    return 0;
}
