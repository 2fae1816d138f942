/* rmsnorm.c - RMSNorm by tiles of rows; its weight gradient by strips of columns over all rows. */
#include "cpu.h"

struct rms_arg {
    const struct kernels *k;
    const void *x, *w, *dy, *residual;
    void *y;
    float *rstd, *dw;
    uint64_t rows, n;
    float eps;
    int accumulate;
};

static void rmsnorm_tile(void *arg, uint32_t index, uint32_t worker)
{
    (void)worker;
    const struct rms_arg *a = arg;
    const struct range r = tile_range(index, ROW_TILE, a->rows);
    const uint64_t at = r.first * a->n;
    a->k->rmsnorm(number_at(a->k, a->x, at), a->w, number_at(a->k, a->y, at), a->rstd + r.first, r.last - r.first,
                  a->n, a->eps);
}

int op_rmsnorm(void *self, const struct kc_op_call *call, struct kc_lane *lane, struct kc_error *e)
{
    struct cpu *c = self;
    const uint64_t n = view_width(&call->in[0]), rows = view_rows(&call->in[0]);
    const uint8_t t = stored_type(&call->in[0]);
    int r = CALL_CHECK(c, call, e, {0, t, rows * n}, {1, t, n}, {2, t, rows * n}, {3, KC_F32, rows});
    if (r < 0)
        return r;
    if (call->attrs != 1)
        return kc_fail(e, -EINVAL, "op rmsnorm: takes one attribute, eps; has %u", call->attrs);
    struct rms_arg arg = {.k = kernels_for(c, &call->in[0]), .x = call->in[0].data, .w = call->in[1].data,
                          .y = call->out[0].data, .rstd = call->out[1].data, .rows = rows, .n = n,
                          .eps = (float)call->attr[0]};
    return enqueue(lane, rmsnorm_tile, &arg, sizeof arg, tiles_of(rows, ROW_TILE));
}

static void rmsnorm_input_tile(void *arg, uint32_t index, uint32_t worker)
{
    (void)worker;
    const struct rms_arg *a = arg;
    const struct range r = tile_range(index, ROW_TILE, a->rows);
    const uint64_t at = r.first * a->n;
    a->k->rmsnorm_input(number_at(a->k, a->dy, at), number_at(a->k, a->x, at), a->w, a->rstd + r.first,
                        number_at(a->k, a->residual, at), number_at(a->k, a->y, at), r.last - r.first, a->n);
}

int op_rmsnorm_input(void *self, const struct kc_op_call *call, struct kc_lane *lane, struct kc_error *e)
{
    struct cpu *c = self;
    const uint64_t n = view_width(&call->in[0]), rows = view_rows(&call->in[0]);
    const uint8_t t = stored_type(&call->in[0]);
    int r = CALL_CHECK(c, call, e, {0, t, rows * n}, {1, t, rows * n}, {2, t, n}, {3, KC_F32, rows},
                       {5, t, rows * n});
    if (r == 0 && call->in[4].data)
        r = CALL_CHECK(c, call, e, {4, t, rows * n});
    if (r < 0)
        return r;
    struct rms_arg arg = {.k = kernels_for(c, &call->in[0]), .dy = call->in[0].data, .x = call->in[1].data,
                          .w = call->in[2].data, .rstd = call->in[3].data, .residual = call->in[4].data,
                          .y = call->out[0].data, .rows = rows, .n = n};
    return enqueue(lane, rmsnorm_input_tile, &arg, sizeof arg, tiles_of(rows, ROW_TILE));
}

static void rmsnorm_weight_tile(void *arg, uint32_t index, uint32_t worker)
{
    (void)worker;
    const struct rms_arg *a = arg;
    const struct range columns = tile_range(index, COLUMN_TILE, a->n);
    a->k->rmsnorm_weight(a->dy, a->x, a->rstd, a->dw, a->rows, a->n, columns.first, columns.last, a->accumulate);
}

int op_rmsnorm_weight(void *self, const struct kc_op_call *call, struct kc_lane *lane, struct kc_error *e)
{
    struct cpu *c = self;
    const uint64_t n = view_width(&call->in[0]), rows = view_rows(&call->in[0]);
    const uint8_t t = stored_type(&call->in[0]);
    int r = CALL_CHECK(c, call, e, {0, t, rows * n}, {1, t, rows * n}, {2, KC_F32, rows}, {3, KC_F32, n});
    if (r < 0)
        return r;
    struct rms_arg arg = {.k = kernels_for(c, &call->in[0]), .dy = call->in[0].data, .x = call->in[1].data,
                          .rstd = call->in[2].data, .dw = call->out[0].data, .rows = rows, .n = n,
                          .accumulate = call->accumulate};
    return enqueue(lane, rmsnorm_weight_tile, &arg, sizeof arg, tiles_of(n, COLUMN_TILE));
}
