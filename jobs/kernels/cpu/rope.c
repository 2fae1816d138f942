/* rope.c - positions as rotations of queries and keys, the halves of a head against each other. The angles of a
 * micro-batch are computed once, in f64, as a table of a row for each token; layers only turn. */
#include "cpu.h"

#include <math.h>

struct turns_arg {
    const int32_t *positions; /* (rows) */
    float *turns;             /* (rows, d): d/2 cosines, d/2 sines */
    uint64_t rows, d;
    double theta;
};

static void turns_tile(void *arg, uint32_t index, uint32_t worker)
{
    (void)worker;
    const struct turns_arg *a = arg;
    const struct range rows = tile_range(index, ROW_TILE, a->rows);
    const uint64_t half = a->d / 2;
    for (uint64_t i = 0; i < half; i++) {
        const double speed = pow(a->theta, -2.0 * (double)i / (double)a->d);
        for (uint64_t r = rows.first; r < rows.last; r++) {
            a->turns[r * a->d + i] = (float)cos(a->positions[r] * speed);
            a->turns[r * a->d + half + i] = (float)sin(a->positions[r] * speed);
        }
    }
}

int op_rope_table(void *self, const struct kc_op_call *call, struct kc_lane *lane, struct kc_error *e)
{
    const uint64_t rows = view_elements(&call->in[0]), d = view_features(&call->out[0]);
    int r = CALL_CHECK(self, call, e, {0, KC_I32, rows}, {1, KC_F32, rows * d});
    if (r < 0)
        return r;
    if (call->attrs != 1 || d % 2)
        return kc_fail(e, -EINVAL, "op rope-table: takes one attribute, theta, and heads of an even width; has %u and %llu",
                       call->attrs, (unsigned long long)d);
    struct turns_arg arg = {.positions = call->in[0].data, .turns = call->out[0].data, .rows = rows, .d = d,
                            .theta = call->attr[0]};
    return enqueue(lane, turns_tile, &arg, sizeof arg, tiles_of(rows, ROW_TILE));
}

struct rope_arg {
    const struct kernels *k;
    const void *x;
    const float *turns;
    void *y;
    uint64_t rows, heads, d;
    float sign;
};

static void rope_tile(void *arg, uint32_t index, uint32_t worker)
{
    (void)worker;
    const struct rope_arg *a = arg;
    const struct range rows = tile_range(index, ROW_TILE, a->rows);
    for (uint64_t r = rows.first; r < rows.last; r++) {
        const uint64_t at = r * a->heads * a->d;
        a->k->rope(number_at(a->k, a->x, at), a->turns + r * a->d, number_at(a->k, a->y, at), a->heads, a->d,
                   a->sign);
    }
}

/* x (B, T, A, D), turns (B, T, D) */
static int turn(struct cpu *c, const struct kc_op_call *call, float sign, struct kc_lane *lane, struct kc_error *e)
{
    const struct kc_view *x = &call->in[0];
    const uint64_t rows = view_tokens(x), width = view_features(x), d = view_features(&call->in[1]);
    const uint8_t t = stored_type(x);
    int r = CALL_CHECK(c, call, e, {0, t, rows * width}, {1, KC_F32, rows * d}, {2, t, rows * width});
    if (r < 0)
        return r;
    if (d == 0 ? width > 0 : d % 2 || width % d)
        return kc_fail(e, -EINVAL, "op rope: rows of %llu numbers, heads of %llu", (unsigned long long)width,
                       (unsigned long long)d);
    struct rope_arg arg = {.k = kernels_for(c, x), .x = x->data, .turns = call->in[1].data, .y = call->out[0].data,
                           .rows = rows, .heads = d ? width / d : 0, .d = d, .sign = sign};
    return enqueue(lane, rope_tile, &arg, sizeof arg, tiles_of(rows, ROW_TILE));
}

int op_rope(void *self, const struct kc_op_call *call, struct kc_lane *lane, struct kc_error *e)
{
    return turn(self, call, 1, lane, e);
}

int op_rope_input(void *self, const struct kc_op_call *call, struct kc_lane *lane, struct kc_error *e)
{
    return turn(self, call, -1, lane, e);
}
