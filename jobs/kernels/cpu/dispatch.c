/* dispatch.c - tokens to the rows of their experts and back, by tiles of tokens. A token has `top` rows, at `place`. */
#include "cpu.h"

struct dispatch_arg {
    const struct kernels *k;
    const void *x, *rows, *on;  /* (tokens, n); (tokens·top, n); (tokens, n) or NULL */
    void *to, *to_rows;
    const int32_t *place;       /* (tokens, top) */
    const float *share;         /* likewise; NULL: 1 */
    float *dshare;
    uint64_t tokens, top, n;
};

static void *row_of(const struct dispatch_arg *a, const void *block, uint64_t row)
{
    return number_at(a->k, block, row * a->n);
}

static void dispatch_tile(void *arg, uint32_t index, uint32_t worker)
{
    (void)worker;
    const struct dispatch_arg *a = arg;
    const struct range tokens = tile_range(index, ROW_TILE, a->tokens);
    for (uint64_t t = tokens.first; t < tokens.last; t++)
        for (uint64_t j = 0; j < a->top; j++)
            memcpy(row_of(a, a->to_rows, (uint64_t)a->place[t * a->top + j]), row_of(a, a->x, t), a->n * a->k->bytes);
}

/* Each token becomes the sum of its rows by their shares. */
static void mix_tile(void *arg, uint32_t index, uint32_t worker)
{
    (void)worker;
    const struct dispatch_arg *a = arg;
    const struct range tokens = tile_range(index, ROW_TILE, a->tokens);
    const void *rows[KC_TOP_K_MAX];
    float ones[KC_TOP_K_MAX];
    for (uint64_t j = 0; j < a->top; j++)
        ones[j] = 1;
    for (uint64_t t = tokens.first; t < tokens.last; t++) {
        for (uint64_t j = 0; j < a->top; j++)
            rows[j] = row_of(a, a->rows, (uint64_t)a->place[t * a->top + j]);
        a->k->mix(rows, a->share ? a->share + t * a->top : ones, a->top, row_of(a, a->on, t), row_of(a, a->to, t), a->n);
    }
}

static void combine_input_tile(void *arg, uint32_t index, uint32_t worker)
{
    (void)worker;
    const struct dispatch_arg *a = arg;
    const struct range tokens = tile_range(index, ROW_TILE, a->tokens);
    for (uint64_t t = tokens.first; t < tokens.last; t++) {
        const void *x = row_of(a, a->x, t);
        for (uint64_t j = t * a->top; j < (t + 1) * a->top; j++) {
            a->k->mix(&x, a->share + j, 1, NULL, row_of(a, a->to_rows, (uint64_t)a->place[j]), a->n);
            a->dshare[j] = a->k->inner(x, row_of(a, a->rows, (uint64_t)a->place[j]), a->n);
        }
    }
}

/* Sizes from a tensor of tokens and from place, which is input `at`. */
static int sizes(struct cpu *c, const struct kc_op_call *call, const struct kc_view *tokens, int at,
                 struct dispatch_arg *a, struct kc_error *e)
{
    *a = (struct dispatch_arg){.k = kernels_for(c, tokens), .place = call->in[at].data, .tokens = view_tokens(tokens),
                               .n = view_features(tokens), .top = view_features(&call->in[at])};
    if (a->top > KC_TOP_K_MAX)
        return kc_fail(e, -EINVAL, "op dispatch: %llu experts a token, at most %d are possible",
                       (unsigned long long)a->top, KC_TOP_K_MAX);
    return CALL_CHECK(c, call, e, {at, KC_I32, a->tokens * a->top});
}

/* x, place → rows */
int op_dispatch(void *self, const struct kc_op_call *call, struct kc_lane *lane, struct kc_error *e)
{
    struct dispatch_arg a;
    const uint8_t t = stored_type(&call->in[0]);
    int r = sizes(self, call, &call->in[0], 1, &a, e);
    r = r ? r : CALL_CHECK(self, call, e, {0, t, a.tokens * a.n}, {2, t, a.tokens * a.top * a.n});
    if (r < 0)
        return r;
    a.x = call->in[0].data, a.to_rows = call->out[0].data;
    return enqueue(lane, dispatch_tile, &a, sizeof a, tiles_of(a.tokens, ROW_TILE));
}

/* drows, place, sum → dx */
int op_dispatch_input(void *self, const struct kc_op_call *call, struct kc_lane *lane, struct kc_error *e)
{
    struct dispatch_arg a;
    const uint8_t t = stored_type(&call->in[0]);
    int r = sizes(self, call, &call->out[0], 1, &a, e);
    r = r ? r : CALL_CHECK(self, call, e, {0, t, a.tokens * a.top * a.n}, {3, t, a.tokens * a.n});
    if (r == 0 && call->in[2].data)
        r = CALL_CHECK(self, call, e, {2, t, a.tokens * a.n});
    if (r < 0)
        return r;
    a.rows = call->in[0].data, a.on = call->in[2].data, a.to = call->out[0].data;
    return enqueue(lane, mix_tile, &a, sizeof a, tiles_of(a.tokens, ROW_TILE));
}

/* rows, place, share, residual → y */
int op_combine(void *self, const struct kc_op_call *call, struct kc_lane *lane, struct kc_error *e)
{
    struct dispatch_arg a;
    const uint8_t t = stored_type(&call->in[0]);
    int r = sizes(self, call, &call->out[0], 1, &a, e);
    r = r ? r : CALL_CHECK(self, call, e, {0, t, a.tokens * a.top * a.n}, {2, KC_F32, a.tokens * a.top},
                           {4, t, a.tokens * a.n});
    if (r == 0 && call->in[3].data)
        r = CALL_CHECK(self, call, e, {3, t, a.tokens * a.n});
    if (r < 0)
        return r;
    a.rows = call->in[0].data, a.share = call->in[2].data, a.on = call->in[3].data, a.to = call->out[0].data;
    return enqueue(lane, mix_tile, &a, sizeof a, tiles_of(a.tokens, ROW_TILE));
}

/* dy, rows, place, share → drows, dshare */
int op_combine_input(void *self, const struct kc_op_call *call, struct kc_lane *lane, struct kc_error *e)
{
    struct dispatch_arg a;
    const uint8_t t = stored_type(&call->in[0]);
    int r = sizes(self, call, &call->in[0], 2, &a, e);
    const uint64_t rows = r ? 0 : a.tokens * a.top;
    r = r ? r : CALL_CHECK(self, call, e, {0, t, a.tokens * a.n}, {1, t, rows * a.n}, {3, KC_F32, rows}, {4, t, rows * a.n},
                           {5, KC_F32, rows});
    if (r < 0)
        return r;
    a.x = call->in[0].data, a.rows = call->in[1].data, a.share = call->in[3].data;
    a.to_rows = call->out[0].data, a.dshare = call->out[1].data;
    return enqueue(lane, combine_input_tile, &a, sizeof a, tiles_of(a.tokens, ROW_TILE));
}
