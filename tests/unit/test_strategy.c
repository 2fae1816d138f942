/* test_strategy.c - the algebra of placements, the layout of buckets, and what the plans promise. Expected values
 * follow from DESIGN §3.3, not from the code's own output. */
#include "strategy/strategy.h"

#include "strategy/bucket.h"
#include "strategy/collectives.h"
#include "strategy/costs.h"
#include "strategy/placement.h"
#include "strategy/propagate.h"
#include "toy.h"
#include "tests/unit/suite.h"

#include <check.h>
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct toy_shape small = {.ranks = 2,
                                       .zero = 1,
                                       .layers = 3,
                                       .hidden = 80,
                                       .vocab = 11,
                                       .context = 6,
                                       .micro = 2,
                                       .sequences = 8,
                                       .latency_ns = 1000};

/* ---- placements ---- */

START_TEST(every_pair_of_placements_converts_by_the_table)
{
    const struct kc_placement p[] = {place_replicated(),    place_sharded(KC_BATCH), place_sharded(KC_SEQUENCE),
                                     place_partial(KC_SUM), place_partial(KC_MAX),   place_sharded(KC_FLAT)};
    /* rows: from, columns: to. = nothing, / slice, z fill with zeros, A all-reduce, G all-gather, S reduce-scatter, X all-to-all, !
     * impossible */
    static const char *const expected[] = {"=//z!/", "G=Xz!X", "GX=z!X", "ASS=!S", "ASS!=S", "GXXz!="};
    for (int i = 0; i < 6; i++)
        for (int j = 0; j < 6; j++) {
            struct kc_conversion c = kc_placement_convert(p[i], p[j]);
            char got = c.kind == CONVERT_NOTHING          ? '='
                       : c.kind == CONVERT_SLICE          ? '/'
                       : c.kind == CONVERT_FILL           ? 'z'
                       : c.kind == CONVERT_IMPOSSIBLE     ? '!'
                       : c.primitive == KC_ALL_REDUCE     ? 'A'
                       : c.primitive == KC_ALL_GATHER     ? 'G'
                       : c.primitive == KC_REDUCE_SCATTER ? 'S'
                                                          : 'X';
            ck_assert_msg(got == expected[i][j], "%d to %d: %c, expected %c", i, j, got, expected[i][j]);
            if (got == 'A' || got == 'S')
                ck_assert_uint_eq(c.reduce, i == 3 ? KC_SUM : KC_MAX);
        }
}
END_TEST

START_TEST(conversions_cost_what_moves)
{
    const uint64_t bytes = 4096;
    struct kc_conversion reduce = kc_placement_convert(place_partial(KC_SUM), place_replicated());
    struct kc_conversion scatter = kc_placement_convert(place_partial(KC_SUM), place_sharded(KC_BATCH));
    struct kc_conversion gather = kc_placement_convert(place_sharded(KC_BATCH), place_replicated());
    struct kc_conversion exchange = kc_placement_convert(place_sharded(KC_BATCH), place_sharded(KC_HEADS));
    /* an all-reduce is a reduce-scatter and an all-gather; all-to-all moves the n-th part of a gather */
    ck_assert_double_eq(kc_conversion_bytes(reduce, bytes, 4),
                        kc_conversion_bytes(scatter, bytes, 4) + kc_conversion_bytes(gather, bytes, 4));
    ck_assert_double_eq(kc_conversion_bytes(gather, bytes, 4), 3072);
    ck_assert_double_eq(kc_conversion_bytes(exchange, bytes, 4), 768);
    ck_assert_double_eq(kc_conversion_bytes(reduce, bytes, 1), 0);
}
END_TEST

/* Places on one axis of a toy graph; the arena is scratch memory. */
static int spread(const struct kc_model_graph *g, const struct kc_job_spec *spec, enum kc_axis axis, struct kc_cut *cut,
                  struct kc_arena *scratch, struct kc_error *e)
{
    ck_assert_int_eq(kc_arena_new(scratch, 1u << 20), 0);
    ck_assert_int_eq(kc_cut_begin(g, spec, NULL, scratch, cut), 0);
    return kc_propagate(cut, axis, scratch, e);
}

START_TEST(propagation_places_both_halves)
{
    struct toy t;
    toy_make(&t, small);
    struct kc_cut cut;
    struct kc_arena scratch;
    struct kc_error e = {""};
    ck_assert_int_eq(spread(t.graph, t.spec, KC_DATA, &cut, &scratch, &e), 0);
    ck_assert_uint_eq(cut.moves, 0);
    const struct kc_graph_tensor *tensors = KC_AT(t.graph, struct kc_graph_tensor, t.graph->tensors);
    for (uint32_t i = 0; i < t.graph->tensors.count; i++) {
        struct kc_placement p = cut.place[i][KC_DATA], want;
        switch (tensors[i].role) {
        case KC_PARAMETER:
            want = place_replicated();
            break;
        case KC_GRADIENT:
        case KC_RESULT:
            want = place_partial(KC_SUM);
            break;
        default:
            want = place_sharded(KC_BATCH);
        }
        char got[32], expected[32];
        kc_placement_text(p, got);
        kc_placement_text(want, expected);
        ck_assert_msg(kc_placement_equal(p, want), "%s: %s, expected %s", KC_TEXT(t.graph, tensors[i].name), got,
                      expected);
    }
    kc_arena_free(&scratch);
    /* along an axis that cuts nothing, everything is replicated */
    ck_assert_int_eq(spread(t.graph, t.spec, KC_TENSOR, &cut, &scratch, &e), 0);
    for (uint32_t i = 0; i < t.graph->tensors.count; i++)
        ck_assert_uint_eq(cut.place[i][KC_TENSOR].kind, KC_PLACE_REPLICATED);
    kc_arena_free(&scratch);
    toy_free(&t);
}
END_TEST

START_TEST(a_missing_rule_is_refused_with_the_conversion_that_would_do)
{
    struct toy t;
    toy_make(&t, small);
    struct kc_arena a, scratch;
    const struct kc_model_graph *g = toy_graph(t.spec, TOY_AFFINE_F, &a);
    struct kc_cut cut;
    struct kc_error e = {""};
    ck_assert_int_eq(spread(g, t.spec, KC_DATA, &cut, &scratch, &e), -ENOTSUP);
    /* op, tensor, axis, both placements and the primitive by name */
    ck_assert_ptr_nonnull(strstr(e.text, "op 2 (affine, layer 0)"));
    ck_assert_ptr_nonnull(strstr(e.text, "x as R instead of S(batch) on axis data: one all-gather"));
    kc_arena_free(&scratch);
    kc_arena_free(&a);
    toy_free(&t);
}
END_TEST

/* ---- buckets ---- */

static void check_buckets(const struct kc_shard_plan *s)
{
    const struct kc_plan_bucket *buckets = KC_AT(s, struct kc_plan_bucket, s->buckets);
    const struct kc_plan_segment *segments = KC_AT(s, struct kc_plan_segment, s->segments);
    const struct kc_plan_tensor *tensors = KC_AT(s, struct kc_plan_tensor, s->tensors);
    uint32_t seen[64] = {0}, next = 0;
    for (uint32_t b = 0; b < s->buckets.count; b++) {
        ck_assert_uint_eq(buckets[b].segments_first, next);
        ck_assert_uint_eq(buckets[b].shard * buckets[b].shards, buckets[b].count); /* shards cover exactly */
        ck_assert_uint_eq(buckets[b].shard % KC_ALIGN_ELEMENTS, 0);
        ck_assert_uint_eq(buckets[b].shards, s->axis[KC_DATA]);
        uint64_t end = 0;
        for (uint32_t i = 0; i < buckets[b].segments_count; i++) {
            const struct kc_plan_segment *g = &segments[next++];
            const struct kc_plan_tensor *p = &tensors[g->tensor];
            ck_assert_uint_ge(g->offset, end); /* ascending, no overlap */
            ck_assert_uint_eq(g->offset % KC_ALIGN_ELEMENTS, 0);
            uint64_t n = 1;
            for (int d = 0; d < p->rank; d++)
                n *= p->global[d];
            ck_assert_uint_eq(g->count, n);
            ck_assert_uint_eq(g->decay, p->decay);
            ck_assert_int_eq(p->bucket, (int)b);
            ck_assert_uint_eq(p->offset, g->offset);
            end = g->offset + g->count;
            seen[g->tensor]++;
        }
        ck_assert_uint_le(end, buckets[b].count);
        ck_assert_uint_lt(buckets[b].count - end, (uint64_t)buckets[b].shards * KC_ALIGN_ELEMENTS);
    }
    for (uint32_t t = 0; t < s->tensors.count; t++) {
        ck_assert_uint_eq(seen[t], tensors[t].role == KC_PARAMETER);
        if (tensors[t].role == KC_GRADIENT) {
            ck_assert_int_eq(tensors[t].bucket, tensors[tensors[t].of].bucket);
            ck_assert_uint_eq(tensors[t].offset, tensors[tensors[t].of].offset);
        }
    }
}

START_TEST(buckets_hold_every_parameter_once_and_shards_cover_them)
{
    for (uint32_t ranks = 1; ranks <= 64; ranks *= 4) {
        struct toy_shape shape = small;
        shape.ranks = ranks, shape.sequences = 2 * ranks, shape.hidden = 1000;
        struct toy t;
        toy_plan(&t, shape);
        check_buckets(t.shard);
        toy_free(&t);
    }
}
END_TEST

START_TEST(buckets_stand_in_the_order_in_which_backward_completes_them)
{
    struct toy_shape shape = small;
    shape.hidden = 20000; /* a layer is 160 kB: a bucket a layer */
    struct toy t;
    toy_plan(&t, shape);
    const struct kc_plan_bucket *b = KC_AT(t.shard, struct kc_plan_bucket, t.shard->buckets);
    ck_assert_uint_eq(t.shard->buckets.count, 4);
    ck_assert_int_eq(b[0].layer, 2);
    ck_assert_int_eq(b[1].layer, 1);
    ck_assert_int_eq(b[2].layer, 0);
    ck_assert_int_eq(b[3].layer, -1); /* the tied embedding: its last gradient comes from the first op */
    /* pieces smaller than what is worth an operation share one */
    struct toy u;
    toy_plan(&u, small);
    ck_assert_uint_eq(u.shard->buckets.count, 1);
    toy_free(&u);
    toy_free(&t);
}
END_TEST

START_TEST(a_bucket_never_exceeds_its_limit_unless_one_tensor_does)
{
    struct toy_shape shape = small;
    shape.hidden = 1u << 20, shape.latency_ns = 1e9; /* 4 MiB a tensor; latency asks for one huge bucket */
    struct toy t;
    toy_plan(&t, shape);
    const struct kc_plan_bucket *b = KC_AT(t.shard, struct kc_plan_bucket, t.shard->buckets);
    for (uint32_t i = 0; i < t.shard->buckets.count; i++)
        ck_assert_msg(b[i].count * 4 <= BUCKET_BYTES_MAX || b[i].segments_count == 1, "bucket %u", i);
    ck_assert_uint_gt(t.shard->buckets.count, 1);
    check_buckets(t.shard);
    toy_free(&t);
}
END_TEST

/* ---- plans ---- */

static uint32_t count_purpose(const struct toy *t, enum kc_purpose purpose, enum kc_primitive primitive)
{
    const struct kc_plan_collective *c = KC_AT(t->comm, struct kc_plan_collective, t->comm->collectives);
    uint32_t n = 0;
    for (uint32_t i = 0; i < t->comm->collectives.count; i++)
        n += c[i].purpose == purpose && c[i].primitive == primitive;
    return n;
}

START_TEST(zero_decides_the_primitive_of_gradients_by_the_same_conversion)
{
    struct toy t;
    struct toy_shape shape = small;
    toy_plan(&t, shape);
    uint32_t buckets = t.shard->buckets.count;
    ck_assert_uint_eq(count_purpose(&t, KC_PURPOSE_GRADIENT, KC_REDUCE_SCATTER), buckets);
    ck_assert_uint_eq(count_purpose(&t, KC_PURPOSE_PARAMETER, KC_ALL_GATHER), buckets);
    const struct kc_plan_collective *c = KC_AT(t.comm, struct kc_plan_collective, t.comm->collectives);
    const struct kc_plan_bucket *b = KC_AT(t.shard, struct kc_plan_bucket, t.shard->buckets);
    ck_assert_uint_eq(c[0].count, b[0].count); /* reduce-scatter: the whole input */
    toy_free(&t);

    shape.zero = 0;
    toy_plan(&t, shape);
    ck_assert_uint_eq(count_purpose(&t, KC_PURPOSE_GRADIENT, KC_ALL_REDUCE), buckets);
    ck_assert_uint_eq(count_purpose(&t, KC_PURPOSE_PARAMETER, KC_ALL_GATHER), 0);
    ck_assert_uint_eq(count_purpose(&t, KC_PURPOSE_AGREE, KC_ALL_REDUCE), 1);
    ck_assert_uint_eq(count_purpose(&t, KC_PURPOSE_DIGEST, KC_ALL_GATHER), 1);
    ck_assert_uint_eq(count_purpose(&t, KC_PURPOSE_ROOT, KC_ALL_REDUCE), 1);
    ck_assert_uint_eq(count_purpose(&t, KC_PURPOSE_STORE, KC_ALL_REDUCE), 1);
    toy_free(&t);
}
END_TEST

/* Gradients are reduced in f32 and parameters gathered as they are kept: half the bytes. What shares a bucket does not
 * depend on it. */
START_TEST(precision_decides_the_type_that_parameters_travel_in)
{
    struct toy t, u;
    struct toy_shape half = small;
    half.hidden = 20000, half.precision = KC_PRECISION_BF16;
    struct toy_shape full = half;
    full.precision = KC_PRECISION_FP32;
    toy_plan(&t, half);
    toy_plan(&u, full);
    check_buckets(t.shard);
    const struct kc_plan_bucket *b = KC_AT(t.shard, struct kc_plan_bucket, t.shard->buckets);
    const struct kc_plan_bucket *f = KC_AT(u.shard, struct kc_plan_bucket, u.shard->buckets);
    ck_assert_uint_eq(t.shard->buckets.count, u.shard->buckets.count);
    for (uint32_t i = 0; i < t.shard->buckets.count; i++) {
        ck_assert(b[i].type == KC_BF16 && f[i].type == KC_F32);
        ck_assert(b[i].count == f[i].count && b[i].shard == f[i].shard);
        ck_assert(kc_bucket_has_master(&b[i]) && !kc_bucket_has_master(&f[i]));
    }
    const struct kc_plan_collective *c = KC_AT(t.comm, struct kc_plan_collective, t.comm->collectives);
    for (uint32_t i = 0; i < t.comm->collectives.count; i++)
        if (c[i].bucket >= 0)
            ck_assert_uint_eq(c[i].type, c[i].purpose == KC_PURPOSE_PARAMETER ? KC_BF16 : KC_F32);
    toy_free(&t);
    toy_free(&u);
}
END_TEST

/* One tensor that stays f32 among others that are bf16: what is gathered at once has one type. */
START_TEST(a_bucket_holds_parameters_of_one_type)
{
    struct toy t;
    struct toy_shape shape = small;
    struct kc_error e = {""};
    shape.precision = KC_PRECISION_BF16;
    toy_make(&t, shape);
    struct kc_model_graph *g = malloc(t.graph->head.bytes);
    memcpy(g, t.graph, t.graph->head.bytes);
    struct kc_graph_tensor *tensor = (void *)((char *)g + g->tensors.offset);
    int32_t changed = 0;
    while (tensor[changed].role != KC_PARAMETER || tensor[changed].layer != 1)
        changed++;
    tensor[changed].type = KC_F32;
    ck_assert_int_eq(kc_arena_new(&t.arena[4], 4u << 20), 0);
    ck_assert_int_eq(kc_arena_new(&t.arena[5], 4u << 20), 0);
    ck_assert_int_eq(kc_strategy_plan(g, t.spec, t.devices, t.costs, (struct kc_strategy_opcodes){.update = TOY_UPDATE, .norm = TOY_NORM},
                                      &t.arena[4], &t.arena[5], &t.shard, &t.comm, &e),
                     0);
    check_buckets(t.shard);
    const struct kc_plan_bucket *b = KC_AT(t.shard, struct kc_plan_bucket, t.shard->buckets);
    const struct kc_plan_tensor *p = KC_AT(t.shard, struct kc_plan_tensor, t.shard->tensors);
    ck_assert_uint_eq(t.shard->buckets.count, 2); /* the others, it alone */
    for (uint32_t i = 0; i < t.shard->tensors.count; i++)
        if (p[i].role == KC_PARAMETER)
            ck_assert_uint_eq(b[p[i].bucket].type, p[i].type);
    free(g);
    toy_free(&t);
}
END_TEST

START_TEST(which_gradients_share_a_reduction_is_decided_here)
{
    struct toy_shape cheap = small, dear = small;
    cheap.hidden = dear.hidden = 20000;
    cheap.latency_ns = 1, dear.latency_ns = 1e6; /* 2 GB/s x 1 ms x 7: latency asks for larger buckets */
    struct toy t, u;
    toy_plan(&t, cheap);
    toy_plan(&u, dear);
    ck_assert_uint_eq(count_purpose(&t, KC_PURPOSE_GRADIENT, KC_REDUCE_SCATTER), 4);
    ck_assert_uint_eq(count_purpose(&u, KC_PURPOSE_GRADIENT, KC_REDUCE_SCATTER), 1);
    toy_free(&t);
    toy_free(&u);
}
END_TEST

START_TEST(the_cheaper_algorithm_is_named)
{
    /* toy costs: ring has twice the bandwidth, and (n-1) times the steps. With 2 ranks both take one step. */
    struct toy t;
    struct toy_shape shape = small;
    shape.ranks = 8, shape.sequences = 16, shape.latency_ns = 1000;
    toy_make(&t, shape);
    ck_assert_int_eq(kc_costs_algorithm(t.costs, KC_ALL_REDUCE, KC_DISTANCE_MACHINE, 8, 64), KC_DIRECT);
    ck_assert_int_eq(kc_costs_algorithm(t.costs, KC_ALL_REDUCE, KC_DISTANCE_MACHINE, 8, 1u << 24), KC_RING);
    ck_assert_int_eq(kc_costs_algorithm(t.costs, KC_ALL_REDUCE, KC_DISTANCE_FAR, 8, 1u << 24),
                     KC_DIRECT); /* no row */
    /* the border: 2 µs + b/2 GB/s = 14 µs + b/4 GB/s at b = 48,000 */
    ck_assert_int_eq(kc_costs_algorithm(t.costs, KC_ALL_REDUCE, KC_DISTANCE_MACHINE, 8, 47900), KC_DIRECT);
    ck_assert_int_eq(kc_costs_algorithm(t.costs, KC_ALL_REDUCE, KC_DISTANCE_MACHINE, 8, 48100), KC_RING);
    /* which cores of one machine a job got changes no plan: same core, same NUMA node or not is all one distance */
    uint32_t ranks[] = {0, 1};
    ck_assert_int_eq(kc_costs_distance(t.devices, ranks, 1), KC_DISTANCE_MACHINE);
    ck_assert_int_eq(kc_costs_distance(t.devices, ranks, 2), KC_DISTANCE_MACHINE);
    toy_free(&t);
}
END_TEST

START_TEST(an_algorithm_of_the_spec_beats_the_table)
{
    static const struct {
        enum kc_choice choice;
        enum kc_algorithm gives;
    } cases[] = {{KC_CHOICE_DIRECT, KC_DIRECT}, {KC_CHOICE_RING, KC_RING}};
    for (size_t i = 0; i < 2; i++) {
        struct toy t;
        struct toy_shape shape = small;
        shape.algorithm = cases[i].choice;
        toy_plan(&t, shape);
        const struct kc_plan_collective *c = KC_AT(t.comm, struct kc_plan_collective, t.comm->collectives);
        ck_assert_uint_gt(t.comm->collectives.count, 3);
        for (uint32_t k = 0; k < t.comm->collectives.count; k++)
            ck_assert_uint_eq(c[k].algorithm, cases[i].gives);
        toy_free(&t);
    }
}
END_TEST

START_TEST(the_same_arguments_give_the_same_bytes)
{
    struct toy t, u;
    toy_plan(&t, small);
    toy_plan(&u, small);
    ck_assert_uint_eq(t.shard->head.bytes, u.shard->head.bytes);
    ck_assert_mem_eq(t.shard, u.shard, t.shard->head.bytes);
    ck_assert_mem_eq(t.comm, u.comm, t.comm->head.bytes);
    toy_free(&t);
    toy_free(&u);
}
END_TEST

START_TEST(local_shapes_follow_the_batch_axis)
{
    struct toy t;
    toy_plan(&t, small);
    const struct kc_plan_tensor *tensors = KC_AT(t.shard, struct kc_plan_tensor, t.shard->tensors);
    ck_assert_uint_eq(tensors[t.shard->tokens].global[0], 4);
    ck_assert_uint_eq(tensors[t.shard->tokens].local[0], 2);
    ck_assert_uint_eq(t.shard->micro_batches, 2);
    const struct kc_plan_op *ops = KC_AT(t.shard, struct kc_plan_op, t.shard->ops);
    ck_assert_uint_eq(ops[1].flops, 500);
    toy_free(&t);
}
END_TEST

/* Plans with a changed spec; returns the error. */
static int plan_with(const struct toy *t, void (*change)(struct kc_job_spec *), size_t room, struct kc_error *e)
{
    struct kc_arena shard, comm;
    ck_assert_int_eq(kc_arena_new(&shard, room), 0);
    ck_assert_int_eq(kc_arena_new(&comm, 65536), 0);
    struct kc_job_spec spec = *t->spec;
    change(&spec);
    const struct kc_shard_plan *s = NULL;
    const struct kc_comm_plan *c = NULL;
    int r = kc_strategy_plan(t->graph, &spec, t->devices, t->costs, (struct kc_strategy_opcodes){0}, &shard, &comm,
                             &s, &c, e);
    if (r < 0) {
        ck_assert_ptr_null(s); /* outputs untouched */
        ck_assert_ptr_null(c);
    }
    if (r == -ENOSPC)
        ck_assert_uint_gt(shard.need, room);
    kc_arena_free(&shard);
    kc_arena_free(&comm);
    return r;
}

static void uneven_batch(struct kc_job_spec *s)
{
    s->sequences = 10;
}
static void wrong_product(struct kc_job_spec *s)
{
    s->axis[KC_PIPELINE] = 3;
}
static void wrong_ranks(struct kc_job_spec *s)
{
    s->ranks = 4, s->axis[KC_DATA] = 4;
}
static void unchanged(struct kc_job_spec *s)
{
    (void)s;
}

START_TEST(F48_what_cannot_be_cut_is_refused_with_all_numbers)
{
    struct toy t;
    toy_make(&t, small);
    struct kc_error e = {""};
    ck_assert_int_eq(plan_with(&t, uneven_batch, 1u << 20, &e), -EINVAL);
    ck_assert_str_eq(e.text,
                     "batch.sequences 10 is not a multiple of batch.micro 2 x parallel.expert 1 x parallel.data 2 = 4; "
                     "12 would do");
    ck_assert_int_eq(plan_with(&t, wrong_product, 1u << 20, &e), -EINVAL);
    ck_assert_str_eq(e.text, "ranks = 2, but tensor·context·expert·data·pipeline = 1·1·1·2·3 = 6");
    ck_assert_int_eq(plan_with(&t, wrong_ranks, 1u << 20, &e), -EINVAL);
    ck_assert_ptr_nonnull(strstr(e.text, "ranks 4, but the device view has 2 devices"));
    toy_free(&t);
}
END_TEST

START_TEST(a_small_arena_is_told_and_a_larger_one_works)
{
    struct toy_shape shape = small;
    shape.layers = 30;
    struct toy t;
    toy_make(&t, shape);
    struct kc_error e = {""};
    int r = -ENOSPC;
    size_t room = 4096;
    ck_assert_int_eq(plan_with(&t, unchanged, room, &e), -ENOSPC);
    while (room < (1u << 20) && (r = plan_with(&t, unchanged, room, &e)) == -ENOSPC)
        room *= 2;
    ck_assert_int_eq(r, 0);
    toy_free(&t);
}
END_TEST

START_TEST(a_plan_prints_as_json)
{
    struct toy t;
    toy_plan(&t, small);
    json_t *j = kc_contract_json(t.shard, &kc_shard_plan_layout);
    json_t *b = json_array_get(json_object_get(j, "buckets"), 0);
    ck_assert_int_gt(json_integer_value(json_object_get(b, "count")), 0);
    json_decref(j);
    toy_free(&t);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("strategy");
    TCase *t = tcase_create("placement");
    tcase_add_test(t, every_pair_of_placements_converts_by_the_table);
    tcase_add_test(t, conversions_cost_what_moves);
    tcase_add_test(t, propagation_places_both_halves);
    tcase_add_test(t, a_missing_rule_is_refused_with_the_conversion_that_would_do);
    suite_add_tcase(s, t);
    t = tcase_create("buckets");
    tcase_add_test(t, buckets_hold_every_parameter_once_and_shards_cover_them);
    tcase_add_test(t, buckets_stand_in_the_order_in_which_backward_completes_them);
    tcase_add_test(t, a_bucket_never_exceeds_its_limit_unless_one_tensor_does);
    suite_add_tcase(s, t);
    t = tcase_create("plans");
    tcase_add_test(t, zero_decides_the_primitive_of_gradients_by_the_same_conversion);
    tcase_add_test(t, precision_decides_the_type_that_parameters_travel_in);
    tcase_add_test(t, a_bucket_holds_parameters_of_one_type);
    tcase_add_test(t, which_gradients_share_a_reduction_is_decided_here);
    tcase_add_test(t, the_cheaper_algorithm_is_named);
    tcase_add_test(t, an_algorithm_of_the_spec_beats_the_table);
    tcase_add_test(t, the_same_arguments_give_the_same_bytes);
    tcase_add_test(t, local_shapes_follow_the_batch_axis);
    tcase_add_test(t, F48_what_cannot_be_cut_is_refused_with_all_numbers);
    tcase_add_test(t, a_small_arena_is_told_and_a_larger_one_works);
    tcase_add_test(t, a_plan_prints_as_json);
    suite_add_tcase(s, t);
    return suite_run(s);
}
