/* linear.c - linear maps with weights stored [in, out] and a bias, alone or with what stands before or behind
 * them, and the head for sampling, whose weight is the embedding [vocab, hidden]. All are one matrix product on a
 * grid; LINEAR_W sums for the bias what the product has in cache. */
#include "cpu.h"

static void linear_tile(void *arg, uint32_t index, uint32_t worker)
{
    gemm_tile_run(arg, index, worker);
}

/* Enqueue the product of inputs `a` and `b` into output 0; g has the shape and what is fused; `sum`, which may be where the
 * output is, comes on top. */
static int product(struct cpu *c, const struct kc_op_call *call, int a, int b, const void *sum, struct kc_lane *lane,
                   struct gemm g, struct kc_error *e)
{
    g.cpu = c;
    g.a = call->in[a].data, g.a_type = call->in[a].type;
    g.b = call->in[b].data, g.b_type = call->in[b].type;
    g.c = call->out[0].data, g.c_type = call->out[0].type;
    gemm_on_top(&g, sum);
    const int tiles = gemm_begin(&g, lane, e);
    return tiles < 0 ? tiles : enqueue(lane, linear_tile, &g, sizeof g, (uint32_t)tiles);
}

/* x (r, k) · w (k, n) + b */
static struct gemm forward_shape(const struct kc_op_call *call)
{
    const uint64_t r = view_tokens(&call->in[0]), k = view_features(&call->in[0]);
    const uint64_t n = k ? view_elements(&call->in[1]) / k : 0;
    return (struct gemm){.m = r, .n = n, .k = k, .lda = k, .ldb = n, .ta = 'N', .tb = 'N'};
}

/* An operand that the call may leave out. */
static int optional_check(struct cpu *c, const struct kc_op_call *call, struct need need, struct kc_error *e)
{
    return call->in[need.index].data ? operands_check(c, call, &need, 1, e) : 0;
}

/* y = x·w + b */
int op_linear(void *self, const struct kc_op_call *call, struct kc_lane *lane, struct kc_error *e)
{
    struct gemm g = forward_shape(call);
    const uint8_t t = stored_type(&call->in[0]);
    int bad = CALL_CHECK(self, call, e, {0, t, g.m * g.k}, {1, t, g.k * g.n}, {3, t, g.m * g.n});
    bad = bad ? bad : optional_check(self, call, (struct need){2, t, g.n}, e);
    if (bad)
        return bad;
    g.bias = call->in[2].data;
    return product(self, call, 0, 1, NULL, lane, g, e);
}

/* f = x·w + b + residual, act = gelu(f) */
int op_linear_gelu(void *self, const struct kc_op_call *call, struct kc_lane *lane, struct kc_error *e)
{
    struct gemm g = forward_shape(call);
    const uint8_t t = stored_type(&call->in[0]);
    int bad = CALL_CHECK(self, call, e, {0, t, g.m * g.k}, {1, t, g.k * g.n}, {2, t, g.n},
                         {4, t, g.m * g.n}, {5, t, g.m * g.n});
    bad = bad ? bad : optional_check(self, call, (struct need){3, t, g.m * g.n}, e);
    if (bad)
        return bad;
    g.bias = call->in[2].data;
    g.gelu = call->out[1].data;
    return product(self, call, 0, 1, call->in[3].data, lane, g, e);
}

/* y = x·w + b + residual */
int op_linear_add(void *self, const struct kc_op_call *call, struct kc_lane *lane, struct kc_error *e)
{
    struct gemm g = forward_shape(call);
    const uint8_t t = stored_type(&call->in[0]);
    int bad = CALL_CHECK(self, call, e, {0, t, g.m * g.k}, {1, t, g.k * g.n}, {4, t, g.m * g.n});
    bad = bad ? bad : optional_check(self, call, (struct need){2, t, g.n}, e);
    bad = bad ? bad : optional_check(self, call, (struct need){3, t, g.m * g.n}, e);
    if (bad)
        return bad;
    g.bias = call->in[2].data;
    return product(self, call, 0, 1, call->in[3].data, lane, g, e);
}

/* dy (r, n) · w (k, n) transposed */
static struct gemm input_shape(const struct kc_op_call *call)
{
    const uint64_t r = view_tokens(&call->in[0]), n = view_features(&call->in[0]), k = view_features(&call->out[0]);
    return (struct gemm){.m = r, .n = k, .k = n, .lda = n, .ldb = n, .ta = 'N', .tb = 'T'};
}

/* dx = dy·wT + what reached x on other ways */
int op_linear_input(void *self, const struct kc_op_call *call, struct kc_lane *lane, struct kc_error *e)
{
    const struct gemm g = input_shape(call);
    const uint8_t t = stored_type(&call->in[0]);
    int bad = CALL_CHECK(self, call, e, {0, t, g.m * g.k}, {1, t, g.n * g.k}, {3, t, g.m * g.n});
    bad = bad ? bad : optional_check(self, call, (struct need){2, t, g.m * g.n}, e);
    return bad ? bad : product(self, call, 0, 1, call->in[2].data, lane, g, e);
}

/* df = (dy·wT + what reached gelu(f) on other ways) ⊙ gelu′(f) */
int op_linear_gelu_input(void *self, const struct kc_op_call *call, struct kc_lane *lane, struct kc_error *e)
{
    struct gemm g = input_shape(call);
    const uint8_t t = stored_type(&call->in[0]);
    int bad = CALL_CHECK(self, call, e, {0, t, g.m * g.k}, {1, t, g.n * g.k}, {2, t, g.m * g.n},
                         {4, t, g.m * g.n});
    bad = bad ? bad : optional_check(self, call, (struct need){3, t, g.m * g.n}, e);
    if (bad)
        return bad;
    g.gelu_of = call->in[2].data;
    return product(self, call, 0, 1, call->in[3].data, lane, g, e);
}

struct bias_arg {
    const struct kernels *k;
    const void *dy; /* (rows, n) */
    float *db;
    uint64_t rows, n;
    int add;
};

static void bias_tile(void *arg, uint32_t index, uint32_t worker)
{
    (void)worker;
    const struct bias_arg *a = arg;
    const struct range columns = tile_range(index, COLUMN_TILE, a->n);
    a->k->column_sum(a->dy, a->db, a->rows, a->n, columns.first, columns.last, a->add);
}

/* dw (k, n) (+)= xT · dy, db (n) (+)= sum of dy over rows; either may be left out */
int op_linear_weight(void *self, const struct kc_op_call *call, struct kc_lane *lane, struct kc_error *e)
{
    const uint64_t r = view_tokens(&call->in[0]), n = view_features(&call->in[0]), k = view_features(&call->in[1]);
    const uint8_t t = stored_type(&call->in[0]);
    int bad = CALL_CHECK(self, call, e, {0, t, r * n}, {1, t, r * k});
    if (bad == 0 && call->out[0].data)
        bad = CALL_CHECK(self, call, e, {2, KC_F32, k * n});
    if (bad == 0 && call->out[1].data)
        bad = CALL_CHECK(self, call, e, {3, KC_F32, n});
    if (bad)
        return bad;
    if (!call->out[0].data) {
        const struct bias_arg bias = {.k = kernels_for(self, &call->in[0]), .dy = call->in[0].data, .db = call->out[1].data,
                                      .rows = r, .n = n, .add = call->accumulate};
        return bias.db ? enqueue(lane, bias_tile, &bias, sizeof bias, tiles_of(n, COLUMN_TILE)) : 0;
    }
    const struct gemm g = {.m = k, .n = n, .k = r, .lda = k, .ldb = n, .ta = 'T', .tb = 'N',
                           .sum = call->out[1].data, .beta = call->accumulate ? 1 : 0};
    return product(self, call, 1, 0, NULL, lane, g, e);
}

/* logits (r, v) = x (r, h) · wteT; of a loss in steps they are f32 */
int op_head(void *self, const struct kc_op_call *call, struct kc_lane *lane, struct kc_error *e)
{
    const uint64_t r = view_rows(&call->in[0]), h = view_width(&call->in[0]), v = view_rows(&call->in[1]);
    const uint8_t t = stored_type(&call->in[0]);
    int bad = CALL_CHECK(self, call, e, {0, t, r * h}, {1, t, v * h},
                         {2, call->out[0].type == KC_F32 ? KC_F32 : t, r * v});
    const struct gemm g = {.m = r, .n = v, .k = h, .lda = h, .ldb = h, .ta = 'N', .tb = 'T'};
    return bad ? bad : product(self, call, 0, 1, NULL, lane, g, e);
}
