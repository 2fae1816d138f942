/* comm.c - collectives that are left out, called wrongly, or called in another order. All on the communication lane. */
#include "drill_impl.h"

#include <stdint.h>
#include <stdio.h>

/* What stands for an operation that was never started: its wait ends at once. */
static char nothing;
#define NOTHING ((struct kc_comm_op *)(void *)&nothing)

/* A group as the plan knows it. */
struct seat {
    uint32_t members, position;
};

static struct seat seat_of(const struct kc_drill *d, const struct kc_exec_instruction *i)
{
    const struct kc_plan_collective *c = KC_AT(d->plan, struct kc_plan_collective, d->plan->collectives) + i->collective;
    const uint32_t g = kc_comm_group_of(d->plan, c->family, d->c.rank);
    struct seat s = {1, 0};
    if (g == KC_NOT_MEMBER)
        return s;
    const struct kc_plan_group *group = KC_AT(d->plan, struct kc_plan_group, d->plan->groups) + g;
    const uint32_t *ranks = KC_AT(d->plan, uint32_t, group->ranks);
    s.members = group->ranks.count;
    for (uint32_t k = 0; k < s.members; k++)
        if (ranks[k] == d->c.rank)
            s.position = k;
    return s;
}

static bool reduces(const struct kc_comm_call *c)
{
    return c->primitive == KC_ALL_REDUCE || c->primitive == KC_REDUCE_SCATTER;
}

/* ---- a call becomes another one ---- */

/* A few elements less, in place where it was in place. */
static void fewer(struct kc_comm_call *c, struct seat s)
{
    const size_t bytes = kc_type_bytes[c->type];
    unsigned char *in = (unsigned char *)(uintptr_t)c->in, *out = c->out;
    const bool gathers = c->primitive == KC_ALL_GATHER && in == out + s.position * c->count * bytes;
    const bool scatters = c->primitive == KC_REDUCE_SCATTER && out == in + s.position * (c->count / s.members) * bytes;
    c->count -= c->primitive == KC_REDUCE_SCATTER ? s.members : 1;
    if (gathers)
        c->in = out + s.position * c->count * bytes;
    else if (scatters)
        c->out = in + s.position * (c->count / s.members) * bytes;
}

static void another_type(struct kc_comm_call *c)
{
    for (uint8_t t = 0; t < KC_TYPES; t++)
        if (t != c->type && kc_type_bytes[t] == kc_type_bytes[c->type]) {
            c->type = t;
            return;
        }
}

static void broadcast_from(struct kc_comm_call *c, uint32_t root)
{
    c->primitive = KC_BROADCAST;
    c->algorithm = KC_DIRECT;
    c->peer = (int32_t)root;
}

/* Both sides of a link send; a sum becomes a broadcast; all else a barrier. */
static void another_primitive(struct kc_comm_call *c)
{
    if (c->primitive == KC_RECV) {
        c->primitive = KC_SEND;
        c->in = c->out;
    } else if (c->primitive == KC_ALL_REDUCE) {
        broadcast_from(c, 0);
    } else {
        c->primitive = KC_BARRIER;
    }
}

static bool suits(uint32_t what, const struct kc_comm_call *c, struct seat s)
{
    switch ((enum kc_drill_what)what) {
    case KC_DRILL_SKIP:
    case KC_DRILL_PRIMITIVE:
    case KC_DRILL_SWAP:
        return s.members > 1;
    case KC_DRILL_COUNT:
        return s.members > 1 && c->primitive != KC_ALL_TO_ALL && c->count > s.members;
    case KC_DRILL_TYPE:
        return s.members > 1 && c->primitive != KC_BARRIER && c->type != KC_BF16; /* the only one of its size */
    case KC_DRILL_REDUCE:
        return s.members > 1 && reduces(c);
    case KC_DRILL_ROOT:
        return s.members > 1 && c->primitive == KC_ALL_REDUCE;
    case KC_DRILL_UNRECEIVED:
        return c->primitive == KC_RECV;
    default:
        return false;
    }
}

static void change(uint32_t what, struct kc_comm_call *c, struct seat s)
{
    switch ((enum kc_drill_what)what) {
    case KC_DRILL_COUNT:
        fewer(c, s);
        break;
    case KC_DRILL_TYPE:
        another_type(c);
        break;
    case KC_DRILL_PRIMITIVE:
        another_primitive(c);
        break;
    case KC_DRILL_REDUCE:
        c->reduce = c->reduce == KC_MAX ? KC_SUM : KC_MAX;
        break;
    case KC_DRILL_ROOT:
        broadcast_from(c, s.position);
        break;
    default:
        break;
    }
}

/* ---- comm_if ---- */

static struct fault *due_here(struct kc_drill *d, const struct kc_exec_instruction *i, const struct kc_comm_call *call,
                              struct seat s)
{
    const enum kc_drill_at at = drill_place(d, i);
    for (uint32_t k = 0; k < d->faults; k++)
        if (suits(d->fault[k].say->what, call, s) && drill_due(d, &d->fault[k], at))
            return &d->fault[k];
    return NULL;
}

static int run(struct kc_drill *d, const struct kc_group *g, const struct kc_comm_call *call, struct kc_error *e)
{
    struct kc_comm_op *op = NULL;
    const int code = d->comm.start(d->comm.self, g, call, &op, e);
    return code < 0 ? code : d->comm.wait(d->comm.self, &op, 0, e);
}

/* The one behind goes first; in one group it takes the number of the one that was held, as a program would that calls two
 * operations in the wrong order. */
static int start_swapped(struct kc_drill *d, const struct kc_group *g, const struct kc_comm_call *call, struct kc_comm_op **op,
                         struct kc_error *e)
{
    struct kc_comm_call first = *call, second = d->held.call;
    if (g == d->held.group) {
        first.sequence = second.sequence;
        second.sequence = call->sequence;
    }
    d->held.fault = NULL;
    const int code = run(d, g, &first, e);
    return code < 0 ? code : d->comm.start(d->comm.self, d->held.group, &second, op, e);
}

static int comm_start(void *self, const struct kc_group *g, const struct kc_comm_call *call, struct kc_comm_op **op,
                      struct kc_error *e)
{
    struct kc_drill *d = self;
    const struct kc_exec_instruction *i = drill_instruction(d, KC_LANE_COMM, KC_I_COLLECTIVE, 0);
    int code = d->program == KC_PROGRAM_TRAIN ? drill_process(d, KC_DRILL_AT_COMMUNICATION, e) : 0;
    if (code < 0)
        return code;
    if (d->held.fault)
        return start_swapped(d, g, call, op, e);
    const struct seat s = i ? seat_of(d, i) : (struct seat){1, 0};
    struct fault *f = i ? due_here(d, i, call, s) : NULL;
    if (!f)
        return d->comm.start(d->comm.self, g, call, op, e);
    char detail[80];
    snprintf(detail, sizeof detail, "%s #%llu", kc_primitive_name[call->primitive], (unsigned long long)call->sequence);
    drill_tell(d, f, detail);
    if (f->say->what == KC_DRILL_SKIP || f->say->what == KC_DRILL_UNRECEIVED) {
        *op = NOTHING;
        return 0;
    }
    if (f->say->what == KC_DRILL_SWAP) {
        d->held = (struct held){.fault = f, .call = *call, .group = g};
        *op = NOTHING;
        return 0;
    }
    struct kc_comm_call other = *call;
    change(f->say->what, &other, s);
    return d->comm.start(d->comm.self, g, &other, op, e);
}

static int comm_test(void *self, struct kc_comm_op **op, struct kc_error *e)
{
    struct kc_drill *d = self;
    if (*op != NOTHING)
        return d->comm.test(d->comm.self, op, e);
    *op = NULL;
    return 0;
}

static int comm_wait(void *self, struct kc_comm_op **op, uint64_t deadline, struct kc_error *e)
{
    struct kc_drill *d = self;
    if (*op != NOTHING)
        return d->comm.wait(d->comm.self, op, deadline, e);
    *op = NULL;
    return 0;
}

static const struct kc_group *comm_group(void *self, uint32_t index)
{
    struct kc_drill *d = self;
    return d->comm.group(d->comm.self, index);
}

void drill_wire_comm(struct kc_drill *d, struct kc_comm_if *comm)
{
    d->comm = *comm;
    *comm = (struct kc_comm_if){.self = d,
                                .built_for = d->comm.built_for,
                                .start = comm_start,
                                .test = comm_test,
                                .wait = comm_wait,
                                .group = comm_group};
}
