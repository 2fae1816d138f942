/* family.c - see family.h. */
#include "family.h"

#include "base/print.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

static uint32_t find_or_add(struct families *f, struct family_key key)
{
    for (uint32_t i = 0; i < f->count; i++)
        if (f->key[i].kind == key.kind && f->key[i].axes == key.axes && f->key[i].a == key.a && f->key[i].b == key.b &&
            !f->key[i].name == !key.name && (!key.name || strcmp(f->key[i].name, key.name) == 0))
            return i;
    f->key[f->count] = key; /* far fewer than FAMILIES_MAX: subsets of four axes, four kinds of pairs, neighbours */
    return f->count++;
}

void kc_families_begin(struct families *f, const struct kc_shard_plan *shard)
{
    *f = (struct families){.shard = shard, .count = 1};
    f->key[FAMILY_WORLD] = (struct family_key){.axes = (1u << KC_AXES) - 1, .name = "world"};
    kc_family_along(f, 1u << KC_DATA);
}

uint32_t kc_family_along(struct families *f, uint32_t axes)
{
    for (int a = 0; a < KC_AXES; a++)
        if (f->shard->axis[a] == 1)
            axes &= ~(1u << a);
    return find_or_add(f, (struct family_key){.axes = axes ? axes : 1u << KC_DATA});
}

uint32_t kc_family_neighbours(struct families *f, uint32_t repeat)
{
    return find_or_add(f, (struct family_key){.kind = FAMILY_NEIGHBOURS, .axes = 1u << KC_TENSOR, .a = repeat});
}

uint32_t kc_family_link(struct families *f, uint32_t from, uint32_t to)
{
    const uint32_t low = from < to ? from : to, high = from < to ? to : from;
    if (high != low + 1)
        return find_or_add(f, (struct family_key){.kind = FAMILY_PAIR, .axes = 1u << KC_PIPELINE, .a = low, .b = high,
                                                  .name = "next.wrap"});
    return find_or_add(f, (struct family_key){.kind = low % 2 ? FAMILY_ODD : FAMILY_EVEN, .axes = 1u << KC_PIPELINE,
                                              .name = low % 2 ? "next.odd" : "next.even"});
}

uint32_t kc_family_ends(struct families *f, uint32_t a, uint32_t b)
{
    return find_or_add(f, (struct family_key){.kind = FAMILY_PAIR, .axes = 1u << KC_PIPELINE, .a = a < b ? a : b,
                                              .b = a < b ? b : a, .name = "ends"});
}

/* ---- writing down ---- */

static uint32_t stride_of(const struct kc_shard_plan *s, int axis)
{
    uint32_t stride = 1;
    for (int a = 0; a < axis; a++)
        stride *= s->axis[a];
    return stride;
}

/* Does a group of the family begin with this rank, its lowest? */
static bool begins(const struct families *f, const struct family_key *k, uint32_t rank)
{
    const struct kc_shard_plan *s = f->shard;
    const uint32_t stage = kc_plan_coordinate(s, rank, KC_PIPELINE);
    if (k->kind == FAMILY_NEIGHBOURS)
        return kc_plan_coordinate(s, rank, KC_TENSOR) % k->a == 0;
    if (k->kind == FAMILY_PAIR)
        return stage == k->a;
    if (k->kind != FAMILY_LINE)
        return stage % 2 == (k->kind == FAMILY_ODD) && stage + 1 < s->axis[KC_PIPELINE];
    for (int a = 0; a < KC_AXES; a++)
        if (k->axes >> a & 1 && kc_plan_coordinate(s, rank, (enum kc_axis)a))
            return false;
    return true;
}

static uint32_t members(const struct families *f, const struct family_key *k)
{
    uint32_t n = 1;
    if (k->kind != FAMILY_LINE)
        return k->kind == FAMILY_NEIGHBOURS ? k->a : 2;
    for (int a = 0; a < KC_AXES; a++)
        n *= k->axes >> a & 1 ? f->shard->axis[a] : 1;
    return n;
}

/* Member i of the group that begins with `rank`. */
static uint32_t member(const struct families *f, const struct family_key *k, uint32_t rank, uint32_t i)
{
    const struct kc_shard_plan *s = f->shard;
    if (k->kind == FAMILY_PAIR)
        return rank + i * (k->b - k->a) * stride_of(s, KC_PIPELINE);
    if (k->kind != FAMILY_LINE)
        return rank + i * stride_of(s, k->kind == FAMILY_NEIGHBOURS ? KC_TENSOR : KC_PIPELINE);
    for (int a = 0; a < KC_AXES; a++)
        if (k->axes >> a & 1) {
            rank += i % s->axis[a] * stride_of(s, a);
            i /= s->axis[a];
        }
    return rank;
}

static void key_name(const struct family_key *k, char *out, size_t room)
{
    struct kc_print p = {.out = out, .room = room};
    out[0] = 0;
    if (k->name)
        kc_print(&p, "%s", k->name);
    else if (k->kind == FAMILY_NEIGHBOURS)
        kc_print(&p, "%s/%u", kc_axis_name[KC_TENSOR], k->a);
    else
        for (int a = KC_AXES; a-- > 0;)
            if (k->axes >> a & 1)
                kc_print(&p, "%s%s", p.length ? "+" : "", kc_axis_name[a]);
}

static int group_write(const struct families *f, struct kc_arena *arena, struct kc_plan_group *g, uint32_t family,
                       uint32_t first, uint32_t number)
{
    const struct family_key *k = &f->key[family];
    char name[96], full[112];
    key_name(k, name, sizeof name);
    struct kc_print p = {.out = full, .room = sizeof full};
    kc_print(&p, family == FAMILY_WORLD ? "%s" : "%s.%u", name, number);
    g->name = kc_contract_text(arena, full);
    g->family = family;
    uint32_t *ranks = kc_contract_array(arena, &g->ranks, members(f, k), sizeof *ranks);
    for (uint32_t i = 0; ranks && i < g->ranks.count; i++)
        ranks[i] = member(f, k, first, i);
    return ranks ? 0 : -ENOSPC;
}

static int members_write(struct kc_comm_plan *plan, const struct kc_plan_group *groups, struct kc_arena *arena)
{
    const size_t all = (size_t)plan->families.count * plan->ranks;
    uint32_t *of = kc_contract_array(arena, &plan->members, all, sizeof *of);
    if (!of)
        return -ENOSPC;
    for (size_t i = 0; i < all; i++)
        of[i] = KC_NOT_MEMBER;
    for (uint32_t g = 0; g < plan->groups.count; g++)
        for (uint32_t i = 0; i < groups[g].ranks.count; i++)
            of[(size_t)groups[g].family * plan->ranks + KC_AT(plan, uint32_t, groups[g].ranks)[i]] = g;
    return 0;
}

int kc_families_write(const struct families *f, struct kc_arena *arena, struct kc_comm_plan *plan)
{
    const uint32_t ranks = f->shard->ranks;
    uint32_t all = 0, n = 0;
    for (uint32_t k = 0; k < f->count; k++)
        for (uint32_t r = 0; r < ranks; r++)
            all += begins(f, &f->key[k], r);
    plan->ranks = ranks;
    struct kc_plan_family *families = kc_contract_array(arena, &plan->families, f->count, sizeof *families);
    struct kc_plan_group *groups = kc_contract_array(arena, &plan->groups, all, sizeof *groups);
    if (!families || !groups)
        return -ENOSPC;
    for (uint32_t k = 0; k < f->count; k++) {
        char name[96];
        key_name(&f->key[k], name, sizeof name);
        families[k] = (struct kc_plan_family){
            .name = kc_contract_text(arena, name), .axes = f->key[k].axes, .groups_first = n};
        for (uint32_t r = 0; r < ranks; r++)
            if (begins(f, &f->key[k], r) && group_write(f, arena, &groups[n++], k, r, families[k].groups_count++) < 0)
                return -ENOSPC;
    }
    return members_write(plan, groups, arena);
}
