/* expand_train.c - one optimizer step: the turns of the pipeline with their ops and transfers, reductions as buckets are
 * complete, norms, agreement, updates. */
#include "expand_impl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const struct kc_plan_bucket *bucket_at(const struct kc_builder *b, uint32_t bucket)
{
    return KC_AT(b->shard, struct kc_plan_bucket, b->shard->buckets) + bucket;
}

/* Has the rank the bucket, and gradients of it? */
static int trains(const struct kc_builder *b, uint32_t bucket)
{
    return !bucket_at(b, bucket)->frozen && kc_plan_holds(b->shard, bucket_at(b, bucket), b->rank);
}

static void ticket(struct kc_builder *b, enum kc_instruction_kind kind, enum kc_space space, uint32_t bucket)
{
    expand_simple(b, kind, KC_PART_STATE, 0, kc_ref_none(), kc_ref_run(b, space, bucket, 0, bucket_at(b, bucket)->count));
}

static void count_gradients(const struct kc_builder *b, uint32_t *left)
{
    const struct kc_shard_plan *s = b->shard;
    const struct kc_plan_tensor *tensors = KC_AT(s, struct kc_plan_tensor, s->tensors);
    const struct kc_plan_op *ops = KC_AT(s, struct kc_plan_op, s->ops);
    for (uint32_t o = s->backward_first; o < s->ops.count; o++)
        for (uint32_t i = 0; i < ops[o].out.count && kc_plan_runs_op(s, &ops[o], b->rank); i++) {
            const int32_t t = KC_AT(s, int32_t, ops[o].out)[i];
            if (t >= 0 && tensors[t].role == KC_GRADIENT)
                left[tensors[t].bucket] += s->micro_batches;
        }
}

static void train_turn(struct kc_builder *b, const struct kc_turns *t, const struct kc_turn *turn, uint32_t *left)
{
    const uint32_t s = turn->stage, m = turn->micro;
    switch (turn->kind) {
    case KC_TURN_SEND_F:
        expand_links(b, t, s, s + 1, true, m);
        return;
    case KC_TURN_RECV_F:
        expand_links(b, t, s - 1, s, false, m);
        return;
    case KC_TURN_SEND_I:
        expand_links(b, t, s, s - 1, true, m);
        return;
    case KC_TURN_RECV_I:
        expand_links(b, t, s + 1, s, false, m);
        return;
    default:
        break;
    }
    expand_list(b, t, s, turn_list_of((enum kc_turn_kind)turn->kind), m, left);
}

/* What two ranks of the pipeline add to is reduced when all turns are over: one of them is done with it long before the other,
 * and whoever stood there and waited would hold up transfers. */
static void train_turns(struct kc_builder *b, const struct kc_turns *t)
{
    const uint32_t at = kc_plan_coordinate(b->shard, b->rank, KC_PIPELINE), buckets = b->shard->buckets.count;
    uint32_t *left = calloc(buckets + 1u, sizeof *left);
    if (!left) {
        b->failed = -ENOMEM;
        return;
    }
    count_gradients(b, left);
    for (uint32_t k = 0; k < buckets; k++)
        if (trains(b, k) && turn_shares(t, bucket_at(b, k)))
            expand_clear(b, k);
    for (uint32_t i = t->order.first[at]; i < t->order.first[at + 1]; i++)
        train_turn(b, t, &t->order.turns[i], left);
    for (uint32_t k = 0; k < buckets; k++)
        if (trains(b, k) && turn_shares(t, bucket_at(b, k))) {
            expand_collectives(b, KC_PURPOSE_GRADIENT, (int32_t)k);
            expand_add(b, k, b->shard->micro_batches - 1);
        }
    free(left);
}

/* Every rank takes the norm of the part it owns, whatever zero is, and of ranks that hold the same one does, so that the sum
 * over ranks counts each element once. */
static void train_norm(struct kc_builder *b, uint32_t bucket)
{
    const struct kc_plan_bucket *k = bucket_at(b, bucket);
    uint64_t own = kc_plan_owner(b->shard, k, b->rank);
    if (!kc_plan_counts(b->shard, k, b->rank))
        return;
    struct kc_emit e = {.base = expand_run(b->shard->opcode_norm, KC_PART_OPTIMIZER, k, 1),
                        .in = {kc_ref_run(b, KC_SPACE_GRADIENT, bucket, own * k->shard, k->shard)},
                        .out = {kc_ref_vector(KC_SPACE_RESULT, KC_F64, KC_RESULT_OWN + KC_AGREE_NORM * 8, 1)}};
    e.base.accumulate = 1;
    kc_builder_emit(b, &e);
}

static void train_update(struct kc_builder *b, uint32_t bucket)
{
    const struct kc_plan_bucket *k = bucket_at(b, bucket);
    const struct kc_plan_segment *g = KC_AT(b->shard, struct kc_plan_segment, b->shard->segments) + k->segments_first;
    uint64_t own = kc_plan_owner(b->shard, k, b->rank);
    const bool parts = kc_bucket_in_parts(k, KC_STATE_MOMENT1);
    uint64_t first = parts ? own * k->shard : 0, end = parts ? first + k->shard : k->count;
    for (uint32_t i = 0; i < k->segments_count; i++) {
        uint64_t from = g[i].offset > first ? g[i].offset : first;
        uint64_t to = g[i].offset + g[i].count < end ? g[i].offset + g[i].count : end;
        if (from >= to)
            continue;
        struct kc_emit e = {.base = expand_run(b->shard->opcode_update, KC_PART_OPTIMIZER, k, 4),
                            .in = {kc_ref_run(b, KC_SPACE_GRADIENT, bucket, from, to - from)},
                            .out = {kc_ref_run(b, KC_SPACE_PARAMETER, bucket, from, to - from),
                                    kc_ref_run(b, KC_SPACE_MOMENT1, bucket, from, to - from),
                                    kc_ref_run(b, KC_SPACE_MOMENT2, bucket, from, to - from), kc_ref_none()}};
        if (kc_bucket_has_master(k))
            e.out[3] = kc_ref_run(b, KC_SPACE_MASTER, bucket, from, to - from);
        e.base.attr_count = KC_UPDATES;
        memcpy(e.attr, b->shard->update, sizeof b->shard->update);
        if (!g[i].decay)
            e.attr[KC_UPDATE_DECAY] = 0;
        kc_builder_emit(b, &e);
    }
}

void expand_train(struct kc_builder *b, const struct kc_turns *t)
{
    const uint32_t buckets = b->shard->buckets.count;
    kc_builder_begin(b, KC_PROGRAM_TRAIN);
    for (uint32_t k = 0; k < buckets; k++)
        if (trains(b, k))
            ticket(b, KC_I_OPEN, KC_SPACE_GRADIENT, k);
    expand_simple(b, KC_I_CLEAR, KC_PART_BACKWARD, 0, kc_ref_none(),
                kc_ref_vector(KC_SPACE_RESULT, KC_F64, KC_RESULT_OWN, KC_AGREE_NONFINITE + 1));
    if (b->tallies)
        expand_simple(b, KC_I_CLEAR, KC_PART_BACKWARD, 0, kc_ref_none(),
                      kc_ref_vector(KC_SPACE_RESULT, KC_F64, KC_RESULT_TALLIES, b->tallies));
    train_turns(b, t);
    for (uint32_t k = 0; k < buckets; k++) {
        if (!trains(b, k))
            continue;
        train_norm(b, k);
        ticket(b, KC_I_CLOSE, KC_SPACE_GRADIENT, k);
    }
    expand_collectives(b, KC_PURPOSE_AGREE, -1);
    expand_simple(b, KC_I_AGREE, KC_PART_OPTIMIZER, 0,
                kc_ref_vector(KC_SPACE_RESULT, KC_F64, KC_RESULT_AGREED(b->tallies), KC_AGREES + b->tallies), kc_ref_none());
    for (uint32_t k = 0; k < buckets; k++) {
        static const enum kc_space own[] = {KC_SPACE_MOMENT1, KC_SPACE_MOMENT2, KC_SPACE_MASTER};
        size_t count = kc_bucket_has_master(bucket_at(b, k)) ? 3 : 2;
        if (!trains(b, k))
            continue;
        ticket(b, KC_I_OPEN, KC_SPACE_PARAMETER, k);
        for (size_t i = 0; i < count; i++)
            ticket(b, KC_I_OPEN, own[i], k);
        train_update(b, k);
        for (size_t i = 0; i < count; i++)
            ticket(b, KC_I_CLOSE, own[i], k);
        if (!kc_bucket_in_parts(bucket_at(b, k), KC_STATE_PARAMETER))
            expand_collectives(b, KC_PURPOSE_PARAMETER, (int32_t)k); /* while the next bucket is updated */
    }
    for (uint32_t k = 0; k < buckets; k++)
        if (trains(b, k))
            ticket(b, KC_I_CLOSE, KC_SPACE_PARAMETER, k);
    kc_builder_end(b);
}

