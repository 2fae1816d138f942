/* attention.c - causal attention in tiles (FlashAttention, Dao et al. 2022): the whole square of scores is never in
 * memory. Forward: a tile is QUERIES rows of one head of one sequence. Backward: a tile is one key/value head of one
 * sequence with all heads that it serves (Ainslie et al. 2023); scores are computed again from q, k and the log-sum-exp
 * of their rows.
 *
 * ATTENTION has q, k and v in one tensor (B, T, 3, A, D), GROUPED three of (B, T, A or KV, D). Rows of a sequence are in
 * the order of their positions and none is missing: a cut of the sequence takes other ops. */
#include "cpu.h"

#define QUERIES KC_ATTENTION_QUERIES

struct attention_arg {
    const struct kernels *k;
    const void *q, *keys, *values, *dy;
    void *y, *dq, *dk, *dv, *lower;
    float *lse;                     /* (B, A, T) */
    const int32_t *positions, *starts;
    uint64_t t, d, heads, kv_heads; /* heads that are here; those of the whole tensor count from: */
    uint64_t first, kv_first, group; /* query head number i reads key/value head number i / group */
    uint64_t ldq, ldk;              /* numbers from a token to the next */
    uint64_t blocks;                /* of queries */
};

/* Heads [first, last) of sequence b, which share key/value head kv. */
static struct attention heads_of(const struct attention_arg *a, uint64_t b, uint64_t kv, uint64_t first,
                                 uint64_t last)
{
    const uint64_t q = b * a->t * a->ldq + first * a->d, k = b * a->t * a->ldk + kv * a->d,
                   y = (b * a->t * a->heads + first) * a->d, row = (b * a->heads + first) * a->t;
    return (struct attention){
        .q = number_at(a->k, a->q, q), .k = number_at(a->k, a->keys, k), .v = number_at(a->k, a->values, k),
        .y = number_at(a->k, a->y, y), .dy = number_at(a->k, a->dy, y), .dq = number_at(a->k, a->dq, q),
        .dk = number_at(a->k, a->dk, k), .dv = number_at(a->k, a->dv, k), .lse = a->lse + row,
        .lower = number_at(a->k, a->lower, row * a->d), .ldq = a->ldq, .ldk = a->ldk, .ldy = a->heads * a->d,
        .ldlse = a->t, .heads = last - first, .t = a->t, .keys = a->t, .d = a->d, .starts = a->starts ? a->starts + b * a->t : NULL,
        .origin = a->starts ? a->positions[b * a->t] : 0};
}

static void attention_tile(void *arg, uint32_t index, uint32_t worker)
{
    (void)worker;
    const struct attention_arg *a = arg;
    const uint64_t head = index / a->blocks % a->heads, b = index / a->blocks / a->heads;
    const struct range rows = tile_range(index % a->blocks, QUERIES, a->t);
    const struct attention h = heads_of(a, b, (a->first + head) / a->group - a->kv_first, head, head + 1);
    a->k->attention(&h, rows.first, rows.last);
}

static uint64_t between(uint64_t x, uint64_t low, uint64_t high)
{
    return x < low ? low : x > high ? high : x;
}

static void attention_input_tile(void *arg, uint32_t index, uint32_t worker)
{
    (void)worker;
    const struct attention_arg *a = arg;
    const uint64_t kv = index % a->kv_heads, b = index / a->kv_heads, of = (a->kv_first + kv) * a->group;
    const uint64_t end = a->first + a->heads;
    const struct attention h = heads_of(a, b, kv, between(of, a->first, end) - a->first,
                                        between(of + a->group, a->first, end) - a->first);
    a->k->attention_input(&h);
}

/* What forward and backward calls have in common: shapes from y (B, T, A, D) and lse (B, A, T). positions and starts are
 * inputs `at` and at + 1. */
static int attention_shape(struct cpu *c, const struct kc_op_call *call, const struct kc_view *y,
                           const struct kc_view *lse, int at, struct attention_arg *a, struct kc_error *e)
{
    if (y->rank != 4 || lse->rank != 3 || y->size[2] != lse->size[1] || y->size[1] != lse->size[2])
        return kc_fail(e, -EINVAL, "op attention: %llu rows of %llu heads, but log-sum-exp of %llu rows, %llu heads",
                       (unsigned long long)y->size[1], (unsigned long long)y->size[2],
                       (unsigned long long)lse->size[2], (unsigned long long)lse->size[1]);
    if (y->size[3] > KC_ATTENTION_WIDTH)
        return kc_fail(e, -EINVAL, "op attention: a head is %llu wide, at most %d are possible; more heads would do",
                       (unsigned long long)y->size[3], KC_ATTENTION_WIDTH);
    const uint64_t rows = view_tokens(y);
    a->k = kernels_for(c, y);
    a->t = y->size[1], a->heads = y->size[2], a->d = y->size[3];
    a->blocks = tiles_of(a->t, QUERIES);
    a->y = y->data, a->lse = lse->data;
    a->positions = call->in[at].data, a->starts = call->in[at + 1].data;
    return a->starts ? CALL_CHECK(c, call, e, {at, KC_I32, rows}, {at + 1, KC_I32, rows}) : 0;
}

/* Heads and rows of q, k and v side by side. */
static void together(struct attention_arg *a, const void *qkv)
{
    const uint64_t h = a->heads * a->d;
    a->q = qkv, a->keys = number_at(a->k, qkv, h), a->values = number_at(a->k, qkv, 2 * h);
    a->kv_heads = a->heads, a->group = 1;
    a->ldq = a->ldk = 3 * h;
}

int op_attention(void *self, const struct kc_op_call *call, struct kc_lane *lane, struct kc_error *e)
{
    struct cpu *c = self;
    const struct kc_view *y = &call->out[0], *lse = &call->out[1];
    const uint64_t n = view_elements(y);
    const uint8_t t = stored_type(y);
    int r = CALL_CHECK(c, call, e, {0, t, 3 * n}, {3, t, n}, {4, KC_F32, view_elements(lse)});
    struct attention_arg a = {0};
    if (r == 0)
        r = attention_shape(c, call, y, lse, 1, &a, e);
    if (r < 0)
        return r;
    together(&a, call->in[0].data);
    return enqueue(lane, attention_tile, &a, sizeof a, (uint32_t)(lse->size[0] * a.heads * a.blocks));
}

int op_attention_input(void *self, const struct kc_op_call *call, struct kc_lane *lane, struct kc_error *e)
{
    struct cpu *c = self;
    const struct kc_view *y = &call->in[2], *lse = &call->in[3];
    const uint64_t n = view_elements(y);
    const uint8_t t = stored_type(y);
    int r = CALL_CHECK(c, call, e, {0, t, n}, {1, t, 3 * n}, {2, t, n}, {3, KC_F32, view_elements(lse)},
                       {6, t, 3 * n});
    struct attention_arg a = {0};
    if (r == 0)
        r = attention_shape(c, call, y, lse, 4, &a, e);
    if (r < 0)
        return r;
    together(&a, call->in[1].data);
    const uint64_t h = a.heads * a.d;
    a.dy = call->in[0].data;
    a.dq = call->out[0].data, a.dk = number_at(a.k, a.dq, h), a.dv = number_at(a.k, a.dq, 2 * h);
    return enqueue(lane, attention_input_tile, &a, sizeof a, (uint32_t)(lse->size[0] * a.kv_heads));
}

/* q (B, T, A, D), k and v (B, T, KV, D), inputs from `at` on */
static int grouped(struct cpu *c, const struct kc_op_call *call, int at, struct attention_arg *a, struct kc_error *e)
{
    const struct kc_view *q = &call->in[at], *k = &call->in[at + 1], *v = &call->in[at + 2];
    const uint64_t rows = view_tokens(q);
    const uint8_t t = stored_type(q);
    a->group = call->attrs == 1 && call->attr[0] >= 1 ? (uint64_t)call->attr[0] : 0;
    a->kv_heads = k->size[2];
    a->first = q->first[2], a->kv_first = k->first[2];
    int r = CALL_CHECK(c, call, e, {at, t, rows * a->heads * a->d}, {at + 1, t, rows * a->kv_heads * a->d},
                       {at + 2, t, rows * a->kv_heads * a->d});
    if (r < 0)
        return r;
    if (!a->group || a->heads == 0 || a->first / a->group < a->kv_first ||
        (a->first + a->heads - 1) / a->group >= a->kv_first + a->kv_heads)
        return kc_fail(e, -EINVAL,
                       "op grouped-attention: heads %llu to %llu, %llu to a key/value head, which are here from %llu on: "
                       "%llu",
                       (unsigned long long)a->first, (unsigned long long)(a->first + a->heads - 1),
                       (unsigned long long)a->group, (unsigned long long)a->kv_first,
                       (unsigned long long)a->kv_heads);
    a->q = q->data, a->keys = k->data, a->values = v->data;
    a->ldq = a->heads * a->d, a->ldk = a->kv_heads * a->d;
    return 0;
}

int op_grouped_attention(void *self, const struct kc_op_call *call, struct kc_lane *lane, struct kc_error *e)
{
    struct cpu *c = self;
    const struct kc_view *y = &call->out[0], *lse = &call->out[1];
    struct attention_arg a = {0};
    int r = CALL_CHECK(c, call, e, {5, stored_type(y), view_elements(y)}, {6, KC_F32, view_elements(lse)});
    if (r == 0)
        r = attention_shape(c, call, y, lse, 3, &a, e);
    if (r == 0)
        r = grouped(c, call, 0, &a, e);
    return r < 0 ? r : enqueue(lane, attention_tile, &a, sizeof a, (uint32_t)(lse->size[0] * a.heads * a.blocks));
}

int op_grouped_attention_input(void *self, const struct kc_op_call *call, struct kc_lane *lane, struct kc_error *e)
{
    struct cpu *c = self;
    const struct kc_view *y = &call->in[4], *lse = &call->in[5];
    const uint64_t n = view_elements(y), kv = view_elements(&call->in[2]);
    const uint8_t t = stored_type(y);
    struct attention_arg a = {0};
    int r = CALL_CHECK(c, call, e, {0, t, n}, {4, t, n}, {5, KC_F32, view_elements(lse)}, {8, t, n}, {9, t, kv},
                       {10, t, kv});
    if (r == 0)
        r = attention_shape(c, call, y, lse, 6, &a, e);
    if (r == 0)
        r = grouped(c, call, 1, &a, e);
    if (r == 0 && t == KC_BF16 && call->scratch_bytes < n * a.k->bytes)
        r = kc_fail(e, -EINVAL, "op grouped-attention.i: %zu bytes of scratch, the lower halves of dq need %llu",
                    call->scratch_bytes, (unsigned long long)(n * a.k->bytes));
    if (r < 0)
        return r;
    a.dy = call->in[0].data;
    a.dq = call->out[0].data, a.dk = call->out[1].data, a.dv = call->out[2].data;
    a.lower = t == KC_BF16 ? call->scratch : NULL;
    return enqueue(lane, attention_input_tile, &a, sizeof a, (uint32_t)(lse->size[0] * a.kv_heads));
}
