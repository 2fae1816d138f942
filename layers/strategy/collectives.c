/* collectives.c - see collectives.h. No primitive is chosen here by hand: gradients come out of the graph as they do,
 * the optimizer states what it needs, and the conversion table (placement.h) names the primitive. */
#include "collectives.h"

#include "costs.h"
#include "placement.h"

#include <errno.h>
#include <stdio.h>

struct build {
    const struct kc_job_spec *spec;
    const struct kc_shard_plan *shard;
    const struct kc_device_view *devices;
    const struct kc_comm_costs *costs;
    struct kc_comm_plan *plan;
    struct kc_plan_family *families;        /* enum family */
    struct kc_plan_group *groups;
    struct kc_plan_collective *collectives; /* NULL: only counted */
    uint32_t count;
};

struct kc_placement kc_collectives_update_place(const struct kc_shard_plan *shard)
{
    return shard->zero ? place_sharded(KC_FLAT) : place_replicated();
}

static int full(const struct kc_arena *arena, struct kc_error *e)
{
    return kc_fail(e, -ENOSPC, "the communication plan needs more than %zu bytes", arena->size);
}

static int group_fill(struct kc_arena *arena, struct kc_plan_group *g, const char *name, uint32_t family,
                      uint32_t first, uint32_t stride, uint32_t count)
{
    g->name = kc_contract_text(arena, name);
    g->family = family;
    uint32_t *ranks = kc_contract_array(arena, &g->ranks, count, sizeof *ranks);
    for (uint32_t i = 0; ranks && i < count; i++)
        ranks[i] = first + i * stride;
    return ranks ? 0 : -ENOSPC;
}

enum { FAMILY_WORLD, FAMILY_DATA, FAMILIES };

static int members_fill(struct build *b, struct kc_arena *arena)
{
    const uint32_t ranks = b->shard->ranks;
    uint32_t *members = kc_contract_array(arena, &b->plan->members, (size_t)FAMILIES * ranks, sizeof *members);
    b->plan->ranks = ranks;
    for (uint32_t i = 0; members && i < FAMILIES * ranks; i++)
        members[i] = KC_NOT_MEMBER;
    for (uint32_t g = 0; members && g < b->plan->groups.count; g++)
        for (uint32_t i = 0; i < b->groups[g].ranks.count; i++)
            members[b->groups[g].family * ranks + KC_AT(b->plan, uint32_t, b->groups[g].ranks)[i]] = g;
    return members ? 0 : -ENOSPC;
}

/* The world, and every line of ranks along the data axis. */
static int groups_build(struct build *b, struct kc_arena *arena, struct kc_error *e)
{
    const struct kc_shard_plan *s = b->shard;
    uint32_t size = s->axis[KC_DATA], stride = 1, lines = s->ranks / size, line = 0;
    for (int a = 0; a < KC_DATA; a++)
        stride *= s->axis[a];
    b->families = kc_contract_array(arena, &b->plan->families, FAMILIES, sizeof *b->families);
    b->groups = kc_contract_array(arena, &b->plan->groups, 1 + lines, sizeof *b->groups);
    if (!b->families || !b->groups || group_fill(arena, &b->groups[0], "world", FAMILY_WORLD, 0, 1, s->ranks) < 0)
        return full(arena, e);
    b->families[FAMILY_WORLD] = (struct kc_plan_family){
        .name = kc_contract_text(arena, "world"), .axes = (1u << KC_AXES) - 1, .groups_count = 1};
    b->families[FAMILY_DATA] = (struct kc_plan_family){.name = kc_contract_text(arena, kc_axis_name[KC_DATA]),
                                                       .axes = 1u << KC_DATA,
                                                       .groups_first = 1,
                                                       .groups_count = lines};
    for (uint32_t rank = 0; rank < s->ranks; rank++) {
        if (kc_plan_coordinate(s, rank, KC_DATA) != 0)
            continue;
        char name[32];
        snprintf(name, sizeof name, "%s.%u", kc_axis_name[KC_DATA], line++);
        if (group_fill(arena, &b->groups[line], name, FAMILY_DATA, rank, stride, size) < 0)
            return full(arena, e);
    }
    return members_fill(b, arena) < 0 ? full(arena, e) : 0;
}

static void add(struct build *b, enum kc_purpose purpose, struct kc_conversion how, enum kc_type type, uint32_t family,
                int32_t bucket, uint64_t count)
{
    uint32_t i = b->count++;
    if (!b->collectives)
        return;
    const struct kc_span ranks = b->groups[b->families[family].groups_first].ranks;
    const uint32_t named = b->spec->algorithm[how.primitive];
    enum kc_distance distance = kc_costs_distance(b->devices, KC_AT(b->plan, uint32_t, ranks), ranks.count);
    uint64_t bytes = count * kc_type_bytes[type] * (how.primitive == KC_ALL_GATHER ? ranks.count : 1);
    struct kc_plan_collective *c = &b->collectives[i];
    c->primitive = how.primitive, c->type = (uint8_t)type, c->reduce = how.reduce, c->purpose = (uint8_t)purpose;
    c->algorithm = (uint8_t)(named != KC_CHOICE_AUTO ? named - 1 /* as the rows of the two enums stand */
                                                     : kc_costs_algorithm(b->costs, (enum kc_primitive)how.primitive,
                                                                          distance, ranks.count, bytes));
    c->family = family, c->bucket = bucket, c->count = count;
}

/* Where a bucket's gradients come out of backward; all of them alike. */
static int bucket_place(const struct kc_shard_plan *s, uint32_t bucket, struct kc_placement *out, struct kc_error *e)
{
    const struct kc_plan_tensor *tensors = KC_AT(s, struct kc_plan_tensor, s->tensors);
    const struct kc_plan_tensor *first = NULL;
    for (uint32_t t = 0; t < s->tensors.count; t++) {
        if (tensors[t].role != KC_GRADIENT || tensors[t].bucket != (int32_t)bucket)
            continue;
        if (!first)
            first = &tensors[t];
        if (!kc_placement_equal(first->place[KC_DATA], tensors[t].place[KC_DATA])) {
            char a[32], b[32];
            kc_placement_text(first->place[KC_DATA], a);
            kc_placement_text(tensors[t].place[KC_DATA], b);
            return kc_fail(e, -ENOTSUP,
                           "bucket %u: %s is %s and %s is %s on axis %s; one reduction cannot serve both", bucket,
                           KC_TEXT(s, first->name), a, KC_TEXT(s, tensors[t].name), b, kc_axis_name[KC_DATA]);
        }
    }
    *out = first->place[KC_DATA];
    return 0;
}

/* One conversion of every bucket, in the order in which backward completes them. */
static int buckets_convert(struct build *b, enum kc_purpose purpose, struct kc_error *e)
{
    const struct kc_shard_plan *s = b->shard;
    const struct kc_plan_bucket *buckets = KC_AT(s, struct kc_plan_bucket, s->buckets);
    for (uint32_t k = 0; k < s->buckets.count; k++) {
        struct kc_placement from = kc_collectives_update_place(s), to = place_replicated();
        if (purpose == KC_PURPOSE_GRADIENT) {
            to = from;
            int r = bucket_place(s, k, &from, e);
            if (r < 0)
                return r;
        }
        struct kc_conversion how = kc_placement_convert(from, to);
        if (how.kind == CONVERT_IMPOSSIBLE)
            return kc_fail(e, -ENOTSUP, "bucket %u: %s needs a conversion that no single primitive does", k,
                           kc_purpose_name[purpose]);
        if (how.kind != CONVERT_PRIMITIVE)
            continue;
        uint64_t count = how.primitive == KC_ALL_GATHER ? buckets[k].shard : buckets[k].count;
        enum kc_type type =
            kc_bucket_type(&buckets[k], purpose == KC_PURPOSE_GRADIENT ? KC_STATE_GRADIENT : KC_STATE_PARAMETER);
        add(b, purpose, how, type, FAMILY_DATA, (int32_t)k, count);
    }
    return 0;
}

static int collectives_list(struct build *b, struct kc_error *e)
{
    const struct kc_plan_tensor *tensors = KC_AT(b->shard, struct kc_plan_tensor, b->shard->tensors);
    const struct kc_conversion sum = kc_placement_convert(place_partial(KC_SUM), place_replicated());
    const struct kc_conversion gather = kc_placement_convert(place_sharded(KC_FLAT), place_replicated());
    uint32_t parameters = 0;
    for (uint32_t t = 0; t < b->shard->tensors.count; t++)
        parameters += tensors[t].role == KC_PARAMETER;

    b->count = 0;
    int r = buckets_convert(b, KC_PURPOSE_GRADIENT, e);
    if (r < 0)
        return r;
    add(b, KC_PURPOSE_AGREE, sum, KC_F64, FAMILY_WORLD, -1, KC_AGREES);
    if ((r = buckets_convert(b, KC_PURPOSE_PARAMETER, e)) < 0)
        return r;
    add(b, KC_PURPOSE_DIGEST, gather, KC_U64, FAMILY_WORLD, -1, KC_DIGESTS);
    add(b, KC_PURPOSE_ROOT, sum, KC_U64, FAMILY_WORLD, -1, KC_STORE_COUNT(parameters));
    add(b, KC_PURPOSE_STORE, sum, KC_U64, FAMILY_WORLD, -1, 2);
    return 0;
}

int kc_collectives_build(const struct kc_job_spec *spec, const struct kc_shard_plan *shard,
                         const struct kc_device_view *devices, const struct kc_comm_costs *costs,
                         struct kc_arena *arena, struct kc_comm_plan **out, struct kc_error *e)
{
    struct build b = {.spec = spec, .shard = shard, .devices = devices, .costs = costs};
    b.plan = kc_contract_begin(arena, KC_CONTRACT_COMM_PLAN, KC_COMM_PLAN_VERSION, sizeof *b.plan);
    if (!b.plan)
        return full(arena, e);
    int r = groups_build(&b, arena, e);
    if (r < 0 || (r = collectives_list(&b, e)) < 0)
        return r;
    b.collectives = kc_contract_array(arena, &b.plan->collectives, b.count, sizeof *b.collectives);
    if (!b.collectives)
        return full(arena, e);
    if ((r = collectives_list(&b, e)) < 0)
        return r;
    *out = b.plan;
    return 0;
}
