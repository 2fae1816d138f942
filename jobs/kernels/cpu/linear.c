/* linear.c - linear maps with weights stored [in, out] and a bias, alone or with what stands before or behind
 * them, and the head for sampling, whose weight is the embedding [vocab, hidden]. All are one matrix product on a
 * grid; LINEAR_W has the sums for the bias as further tiles. */
#include "cpu.h"

#define SUM_TILE 256 /* columns of a tile of db: a row's share is a kilobyte, which is read at full speed */

struct linear_arg {
    struct gemm g;
    uint32_t grid; /* tiles of the product; the ones behind are strips of db */
    const struct kernels *sums;
    const void *dy;
    float *db;
    uint64_t rows, n;
    int accumulate;
};

static void linear_tile(void *arg, uint32_t index, uint32_t worker)
{
    const struct linear_arg *a = arg;
    if (index < a->grid) {
        gemm_tile_run(&a->g, index, worker);
        return;
    }
    const struct range columns = tile_range(index - a->grid, SUM_TILE, a->n);
    a->sums->column_sum(a->dy, a->db, a->rows, a->n, columns.first, columns.last, a->accumulate);
}

/* What is still missing of a product of inputs `a` and `b` into output 0: operands, grid. Negative: -errno. */
static int product_begin(struct linear_arg *arg, struct cpu *c, const struct kc_op_call *call, int a, int b,
                         const struct kc_lane *lane, struct kc_error *e)
{
    struct gemm *g = &arg->g;
    g->cpu = c;
    g->a = call->in[a].data, g->a_type = call->in[a].type;
    g->b = call->in[b].data, g->b_type = call->in[b].type;
    g->c = call->out[0].data, g->c_type = call->out[0].type;
    int tiles = gemm_begin(g, lane, e);
    arg->grid = tiles < 0 ? 0 : (uint32_t)tiles;
    return tiles;
}

/* Enqueue a product; g has the shape and what is fused. */
static int product(struct cpu *c, const struct kc_op_call *call, struct kc_lane *lane, struct gemm g,
                   struct kc_error *e)
{
    struct linear_arg arg = {.g = g};
    int tiles = product_begin(&arg, c, call, 0, 1, lane, e);
    return tiles < 0 ? tiles : enqueue(lane, linear_tile, &arg, sizeof arg, arg.grid);
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
    const uint8_t t = stored_type(&call->in[0]);
    int bad = CALL_CHECK(self, call, e, {0, t, g.m * g.k}, {1, t, g.k * g.n}, {2, t, g.n},
                         {3, t, g.m * g.n});
    if (bad)
        return bad;
    g.bias = call->in[2].data;
    return product(self, call, lane, g, e);
}

/* f = x·w + b, act = gelu(f) */
int op_linear_gelu(void *self, const struct kc_op_call *call, struct kc_lane *lane, struct kc_error *e)
{
    struct gemm g = forward_shape(call);
    const uint8_t t = stored_type(&call->in[0]);
    int bad = CALL_CHECK(self, call, e, {0, t, g.m * g.k}, {1, t, g.k * g.n}, {2, t, g.n},
                         {3, t, g.m * g.n}, {4, t, g.m * g.n});
    if (bad)
        return bad;
    g.bias = call->in[2].data;
    g.gelu = call->out[1].data;
    return product(self, call, lane, g, e);
}

/* y = x·w + b + residual */
int op_linear_add(void *self, const struct kc_op_call *call, struct kc_lane *lane, struct kc_error *e)
{
    struct gemm g = forward_shape(call);
    const uint8_t t = stored_type(&call->in[0]);
    int bad = CALL_CHECK(self, call, e, {0, t, g.m * g.k}, {1, t, g.k * g.n}, {2, t, g.n},
                         {3, t, g.m * g.n}, {4, t, g.m * g.n});
    if (bad)
        return bad;
    g.bias = call->in[2].data;
    g.residual = call->in[3].data;
    return product(self, call, lane, g, e);
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
    const uint8_t t = stored_type(&call->in[0]);
    int bad = CALL_CHECK(self, call, e, {0, t, g.m * g.k}, {1, t, g.n * g.k}, {2, t, g.m * g.n});
    return bad ? bad : product(self, call, lane, g, e);
}

/* df = (dy·wT) ⊙ gelu′(f) */
int op_linear_gelu_input(void *self, const struct kc_op_call *call, struct kc_lane *lane, struct kc_error *e)
{
    struct gemm g = input_shape(call);
    const uint8_t t = stored_type(&call->in[0]);
    int bad = CALL_CHECK(self, call, e, {0, t, g.m * g.k}, {1, t, g.n * g.k}, {2, t, g.m * g.n},
                         {3, t, g.m * g.n});
    if (bad)
        return bad;
    g.gelu_of = call->in[2].data;
    return product(self, call, lane, g, e);
}

/* dw (k, n) (+)= xT · dy, db (n) (+)= sum of dy over rows */
int op_linear_weight(void *self, const struct kc_op_call *call, struct kc_lane *lane, struct kc_error *e)
{
    struct cpu *c = self;
    const uint64_t r = view_rows(&call->in[0]), n = view_width(&call->in[0]), k = view_width(&call->in[1]);
    const uint8_t t = stored_type(&call->in[0]);
    int bad = CALL_CHECK(c, call, e, {0, t, r * n}, {1, t, r * k}, {2, KC_F32, k * n}, {3, KC_F32, n});
    if (bad)
        return bad;
    struct linear_arg arg = {.sums = kernels_for(c, &call->in[0]), .dy = call->in[0].data, .db = call->out[1].data,
                             .rows = r, .n = n, .accumulate = call->accumulate};
    arg.g = (struct gemm){.m = k, .n = n, .k = r, .lda = k, .ldb = n, .ta = 'T', .tb = 'N',
                          .beta = call->accumulate ? 1 : 0};
    int tiles = product_begin(&arg, c, call, 1, 0, lane, e);
    return tiles < 0 ? tiles : enqueue(lane, linear_tile, &arg, sizeof arg, arg.grid + tiles_of(n, SUM_TILE));
}

/* logits (r, v) = x (r, h) · wteT */
int op_head(void *self, const struct kc_op_call *call, struct kc_lane *lane, struct kc_error *e)
{
    const uint64_t r = view_rows(&call->in[0]), h = view_width(&call->in[0]), v = view_rows(&call->in[1]);
    const uint8_t t = stored_type(&call->in[0]);
    int bad = CALL_CHECK(self, call, e, {0, t, r * h}, {1, t, v * h}, {2, t, r * v});
    const struct gemm g = {.m = r, .n = v, .k = h, .lda = h, .ldb = h, .ta = 'N', .tb = 'T'};
    return bad ? bad : product(self, call, lane, g, e);
}
