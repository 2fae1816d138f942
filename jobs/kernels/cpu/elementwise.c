/* elementwise.c - AdamW, the squared norm, sums and multiples, by tiles of a run. */
#include "cpu.h"

#include <errno.h>
#include <math.h>

struct run_arg {
    const struct kernels *k;
    const float *gradient;
    void *parameter;
    float *m, *v, *master;
    uint64_t n;
    struct adamw_values adamw;
};

static void adamw_tile(void *arg, uint32_t index, uint32_t worker)
{
    (void)worker;
    const struct run_arg *a = arg;
    const struct range r = tile_range(index, RUN_TILE, a->n);
    a->k->adamw(a->gradient + r.first, number_at(a->k, a->parameter, r.first), a->m + r.first, a->v + r.first,
                a->master ? a->master + r.first : NULL, r.last - r.first, &a->adamw);
}

int op_adamw(void *self, const struct kc_op_call *call, struct kc_lane *lane, struct kc_error *e)
{
    struct cpu *c = self;
    const struct kc_step_values *s = call->step;
    const uint64_t n = view_elements(&call->in[0]);
    const uint8_t t = stored_type(&call->out[0]);
    int r = CALL_CHECK(c, call, e, {0, KC_F32, n}, {1, t, n}, {2, KC_F32, n}, {3, KC_F32, n});
    if (r == 0 && t == KC_BF16) /* an f32 parameter is its own master */
        r = CALL_CHECK(c, call, e, {4, KC_F32, n});
    if (r < 0)
        return r;
    if (call->attrs != 4)
        return kc_fail(e, -EINVAL, "op adamw: takes four attributes, beta1, beta2, eps, weight decay; has %u",
                       call->attrs);
    const double beta1 = call->attr[0], beta2 = call->attr[1], eps = call->attr[2], decay = call->attr[3];
    struct run_arg arg = {.k = kernels_for(c, &call->out[0]), .gradient = call->in[0].data,
                          .parameter = call->out[0].data, .m = call->out[1].data, .v = call->out[2].data,
                          .master = t == KC_BF16 ? call->out[3].data : NULL, .n = n};
    arg.adamw = (struct adamw_values){.scale = (float)s->scale, .beta1 = (float)beta1, .beta2 = (float)beta2,
                                      .eps = (float)eps, .keep = (float)(1 - s->lr * decay),
                                      .rate = (float)(s->lr / (1 - s->beta1_power)),
                                      .correction = (float)(1 / sqrt(1 - s->beta2_power))};
    return enqueue(lane, adamw_tile, &arg, sizeof arg, tiles_of(n, RUN_TILE));
}

struct sum_arg {
    const struct kernels *k;
    const float *x;
    double *parts, *out; /* parts: one a chunk */
    uint64_t n, chunk;
    uint32_t chunks;
    int accumulate;
};

static void square_tile(void *arg, uint32_t index, uint32_t worker)
{
    (void)worker;
    const struct sum_arg *a = arg;
    const struct range r = tile_range(index, a->chunk, a->n);
    a->parts[index] = a->k->square_sum(a->x + r.first, r.last - r.first);
}

static void square_total(void *arg, uint32_t index, uint32_t worker)
{
    (void)index, (void)worker;
    const struct sum_arg *a = arg;
    double sum = 0;
    for (uint32_t i = 0; i < a->chunks; i++)
        sum += a->parts[i];
    *a->out = a->accumulate ? *a->out + sum : sum;
}

int op_norm(void *self, const struct kc_op_call *call, struct kc_lane *lane, struct kc_error *e)
{
    struct cpu *c = self;
    const uint64_t n = view_elements(&call->in[0]);
    int r = CALL_CHECK(c, call, e, {0, KC_F32, n}, {1, KC_F64, 1});
    if (r < 0)
        return r;
    uint64_t chunk = (n + CHUNKS - 1) / CHUNKS;
    chunk = chunk < RUN_TILE ? RUN_TILE : chunk;
    struct sum_arg arg = {.k = c->k, .x = call->in[0].data, .parts = call->scratch, .out = call->out[0].data, .n = n,
                          .chunk = chunk, .chunks = tiles_of(n, chunk), .accumulate = call->accumulate};
    r = enqueue(lane, square_tile, &arg, sizeof arg, arg.chunks);
    return r < 0 ? r : enqueue(lane, square_total, &arg, sizeof arg, 1);
}

struct add_arg {
    const float *from;
    float *to;
    uint64_t n;
    int accumulate;
};

static void add_tile(void *arg, uint32_t index, uint32_t worker)
{
    (void)worker;
    const struct add_arg *a = arg;
    const struct range r = tile_range(index, RUN_TILE, a->n);
    for (uint64_t i = r.first; i < r.last; i++)
        a->to[i] = a->accumulate ? a->to[i] + a->from[i] : a->from[i];
}

int op_add(void *self, const struct kc_op_call *call, struct kc_lane *lane, struct kc_error *e)
{
    struct cpu *c = self;
    const uint64_t n = view_elements(&call->in[0]);
    int r = CALL_CHECK(c, call, e, {0, KC_F32, n}, {1, KC_F32, n});
    if (r < 0)
        return r;
    struct add_arg arg = {
        .from = call->in[0].data, .to = call->out[0].data, .n = n, .accumulate = call->accumulate};
    return enqueue(lane, add_tile, &arg, sizeof arg, tiles_of(n, RUN_TILE));
}

struct scale_arg {
    const struct kernels *k;
    const void *from;
    void *to;
    uint64_t n;
    float by;
};

static void scale_tile(void *arg, uint32_t index, uint32_t worker)
{
    (void)worker;
    const struct scale_arg *a = arg;
    const struct range r = tile_range(index, RUN_TILE, a->n);
    a->k->scale(number_at(a->k, a->from, r.first), a->by, number_at(a->k, a->to, r.first), r.last - r.first);
}

int op_scale(void *self, const struct kc_op_call *call, struct kc_lane *lane, struct kc_error *e)
{
    struct cpu *c = self;
    const uint64_t n = view_elements(&call->in[0]);
    const uint8_t t = stored_type(&call->in[0]);
    int r = CALL_CHECK(c, call, e, {0, t, n}, {1, t, n});
    if (r < 0)
        return r;
    if (call->attrs != 1)
        return kc_fail(e, -EINVAL, "op scale: takes one attribute, what it multiplies with; has %u", call->attrs);
    struct scale_arg arg = {.k = kernels_for(c, &call->in[0]), .from = call->in[0].data, .to = call->out[0].data, .n = n,
                            .by = (float)call->attr[0]};
    return enqueue(lane, scale_tile, &arg, sizeof arg, tiles_of(n, RUN_TILE));
}
