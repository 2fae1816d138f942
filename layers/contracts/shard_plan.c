/* shard_plan.c - what one rank has of a plan that is the same for all: arithmetic on its coordinates. Pure. */
#include "contracts/shard_plan.h"

/* One axis cuts [first, first + size) of a dimension. */
static void cut(const struct kc_shard_plan *p, struct kc_placement place, int axis, uint32_t rank, uint64_t *first,
                uint64_t *size)
{
    const uint32_t repeat = place.repeat ? place.repeat : 1, n = p->axis[axis] / repeat;
    const uint32_t i = kc_plan_coordinate(p, rank, (enum kc_axis)axis) / repeat;
    const uint64_t from = kc_part_first(*size, n, i), to = kc_part_first(*size, n, i + 1);
    *first += from;
    *size = to - from;
}

void kc_plan_box(const struct kc_shard_plan *p, const struct kc_plan_tensor *t, uint32_t rank, struct kc_box *out)
{
    *out = (struct kc_box){.first = {0}};
    for (int d = 0; d < t->rank; d++)
        out->size[d] = t->global[d];
    for (int a = KC_AXES; a-- > 0;)
        for (int d = 0; d < t->rank && t->place[a].kind == KC_PLACE_SHARDED; d++)
            if (t->dim[d] == t->place[a].dim) {
                cut(p, t->place[a], a, rank, &out->first[d], &out->size[d]);
                break;
            }
}

uint64_t kc_box_elements(const struct kc_box *b, uint32_t rank)
{
    uint64_t n = 1;
    for (uint32_t d = 0; d < rank; d++)
        n *= b->size[d];
    return n;
}

uint64_t kc_plan_tallies(const struct kc_shard_plan *p)
{
    const struct kc_plan_tensor *t = KC_AT(p, struct kc_plan_tensor, p->tensors);
    uint64_t n = 0;
    for (uint32_t i = 0; i < p->tensors.count; i++) {
        struct kc_box box;
        if (t[i].role != KC_RESULT || (int32_t)i == p->result)
            continue;
        kc_plan_box(p, &t[i], 0, &box);
        n += kc_box_elements(&box, t[i].rank);
    }
    return n;
}

uint32_t kc_plan_owner(const struct kc_shard_plan *p, const struct kc_plan_bucket *b, uint32_t rank)
{
    uint32_t owner = 0, stride = 1;
    for (int a = 0; a < KC_AXES; a++)
        if (b->axes >> a & 1) {
            owner += kc_plan_coordinate(p, rank, (enum kc_axis)a) * stride;
            stride *= p->axis[a];
        }
    return owner;
}

static int has_stage(const struct kc_shard_plan *p, int32_t stage, uint32_t rank)
{
    return stage >= 0 && KC_AT(p, struct kc_plan_stage, p->stages)[stage].coordinate ==
                             kc_plan_coordinate(p, rank, KC_PIPELINE);
}

int kc_plan_holds(const struct kc_shard_plan *p, const struct kc_plan_bucket *b, uint32_t rank)
{
    return has_stage(p, b->stage, rank) || has_stage(p, b->tied, rank);
}

int kc_plan_counts(const struct kc_shard_plan *p, const struct kc_plan_bucket *b, uint32_t rank)
{
    for (int a = 0; a < KC_AXES; a++)
        if (b->once >> a & 1 && kc_plan_coordinate(p, rank, (enum kc_axis)a))
            return 0;
    if (b->repeat > 1 && kc_plan_coordinate(p, rank, KC_TENSOR) % b->repeat)
        return 0;
    return has_stage(p, b->stage, rank);
}

int kc_plan_runs_op(const struct kc_shard_plan *p, const struct kc_plan_op *op, uint32_t rank)
{
    return op->stage == KC_EVERY_STAGE || has_stage(p, op->stage, rank);
}

int kc_plan_omits(const struct kc_shard_plan *p, const struct kc_plan_op *op, uint32_t i, uint32_t rank)
{
    const uint32_t axes = i < op->omit.count ? KC_AT(p, uint32_t, op->omit)[i] : 0;
    for (int a = 0; a < KC_AXES; a++)
        if (axes >> a & 1 && kc_plan_coordinate(p, rank, (enum kc_axis)a))
            return 1;
    return 0;
}

int kc_plan_in_parts(const struct kc_shard_plan *p, enum kc_state_class what)
{
    const struct kc_plan_bucket *b = KC_AT(p, struct kc_plan_bucket, p->buckets);
    for (uint32_t i = 0; i < p->buckets.count; i++)
        if (kc_bucket_in_parts(&b[i], what))
            return 1;
    return 0;
}

static int back_up(enum kc_pipeline order, uint32_t chunks)
{
    return order == KC_PIPELINE_ZERO_BUBBLE && chunks == 2;
}

uint32_t kc_stage_coordinate(enum kc_pipeline order, uint32_t ranks, uint32_t chunks, uint32_t stage)
{
    return back_up(order, chunks) && stage >= ranks ? 2 * ranks - 1 - stage : stage % ranks;
}

uint32_t kc_stage_of(enum kc_pipeline order, uint32_t ranks, uint32_t chunks, uint32_t coordinate, uint32_t chunk)
{
    return back_up(order, chunks) && chunk ? 2 * ranks - 1 - coordinate : chunk * ranks + coordinate;
}
