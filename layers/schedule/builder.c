/* builder.c - see builder.h. */
#include "builder.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static void *vector_add(struct kc_builder *b, struct kc_vector *v, size_t count, size_t element)
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
    *b = (struct kc_builder){.shard = shard, .comm = comm, .memory = memory, .rank = rank};
    b->sequences = calloc((size_t)KC_PROGRAMS * (comm->families.count + 1u), sizeof *b->sequences);
    b->touched = calloc(slots(b), sizeof *b->touched);
    b->written = calloc(shard->tensors.count + 1u, sizeof *b->written);
    if (b->sequences && b->touched && b->written)
        return 0;
    kc_builder_free(b);
    return -ENOMEM;
}

void kc_builder_free(struct kc_builder *b)
{
    free(b->instructions.data);
    free(b->refs.data);
    free(b->attrs.data);
    free(b->waits.data);
    free(b->sequences);
    free(b->touched);
    free(b->written);
    *b = (struct kc_builder){0};
}

void kc_builder_begin(struct kc_builder *b, enum kc_program_id program)
{
    b->program = program;
    b->programs[program].first = (uint32_t)b->instructions.count;
    memset(b->touched, 0, slots(b) * sizeof *b->touched);
    memset(b->written, 0, b->shard->tensors.count);
    memset(b->known, 0, sizeof b->known);
}

void kc_builder_end(struct kc_builder *b)
{
    struct kc_exec_program *p = &b->programs[b->program];
    p->count = (uint32_t)b->instructions.count - p->first;
}

/* ---- references ---- */

struct kc_exec_ref kc_ref_none(void)
{
    return (struct kc_exec_ref){.space = KC_SPACE_NONE, .bucket = -1};
}

struct kc_exec_ref kc_ref_vector(enum kc_space space, enum kc_type type, uint64_t offset_bytes, uint64_t count)
{
    return (struct kc_exec_ref){.space = (uint8_t)space,
                                .type = (uint8_t)type,
                                .rank = 1,
                                .bucket = -1,
                                .offset = offset_bytes,
                                .size = {count}};
}

struct kc_exec_ref kc_ref_run(const struct kc_builder *b, enum kc_space space, uint32_t bucket, uint64_t offset,
                              uint64_t count)
{
    const struct kc_plan_bucket *k = KC_AT(b->shard, struct kc_plan_bucket, b->shard->buckets) + bucket;
    enum kc_type type = kc_bucket_type(k, (enum kc_state_class)kc_space_state((uint8_t)space));
    return (struct kc_exec_ref){.space = (uint8_t)space,
                                .type = (uint8_t)type,
                                .rank = 1,
                                .bucket = (int32_t)bucket,
                                .offset = offset * kc_type_bytes[type],
                                .size = {count}};
}

struct kc_exec_ref kc_ref_tensor(const struct kc_builder *b, int32_t tensor)
{
    if (tensor < 0)
        return kc_ref_none();
    const struct kc_plan_tensor *t = KC_AT(b->shard, struct kc_plan_tensor, b->shard->tensors) + tensor;
    struct kc_exec_ref r = {.type = t->type, .rank = t->rank, .bucket = t->bucket};
    struct kc_box box;
    kc_plan_box(b->shard, t, b->rank, &box);
    memcpy(r.size, box.size, sizeof r.size);
    memcpy(r.first, box.first, sizeof r.first);
    if (t->role == KC_RESULT) {
        r.space = KC_SPACE_RESULT; /* loss and tokens are the first two of the AGREE vector */
        r.offset = KC_RESULT_OWN;
    } else if (kc_tensor_in_work(t)) {
        r.space = KC_SPACE_WORK;
        r.offset = b->memory->offset[tensor];
    } else {
        r.space = t->role == KC_PARAMETER ? KC_SPACE_PARAMETER : KC_SPACE_GRADIENT;
        r.offset = t->offset * kc_type_bytes[t->type];
    }
    return r;
}

int32_t builder_position(const struct kc_comm_plan *comm, uint32_t family, uint32_t rank,
                         const struct kc_plan_group **group)
{
    const uint32_t index = kc_comm_group_of(comm, family, rank);
    if (index == KC_NOT_MEMBER)
        return -1;
    *group = KC_AT(comm, struct kc_plan_group, comm->groups) + index;
    const uint32_t *ranks = KC_AT(comm, uint32_t, (*group)->ranks);
    int32_t at = 0;
    while (ranks[at] != rank)
        at++;
    return at;
}

/* ---- emitting ---- */

static struct kc_touch *touch_of(const struct kc_builder *b, const struct kc_exec_ref *r)
{
    return &b->touched[(size_t)r->space * (b->shard->buckets.count + 1u) + (size_t)(r->bucket + 1)];
}

static void later(uint32_t *a, uint32_t b)
{
    if (b > *a)
        *a = b;
}

/* What this instruction must wait for on the other lane, and that it was here. */
static uint32_t depend(struct kc_builder *b, const struct kc_emit *e, uint32_t index)
{
    uint32_t wait = 0;
    int lane = e->base.lane, other = 1 - lane;
    for (uint32_t i = 0; i < e->base.inputs; i++)
        if (e->in[i].space != KC_SPACE_NONE)
            later(&wait, touch_of(b, &e->in[i])->write[other]);
    for (uint32_t i = 0; i < e->base.outputs; i++)
        if (e->out[i].space != KC_SPACE_NONE)
            later(&wait, touch_of(b, &e->out[i])->any[other]);
    for (uint32_t i = 0; i < e->base.inputs; i++)
        touch_of(b, &e->in[i])->any[lane] = index + 1;
    for (uint32_t i = 0; i < e->base.outputs; i++)
        touch_of(b, &e->out[i])->any[lane] = touch_of(b, &e->out[i])->write[lane] = index + 1;
    return wait;
}

void kc_builder_emit(struct kc_builder *b, const struct kc_emit *e)
{
    uint32_t index = (uint32_t)b->instructions.count - b->programs[b->program].first;
    struct kc_exec_instruction ins = e->base;
    ins.refs = (uint32_t)b->refs.count;
    ins.attrs = (uint32_t)b->attrs.count;
    ins.waits = (uint32_t)b->waits.count;
    uint32_t wait = depend(b, e, index);
    if (wait > b->known[ins.lane]) {
        uint32_t *w = vector_add(b, &b->waits, 1, sizeof *w);
        if (w)
            *w = wait - 1;
        ins.wait_count = 1;
        b->known[ins.lane] = wait;
    }
    struct kc_exec_ref *refs = vector_add(b, &b->refs, (size_t)ins.inputs + ins.outputs, sizeof *refs);
    double *attrs = vector_add(b, &b->attrs, ins.attr_count, sizeof *attrs);
    struct kc_exec_instruction *to = vector_add(b, &b->instructions, 1, sizeof *to);
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

/* The first op of a step that writes a gradient overwrites it, so nobody has to clear it; all later ones add. Of an op with
 * several gradients all are new or none is (contracts/model_graph.h); the checker looks. */
static uint8_t accumulates(struct kc_builder *b, const struct kc_plan_op *o)
{
    const struct kc_plan_tensor *tensors = KC_AT(b->shard, struct kc_plan_tensor, b->shard->tensors);
    uint8_t add = o->accumulates;
    for (uint32_t i = 0; i < o->out.count; i++) {
        int32_t t = KC_AT(b->shard, int32_t, o->out)[i];
        if (t < 0 || tensors[t].role != KC_GRADIENT)
            continue;
        add &= b->written[t];
        b->written[t] = 1;
    }
    return add;
}

void kc_builder_op(struct kc_builder *b, uint32_t op, uint32_t micro)
{
    static const uint8_t part[KC_CLASSES] = {[KC_LOAD] = KC_PART_DATA,
                                             [KC_FORWARD] = KC_PART_FORWARD,
                                             [KC_INPUT_GRADIENT] = KC_PART_BACKWARD,
                                             [KC_WEIGHT_GRADIENT] = KC_PART_BACKWARD,
                                             [KC_UPDATE] = KC_PART_OPTIMIZER};
    const struct kc_plan_op *o = KC_AT(b->shard, struct kc_plan_op, b->shard->ops) + op;
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
    if (o->in.count > KC_OPERANDS_MAX || o->out.count > KC_OPERANDS_MAX || o->attr.count > KC_OPERANDS_MAX) {
        b->failed = -EINVAL;
        return;
    }
    for (uint32_t i = 0; i < o->in.count; i++)
        e.in[i] = kc_ref_tensor(b, KC_AT(b->shard, int32_t, o->in)[i]);
    for (uint32_t i = 0; i < o->out.count; i++)
        e.out[i] = kc_ref_tensor(b, KC_AT(b->shard, int32_t, o->out)[i]);
    memcpy(e.attr, KC_AT(b->shard, double, o->attr), o->attr.count * sizeof *e.attr);
    kc_builder_emit(b, &e);
}

/* Where a collective reads and writes on this rank. In place wherever the primitive allows. */
static void collective_refs(const struct kc_builder *b, const struct kc_plan_collective *c, uint32_t position,
                            uint32_t members, struct kc_emit *e)
{
    if (c->bucket >= 0) {
        enum kc_space space = c->purpose == KC_PURPOSE_PARAMETER ? KC_SPACE_PARAMETER : KC_SPACE_GRADIENT;
        uint32_t bucket = (uint32_t)c->bucket;
        uint64_t part = c->primitive == KC_ALL_GATHER ? c->count : c->count / members;
        e->in[0] = e->out[0] = kc_ref_run(b, space, bucket, 0, c->count);
        if (c->primitive == KC_REDUCE_SCATTER)
            e->out[0] = kc_ref_run(b, space, bucket, position * part, part);
        if (c->primitive == KC_ALL_GATHER) {
            e->in[0] = kc_ref_run(b, space, bucket, position * part, part);
            e->out[0] = kc_ref_run(b, space, bucket, 0, part * members);
        }
        return;
    }
    switch (c->purpose) {
    case KC_PURPOSE_AGREE:
        e->in[0] = kc_ref_vector(KC_SPACE_RESULT, KC_F64, KC_RESULT_OWN, c->count);
        e->out[0] = kc_ref_vector(KC_SPACE_RESULT, KC_F64, KC_RESULT_AGREED, c->count);
        break;
    case KC_PURPOSE_DIGEST:
        e->in[0] = kc_ref_vector(KC_SPACE_RESULT, KC_U64, KC_RESULT_DIGESTS, c->count);
        e->out[0] = kc_ref_vector(KC_SPACE_RESULT, KC_U64, KC_RESULT_GATHERED, c->count * members);
        break;
    default: /* state's vector, in place */
        e->in[0] = e->out[0] = kc_ref_vector(KC_SPACE_STORE, KC_U64, 0, c->count);
    }
}

void kc_builder_collective(struct kc_builder *b, uint32_t collective)
{
    const struct kc_plan_collective *c = KC_AT(b->comm, struct kc_plan_collective, b->comm->collectives) + collective;
    const struct kc_plan_group *g;
    const int32_t position = builder_position(b->comm, c->family, b->rank, &g);
    uint32_t *sequence = &b->sequences[b->program * b->comm->families.count + c->family];
    struct kc_emit e = {.base = {.kind = KC_I_COLLECTIVE,
                                 .lane = KC_LANE_COMM,
                                 .part = KC_PART_COMM,
                                 .layer = -1,
                                 .collective = (int32_t)collective,
                                 .op = -1,
                                 .sequence = (*sequence)++,
                                 .inputs = 1,
                                 .outputs = 1}};
    collective_refs(b, c, (uint32_t)position, g->ranks.count, &e);
    kc_builder_emit(b, &e);
}
