/* order_connect.c - puts transfers between the compute turns of all ranks.
 *
 * Plays the ranks on one clock and writes down what happens in the order in which it happens: a compute turn when it
 * begins, a transfer when the turn that made what it sends has ended, on both sides at once. So every list is a part
 * of one line of events, and lists that are carried out in their order cannot wait for each other. */
#include "order_impl.h"

#include "base/print.h"

#include <errno.h>
#include <stdlib.h>

struct connect {
    const struct kc_order_lists *in;
    const struct kc_order_costs *costs;
    struct kc_order_lists *out;
    double *f_end, *i_end; /* (stage, micro): when F, and I or B, end; negative: not begun */
    struct connect_rank {
        uint32_t next, end;  /* of its compute turns */
        uint32_t wrote;      /* turns in out */
        double begin;        /* of its next turn; negative: something that it needs has not begun yet */
        double free;         /* when its last turn ends */
        bool owes;           /* the transfer of its last turn has not happened yet */
        struct kc_turn send; /* this one, at `free` */
    } *ranks;
};

static void write_turn(struct connect *c, uint32_t rank, struct kc_turn t)
{
    c->out->turns[c->out->first[rank] + c->ranks[rank].wrote++] = t;
}

/* When what `stage` gets from `from` is there: `end` is by (stage, micro). Negative: not known yet. */
static double arrives(const struct connect *c, const double *end, uint32_t stage, uint32_t from, uint32_t micro)
{
    const double made = end[order_at(c->in, from, micro)];
    return made < 0 || !order_apart(c->in, stage, from) ? made : made + (c->costs ? c->costs->send : 0);
}

static double later(double a, double b)
{
    return a < 0 || b < 0 ? -1 : a > b ? a : b;
}

/* When a rank's next compute turn can begin; negative as in `begin`. */
static double ready(const struct connect *c, const struct connect_rank *r)
{
    if (r->next == r->end)
        return -1;
    const struct kc_turn *t = &c->in->turns[r->next];
    const uint32_t last = order_stages(c->in) - 1;
    double at = r->free;
    switch (t->kind) {
    case KC_TURN_F:
        return t->stage == 0 ? at : later(at, arrives(c, c->f_end, t->stage, t->stage - 1, t->micro));
    case KC_TURN_W:
        return later(at, c->i_end[order_at(c->in, t->stage, t->micro)]);
    default:
        at = later(at, c->f_end[order_at(c->in, t->stage, t->micro)]);
        return t->stage == last ? at : later(at, arrives(c, c->i_end, t->stage, t->stage + 1, t->micro));
    }
}

/* The transfer that a rank owes happens. */
static void transfer(struct connect *c, uint32_t rank)
{
    struct connect_rank *r = &c->ranks[rank];
    const bool on = r->send.kind == KC_TURN_SEND_F;
    const struct kc_turn receive = {on ? KC_TURN_RECV_F : KC_TURN_RECV_I, on ? r->send.stage + 1 : r->send.stage - 1,
                                    r->send.micro};
    write_turn(c, rank, r->send);
    write_turn(c, order_rank(c->in, receive.stage), receive);
    r->owes = false;
}

/* All transfers until a time, the earliest first. */
static void transfers_until(struct connect *c, double time, bool all)
{
    for (;;) {
        uint32_t best = UINT32_MAX;
        for (uint32_t r = 0; r < c->in->shape.ranks; r++)
            if (c->ranks[r].owes && (all || c->ranks[r].free <= time) &&
                (best == UINT32_MAX || c->ranks[r].free < c->ranks[best].free))
                best = r;
        if (best == UINT32_MAX)
            return;
        transfer(c, best);
    }
}

/* The rank that gets what a turn makes; its own where nobody does, or it itself. */
static uint32_t receiver(const struct kc_order_lists *l, uint32_t rank, const struct kc_turn *t)
{
    if (t->kind == KC_TURN_F)
        return t->stage + 1 < order_stages(l) ? order_rank(l, t->stage + 1) : rank;
    return t->kind != KC_TURN_W && t->stage > 0 ? order_rank(l, t->stage - 1) : rank;
}

static void compute(struct connect *c, uint32_t rank)
{
    struct connect_rank *r = &c->ranks[rank];
    const struct kc_turn t = c->in->turns[r->next++];
    const uint32_t peer = receiver(c->in, rank, &t);
    const bool f = t.kind == KC_TURN_F;
    r->free = r->begin + turn_cost(&t, c->costs);
    write_turn(c, rank, t);
    if (t.kind != KC_TURN_W)
        (f ? c->f_end : c->i_end)[order_at(c->in, t.stage, t.micro)] = r->free;
    r->owes = peer != rank;
    r->send = (struct kc_turn){f ? KC_TURN_SEND_F : KC_TURN_SEND_I, t.stage, t.micro};
    r->begin = ready(c, r);
    c->ranks[peer].begin = ready(c, &c->ranks[peer]);
}

static int stopped(const struct connect *c, struct kc_error *e)
{
    uint32_t r = 0;
    while (r < c->in->shape.ranks && c->ranks[r].next == c->ranks[r].end)
        r++;
    if (r == c->in->shape.ranks)
        return 0;
    char text[TURN_TEXT];
    turn_text(&c->in->turns[c->ranks[r].next], text);
    return kc_fail(e, -EDEADLK, "pipeline order %s: rank %u stands before %s, and nobody can go on", c->in->row->name,
                   r, text);
}

/* Who can begin first does; among equals the first rank. */
static int run(struct connect *c, struct kc_error *e)
{
    for (uint32_t r = 0; r < c->in->shape.ranks; r++)
        c->ranks[r].begin = ready(c, &c->ranks[r]);
    for (;;) {
        uint32_t best = UINT32_MAX;
        for (uint32_t r = 0; r < c->in->shape.ranks; r++)
            if (c->ranks[r].begin >= 0 && (best == UINT32_MAX || c->ranks[r].begin < c->ranks[best].begin))
                best = r;
        if (best == UINT32_MAX) {
            transfers_until(c, 0, true);
            return stopped(c, e);
        }
        transfers_until(c, c->ranks[best].begin, false);
        compute(c, best);
    }
}

/* How many turns every rank will have, and room for them. */
static int measure(const struct kc_order_lists *in, struct kc_order_lists *out)
{
    const uint32_t ranks = in->shape.ranks;
    for (uint32_t r = 0; r < ranks; r++)
        for (uint32_t i = in->first[r]; i < in->first[r + 1]; i++) {
            const uint32_t peer = receiver(in, r, &in->turns[i]);
            out->first[r + 1] += 1 + (peer != r);
            out->first[peer + 1] += peer != r;
        }
    for (uint32_t r = 0; r < ranks; r++)
        out->first[r + 1] += out->first[r];
    out->turns = malloc((out->first[ranks] + 1) * sizeof *out->turns);
    return out->turns ? 0 : -ENOMEM;
}

int order_connect(const struct kc_order_lists *in, const struct kc_order_costs *costs, struct kc_order_lists *out,
                  struct kc_error *e)
{
    const size_t all = (size_t)order_stages(in) * in->shape.micros;
    struct kc_order_lists l = {.row = in->row, .shape = in->shape};
    struct connect c = {.in = in, .costs = costs, .out = &l};
    l.first = calloc((size_t)in->shape.ranks + 1, sizeof *l.first);
    c.f_end = malloc(2 * all * sizeof *c.f_end);
    c.ranks = calloc(in->shape.ranks, sizeof *c.ranks);
    int code = 0;
    if (!l.first || !c.f_end || !c.ranks || measure(in, &l) != 0) {
        code = kc_fail(e, -ENOMEM, "no memory for a pipeline of %u stages and %u micro-batches", order_stages(in),
                       in->shape.micros);
        goto out;
    }
    c.i_end = c.f_end + all;
    for (size_t i = 0; i < 2 * all; i++)
        c.f_end[i] = -1;
    for (uint32_t r = 0; r < in->shape.ranks; r++)
        c.ranks[r].next = in->first[r], c.ranks[r].end = in->first[r + 1];
    code = run(&c, e);
out:
    free(c.f_end);
    free(c.ranks);
    if (code)
        kc_order_free(&l);
    else
        *out = l;
    return code;
}
