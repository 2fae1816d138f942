/* swiglu.c - the gate of an MLP, silu(gate)·up, by tiles of a run. */
#include "cpu.h"

struct swiglu_arg {
    const struct kernels *k;
    const void *dy, *gate, *up;
    void *out, *d_up; /* out: of forward; or the derivative of gate */
    uint64_t n;
};

static void swiglu_tile(void *arg, uint32_t index, uint32_t worker)
{
    (void)worker;
    const struct swiglu_arg *a = arg;
    const struct range r = tile_range(index, RUN_TILE, a->n);
    const void *gate = number_at(a->k, a->gate, r.first), *up = number_at(a->k, a->up, r.first);
    void *out = number_at(a->k, a->out, r.first);
    if (a->dy)
        a->k->swiglu_input(number_at(a->k, a->dy, r.first), gate, up, out, number_at(a->k, a->d_up, r.first),
                           r.last - r.first);
    else
        a->k->swiglu(gate, up, out, r.last - r.first);
}

int op_swiglu(void *self, const struct kc_op_call *call, struct kc_lane *lane, struct kc_error *e)
{
    struct cpu *c = self;
    const uint64_t n = view_elements(&call->in[0]);
    const uint8_t t = stored_type(&call->in[0]);
    int r = CALL_CHECK(c, call, e, {0, t, n}, {1, t, n}, {2, t, n});
    if (r < 0)
        return r;
    struct swiglu_arg arg = {.k = kernels_for(c, &call->in[0]), .gate = call->in[0].data, .up = call->in[1].data,
                             .out = call->out[0].data, .n = n};
    return enqueue(lane, swiglu_tile, &arg, sizeof arg, tiles_of(n, RUN_TILE));
}

int op_swiglu_input(void *self, const struct kc_op_call *call, struct kc_lane *lane, struct kc_error *e)
{
    struct cpu *c = self;
    const uint64_t n = view_elements(&call->in[0]);
    const uint8_t t = stored_type(&call->in[0]);
    int r = CALL_CHECK(c, call, e, {0, t, n}, {1, t, n}, {2, t, n}, {3, t, n}, {4, t, n});
    if (r < 0)
        return r;
    struct swiglu_arg arg = {.k = kernels_for(c, &call->in[0]), .dy = call->in[0].data, .gate = call->in[1].data,
                             .up = call->in[2].data, .out = call->out[0].data, .d_up = call->out[1].data, .n = n};
    return enqueue(lane, swiglu_tile, &arg, sizeof arg, tiles_of(n, RUN_TILE));
}
