/* match.c - puts the operations of all ranks together. Allocates its result and nothing else. */
#include "match.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- what a rank's ring tells -------------------------------------------------------------------------------------- */

static bool is_pair(const struct kc_op_seen *o)
{
    return o->primitive == KC_SEND || o->primitive == KC_RECV;
}

static bool is_open(const struct kc_op_seen *o)
{
    return o->done == 0;
}

/* It ended because the group was aborted: the rank stood in it until then. */
static bool is_cut(const struct kc_op_seen *o)
{
    return o->done && o->result == -ESHUTDOWN;
}

static bool is_refused(const struct kc_op_seen *o)
{
    return o->done && o->result == -EPROTO;
}

/* All operations of the rank from this number on are there: in a ring that wrapped, has torn entries or was recorded in
 * part, what lies before it may be incomplete. */
static uint64_t whole_from(const struct kc_rank_evidence *r)
{
    uint64_t next = r->view.identity.first_op + r->view.ops;
    if (r->view.torn & KC_TORN_IDENTITY)
        return UINT64_MAX;
    for (uint32_t i = r->ops; i > 0 && r->op[i - 1].number + 1 == next; i--)
        next = r->op[i - 1].number;
    return next;
}

/* What a rank did in a group, as far as its ring is whole. */
struct past {
    bool complete;        /* everything since it began is there */
    bool any;             /* something of the group is there, and all that came after it */
    uint64_t least, most; /* sequences of the group that are there, if any */
};

static struct past past_of(const struct kc_rank_evidence *r, const struct kc_match_op *m)
{
    const uint64_t from = whole_from(r);
    struct past p = {.complete = from <= r->view.identity.first_op};
    for (uint32_t i = 0; i < r->ops; i++) {
        const struct kc_op_seen *o = &r->op[i];
        if (o->number < from || o->group != m->group || o->generation != m->generation)
            continue;
        if (!p.any || o->sequence < p.least)
            p.least = o->sequence;
        if (!p.any || o->sequence > p.most)
            p.most = o->sequence;
        p.any = true;
    }
    return p;
}

/* The newest record of an operation; `pair`: a message between the two, else anything under that number. */
static const struct kc_op_seen *find(const struct kc_rank_evidence *r, const struct kc_match_op *m, int32_t peer)
{
    for (uint32_t i = r->ops; i > 0; i--) {
        const struct kc_op_seen *o = &r->op[i - 1];
        if (o->group == m->group && o->generation == m->generation && o->sequence == m->sequence &&
            (peer < 0 || (is_pair(o) && o->peer == peer)))
            return o;
    }
    return NULL;
}

/* ---- which operations there are to explain --------------------------------------------------------------------------*/

static struct kc_match_op *operation(struct kc_match *m, uint32_t group, uint32_t generation, uint64_t sequence,
                                     uint64_t pair)
{
    for (uint32_t i = 0; i < m->count; i++) {
        struct kc_match_op *o = &m->op[i];
        if (o->group == group && o->generation == generation && o->sequence == sequence && o->pair == (pair != 0) &&
            (!pair || o->members == pair))
            return o;
    }
    if (m->count == KC_MATCH_OPS)
        return NULL;
    struct kc_match_op *o = &m->op[m->count++];
    *o = (struct kc_match_op){.group = group, .generation = generation, .sequence = sequence, .pair = pair != 0,
                              .members = pair};
    return o;
}

static void collect_ops(const struct kc_evidence *e, struct kc_match *m, uint32_t rank)
{
    const struct kc_rank_evidence *r = &e->rank[rank];
    for (uint32_t i = 0; i < r->ops; i++) {
        const struct kc_op_seen *o = &r->op[i];
        bool known_peer = o->peer >= 0 && (uint32_t)o->peer < e->ranks && (uint32_t)o->peer != rank;
        if ((!is_open(o) && !is_cut(o) && !is_refused(o)) || (is_pair(o) && !known_peer))
            continue;
        operation(m, o->group, o->generation, o->sequence, is_pair(o) ? KC_BIT(rank) | KC_BIT(o->peer) : 0);
    }
}

/* A wait whose operation the ring does not have (torn, or left behind) still tells which it is. */
static void collect_waits(const struct kc_evidence *e, struct kc_match *m, uint32_t rank)
{
    const struct kc_rank_evidence *r = &e->rank[rank];
    for (uint32_t i = 0; i < r->view.waits_count; i++) {
        const struct kc_waiting *w = &r->view.waits[i];
        const struct kc_group_entry *g = kc_evidence_group(e, w->group);
        if (w->what >= KC_WAITS || kc_wait_row[w->what].kind != KC_WAIT_KIND_PEER || w->group == KC_NO_GROUP)
            continue;
        struct kc_match_op key = {.group = w->group, .generation = g ? g->generation : m->incarnation,
                                  .sequence = w->sequence};
        if (find(r, &key, -1))
            continue;
        bool message = w->what == KC_WAIT_SEND || w->what == KC_WAIT_RECV;
        if (message && (!g || g->count != 2 || g->ranks[0] == g->ranks[1]))
            continue; /* whose message is not known */
        uint64_t pair = message ? KC_BIT(g->ranks[0]) | KC_BIT(g->ranks[1]) : 0;
        struct kc_match_op *o = operation(m, w->group, key.generation, w->sequence, pair);
        if (!o)
            continue;
        o->wait = w->what;
        o->open |= KC_BIT(rank);
        o->since[rank] = w->since;
    }
}

/* ---- who is where --------------------------------------------------------------------------------------------------- */

static uint64_t members_of(const struct kc_evidence *e, const struct kc_match *m, const struct kc_match_op *o)
{
    const struct kc_group_entry *g = kc_evidence_group(e, o->group);
    uint64_t members = 0;
    if (g && g->generation == o->generation) {
        for (uint32_t i = 0; i < g->count; i++)
            members |= KC_BIT(g->ranks[i]);
        return members;
    }
    for (uint32_t r = 0; r < e->ranks; r++) { /* a group without a name: who ever took part */
        bool took = o->open >> r & 1;
        for (uint32_t i = 0; i < e->rank[r].ops && !took; i++)
            took = e->rank[r].op[i].group == o->group && e->rank[r].op[i].generation == o->generation;
        members |= took && !(m->stale >> r & 1) ? KC_BIT(r) : 0;
    }
    return members;
}

static uint64_t since_of(const struct kc_evidence *e, uint32_t rank, const struct kc_op_seen *o)
{
    const struct kc_rank_view *v = &e->rank[rank].view;
    for (uint32_t i = 0; i < v->waits_count; i++)
        if (v->waits[i].group == o->group && v->waits[i].sequence == o->sequence && v->waits[i].what < KC_WAITS &&
            kc_wait_row[v->waits[i].what].kind == KC_WAIT_KIND_PEER)
            return v->waits[i].since;
    return o->started ? o->started : o->enqueued;
}

static void put_here(const struct kc_evidence *e, struct kc_match_op *o, uint32_t r, const struct kc_op_seen *seen)
{
    const uint64_t bit = KC_BIT(r);
    o->here |= bit;
    o->seen[r] = seen;
    o->begun |= seen->started ? bit : 0;
    o->open |= is_open(seen) ? bit : 0;
    o->cut |= is_cut(seen) ? bit : 0;
    o->refused |= is_refused(seen) ? bit : 0;
    if (is_open(seen) || is_cut(seen))
        o->since[r] = since_of(e, r, seen);
}

/* A member without a record of the operation. */
static void put_elsewhere(const struct kc_evidence *e, const struct kc_match *m, struct kc_match_op *o, uint32_t r)
{
    const uint64_t bit = KC_BIT(r);
    const struct kc_rank_evidence *k = &e->rank[r];
    if (o->open & bit) { /* a wait told it */
        o->here |= bit;
        o->begun |= bit;
        return;
    }
    if (m->stale & bit) {
        o->absent |= bit;
        return;
    }
    const struct past p = past_of(k, o);
    if (o->pair && o->other[r])
        o->passed |= bit; /* that number is taken: what is waited for will not come */
    else if (p.any ? p.most < o->sequence : p.complete)
        o->absent |= bit;
    else if (p.any && p.most > o->sequence && (p.least < o->sequence || p.complete))
        o->passed |= bit;
    else
        o->unknown |= bit;
}

static void place(const struct kc_evidence *e, const struct kc_match *m, struct kc_match_op *o)
{
    if (!o->pair)
        o->members = members_of(e, m, o);
    for (KC_EACH(r, o->members)) {
        int32_t peer = o->pair ? (int32_t)kc_first(o->members & ~KC_BIT(r)) : -1;
        const struct kc_op_seen *seen = m->stale >> r & 1 ? NULL : find(&e->rank[r], o, peer);
        if (o->pair && !seen && !(m->stale >> r & 1))
            o->other[r] = find(&e->rank[r], o, -1);
        if (seen)
            put_here(e, o, (uint32_t)r, seen);
        else
            put_elsewhere(e, m, o, (uint32_t)r);
    }
}

/* ---- who waits for whom --------------------------------------------------------------------------------------------- */

/* A send waits for a recv: another send does not serve it. */
static uint64_t wrong_ends(const struct kc_match_op *o, uint32_t r)
{
    const uint64_t other = o->members & ~KC_BIT(r);
    const struct kc_op_seen *mine = o->seen[r], *theirs = other ? o->seen[kc_first(other)] : NULL;
    return o->pair && mine && theirs && is_open(theirs) && mine->primitive == theirs->primitive ? other : 0;
}

static void connect(struct kc_match *m, uint32_t index)
{
    const struct kc_match_op *o = &m->op[index];
    for (KC_EACH(r, o->open | o->cut)) {
        const uint64_t others = o->members & ~KC_BIT(r);
        m->stands[r] |= (o->absent | o->passed | wrong_ends(o, (uint32_t)r)) & others;
        m->maybe[r] |= o->unknown & others;
        if (m->in[r] < 0 || o->since[r] < m->op[m->in[r]].since[r])
            m->in[r] = (int32_t)index;
    }
}

/* Setting up, a rank waits for all that have not come so far: those without a process that took its slot, or that still
 * begin. */
static void connect_peers(const struct kc_evidence *e, struct kc_match *m)
{
    uint64_t here = 0, waits = 0;
    for (uint32_t r = 0; r < e->ranks; r++) {
        const struct kc_rank_view *v = &e->rank[r].view;
        const uint64_t bit = m->stale >> r & 1 ? 0 : KC_BIT(r);
        for (uint32_t i = 0; i < v->waits_count; i++)
            waits |= v->waits[i].what == KC_WAIT_PEERS ? bit : 0;
        here |= v->phase != KC_PHASE_STARTING ? bit : 0;
    }
    const uint64_t all = e->ranks == KC_RANKS_MAX ? UINT64_MAX : KC_BIT(e->ranks) - 1;
    for (KC_EACH(r, waits))
        m->stands[r] |= all & ~waits & ~here;
}

static void sort_ranks(const struct kc_evidence *e, struct kc_match *m)
{
    m->incarnation = e->status.incarnation;
    for (uint32_t r = 0; r < e->ranks; r++)
        if (e->rank[r].view.identity.incarnation > m->incarnation)
            m->incarnation = e->rank[r].view.identity.incarnation;
    for (uint32_t r = 0; r < e->ranks; r++) {
        const struct kc_rank_view *v = &e->rank[r].view;
        bool unread = v->torn & KC_TORN_IDENTITY;
        bool taken = v->identity.incarnation == m->incarnation, begun = v->process.pid && v->process.incarnation == m->incarnation;
        m->stale |= unread || taken ? 0 : KC_BIT(r);
        m->alive |= (unread || taken || begun) && !v->process.ended ? KC_BIT(r) : 0;
        m->in[r] = -1;
    }
}

int kc_match(const struct kc_evidence *e, struct kc_match **out)
{
    struct kc_match *m = calloc(1, sizeof *m);
    if (!m)
        return -ENOMEM;
    sort_ranks(e, m);
    for (uint32_t r = 0; r < e->ranks; r++)
        if (!(m->stale >> r & 1)) {
            collect_ops(e, m, r);
            collect_waits(e, m, r);
        }
    for (uint32_t i = 0; i < m->count; i++) {
        place(e, m, &m->op[i]);
        connect(m, i);
    }
    connect_peers(e, m);
    *out = m;
    return 0;
}

/* ---- signatures ------------------------------------------------------------------------------------------------------ */

static bool reduces(uint8_t primitive)
{
    return primitive == KC_ALL_REDUCE || primitive == KC_REDUCE_SCATTER;
}

enum kc_hang_word kc_signatures_differ(const struct kc_op_seen *a, const struct kc_op_seen *b)
{
    bool ends = is_pair(a) && is_pair(b) && a->primitive != b->primitive;
    if (a->primitive != b->primitive && !ends)
        return KC_HANG_MISMATCHED_OP;
    if (a->primitive == KC_BARRIER)
        return KC_HANG_WORDS;
    if (a->type != b->type)
        return KC_HANG_MISMATCHED_TYPE;
    if (a->count != b->count && a->primitive != KC_ALL_TO_ALL)
        return KC_HANG_MISMATCHED_COUNT;
    if (reduces(a->primitive) && a->reduce != b->reduce)
        return KC_HANG_MISMATCHED_REDUCTION;
    if (a->primitive == KC_BROADCAST && a->peer != b->peer)
        return KC_HANG_MISMATCHED_ROOT;
    return a->algorithm != b->algorithm ? KC_HANG_MISMATCHED_ALGORITHM : KC_HANG_WORDS;
}

uint64_t kc_match_like(const struct kc_match_op *op, uint32_t r)
{
    uint64_t like = 0;
    for (KC_EACH(k, op->here))
        if (op->seen[r] && op->seen[k] && kc_signatures_differ(op->seen[r], op->seen[k]) == KC_HANG_WORDS)
            like |= KC_BIT(k);
    return like;
}

uint64_t kc_match_majority(const struct kc_match_op *op)
{
    for (KC_EACH(r, op->here)) {
        uint64_t like = kc_match_like(op, (uint32_t)r);
        if (2 * kc_bits(like) > kc_bits(op->members))
            return like;
    }
    return 0;
}

void kc_match_text(const struct kc_match_op *op, uint32_t r, char *out, unsigned room)
{
    const struct kc_op_seen *o = op->seen[r];
    if (!o) {
        snprintf(out, room, "%s", kc_name_of(kc_wait_name, KC_WAITS, op->wait));
        return;
    }
    const char *what = kc_primitive_name[o->primitive], *type = kc_type_name[o->type];
    unsigned long long count = (unsigned long long)o->count;
    if (o->primitive == KC_BARRIER)
        snprintf(out, room, "%s", what);
    else if (reduces(o->primitive))
        snprintf(out, room, "%s %s %s %llu", what, type, kc_reduce_name[o->reduce], count);
    else if (o->primitive == KC_BROADCAST)
        snprintf(out, room, "%s %s %llu from rank %d", what, type, count, o->peer);
    else if (is_pair(o))
        snprintf(out, room, "%s %s %llu %s rank %d", what, type, count, o->primitive == KC_SEND ? "to" : "from", o->peer);
    else
        snprintf(out, room, "%s %s %llu", what, type, count);
}
