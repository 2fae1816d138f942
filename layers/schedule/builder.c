/* builder.c - see builder.h. */
#include "builder.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void *builder_add(struct kc_builder *b, struct kc_vector *v, size_t count, size_t element)
{
    if (b->failed)
        return NULL;
    if (v->count + count > v->room) {
        size_t room = v->room ? v->room * 2 : 256;
        while (room < v->count + count)
            room *= 2;
        void *p = realloc(v->data, room * element);
        if (!p) {
            b->failed = -ENOMEM;
            return NULL;
        }
        v->data = p;
        v->room = room;
    }
    void *at = (char *)v->data + v->count * element;
    v->count += count;
    return at;
}

static size_t slots(const struct kc_builder *b)
{
    return (size_t)KC_SPACES * (b->shard->buckets.count + 1u);
}

int kc_builder_new(struct kc_builder *b, const struct kc_shard_plan *shard, const struct kc_comm_plan *comm,
                   const struct kc_memory_plan *memory, uint32_t rank)
{
    *b = (struct kc_builder){.shard = shard, .comm = comm, .memory = memory, .rank = rank,
                             .tallies = kc_plan_tallies(shard)};
    b->sequences = calloc((size_t)KC_PROGRAMS * (comm->families.count + 1u), sizeof *b->sequences);
    b->touched = calloc(slots(b), sizeof *b->touched);
    b->written = calloc(shard->tensors.count + 1u, sizeof *b->written);
    b->added = calloc(shard->buckets.count + 1u, sizeof *b->added);
    b->home = calloc(shard->tensors.count + 1u, sizeof *b->home);
    if (b->sequences && b->touched && b->written && b->added && b->home) {
        builder_home(b);
        return 0;
    }
    kc_builder_free(b);
    return -ENOMEM;
}

void kc_builder_free(struct kc_builder *b)
{
    free(b->instructions.data);
    free(b->refs.data);
    free(b->attrs.data);
    free(b->waits.data);
    free(b->moved.data);
    free(b->home);
    free(b->sequences);
    free(b->touched);
    free(b->written);
    free(b->added);
    *b = (struct kc_builder){0};
}

void kc_builder_begin(struct kc_builder *b, enum kc_program_id program)
{
    b->program = program;
    b->programs[program].first = (uint32_t)b->instructions.count;
    memset(b->touched, 0, slots(b) * sizeof *b->touched);
    memset(b->written, 0, b->shard->tensors.count);
    memset(b->added, 0, b->shard->buckets.count);
    memset(b->known, 0, sizeof b->known);
    b->moved.count = 0;
}

void kc_builder_end(struct kc_builder *b)
{
    struct kc_exec_program *p = &b->programs[b->program];
    p->count = (uint32_t)b->instructions.count - p->first;
}

/* ---- emitting ---- */

void kc_builder_emit(struct kc_builder *b, const struct kc_emit *e)
{
    uint32_t index = (uint32_t)b->instructions.count - b->programs[b->program].first;
    struct kc_exec_instruction ins = e->base;
    ins.refs = (uint32_t)b->refs.count;
    ins.attrs = (uint32_t)b->attrs.count;
    ins.waits = (uint32_t)b->waits.count;
    const uint32_t wait = builder_depend(b, e, index);
    if (wait) {
        uint32_t *w = builder_add(b, &b->waits, 1, sizeof *w);
        if (w)
            *w = wait - 1;
        ins.wait_count = 1;
        b->known[ins.lane] = wait;
    }
    struct kc_exec_ref *refs = builder_add(b, &b->refs, (size_t)ins.inputs + ins.outputs, sizeof *refs);
    double *attrs = builder_add(b, &b->attrs, ins.attr_count, sizeof *attrs);
    struct kc_exec_instruction *to = builder_add(b, &b->instructions, 1, sizeof *to);
    if (b->failed)
        return;
    for (uint32_t i = 0; i < ins.inputs; i++)
        refs[i] = e->in[i];
    for (uint32_t i = 0; i < ins.outputs; i++)
        refs[ins.inputs + i] = e->out[i];
    for (uint32_t i = 0; i < ins.attr_count; i++)
        attrs[i] = e->attr[i];
    *to = ins;
}

/* The first op of a step that writes a gradient overwrites it, so nobody has to clear it; all later ones add, and all where it
 * is cleared for every micro-batch. Of an op with
 * several gradients all are new or none is (contracts/model_graph.h); the checker looks. */
static uint8_t accumulates(struct kc_builder *b, const struct kc_plan_op *o)
{
    const struct kc_plan_tensor *tensors = KC_AT(b->shard, struct kc_plan_tensor, b->shard->tensors);
    uint8_t add = o->accumulates;
    for (uint32_t i = 0; i < o->out.count; i++) {
        int32_t t = KC_AT(b->shard, int32_t, o->out)[i];
        if (t < 0 || tensors[t].role != KC_GRADIENT)
            continue;
        add &= b->written[t] || kc_bucket_in_parts(KC_AT(b->shard, struct kc_plan_bucket, b->shard->buckets) + tensors[t].bucket,
                                                    KC_STATE_GRADIENT);
        b->written[t] = 1;
    }
    return add;
}

static int32_t operand(const struct kc_builder *b, const struct kc_plan_op *o, uint32_t i)
{
    if (kc_plan_omits(b->shard, o, i, b->rank))
        return -1;
    return i < o->in.count ? KC_AT(b->shard, int32_t, o->in)[i] : KC_AT(b->shard, int32_t, o->out)[i - o->in.count];
}

static void emit_compute(struct kc_builder *b, const struct kc_plan_op *o, uint32_t op, uint32_t micro)
{
    static const uint8_t part[KC_CLASSES] = {[KC_LOAD] = KC_PART_DATA,
                                             [KC_FORWARD] = KC_PART_FORWARD,
                                             [KC_INPUT_GRADIENT] = KC_PART_BACKWARD,
                                             [KC_WEIGHT_GRADIENT] = KC_PART_BACKWARD,
                                             [KC_UPDATE] = KC_PART_OPTIMIZER};
    struct kc_emit e = {.base = {.kind = KC_I_COMPUTE,
                                 .lane = KC_LANE_COMPUTE,
                                 .part = part[o->klass],
                                 .accumulate = accumulates(b, o),
                                 .opcode = o->opcode,
                                 .micro = (uint16_t)micro,
                                 .layer = o->layer,
                                 .collective = -1,
                                 .op = (int32_t)op,
                                 .scratch = o->scratch,
                                 .inputs = (uint16_t)o->in.count,
                                 .outputs = (uint16_t)o->out.count,
                                 .attr_count = (uint16_t)o->attr.count}};
    for (uint32_t i = 0; i < o->in.count; i++)
        e.in[i] = kc_ref_tensor(b, operand(b, o, i), micro);
    for (uint32_t i = 0; i < o->out.count; i++)
        e.out[i] = kc_ref_tensor(b, operand(b, o, o->in.count + i), micro);
    memcpy(e.attr, KC_AT(b->shard, double, o->attr), o->attr.count * sizeof *e.attr);
    kc_builder_emit(b, &e);
}

/* What all collectives have in common; NULL: the rank is in no group of the family. */
static const struct kc_plan_group *collective_begin(struct kc_builder *b, uint32_t collective, uint32_t *position,
                                                    struct kc_emit *e)
{
    const struct kc_plan_collective *c = KC_AT(b->comm, struct kc_plan_collective, b->comm->collectives) + collective;
    const struct kc_plan_group *g = NULL;
    const int32_t at = builder_position(b->comm, c->family, b->rank, &g);
    if (at < 0) {
        b->failed = -EPROTO;
        return NULL;
    }
    *position = (uint32_t)at;
    *e = (struct kc_emit){.base = {.kind = KC_I_COLLECTIVE,
                                   .lane = KC_LANE_COMM,
                                   .part = KC_PART_COMM,
                                   .layer = -1,
                                   .collective = (int32_t)collective,
                                   .op = -1,
                                   .sequence = b->sequences[b->program * b->comm->families.count + c->family]++,
                                   .inputs = 1,
                                   .outputs = 1}};
    return g;
}

/* A conversion: from a tensor to a tensor. */
static void emit_conversion(struct kc_builder *b, const struct kc_plan_op *o, uint32_t op, uint32_t micro)
{
    struct kc_emit e;
    uint32_t position;
    const struct kc_plan_group *g = collective_begin(b, (uint32_t)o->collective, &position, &e);
    if (!g)
        return;
    const struct kc_plan_collective *c =
        KC_AT(b->comm, struct kc_plan_collective, b->comm->collectives) + o->collective;
    uint64_t reads, writes;
    kc_collective_elements(c, g->ranks.count, &reads, &writes);
    e.base.op = (int32_t)op, e.base.layer = o->layer, e.base.micro = (uint16_t)micro;
    const int32_t *in = KC_AT(b->shard, int32_t, o->in), out = KC_AT(b->shard, int32_t, o->out)[0];
    const struct kc_plan_tensor *tensors = KC_AT(b->shard, struct kc_plan_tensor, b->shard->tensors);
    if (o->in.count != 1 + (c->counted > 0)) {
        b->failed = -EINVAL;
        return;
    }
    if (c->counted) { /* as much as the rows come to: there is room for all */
        reads = kc_tensor_elements(&tensors[in[0]]), writes = kc_tensor_elements(&tensors[out]);
        e.base.inputs = 2;
        e.in[1] = kc_ref_tensor(b, in[1], micro);
    }
    e.in[0] = builder_flat(b, in[0], micro, reads);
    e.out[0] = builder_flat(b, out, micro, writes);
    kc_builder_emit(b, &e);
}

void kc_builder_transfer(struct kc_builder *b, uint32_t link, bool sends, uint32_t micro)
{
    const struct kc_plan_link *k = KC_AT(b->shard, struct kc_plan_link, b->shard->links) + link;
    struct kc_emit e;
    uint32_t position;
    const int32_t collective = sends ? k->send : k->recv;
    if (!collective_begin(b, (uint32_t)collective, &position, &e))
        return;
    const struct kc_plan_collective *c =
        KC_AT(b->comm, struct kc_plan_collective, b->comm->collectives) + collective;
    e.base.micro = (uint16_t)micro;
    e.base.inputs = sends, e.base.outputs = !sends;
    e.in[0] = e.out[0] = builder_flat(b, k->tensor, micro, c->count);
    kc_builder_emit(b, &e);
}

void kc_builder_op(struct kc_builder *b, uint32_t op, uint32_t micro)
{
    const struct kc_plan_op *o = KC_AT(b->shard, struct kc_plan_op, b->shard->ops) + op;
    const bool moves = o->collective >= 0;
    if (o->in.count > KC_OPERANDS_MAX || o->out.count > KC_OPERANDS_MAX || o->attr.count > KC_OPERANDS_MAX ||
        (moves && (o->in.count == 0 || o->out.count != 1)))
        b->failed = -EINVAL;
    else if (moves)
        emit_conversion(b, o, op, micro);
    else
        emit_compute(b, o, op, micro);
}

void kc_builder_collective(struct kc_builder *b, uint32_t collective)
{
    struct kc_emit e;
    uint32_t position;
    const struct kc_plan_group *g = collective_begin(b, collective, &position, &e);
    if (!g)
        return;
    builder_collective_refs(b, KC_AT(b->comm, struct kc_plan_collective, b->comm->collectives) + collective, position,
                            g->ranks.count, &e);
    kc_builder_emit(b, &e);
}
