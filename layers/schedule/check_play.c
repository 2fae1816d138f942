/* check_play.c - all ranks at once. Computes complete by themselves; a collective completes when every member stands
 * at it; sends rendezvous with their receive. What cannot go on is told as a chain of who waits for whom. */
#include "check.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct kc_plan_collective *collective_of(const struct kc_comm_plan *comm,
                                                      const struct kc_exec_instruction *i)
{
    return KC_AT(comm, struct kc_plan_collective, comm->collectives) + i->collective;
}

static bool is_pair(const struct kc_plan_collective *c)
{
    return c->primitive == KC_SEND || c->primitive == KC_RECV;
}

/* Do two calls of one group belong together? A send meets a receive of the same size, everything else itself. */
static bool belong(const struct kc_comm_plan *comm, const struct kc_exec_instruction *a,
                   const struct kc_exec_instruction *b)
{
    const struct kc_plan_collective *x = collective_of(comm, a), *y = collective_of(comm, b);
    if (is_pair(x) || is_pair(y))
        return is_pair(x) && is_pair(y) && x->primitive != y->primitive && x->type == y->type &&
               x->count == y->count && a->micro == b->micro;
    return a->collective == b->collective && a->sequence == b->sequence;
}

static void call_text(const struct kc_comm_plan *comm, const struct kc_exec_instruction *i, char out[120])
{
    if (!i) {
        snprintf(out, 120, "nothing more");
        return;
    }
    const struct kc_plan_collective *c = collective_of(comm, i);
    if (is_pair(c) || i->op >= 0)
        snprintf(out, 120, "%s of %llu %s (%s, micro-batch %u)", kc_primitive_name[c->primitive],
                 (unsigned long long)c->count, kc_type_name[c->type], kc_purpose_name[c->purpose], i->micro);
    else
        snprintf(out, 120, "%s of %llu %s (%s, bucket %d)", kc_primitive_name[c->primitive],
                 (unsigned long long)c->count, kc_type_name[c->type], kc_purpose_name[c->purpose], c->bucket);
}

/* ---- order ---- */

static const struct kc_exec_instruction *next_in_family(const struct kc_exec_plan *p, enum kc_program_id program,
                                                        const struct kc_comm_plan *comm, uint32_t family, uint32_t *at)
{
    const struct kc_exec_instruction *ins = kc_program_at(p, program);
    while (*at < p->programs[program].count) {
        const struct kc_exec_instruction *i = &ins[(*at)++];
        if (i->kind == KC_I_COLLECTIVE && collective_of(comm, i)->family == family)
            return i;
    }
    return NULL;
}

/* Pairs of programs whose calls in a family were compared: of ranks that share programs each pair is looked at once. */
struct compared {
    uint64_t *slot; /* 0 free */
    size_t slots, used;
};

/* Was the pair there already? Puts it in. -ENOMEM. */
static int compared_add(struct compared *c, uint32_t a, uint32_t b, uint32_t family)
{
    const uint64_t key = 1 + ((uint64_t)family << 40 | (uint64_t)a << 20 | b);
    if (2 * c->used >= c->slots) {
        struct compared more = {.slots = c->slots ? 2 * c->slots : 1024};
        more.slot = calloc(more.slots, sizeof *more.slot);
        if (!more.slot)
            return -ENOMEM;
        for (size_t i = 0; i < c->slots; i++)
            if (c->slot[i])
                compared_add(&more, (uint32_t)((c->slot[i] - 1) >> 20 & 0xfffff), (uint32_t)((c->slot[i] - 1) & 0xfffff),
                             (uint32_t)((c->slot[i] - 1) >> 40));
        free(c->slot);
        *c = more;
    }
    for (size_t at = key * UINT64_C(0x9e3779b97f4a7c15) >> 32 & (c->slots - 1);; at = (at + 1) & (c->slots - 1)) {
        if (c->slot[at] == key)
            return 1;
        if (c->slot[at])
            continue;
        c->slot[at] = key;
        c->used++;
        return 0;
    }
}

static int group_order(const struct kc_exec_plan *const *plans, const struct kc_comm_plan *comm, uint32_t group,
                       enum kc_program_id program, struct compared *known, struct kc_error *e)
{
    const struct kc_plan_group *g = KC_AT(comm, struct kc_plan_group, comm->groups) + group;
    const uint32_t *ranks = KC_AT(comm, uint32_t, g->ranks);
    for (uint32_t m = 1; m < g->ranks.count; m++) {
        uint32_t at[2] = {0, 0}, position = 0;
        const int seen = compared_add(known, plans[ranks[0]]->rank, plans[ranks[m]]->rank, g->family);
        if (seen < 0)
            return kc_fail(e, seen, "no memory to compare programs");
        for (; !seen; position++) {
            const struct kc_exec_instruction *a = next_in_family(plans[ranks[0]], program, comm, g->family, &at[0]);
            const struct kc_exec_instruction *b = next_in_family(plans[ranks[m]], program, comm, g->family, &at[1]);
            if (!a && !b)
                break;
            /* whether sends meet their receives is for the play to say: it can name a cycle */
            if (a && b &&
                (belong(comm, a, b) || (is_pair(collective_of(comm, a)) && is_pair(collective_of(comm, b)))))
                continue;
            char x[120], y[120];
            call_text(comm, a, x);
            call_text(comm, b, y);
            return kc_fail(e, -EPROTO, "group %s, position %u: rank %u has %s, rank %u has %s",
                           KC_TEXT(comm, g->name), position, ranks[0], x, ranks[m], y);
        }
    }
    return 0;
}

int kc_check_order(const struct kc_exec_plan *const *plans, uint32_t ranks, const struct kc_comm_plan *comm,
                   enum kc_program_id program, struct kc_error *e)
{
    struct compared known = {0};
    int r = 0;
    (void)ranks;
    for (uint32_t g = 0; r == 0 && g < comm->groups.count; g++)
        r = group_order(plans, comm, g, program, &known, e);
    free(known.slot);
    return r;
}

/* ---- play ---- */

struct player {
    const struct kc_exec_plan *plan;
    uint32_t at[KC_LANES]; /* the instruction a lane stands at; count: at its end */
    bool standing;         /* its comm lane has arrived at a collective */
    bool told;             /* it stands in the line that says why nobody goes on */
};

struct play {
    struct player *players;
    uint32_t ranks;
    const struct kc_comm_plan *comm;
    enum kc_program_id program;
    uint32_t *arrived; /* by group */
};

static const struct kc_exec_instruction *stands_at(const struct play *y, uint32_t rank, int lane)
{
    const struct player *p = &y->players[rank];
    return p->at[lane] < p->plan->programs[y->program].count ? kc_program_at(p->plan, y->program) + p->at[lane]
                                                             : NULL;
}

/* Move a lane's position over the instructions of the other lane. */
static void skip(const struct play *y, uint32_t rank, int lane)
{
    struct player *p = &y->players[rank];
    const struct kc_exec_instruction *i;
    while ((i = stands_at(y, rank, lane)) && i->lane != lane)
        p->at[lane]++;
}

static bool waits_over(const struct play *y, uint32_t rank, const struct kc_exec_instruction *i, uint32_t *on)
{
    const struct player *p = &y->players[rank];
    for (uint32_t w = 0; w < i->wait_count; w++) {
        *on = KC_AT(p->plan, uint32_t, p->plan->waits)[i->waits + w];
        if (p->at[1 - i->lane] <= *on)
            return false;
    }
    return true;
}

static void complete(struct play *y, uint32_t rank, int lane)
{
    y->players[rank].at[lane]++;
    y->players[rank].standing &= lane != KC_LANE_COMM;
    skip(y, rank, lane);
}

/* All members of the group stand in it: let them through, or say what does not fit. 1 went on, 0 a send met a send.
 */
static int meet(struct play *y, uint32_t group, struct kc_error *e)
{
    const struct kc_plan_group *g = KC_AT(y->comm, struct kc_plan_group, y->comm->groups) + group;
    const uint32_t *ranks = KC_AT(y->comm, uint32_t, g->ranks);
    const struct kc_exec_instruction *first = stands_at(y, ranks[0], KC_LANE_COMM);
    for (uint32_t m = 1; m < g->ranks.count; m++) {
        const struct kc_exec_instruction *other = stands_at(y, ranks[m], KC_LANE_COMM);
        if (belong(y->comm, first, other))
            continue;
        const struct kc_plan_collective *a = collective_of(y->comm, first), *b = collective_of(y->comm, other);
        if (is_pair(a) && is_pair(b) && a->primitive == b->primitive)
            return 0;
        char x[120], z[120];
        call_text(y->comm, first, x);
        call_text(y->comm, other, z);
        return kc_fail(e, -EPROTO, "group %s: rank %u calls %s, rank %u calls %s", KC_TEXT(y->comm, g->name),
                       ranks[0], x, ranks[m], z);
    }
    y->arrived[group] = 0;
    for (uint32_t m = 0; m < g->ranks.count; m++)
        complete(y, ranks[m], KC_LANE_COMM);
    return 1;
}

/* Let one rank go as far as it can. 1 it moved, 0 not, or an error. */
static int advance(struct play *y, uint32_t rank, struct kc_error *e)
{
    int moved = 0;
    uint32_t on;
    const struct kc_exec_instruction *i;
    while ((i = stands_at(y, rank, KC_LANE_COMPUTE)) && waits_over(y, rank, i, &on)) {
        complete(y, rank, KC_LANE_COMPUTE);
        moved = 1;
    }
    i = stands_at(y, rank, KC_LANE_COMM);
    if (!i || y->players[rank].standing || !waits_over(y, rank, i, &on))
        return moved;
    y->players[rank].standing = true;
    uint32_t group = kc_comm_group_of(y->comm, collective_of(y->comm, i)->family, rank);
    if (++y->arrived[group] < KC_AT(y->comm, struct kc_plan_group, y->comm->groups)[group].ranks.count)
        return moved;
    int r = meet(y, group, e);
    return r < 0 ? r : r | moved;
}

/* Why a rank does not go on, and the rank it waits for (itself: nobody else's fault). */
static uint32_t blame(const struct play *y, uint32_t rank, char *out, size_t room)
{
    const struct kc_exec_instruction *comm = stands_at(y, rank, KC_LANE_COMM),
                                     *compute = stands_at(y, rank, KC_LANE_COMPUTE);
    char text[128];
    uint32_t on = 0;
    if (!comm && !compute) {
        snprintf(out, room, "rank %u is at its end", rank);
        return rank;
    }
    if (!y->players[rank].standing) {
        const struct kc_exec_instruction *i = comm ? comm : compute;
        waits_over(y, rank, i, &on);
        snprintf(out, room, "rank %u waits in #%u for its own #%u", rank, y->players[rank].at[i->lane], on);
        return rank;
    }
    const struct kc_plan_collective *c = collective_of(y->comm, comm);
    const struct kc_plan_group *g = KC_AT(y->comm, struct kc_plan_group, y->comm->groups) + kc_comm_group_of(y->comm, c->family, rank);
    const uint32_t *ranks = KC_AT(y->comm, uint32_t, g->ranks);
    uint32_t missing = ranks[0] == rank ? ranks[g->ranks.count - 1] : ranks[0]; /* a send that met a send */
    for (uint32_t m = g->ranks.count; m-- > 0;) {
        const struct kc_exec_instruction *there = stands_at(y, ranks[m], KC_LANE_COMM);
        if (!y->players[ranks[m]].standing || collective_of(y->comm, there)->family != c->family)
            missing = ranks[m];
    }
    snprintf(out, room, "rank %u stands in %s on group %s and waits for rank %u", rank,
             kc_instruction_text(y->players[rank].plan, y->program, y->players[rank].at[KC_LANE_COMM], y->comm, text,
                                 sizeof text),
             KC_TEXT(y->comm, g->name), missing);
    return missing;
}

static int explain(const struct play *y, struct kc_error *e)
{
    uint32_t rank = 0;
    while (rank + 1 < y->ranks && !stands_at(y, rank, KC_LANE_COMM) && !stands_at(y, rank, KC_LANE_COMPUTE))
        rank++;
    char text[KC_ERROR_TEXT], one[256];
    size_t length = 0;
    text[0] = 0;
    for (;;) {
        y->players[rank].told = true;
        uint32_t next = blame(y, rank, one, sizeof one);
        if (length < sizeof text)
            length += (size_t)snprintf(text + length, sizeof text - length, "%s%s", length ? "; " : "", one);
        if (next == rank)
            return kc_fail(e, -EDEADLK, "no progress: %s", text);
        if (y->players[next].told)
            return kc_fail(e, -EDEADLK, "a cycle: %s", text);
        rank = next;
    }
}

static int play_to_the_end(struct play *y, struct kc_error *e)
{
    for (uint32_t r = 0; r < y->ranks; r++)
        for (int l = 0; l < KC_LANES; l++)
            skip(y, r, l);
    for (bool moved = true; moved;) {
        moved = false;
        for (uint32_t r = 0; r < y->ranks; r++) {
            int m = advance(y, r, e);
            if (m < 0)
                return m;
            moved |= m > 0;
        }
    }
    for (uint32_t r = 0; r < y->ranks; r++)
        if (stands_at(y, r, KC_LANE_COMM) || stands_at(y, r, KC_LANE_COMPUTE))
            return explain(y, e);
    return 0;
}

int kc_check_play(const struct kc_exec_plan *const *plans, uint32_t ranks, const struct kc_comm_plan *comm,
                  enum kc_program_id program, struct kc_error *e)
{
    struct play y = {.ranks = ranks, .comm = comm, .program = program};
    y.players = calloc(ranks, sizeof *y.players);
    y.arrived = calloc(comm->groups.count + 1u, sizeof *y.arrived);
    int r;
    if (!y.players || !y.arrived) {
        r = kc_fail(e, -ENOMEM, "no memory to play %u ranks", ranks);
    } else {
        for (uint32_t i = 0; i < ranks; i++)
            y.players[i].plan = plans[i];
        r = play_to_the_end(&y, e);
    }
    free(y.players);
    free(y.arrived);
    return r;
}
