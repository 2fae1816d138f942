/* group.c - makes groups: checks who is in them, and lays the channels over the windows. */
#include "group.h"

#include "op.h"

#include <errno.h>

static int check_config(const struct kc_transport *t, const struct kc_group_config *c, uint32_t *position,
                        struct kc_error *e)
{
    if (c->slot >= t->slots)
        return kc_fail(e, -EINVAL, "group %u: slot %u, but the windows have room for %u groups", c->id, c->slot,
                       t->slots);
    if (c->count < 1 || c->count > t->ranks || !c->ranks)
        return kc_fail(e, -EINVAL, "group %u: %u members of %u ranks", c->id, c->count, t->ranks);
    bool found = false;
    for (uint32_t i = 0; i < c->count; i++) {
        if (c->ranks[i] >= t->ranks || (i > 0 && c->ranks[i] <= c->ranks[i - 1]))
            return kc_fail(e, -EINVAL, "group %u: member %u is rank %u; ranks must be ascending and below %u", c->id,
                           i, c->ranks[i], t->ranks);
        if (c->ranks[i] == t->rank) {
            *position = i;
            found = true;
        }
    }
    if (!found)
        return kc_fail(e, -EINVAL, "group %u does not contain rank %u, which makes it", c->id, t->rank);
    if (t->slot[c->slot])
        return kc_fail(e, -EBUSY, "group %u: slot %u served another group of this transport", c->id, c->slot);
    return 0;
}

static struct channel *channel_new(struct kc_transport *t, const struct kc_group *g, uint32_t members, uint32_t self)
{
    struct channel *c = calloc(1, sizeof *c + members * sizeof c->member[0]);
    if (c) {
        c->transport = t;
        c->group = g;
        c->members = members;
        c->self = self;
    }
    return c;
}

static struct channel *collectives_new(struct kc_transport *t, const struct kc_group *g)
{
    struct channel *c = channel_new(t, g, g->count, g->position);
    if (!c)
        return NULL;
    c->chunk = window_chunk(t->ranks);
    c->reach = true;
    for (uint32_t i = 0; i < g->count; i++) {
        uint32_t rank = g->ranks[i];
        c->reach &= t->reach >> rank & 1;
        void *window = t->peer[rank].window;
        c->member[i] = (struct member){.rank = rank,
                                       .cell = window_cell(window, t->ranks, g->slot),
                                       .counts = window_counts(window, t->ranks, g->slot),
                                       .staging = window_staging(window, t->ranks, t->slots, g->slot)};
    }
    return c;
}

/* The channel on which the member at position `from` sends to that at `to`; we are one of them. */
static struct channel *pair_new(struct kc_transport *t, const struct kc_group *g, uint32_t from, uint32_t to)
{
    struct channel *c = channel_new(t, g, 2, g->position == from ? 0 : 1);
    if (!c)
        return NULL;
    uint32_t sender = g->ranks[from], receiver = g->ranks[to];
    void *sends = t->peer[sender].window, *receives = t->peer[receiver].window;
    c->pair = true;
    c->reach = t->reach >> sender & t->reach >> receiver & 1;
    c->chunk = window_pair_chunk(t->ranks);
    c->member[0] = (struct member){.rank = sender,
                                   .cell = window_send_cell(sends, t->ranks, g->slot, receiver),
                                   .staging = window_pair_staging(sends, t->ranks, t->slots, g->slot, receiver)};
    c->member[1] = (struct member){.rank = receiver,
                                   .cell = window_receive_cell(receives, t->ranks, g->slot, sender)};
    return c;
}

static void slot_free(struct slot *s)
{
    if (!s)
        return;
    op_free_queue(s->collectives);
    for (uint32_t i = 0; i < KC_RANKS_MAX; i++) {
        op_free_queue(s->send[i]);
        op_free_queue(s->receive[i]);
        free(s->send[i]);
        free(s->receive[i]);
    }
    free(s->collectives);
    op_free_spare(s);
    free(s);
}

static struct slot *slot_new(struct kc_transport *t, const struct kc_group *g)
{
    struct slot *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    bool whole = (s->collectives = collectives_new(t, g)) != NULL;
    for (uint32_t i = 0; whole && i < g->count; i++) {
        if (i == g->position)
            continue;
        s->send[i] = pair_new(t, g, g->position, i);
        s->receive[i] = pair_new(t, g, i, g->position);
        whole = s->send[i] && s->receive[i];
    }
    if (!whole) {
        slot_free(s);
        return NULL;
    }
    return s;
}

int kc_group_new(struct kc_transport *t, const struct kc_group_config *config, struct kc_group **out,
                 struct kc_error *e)
{
    uint32_t position = 0;
    int code = check_config(t, config, &position, e);
    if (code)
        return code;
    uint8_t ranks[KC_RANKS_MAX] = {0};
    for (uint32_t i = 0; i < config->count; i++)
        ranks[i] = (uint8_t)config->ranks[i];
    struct kc_group *g = malloc(sizeof *g);
    if (!g)
        return kc_fail(e, -ENOMEM, "group %u: no memory", config->id);
    /* Every member is const, so that nothing can be kept in a group later: it is filled once, as bytes. */
    struct kc_group whole = {.transport = t, .id = config->id, .slot = config->slot, .count = config->count,
                             .position = position};
    memcpy(g, &whole, sizeof whole);
    memcpy((uint8_t *)g + offsetof(struct kc_group, ranks), ranks, sizeof ranks);
    struct slot *s = slot_new(t, g);
    if (!s) {
        free(g);
        return kc_fail(e, -ENOMEM, "group %u: no memory", config->id);
    }
    t->slot[config->slot] = s;
    *out = g;
    return 0;
}

struct kc_group *kc_group_free(struct kc_group *g)
{
    free(g);
    return NULL;
}

void group_free_slots(struct kc_transport *t)
{
    for (uint32_t i = 0; i < t->slots; i++)
        slot_free(t->slot[i]);
}

uint32_t kc_group_id(const struct kc_group *g)
{
    return g->id;
}

uint32_t kc_group_count(const struct kc_group *g)
{
    return g->count;
}

uint32_t kc_group_position(const struct kc_group *g)
{
    return g->position;
}
