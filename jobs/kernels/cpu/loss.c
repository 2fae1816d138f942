/* loss.c - cross entropy: rows in chunks, the sums of the chunks added in order. */
#include "cpu.h"

struct loss_arg {
    const struct kernels *k;
    const float *logits, *lse_in;
    const int32_t *targets;
    float *lse, *dlogits;
    double *parts, *result; /* parts: (chunks, 2) loss sum, tokens */
    uint64_t rows, n, chunk;
    uint32_t chunks;
    int accumulate;
};

static void loss_tile(void *arg, uint32_t index, uint32_t worker)
{
    (void)worker;
    const struct loss_arg *a = arg;
    const struct range r = tile_range(index, a->chunk, a->rows);
    double sum[2] = {0, 0};
    a->k->cross_entropy(a->logits + r.first * a->n, a->targets + r.first, a->lse + r.first, sum, r.last - r.first,
                        a->n);
    memcpy(a->parts + 2 * index, sum, sizeof sum);
}

static void loss_total(void *arg, uint32_t index, uint32_t worker)
{
    (void)index, (void)worker;
    const struct loss_arg *a = arg;
    double sum[2] = {0, 0};
    for (uint32_t i = 0; i < a->chunks; i++) {
        sum[0] += a->parts[2 * i];
        sum[1] += a->parts[2 * i + 1];
    }
    for (int i = 0; i < 2; i++)
        a->result[i] = a->accumulate ? a->result[i] + sum[i] : sum[i];
}

int op_cross_entropy(void *self, const struct kc_op_call *call, struct kc_lane *lane, struct kc_error *e)
{
    struct cpu *c = self;
    const uint64_t rows = view_rows(&call->in[0]), n = view_width(&call->in[0]);
    int r = CALL_CHECK(c, call, e, {0, KC_F32, rows * n}, {1, KC_I32, rows}, {2, KC_F32, rows}, {3, KC_F64, 2});
    if (r < 0)
        return r;
    uint64_t chunk = (rows + CHUNKS - 1) / CHUNKS;
    chunk = chunk < ROW_TILE ? ROW_TILE : chunk;
    struct loss_arg arg = {.k = c->k, .logits = call->in[0].data, .targets = call->in[1].data,
                           .lse = call->out[0].data, .parts = call->scratch, .result = call->out[1].data,
                           .rows = rows, .n = n, .chunk = chunk, .chunks = tiles_of(rows, chunk),
                           .accumulate = call->accumulate};
    r = enqueue(lane, loss_tile, &arg, sizeof arg, arg.chunks);
    return r < 0 ? r : enqueue(lane, loss_total, &arg, sizeof arg, 1);
}

static void loss_input_tile(void *arg, uint32_t index, uint32_t worker)
{
    (void)worker;
    const struct loss_arg *a = arg;
    const struct range r = tile_range(index, ROW_TILE, a->rows);
    a->k->cross_entropy_input(a->logits + r.first * a->n, a->targets + r.first, a->lse_in + r.first,
                              a->dlogits + r.first * a->n, r.last - r.first, a->n);
}

int op_cross_entropy_input(void *self, const struct kc_op_call *call, struct kc_lane *lane, struct kc_error *e)
{
    struct cpu *c = self;
    const uint64_t rows = view_rows(&call->in[0]), n = view_width(&call->in[0]);
    int r = CALL_CHECK(c, call, e, {0, KC_F32, rows * n}, {1, KC_I32, rows}, {2, KC_F32, rows},
                       {3, KC_F32, rows * n});
    if (r < 0)
        return r;
    struct loss_arg arg = {.k = c->k, .logits = call->in[0].data, .targets = call->in[1].data,
                           .lse_in = call->in[2].data, .dlogits = call->out[0].data, .rows = rows, .n = n};
    return enqueue(lane, loss_input_tile, &arg, sizeof arg, tiles_of(rows, ROW_TILE));
}
