/* project.c - linear maps without a bias whose weights are stored [out, in], as torch.nn.Linear stores them. */
#include "cpu.h"

static void project_tile(void *arg, uint32_t index, uint32_t worker)
{
    gemm_tile_run(arg, index, worker);
}

/* Inputs `a` and `b` into output 0, and `sum`, which may be where the output is, on top. */
static int project(struct cpu *c, const struct kc_op_call *call, int a, int b, void *sum, struct gemm g,
                   struct kc_lane *lane, struct kc_error *e)
{
    g.cpu = c;
    g.a = call->in[a].data, g.a_type = call->in[a].type;
    g.b = call->in[b].data, g.b_type = call->in[b].type;
    g.c = call->out[0].data, g.c_type = call->out[0].type;
    gemm_on_top(&g, sum);
    int tiles = gemm_begin(&g, lane, e);
    return tiles < 0 ? tiles : enqueue(lane, project_tile, &g, sizeof g, (uint32_t)tiles);
}

static int sum_check(struct cpu *c, const struct kc_op_call *call, uint64_t elements, struct kc_error *e)
{
    return call->in[2].data ? CALL_CHECK(c, call, e, {2, stored_type(&call->in[1]), elements}) : 0;
}

/* y (r, n) = x (r, k) · wT + residual */
int op_project(void *self, const struct kc_op_call *call, struct kc_lane *lane, struct kc_error *e)
{
    const uint64_t r = view_tokens(&call->in[0]), k = view_features(&call->in[0]);
    const uint64_t n = k ? view_elements(&call->in[1]) / k : 0;
    const uint8_t t = stored_type(&call->in[0]);
    int bad = CALL_CHECK(self, call, e, {0, t, r * k}, {1, t, n * k}, {3, t, r * n});
    bad = bad ? bad : sum_check(self, call, r * n, e);
    const struct gemm g = {.m = r, .n = n, .k = k, .lda = k, .ldb = k, .ta = 'N', .tb = 'T'};
    return bad ? bad : project(self, call, 0, 1, call->in[2].data, g, lane, e);
}

/* dx (r, k) = dy (r, n) · w + what reached x on other ways; dy may be f32 beside a w in bf16 */
int op_project_input(void *self, const struct kc_op_call *call, struct kc_lane *lane, struct kc_error *e)
{
    const uint64_t r = view_tokens(&call->in[0]), n = view_features(&call->in[0]), k = view_features(&call->out[0]);
    const uint8_t t = stored_type(&call->in[1]);
    int bad = CALL_CHECK(self, call, e, {0, stored_type(&call->in[0]), r * n}, {1, t, n * k}, {3, t, r * k});
    bad = bad ? bad : sum_check(self, call, r * k, e);
    const struct gemm g = {.m = r, .n = k, .k = n, .lda = n, .ldb = k, .ta = 'N', .tb = 'N'};
    return bad ? bad : project(self, call, 0, 1, call->in[2].data, g, lane, e);
}

/* dw (n, k) (+)= dyT · x; dy may be f32 beside an x in bf16 */
int op_project_weight(void *self, const struct kc_op_call *call, struct kc_lane *lane, struct kc_error *e)
{
    const uint64_t r = view_tokens(&call->in[0]), n = view_features(&call->in[0]), k = view_features(&call->in[1]);
    int bad = CALL_CHECK(self, call, e, {0, stored_type(&call->in[0]), r * n}, {1, stored_type(&call->in[1]), r * k},
                         {2, KC_F32, n * k});
    const struct gemm g = {.m = n, .n = k, .k = r, .lda = n, .ldb = k, .ta = 'T', .tb = 'N',
                           .beta = call->accumulate ? 1 : 0};
    return bad ? bad : project(self, call, 0, 1, NULL, g, lane, e);
}
