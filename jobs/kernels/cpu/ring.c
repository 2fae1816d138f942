/* ring.c - attention where ranks have two chunks of every sequence each: rank i of c has chunks i and 2c − 1 − i of 2c.
 * Keys and values go round, and in each of c rounds a rank takes those that are with it: on-line softmax goes on where
 * the round before left it, in f32. Of the four pairs of a chunk of queries and one of keys two are seen in every round
 * (in the first round one whole and two halves), so all ranks have the same work. Backward, what is owed to keys and
 * values goes round with them. (Liu et al. 2023; the pairs: Brandon et al. 2023, Llama 3.)
 *
 * What a round starts from is copied to its outputs first, unless it stands there, and then added to. */
#include "cpu.h"

#include <math.h>

#define QUERIES KC_ATTENTION_QUERIES

struct ring_arg {
    const struct kernels *k;
    const void *q, *keys, *values, *dy, *y_stored;
    float *y, *lse, *dq, *dk, *dv;
    const int32_t *starts;            /* (B, T) or NULL */
    uint64_t t, chunk, d, heads, kv_heads; /* t = 2·chunk: rows that are here */
    uint64_t first, kv_first, group;  /* as in attention.c */
    uint64_t own, other, coordinates; /* whose queries, whose keys; c */
    uint64_t blocks;                  /* of queries in a chunk */
};

/* Which chunk of the sequence half 0 or 1 of a coordinate is. */
static uint64_t chunk_of(const struct ring_arg *a, uint64_t coordinate, int half)
{
    return half ? 2 * a->coordinates - 1 - coordinate : coordinate;
}

/* Heads [first, last) of one chunk of queries, which share key/value head kv, and one chunk of keys. 0: they see none. */
static int pair_of(const struct ring_arg *a, uint64_t b, uint64_t kv, uint64_t first, uint64_t last, int queries, int keys,
                   struct attention *out)
{
    const uint64_t mine = chunk_of(a, a->own, queries), theirs = chunk_of(a, a->other, keys);
    const uint64_t row = b * a->t + (uint64_t)queries * a->chunk, key = b * a->t + (uint64_t)keys * a->chunk;
    const uint64_t q = (row * a->heads + first) * a->d, k = (key * a->kv_heads + kv) * a->d;
    if (theirs > mine)
        return 0;
    *out = (struct attention){
        .q = number_at(a->k, a->q, q), .k = number_at(a->k, a->keys, k), .v = number_at(a->k, a->values, k),
        .dy = number_at(a->k, a->dy, q), .y = a->y ? (void *)(a->y + q) : number_at(a->k, a->y_stored, q),
        .lse = a->lse + (b * a->heads + first) * a->t + (uint64_t)queries * a->chunk, .ldlse = a->t,
        .ldq = a->heads * a->d, .ldy = a->heads * a->d, .ldk = a->kv_heads * a->d, .heads = last - first,
        .t = a->chunk, .keys = a->chunk, .ahead = theirs < mine ? a->chunk : 0, .d = a->d, .sums = 1,
        .starts = a->starts ? a->starts + row : NULL, .origin = (int32_t)(theirs * a->chunk)};
    if (a->dq)
        out->dq = a->dq + q, out->dk = a->dk + k, out->dv = a->dv + k;
    return 1;
}

static void ring_tile(void *arg, uint32_t index, uint32_t worker)
{
    (void)worker;
    const struct ring_arg *a = arg;
    const struct range rows = tile_range((uint32_t)(index % a->blocks), QUERIES, a->chunk);
    const uint64_t of = index / a->blocks, head = of / 2 % a->heads, b = of / 2 / a->heads;
    struct attention pair;
    for (int keys = 0; keys < 2; keys++)
        if (pair_of(a, b, (a->first + head) / a->group - a->kv_first, head, head + 1, (int)(of % 2), keys, &pair))
            a->k->attention(&pair, rows.first, rows.last);
}

static uint64_t between(uint64_t x, uint64_t low, uint64_t high)
{
    return x < low ? low : x > high ? high : x;
}

static void ring_input_tile(void *arg, uint32_t index, uint32_t worker)
{
    (void)worker;
    const struct ring_arg *a = arg;
    const uint64_t kv = index % a->kv_heads, b = index / a->kv_heads, of = (a->kv_first + kv) * a->group;
    const uint64_t end = a->first + a->heads, first = between(of, a->first, end), last = between(of + a->group, a->first, end);
    struct attention pair;
    for (int i = 0; i < 4; i++)
        if (pair_of(a, b, kv, first - a->first, last - a->first, i / 2, i % 2, &pair))
            a->k->attention_input(&pair);
}

/* ---- what a round starts from ---- */
struct start_arg {
    const float *from; /* NULL: nothing so far */
    float *to, nothing;
    uint64_t n;
};

static void start_tile(void *arg, uint32_t index, uint32_t worker)
{
    (void)worker;
    const struct start_arg *a = arg;
    const struct range r = tile_range(index, RUN_TILE, a->n);
    if (a->from)
        memcpy(a->to + r.first, a->from + r.first, (r.last - r.first) * sizeof *a->to);
    for (uint64_t i = r.first; !a->from && i < r.last; i++)
        a->to[i] = a->nothing;
}

/* Input `in`, which may be left out, to the output that is operand `out`. */
static int start(struct cpu *c, const struct kc_op_call *call, int in, int out, float nothing, struct kc_lane *lane,
                 struct kc_error *e)
{
    const struct kc_view *from = &call->in[in], *to = &call->out[out - call->inputs];
    const struct start_arg a = {.from = from->data, .to = to->data, .nothing = nothing, .n = view_elements(to)};
    int r = CALL_CHECK(c, call, e, {out, KC_F32, a.n});
    if (r == 0 && from->data)
        r = CALL_CHECK(c, call, e, {in, KC_F32, a.n});
    return r < 0 || a.from == a.to ? r : enqueue(lane, start_tile, &a, sizeof a, tiles_of(a.n, RUN_TILE));
}

/* ---- the ops ---- */

/* Attributes: heads to a key/value head (left out: one), round, rounds. */
static int rounds_of(const struct kc_op_call *call, const struct kc_view *q, struct ring_arg *a, struct kc_error *e)
{
    const double *attr = call->attr;
    const uint32_t n = call->attrs;
    if ((n != 2 && n != 3) || attr[n - 1] < 1 || attr[n - 2] < 0 || attr[n - 2] >= attr[n - 1])
        return kc_fail(e, -EINVAL, "op ring-attention: takes two or three attributes, a round and rounds the last; has %u", n);
    const uint64_t round = (uint64_t)attr[n - 2];
    a->coordinates = (uint64_t)attr[n - 1];
    a->group = n == 3 ? (uint64_t)attr[0] : 1;
    a->own = q->size[1] ? q->first[1] / q->size[1] : 0;
    if (q->size[1] % 2 || (q->size[1] && q->first[1] % q->size[1]) || a->own >= a->coordinates)
        return kc_fail(e, -EINVAL, "op ring-attention: rows %llu to %llu are no pair of chunks of %llu ranks",
                       (unsigned long long)q->first[1], (unsigned long long)(q->first[1] + q->size[1]),
                       (unsigned long long)a->coordinates);
    a->other = (a->own + a->coordinates - round) % a->coordinates;
    return 0;
}

/* q (B, T, A, D), k and v (B, T, KV, D) are inputs `at`, at + 1 and at + 2; lse (B, A, T); starts input `starts` and
 * positions before it. */
static int ring(struct cpu *c, const struct kc_op_call *call, int at, int starts, const struct kc_view *lse,
                struct ring_arg *a, struct kc_error *e)
{
    const struct kc_view *q = &call->in[at], *k = &call->in[at + 1];
    const uint8_t type = stored_type(q);
    if (q->rank != 4 || k->rank != 4 || q->size[3] > KC_ATTENTION_WIDTH || q->size[3] == 0)
        return kc_fail(e, -EINVAL, "op ring-attention: heads are %llu wide, from 1 to %d are possible",
                       (unsigned long long)q->size[3], KC_ATTENTION_WIDTH);
    const uint64_t rows = view_tokens(q), keys = rows * k->size[2] * q->size[3];
    int r = CALL_CHECK(c, call, e, {at, type, view_elements(q)}, {at + 1, type, keys}, {at + 2, type, keys},
                       {starts - 1, KC_I32, rows});
    if (r == 0 && call->in[starts].data)
        r = CALL_CHECK(c, call, e, {starts, KC_I32, rows});
    if (r < 0 || (r = rounds_of(call, q, a, e)) < 0)
        return r;
    a->k = kernels_for(c, q);
    a->q = q->data, a->keys = k->data, a->values = call->in[at + 2].data, a->lse = lse->data;
    a->starts = call->in[starts].data;
    a->t = q->size[1], a->chunk = a->t / 2, a->heads = q->size[2], a->d = q->size[3], a->kv_heads = k->size[2];
    a->first = q->first[2], a->kv_first = k->first[2], a->blocks = tiles_of(a->chunk, QUERIES);
    if (!a->group || a->heads == 0 || a->first / a->group < a->kv_first ||
        (a->first + a->heads - 1) / a->group >= a->kv_first + a->kv_heads)
        return kc_fail(e, -EINVAL,
                       "op ring-attention: heads %llu to %llu, %llu to a key/value head, which are here from %llu on: %llu",
                       (unsigned long long)a->first, (unsigned long long)(a->first + a->heads - 1),
                       (unsigned long long)a->group, (unsigned long long)a->kv_first, (unsigned long long)a->kv_heads);
    return 0;
}

/* q, k, v, positions, starts, y and lse so far → y, lse */
int op_ring_attention(void *self, const struct kc_op_call *call, struct kc_lane *lane, struct kc_error *e)
{
    struct ring_arg a = {.y = call->out[0].data};
    const struct kc_view *q = &call->in[0];
    int r = ring(self, call, 0, 4, &call->out[1], &a, e);
    r = r ? r : CALL_CHECK(self, call, e, {7, KC_F32, view_elements(q)}, {8, KC_F32, view_tokens(q) * a.heads});
    r = r ? r : start(self, call, 5, 7, 0, lane, e);
    r = r ? r : start(self, call, 6, 8, -INFINITY, lane, e);
    return r ? r : enqueue(lane, ring_tile, &a, sizeof a, (uint32_t)(q->size[0] * a.heads * 2 * a.blocks));
}

/* dy, q, k, v, y, lse, positions, starts, dq, dk and dv so far → dq, dk, dv */
int op_ring_attention_input(void *self, const struct kc_op_call *call, struct kc_lane *lane, struct kc_error *e)
{
    struct ring_arg a = {.dy = call->in[0].data, .y_stored = call->in[4].data, .dq = call->out[0].data,
                         .dk = call->out[1].data, .dv = call->out[2].data};
    const struct kc_view *q = &call->in[1];
    const uint64_t n = view_elements(q), keys = view_elements(&call->in[2]);
    int r = ring(self, call, 1, 7, &call->in[5], &a, e);
    r = r ? r : CALL_CHECK(self, call, e, {0, stored_type(q), n}, {4, stored_type(q), n},
                           {5, KC_F32, view_tokens(q) * a.heads}, {11, KC_F32, n}, {12, KC_F32, keys}, {13, KC_F32, keys});
    for (int i = 0; r == 0 && i < 3; i++)
        r = start(self, call, 8 + i, 11 + i, 0, lane, e);
    return r ? r : enqueue(lane, ring_input_tile, &a, sizeof a, (uint32_t)(q->size[0] * a.kv_heads));
}
