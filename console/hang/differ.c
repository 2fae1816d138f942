/* differ.c - operations whose members disagree, messages that nobody takes, circles. The reference is what most members
 * hold; where no signature has more than half of all members, nobody is blamed and all parties are shown. */
#include "verdict_impl.h"

#include "base/print.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define PARTIES_SHOWN 8

/* ---- signatures -------------------------------------------------------------------------------------------------------*/

/* A row for each signature: who holds it. */
static void party_rows(const struct kc_match_op *o, struct kc_verdict *v)
{
    uint64_t left = o->here;
    for (uint32_t n = 0; left && n < PARTIES_SHOWN; n++) {
        uint32_t r = kc_first(left);
        uint64_t like = kc_match_like(o, r) | KC_BIT(r);
        char what[96], who[64];
        kc_match_text(o, r, what, sizeof what);
        verdict_row(v, "%s called %s%s%s", kc_ranks_text(like, 0, who, sizeof who), what,
                    o->seen[r] ? " by " : "", o->seen[r] ? kc_algorithm_name[o->seen[r]->algorithm] : "");
        left &= ~like;
    }
    if (o->refused)
        verdict_row(v, "refused before any data moved, on %u ranks", kc_bits(o->refused));
    if (o->absent)
        verdict_row(v, "%u ranks have not come to it", kc_bits(o->absent));
}

/* What the deviating ranks have that is not as most have it. */
static const char *difference(enum kc_hang_word w)
{
    switch (w) {
    case KC_HANG_MISMATCHED_OP: return "another operation";
    case KC_HANG_MISMATCHED_COUNT: return "it with another count";
    case KC_HANG_MISMATCHED_TYPE: return "it with another type";
    case KC_HANG_MISMATCHED_REDUCTION: return "it with another reduction";
    case KC_HANG_MISMATCHED_ROOT: return "it with another root";
    default: return "it by another algorithm";
    }
}

static bool alike(const struct kc_op_seen *a, const struct kc_op_seen *b)
{
    return kc_signatures_differ(a, b) == KC_HANG_WORDS;
}

/* Members that have called this signature in the group before, as far as their records reach. */
static uint64_t called_before(const struct hang_case *c, const struct kc_match_op *o, const struct kc_op_seen *s)
{
    uint64_t ranks = 0;
    for (KC_EACH(r, o->members)) {
        const struct kc_rank_evidence *k = &c->e->rank[r];
        for (uint32_t i = 0; i < k->ops; i++)
            if (k->op[i].group == o->group && k->op[i].generation == o->generation && k->op[i].sequence < o->sequence &&
                alike(&k->op[i], s))
                ranks |= KC_BIT(r);
    }
    return ranks;
}

/* What rank `r` called is what the group calls next: earlier, in the record of rank `one`, which does as most do, the two came
 * in this order. */
static bool is_out_of_order(const struct hang_case *c, const struct kc_match_op *o, uint32_t one, uint32_t r)
{
    const struct kc_rank_evidence *k = &c->e->rank[one];
    const struct kc_op_seen *before = NULL;
    for (uint32_t i = 0; i < k->ops; i++) {
        const struct kc_op_seen *now = &k->op[i];
        if (now->group != o->group || now->generation != o->generation || now->sequence >= o->sequence)
            continue;
        if (before && alike(before, o->seen[one]) && alike(now, o->seen[r]))
            return true;
        before = now;
    }
    return false;
}

static void blame_deviants(struct hang_case *c, const struct kc_match_op *o, uint64_t reference)
{
    uint64_t left = o->here & ~reference & ~c->blamed;
    while (left) {
        const uint32_t r = kc_first(left), one = kc_first(reference);
        const uint64_t like = (kc_match_like(o, r) | KC_BIT(r)) & left;
        char mine[96], theirs[96], who[64], place[64];
        const enum kc_hang_word w = kc_signatures_differ(o->seen[one], o->seen[r]);
        const bool early = w < KC_HANG_WORDS && is_out_of_order(c, o, one, r);
        struct kc_verdict *v = w < KC_HANG_WORDS ? verdict_new(c, early ? KC_HANG_ORDER_INVERSION : w, like) : NULL;
        left &= ~like;
        if (!v)
            continue;
        verdict_operation(c, v, o, one);
        kc_match_text(o, r, mine, sizeof mine);
        kc_match_text(o, one, theirs, sizeof theirs);
        snprintf(v->text, sizeof v->text, "%s called %s, %s: %s; %u of %u called %s", kc_ranks_text(like, 0, who, sizeof who),
                 early ? "what comes next" : difference(w), verdict_place(v, place, sizeof place), mine, kc_bits(reference),
                 kc_bits(o->members), theirs);
        v->victims = (o->open | o->cut) & ~like;
        if (2 * kc_bits(reference) <= kc_bits(o->members))
            verdict_row(v, "in the rounds before, %u of %u called %s, and none called %s", kc_bits(called_before(c, o, o->seen[one])),
                        kc_bits(o->members), theirs, mine);
        party_rows(o, v);
    }
}

static void show_parties(struct hang_case *c, const struct kc_match_op *o)
{
    char place[64];
    if (o->here & c->blamed)
        return;
    struct kc_verdict *v = verdict_new(c, KC_HANG_UNDECIDED, o->here);
    if (!v)
        return;
    verdict_operation(c, v, o, kc_first(o->here));
    snprintf(v->text, sizeof v->text,
             "the ranks of %s call different operations, and no one of them is held by more than half of all %u members",
             verdict_place(v, place, sizeof place), kc_bits(o->members));
    party_rows(o, v);
}

static bool all_alike(const struct kc_match_op *o)
{
    return !o->here || (kc_match_like(o, kc_first(o->here)) | KC_BIT(kc_first(o->here))) == o->here;
}

/* Not all have come, and those who have are no majority. In the rounds before, most members called the one signature, and
 * nobody any other: then that is the reference. Returns who holds it; 0: the rounds before do not tell. */
static uint64_t held_before(const struct hang_case *c, const struct kc_match_op *o)
{
    uint64_t left = o->here, reference = 0;
    while (left) {
        const uint32_t r = kc_first(left);
        const uint64_t like = kc_match_like(o, r) | KC_BIT(r), before = called_before(c, o, o->seen[r]);
        left &= ~like;
        if (!before)
            continue;
        if (reference || 2 * kc_bits(before) <= kc_bits(o->members))
            return 0;
        reference = like;
    }
    return reference;
}

static void look_at_signatures(struct hang_case *c, const struct kc_match_op *o)
{
    uint64_t shown = 0;
    for (KC_EACH(r, o->here))
        shown |= o->seen[r] ? KC_BIT(r) : 0;
    struct kc_match_op known = *o;
    known.here = shown;
    if (all_alike(&known))
        return;
    uint64_t majority = o->pair ? 0 : kc_match_majority(&known);
    if (!majority && !o->pair && shown != o->members)
        majority = held_before(c, &known);
    if (majority)
        blame_deviants(c, &known, majority);
    else
        show_parties(c, &known);
}

/* ---- who went past ---------------------------------------------------------------------------------------------------- */

static void went_past(struct hang_case *c, const struct kc_match_op *o)
{
    const uint64_t past = o->passed & ~c->blamed;
    const bool most = 2 * kc_bits(o->passed) > kc_bits(o->members);
    char who[64], place[64], here[64], what[96];
    if (!past || !o->here) /* by a damaged table of groups nobody of it may be there */
        return;
    struct kc_verdict *v = verdict_new(c, most ? KC_HANG_UNDECIDED : KC_HANG_MISSING, most ? past | o->here : past);
    if (!v)
        return;
    const uint32_t stands = kc_first(o->here);
    verdict_operation(c, v, o, stands);
    kc_match_text(o, stands, what, sizeof what);
    kc_ranks_text(past, 0, who, sizeof who);
    verdict_place(v, place, sizeof place);
    if (most)
        snprintf(v->text, sizeof v->text, "%u of %u went past %s of %s, in which %s", kc_bits(o->passed),
                 kc_bits(o->members), what, place, kc_bits(o->here) == 1 ? "one stands" : "others stand");
    else
        snprintf(v->text, sizeof v->text, "%s went past %s of %s: later operations of the group are in its record, this one is not",
                 who, what, place);
    v->victims = (o->open | o->cut) & ~v->ranks;
    verdict_row(v, "%s called %s of %s", kc_ranks_text(o->here, 0, here, sizeof here), what, place);
    for (KC_EACH(r, past)) {
        const struct kc_rank_evidence *k = &c->e->rank[r];
        const struct kc_op_seen *last = k->ops ? &k->op[k->ops - 1] : NULL;
        if (last)
            verdict_row(v, "rank %u is at %s #%" PRIu64 " of group %u instead", (uint32_t)r, kc_primitive_name[last->primitive],
                        last->sequence, last->group);
    }
}

/* ---- messages ---------------------------------------------------------------------------------------------------------- */

/* Does a rank deviate from what its groups do? */
static bool deviates(const struct hang_case *c, uint32_t r)
{
    for (uint32_t i = 0; i < c->m->count; i++) {
        const struct kc_match_op *o = &c->m->op[i];
        uint64_t majority = o->pair ? 0 : kc_match_majority(o);
        if (!o->pair && (o->passed >> r & 1 || (majority && o->here >> r & 1 && !(majority >> r & 1))))
            return true;
    }
    return false;
}

static void untaken(struct hang_case *c, const struct kc_match_op *o, uint32_t r)
{
    const uint32_t peer = kc_first(o->members & ~KC_BIT(r));
    const struct kc_op_seen *mine = o->seen[r], *theirs = o->other[peer];
    const bool sends = mine->primitive == KC_SEND;
    uint64_t guilty = KC_BIT(r) | KC_BIT(peer);
    char what[96], place[64], instead[96] = "went on without it";
    if (guilty & c->blamed)
        return;
    if (deviates(c, r))
        guilty = KC_BIT(r);
    else if (!theirs || deviates(c, peer))
        guilty = KC_BIT(peer); /* the number is missing in its own record */
    struct kc_verdict *v = verdict_new(c, sends ? KC_HANG_UNMATCHED_SEND : KC_HANG_UNMATCHED_RECV, guilty);
    if (!v)
        return;
    verdict_operation(c, v, o, r);
    kc_match_text(o, r, what, sizeof what);
    if (theirs)
        snprintf(instead, sizeof instead, "called %s under that number", kc_primitive_name[theirs->primitive]);
    snprintf(v->text, sizeof v->text, "rank %u stands in %s, %s, and rank %u %s: it will not be %s", r, what,
             verdict_place(v, place, sizeof place), peer, instead, sends ? "taken" : "sent");
    v->victims = KC_BIT(r) & ~guilty;
    verdict_row(v, "rank %u: %s of %s", r, what, place);
    verdict_row(v, "rank %u: %s", peer, instead);
    party_rows(o, v);
}

void differ(struct hang_case *c)
{
    for (uint32_t i = 0; i < c->m->count; i++) {
        const struct kc_match_op *o = &c->m->op[i];
        for (KC_EACH(r, o->pair ? (o->open | o->cut) & o->here : 0))
            if (o->seen[r] && o->passed & ~KC_BIT(r) && !(c->dead & o->passed))
                untaken(c, o, (uint32_t)r);
    }
    for (uint32_t i = 0; i < c->m->count; i++)
        if (!c->m->op[i].pair)
            went_past(c, &c->m->op[i]);
    for (uint32_t i = 0; i < c->m->count; i++) {
        const struct kc_match_op *o = &c->m->op[i];
        bool ends = o->pair && kc_bits(o->here) == 2 && o->seen[kc_first(o->here)] &&
                    o->seen[kc_first(o->here & (o->here - 1))] &&
                    o->seen[kc_first(o->here)]->primitive == o->seen[kc_first(o->here & (o->here - 1))]->primitive;
        if (!ends) /* two sends are no difference but a circle */
            look_at_signatures(c, o);
    }
}

/* ---- circles ----------------------------------------------------------------------------------------------------------- */

/* The operation in which `r` stands and `peer` is waited for. */
static const struct kc_match_op *between(const struct hang_case *c, uint32_t r, uint32_t peer)
{
    for (uint32_t i = 0; i < c->m->count; i++) {
        const struct kc_match_op *o = &c->m->op[i];
        if ((o->open | o->cut) >> r & 1 && o->members >> peer & 1 && !(o->pair && o->seen[peer] && o->seen[r] &&
            o->seen[peer]->primitive != o->seen[r]->primitive) && (o->pair || (o->absent | o->passed) >> peer & 1))
            return o;
    }
    return NULL;
}

/* Where two groups of the same ranks are entered in two orders, the order of more than half of them is the right one. Returns
 * the ranks to blame. */
static uint64_t in_the_other_order(const struct hang_case *c, uint64_t circle)
{
    const struct kc_match_op *two[2] = {NULL, NULL};
    for (KC_EACH(r, circle)) {
        const struct kc_match_op *o = c->m->in[r] < 0 ? NULL : &c->m->op[c->m->in[r]];
        if (!o || o->pair)
            return circle;
        if (o == two[0] || o == two[1])
            continue;
        if (two[1])
            return circle;
        two[two[0] != NULL] = o;
    }
    for (int i = 0; two[1] && i < 2; i++) {
        const uint64_t both = two[0]->members & two[1]->members, most = two[i]->open & both;
        const uint64_t others = two[1 - i]->open & both & circle;
        if (2 * kc_bits(most) > kc_bits(both) && others)
            return others;
    }
    return circle;
}

/* Do the ranks stand in an operation of a later step than the others do, which they came to after those? Then they are not early,
 * but went past the one that the others stand in. */
static bool a_step_ahead(const struct hang_case *c, uint64_t ranks, uint64_t others)
{
    for (KC_EACH(r, ranks))
        for (KC_EACH(k, others)) {
            const struct kc_match_op *mine = &c->m->op[c->m->in[r]], *theirs = &c->m->op[c->m->in[k]];
            const struct kc_op_seen *a = mine->seen[r], *b = theirs->seen[k];
            if (!a || !b || a->step <= b->step || a->enqueued <= b->enqueued)
                return false;
        }
    return true;
}

static void circle(struct hang_case *c, const struct kc_graph *g, uint64_t ranks)
{
    uint8_t way[KC_RANKS_MAX];
    char text[200] = "", what[96], place[64];
    struct kc_print p = {.out = text, .room = sizeof text};
    bool sends = true, receives = true;
    const uint64_t guilty = in_the_other_order(c, ranks);
    const uint32_t n = kc_graph_round(g, kc_first(guilty), way);
    struct kc_verdict *v = verdict_new(c, KC_HANG_ORDER_INVERSION, guilty);
    if (!v)
        return;
    c->blamed |= ranks; /* one verdict is enough */
    v->victims = (kc_graph_victims(g, way[0]) | ranks) & ~guilty;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t r = way[i], peer = way[(i + 1) % n];
        const struct kc_match_op *o = between(c, r, peer);
        uint8_t primitive = o && o->pair && o->seen[r] ? o->seen[r]->primitive : KC_PRIMITIVES;
        sends &= primitive == KC_SEND;
        receives &= primitive == KC_RECV;
        kc_print(&p, "%u → ", r);
        if (!o)
            continue;
        if (i == 0)
            verdict_operation(c, v, o, r);
        struct kc_verdict at = {0};
        verdict_operation(c, &at, o, r);
        kc_match_text(o, r, what, sizeof what);
        verdict_row(v, "rank %u stands in %s, %s, and waits for rank %u", r, what, verdict_place(&at, place, sizeof place), peer);
    }
    kc_print(&p, "%u", way[0]);
    v->word = sends ? KC_HANG_SEND_SEND : receives ? KC_HANG_UNMATCHED_RECV : KC_HANG_ORDER_INVERSION;
    const bool ahead = guilty != ranks && a_step_ahead(c, guilty, ranks & ~guilty);
    if (ahead)
        v->word = KC_HANG_MISSING;
    if (guilty != ranks)
        verdict_row(v, ahead ? "the other %u stand in a step before"
                             : "%u of the ranks that are in both groups came to them in the other order", kc_bits(ranks & ~guilty));
    snprintf(v->text, sizeof v->text, "%s%sranks wait for each other in a circle: %.120s%s",
             guilty != ranks ? kc_ranks_text(guilty, 0, place, sizeof place) : "",
             ahead ? " went past what the others stand in: " : guilty != ranks ? " came to two groups in another order than the others: " : "",
             text,
             sends ? "; all send, and none receives" : receives ? "; all receive, and none sends" : "");
}

void circles(struct hang_case *c, const struct kc_graph *g)
{
    uint64_t left = g->circles & ~c->blamed;
    while (left) {
        uint64_t ranks = kc_graph_circle(g, kc_first(left));
        left &= ~(ranks | KC_BIT(kc_first(left)));
        circle(c, g, ranks);
    }
}
