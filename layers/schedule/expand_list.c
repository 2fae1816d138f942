/* expand_list.c - the ops of a turn, and what their buckets go through beside them.
 *
 * Where state keeps a part of the parameters, the next bucket that will be read is gathered while ops read the one before. Where
 * it keeps a part of the gradients, a bucket is made whole in work memory for one micro-batch, reduced while the next one is
 * made, and the part that comes of it is added to state's. */
#include "expand_impl.h"

static const struct kc_plan_bucket *bucket_at(const struct kc_builder *b, uint32_t bucket)
{
    return KC_AT(b->shard, struct kc_plan_bucket, b->shard->buckets) + bucket;
}

void expand_clear(struct kc_builder *b, uint32_t bucket)
{
    if (!kc_bucket_in_parts(bucket_at(b, bucket), KC_STATE_GRADIENT))
        return;
    expand_simple(b, KC_I_CLEAR, KC_PART_BACKWARD, 0, kc_ref_none(),
                  kc_ref_whole(b, KC_SPACE_GRADIENT, bucket, 0, bucket_at(b, bucket)->count));
}

void expand_add(struct kc_builder *b, uint32_t bucket, uint32_t micro)
{
    const struct kc_plan_bucket *k = bucket_at(b, bucket);
    const struct kc_plan_segment *g = KC_AT(b->shard, struct kc_plan_segment, b->shard->segments) + k->segments_first;
    const uint64_t first = kc_plan_owner(b->shard, k, b->rank) * k->shard, end = first + k->shard;
    struct kc_exec_instruction add = expand_run(b->shard->opcode_add, KC_PART_BACKWARD, k, 1);
    add.accumulate = b->added[bucket], add.micro = (uint16_t)micro;
    for (uint32_t i = 0; i < k->segments_count && kc_bucket_in_parts(k, KC_STATE_GRADIENT); i++) {
        const uint64_t from = g[i].offset > first ? g[i].offset : first;
        const uint64_t to = g[i].offset + g[i].count < end ? g[i].offset + g[i].count : end;
        if (from >= to)
            continue;
        kc_builder_emit(b, &(struct kc_emit){.base = add, .in = {kc_ref_whole(b, KC_SPACE_GRADIENT, bucket, from, to - from)},
                                             .out = {kc_ref_run(b, KC_SPACE_GRADIENT, bucket, from, to - from)}});
    }
    b->added[bucket] = 1;
}

/* ---- gradients that are whole: once a step ---- */

static void reduce_last(struct kc_builder *b, const struct kc_turns *t, uint32_t op, uint32_t *left)
{
    const struct kc_plan_tensor *tensors = KC_AT(b->shard, struct kc_plan_tensor, b->shard->tensors);
    const struct kc_plan_op *o = KC_AT(b->shard, struct kc_plan_op, b->shard->ops) + op;
    for (uint32_t i = 0; i < o->out.count; i++) {
        const int32_t made = KC_AT(b->shard, int32_t, o->out)[i];
        if (made < 0 || tensors[made].role != KC_GRADIENT)
            continue;
        const uint32_t bucket = (uint32_t)tensors[made].bucket;
        if (--left[bucket] == 0 && !turn_shares(t, bucket_at(b, bucket)))
            expand_collectives(b, KC_PURPOSE_GRADIENT, (int32_t)bucket);
    }
}

/* ---- buckets in parts ---- */

struct parts {
    const struct turn_use *reads, *adds;
    uint32_t reads_count, adds_count;
    uint32_t gathered; /* of reads */
    int32_t reduced;   /* a bucket whose part is not added up yet; -1 */
};

static void before(struct kc_builder *b, const struct kc_turns *t, struct parts *p, uint32_t i)
{
    bool begins = false;
    for (uint32_t k = 0; k < p->reads_count; k++)
        begins |= p->reads[k].first == i;
    while (p->gathered < p->reads_count && p->reads[p->gathered].first <= i)
        expand_collectives(b, KC_PURPOSE_PARAMETER, (int32_t)p->reads[p->gathered++].bucket);
    if (begins && p->gathered < p->reads_count)
        expand_collectives(b, KC_PURPOSE_PARAMETER, (int32_t)p->reads[p->gathered++].bucket);
    for (uint32_t k = 0; k < p->adds_count; k++)
        if (p->adds[k].first == i && !turn_shares(t, bucket_at(b, p->adds[k].bucket)))
            expand_clear(b, p->adds[k].bucket);
}

static void add_up(struct kc_builder *b, struct parts *p, uint32_t micro)
{
    if (p->reduced >= 0)
        expand_add(b, (uint32_t)p->reduced, micro);
    p->reduced = -1;
}

static void behind(struct kc_builder *b, const struct kc_turns *t, struct parts *p, uint32_t i, uint32_t micro)
{
    for (uint32_t k = 0; k < p->adds_count; k++) {
        const uint32_t bucket = p->adds[k].bucket;
        if (p->adds[k].last != i || turn_shares(t, bucket_at(b, bucket)))
            continue;
        expand_collectives(b, KC_PURPOSE_GRADIENT, (int32_t)bucket);
        add_up(b, p, micro);
        p->reduced = (int32_t)bucket;
    }
}

void expand_list(struct kc_builder *b, const struct kc_turns *t, uint32_t stage, enum turn_list list, uint32_t micro,
                 uint32_t *left)
{
    const uint32_t *first = &t->first[stage * TURN_LISTS + list];
    const bool parts = kc_plan_in_parts(b->shard, KC_STATE_GRADIENT);
    struct parts p = {.reduced = -1};
    p.reads = turn_uses(t, stage, list, TURN_READS, &p.reads_count);
    p.adds = turn_uses(t, stage, list, TURN_ADDS, &p.adds_count);
    for (uint32_t i = first[0]; i < first[1]; i++) {
        before(b, t, &p, i);
        kc_builder_op(b, t->ops[i], micro);
        if (parts)
            behind(b, t, &p, i, micro);
        else if (left)
            reduce_last(b, t, t->ops[i], left);
    }
    add_up(b, &p, micro);
}
