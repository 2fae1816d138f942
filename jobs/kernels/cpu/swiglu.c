/* swiglu.c - the gate of an MLP, silu(gate)·up, by tiles of a run; of rows that came for experts, as many as there are. */
#include "cpu.h"

struct swiglu_arg {
    const struct kernels *k;
    const void *dy, *gate, *up;
    void *out, *d_up;      /* out: of forward; or the derivative of gate */
    const int32_t *counts; /* (experts) of rows; NULL: all numbers are some */
    uint64_t n, experts, width;
};

static void swiglu_tile(void *arg, uint32_t index, uint32_t worker)
{
    (void)worker;
    const struct swiglu_arg *a = arg;
    uint64_t n = a->counts ? 0 : a->n;
    for (uint64_t i = 0; a->counts && i < a->experts; i++)
        n += (uint64_t)a->counts[i] * a->width;
    const struct range r = tile_range(index, RUN_TILE, n < a->n ? n : a->n);
    if (r.first >= r.last)
        return;
    const void *gate = number_at(a->k, a->gate, r.first), *up = number_at(a->k, a->up, r.first);
    void *out = number_at(a->k, a->out, r.first);
    if (a->dy)
        a->k->swiglu_input(number_at(a->k, a->dy, r.first), gate, up, out, number_at(a->k, a->d_up, r.first),
                           r.last - r.first);
    else
        a->k->swiglu(gate, up, out, r.last - r.first);
}

/* gate and up are inputs `at` and at + 1, behind them counts; dy is input 0 of backward, whose outputs are two */
static int swiglu(struct cpu *c, const struct kc_op_call *call, int at, int rows, struct kc_lane *lane, struct kc_error *e)
{
    const struct kc_view *gate = &call->in[at], *counts = &call->in[at + 2];
    const uint64_t n = view_elements(gate);
    const uint8_t t = stored_type(gate);
    const int out = call->inputs;
    struct swiglu_arg a = {.k = kernels_for(c, gate), .gate = gate->data, .up = call->in[at + 1].data,
                           .out = call->out[0].data, .n = n};
    int r = CALL_CHECK(c, call, e, {at, t, n}, {at + 1, t, n}, {out, t, n});
    if (r == 0 && at)
        r = CALL_CHECK(c, call, e, {0, t, n}, {out + 1, t, n});
    if (r == 0 && rows) {
        a.counts = counts->data, a.experts = view_elements(counts), a.width = view_width(gate);
        r = CALL_CHECK(c, call, e, {at + 2, KC_I32, a.experts});
    }
    if (at)
        a.dy = call->in[0].data, a.d_up = call->out[1].data;
    return r < 0 ? r : enqueue(lane, swiglu_tile, &a, sizeof a, tiles_of(n, RUN_TILE));
}

int op_swiglu(void *self, const struct kc_op_call *call, struct kc_lane *lane, struct kc_error *e)
{
    return swiglu(self, call, 0, 0, lane, e);
}

int op_swiglu_input(void *self, const struct kc_op_call *call, struct kc_lane *lane, struct kc_error *e)
{
    return swiglu(self, call, 1, 0, lane, e);
}

int op_swiglu_rows(void *self, const struct kc_op_call *call, struct kc_lane *lane, struct kc_error *e)
{
    return swiglu(self, call, 0, 1, lane, e);
}

int op_swiglu_rows_input(void *self, const struct kc_op_call *call, struct kc_lane *lane, struct kc_error *e)
{
    return swiglu(self, call, 1, 1, lane, e);
}
