/* attention.c - causal attention in tiles (FlashAttention, Dao et al. 2022): the whole square of scores is never in
 * memory. Forward: a tile is QUERIES rows of one head of one sequence, its blocks of KEYS keys pass by. Backward: a
 * tile is one head of one sequence; scores are computed again from q, k and the log-sum-exp of their rows.
 *
 * qkv is (B, T, 3H), the thirds q, k, v; head a has columns [a·D, (a+1)·D) of each. */
#include "cpu.h"

#include <math.h>

#define QUERIES 64
#define KEYS 128

struct attention_arg {
    const struct kernels *k;
    sgemm_fn *sgemm;
    const float *qkv, *y, *dy, *lse;
    float *out, *out_lse; /* y and lse, or dqkv */
    uint64_t t, heads, d, blocks; /* blocks: of queries */
};

/* Keys of the block at `from` that any of the queries below `to` sees. */
static uint64_t block_keys(uint64_t from, uint64_t to)
{
    return to - from < KEYS ? to - from : KEYS;
}

static void attention_tile(void *arg, uint32_t index, uint32_t worker)
{
    (void)worker;
    const struct attention_arg *a = arg;
    const uint64_t h = a->heads * a->d, d = a->d;
    const uint64_t head = index / a->blocks % a->heads, b = index / a->blocks / a->heads;
    const struct range rows = tile_range(index % a->blocks, QUERIES, a->t);
    const uint64_t n = rows.last - rows.first;
    const float *base = a->qkv + b * a->t * 3 * h + head * d, *q = base + rows.first * 3 * h;
    float *y = a->out + (b * a->t + rows.first) * h + head * d;
    const float scale = 1.f / sqrtf((float)d);
    float scores[QUERIES * KEYS] __attribute__((aligned(64))), largest[QUERIES], sum[QUERIES];
    for (uint64_t i = 0; i < n; i++) {
        largest[i] = -INFINITY;
        sum[i] = 0;
    }
    for (uint64_t from = 0; from < rows.last; from += KEYS) {
        const uint64_t keys = block_keys(from, rows.last);
        const float *k = base + h + from * 3 * h, *v = k + h;
        a->sgemm('N', 'T', n, keys, d, q, 3 * h, k, 3 * h, 0, scores, KEYS);
        a->k->softmax_block(scores, n, keys, KEYS, (ptrdiff_t)rows.first - (ptrdiff_t)from, scale, largest, sum, y, d,
                            h);
        a->sgemm('N', 'N', n, d, keys, scores, KEYS, v, 3 * h, from ? 1 : 0, y, h);
    }
    a->k->softmax_finish(largest, sum, y, a->out_lse + (b * a->heads + head) * a->t + rows.first, n, d, h);
}

/* What forward and backward calls have in common: shapes from lse (B, heads, T) and y (B, T, H). */
static int attention_shape(struct cpu *c, const struct kc_op_call *call, const struct kc_view *y,
                           const struct kc_view *lse, struct attention_arg *arg, struct kc_error *e)
{
    const uint64_t heads = lse->size[1], h = view_width(y);
    if (y->rank != 3 || lse->rank != 3 || heads == 0 || h % heads || y->size[1] != lse->size[2])
        return kc_fail(e, -EINVAL, "op attention: width %llu and %llu heads do not fit", (unsigned long long)h,
                       (unsigned long long)heads);
    *arg = (struct attention_arg){.k = c->k, .sgemm = c->sgemm, .t = y->size[1], .heads = heads, .d = h / heads,
                                  .blocks = tiles_of(y->size[1], QUERIES),
                                  .qkv = call->in[call->inputs == 1 ? 0 : 1].data};
    return 0;
}

int op_attention(void *self, const struct kc_op_call *call, struct kc_lane *lane, struct kc_error *e)
{
    struct cpu *c = self;
    const struct kc_view *y = &call->out[0], *lse = &call->out[1];
    const uint64_t n = view_elements(y);
    int r = CALL_CHECK(c, call, e, {0, KC_F32, 3 * n}, {1, KC_F32, n}, {2, KC_F32, view_elements(lse)});
    struct attention_arg arg;
    if (r == 0)
        r = attention_shape(c, call, y, lse, &arg, e);
    if (r < 0)
        return r;
    arg.out = y->data;
    arg.out_lse = lse->data;
    return enqueue(lane, attention_tile, &arg, sizeof arg, (uint32_t)(lse->size[0] * arg.heads * arg.blocks));
}

static void attention_input_tile(void *arg, uint32_t index, uint32_t worker)
{
    (void)worker;
    const struct attention_arg *a = arg;
    const uint64_t h = a->heads * a->d, d = a->d, head = index % a->heads, b = index / a->heads, ld = 3 * h;
    const float *q = a->qkv + b * a->t * ld + head * d, *k = q + h, *v = k + h;
    float *dq = a->out + b * a->t * ld + head * d, *dk = dq + h, *dv = dk + h;
    const float *y = a->y + b * a->t * h + head * d, *dy = a->dy + b * a->t * h + head * d;
    const float *lse = a->lse + (b * a->heads + head) * a->t;
    const float scale = 1.f / sqrtf((float)d);
    float p[QUERIES * KEYS] __attribute__((aligned(64))), ds[QUERIES * KEYS] __attribute__((aligned(64))),
        delta[QUERIES];
    for (uint64_t r = 0; r < a->t; r++)
        for (uint64_t third = 0; third < 3; third++)
            memset(dq + r * ld + third * h, 0, d * sizeof(float));
    for (uint64_t first = 0; first < a->t; first += QUERIES) {
        const uint64_t last = first + QUERIES < a->t ? first + QUERIES : a->t, n = last - first;
        for (uint64_t i = 0; i < n; i++)
            delta[i] = a->k->dot(y + (first + i) * h, dy + (first + i) * h, d);
        for (uint64_t from = 0; from < last; from += KEYS) {
            const uint64_t keys = block_keys(from, last);
            const float *dyi = dy + first * h;
            a->sgemm('N', 'T', n, keys, d, q + first * ld, ld, k + from * ld, ld, 0, p, KEYS);
            a->sgemm('N', 'T', n, keys, d, dyi, h, v + from * ld, ld, 0, ds, KEYS);
            a->k->softmax_input(p, ds, n, keys, KEYS, (ptrdiff_t)first - (ptrdiff_t)from, scale, lse + first, delta);
            a->sgemm('T', 'N', keys, d, n, p, KEYS, dyi, h, 1, dv + from * ld, ld);
            a->sgemm('T', 'N', keys, d, n, ds, KEYS, q + first * ld, ld, 1, dk + from * ld, ld);
            a->sgemm('N', 'N', n, d, keys, ds, KEYS, k + from * ld, ld, 1, dq + first * ld, ld);
        }
    }
}

int op_attention_input(void *self, const struct kc_op_call *call, struct kc_lane *lane, struct kc_error *e)
{
    struct cpu *c = self;
    const struct kc_view *y = &call->in[2], *lse = &call->in[3];
    const uint64_t n = view_elements(y);
    int r = CALL_CHECK(c, call, e, {0, KC_F32, n}, {1, KC_F32, 3 * n}, {2, KC_F32, n},
                       {3, KC_F32, view_elements(lse)}, {4, KC_F32, 3 * n});
    struct attention_arg arg;
    if (r == 0)
        r = attention_shape(c, call, y, lse, &arg, e);
    if (r < 0)
        return r;
    arg.dy = call->in[0].data;
    arg.y = y->data;
    arg.lse = lse->data;
    arg.out = call->out[0].data;
    return enqueue(lane, attention_input_tile, &arg, sizeof arg, (uint32_t)(lse->size[0] * arg.heads));
}
