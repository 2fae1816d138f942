/* pipeline.c - see pipeline.h. Two walks over the ops: where in the model each stands, then, when the layers are cut, its stage
 * and what it reads of other stages. */
#include "pipeline.h"

#include "scratch.h"
#include "stage.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

/* Where an op stands, or what made a tensor: the number of a layer, or one of these. */
enum { FROM_EVERY = -3, FROM_FIRST = -2, FROM_LAST = -1 }; /* needs only inputs; before the layers; behind them */

struct build {
    struct kc_shard_plan *plan;
    struct kc_plan_op *ops;
    const struct kc_plan_tensor *tensors;
    int32_t *place; /* by op */
    int32_t *from;  /* by tensor: place of the op that makes it */
    uint32_t *first; /* by stage: its first layer */
    uint32_t stages, layers;
};

static const int32_t *inputs(const struct build *b, uint32_t op)
{
    return KC_AT(b->plan, int32_t, b->ops[op].in);
}

/* ---- where an op stands ---- */

/* Of an op outside of the layers. Forward: behind them if anything it reads comes from them. Backward: before them if a
 * derivative comes from them, or it goes on with one that is before them. */
static int32_t place_outside(const struct build *b, uint32_t op)
{
    const int32_t *in = inputs(b, op);
    bool layers = false, last = false, derivative = false, first = false;
    for (uint32_t i = 0; i < b->ops[op].in.count; i++) {
        if (in[i] < 0 || b->tensors[in[i]].role == KC_PARAMETER)
            continue;
        const int32_t from = b->from[in[i]];
        derivative |= from >= 0 && b->tensors[in[i]].role == KC_DERIVATIVE;
        layers |= from >= 0;
        last |= from == FROM_LAST;
        first |= from == FROM_FIRST && b->tensors[in[i]].role == KC_DERIVATIVE;
    }
    if (derivative || first)
        return FROM_FIRST;
    return layers || last ? FROM_LAST : FROM_FIRST;
}

static int32_t place_of(const struct build *b, uint32_t op)
{
    const int32_t *in = inputs(b, op);
    bool bound = false; /* to a stage */
    for (uint32_t i = 0; i < b->ops[op].in.count; i++)
        bound |= in[i] >= 0 && (b->tensors[in[i]].role == KC_PARAMETER || b->from[in[i]] != FROM_EVERY);
    if (!bound)
        return FROM_EVERY;
    return b->ops[op].layer >= 0 ? b->ops[op].layer : place_outside(b, op);
}

static void find_places(struct build *b)
{
    for (uint32_t t = 0; t < b->plan->tensors.count; t++)
        b->from[t] = FROM_EVERY;
    for (uint32_t o = 0; o < b->plan->ops.count; o++) {
        const int32_t *out = KC_AT(b->plan, int32_t, b->ops[o].out);
        b->place[o] = place_of(b, o);
        for (uint32_t i = 0; i < b->ops[o].out.count; i++)
            if (out[i] >= 0)
                b->from[out[i]] = b->place[o];
    }
}

/* ---- stages ---- */

static bool trains(const struct build *b, uint32_t op)
{
    return op < b->plan->evaluate_first || op >= b->plan->backward_first;
}

static int cut(struct build *b, const struct kc_job_spec *spec, struct kc_arena *arena, struct kc_error *e)
{
    struct kc_layer_costs costs = {.layers = b->layers};
    uint64_t *layer = kc_scratch_take(arena, b->layers, sizeof *layer);
    if (!layer)
        return -ENOSPC;
    for (uint32_t o = 0; o < b->plan->ops.count; o++) {
        const int32_t at = b->place[o];
        const uint64_t flops = trains(b, o) ? b->ops[o].flops : 0;
        if (at >= 0 && (uint32_t)at >= b->layers)
            return kc_fail(e, -EINVAL, "op %u is of layer %d, there are %u; the model graph is wrong", o, at, b->layers);
        if (at != FROM_EVERY)
            *(at >= 0 ? &layer[at] : at == FROM_FIRST ? &costs.embedding : &costs.head) += flops;
    }
    costs.layer = layer;
    return kc_stage_cut(&costs, spec->axis[KC_PIPELINE], b->plan->chunks, b->first, e);
}

static int32_t stage_of(const struct build *b, int32_t place)
{
    int32_t s = (int32_t)b->stages - 1;
    if (place == FROM_EVERY)
        return KC_EVERY_STAGE;
    if (place < 0)
        return place == FROM_FIRST ? 0 : s;
    while (b->first[s] > (uint32_t)place)
        s--;
    return s;
}

static int stages_write(struct build *b, const struct kc_job_spec *spec, struct kc_arena *arena)
{
    struct kc_plan_stage *stages = kc_contract_array(arena, &b->plan->stages, b->stages, sizeof *stages);
    if (!stages)
        return -ENOSPC;
    for (uint32_t s = 0; s < b->stages; s++) {
        stages[s].coordinate =
            kc_stage_coordinate((enum kc_pipeline)spec->pipeline, spec->axis[KC_PIPELINE], b->plan->chunks, s);
        stages[s].layer_first = b->first[s], stages[s].layers = b->first[s + 1] - b->first[s];
    }
    for (uint32_t o = 0; o < b->plan->ops.count; o++) {
        struct kc_plan_op *op = &b->ops[o];
        op->stage = stage_of(b, b->place[o]);
        if (op->stage < 0 || !trains(b, o))
            continue;
        struct kc_plan_stage *s = &stages[op->stage];
        *(o < b->plan->backward_first ? &s->f : op->klass == KC_WEIGHT_GRADIENT ? &s->w : &s->i) += op->flops;
    }
    return 0;
}

/* ---- links ---- */

enum { READ_BEFORE = 1, READ_BEHIND = 2 }; /* by the stage before the one that makes it, by the one behind */

static int find_readers(const struct build *b, uint8_t *readers, struct kc_error *e)
{
    for (uint32_t o = 0; o < b->plan->ops.count; o++)
        for (uint32_t i = 0; i < b->ops[o].in.count; i++) {
            const int32_t t = inputs(b, o)[i], at = b->ops[o].stage;
            if (t < 0 || b->tensors[t].role == KC_PARAMETER || b->from[t] == FROM_EVERY)
                continue;
            const int32_t made = stage_of(b, b->from[t]);
            if (at != made && at != made + 1 && at != made - 1)
                return kc_fail(e, -EINVAL,
                               "%s is made by stage %d and read by stage %d of the pipeline; stages pass tensors to their "
                               "neighbours alone. Lower parallel.pipeline or parallel.chunks",
                               KC_TEXT(b->plan, b->tensors[t].name), made, at);
            readers[t] |= at == made ? 0 : at < made ? READ_BEFORE : READ_BEHIND;
        }
    return 0;
}

static int links_write(struct build *b, uint32_t collectives, struct kc_arena *arena, struct kc_error *e)
{
    const struct kc_plan_stage *stages = KC_AT(b->plan, struct kc_plan_stage, b->plan->stages);
    uint8_t *readers = kc_scratch_take(arena, b->plan->tensors.count, 1);
    if (!readers)
        return -ENOSPC;
    int r = find_readers(b, readers, e);
    if (r < 0)
        return r;
    uint32_t count = 0, n = 0;
    for (uint32_t t = 0; t < b->plan->tensors.count; t++)
        count += (readers[t] & 1) + (readers[t] >> 1);
    struct kc_plan_link *links = kc_contract_array(arena, &b->plan->links, count, sizeof *links);
    if (!links)
        return -ENOSPC;
    for (uint32_t t = 0; t < b->plan->tensors.count; t++)
        for (uint32_t way = READ_BEFORE; way <= READ_BEHIND; way++) {
            if (!(readers[t] & way))
                continue;
            const uint32_t from = (uint32_t)stage_of(b, b->from[t]), to = way == READ_BEFORE ? from - 1 : from + 1;
            const bool apart = stages[from].coordinate != stages[to].coordinate;
            links[n++] = (struct kc_plan_link){.tensor = (int32_t)t,
                                               .from = from,
                                               .to = to,
                                               .send = apart ? (int32_t)collectives : -1,
                                               .recv = apart ? (int32_t)collectives + 1 : -1};
            collectives += apart ? 2 : 0;
        }
    return 0;
}

int kc_pipeline_build(const struct kc_job_spec *spec, const uint32_t *borders, uint32_t collectives, struct kc_shard_plan *plan,
                      struct kc_arena *arena, struct kc_error *e)
{
    struct build b = {.plan = plan,
                      .ops = (void *)(arena->base + plan->ops.offset),
                      .tensors = KC_AT(plan, struct kc_plan_tensor, plan->tensors),
                      .layers = spec->layers};
    plan->pipeline = spec->pipeline;
    plan->chunks = spec->chunks ? spec->chunks : 1;
    b.stages = spec->axis[KC_PIPELINE] * plan->chunks;
    b.place = kc_scratch_take(arena, plan->ops.count, sizeof *b.place);
    b.from = kc_scratch_take(arena, plan->tensors.count, sizeof *b.from);
    b.first = kc_scratch_take(arena, b.stages + 1u, sizeof *b.first);
    if (!b.place || !b.from || !b.first)
        return -ENOSPC;
    find_places(&b);
    if (borders)
        memcpy(b.first, borders, (b.stages + 1) * sizeof *b.first);
    int r = borders ? 0 : cut(&b, spec, arena, e);
    if (r == 0)
        r = stages_write(&b, spec, arena);
    return r < 0 ? r : links_write(&b, collectives, arena, e);
}
