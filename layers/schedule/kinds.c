/* kinds.c - which ranks run the same program: all that an expansion looks at, but where parts begin, is put into one number.
 * Ranks of a kind have programs that differ in offsets alone: of a tensor's part in the tensor, and of the part of a bucket
 * that the rank owns, over which the optimizer's runs go. */
#include "schedule/schedule.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct kinds {
    const struct kc_shard_plan *shard;
    const struct kc_comm_plan *comm;
    const struct kc_plan_tensor **tensors; /* those that are cut, one of each way */
    size_t tensor_count;
    uint32_t omits; /* bits 1 << enum kc_axis: an op leaves an operand out by that axis */
};

static bool same_cut(const struct kc_plan_tensor *a, const struct kc_plan_tensor *b)
{
    return a->rank == b->rank && !memcmp(a->dim, b->dim, sizeof a->dim) && !memcmp(a->place, b->place, sizeof a->place) &&
           !memcmp(a->global, b->global, sizeof a->global);
}

static void collect_tensors(struct kinds *k)
{
    const struct kc_plan_tensor *t = KC_AT(k->shard, struct kc_plan_tensor, k->shard->tensors);
    for (uint32_t i = 0; i < k->shard->tensors.count; i++) {
        bool known = true;
        for (int a = 0; a < KC_AXES; a++)
            known &= k->shard->axis[a] == 1 || t[i].place[a].kind != KC_PLACE_SHARDED;
        for (size_t n = 0; n < k->tensor_count && !known; n++)
            known = same_cut(k->tensors[n], &t[i]);
        if (!known)
            k->tensors[k->tensor_count++] = &t[i];
    }
}

static void collect_omits(struct kinds *k)
{
    const struct kc_plan_op *ops = KC_AT(k->shard, struct kc_plan_op, k->shard->ops);
    for (uint32_t o = 0; o < k->shard->ops.count; o++)
        for (uint32_t i = 0; i < ops[o].omit.count; i++)
            k->omits |= KC_AT(k->shard, uint32_t, ops[o].omit)[i];
}

static void mix(struct kc_digest *d, uint64_t value)
{
    const uint64_t of[] = {d->low, d->high, value};
    *d = kc_digest(of, sizeof of);
}

static uint64_t kind_of(const struct kinds *k, uint32_t rank)
{
    const struct kc_plan_bucket *b = KC_AT(k->shard, struct kc_plan_bucket, k->shard->buckets);
    const struct kc_plan_group *groups = KC_AT(k->comm, struct kc_plan_group, k->comm->groups);
    struct kc_digest d = {0};
    mix(&d, kc_plan_coordinate(k->shard, rank, KC_PIPELINE));
    for (int a = 0; a < KC_AXES; a++)
        if (k->omits >> a & 1)
            mix(&d, kc_plan_coordinate(k->shard, rank, (enum kc_axis)a) != 0);
    for (size_t n = 0; n < k->tensor_count; n++) {
        struct kc_box box;
        kc_plan_box(k->shard, k->tensors[n], rank, &box);
        for (int i = 0; i < k->tensors[n]->rank; i++)
            mix(&d, box.size[i]);
    }
    for (uint32_t i = 0; i < k->shard->buckets.count; i++)
        mix(&d, (uint64_t)(kc_plan_holds(k->shard, &b[i], rank) << 1 | kc_plan_counts(k->shard, &b[i], rank)));
    for (uint32_t f = 0; f < k->comm->families.count; f++) {
        const uint32_t group = kc_comm_group_of(k->comm, f, rank);
        mix(&d, group == KC_NOT_MEMBER ? 0 : groups[group].ranks.count);
    }
    return d.low;
}

int kc_schedule_kinds(const struct kc_shard_plan *shard, const struct kc_comm_plan *comm, uint64_t *kind)
{
    struct kinds k = {.shard = shard, .comm = comm};
    k.tensors = calloc(shard->tensors.count + 1u, sizeof *k.tensors);
    if (!k.tensors)
        return -ENOMEM;
    collect_tensors(&k);
    collect_omits(&k);
    for (uint32_t r = 0; r < shard->ranks; r++)
        kind[r] = kind_of(&k, r);
    free(k.tensors);
    return 0;
}
