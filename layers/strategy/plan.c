/* plan.c - the one way in: checks what the spec asks for, then shard plan, then communication plan. */
#include "strategy/strategy.h"

#include "bucket.h"
#include "collectives.h"
#include "costs.h"
#include "placement.h"
#include "scratch.h"
#include "shard.h"

#include <errno.h>
#include <string.h>

static int check_mesh(const struct kc_job_spec *spec, const struct kc_device_view *devices, struct kc_error *e)
{
    uint64_t product = 1;
    for (int a = 0; a < KC_AXES; a++)
        product *= spec->axis[a];
    if (product != spec->ranks || spec->ranks == 0)
        return kc_fail(e, -EINVAL, "ranks = %u, but tensor·context·expert·data·pipeline = %u·%u·%u·%u·%u = %llu",
                       spec->ranks, spec->axis[KC_TENSOR], spec->axis[KC_CONTEXT], spec->axis[KC_EXPERT], spec->axis[KC_DATA],
                       spec->axis[KC_PIPELINE], (unsigned long long)product);
    if (spec->ranks > KC_PLAN_RANKS_MAX)
        return kc_fail(e, -EINVAL, "ranks = %u, at most %d", spec->ranks, KC_PLAN_RANKS_MAX);
    if (spec->recompute == KC_RECOMPUTE_AUTO)
        return kc_fail(e, -EINVAL, "parallel.recompute is auto: who knows what memory a plan needs sets the layers (startup.c)");
    if (devices->devices.count != spec->ranks)
        return kc_fail(e, -EINVAL, "ranks %u, but the device view has %u devices; one device a rank", spec->ranks,
                       devices->devices.count);
    return 0;
}

/* Bytes from which a bucket is worth an operation of its own, among the ranks that share what is dense: those of all axes
 * between the fastest and the slowest. */
static uint64_t bucket_target(const struct kc_job_spec *spec, const struct kc_device_view *devices,
                              const struct kc_comm_costs *costs)
{
    uint32_t ranks[KC_PLAN_RANKS_MAX];
    const uint32_t count = spec->axis[KC_CONTEXT] * spec->axis[KC_EXPERT] * spec->axis[KC_DATA];
    for (uint32_t i = 0; i < count; i++)
        ranks[i] = i * spec->axis[KC_TENSOR];
    struct kc_conversion how =
        kc_placement_convert(place_partial(KC_SUM), spec->zero ? place_sharded(KC_FLAT) : place_replicated());
    double bytes = kc_costs_worthwhile(costs, (enum kc_primitive)how.primitive,
                                       kc_costs_distance(devices, ranks, count), count);
    if (bytes < (double)BUCKET_BYTES_MIN)
        return BUCKET_BYTES_MIN;
    return bytes > (double)BUCKET_BYTES_MAX ? BUCKET_BYTES_MAX : (uint64_t)bytes;
}

/* Where not all layers are made again: the stages of the model as if none were. Which of them are can only be told when they are
 * there, and must not move them. *out in scratch memory; the arena is as it was. */
static int borders_find(const struct kc_model_graph *graph, const struct kc_job_spec *spec, struct kc_strategy_opcodes opcodes,
                        struct kc_arena *arena, uint32_t **out, struct kc_error *e)
{
    struct kc_job_spec plain = *spec; /* strategy reads no span of it */
    const uint32_t stages = spec->axis[KC_PIPELINE] * (spec->chunks ? spec->chunks : 1);
    struct kc_shard_plan *plan;
    struct kc_made made;
    uint32_t *borders = kc_scratch_take(arena, stages + 1u, sizeof *borders);
    const size_t size = arena->size;
    if (!borders)
        return kc_fail(e, -ENOSPC, "the shard plan needs %zu bytes, its arena has %zu", arena->need, arena->size);
    plain.recompute = KC_RECOMPUTE_NONE;
    const int r = kc_shard_build(graph, &plain, NULL, opcodes, arena, &plan, &made, e);
    if (r < 0)
        return r;
    for (uint32_t s = 0; s < stages; s++)
        borders[s] = KC_AT(plan, struct kc_plan_stage, plan->stages)[s].layer_first;
    borders[stages] = spec->layers;
    kc_scratch_end(arena, size);
    memset(arena->base, 0, arena->used);
    arena->used = arena->need = 0;
    *out = borders;
    return 0;
}

/* The shard plan with its buckets, and the communication plan: neither is sealed. */
static int plans_build(const struct kc_model_graph *graph, const struct kc_job_spec *spec,
                       const struct kc_device_view *devices, const struct kc_comm_costs *costs,
                       struct kc_strategy_opcodes opcodes, struct kc_arena *shard_arena, struct kc_arena *comm_arena,
                       struct kc_shard_plan **shard, struct kc_comm_plan **comm, struct kc_error *e)
{
    const size_t size = shard_arena->size;
    struct kc_made made;
    uint32_t *borders = NULL;
    int r = spec->recompute_layers ? borders_find(graph, spec, opcodes, shard_arena, &borders, e) : 0;
    if (r == 0)
        r = kc_shard_build(graph, spec, borders, opcodes, shard_arena, shard, &made, e);
    if (r == 0) {
        struct kc_plan_tensor *tensors = (void *)(shard_arena->base + (*shard)->tensors.offset);
        r = kc_bucket_layout(*shard, shard_arena, tensors, bucket_target(spec, devices, costs), e);
    }
    if (r == 0)
        r = kc_collectives_build(spec, *shard, &made, devices, costs, comm_arena, comm, e);
    kc_scratch_end(shard_arena, size);
    return r;
}

int kc_strategy_plan(const struct kc_model_graph *graph, const struct kc_job_spec *spec,
                     const struct kc_device_view *devices, const struct kc_comm_costs *costs,
                     struct kc_strategy_opcodes opcodes, struct kc_arena *shard_arena, struct kc_arena *comm_arena,
                     const struct kc_shard_plan **shard, const struct kc_comm_plan **comm, struct kc_error *e)
{
    struct kc_shard_plan *s = NULL;
    struct kc_comm_plan *c = NULL;
    int r = check_mesh(spec, devices, e);
    if (r < 0 || (r = plans_build(graph, spec, devices, costs, opcodes, shard_arena, comm_arena, &s, &c, e)) < 0)
        return r;
    if ((r = kc_contract_seal(shard_arena)) < 0)
        return kc_fail(e, r, "the shard plan needs %zu bytes, its arena has %zu", shard_arena->need,
                       shard_arena->size);
    if ((r = kc_contract_seal(comm_arena)) < 0)
        return kc_fail(e, r, "the communication plan needs %zu bytes, its arena has %zu", comm_arena->need,
                       comm_arena->size);
    *shard = s;
    *comm = c;
    return 0;
}
