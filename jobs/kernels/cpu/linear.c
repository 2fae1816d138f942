/* linear.c - linear maps with weights stored [in, out] and a bias, alone or with what stands before or behind them, and
 * the head for sampling, whose weight is the embedding [vocab, hidden]. All are one matrix product on a grid; LINEAR_W
 * has the sums for the bias as further tiles. */
#include "cpu.h"

#define SUM_TILE 256 /* columns of a tile of db: a row's share is a kilobyte, which is read at full speed */

struct linear_arg {
    struct gemm g;
    uint32_t grid; /* tiles of the product; the ones behind are strips of db */
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
    const struct range columns = tile_range(index - a->grid, SUM_TILE, a->n);
    a->g.k_of->column_sum(a->dy, a->db, a->rows, a->n, columns.first, columns.last, a->accumulate);
}

/* Enqueue the product of inputs `a` and `b` into output 0; g has the shape and the rest. */
static int product(struct cpu *c, const struct kc_op_call *call, struct kc_lane *lane, int a, int b, struct gemm g)
{
    struct linear_arg arg = {.g = g};
    arg.g.run = c->sgemm;
    arg.g.k_of = c->k;
    arg.g.a = call->in[a].data;
    arg.g.b = call->in[b].data;
    arg.g.c = call->out[0].data;
    arg.grid = gemm_grid(&arg.g);
    return enqueue(lane, linear_tile, &arg, sizeof arg, arg.grid);
}

/* x (r, k) · w (k, n) + b */
static struct gemm forward_shape(const struct kc_op_call *call)
{
    const uint64_t r = view_rows(&call->in[0]), k = view_width(&call->in[0]), n = view_width(&call->in[1]);
    return (struct gemm){.m = r, .n = n, .k = k, .lda = k, .ldb = n, .ta = 'N', .tb = 'N'};
}

/* y = x·w + b */
int op_linear(void *self, const struct kc_op_call *call, struct kc_lane *lane, struct kc_error *e)
{
    struct gemm g = forward_shape(call);
    int bad = CALL_CHECK(self, call, e, {0, KC_F32, g.m * g.k}, {1, KC_F32, g.k * g.n}, {2, KC_F32, g.n},
                         {3, KC_F32, g.m * g.n});
    if (bad)
        return bad;
    g.bias = call->in[2].data;
    return product(self, call, lane, 0, 1, g);
}

/* f = x·w + b, act = gelu(f) */
int op_linear_gelu(void *self, const struct kc_op_call *call, struct kc_lane *lane, struct kc_error *e)
{
    struct gemm g = forward_shape(call);
    int bad = CALL_CHECK(self, call, e, {0, KC_F32, g.m * g.k}, {1, KC_F32, g.k * g.n}, {2, KC_F32, g.n},
                         {3, KC_F32, g.m * g.n}, {4, KC_F32, g.m * g.n});
    if (bad)
        return bad;
    g.bias = call->in[2].data;
    g.gelu = call->out[1].data;
    return product(self, call, lane, 0, 1, g);
}

/* y = x·w + b + residual */
int op_linear_add(void *self, const struct kc_op_call *call, struct kc_lane *lane, struct kc_error *e)
{
    struct gemm g = forward_shape(call);
    int bad = CALL_CHECK(self, call, e, {0, KC_F32, g.m * g.k}, {1, KC_F32, g.k * g.n}, {2, KC_F32, g.n},
                         {3, KC_F32, g.m * g.n}, {4, KC_F32, g.m * g.n});
    if (bad)
        return bad;
    g.bias = call->in[2].data;
    g.residual = call->in[3].data;
    return product(self, call, lane, 0, 1, g);
}

/* dy (r, n) · w (k, n) transposed */
static struct gemm input_shape(const struct kc_op_call *call)
{
    const uint64_t r = view_rows(&call->in[0]), n = view_width(&call->in[0]), k = view_width(&call->out[0]);
    return (struct gemm){.m = r, .n = k, .k = n, .lda = n, .ldb = n, .ta = 'N', .tb = 'T'};
}

/* dx = dy·wT */
int op_linear_input(void *self, const struct kc_op_call *call, struct kc_lane *lane, struct kc_error *e)
{
    const struct gemm g = input_shape(call);
    int bad = CALL_CHECK(self, call, e, {0, KC_F32, g.m * g.k}, {1, KC_F32, g.n * g.k}, {2, KC_F32, g.m * g.n});
    return bad ? bad : product(self, call, lane, 0, 1, g);
}

/* df = (dy·wT) ⊙ gelu′(f) */
int op_linear_gelu_input(void *self, const struct kc_op_call *call, struct kc_lane *lane, struct kc_error *e)
{
    struct gemm g = input_shape(call);
    int bad = CALL_CHECK(self, call, e, {0, KC_F32, g.m * g.k}, {1, KC_F32, g.n * g.k}, {2, KC_F32, g.m * g.n},
                         {3, KC_F32, g.m * g.n});
    if (bad)
        return bad;
    g.gelu_of = call->in[2].data;
    return product(self, call, lane, 0, 1, g);
}

/* dw (k, n) (+)= xT · dy, db (n) (+)= sum of dy over rows */
int op_linear_weight(void *self, const struct kc_op_call *call, struct kc_lane *lane, struct kc_error *e)
{
    struct cpu *c = self;
    const uint64_t r = view_rows(&call->in[0]), n = view_width(&call->in[0]), k = view_width(&call->in[1]);
    int bad = CALL_CHECK(c, call, e, {0, KC_F32, r * n}, {1, KC_F32, r * k}, {2, KC_F32, k * n}, {3, KC_F32, n});
    if (bad)
        return bad;
    struct linear_arg arg = {.dy = call->in[0].data, .db = call->out[1].data, .rows = r, .n = n,
                             .accumulate = call->accumulate};
    arg.g = (struct gemm){.run = c->sgemm, .k_of = c->k, .m = k, .n = n, .k = r, .lda = k, .ldb = n, .ta = 'T',
                          .tb = 'N'};
    arg.g.a = call->in[1].data;
    arg.g.b = call->in[0].data;
    arg.g.c = call->out[0].data;
    arg.g.beta = call->accumulate ? 1 : 0;
    arg.grid = gemm_grid(&arg.g);
    return enqueue(lane, linear_tile, &arg, sizeof arg, arg.grid + tiles_of(n, SUM_TILE));
}

/* logits (r, v) = x (r, h) · wteT */
int op_head(void *self, const struct kc_op_call *call, struct kc_lane *lane, struct kc_error *e)
{
    const uint64_t r = view_rows(&call->in[0]), h = view_width(&call->in[0]), v = view_rows(&call->in[1]);
    int bad = CALL_CHECK(self, call, e, {0, KC_F32, r * h}, {1, KC_F32, v * h}, {2, KC_F32, r * v});
    const struct gemm g = {.m = r, .n = v, .k = h, .lda = h, .ldb = h, .ta = 'N', .tb = 'T'};
    return bad ? bad : product(self, call, lane, 0, 1, g);
}
