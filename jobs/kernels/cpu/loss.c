/* loss.c - the head and its cross entropy together, over blocks of tokens: logits = x·wteT of a block, their loss
 * and gradient in place, then both products of backward. So logits are never stored whole. The loss is summed by
 * chunks of rows, and the chunks in order. */
#include "cpu.h"

struct head_arg {
    struct gemm g, dw;      /* the product of this enqueue; of backward: dx, and dwte as the tiles behind `grid` */
    uint32_t grid;
    float *logits;          /* (rows, v) of this block */
    const int32_t *targets; /* (rows) */
    double *parts, *result; /* parts: (chunks, 2) loss sum, tokens; result NULL: another rank counts them */
    uint64_t rows, v;
    uint32_t chunks;
    uint8_t add, gradient;  /* result is added to; logits become their gradient, */
    uint8_t rounded;        /* in bf16, at the beginning of each row's place: native products take nothing else */
};
static_assert(sizeof(struct head_arg) <= KC_LANE_ARG_MAX, "a lane copies it");

static void product_tile(void *arg, uint32_t index, uint32_t worker)
{
    const struct head_arg *a = arg;
    if (index < a->grid)
        gemm_tile_run(&a->g, index, worker);
    else
        gemm_tile_run(&a->dw, index - a->grid, worker);
}

static void loss_tile(void *arg, uint32_t index, uint32_t worker)
{
    (void)worker;
    const struct head_arg *a = arg;
    const struct kernels *k = a->g.cpu->k;
    const struct range r = tile_range(index, ROW_TILE, a->rows);
    const int32_t *targets = a->targets + r.first;
    float lse[ROW_TILE], *logits = a->logits + r.first * a->v;
    double sum[2] = {0, 0};
    k->cross_entropy(logits, targets, lse, sum, r.last - r.first, a->v);
    if (a->gradient)
        k->cross_entropy_input(logits, targets, lse, logits, r.last - r.first, a->v);
    if (a->gradient && a->rounded)
        for (uint64_t i = 0; i < r.last - r.first; i++)
            k->bf16->narrow(logits + i * a->v, logits + i * a->v, a->v);
    memcpy(a->parts + 2 * index, sum, sizeof sum);
}

static void loss_total(void *arg, uint32_t index, uint32_t worker)
{
    (void)index, (void)worker;
    const struct head_arg *a = arg;
    double sum[2] = {0, 0};
    for (uint32_t i = 0; i < a->chunks; i++) {
        sum[0] += a->parts[2 * i];
        sum[1] += a->parts[2 * i + 1];
    }
    for (int i = 0; i < 2; i++)
        a->result[i] = a->add ? a->result[i] + sum[i] : sum[i];
}

/* What all blocks share; x (r, h), wte (v, h). */
struct head {
    const void *x, *wte; /* stored in `type` */
    void *dx;            /* NULL: no gradients are asked for */
    float *dwte;         /* NULL: wte is frozen */
    uint8_t type;
    const int32_t *targets;
    double *result;
    uint64_t rows, h, v, block;
    int accumulate;
};

static const void *row_of(const struct head *d, const void *x, uint64_t row)
{
    return (const char *)x + row * d->h * kc_type_bytes[d->type];
}

/* The two products of backward from the gradient of a block's logits; g still has the block's x. */
static void block_backward(struct head_arg *arg, const struct head *d, uint64_t first)
{
    const uint8_t type = arg->rounded ? KC_BF16 : KC_F32;
    const uint64_t ld = arg->rounded ? 2 * d->v : d->v; /* of rows whose place is that of f32 */
    arg->dw = (struct gemm){.cpu = arg->g.cpu, .a = arg->logits, .b = arg->g.a, .c = d->dwte, .m = d->v, .n = d->h,
                            .k = arg->rows, .lda = ld, .ldb = d->h, .ta = 'T', .tb = 'N', .a_type = type,
                            .b_type = d->type, .c_type = KC_F32, .beta = arg->add};
    arg->g = (struct gemm){.cpu = arg->g.cpu, .a = arg->logits, .b = d->wte, .c = (void *)row_of(d, d->dx, first),
                           .m = arg->rows, .n = d->h, .k = d->v, .lda = ld, .ldb = d->h, .ta = 'N', .tb = 'N',
                           .a_type = type, .b_type = d->type, .c_type = d->type};
}

static int block_run(struct cpu *c, const struct head *d, const struct kc_op_call *call, uint64_t first,
                     struct kc_lane *lane, struct kc_error *e)
{
    const uint64_t rows = d->rows - first < d->block ? d->rows - first : d->block;
    struct head_arg arg = {.targets = d->targets + first, .parts = call->scratch, .result = d->result, .rows = rows,
                           .v = d->v, .chunks = tiles_of(rows, ROW_TILE), .add = first || d->accumulate,
                           .gradient = d->dx != NULL, .rounded = d->type == KC_BF16 && c->native};
    arg.logits = (float *)call->scratch + rows * (KC_HEAD_ROW_EXTRA / sizeof(float));
    arg.g = (struct gemm){.cpu = c, .a = row_of(d, d->x, first), .b = d->wte, .c = arg.logits, .m = rows, .n = d->v,
                          .k = d->h, .lda = d->h, .ldb = d->h, .ta = 'N', .tb = 'T', .a_type = d->type,
                          .b_type = d->type, .c_type = KC_F32};
    int tiles = gemm_begin(&arg.g, lane, e), more;
    if (tiles < 0)
        return tiles;
    arg.grid = (uint32_t)tiles;
    int r = enqueue(lane, product_tile, &arg, sizeof arg, arg.grid);
    r = r < 0 ? r : enqueue(lane, loss_tile, &arg, sizeof arg, arg.chunks);
    if (r == 0 && arg.result)
        r = enqueue(lane, loss_total, &arg, sizeof arg, 1);
    if (r < 0 || !d->dx)
        return r;
    block_backward(&arg, d, first);
    if ((tiles = gemm_begin(&arg.g, lane, e)) < 0 || (more = d->dwte ? gemm_begin(&arg.dw, lane, e) : 0) < 0)
        return tiles < 0 ? tiles : more;
    arg.grid = (uint32_t)tiles;
    return enqueue(lane, product_tile, &arg, sizeof arg, arg.grid + (uint32_t)more);
}

static int head_run(struct cpu *c, struct head *d, const struct kc_op_call *call, struct kc_lane *lane,
                    struct kc_error *e)
{
    const uint64_t most = KC_HEAD_ROWS(d->v), blocks = (d->rows + most - 1) / most;
    d->block = blocks ? (d->rows + blocks - 1) / blocks : 0; /* even blocks */
    d->x = call->in[0].data;
    d->wte = call->in[1].data;
    d->targets = call->in[2].data;
    d->type = stored_type(&call->in[0]);
    d->accumulate = call->accumulate;
    if (call->scratch_bytes < d->block * KC_HEAD_ROW_BYTES(d->v))
        return kc_fail(e, -EINVAL, "op head-loss: %llu bytes of scratch, a block of %llu tokens needs %llu",
                       (unsigned long long)call->scratch_bytes, (unsigned long long)d->block,
                       (unsigned long long)(d->block * KC_HEAD_ROW_BYTES(d->v)));
    int r = 0;
    for (uint64_t first = 0; first < d->rows && r == 0; first += d->block)
        r = block_run(c, d, call, first, lane, e);
    return r;
}

/* result (+)= loss sum and number of tokens that count; left out where another rank counts them */
int op_head_loss(void *self, const struct kc_op_call *call, struct kc_lane *lane, struct kc_error *e)
{
    struct head d = {.rows = view_rows(&call->in[0]), .h = view_width(&call->in[0]), .v = view_rows(&call->in[1])};
    const uint8_t t = stored_type(&call->in[0]);
    int r = CALL_CHECK(self, call, e, {0, t, d.rows * d.h}, {1, t, d.v * d.h}, {2, KC_I32, d.rows});
    if (r < 0 || !call->out[0].data)
        return r;
    r = CALL_CHECK(self, call, e, {3, KC_F64, 2});
    if (r < 0)
        return r;
    d.result = call->out[0].data;
    return head_run(self, &d, call, lane, e);
}

/* The same, and dwte (+)= dlogitsT·x, if it is wanted, dx = dlogits·wte */
int op_head_loss_gradient(void *self, const struct kc_op_call *call, struct kc_lane *lane, struct kc_error *e)
{
    struct head d = {.rows = view_rows(&call->in[0]), .h = view_width(&call->in[0]), .v = view_rows(&call->in[1])};
    const uint8_t t = stored_type(&call->in[0]);
    int r = CALL_CHECK(self, call, e, {0, t, d.rows * d.h}, {1, t, d.v * d.h}, {2, KC_I32, d.rows}, {4, t, d.rows * d.h});
    if (r == 0 && call->out[0].data)
        r = CALL_CHECK(self, call, e, {3, KC_F32, d.v * d.h});
    if (r == 0 && call->out[2].data)
        r = CALL_CHECK(self, call, e, {5, KC_F64, 2});
    if (r < 0)
        return r;
    d.dwte = call->out[0].data;
    d.dx = call->out[1].data;
    d.result = call->out[2].data;
    return head_run(self, &d, call, lane, e);
}
