/* embedding.c - token plus position, and the way back: rows are scattered in token order, a strip of columns per
 * tile, so that no two tiles write the same element and every sum has one order. */
#include "cpu.h"

struct embed_arg {
    const struct kernels *k;
    const int32_t *tokens; /* (B, T) */
    const void *in, *position; /* wte (V, H) and wpe (T', H), or dx (B, T, H) */
    void *x;                   /* (B, T, H) */
    float *out;                /* dwte (V, H), or dwpe (T', H) */
    uint64_t rows, t, h, v;     /* v: rows of the table that is written */
    int accumulate;
};

static void embed_tile(void *arg, uint32_t index, uint32_t worker)
{
    (void)worker;
    const struct embed_arg *a = arg;
    const struct range rows = tile_range(index, ROW_TILE, a->rows);
    for (uint64_t r = rows.first; r < rows.last; r++)
        a->k->add(number_at(a->k, a->in, (uint64_t)a->tokens[r] * a->h),
                  number_at(a->k, a->position, r % a->t * a->h), number_at(a->k, a->x, r * a->h), a->h);
}

int op_embed(void *self, const struct kc_op_call *call, struct kc_lane *lane, struct kc_error *e)
{
    struct cpu *c = self;
    const uint64_t rows = view_elements(&call->in[0]), h = view_width(&call->in[1]), t = view_width(&call->in[0]);
    const uint8_t type = stored_type(&call->in[1]);
    int r = CALL_CHECK(c, call, e, {0, KC_I32, rows}, {1, type, view_rows(&call->in[1]) * h},
                       {2, type, view_rows(&call->in[2]) * h}, {3, type, rows * h});
    if (r < 0)
        return r;
    if (t > view_rows(&call->in[2]))
        return kc_fail(e, -EINVAL, "op embed: %llu positions in a row, the table has %llu", (unsigned long long)t,
                       (unsigned long long)view_rows(&call->in[2]));
    struct embed_arg arg = {.k = kernels_for(c, &call->in[1]), .tokens = call->in[0].data, .in = call->in[1].data,
                            .position = call->in[2].data, .x = call->out[0].data, .rows = rows, .t = t, .h = h};
    return enqueue(lane, embed_tile, &arg, sizeof arg, tiles_of(rows, ROW_TILE));
}

static void embed_weight_tile(void *arg, uint32_t index, uint32_t worker)
{
    (void)worker;
    const struct embed_arg *a = arg;
    const struct range columns = tile_range(index, COLUMN_TILE, a->h);
    const uint64_t width = columns.last - columns.first;
    if (!a->accumulate)
        for (uint64_t r = 0; r < a->v; r++)
            memset(a->out + r * a->h + columns.first, 0, width * sizeof(float));
    for (uint64_t r = 0; r < a->rows; r++)
        a->k->add_to(a->out + (uint64_t)a->tokens[r] * a->h + columns.first,
                     number_at(a->k, a->in, r * a->h + columns.first), width);
}

int op_embed_weight(void *self, const struct kc_op_call *call, struct kc_lane *lane, struct kc_error *e)
{
    struct cpu *c = self;
    const uint64_t rows = view_elements(&call->in[0]), h = view_width(&call->in[1]), v = view_rows(&call->out[0]);
    int r = CALL_CHECK(c, call, e, {0, KC_I32, rows}, {1, stored_type(&call->in[1]), rows * h},
                       {2, KC_F32, v * h});
    if (r < 0)
        return r;
    struct embed_arg arg = {.k = kernels_for(c, &call->in[1]), .tokens = call->in[0].data, .in = call->in[1].data,
                            .out = call->out[0].data, .rows = rows, .h = h, .v = v, .accumulate = call->accumulate};
    return enqueue(lane, embed_weight_tile, &arg, sizeof arg, tiles_of(h, COLUMN_TILE));
}

/* Position p is in row p of every sequence; positions behind the sequence's end get zero. */
static void position_weight_tile(void *arg, uint32_t index, uint32_t worker)
{
    (void)worker;
    const struct embed_arg *a = arg;
    const struct range positions = tile_range(index, ROW_TILE, a->v);
    for (uint64_t p = positions.first; p < positions.last; p++) {
        float *to = a->out + p * a->h;
        if (!a->accumulate)
            memset(to, 0, a->h * sizeof(float));
        for (uint64_t r = p; p < a->t && r < a->rows; r += a->t)
            a->k->add_to(to, number_at(a->k, a->in, r * a->h), a->h);
    }
}

int op_position_weight(void *self, const struct kc_op_call *call, struct kc_lane *lane, struct kc_error *e)
{
    struct cpu *c = self;
    const struct kc_view *dx = &call->in[0];
    const uint64_t rows = view_rows(dx), h = view_width(dx), positions = view_rows(&call->out[0]);
    int r = CALL_CHECK(c, call, e, {0, stored_type(dx), rows * h}, {1, KC_F32, positions * h});
    if (r < 0)
        return r;
    if (dx->rank != 3 || dx->size[1] > positions)
        return kc_fail(e, -EINVAL, "op position.w: %llu positions in a row, the table has %llu",
                       (unsigned long long)dx->size[1], (unsigned long long)positions);
    struct embed_arg arg = {.k = kernels_for(c, dx), .in = dx->data, .out = call->out[0].data, .rows = rows,
                            .t = dx->size[1], .h = h, .v = positions, .accumulate = call->accumulate};
    return enqueue(lane, position_weight_tile, &arg, sizeof arg, tiles_of(positions, ROW_TILE));
}
