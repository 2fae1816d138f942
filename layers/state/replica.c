/* replica.c - do the ranks that hold the same hold the same bits? Of every tensor the first of these ranks adds its digest
 * as often as there are others, and each of the others subtracts its own: over all ranks that is 0, however the tensors are
 * cut and staged, and a rank that differs leaves what does not cancel. Whole numbers: 28 bits a digest, so that 2^25
 * summands are exact in f64.
 *
 * If it is not 0, each rank's digests go to all in PROGRAM_REPLICA: through the store vector, which has room for those of
 * RANKS_A_ROUND ranks of each parameter and in which all but one of the summands are 0. Then most of those that hold the same
 * are right. */
#include "state_impl.h"

#include <errno.h>
#include <stdlib.h>

#define DIGEST_BITS   28
#define RANKS_A_ROUND (4 * KC_KIND_COUNT)

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
        const uint32_t n = kc_bucket_in_parts(b, KC_STATE_PARAMETER) && b->axes >> a & 1 ? 1 : copies_along(p, t, a); /* parts have no copies there */
        copies *= n;
        first &= kc_plan_coordinate(p, rank, (enum kc_axis)a) % n == 0;
    }
    if (b->tied >= 0 && stage_coordinate(p, b->tied) != stage_coordinate(p, b->stage)) {
        copies *= 2;
        first &= kc_plan_coordinate(p, rank, KC_PIPELINE) == stage_coordinate(p, b->stage);
    }
    return first ? copies - 1 : -1;
}

/* The bits of its parameter `m` that this rank holds; 0: none. */
static uint64_t digest_of(const struct kc_state *s, uint32_t m)
{
    const struct kc_map_tensor *own = &s->map.tensor[m];
    const struct kc_map_bucket *b = &s->map.bucket[own->bucket];
    const struct kc_range kept = kc_map_kept(&s->map, own, KC_STATE_PARAMETER);
    const uint64_t width = kc_type_bytes[b->type];
    if (!b->held || kept.lo >= kept.hi)
        return 0;
    const uintptr_t data = (uintptr_t)kc_state_at(s, KC_STATE_PARAMETER, own->bucket);
    const uint64_t low = kc_digest((const void *)(data + (own->offset + kept.lo) * width), (kept.hi - kept.lo) * width).low;
    return low ? low : 1;
}

double kc_state_replica_digest(const struct kc_state *s)
{
    const struct kc_plan_tensor *t = KC_AT(s->shard, struct kc_plan_tensor, s->shard->tensors);
    int64_t sum = 0;
    for (uint32_t i = 0, m = 0; i < s->shard->tensors.count; i++)
        if (t[i].role == KC_PARAMETER)
            sum += weight(s->shard, &t[i], s->rank) * (int64_t)(digest_of(s, m++) >> (64 - DIGEST_BITS));
    return (double)sum;
}

/* ---- who it was ---- */

uint32_t kc_state_replica_rounds(const struct kc_state *s)
{
    return (s->shard->ranks + RANKS_A_ROUND - 1) / RANKS_A_ROUND;
}

static uint64_t *slots_of(const struct kc_state *s, uint32_t tensor)
{
    return s->store + 2 + (size_t)RANKS_A_ROUND * tensor;
}

int kc_verb_replica_part(struct kc_state *s, struct kc_error *e)
{
    if (s->replica_rounds == kc_state_replica_rounds(s))
        s->replica_rounds = 0; /* once more from the first */
    if (!s->replica)
        s->replica = calloc((size_t)s->map.tensors * s->shard->ranks + 1, sizeof *s->replica);
    if (!s->replica)
        return kc_fail(e, -ENOMEM, "no memory for the digests of all ranks");
    if (!s->attempt.pending)
        s->store[0] = s->store[1] = 0;
    const uint32_t first = s->replica_rounds * RANKS_A_ROUND;
    for (uint32_t t = 0; t < s->map.tensors; t++)
        for (uint32_t k = 0; k < RANKS_A_ROUND; k++)
            slots_of(s, t)[k] = first + k == s->rank ? digest_of(s, t) : 0;
    return 0;
}

int kc_verb_replica_read(struct kc_state *s, struct kc_error *e)
{
    if (!s->replica)
        return kc_fail(e, -EINVAL, "the program reads the replicas' digests without their parts");
    const uint32_t first = s->replica_rounds * RANKS_A_ROUND, ranks = s->shard->ranks;
    for (uint32_t t = 0; t < s->map.tensors; t++)
        for (uint32_t k = 0; k < RANKS_A_ROUND && first + k < ranks; k++)
            s->replica[(size_t)t * ranks + first + k] = slots_of(s, t)[k];
    s->replica_rounds++;
    return 0;
}

/* A number for the part of a parameter that a rank holds: ranks with the same number hold the same. */
static uint64_t part_of(const struct kc_shard_plan *p, const struct kc_plan_tensor *t, uint32_t rank)
{
    const struct kc_plan_bucket *b = &KC_AT(p, struct kc_plan_bucket, p->buckets)[t->bucket];
    uint64_t part = 0;
    for (int a = 0; a < KC_AXES; a++) {
        const uint32_t n = kc_bucket_in_parts(b, KC_STATE_PARAMETER) && b->axes >> a & 1 ? 1 : copies_along(p, t, a);
        const bool tied = a == KC_PIPELINE && b->tied >= 0;
        part = part * p->axis[a] + (tied ? 0 : kc_plan_coordinate(p, rank, (enum kc_axis)a) / n);
    }
    return part;
}

/* Of the ranks in `group`, those whose digest most of them have; 0: no more than half have one alike. */
static uint64_t majority(const uint64_t *digest, uint64_t group)
{
    for (uint32_t r = 0; r < KC_RANKS_MAX; r++) {
        uint64_t alike = 0;
        for (uint32_t k = 0; k < KC_RANKS_MAX; k++)
            if (group >> r & 1 && group >> k & 1 && digest[k] == digest[r])
                alike |= UINT64_C(1) << k;
        if (2 * __builtin_popcountll(alike) > __builtin_popcountll(group))
            return alike;
    }
    return 0;
}

/* The first group of ranks that holds a part of the tensor in different bits; false: none does. */
static bool vote(const struct kc_shard_plan *p, const struct kc_plan_tensor *t, const uint64_t *digest,
                 struct kc_replica_fault *out)
{
    for (uint32_t r = 0; r < p->ranks; r++) {
        uint64_t group = 0;
        bool differ = false;
        for (uint32_t k = 0; digest[r] && k < p->ranks; k++)
            if (digest[k] && part_of(p, t, k) == part_of(p, t, r)) {
                group |= UINT64_C(1) << k;
                differ |= digest[k] != digest[r];
            }
        if (!differ)
            continue;
        out->right = majority(digest, group);
        out->wrong = group & ~out->right;
        return true;
    }
    return false;
}

int kc_state_replica_fault(const struct kc_state *s, struct kc_replica_fault *out)
{
    const struct kc_shard_plan *p = s->shard;
    const struct kc_plan_tensor *t = KC_AT(p, struct kc_plan_tensor, p->tensors);
    struct kc_replica_fault found = {0}, more;
    if (!s->replica || s->replica_rounds != kc_state_replica_rounds(s))
        return -ENOENT;
    for (uint32_t i = 0, m = 0; i < p->tensors.count; i++) {
        if (t[i].role != KC_PARAMETER || !vote(p, &t[i], s->replica + (size_t)m++ * p->ranks, found.tensors ? &more : &found))
            continue;
        if (found.tensors++ == 0)
            found.tensor = KC_TEXT(p, t[i].name);
    }
    if (!found.tensors)
        return -ENOENT;
    *out = found;
    return 0;
}
