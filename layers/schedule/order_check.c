/* order_check.c - the proof of an order's lists. Knows no order: what it believes is the map of stages alone. */
#include "order_impl.h"

#include "base/print.h"

#include <errno.h>
#include <stdlib.h>

struct check {
    const struct kc_order_lists *l;
    uint32_t *at;   /* by rank: the turn that it stands before */
    uint16_t *done; /* (stage, micro): bits 1 << kind */
    uint32_t *next; /* (stage, kind): the least micro-batch that may come */
};

static const struct kc_turn *head(const struct check *c, uint32_t rank)
{
    return c->at[rank] == c->l->first[rank + 1] ? NULL : &c->l->turns[c->at[rank]];
}

/* What a stage needs of a micro-batch, all in all. */
static uint16_t due(const struct check *c, uint32_t stage, uint16_t seen)
{
    const struct kc_order_lists *l = c->l;
    const bool before = stage > 0 && order_apart(l, stage, stage - 1);
    const bool behind = stage + 1 < order_stages(l) && order_apart(l, stage, stage + 1);
    const bool back = !l->shape.forward;
    const uint16_t backward = !back ? 0 : seen & 1 << KC_TURN_B ? 1 << KC_TURN_B : 1 << KC_TURN_I | 1 << KC_TURN_W;
    return (uint16_t)(1 << KC_TURN_F | backward | before << KC_TURN_RECV_F | behind << KC_TURN_SEND_F |
                      (before && back) << KC_TURN_SEND_I | (behind && back) << KC_TURN_RECV_I);
}

static bool has(const struct check *c, uint32_t stage, uint32_t micro, uint32_t kinds)
{
    return c->done[order_at(c->l, stage, micro)] & kinds;
}

enum { BACKWARD = 1 << KC_TURN_I | 1 << KC_TURN_B };

/* All that this turn needs on its own rank is done. */
static bool ready(const struct check *c, const struct kc_turn *t)
{
    const uint32_t s = t->stage, m = t->micro;
    switch (t->kind) {
    case KC_TURN_F:
        if (s == 0)
            return true;
        return order_apart(c->l, s, s - 1) ? has(c, s, m, 1 << KC_TURN_RECV_F) : has(c, s - 1, m, 1 << KC_TURN_F);
    case KC_TURN_B:
    case KC_TURN_I:
        if (!has(c, s, m, 1 << KC_TURN_F) || s + 1 == order_stages(c->l))
            return has(c, s, m, 1 << KC_TURN_F);
        return order_apart(c->l, s, s + 1) ? has(c, s, m, 1 << KC_TURN_RECV_I) : has(c, s + 1, m, BACKWARD);
    case KC_TURN_W:
        return has(c, s, m, 1 << KC_TURN_I);
    case KC_TURN_SEND_F:
        return has(c, s, m, 1 << KC_TURN_F);
    case KC_TURN_SEND_I:
        return has(c, s, m, BACKWARD);
    default:
        return true;
    }
}

/* The other end of a transfer. */
static struct kc_turn other_end(const struct kc_turn *t)
{
    switch (t->kind) {
    case KC_TURN_SEND_F:
        return (struct kc_turn){KC_TURN_RECV_F, t->stage + 1, t->micro};
    case KC_TURN_RECV_F:
        return (struct kc_turn){KC_TURN_SEND_F, t->stage - 1, t->micro};
    case KC_TURN_SEND_I:
        return (struct kc_turn){KC_TURN_RECV_I, t->stage - 1, t->micro};
    default:
        return (struct kc_turn){KC_TURN_SEND_I, t->stage + 1, t->micro};
    }
}

/* Is it a turn that its rank may have? Looked at once, before anything is played. */
static int look(struct check *c, uint32_t rank, const struct kc_turn *t, struct kc_error *e)
{
    const struct kc_order_lists *l = c->l;
    if (t->kind >= KC_TURNS || t->stage >= order_stages(l) || t->micro >= l->shape.micros)
        return kc_fail(e, -EPROTO,
                       "rank %u has a turn of kind %u, stage %u, micro-batch %u: there are %u kinds, %u "
                       "stages, %u micro-batches",
                       rank, t->kind, t->stage, t->micro, KC_TURNS, order_stages(l), l->shape.micros);
    uint16_t *done = &c->done[order_at(l, t->stage, t->micro)];
    uint32_t *next = &c->next[t->stage * KC_TURNS + t->kind];
    const bool own = order_rank(l, t->stage) == rank, once = !(*done & 1 << t->kind), ascends = t->micro >= *next;
    if (!own || !once || !ascends) {
        char text[TURN_TEXT];
        turn_text(t, text);
        if (!own)
            return kc_fail(e, -EPROTO, "rank %u has %s, but rank %u holds that stage", rank, text,
                           order_rank(l, t->stage));
        if (!once)
            return kc_fail(e, -EPROTO, "rank %u has %s twice", rank, text);
        return kc_fail(e, -EPROTO, "rank %u has %s behind micro-batch %u: they must ascend", rank, text, *next - 1);
    }
    *done |= (uint16_t)(1 << t->kind);
    *next = t->micro + 1;
    return 0;
}

static int complete(struct check *c, struct kc_error *e)
{
    for (uint32_t s = 0; s < order_stages(c->l); s++)
        for (uint32_t m = 0; m < c->l->shape.micros; m++) {
            const uint16_t seen = c->done[order_at(c->l, s, m)], want = due(c, s, seen);
            for (uint32_t k = 0; k < KC_TURNS; k++) {
                if (((seen ^ want) & 1 << k) == 0)
                    continue;
                char text[TURN_TEXT];
                turn_text(&(struct kc_turn){k, s, m}, text);
                return kc_fail(e, -EPROTO, "rank %u %s %s%s", order_rank(c->l, s), want & 1 << k ? "lacks" : "has",
                               text, want & 1 << k ? "" : ", which nothing asks for");
            }
        }
    return 0;
}

/* Whom a rank that stands waits for; itself where its own list is out of order. */
static uint32_t waits_for(const struct check *c, uint32_t rank)
{
    const struct kc_turn *t = head(c, rank);
    if (turn_computes(t) || !ready(c, t))
        return rank;
    return order_rank(c->l, other_end(t).stage);
}

/* Tell who waits for whom, from a rank that is part of the reason: of a cycle, or the one that stands alone. */
static int stalled(const struct check *c, struct kc_error *e)
{
    uint32_t rank = 0;
    while (!head(c, rank))
        rank++;
    for (uint32_t n = 0; n < c->l->shape.ranks && head(c, waits_for(c, rank)); n++)
        rank = waits_for(c, rank);
    char line[KC_ERROR_TEXT] = "", text[TURN_TEXT];
    struct kc_print p = {.out = line, .room = sizeof line};
    const uint32_t first = rank;
    do {
        const uint32_t next = waits_for(c, rank);
        turn_text(head(c, rank), text);
        if (next == rank) {
            kc_print(&p, "rank %u stands before %s, which needs a turn that comes later", rank, text);
            break;
        }
        const char *state = head(c, next) ? "" : ", which has ended";
        kc_print(&p, "%srank %u stands at %s and waits for rank %u%s", p.length ? "; " : "", rank, text, next, state);
        rank = next;
    } while (rank != first && head(c, rank));
    return kc_fail(e, -EDEADLK, "pipeline order %s on %u ranks, %u micro-batches: %s", c->l->row->name,
                   c->l->shape.ranks, c->l->shape.micros, line);
}

/* One turn of a rank, or of two where it is a transfer that meets its other end. */
static bool advance(struct check *c, uint32_t rank)
{
    const struct kc_turn *t = head(c, rank);
    if (!t || !ready(c, t))
        return false;
    if (!turn_computes(t)) {
        const struct kc_turn want = other_end(t);
        const uint32_t peer = order_rank(c->l, want.stage);
        const struct kc_turn *p = head(c, peer);
        if (!p || p->kind != want.kind || p->stage != want.stage || p->micro != want.micro || !ready(c, p))
            return false;
        c->done[order_at(c->l, p->stage, p->micro)] |= (uint16_t)(1 << p->kind);
        c->at[peer]++;
    }
    c->done[order_at(c->l, t->stage, t->micro)] |= (uint16_t)(1 << t->kind);
    c->at[rank]++;
    return true;
}

static int play(struct check *c, struct kc_error *e)
{
    const uint32_t ranks = c->l->shape.ranks;
    for (size_t i = 0; i < (size_t)order_stages(c->l) * c->l->shape.micros; i++)
        c->done[i] = 0;
    for (bool moved = true; moved;) {
        moved = false;
        for (uint32_t r = 0; r < ranks; r++)
            while (advance(c, r))
                moved = true;
    }
    for (uint32_t r = 0; r < ranks; r++)
        if (head(c, r))
            return stalled(c, e);
    return 0;
}

int kc_order_check(const struct kc_order_lists *l, struct kc_error *e)
{
    struct check c = {.l = l};
    int code = 0;
    c.at = calloc(l->shape.ranks, sizeof *c.at);
    c.done = calloc((size_t)order_stages(l) * l->shape.micros, sizeof *c.done);
    c.next = calloc((size_t)order_stages(l) * KC_TURNS, sizeof *c.next);
    if (!c.at || !c.done || !c.next)
        code = kc_fail(e, -ENOMEM, "no memory to prove a pipeline of %u stages", order_stages(l));
    for (uint32_t r = 0; !code && r < l->shape.ranks; r++) {
        c.at[r] = l->first[r];
        for (uint32_t i = l->first[r]; !code && i < l->first[r + 1]; i++)
            code = look(&c, r, &l->turns[i], e);
    }
    if (!code)
        code = complete(&c, e);
    if (!code)
        code = play(&c, e);
    free(c.at);
    free(c.done);
    free(c.next);
    return code;
}
