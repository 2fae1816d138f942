/* stored_attention.h - attention of one head from and to rows as they are stored. Included by stored.h only. */

/* The row that comes FETCH_ROWS behind this one. */
VEC_INLINE void STORED(fetch)(const REAL *row, size_t ld, size_t d)
{
    for (size_t i = 0; i < d; i += 64 / sizeof *row)
        __builtin_prefetch(row + FETCH_ROWS * ld + i);
}

/* `rows` rows of d numbers, close together; zeros up to `filled` rows. */
static void STORED(gather)(const REAL *from, size_t ld, float *to, size_t rows, size_t filled, size_t d)
{
    for (size_t r = 0; r < rows; r++, from += ld, to += d) {
        STORED(fetch)(from, ld, d);
        V_EACH(d, v_put(to + i, lanes, v_get(from + i, lanes, 0)));
    }
    memset(to, 0, (filled - rows) * d * sizeof *to);
}

static void STORED(scatter)(const float *from, REAL *to, size_t ld, size_t rows, size_t d)
{
    for (size_t r = 0; r < rows; r++, from += d, to += ld) {
        STORED(fetch)(to, ld, d);
        V_EACH(d, v_put(to + i, lanes, v_get(from + i, lanes, 0)));
    }
}

/* Queries [first, last), at most QUERIES of them; pointers are to the head's columns of row 0. */
static void STORED(attention)(const void *queries, const void *keys, const void *values, size_t ld, void *out,
                              size_t ldy, float *lse, size_t first, size_t last, size_t d)
{
    const REAL *q = queries, *k = keys, *v = values;
    REAL *y = out;
    struct block b;
    FLOATS(turned, WIDTH * QUERIES);
    FLOATS(rows, QUERIES * WIDTH);
    float largest[QUERIES], sum[QUERIES];
    const size_t n = last - first;
    b.d = d;
    b.scale = 1.f / sqrtf((float)d);
    b.most = keys_of(d);
    STORED(gather)(q + first * ld, ld, rows, n, QUERIES, d);
    turn(rows, d, turned, QUERIES, QUERIES, d);
    for (size_t r = 0; r < QUERIES; r++) {
        largest[r] = -INFINITY;
        sum[r] = 0;
    }
    for (b.from = 0; b.from < last; b.from += b.most) {
        b.keys = smaller(b.most, last - b.from);
        STORED(gather)(k + b.from * ld, ld, b.v, b.keys, rounded_up(b.keys, W), d);
        turn(b.v, d, b.k, b.most, rounded_up(b.keys, W), d);
        STORED(gather)(v + b.from * ld, ld, b.v, b.keys, b.keys, d);
        for (size_t g = 0; g < n; g += GROUP)
            if (b.from <= first + g)
                attention_group(&b, turned + g, rows + g * d, largest + g, sum + g, first + g, smaller(GROUP, n - g));
    }
    for (size_t r = 0; r < n; r++) {
        const vf inverse = v_all(1.f / sum[r]);
        V_EACH(d, v_put(y + (first + r) * ldy + i, lanes, v_get(rows + r * d + i, lanes, 0) * inverse));
        lse[first + r] = largest[r] + (float)log((double)sum[r]);
    }
}

/* Add a block's share of dq to the shares of the blocks before. They wait in f32: where bf16 is stored, the lower
 * halves stand where dk of the same rows will be, for keys come in ascending order and a row's dk after its dq. A row
 * is final with the block of keys it stands in; no block of queries has rows of two. */
static void STORED(dq_add)(const struct queries *a, const struct keys *b, REAL *dq, REAL *dk, size_t ld)
{
    const int first = b->from == 0, final = a->from < b->from + b->n;
    assert(!final || a->from + a->n <= b->from + b->n);
    for (size_t r = 0; r < a->n; r++) {
        REAL *to = dq + (a->from + r) * ld, *lower = dk + (a->from + r) * ld;
        STORED(fetch)(to, ld, b->d);
        V_EACH(b->d, {
            vf v = v_get(a->dq + r * b->d + i, lanes, 0);
            if (!first)
                v += v_get_exact(to + i, lower + i, lanes);
            if (final)
                v_put(to + i, lanes, v);
            else
                v_put_exact(to + i, lower + i, lanes, v);
        });
    }
}

static void STORED(keys_gather)(struct keys *b, const REAL *k, const REAL *v, size_t ld)
{
    const size_t filled = rounded_up(b->n, W);
    STORED(gather)(v + b->from * ld, ld, b->k, b->n, filled, b->d);
    turn(b->k, b->d, b->v_turned, b->most, filled, b->d);
    STORED(gather)(k + b->from * ld, ld, b->k, b->n, filled, b->d);
    turn(b->k, b->d, b->k_turned, b->most, filled, b->d);
}

static float STORED(dot)(const REAL *a, const float *b, size_t n)
{
    vf sum = v_all(0);
    V_EACH(n, sum = v_fma(v_get(a + i, lanes, 0), v_get(b + i, lanes, 0), sum));
    return v_sum(sum);
}

static void STORED(queries_gather)(struct queries *a, size_t d, const REAL *q, size_t ld, const REAL *y,
                                   const REAL *dy, size_t ldy, const float *lse)
{
    const size_t filled = rounded_up(a->n, W);
    STORED(gather)(dy + a->from * ldy, ldy, a->dy, a->n, filled, d);
    for (size_t r = 0; r < rounded_up(a->n, STRIP); r++) {
        STORED(fetch)(y + (a->from + r) * ldy, ldy, d);
        a->lse[r] = r < a->n ? lse[a->from + r] : 0;
        a->delta[r] = r < a->n ? STORED(dot)(y + (a->from + r) * ldy, a->dy + r * d, d) : 0;
    }
    turn(a->dy, d, a->dy_turned, a->most, filled, d);
    STORED(gather)(q + a->from * ld, ld, a->q, a->n, filled, d);
    turn(a->q, d, a->q_turned, a->most, filled, d);
}

/* All t rows of one head of one sequence. */
static void STORED(attention_input)(const void *queries, const void *keys, const void *values, size_t ld,
                                    const void *out, const void *above, size_t ldy, const float *lse, void *d_queries,
                                    void *d_keys, void *d_values, size_t t, size_t d)
{
    struct keys b;
    struct queries a;
    b.d = d;
    b.most = keys_of(d);
    b.scale = 1.f / sqrtf((float)d);
    a.most = d > BLOCK_FLOATS / BLOCK ? BLOCK / 2 : BLOCK;
    for (b.from = 0; b.from < t; b.from += b.most) {
        b.n = smaller(b.most, t - b.from);
        STORED(keys_gather)(&b, keys, values, ld);
        for (a.from = b.from; a.from < t; a.from += a.n) {
            a.n = queries_of(&a, &b, t);
            STORED(queries_gather)(&a, d, queries, ld, out, above, ldy, lse);
            attention_block(&b, &a);
            STORED(dq_add)(&a, &b, d_queries, d_keys, ld);
        }
        STORED(scatter)(b.dk, (REAL *)d_keys + b.from * ld, ld, b.n, d);
        STORED(scatter)(b.dv, (REAL *)d_values + b.from * ld, ld, b.n, d);
    }
}
