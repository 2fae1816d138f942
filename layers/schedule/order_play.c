/* order_play.c - what an order's lists take, by a model of costs. */
#include "order_impl.h"

#include <errno.h>
#include <stdlib.h>

struct play {
    const struct kc_order_lists *l;
    const struct kc_order_costs *costs;
    double *f_end, *i_end;   /* (stage, micro): when F or I made it; negative: not yet */
    double *f_here, *i_here; /* when what F or I needs was received */
    double *begin;           /* by turn; may be NULL */
    struct play_rank {
        uint32_t compute, comm; /* the turn that each lane stands before */
        double compute_free, comm_free;
        double first, busy; /* when its first compute turn began; all it computed */
    } *ranks;
};

static double later(double a, double b)
{
    return a > b ? a : b;
}

/* The next turn of a lane; NULL at the end. */
static const struct kc_turn *lane_head(const struct kc_order_lists *l, uint32_t rank, uint32_t *at, bool computes)
{
    while (*at < l->first[rank + 1] && turn_computes(&l->turns[*at]) != computes)
        (*at)++;
    return *at < l->first[rank + 1] ? &l->turns[*at] : NULL;
}

/* When all that a compute turn needs is there; negative: not yet. */
static double ready(const struct play *p, const struct kc_turn *t)
{
    const struct kc_order_lists *l = p->l;
    const size_t own = order_at(l, t->stage, t->micro);
    switch (t->kind) {
    case KC_TURN_F:
        if (t->stage == 0)
            return 0;
        return order_apart(l, t->stage, t->stage - 1) ? p->f_here[own]
                                                      : p->f_end[order_at(l, t->stage - 1, t->micro)];
    case KC_TURN_W:
        return p->i_end[own];
    default:
        if (t->stage + 1 == order_stages(l))
            return p->f_end[own];
        return order_apart(l, t->stage, t->stage + 1) ? p->i_here[own]
                                                      : p->i_end[order_at(l, t->stage + 1, t->micro)];
    }
}

static bool compute(struct play *p, uint32_t rank)
{
    struct play_rank *r = &p->ranks[rank];
    const struct kc_turn *t = lane_head(p->l, rank, &r->compute, true);
    const double at = t ? ready(p, t) : -1;
    if (at < 0)
        return false;
    const double begin = later(r->compute_free, at), cost = turn_cost(t, p->costs);
    if (p->begin)
        p->begin[r->compute] = begin;
    if (r->busy == 0)
        r->first = begin;
    r->busy += cost;
    r->compute_free = begin + cost;
    if (t->kind == KC_TURN_F)
        p->f_end[order_at(p->l, t->stage, t->micro)] = r->compute_free;
    else if (t->kind != KC_TURN_W)
        p->i_end[order_at(p->l, t->stage, t->micro)] = r->compute_free;
    r->compute++;
    return true;
}

/* A transfer begins when what it sends is made and both lanes have come to it; the sender's side starts it. */
static bool transfer(struct play *p, uint32_t rank)
{
    const struct kc_order_lists *l = p->l;
    struct play_rank *r = &p->ranks[rank];
    const struct kc_turn *t = lane_head(l, rank, &r->comm, false);
    if (!t || (t->kind != KC_TURN_SEND_F && t->kind != KC_TURN_SEND_I))
        return false;
    const bool f = t->kind == KC_TURN_SEND_F;
    const uint32_t to = f ? t->stage + 1 : t->stage - 1, peer = order_rank(l, to);
    struct play_rank *q = &p->ranks[peer];
    const struct kc_turn *end = lane_head(l, peer, &q->comm, false);
    const double made = (f ? p->f_end : p->i_end)[order_at(l, t->stage, t->micro)];
    if (made < 0 || !end || end->kind != (f ? KC_TURN_RECV_F : KC_TURN_RECV_I) || end->stage != to ||
        end->micro != t->micro)
        return false;
    const double begin = later(made, later(r->comm_free, q->comm_free));
    if (p->begin)
        p->begin[r->comm] = p->begin[q->comm] = begin;
    r->comm_free = q->comm_free = begin + turn_cost(t, p->costs);
    (f ? p->f_here : p->i_here)[order_at(l, to, t->micro)] = r->comm_free;
    r->comm++, q->comm++;
    return true;
}

static void sum_up(const struct play *p, struct kc_order_times *out)
{
    struct kc_order_times t = {0};
    double busy = 0;
    for (uint32_t r = 0; r < p->l->shape.ranks; r++) {
        const struct play_rank *k = &p->ranks[r];
        t.total = later(t.total, k->compute_free);
        t.busiest = later(t.busiest, k->busy);
        t.gaps = later(t.gaps, k->compute_free - k->first - k->busy);
        busy += k->busy;
    }
    t.bubble = t.total > 0 ? 1 - busy / (t.total * p->l->shape.ranks) : 0;
    *out = t;
}

int kc_order_play(const struct kc_order_lists *l, const struct kc_order_costs *costs, struct kc_order_times *out,
                  double *begin, struct kc_error *e)
{
    int code = kc_order_check(l, e);
    if (code)
        return code;
    const size_t all = (size_t)order_stages(l) * l->shape.micros;
    struct play p = {.l = l, .costs = costs, .begin = begin};
    p.f_end = malloc(4 * all * sizeof *p.f_end);
    p.ranks = calloc(l->shape.ranks, sizeof *p.ranks);
    if (!p.f_end || !p.ranks) {
        code = kc_fail(e, -ENOMEM, "no memory for the times of %zu turns", all);
        goto out;
    }
    p.i_end = p.f_end + all, p.f_here = p.i_end + all, p.i_here = p.f_here + all;
    for (size_t i = 0; i < 4 * all; i++)
        p.f_end[i] = -1;
    for (uint32_t r = 0; r < l->shape.ranks; r++)
        p.ranks[r].compute = p.ranks[r].comm = l->first[r];
    for (bool moved = true; moved;) { /* it was proved that this comes to the end */
        moved = false;
        for (uint32_t r = 0; r < l->shape.ranks; r++)
            while (compute(&p, r) || transfer(&p, r))
                moved = true;
    }
    sum_up(&p, out);
out:
    free(p.f_end);
    free(p.ranks);
    return code;
}
