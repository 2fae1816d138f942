/* embedding.c - token plus position, and the way back: rows are scattered in token order, a strip of columns per
 * tile, so that no two tiles write the same element and every sum has one order. */
#include "cpu.h"

struct embed_arg {
    const struct kernels *k;
    const int32_t *tokens, *positions; /* (B, T) */
    const void *wte, *wpe;             /* (v rows from `first` on, H); (T', H) or NULL */
    void *x;                           /* (B, T, H) */
    uint64_t rows, h, v, first;
};

/* The row of the table that a number means; tables may begin and end elsewhere than the whole one. NULL: not here. */
static const void *table_row(const struct embed_arg *a, int32_t token)
{
    const uint64_t row = (uint64_t)(int64_t)token - a->first;
    return row < a->v ? number_at(a->k, a->wte, row * a->h) : NULL;
}

static void embed_tile(void *arg, uint32_t index, uint32_t worker)
{
    (void)worker;
    const struct embed_arg *a = arg;
    const struct range rows = tile_range(index, ROW_TILE, a->rows);
    for (uint64_t r = rows.first; r < rows.last; r++) {
        const void *token = table_row(a, a->tokens[r]);
        const void *position = number_at(a->k, a->wpe, a->wpe ? (uint64_t)a->positions[r] * a->h : 0);
        void *x = number_at(a->k, a->x, r * a->h);
        if (token && position)
            a->k->add(token, position, x, a->h);
        else if (token || position)
            memcpy(x, token ? token : position, a->h * a->k->bytes);
        else
            memset(x, 0, a->h * a->k->bytes);
    }
}

int op_embed(void *self, const struct kc_op_call *call, struct kc_lane *lane, struct kc_error *e)
{
    struct cpu *c = self;
    const struct kc_view *tokens = &call->in[0], *wte = &call->in[1], *wpe = &call->in[2];
    const uint64_t rows = view_elements(tokens), h = view_width(wte);
    const uint8_t type = stored_type(wte);
    int r = CALL_CHECK(c, call, e, {0, KC_I32, rows}, {1, type, view_rows(wte) * h}, {4, type, rows * h});
    if (r == 0 && wpe->data)
        r = CALL_CHECK(c, call, e, {2, type, view_rows(wpe) * h}, {3, KC_I32, rows});
    if (r < 0)
        return r;
    if (wpe->data && view_width(tokens) > view_rows(wpe))
        return kc_fail(e, -EINVAL, "op embed: %llu positions in a row, the table has %llu",
                       (unsigned long long)view_width(tokens), (unsigned long long)view_rows(wpe));
    struct embed_arg arg = {.k = kernels_for(c, wte), .tokens = tokens->data, .positions = call->in[3].data,
                            .wte = wte->data, .wpe = wpe->data, .x = call->out[0].data, .rows = rows, .h = h,
                            .v = view_rows(wte), .first = wte->first[0]};
    return enqueue(lane, embed_tile, &arg, sizeof arg, tiles_of(rows, ROW_TILE));
}

struct scatter_arg {
    const struct kernels *k;
    const int32_t *to;      /* (rows): the row of the table that gets this one, */
    const void *dx;         /* (rows, h) */
    float *table;           /* (v, h): its rows from `first` on */
    uint64_t rows, h, v, first;
    int accumulate;
};

static void scatter_tile(void *arg, uint32_t index, uint32_t worker)
{
    (void)worker;
    const struct scatter_arg *a = arg;
    const struct range columns = tile_range(index, COLUMN_TILE, a->h);
    const uint64_t width = columns.last - columns.first;
    if (!a->accumulate)
        for (uint64_t r = 0; r < a->v; r++)
            memset(a->table + r * a->h + columns.first, 0, width * sizeof(float));
    for (uint64_t r = 0; r < a->rows; r++) {
        const uint64_t row = (uint64_t)(int64_t)a->to[r] - a->first;
        if (row < a->v)
            a->k->add_to(a->table + row * a->h + columns.first, number_at(a->k, a->dx, r * a->h + columns.first),
                         width);
    }
}

static int scatter(struct cpu *c, const struct kc_op_call *call, int to, int dx, struct kc_lane *lane,
                   struct kc_error *e)
{
    const struct kc_view *d = &call->in[dx], *table = &call->out[0];
    const uint64_t rows = view_tokens(d), h = view_features(d), v = view_rows(table);
    int r = CALL_CHECK(c, call, e, {to, KC_I32, rows}, {dx, stored_type(d), rows * h}, {2, KC_F32, v * h});
    if (r < 0)
        return r;
    struct scatter_arg arg = {.k = kernels_for(c, d), .to = call->in[to].data, .dx = d->data, .table = table->data,
                              .rows = rows, .h = h, .v = v, .first = table->first[0],
                              .accumulate = call->accumulate};
    return enqueue(lane, scatter_tile, &arg, sizeof arg, tiles_of(h, COLUMN_TILE));
}

int op_embed_weight(void *self, const struct kc_op_call *call, struct kc_lane *lane, struct kc_error *e)
{
    return scatter(self, call, 0, 1, lane, e);
}

int op_position_weight(void *self, const struct kc_op_call *call, struct kc_lane *lane, struct kc_error *e)
{
    return scatter(self, call, 1, 0, lane, e);
}
