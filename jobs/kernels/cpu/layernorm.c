/* layernorm.c - LayerNorm by tiles of rows; its weight gradients by strips of columns over all rows. */
#include "cpu.h"

struct norm_arg {
    const struct kernels *k;
    const void *x, *w, *b, *dy, *residual;
    void *y;
    float *mean, *rstd, *dw, *db;
    uint64_t rows, n;
    float eps;
    int accumulate;
};

static void layernorm_tile(void *arg, uint32_t index, uint32_t worker)
{
    (void)worker;
    const struct norm_arg *a = arg;
    const struct range r = tile_range(index, ROW_TILE, a->rows);
    const uint64_t at = r.first * a->n;
    a->k->layernorm(number_at(a->k, a->x, at), a->w, a->b, number_at(a->k, a->y, at), a->mean + r.first,
                    a->rstd + r.first, r.last - r.first, a->n, a->eps);
}

int op_layernorm(void *self, const struct kc_op_call *call, struct kc_lane *lane, struct kc_error *e)
{
    struct cpu *c = self;
    const uint64_t n = view_width(&call->in[0]), rows = view_rows(&call->in[0]);
    const uint8_t t = stored_type(&call->in[0]);
    int r = CALL_CHECK(c, call, e, {0, t, rows * n}, {1, t, n}, {2, t, n}, {3, t, rows * n}, {4, KC_F32, rows},
                       {5, KC_F32, rows});
    if (r < 0)
        return r;
    if (call->attrs != 1)
        return kc_fail(e, -EINVAL, "op layernorm: takes one attribute, eps; has %u", call->attrs);
    struct norm_arg arg = {.k = kernels_for(c, &call->in[0]),
                           .x = call->in[0].data, .w = call->in[1].data, .b = call->in[2].data,
                           .y = call->out[0].data, .mean = call->out[1].data, .rstd = call->out[2].data, .rows = rows,
                           .n = n, .eps = (float)call->attr[0]};
    return enqueue(lane, layernorm_tile, &arg, sizeof arg, tiles_of(rows, ROW_TILE));
}

static void layernorm_input_tile(void *arg, uint32_t index, uint32_t worker)
{
    (void)worker;
    const struct norm_arg *a = arg;
    const struct range r = tile_range(index, ROW_TILE, a->rows);
    const uint64_t at = r.first * a->n;
    a->k->layernorm_input(number_at(a->k, a->dy, at), number_at(a->k, a->x, at), a->w, a->mean + r.first,
                          a->rstd + r.first, number_at(a->k, a->residual, at), number_at(a->k, a->y, at),
                          r.last - r.first, a->n);
}

int op_layernorm_input(void *self, const struct kc_op_call *call, struct kc_lane *lane, struct kc_error *e)
{
    struct cpu *c = self;
    const uint64_t n = view_width(&call->in[0]), rows = view_rows(&call->in[0]);
    const uint8_t t = stored_type(&call->in[0]);
    int r = CALL_CHECK(c, call, e, {0, t, rows * n}, {1, t, rows * n}, {2, t, n}, {3, KC_F32, rows},
                       {4, KC_F32, rows}, {6, t, rows * n});
    if (r == 0 && call->in[5].data)
        r = CALL_CHECK(c, call, e, {5, t, rows * n});
    if (r < 0)
        return r;
    struct norm_arg arg = {.k = kernels_for(c, &call->in[0]),
                           .dy = call->in[0].data, .x = call->in[1].data, .w = call->in[2].data,
                           .mean = call->in[3].data, .rstd = call->in[4].data, .residual = call->in[5].data,
                           .y = call->out[0].data, .rows = rows, .n = n};
    return enqueue(lane, layernorm_input_tile, &arg, sizeof arg, tiles_of(rows, ROW_TILE));
}

static void layernorm_weight_tile(void *arg, uint32_t index, uint32_t worker)
{
    (void)worker;
    const struct norm_arg *a = arg;
    const struct range columns = tile_range(index, COLUMN_TILE, a->n);
    a->k->layernorm_weight(a->dy, a->x, a->mean, a->rstd, a->dw, a->db, a->rows, a->n, columns.first, columns.last,
                           a->accumulate);
}

int op_layernorm_weight(void *self, const struct kc_op_call *call, struct kc_lane *lane, struct kc_error *e)
{
    struct cpu *c = self;
    const uint64_t n = view_width(&call->in[0]), rows = view_rows(&call->in[0]);
    const uint8_t t = stored_type(&call->in[0]);
    int r = CALL_CHECK(c, call, e, {0, t, rows * n}, {1, t, rows * n}, {2, KC_F32, rows}, {3, KC_F32, rows});
    if (r == 0 && call->out[0].data) /* either may be frozen */
        r = CALL_CHECK(c, call, e, {4, KC_F32, n});
    if (r == 0 && call->out[1].data)
        r = CALL_CHECK(c, call, e, {5, KC_F32, n});
    if (r < 0)
        return r;
    struct norm_arg arg = {.k = kernels_for(c, &call->in[0]),
                           .dy = call->in[0].data, .x = call->in[1].data, .mean = call->in[2].data,
                           .rstd = call->in[3].data, .dw = call->out[0].data, .db = call->out[1].data, .rows = rows,
                           .n = n, .accumulate = call->accumulate};
    return enqueue(lane, layernorm_weight_tile, &arg, sizeof arg, tiles_of(n, COLUMN_TILE));
}
