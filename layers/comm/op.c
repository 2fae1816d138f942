/* op.c - the life of operations: start, the queue of each channel, signatures agreed, the algorithm driven, the wait.
 * Allocates only when more operations are in flight than ever before. */
#include "op.h"

#include "base/clock.h"
#include "post.h"

#include <errno.h>
#include <inttypes.h>
#include <sched.h>

#define SPIN KC_MILLISECOND         /* how long a waiter looks before it sleeps, where nobody else wants its core */
#define YIELD (KC_MILLISECOND / 20) /* and where others do: about what sleep and wake cost */
#define SPIN_HOT 256                /* looks without a pause between: what is nearly there is seen at once */
#define STREAM (4 << 20)            /* bytes of a result from which on it is written past the caches */
#define TEST_MOVES 8                /* what one test does at most */
#define SWITCH (16 << 10)           /* bytes that are copied sooner than two processes take turns on a core */
#define MOVES_A_LOOK 64             /* a wait that gets on looks at its deadline this often */

/* ---- memory ---- */

static struct kc_comm_op *op_new(struct slot *s)
{
    struct kc_comm_op *op = s->spare;
    if (!op)
        return malloc(sizeof *op);
    s->spare = op->next;
    return op;
}

void op_free_spare(struct slot *s)
{
    while (s->spare) {
        struct kc_comm_op *op = s->spare;
        s->spare = op->next;
        free(op);
    }
}

void op_free_queue(struct channel *c)
{
    while (c && c->head) {
        struct kc_comm_op *op = c->head;
        c->head = op->next;
        free(op);
    }
}

/* ---- the flight recorder ---- */

/* Elements of the larger side of the call. */
static size_t moved(const struct kc_comm_op *op)
{
    const struct kc_group *g = op->channel->group;
    size_t in = call_in_count(&op->call, g->count, g->position);
    size_t out = call_out_count(&op->call, g->count, g->position);
    return in > out ? in : out;
}

/* `now`: it is posted already, so that it takes part from here on. */
static void record(struct kc_comm_op *op, bool now)
{
    const struct kc_group *g = op->channel->group;
    const struct kc_comm_call *c = &op->call;
    bool many = c->primitive == KC_ALL_TO_ALL; /* its counts stand beside it */
    struct kc_op_seen seen = {.group = g->id,
                              .generation = (uint32_t)g->transport->generation,
                              .sequence = c->sequence,
                              .count = many ? call_in_count(c, g->count, g->position) : c->count,
                              .bytes = moved(op) * op_bytes(op),
                              .peer = c->peer >= 0 ? (int32_t)g->ranks[c->peer] : -1,
                              .collective = -1,
                              .started = now,
                              .primitive = c->primitive,
                              .type = c->type,
                              .reduce = c->reduce,
                              .algorithm = c->algorithm};
    op->record = kc_probe_op_begin(g->transport->probe, &seen);
}

/* ---- ends ---- */

static void leave_queue(struct kc_comm_op *op)
{
    struct channel *c = op->channel;
    struct kc_comm_op **at = &c->head, *before = NULL;
    while (*at && *at != op) {
        before = *at;
        at = &(*at)->next;
    }
    if (*at) {
        *at = op->next;
        if (c->tail == op)
            c->tail = before;
    }
}

static void end(struct kc_comm_op *op, int result)
{
    struct slot *s = group_slot(op->channel->group);
    leave_queue(op);
    s->pairs -= op->channel->pair;
    op->stage = OP_ENDED;
    op->result = result;
    struct kc_probe *probe = op->channel->transport->probe;
    kc_probe_op_done(probe, op->record, result);
    if (result == 0) {
        kc_probe_add(probe, KC_METRIC_COMM_OPERATIONS, 1);
        kc_probe_add(probe, KC_METRIC_COMM_BYTES, (double)(moved(op) * op_bytes(op)));
    }
}

/* The steps that an operation stands for in the channel's counters: the same on all members, whatever each of them
 * did. One that moved nothing stands for one, since a first round may have been announced with the post. */
static void count_steps(struct kc_comm_op *op)
{
    struct channel *c = op->channel;
    bool staged = op->way == WAY_STAGED, ring = op->way == WAY_RING_STAGED || op->way == WAY_RING_WINDOW;
    bool gathers = op->way == WAY_REMOTE && op->call.primitive == KC_ALL_REDUCE;
    if (op->way == WAY_TREE) {
        c->ready += op->rounds * tree_steps(op);
        c->done += op->rounds;
        return;
    }
    c->ready += ring ? op->rounds * ring_steps(op) : staged ? op->rounds * (op->middle ? 2 : 1) : gathers ? 2 : 1;
    c->done += ring || staged ? op->rounds : 0;
}

/* ---- stages ---- */

static bool one_gives(const struct kc_comm_call *c)
{
    return c->primitive == KC_BROADCAST || call_pairs(c);
}

/* Does our side alone decide that the data is staged? Then the first round goes out with the post. */
static bool stages_surely(const struct kc_comm_op *op)
{
    const struct kc_comm_call *c = &op->call;
    if (c->algorithm != KC_DIRECT || op_members(op) == 1)
        return false;
    size_t in = call_in_count(c, op_members(op), op_self(op)) * op_bytes(op);
    size_t out = call_out_count(c, op_members(op), op_self(op)) * op_bytes(op);
    if (!in)
        return false;
    if (one_gives(c) && op->channel->transport->spin_short && in <= SWITCH && in <= op->channel->chunk)
        return true;
    if (op->channel->reach && (c->primitive == KC_ALL_TO_ALL ? c->in != c->out : remote_is_worth(op, 0)))
        return false; /* peers may read it where it is, if they can too */
    return !post_in_window(op, c->in, in) ||
           (c->primitive == KC_ALL_REDUCE && !post_in_window(op, c->out, out)) ||
           (c->primitive == KC_ALL_TO_ALL && c->in == c->out);
}

static enum advance post(struct kc_comm_op *op)
{
    struct channel *c = op->channel;
    /* The post of two operations ago may be overwritten once all have left it for the next one; an operation that was
     * refused early leaves members behind. */
    while (c->joined < c->number) {
        for (; op->cursor < c->members; op->cursor++) {
            const struct cell *cell = c->member[op->cursor].cell;
            if (op->cursor != c->self && atomic_load(&cell->post[c->number & 1].number) < c->number)
                return BLOCKED;
        }
        op->cursor = 0;
        c->joined = c->number;
    }
    op->number = ++c->number;
    if (stages_surely(op)) {
        direct_plan(op, op->call.primitive == KC_ALL_TO_ALL ? 0 : direct_length(op));
        direct_produce_first(op);
    }
    post_write(op);
    op_owe(op, -1);
    if (op->waited)
        kc_probe_op_started(c->transport->probe, op->record);
    op->stage = OP_POSTED;
    op->checked = UINT64_C(1) << c->self;
    return MOVED;
}

/* Are the buffers that the algorithm reads (and writes) remotely all in windows? The same answer on all members. */
static bool all_in_windows(const struct kc_comm_op *op)
{
    const struct channel *c = op->channel;
    const struct post *own = &c->member[c->self].cell->post[op->number & 1];
    uint8_t p = op->call.primitive;
    bool ring = op->call.algorithm == KC_RING;
    for (uint32_t i = 0; i < c->members; i++) {
        bool in = i == c->self ? own->flags & POST_IN_WINDOW : c->member[i].in != NULL;
        bool out = i == c->self ? own->flags & POST_OUT_WINDOW : c->member[i].out != NULL;
        bool source = c->pair ? i == 0 : p != KC_BROADCAST || (int32_t)i == op->call.peer;
        if (p == KC_ALL_TO_ALL && i == c->self && own->flags & POST_IN_PLACE)
            in = false;
        if (source && !in)
            return false;
        if (!out && (p == KC_ALL_REDUCE || (ring && (p == KC_ALL_GATHER || (p == KC_BROADCAST && !source)))))
            return false;
    }
    return true;
}

static enum op_way way_to_read(const struct kc_comm_op *op, bool windows, uint64_t most)
{
    if (windows)
        return WAY_WINDOW;
    return op->channel->reached && remote_is_worth(op, most) ? WAY_REMOTE : WAY_STAGED;
}

static enum op_way choose_way(const struct kc_comm_op *op, uint64_t most)
{
    const struct kc_comm_call *c = &op->call;
    if (c->primitive == KC_BARRIER || (c->primitive == KC_ALL_TO_ALL ? most : c->count) == 0)
        return WAY_NOTHING;
    if (op_members(op) == 1)
        return WAY_ALONE;
    if (c->algorithm == KC_TREE && (c->primitive == KC_ALL_REDUCE || c->primitive == KC_BROADCAST))
        return WAY_TREE;
    if (c->algorithm == KC_RING &&
        (call_reduces(c) || c->primitive == KC_ALL_GATHER || c->primitive == KC_BROADCAST)) {
        /* sums under way of reduce-scatter and bf16 have no place in the callers' buffers */
        bool room = c->primitive != KC_REDUCE_SCATTER && (c->primitive != KC_ALL_REDUCE || c->type != KC_BF16);
        return room && all_in_windows(op) ? WAY_RING_WINDOW : WAY_RING_STAGED;
    }
    if (one_gives(c) && op->channel->member[op->channel->pair ? 0 : c->peer].first)
        return WAY_STAGED;
    return way_to_read(op, all_in_windows(op), most);
}

/* Is the result so large that it should not go through the caches? Not in place, and not where peers read the sums at
 * once. */
static bool streams(const struct kc_comm_op *op)
{
    const struct kc_comm_call *c = &op->call;
    return call_out_count(c, op_members(op), op_self(op)) * op_bytes(op) >= STREAM && c->in != c->out &&
           (op->way == WAY_WINDOW || (op->way == WAY_REMOTE && c->primitive != KC_ALL_REDUCE));
}

/* All members have posted the same signature: now it can run. */
static int agree(struct kc_comm_op *op)
{
    struct channel *c = op->channel;
    uint64_t most = 0;
    c->joined = op->number;
    if (op->call.primitive == KC_ALL_TO_ALL) {
        bool windows = all_in_windows(op); /* before the comparison moves `in` */
        int code = post_compare_counts(op, &most);
        if (code)
            return code;
        op->way = most == 0 ? WAY_NOTHING : op_members(op) == 1 ? WAY_ALONE : way_to_read(op, windows, most);
    } else {
        op->way = choose_way(op, 0);
    }
    if (op->way == WAY_STAGED)
        direct_plan(op, op->call.primitive == KC_ALL_TO_ALL ? most : direct_length(op));
    else if (op->way == WAY_RING_STAGED || op->way == WAY_RING_WINDOW)
        ring_plan(op);
    else if (op->way == WAY_TREE)
        tree_plan(op);
    op->streams = streams(op);
    return 0;
}

static enum advance look_at_posts(struct kc_comm_op *op)
{
    struct channel *c = op->channel;
    uint64_t all = channel_all(c);
    int code = 0;
    for (uint32_t i = 0; i < c->members && code >= 0; i++) {
        if (op->checked >> i & 1)
            continue;
        code = post_look(op, i);
        if (code == 1)
            op->checked |= UINT64_C(1) << i;
    }
    if (code >= 0 && op->checked != all)
        return BLOCKED;
    if (code >= 0)
        code = agree(op);
    if (code < 0) {
        op->way = WAY_NOTHING;
        count_steps(op);
        end(op, code);
    } else {
        op->stage = OP_RUNNING;
    }
    return MOVED;
}

static enum advance run(struct kc_comm_op *op)
{
    enum advance a = FINISHED;
    switch ((enum op_way)op->way) {
    case WAY_NOTHING: break;
    case WAY_ALONE: direct_alone(op); break;
    case WAY_WINDOW: case WAY_REMOTE: a = direct_advance_window(op); break;
    case WAY_STAGED: a = direct_advance_staged(op); break;
    case WAY_TREE: a = tree_advance(op); break;
    case WAY_RING_WINDOW: case WAY_RING_STAGED: a = ring_advance(op); break;
    }
    if (a == FAILED) { /* nobody can be told within the operation: peers may wait for what will not come */
        bool left = transport_aborted(op->channel->transport); /* the peer has: its memory is not what it was */
        if (!left)
            kc_probe_abort(op->channel->transport->probe, KC_REASON_ERROR);
        end(op, left ? -ESHUTDOWN : -EPROTO);
        return MOVED;
    }
    if (a != FINISHED)
        return a;
    count_steps(op);
    end(op, 0);
    return MOVED;
}

/* Ring for what was published since the last time: see op_owe(). */
static void channel_settle(struct channel *c)
{
    if (!c->owed)
        return;
    transport_fence();
    for (; c->owed; c->owed &= c->owed - 1)
        transport_ring(c->transport, c->member[__builtin_ctzll(c->owed)].rank);
}

/* One look at the head of a channel: did anything move? */
static bool drive_channel(struct channel *c)
{
    struct kc_comm_op *op = c ? c->head : NULL;
    enum advance a = BLOCKED;
    if (!op)
        return false;
    switch ((enum op_stage)op->stage) {
    case OP_QUEUED: a = post(op); break;
    case OP_POSTED: a = look_at_posts(op); break;
    case OP_RUNNING: a = run(op); break;
    case OP_ENDED: break;
    }
    if (a != MOVED || op->stage == OP_ENDED)
        channel_settle(c);
    return a == MOVED;
}

/* One look at everything that is in flight in a group. */
static bool drive(struct slot *s, uint32_t count)
{
    bool moved = drive_channel(s->collectives);
    for (uint32_t i = 0; s->pairs && i < count; i++) {
        moved |= drive_channel(s->send[i]);
        moved |= drive_channel(s->receive[i]);
    }
    return moved;
}

/* Before control goes back to the caller, who may be long: nobody sleeps on what we have published. */
static void settle(struct slot *s, uint32_t count)
{
    channel_settle(s->collectives);
    for (uint32_t i = 0; s->pairs && i < count; i++) {
        if (s->send[i]) {
            channel_settle(s->send[i]);
            channel_settle(s->receive[i]);
        }
    }
}

/* ---- the public verbs ---- */

static void op_text(const struct kc_comm_op *op, char out[CALL_TEXT])
{
    const struct kc_group *g = op->channel->group;
    call_text(&op->call, op->channel->pair ? (int32_t)g->ranks[op->call.peer] : op->call.peer, out);
}

static int say_aborted(const struct kc_comm_op *op, struct kc_error *e)
{
    char text[CALL_TEXT], who[32] = "the keeper";
    int32_t rank = KC_ABORT_RANK(transport_aborted(op->channel->transport));
    if (rank < KC_RANKS_MAX)
        snprintf(who, sizeof who, "rank %d", rank);
    op_text(op, text);
    return kc_fail(e, -ESHUTDOWN, "%s (group %u) ended: the run was aborted by %s", text, op->channel->group->id,
                   who);
}

static int say_late(const struct kc_comm_op *op, struct kc_error *e)
{
    const struct channel *c = op->channel;
    char text[CALL_TEXT], missing[160] = "";
    size_t n = 0;
    for (uint32_t i = 0; op->stage == OP_POSTED && i < c->members && n + 8 < sizeof missing; i++) {
        if (!(op->checked >> i & 1))
            n += (size_t)snprintf(missing + n, sizeof missing - n, "%s%u", n ? ", " : "; not there: rank ",
                                  c->member[i].rank);
    }
    op_text(op, text);
    return kc_fail(e, -ETIMEDOUT, "%s (group %u) is not complete in time%s", text, c->group->id, missing);
}

static struct channel *channel_of(const struct kc_group *g, const struct kc_comm_call *call)
{
    struct slot *s = group_slot(g);
    if (call->primitive == KC_SEND)
        return s->send[call->peer];
    if (call->primitive == KC_RECV)
        return s->receive[call->peer];
    return s->collectives;
}

static int start(const struct kc_group *g, const struct kc_comm_call *call, struct kc_comm_op **out,
                 struct kc_error *e)
{
    int code = call_check(g, call, e);
    if (code)
        return kc_fail_prefix(e, code, "group %u #%" PRIu64, g->id, call->sequence);
    if (transport_aborted(g->transport))
        return kc_fail(e, -ESHUTDOWN, "group %u #%" PRIu64 " was not started: the run was aborted", g->id,
                       call->sequence);
    struct slot *s = group_slot(g);
    struct kc_comm_op *op = op_new(s);
    if (!op)
        return kc_fail(e, -ENOMEM, "group %u #%" PRIu64 ": no memory for the operation", g->id, call->sequence);
    memset(op, 0, offsetof(struct kc_comm_op, error));
    op->channel = channel_of(g, call);
    op->call = *call;
    call_normalise(&op->call);
    struct channel *c = op->channel;
    if (c->head)
        c->tail->next = op;
    else
        c->head = op;
    c->tail = op;
    s->pairs += c->pair;
    if (c->head == op)
        post(op); /* which has to wait where members have not left an operation that was refused */
    op->waited = op->stage == OP_QUEUED;
    record(op, !op->waited); /* after the post, so that nobody waits for our bookkeeping */
    *out = op;
    return 0;
}

int kc_comm_start(const struct kc_group *g, const struct kc_comm_call *call, struct kc_comm_op **out,
                  struct kc_error *e)
{
    int code = start(g, call, out, e);
    if (code == 0)
        channel_settle((*out)->channel);
    return code;
}

/* An ended operation goes back to its owner as a result, and its memory to the group. */
static int collect(struct kc_comm_op **out, struct kc_error *e)
{
    struct kc_comm_op *op = *out;
    struct slot *s = group_slot(op->channel->group);
    int result = op->result;
    if (result == -ESHUTDOWN)
        say_aborted(op, e);
    else if (result)
        kc_fail(e, result, "%s", op->error.text);
    op->next = s->spare;
    s->spare = op;
    *out = NULL;
    return result;
}

int kc_comm_test(struct kc_comm_op **out, struct kc_error *e)
{
    struct kc_comm_op *op = *out;
    const struct kc_group *g = op->channel->group;
    for (int moves = 0; op->stage != OP_ENDED && moves < TEST_MOVES; moves++) {
        if (drive(group_slot(g), g->count))
            continue;
        if (!transport_aborted(g->transport))
            return -EAGAIN;
        end(op, -ESHUTDOWN);
    }
    settle(group_slot(g), g->count);
    return op->stage == OP_ENDED ? collect(out, e) : -EAGAIN;
}

static inline void pause_core(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Look for a while before sleeping. Where others want the core (the peers that are waited for, or this rank's own
 * compute threads) it is given up between the looks: to a thread that can run a yield costs what a switch costs, and
 * nothing is owed to a sleeper. */
static bool spin(struct slot *s, const struct kc_group *g, uint64_t deadline)
{
    bool shared = g->transport->spin_short;
    uint32_t hot = shared ? 1 : SPIN_HOT;
    uint64_t until = 0;
    for (uint32_t i = 1;; i++) {
        if (drive(s, g->count))
            return true;
        if (transport_aborted(g->transport))
            return false;
        if (i > hot)
            pause_core();
        if (i % hot)
            continue;
        if (shared)
            sched_yield();
        uint64_t now = kc_now();
        until = until ? until : now + (shared ? YIELD : SPIN);
        if (now >= until || (deadline && now >= deadline))
            return false;
    }
}

/* wait_begin names what blocks: the primitive. */
static enum kc_wait wait_name(const struct kc_comm_op *op)
{
    switch ((enum kc_primitive)op->call.primitive) {
    case KC_ALL_REDUCE: return KC_WAIT_ALL_REDUCE;
    case KC_ALL_GATHER: return KC_WAIT_ALL_GATHER;
    case KC_REDUCE_SCATTER: return KC_WAIT_REDUCE_SCATTER;
    case KC_BROADCAST: return KC_WAIT_BROADCAST;
    case KC_ALL_TO_ALL: return KC_WAIT_ALL_TO_ALL;
    case KC_SEND: return KC_WAIT_SEND;
    case KC_RECV: return KC_WAIT_RECV;
    default: return KC_WAIT_BARRIER;
    }
}

/* Sleep on the own doorbell until something of the group moves. 0, or -ETIMEDOUT, or -ESHUTDOWN. */
static int sleep_until_moved(struct slot *s, const struct kc_comm_op *op, uint64_t deadline)
{
    const struct kc_group *g = op->channel->group;
    const struct kc_transport *t = g->transport;
    int token = kc_probe_wait_begin(t->probe, wait_name(op), g->id, op->call.sequence);
    int code = -EAGAIN;
    while (code == -EAGAIN) {
        uint32_t seen = transport_sleep_begin(t);
        if (drive(s, g->count))
            code = 0;
        else if (transport_aborted(t))
            code = -ESHUTDOWN;
        else if (deadline && kc_now() >= deadline)
            code = -ETIMEDOUT;
        else
            transport_sleep(t, seen, deadline);
        transport_sleep_end(t);
    }
    kc_probe_wait_end(t->probe, token);
    return code;
}

int kc_comm_wait(struct kc_comm_op **out, uint64_t deadline, struct kc_error *e)
{
    struct kc_comm_op *op = *out;
    const struct kc_group *g = op->channel->group;
    struct slot *s = group_slot(g);
    for (uint32_t moves = 1; op->stage != OP_ENDED; moves++) {
        bool late = deadline && moves % MOVES_A_LOOK == 0 && kc_now() >= deadline;
        if (!late && (drive(s, g->count) || spin(s, g, deadline)))
            continue;
        int code = late ? -ETIMEDOUT : sleep_until_moved(s, op, deadline);
        if (code == -ESHUTDOWN && op->stage != OP_ENDED)
            end(op, code);
        if (code == -ETIMEDOUT) {
            settle(s, g->count);
            return say_late(op, e);
        }
    }
    settle(s, g->count);
    return collect(out, e);
}

int kc_comm_run(const struct kc_group *g, const struct kc_comm_call *call, struct kc_error *e)
{
    struct kc_comm_op *op = NULL;
    int code = start(g, call, &op, e);
    return code ? code : kc_comm_wait(&op, 0, e);
}
