/* replica.c - do the ranks that hold the same hold the same bits? Of every tensor the first of these ranks adds its digest
 * as often as there are others, and each of the others subtracts its own: over all ranks that is 0, however the tensors are
 * cut and staged, and a rank that differs leaves what does not cancel. Whole numbers: 28 bits a digest, so that 2^25
 * summands are exact in f64. */
#include "state_impl.h"

#define DIGEST_BITS 28

/* How many ranks along an axis hold the same part, and which of these a rank is. */
static uint32_t copies_along(const struct kc_shard_plan *p, const struct kc_plan_tensor *t, int axis)
{
    if (axis == KC_PIPELINE)
        return 1; /* one stage holds it, or two (tied) */
    if (t->place[axis].kind != KC_PLACE_SHARDED)
        return p->axis[axis];
    return t->place[axis].repeat ? t->place[axis].repeat : 1;
}

static uint32_t stage_coordinate(const struct kc_shard_plan *p, int32_t stage)
{
    return KC_AT(p, struct kc_plan_stage, p->stages)[stage].coordinate;
}

/* What the digest of this rank counts: others for the first, -1 for every other. */
static int64_t weight(const struct kc_shard_plan *p, const struct kc_plan_tensor *t, uint32_t rank)
{
    const struct kc_plan_bucket *b = &KC_AT(p, struct kc_plan_bucket, p->buckets)[t->bucket];
    int64_t copies = 1;
    bool first = true;
    for (int a = 0; a < KC_AXES; a++) {
        const uint32_t n = p->zero >= 3 && b->axes >> a & 1 ? 1 : copies_along(p, t, a); /* parts have no copies there */
        copies *= n;
        first &= kc_plan_coordinate(p, rank, (enum kc_axis)a) % n == 0;
    }
    if (b->tied >= 0 && stage_coordinate(p, b->tied) != stage_coordinate(p, b->stage)) {
        copies *= 2;
        first &= kc_plan_coordinate(p, rank, KC_PIPELINE) == stage_coordinate(p, b->stage);
    }
    return first ? copies - 1 : -1;
}

double kc_state_replica_digest(const struct kc_state *s)
{
    const struct kc_plan_tensor *t = KC_AT(s->shard, struct kc_plan_tensor, s->shard->tensors);
    int64_t sum = 0;
    for (uint32_t i = 0, m = 0; i < s->shard->tensors.count; i++) {
        if (t[i].role != KC_PARAMETER)
            continue;
        const struct kc_map_tensor *own = &s->map.tensor[m++];
        const uint64_t width = kc_type_bytes[s->map.bucket[own->bucket].type];
        if (!s->map.bucket[own->bucket].held)
            continue;
        const struct kc_range kept = kc_map_kept(&s->map, own, KC_STATE_PARAMETER);
        const uintptr_t data = (uintptr_t)kc_state_at(s, KC_STATE_PARAMETER, own->bucket);
        struct kc_digest d =
            kc_digest((const void *)(data + (own->offset + kept.lo) * width), (kept.hi - kept.lo) * width);
        sum += weight(s->shard, &t[i], s->rank) * (int64_t)(d.low >> (64 - DIGEST_BITS));
    }
    return (double)sum;
}
