/* turns.c - see turns.h. */
#include "turns.h"

#include "memory.h"

#include <errno.h>
#include <stdlib.h>

static const struct kc_plan_op *op_at(const struct kc_turns *t, uint32_t op)
{
    return KC_AT(t->shard, struct kc_plan_op, t->shard->ops) + op;
}

/* ---- which op belongs to which list ---- */

/* By op: may it run after the turn that passes its stage's gradient on? Only what makes gradients of weights, and nothing
 * that another op of that turn reads. */
static uint8_t *find_late(const struct kc_turns *t)
{
    const struct kc_shard_plan *s = t->shard;
    const struct kc_plan_link *links = KC_AT(s, struct kc_plan_link, s->links);
    uint8_t *late = calloc(s->ops.count + 1u, 1), *needed = calloc(s->tensors.count + 1u, 1);
    for (uint32_t l = 0; needed && l < s->links.count; l++)
        needed[links[l].tensor] = 1;
    for (uint32_t o = s->ops.count; late && needed && o-- > s->backward_first;) {
        const struct kc_plan_op *op = op_at(t, o);
        late[o] = op->klass == KC_WEIGHT_GRADIENT;
        for (uint32_t i = 0; i < op->out.count; i++) {
            const int32_t made = KC_AT(s, int32_t, op->out)[i];
            late[o] &= !(made >= 0 && needed[made]);
        }
        for (uint32_t i = 0; i < op->in.count && !late[o]; i++)
            if (KC_AT(s, int32_t, op->in)[i] >= 0)
                needed[KC_AT(s, int32_t, op->in)[i]] = 1;
    }
    free(needed);
    return late;
}

static bool belongs(const struct kc_turns *t, uint32_t op, uint32_t stage, enum turn_list list, bool late)
{
    const int32_t at = op_at(t, op)->stage;
    const bool here = at == (int32_t)stage || (at == KC_EVERY_STAGE && t->chunk[stage] == 0);
    const bool backward = op >= t->shard->backward_first && at != KC_EVERY_STAGE; /* who reads it may come in any order */
    if (!here)
        return false;
    switch (list) {
    case TURN_EVALUATE:
        return kc_plan_runs(t->shard, KC_PROGRAM_EVALUATE, op);
    case TURN_SAMPLE:
        return kc_plan_runs(t->shard, KC_PROGRAM_FORWARD, op);
    case TURN_F:
        return kc_plan_runs(t->shard, KC_PROGRAM_TRAIN, op) && !backward;
    default:
        return backward && (late && t->split) == (list == TURN_W);
    }
}

/* An op of every stage is in the forward of the first stage that a rank has: once a micro-batch, before all others. */
static int list_ops(struct kc_turns *t)
{
    const uint32_t ops = t->shard->ops.count;
    uint32_t n = 0;
    uint8_t *late = find_late(t);
    t->ops = malloc(((size_t)ops * 3 * (t->stages + 1u) + 1) * sizeof *t->ops); /* in three lists at most; those of every
                                                                                  stage in as many as there are stages */
    t->first = calloc((size_t)t->stages * TURN_LISTS + 1, sizeof *t->first);
    for (uint32_t i = 0; late && t->ops && t->first && i < t->stages * TURN_LISTS; i++) {
        for (int every = 1; every >= 0; every--)
            for (uint32_t o = 0; o < ops; o++)
                if ((op_at(t, o)->stage == KC_EVERY_STAGE) == every &&
                    belongs(t, o, i / TURN_LISTS, (enum turn_list)(i % TURN_LISTS), late[o]))
                    t->ops[n++] = o;
        t->first[i + 1] = n;
    }
    const int code = late && t->ops && t->first ? 0 : -ENOMEM;
    free(late);
    return code;
}

static int list_links(struct kc_turns *t)
{
    const struct kc_shard_plan *s = t->shard;
    const struct kc_plan_link *links = KC_AT(s, struct kc_plan_link, s->links);
    static const enum kc_program_id programs[] = {KC_PROGRAM_TRAIN, KC_PROGRAM_EVALUATE, KC_PROGRAM_FORWARD};
    static_assert(KC_PROGRAMS <= 32, "a link has a bit for each program");
    t->links = calloc(s->links.count + 1u, sizeof *t->links);
    for (uint32_t l = 0; t->links && l < s->links.count; l++)
        for (size_t p = 0; p < sizeof programs / sizeof *programs; p++)
            t->links[l] |= (uint32_t)kc_link_runs(s, programs[p], &links[l]) << programs[p];
    return t->links ? 0 : -ENOMEM;
}

/* ---- which buckets a list uses ---- */

static void use(struct turn_use *at, uint32_t *count, uint32_t bucket, uint32_t i)
{
    uint32_t n = 0;
    while (n < *count && at[n].bucket != bucket)
        n++;
    if (n == *count)
        at[(*count)++] = (struct turn_use){.bucket = bucket, .first = i};
    at[n].last = i;
}

/* As buckets are complete: few, and nearly so already. */
static void sort_by_last(struct turn_use *at, uint32_t count)
{
    for (uint32_t i = 1; i < count; i++) {
        const struct turn_use x = at[i];
        uint32_t n = i;
        for (; n > 0 && at[n - 1].last > x.last; n--)
            at[n] = at[n - 1];
        at[n] = x;
    }
}

static uint32_t find_uses(const struct kc_turns *t, uint32_t list, int what, struct turn_use *at)
{
    const struct kc_plan_tensor *tensors = KC_AT(t->shard, struct kc_plan_tensor, t->shard->tensors);
    uint32_t count = 0;
    for (uint32_t i = t->first[list]; i < t->first[list + 1]; i++) {
        const struct kc_span span = what == TURN_READS ? op_at(t, t->ops[i])->in : op_at(t, t->ops[i])->out;
        for (uint32_t k = 0; k < span.count; k++) {
            const int32_t x = KC_AT(t->shard, int32_t, span)[k];
            if (x >= 0 && tensors[x].role == (what == TURN_READS ? KC_PARAMETER : KC_GRADIENT))
                use(at, &count, (uint32_t)tensors[x].bucket, i);
        }
    }
    if (what == TURN_ADDS)
        sort_by_last(at, count);
    return count;
}

static int list_uses(struct kc_turns *t)
{
    const uint32_t lists = t->stages * TURN_LISTS, buckets = t->shard->buckets.count;
    const bool parts[TURN_USES] = {[TURN_READS] = kc_plan_in_parts(t->shard, KC_STATE_PARAMETER),
                                   [TURN_ADDS] = kc_plan_in_parts(t->shard, KC_STATE_GRADIENT)};
    uint32_t n = 0;
    t->uses_first = calloc((size_t)lists * TURN_USES + 1, sizeof *t->uses_first);
    t->uses = malloc(((size_t)lists * TURN_USES * buckets + 1) * sizeof *t->uses);
    for (uint32_t i = 0; t->uses && t->uses_first && i < lists * TURN_USES; i++) {
        const int what = (int)(i % TURN_USES);
        if (parts[what])
            n += find_uses(t, i / TURN_USES, what, t->uses + n);
        t->uses_first[i + 1] = n;
    }
    return t->uses && t->uses_first ? 0 : -ENOMEM;
}

/* ---- the order ---- */

static int check_map(const struct kc_turns *t, const struct kc_order_row *row, const struct kc_order_shape *shape,
                     struct kc_error *e)
{
    for (uint32_t s = 0; s < t->stages; s++) {
        const uint32_t at = kc_stage_coordinate((enum kc_pipeline)row->pipeline, shape->ranks, shape->chunks, s);
        if (turn_coordinate(t, s) != at)
            return kc_fail(e, -EINVAL, "stage %u is at coordinate %u of the pipeline axis, order %s has it at %u", s,
                           turn_coordinate(t, s), row->name, at);
    }
    return 0;
}

/* All ranks need the same times: flops are the same in every plan. Where there are none, turns take one unit each. */
static struct kc_stage_cost *costs_of(const struct kc_turns *t)
{
    const struct kc_plan_stage *stages = KC_AT(t->shard, struct kc_plan_stage, t->shard->stages);
    struct kc_stage_cost *c = calloc(t->stages + 1u, sizeof *c);
    for (uint32_t s = 0; c && s < t->stages; s++)
        c[s] = stages[s].f + stages[s].i + stages[s].w
                   ? (struct kc_stage_cost){(double)stages[s].f, (double)stages[s].i, (double)stages[s].w}
                   : (struct kc_stage_cost){1, 1, 1};
    return c;
}

static int make_order(struct kc_turns *t, struct kc_error *e)
{
    const struct kc_shard_plan *s = t->shard;
    const struct kc_order_shape shape = {.ranks = s->axis[KC_PIPELINE], .chunks = s->chunks, .micros = s->micro_batches};
    const struct kc_order_row *row;
    /* One rank takes a micro-batch after the other, whatever the order is called: nothing else would save memory. */
    const char *name = shape.ranks == 1 && shape.chunks == 1 ? kc_pipeline_name[KC_PIPELINE_1F1B]
                                                            : kc_pipeline_name[s->pipeline];
    int r = kc_order_find(name, shape.chunks, &row, e);
    if (r == 0 && s->stages.count != shape.ranks * shape.chunks)
        r = kc_fail(e, -EINVAL, "a pipeline of %u ranks with %u chunks has %u stages, the plan %u", shape.ranks,
                    shape.chunks, shape.ranks * shape.chunks, s->stages.count);
    if (r == 0)
        r = check_map(t, row, &shape, e);
    if (r < 0)
        return r;
    struct kc_stage_cost *stage = costs_of(t);
    const struct kc_order_costs costs = {.stage = stage};
    r = stage ? kc_order_new(row, shape, &costs, &t->order, e) : kc_fail(e, -ENOMEM, "no memory for a pipeline");
    free(stage);
    for (uint32_t i = 0; r == 0 && i < t->order.first[shape.ranks]; i++)
        t->split |= t->order.turns[i].kind == KC_TURN_I;
    return r;
}

int kc_turns_new(const struct kc_shard_plan *shard, struct kc_turns *out, struct kc_error *e)
{
    struct kc_turns t = {.shard = shard, .stages = shard->stages.count};
    int r = make_order(&t, e);
    if (r == 0) {
        t.chunk = calloc(t.stages + 1u, sizeof *t.chunk);
        for (uint32_t s = 0; t.chunk && s < t.stages; s++)
            for (uint32_t before = 0; before < s; before++)
                t.chunk[s] += turn_coordinate(&t, before) == turn_coordinate(&t, s);
        if (!t.chunk || list_ops(&t) < 0 || list_links(&t) < 0 || list_uses(&t) < 0)
            r = kc_fail(e, -ENOMEM, "no memory for the turns of %u stages", t.stages);
    }
    if (r < 0)
        kc_turns_free(&t);
    else
        *out = t;
    return r;
}

void kc_turns_free(struct kc_turns *t)
{
    kc_order_free(&t->order);
    free(t->ops);
    free(t->first);
    free(t->chunk);
    free(t->links);
    free(t->uses);
    free(t->uses_first);
    *t = (struct kc_turns){0};
}
