/* bucket.c - see bucket.h. Three walks over the ops: mark which op completes which gradient, place the parameters,
 * write buckets and segments down. Marks lie in fields of the plan that the last walk overwrites, so no other memory
 * is needed. */
#include "bucket.h"

#include <errno.h>

static uint64_t round_up(uint64_t n, uint64_t unit)
{
    return (n + unit - 1) / unit * unit;
}

static uint64_t elements(const struct kc_plan_tensor *t)
{
    uint64_t n = 1;
    for (int d = 0; d < t->rank; d++)
        n *= t->local[d];
    return n;
}

/* gradient.offset := 1 + the last op that adds to it. */
static int mark_completion(const struct kc_shard_plan *plan, struct kc_plan_tensor *tensors, struct kc_error *e)
{
    const struct kc_plan_op *ops = KC_AT(plan, struct kc_plan_op, plan->ops);
    for (uint32_t o = plan->ops.count; o-- > 0;) {
        const int32_t *out = KC_AT(plan, int32_t, ops[o].out);
        for (uint32_t i = 0; i < ops[o].out.count; i++)
            if (out[i] >= 0 && tensors[out[i]].role == KC_GRADIENT && tensors[out[i]].offset == 0)
                tensors[out[i]].offset = o + 1;
    }
    for (uint32_t t = 0; t < plan->tensors.count; t++) {
        if (tensors[t].role != KC_GRADIENT)
            continue;
        struct kc_plan_tensor *p = &tensors[tensors[t].of];
        if (tensors[t].offset == 0 || p->bucket >= 0)
            return kc_fail(e, -EINVAL, "%s: %s; the model graph is wrong", KC_TEXT(plan, tensors[t].name),
                           p->bucket >= 0 ? "its parameter has two gradients" : "no op adds to it");
        p->bucket = 0; /* seen; placed below */
    }
    for (uint32_t t = 0; t < plan->tensors.count; t++)
        if (tensors[t].role == KC_PARAMETER && tensors[t].bucket < 0)
            return kc_fail(e, -EINVAL, "%s: the model graph has no gradient of it", KC_TEXT(plan, tensors[t].name));
    return 0;
}

/* Steps through the gradients in the order of their completion. */
struct walk {
    const struct kc_shard_plan *plan;
    const struct kc_plan_tensor *tensors;
    uint32_t op, out;
};

static int32_t next_gradient(struct walk *w)
{
    const struct kc_plan_op *ops = KC_AT(w->plan, struct kc_plan_op, w->plan->ops);
    for (; w->op < w->plan->ops.count; w->op++, w->out = 0) {
        const int32_t *out = KC_AT(w->plan, int32_t, ops[w->op].out);
        while (w->out < ops[w->op].out.count) {
            int32_t t = out[w->out++];
            if (t >= 0 && w->tensors[t].role == KC_GRADIENT && w->tensors[t].offset == w->op + 1)
                return t;
        }
    }
    return -1;
}

/* parameter.bucket and .offset; returns the number of buckets. */
static uint32_t place_parameters(const struct kc_shard_plan *plan, struct kc_plan_tensor *tensors, uint64_t target)
{
    const uint64_t most = BUCKET_BYTES_MAX / kc_type_bytes[KC_F32], enough = target / kc_type_bytes[KC_F32];
    uint32_t bucket = 0;
    uint8_t type = KC_F32;
    uint64_t filled = 0;
    int32_t layer = 0, g;
    for (struct walk w = {plan, tensors, 0, 0}; (g = next_gradient(&w)) >= 0;) {
        struct kc_plan_tensor *p = &tensors[tensors[g].of];
        uint64_t start = round_up(filled, KC_ALIGN_ELEMENTS);
        if (filled && (start + elements(p) > most || (p->layer != layer && filled >= enough) || p->type != type)) {
            bucket++;
            start = 0;
        }
        p->bucket = (int32_t)bucket;
        p->offset = start;
        filled = start + elements(p);
        layer = p->layer;
        type = p->type;
    }
    return filled ? bucket + 1 : bucket;
}

static void write_down(const struct kc_shard_plan *plan, struct kc_plan_tensor *tensors, uint32_t shards,
                       struct kc_plan_bucket *buckets, struct kc_plan_segment *segments)
{
    uint32_t n = 0;
    int32_t g;
    for (struct walk w = {plan, tensors, 0, 0}; (g = next_gradient(&w)) >= 0; n++) {
        const struct kc_plan_tensor *p = &tensors[tensors[g].of];
        struct kc_plan_bucket *b = &buckets[p->bucket];
        segments[n] = (struct kc_plan_segment){
            .tensor = tensors[g].of, .decay = p->decay, .offset = p->offset, .count = elements(p)};
        if (b->segments_count++ == 0)
            b->segments_first = n;
        b->layer = p->layer;
        b->type = p->type;
        b->axes = 1u << KC_DATA;
        b->tied = -1;
        b->shards = shards;
        b->count = round_up(p->offset + elements(p), (uint64_t)shards * KC_ALIGN_ELEMENTS);
        b->shard = b->count / shards;
    }
    for (uint32_t t = 0; t < plan->tensors.count; t++)
        if (tensors[t].role == KC_GRADIENT) {
            tensors[t].bucket = tensors[tensors[t].of].bucket;
            tensors[t].offset = tensors[tensors[t].of].offset;
        }
}

int kc_bucket_layout(struct kc_shard_plan *plan, struct kc_arena *arena, struct kc_plan_tensor *tensors,
                     uint64_t target, uint32_t shards, struct kc_error *e)
{
    int r = mark_completion(plan, tensors, e);
    if (r < 0)
        return r;
    uint32_t parameters = 0, count = place_parameters(plan, tensors, target);
    for (uint32_t t = 0; t < plan->tensors.count; t++)
        parameters += tensors[t].role == KC_PARAMETER;
    struct kc_plan_bucket *buckets = kc_contract_array(arena, &plan->buckets, count, sizeof *buckets);
    struct kc_plan_segment *segments = kc_contract_array(arena, &plan->segments, parameters, sizeof *segments);
    if (!buckets || !segments)
        return kc_fail(e, -ENOSPC, "the shard plan needs more than %zu bytes", arena->size);
    write_down(plan, tensors, shards, buckets, segments);
    return 0;
}
