/* builder_waits.c - what an instruction must wait for on the other lane. Of a bucket or a vector one number says when a lane
 * touched it last. Of work memory, where many tensors lie, the bytes count: the other lane's instructions are looked
 * through from the latest back to the last one that this lane knows to be complete, and the first that touches the same
 * bytes is the one to wait for. */
#include "builder.h"

static struct kc_touch *touch_of(const struct kc_builder *b, const struct kc_exec_ref *r)
{
    return &b->touched[(size_t)r->space * (b->shard->buckets.count + 1u) + (size_t)(r->bucket + 1)];
}

static void later(uint32_t *a, uint32_t b)
{
    if (b > *a)
        *a = b;
}

static uint64_t ref_end(const struct kc_exec_ref *r)
{
    uint64_t n = kc_type_bytes[r->type];
    for (int d = 0; d < r->rank; d++)
        n *= r->size[d];
    return r->offset + n;
}

/* Do both touch the same bytes of work memory, one of them writing? */
static int collide(const struct kc_exec_ref *a, int a_writes, const struct kc_exec_ref *b, int b_writes)
{
    return a->space == KC_SPACE_WORK && b->space == KC_SPACE_WORK && (a_writes || b_writes) && a->offset < ref_end(b) &&
           b->offset < ref_end(a);
}

static int instruction_collides(const struct kc_builder *b, uint32_t index, const struct kc_emit *e)
{
    const struct kc_exec_instruction *i =
        (const struct kc_exec_instruction *)b->instructions.data + b->programs[b->program].first + index;
    const struct kc_exec_ref *refs = (const struct kc_exec_ref *)b->refs.data + i->refs;
    for (uint32_t k = 0; k < (uint32_t)i->inputs + i->outputs; k++) {
        const int writes = k >= i->inputs;
        for (uint32_t n = 0; refs[k].space == KC_SPACE_WORK && n < e->base.inputs; n++)
            if (collide(&refs[k], writes, &e->in[n], 0))
                return 1;
        for (uint32_t n = 0; refs[k].space == KC_SPACE_WORK && n < e->base.outputs; n++)
            if (collide(&refs[k], writes, &e->out[n], 1))
                return 1;
    }
    return 0;
}

/* The last instruction of the other lane behind number `known` that touches what this one does. */
static uint32_t work_wait(const struct kc_builder *b, const struct kc_emit *e, uint32_t index, uint32_t known)
{
    if (e->base.lane == KC_LANE_COMPUTE) {
        const uint32_t *moved = b->moved.data;
        for (size_t n = b->moved.count; n > 0 && moved[n - 1] + 1 > known; n--)
            if (instruction_collides(b, moved[n - 1], e))
                return moved[n - 1] + 1;
        return known;
    }
    const struct kc_exec_instruction *ins =
        (const struct kc_exec_instruction *)b->instructions.data + b->programs[b->program].first;
    for (uint32_t n = index; n > known; n--)
        if (ins[n - 1].lane == KC_LANE_COMPUTE && instruction_collides(b, n - 1, e))
            return n;
    return known;
}

static int touches_work(const struct kc_emit *e)
{
    int yes = 0;
    for (uint32_t i = 0; i < e->base.inputs; i++)
        yes |= e->in[i].space == KC_SPACE_WORK;
    for (uint32_t i = 0; i < e->base.outputs; i++)
        yes |= e->out[i].space == KC_SPACE_WORK;
    return yes;
}

uint32_t builder_depend(struct kc_builder *b, const struct kc_emit *e, uint32_t index)
{
    if (b->failed)
        return 0;
    const int lane = e->base.lane, other = 1 - lane;
    uint32_t wait = b->known[lane];
    for (uint32_t i = 0; i < e->base.inputs; i++)
        if (e->in[i].space != KC_SPACE_NONE)
            later(&wait, touch_of(b, &e->in[i])->write[other]);
    for (uint32_t i = 0; i < e->base.outputs; i++)
        if (e->out[i].space != KC_SPACE_NONE)
            later(&wait, touch_of(b, &e->out[i])->any[other]);
    if (touches_work(e)) {
        later(&wait, work_wait(b, e, index, wait));
        uint32_t *moved = lane == KC_LANE_COMM ? builder_add(b, &b->moved, 1, sizeof *moved) : NULL;
        if (moved)
            *moved = index;
    }
    for (uint32_t i = 0; i < e->base.inputs; i++)
        if (e->in[i].space != KC_SPACE_WORK)
            touch_of(b, &e->in[i])->any[lane] = index + 1;
    for (uint32_t i = 0; i < e->base.outputs; i++)
        if (e->out[i].space != KC_SPACE_WORK)
            touch_of(b, &e->out[i])->any[lane] = touch_of(b, &e->out[i])->write[lane] = index + 1;
    return wait > b->known[lane] ? wait : 0;
}
