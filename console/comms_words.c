/* comms_words.c - channels and operations in words; the last operations of all. */
#include "comms.h"

#include "text.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static double seconds_between(uint64_t from, uint64_t to)
{
    return to > from ? (double)(to - from) * 1e-9 : 0;
}


const char *comm_channel_text(const struct comm_channel *c, char *out, size_t room)
{
    char name[48];
    if (*c->name)
        snprintf(name, sizeof name, "%s", c->name);
    else
        snprintf(name, sizeof name, "group %" PRIu32, c->group);
    if (c->from >= 0)
        snprintf(out, room, "%s %d>%d", name, c->from, c->to);
    else
        snprintf(out, room, "%s", name);
    return out;
}

const char *comm_op_text(const struct comm_op *o, char *out, size_t room)
{
    const bool reduces = o->primitive == KC_ALL_REDUCE || o->primitive == KC_REDUCE_SCATTER;
    if (o->primitive == KC_BARRIER)
        snprintf(out, room, "barrier");
    else
        snprintf(out, room, "%s %s%s%s", o->primitive == KC_RECV ? "send" : kc_primitive_name[o->primitive], kc_type_name[o->type],
                 reduces ? " " : "", reduces ? kc_reduce_name[o->reduce] : "");
    return out;
}

double comm_op_seconds(const struct comm_op *o, uint64_t now)
{
    if (!o->came_first || (!o->ended && o->done + o->unknown == o->members)) /* ended, and nobody knows when */
        return NAN;
    return seconds_between(o->came_first, o->ended ? o->ended : now);
}

double comm_op_waits(const struct comm_op *o, uint64_t now)
{
    if (!o->came_first || (!o->came_last && o->started + o->unknown == o->members))
        return NAN;
    return seconds_between(o->came_first, o->came_last ? o->came_last : now);
}

const char *comm_place_text(const struct comm_op *o, char *out, size_t room)
{
    if (o->done == o->members)
        snprintf(out, room, "done");
    else if (o->started + o->unknown < o->members)
        snprintf(out, room, "%d/%d came", o->started, o->members);
    else if (o->unknown)
        snprintf(out, room, "%d/%d known", o->members - o->unknown, o->members);
    else
        snprintf(out, room, "%d/%d done", o->done, o->members);
    return out;
}

const struct comm_op *comm_newest(const struct comm_channel *c)
{
    return c->ops ? &c->op[c->ops - 1] : NULL;
}

int comm_waits_for(const struct comm_op *o)
{
    return o->started + o->unknown < o->members ? o->last : -1;
}

/* The operation that keeps the channel: the oldest that is not done. */
static const struct comm_op *standing(const struct comm_channel *c)
{
    for (int i = 0; i < c->ops; i++)
        if (c->op[i].done + c->op[i].unknown < c->op[i].members)
            return &c->op[i];
    return NULL;
}

bool comm_stands_text(const struct comms *all, const struct comm_channel *c, double least, char *out, size_t room)
{
    const struct comm_op *o = standing(c);
    const double seconds = c->since ? seconds_between(c->since, all->now) : 0;
    char name[COMM_TEXT], op[COMM_TEXT], time[32], whom[64] = "";
    out[0] = 0;
    if (!o || seconds < least)
        return false;
    if (comm_waits_for(o) >= 0)
        snprintf(whom, sizeof whom, ", not rank %d%s", comm_waits_for(o), o->members - o->started - o->unknown > 1 ? " and others" : "");
    snprintf(out, room, "%s #%" PRIu64 " %s stands %s: %d/%d came, %d done%s", comm_channel_text(c, name, sizeof name),
             o->sequence, comm_op_text(o, op, sizeof op), text_seconds(seconds, time, sizeof time), o->started, o->members, o->done, whom);
    return true;
}

static int by_begin(const void *a, const void *b)
{
    const struct comm_at *x = a, *y = b;
    const uint64_t p = x->op->first, q = y->op->first;
    return p != q ? (p < q ? -1 : 1) : x->op->sequence != y->op->sequence ? (x->op->sequence < y->op->sequence ? -1 : 1) : 0;
}

int comms_last(const struct comms *c, struct comm_at *out, int room)
{
    int n = 0;
    size_t all = 0;
    for (size_t i = 0; i < c->channels; i++)
        all += (size_t)c->channel[i].ops;
    struct comm_at *at = malloc((all ? all : 1) * sizeof *at);
    if (!at)
        return 0;
    all = 0;
    for (size_t i = 0; i < c->channels; i++)
        for (int k = 0; k < c->channel[i].ops; k++)
            at[all++] = (struct comm_at){.channel = &c->channel[i], .op = &c->channel[i].op[k]};
    qsort(at, all, sizeof *at, by_begin);
    for (size_t i = all > (size_t)room ? all - (size_t)room : 0; i < all; i++)
        out[n++] = at[i];
    free(at);
    return n;
}
