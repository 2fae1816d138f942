/* linear.c - linear maps with weights stored [in, out] and a bias, and the head, whose weight is the embedding
 * [vocab, hidden]. All six are one matrix product on a grid; LINEAR_W has the sums for the bias as further tiles. */
#include "cpu.h"

struct linear_arg {
    struct gemm g;
    const struct kernels *k;
    uint32_t grid;    /* tiles of the product; the ones behind are strips of db */
    const float *dy;
    float *db;
    uint64_t rows, n;
    int accumulate;
};

static void linear_tile(void *arg, uint32_t index, uint32_t worker)
{
    (void)worker;
    const struct linear_arg *a = arg;
    if (index < a->grid) {
        gemm_tile_run(&a->g, index);
        return;
    }
    const struct range columns = tile_range(index - a->grid, COLUMN_TILE, a->n);
    a->k->column_sum(a->dy, a->db, a->rows, a->n, columns.first, columns.last, a->accumulate);
}

/* Enqueue the product of inputs `a` and `b` into output 0; g has the shape. */
static int product(struct cpu *c, const struct kc_op_call *call, struct kc_lane *lane, int a, int b, struct gemm g)
{
    struct linear_arg arg = {.g = g};
    arg.g.run = c->sgemm;
    arg.g.a = call->in[a].data;
    arg.g.b = call->in[b].data;
    arg.g.c = call->out[0].data;
    arg.grid = gemm_grid(&arg.g);
    return enqueue(lane, linear_tile, &arg, sizeof arg, arg.grid);
}

/* y (r, n) = x (r, k) · w (k, n) + b */
int op_linear(void *self, const struct kc_op_call *call, struct kc_lane *lane, struct kc_error *e)
{
    struct cpu *c = self;
    const uint64_t r = view_rows(&call->in[0]), k = view_width(&call->in[0]), n = view_width(&call->in[1]);
    int bad = CALL_CHECK(c, call, e, {0, KC_F32, r * k}, {1, KC_F32, k * n}, {2, KC_F32, n}, {3, KC_F32, r * n});
    if (bad)
        return bad;
    struct gemm g = {.bias = call->in[2].data, .m = r, .n = n, .k = k, .lda = k, .ldb = n, .ta = 'N', .tb = 'N'};
    return product(c, call, lane, 0, 1, g);
}

/* dx (r, k) = dy (r, n) · wT */
int op_linear_input(void *self, const struct kc_op_call *call, struct kc_lane *lane, struct kc_error *e)
{
    struct cpu *c = self;
    const uint64_t r = view_rows(&call->in[0]), n = view_width(&call->in[0]), k = view_width(&call->out[0]);
    int bad = CALL_CHECK(c, call, e, {0, KC_F32, r * n}, {1, KC_F32, k * n}, {2, KC_F32, r * k});
    if (bad)
        return bad;
    struct gemm g = {.m = r, .n = k, .k = n, .lda = n, .ldb = n, .ta = 'N', .tb = 'T'};
    return product(c, call, lane, 0, 1, g);
}

/* dw (k, n) (+)= xT · dy, db (n) (+)= sum of dy over rows */
int op_linear_weight(void *self, const struct kc_op_call *call, struct kc_lane *lane, struct kc_error *e)
{
    struct cpu *c = self;
    const uint64_t r = view_rows(&call->in[0]), n = view_width(&call->in[0]), k = view_width(&call->in[1]);
    int bad = CALL_CHECK(c, call, e, {0, KC_F32, r * n}, {1, KC_F32, r * k}, {2, KC_F32, k * n}, {3, KC_F32, n});
    if (bad)
        return bad;
    struct linear_arg arg = {.k = c->k, .dy = call->in[0].data, .db = call->out[1].data, .rows = r, .n = n,
                             .accumulate = call->accumulate};
    arg.g = (struct gemm){.run = c->sgemm, .m = k, .n = n, .k = r, .lda = k, .ldb = n, .ta = 'T', .tb = 'N'};
    arg.g.a = call->in[1].data;
    arg.g.b = call->in[0].data;
    arg.g.c = call->out[0].data;
    arg.g.beta = call->accumulate ? 1 : 0;
    arg.grid = gemm_grid(&arg.g);
    return enqueue(lane, linear_tile, &arg, sizeof arg, arg.grid + tiles_of(n, COLUMN_TILE));
}

/* logits (r, v) = x (r, h) · wteT */
int op_head(void *self, const struct kc_op_call *call, struct kc_lane *lane, struct kc_error *e)
{
    struct cpu *c = self;
    const uint64_t r = view_rows(&call->in[0]), h = view_width(&call->in[0]), v = view_rows(&call->in[1]);
    int bad = CALL_CHECK(c, call, e, {0, KC_F32, r * h}, {1, KC_F32, v * h}, {2, KC_F32, r * v});
    if (bad)
        return bad;
    struct gemm g = {.m = r, .n = v, .k = h, .lda = h, .ldb = h, .ta = 'N', .tb = 'T'};
    return product(c, call, lane, 0, 1, g);
}

/* dx (r, h) = dlogits (r, v) · wte */
int op_head_input(void *self, const struct kc_op_call *call, struct kc_lane *lane, struct kc_error *e)
{
    struct cpu *c = self;
    const uint64_t r = view_rows(&call->in[0]), v = view_width(&call->in[0]), h = view_width(&call->in[1]);
    int bad = CALL_CHECK(c, call, e, {0, KC_F32, r * v}, {1, KC_F32, v * h}, {2, KC_F32, r * h});
    if (bad)
        return bad;
    struct gemm g = {.m = r, .n = h, .k = v, .lda = v, .ldb = h, .ta = 'N', .tb = 'N'};
    return product(c, call, lane, 0, 1, g);
}

/* dwte (v, h) (+)= dlogitsT · x */
int op_head_weight(void *self, const struct kc_op_call *call, struct kc_lane *lane, struct kc_error *e)
{
    struct cpu *c = self;
    const uint64_t r = view_rows(&call->in[0]), v = view_width(&call->in[0]), h = view_width(&call->in[1]);
    int bad = CALL_CHECK(c, call, e, {0, KC_F32, r * v}, {1, KC_F32, r * h}, {2, KC_F32, v * h});
    if (bad)
        return bad;
    struct gemm g = {
        .m = v, .n = h, .k = r, .lda = v, .ldb = h, .ta = 'T', .tb = 'N', .beta = call->accumulate ? 1 : 0};
    return product(c, call, lane, 0, 1, g);
}
