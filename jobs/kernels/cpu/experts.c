/* experts.c - products of the rows that each expert takes with the expert's own weights [out, in]. How many rows these
 * are is known when the tiles run, so the grid is one of experts and columns: it depends on shapes alone, and so does the
 * order of every sum. */
#include "cpu.h"

#define EXPERT_TILES 8 /* of a product, at least; more experts are tiles enough */
#define EXPERT_STEP 48 /* columns of a tile are a multiple of it, as in gemm.c */

struct experts_arg {
    struct gemm g;         /* of no rows yet */
    const int32_t *counts; /* (experts) */
    struct {
        uint64_t row, expert; /* numbers to go on for each row before, and for each expert */
    } a, b, c;
    uint64_t width;        /* columns of a tile */
    uint32_t pieces;
    int rows_are_inner;    /* the sum is over rows: a weight gradient */
};

static const void *on(const void *block, uint8_t type, uint64_t numbers)
{
    return block ? (const char *)block + numbers * kc_type_bytes[type] : NULL;
}

static void experts_tile(void *arg, uint32_t index, uint32_t worker)
{
    const struct experts_arg *a = arg;
    const uint32_t expert = index / a->pieces;
    const uint64_t rows = (uint64_t)a->counts[expert];
    uint64_t first = 0;
    for (uint32_t i = 0; i < expert; i++)
        first += (uint64_t)a->counts[i];
    struct gemm g = a->g;
    g.a = on(g.a, g.a_type, first * a->a.row + expert * a->a.expert);
    g.b = on(g.b, g.b_type, first * a->b.row + expert * a->b.expert);
    g.c = (void *)on(g.c, g.c_type, first * a->c.row + expert * a->c.expert);
    g.residual = on(g.residual, g.c_type, first * a->c.row);
    if (a->rows_are_inner)
        g.k = rows;
    else
        g.m = rows;
    const struct area area = {{0, g.m}, tile_range(index % a->pieces, a->width, g.n)};
    if (rows > 0)
        gemm_area_run(&g, &area, worker);
    for (uint64_t r = 0; rows == 0 && g.beta == 0 && r < g.m; r++) /* nobody was here: the gradient is none */
        memset((float *)g.c + r * g.n + area.n.first, 0, (area.n.last - area.n.first) * sizeof(float));
}

static int experts_run(struct cpu *c, const struct kc_op_call *call, struct experts_arg *a, int left, int right,
                       uint64_t experts, struct kc_lane *lane, struct kc_error *e)
{
    struct gemm *g = &a->g;
    const uint64_t pieces = experts < EXPERT_TILES ? (EXPERT_TILES + experts - 1) / experts : 1;
    g->cpu = c;
    g->a = call->in[left].data, g->a_type = call->in[left].type;
    g->b = call->in[right].data, g->b_type = call->in[right].type;
    a->width = ((g->n + pieces - 1) / pieces + EXPERT_STEP - 1) / EXPERT_STEP * EXPERT_STEP;
    a->pieces = tiles_of(g->n, a->width ? a->width : 1);
    int r = gemm_ready(c, g->a_type, lane, e);
    return r < 0 ? r : enqueue(lane, experts_tile, a, sizeof *a, (uint32_t)experts * a->pieces);
}

/* y (R, n) = rows (R, k) · wT, w (E, n, k) */
int op_experts(void *self, const struct kc_op_call *call, struct kc_lane *lane, struct kc_error *e)
{
    const uint64_t rows = view_rows(&call->in[0]), k = view_width(&call->in[0]), n = view_width(&call->out[0]);
    const uint64_t experts = view_elements(&call->in[2]);
    const uint8_t t = stored_type(&call->in[0]);
    int r = CALL_CHECK(self, call, e, {0, t, rows * k}, {1, t, experts * n * k}, {2, KC_I32, experts}, {3, t, rows * n});
    if (r < 0)
        return r;
    struct experts_arg a = {.counts = call->in[2].data, .a = {.row = k}, .b = {.expert = n * k}, .c = {.row = n}};
    a.g = (struct gemm){.c = call->out[0].data, .c_type = t, .n = n, .k = k, .lda = k, .ldb = k, .ta = 'N', .tb = 'T'};
    return experts_run(self, call, &a, 0, 1, experts, lane, e);
}

/* drows (R, k) = dy (R, n) · w + what reached the rows on other ways */
int op_experts_input(void *self, const struct kc_op_call *call, struct kc_lane *lane, struct kc_error *e)
{
    const uint64_t rows = view_rows(&call->in[0]), n = view_width(&call->in[0]), k = view_width(&call->out[0]);
    const uint64_t experts = view_elements(&call->in[2]);
    const uint8_t t = stored_type(&call->in[0]);
    int r = CALL_CHECK(self, call, e, {0, t, rows * n}, {1, t, experts * n * k}, {2, KC_I32, experts}, {4, t, rows * k});
    if (r == 0 && call->in[3].data)
        r = CALL_CHECK(self, call, e, {3, t, rows * k});
    if (r < 0)
        return r;
    struct experts_arg a = {.counts = call->in[2].data, .a = {.row = n}, .b = {.expert = n * k}, .c = {.row = k}};
    a.g = (struct gemm){.c = call->out[0].data, .c_type = t, .n = k, .k = n, .lda = n, .ldb = k, .ta = 'N', .tb = 'N'};
    gemm_on_top(&a.g, call->in[3].data);
    return experts_run(self, call, &a, 0, 1, experts, lane, e);
}

/* dw (E, n, k) (+)= dyT · rows */
int op_experts_weight(void *self, const struct kc_op_call *call, struct kc_lane *lane, struct kc_error *e)
{
    const uint64_t rows = view_rows(&call->in[0]), n = view_width(&call->in[0]), k = view_width(&call->in[1]);
    const uint64_t experts = view_elements(&call->in[2]);
    const uint8_t t = stored_type(&call->in[0]);
    int r = CALL_CHECK(self, call, e, {0, t, rows * n}, {1, t, rows * k}, {2, KC_I32, experts},
                       {3, KC_F32, experts * n * k});
    if (r < 0)
        return r;
    struct experts_arg a = {.counts = call->in[2].data, .a = {.row = n}, .b = {.row = k}, .c = {.expert = n * k},
                            .rows_are_inner = 1};
    a.g = (struct gemm){.c = call->out[0].data, .c_type = KC_F32, .m = n, .n = k, .lda = n, .ldb = k, .ta = 'T', .tb = 'N',
                        .beta = call->accumulate ? 1 : 0};
    return experts_run(self, call, &a, 0, 1, experts, lane, e);
}
