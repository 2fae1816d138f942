/* ops.c - the op table. Every call is an instruction of the compute lane: its place is known, and so is what it writes. */
#include "drill_impl.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The first element becomes not a number, when all that was enqueued before is done. */
static void spoil(void *argument, uint32_t index, uint32_t worker)
{
    const struct kc_view *v = argument;
    (void)index, (void)worker;
    if (v->type == KC_F32)
        memcpy(v->data, &(float){NAN}, sizeof(float));
    else
        memcpy(v->data, &(uint16_t){0x7fc0}, sizeof(uint16_t));
}

static const struct kc_view *spoilable(const struct kc_op_call *call)
{
    for (uint32_t k = 0; k < call->outputs; k++)
        if (call->out[k].data && (call->out[k].type == KC_F32 || call->out[k].type == KC_BF16))
            return &call->out[k];
    return NULL;
}

static int spoil_output(struct kc_drill *d, enum kc_drill_at at, const struct kc_op_call *call, struct kc_lane *lane)
{
    const struct kc_view *v = spoilable(call);
    int code = 0;
    for (uint32_t i = 0; v && i < d->faults && code == 0; i++)
        if (d->fault[i].say->what == KC_DRILL_NONFINITE && drill_due(d, &d->fault[i], at)) {
            drill_tell(d, &d->fault[i], d->ops->ops[call->opcode].name);
            code = lane->enqueue(lane, spoil, v, sizeof *v, 1);
        }
    return code;
}

static int op_enqueue(void *self, const struct kc_op_call *call, struct kc_lane *lane, struct kc_error *e)
{
    struct kc_drill *d = self;
    const enum kc_drill_at at = drill_place(d, drill_instruction(d, KC_LANE_COMPUTE, KC_I_COMPUTE, call->opcode));
    int code = drill_process(d, at, e);
    if (code == 0)
        code = d->ops->ops[call->opcode].enqueue(d->ops->self, call, lane, e);
    return code == 0 ? spoil_output(d, at, call, lane) : code;
}

static int op_failed(void *self, struct kc_error *e)
{
    const struct kc_drill *d = self;
    return d->ops->failed(d->ops->self, e);
}

int drill_wire_ops(struct kc_drill *d, const struct kc_op_table **ops)
{
    const struct kc_op_table *from = *ops;
    d->own_op = calloc(from->count, sizeof *d->own_op);
    if (!d->own_op)
        return -ENOMEM;
    for (uint32_t i = 0; i < from->count; i++) {
        d->own_op[i] = from->ops[i];
        if (from->ops[i].enqueue)
            d->own_op[i].enqueue = op_enqueue;
    }
    d->ops = from;
    d->own_ops = *from;
    d->own_ops.self = d;
    d->own_ops.ops = d->own_op;
    d->own_ops.failed = op_failed;
    *ops = &d->own_ops;
    return 0;
}
