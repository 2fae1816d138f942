/* attention.c - causal attention in tiles (FlashAttention, Dao et al. 2022): the whole square of scores is never in
 * memory. Forward: a tile is QUERIES rows of one head of one sequence. Backward: a tile is one head of one sequence;
 * scores are computed again from q, k and the log-sum-exp of their rows.
 *
 * qkv is (B, T, 3, A, D): of a token q, k and v, each with its heads side by side; y is (B, T, A, D). */
#include "cpu.h"

#define QUERIES KC_ATTENTION_QUERIES

struct attention_arg {
    const struct kernels *k;
    const void *qkv, *y, *dy;
    const float *lse;
    void *out;            /* y, or dqkv */
    float *out_lse;
    uint64_t t, heads, d, blocks; /* blocks: of queries */
};

static void attention_tile(void *arg, uint32_t index, uint32_t worker)
{
    (void)worker;
    const struct attention_arg *a = arg;
    const uint64_t h = a->heads * a->d, head = index / a->blocks % a->heads, b = index / a->blocks / a->heads;
    const struct range rows = tile_range(index % a->blocks, QUERIES, a->t);
    const uint64_t q = b * a->t * 3 * h + head * a->d, y = b * a->t * h + head * a->d;
    a->k->attention(number_at(a->k, a->qkv, q), number_at(a->k, a->qkv, q + h), number_at(a->k, a->qkv, q + 2 * h),
                    3 * h, number_at(a->k, a->out, y), h, a->out_lse + (b * a->heads + head) * a->t, rows.first,
                    rows.last, a->d);
}

/* What forward and backward calls have in common: shapes from lse (B, A, T) and y (B, T, A, D). */
static int attention_shape(struct cpu *c, const struct kc_op_call *call, const struct kc_view *y,
                           const struct kc_view *lse, struct attention_arg *arg, struct kc_error *e)
{
    const uint64_t heads = y->size[2], d = y->size[3];
    if (y->rank != 4 || lse->rank != 3 || heads != lse->size[1] || y->size[1] != lse->size[2])
        return kc_fail(e, -EINVAL, "op attention: %llu rows of %llu heads, and log-sum-exp of %llu rows of %llu heads",
                       (unsigned long long)y->size[1], (unsigned long long)heads, (unsigned long long)lse->size[2],
                       (unsigned long long)lse->size[1]);
    if (d > KC_ATTENTION_WIDTH)
        return kc_fail(e, -EINVAL, "op attention: a head is %llu wide, at most %d are possible; more heads would do",
                       (unsigned long long)d, KC_ATTENTION_WIDTH);
    *arg = (struct attention_arg){.k = kernels_for(c, y), .t = y->size[1], .heads = heads, .d = d,
                                  .blocks = tiles_of(y->size[1], QUERIES),
                                  .qkv = call->in[call->inputs == 1 ? 0 : 1].data};
    return 0;
}

int op_attention(void *self, const struct kc_op_call *call, struct kc_lane *lane, struct kc_error *e)
{
    struct cpu *c = self;
    const struct kc_view *y = &call->out[0], *lse = &call->out[1];
    const uint64_t n = view_elements(y);
    const uint8_t t = stored_type(y);
    int r = CALL_CHECK(c, call, e, {0, t, 3 * n}, {1, t, n}, {2, KC_F32, view_elements(lse)});
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
    const uint64_t h = a->heads * a->d, head = index % a->heads, b = index / a->heads;
    const uint64_t q = b * a->t * 3 * h + head * a->d, y = b * a->t * h + head * a->d;
    a->k->attention_input(number_at(a->k, a->qkv, q), number_at(a->k, a->qkv, q + h),
                          number_at(a->k, a->qkv, q + 2 * h), 3 * h, number_at(a->k, a->y, y),
                          number_at(a->k, a->dy, y), h, a->lse + (b * a->heads + head) * a->t,
                          number_at(a->k, a->out, q), number_at(a->k, a->out, q + h),
                          number_at(a->k, a->out, q + 2 * h), a->t, a->d);
}

int op_attention_input(void *self, const struct kc_op_call *call, struct kc_lane *lane, struct kc_error *e)
{
    struct cpu *c = self;
    const struct kc_view *y = &call->in[2], *lse = &call->in[3];
    const uint64_t n = view_elements(y);
    const uint8_t t = stored_type(y);
    int r = CALL_CHECK(c, call, e, {0, t, n}, {1, t, 3 * n}, {2, t, n}, {3, KC_F32, view_elements(lse)},
                       {4, t, 3 * n});
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
