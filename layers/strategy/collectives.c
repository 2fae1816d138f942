/* collectives.c - see collectives.h. No primitive is chosen here by hand: gradients come out of the graph as they do,
 * the optimizer states what it needs, and the conversion table (placement.h) names the primitive. */
#include "collectives.h"

#include "bucket.h"
#include "costs.h"
#include "family.h"
#include "placement.h"

#include <errno.h>

struct build {
    const struct kc_job_spec *spec;
    const struct kc_shard_plan *shard;
    const struct kc_made *made;
    const struct kc_device_view *devices;
    const struct kc_comm_costs *costs;
    struct families families;
    struct kc_comm_plan *plan;
    struct kc_plan_collective *collectives; /* NULL: only counted, and families asked for */
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

static struct kc_plan_collective *add(struct build *b, enum kc_purpose purpose, struct kc_conversion how, enum kc_type type,
                                      uint32_t family, int32_t bucket, uint64_t count)
{
    uint32_t i = b->count++;
    if (!b->collectives)
        return NULL;
    const struct kc_plan_family *f = KC_AT(b->plan, struct kc_plan_family, b->plan->families) + family;
    const struct kc_span ranks = KC_AT(b->plan, struct kc_plan_group, b->plan->groups)[f->groups_first].ranks;
    const uint32_t named = b->spec->algorithm[how.primitive];
    enum kc_distance distance = kc_costs_distance(b->devices, KC_AT(b->plan, uint32_t, ranks), ranks.count);
    uint64_t bytes = count * kc_type_bytes[type] * (how.primitive == KC_ALL_GATHER ? ranks.count : 1);
    struct kc_plan_collective *c = &b->collectives[i];
    c->primitive = how.primitive, c->type = (uint8_t)type, c->reduce = how.reduce, c->purpose = (uint8_t)purpose;
    c->algorithm = (uint8_t)(named != KC_CHOICE_AUTO ? named - 1 /* as the rows of the two enums stand */
                                                     : kc_costs_algorithm(b->costs, (enum kc_primitive)how.primitive,
                                                                          distance, ranks.count, bytes));
    c->family = family, c->bucket = bucket, c->count = count;
    return c;
}

/* What ops of the plan call, in the order of their indices. */
static void activations(struct build *b)
{
    for (uint32_t i = 0; i < b->made->collective_count; i++) {
        const struct kc_made_collective *m = &b->made->collectives[i];
        const struct kc_conversion how = {.kind = CONVERT_PRIMITIVE, .primitive = m->primitive, .reduce = m->reduce};
        struct kc_plan_collective *c = add(b, (enum kc_purpose)m->purpose, how, (enum kc_type)m->type,
                                           kc_family_along(&b->families, 1u << m->axis), -1, m->count);
        if (c)
            c->shift = m->shift, c->counted = m->counted;
    }
}

/* What goes from stage to stage: behind the activations', a send and a receive a link. */
static void links(struct build *b)
{
    const struct kc_plan_link *link = KC_AT(b->shard, struct kc_plan_link, b->shard->links);
    const struct kc_plan_stage *stages = KC_AT(b->shard, struct kc_plan_stage, b->shard->stages);
    for (uint32_t i = 0; i < b->shard->links.count; i++) {
        const struct kc_plan_tensor *t = KC_AT(b->shard, struct kc_plan_tensor, b->shard->tensors) + link[i].tensor;
        const struct kc_conversion send = {.kind = CONVERT_PRIMITIVE, .primitive = KC_SEND},
                                   recv = {.kind = CONVERT_PRIMITIVE, .primitive = KC_RECV};
        uint64_t n = 1;
        if (link[i].send < 0)
            continue;
        for (int d = 0; d < t->rank; d++)
            n *= t->local[d];
        const uint32_t family =
            kc_family_link(&b->families, stages[link[i].from].coordinate, stages[link[i].to].coordinate);
        add(b, KC_PURPOSE_TRANSFER, send, (enum kc_type)t->type, family, -1, n);
        add(b, KC_PURPOSE_TRANSFER, recv, (enum kc_type)t->type, family, -1, n);
    }
}

/* Where a bucket's gradients come out of backward, along the axes over which it is cut: all of them alike. */
static int bucket_place(const struct kc_shard_plan *s, uint32_t bucket, struct kc_placement *out, struct kc_error *e)
{
    const struct kc_plan_bucket *b = KC_AT(s, struct kc_plan_bucket, s->buckets) + bucket;
    const struct kc_plan_tensor *tensors = KC_AT(s, struct kc_plan_tensor, s->tensors);
    const struct kc_plan_tensor *first = NULL;
    int on = 0;
    for (uint32_t t = 0; t < s->tensors.count; t++)
        for (int a = 0; a < KC_AXES && tensors[t].role == KC_GRADIENT && tensors[t].bucket == (int32_t)bucket; a++) {
            if (!(b->axes >> a & 1))
                continue;
            if (!first)
                first = &tensors[t], on = a;
            if (!kc_placement_equal(first->place[on], tensors[t].place[a])) {
                char x[32], y[32];
                kc_placement_text(first->place[on], x);
                kc_placement_text(tensors[t].place[a], y);
                return kc_fail(e, -ENOTSUP,
                               "bucket %u: %s is %s on axis %s and %s is %s on axis %s; one reduction cannot serve both",
                               bucket, KC_TEXT(s, first->name), x, kc_axis_name[on], KC_TEXT(s, tensors[t].name), y,
                               kc_axis_name[a]);
            }
        }
    *out = first->place[on];
    return 0;
}

/* What gradients of a bucket are sums of besides: other parts of the sequence, heads that share a key/value head, the other
 * stage that has a tied parameter. */
static void bucket_sums(struct build *b, uint32_t k)
{
    const struct kc_shard_plan *s = b->shard;
    const struct kc_plan_bucket *bucket = KC_AT(s, struct kc_plan_bucket, s->buckets) + k;
    const struct kc_plan_stage *stages = KC_AT(s, struct kc_plan_stage, s->stages);
    const struct kc_conversion sum = kc_placement_convert(place_partial(KC_SUM), place_replicated());
    const uint32_t axes = kc_bucket_sums(s, k);
    if (axes)
        add(b, KC_PURPOSE_GRADIENT, sum, KC_F32, kc_family_along(&b->families, axes), (int32_t)k, bucket->count);
    if (bucket->repeat > 1)
        add(b, KC_PURPOSE_GRADIENT, sum, KC_F32, kc_family_neighbours(&b->families, bucket->repeat), (int32_t)k,
            bucket->count);
    if (bucket->tied >= 0 && stages[bucket->tied].coordinate != stages[bucket->stage].coordinate)
        add(b, KC_PURPOSE_GRADIENT, sum, KC_F32,
            kc_family_ends(&b->families, stages[bucket->stage].coordinate, stages[bucket->tied].coordinate), (int32_t)k,
            bucket->count);
}

/* One conversion of every bucket, in the order in which backward completes them. */
static int buckets_convert(struct build *b, enum kc_purpose purpose, struct kc_error *e)
{
    const struct kc_shard_plan *s = b->shard;
    const struct kc_plan_bucket *buckets = KC_AT(s, struct kc_plan_bucket, s->buckets);
    for (uint32_t k = 0; k < s->buckets.count; k++) {
        struct kc_placement from = kc_collectives_update_place(s), to = place_replicated();
        if (buckets[k].frozen && (purpose == KC_PURPOSE_GRADIENT || !kc_bucket_in_parts(&buckets[k], KC_STATE_PARAMETER)))
            continue; /* nothing adds to it or updates it */
        if (purpose == KC_PURPOSE_GRADIENT) {
            to = from;
            int r = bucket_place(s, k, &from, e);
            if (r < 0)
                return r;
            bucket_sums(b, k);
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
        add(b, purpose, how, type, kc_family_along(&b->families, buckets[k].axes), (int32_t)k, count);
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
    activations(b);
    links(b);
    int r = buckets_convert(b, KC_PURPOSE_GRADIENT, e);
    if (r < 0)
        return r;
    add(b, KC_PURPOSE_AGREE, sum, KC_F64, FAMILY_WORLD, -1, KC_AGREES + kc_plan_tallies(b->shard));
    if ((r = buckets_convert(b, KC_PURPOSE_PARAMETER, e)) < 0)
        return r;
    add(b, KC_PURPOSE_DIGEST, gather, KC_U64, FAMILY_WORLD, -1, KC_DIGESTS);
    add(b, KC_PURPOSE_ROOT, sum, KC_U64, FAMILY_WORLD, -1, KC_STORE_COUNT(parameters));
    add(b, KC_PURPOSE_STORE, sum, KC_U64, FAMILY_WORLD, -1, 2);
    return 0;
}

int kc_collectives_build(const struct kc_job_spec *spec, const struct kc_shard_plan *shard, const struct kc_made *made,
                         const struct kc_device_view *devices, const struct kc_comm_costs *costs,
                         struct kc_arena *arena, struct kc_comm_plan **out, struct kc_error *e)
{
    struct build b = {.spec = spec, .shard = shard, .made = made, .devices = devices, .costs = costs};
    kc_families_begin(&b.families, shard);
    b.plan = kc_contract_begin(arena, KC_CONTRACT_COMM_PLAN, KC_COMM_PLAN_VERSION, sizeof *b.plan);
    if (!b.plan)
        return full(arena, e);
    int r = collectives_list(&b, e);
    if (r < 0)
        return r;
    if (kc_families_write(&b.families, arena, b.plan) < 0)
        return full(arena, e);
    b.collectives = kc_contract_array(arena, &b.plan->collectives, b.count, sizeof *b.collectives);
    if (!b.collectives)
        return full(arena, e);
    if ((r = collectives_list(&b, e)) < 0)
        return r;
    *out = b.plan;
    return 0;
}
