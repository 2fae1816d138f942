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

/* The keys [from, from + b->keys) of the block, turned, and their values. */
static void STORED(block_gather)(struct block *b, const struct attention *c)
{
    const REAL *k = (const REAL *)c->k + b->from * c->ldk, *v = (const REAL *)c->v + b->from * c->ldk;
    const size_t filled = rounded_up(b->keys, W);
    STORED(gather)(k, c->ldk, b->v, b->keys, filled, b->d);
    turn(b->v, b->d, b->k, b->most, filled, b->d);
    STORED(gather)(v, c->ldk, b->v, b->keys, b->keys, b->d);
}

/* Queries [first, last) of one head, at most QUERIES of them; pointers are to the head's columns of row 0. */
static void STORED(attention)(const struct attention *c, size_t first, size_t last)
{
    const size_t d = c->d, n = last - first, end = smaller(c->keys, last + c->ahead);
    struct block b = {.d = d, .most = keys_of(d), .scale = 1.f / sqrtf((float)d)};
    struct group group[QUERIES / GROUP];
    FLOATS(turned, WIDTH * QUERIES);
    FLOATS(rows, QUERIES * WIDTH);
    STORED(gather)((const REAL *)c->q + first * c->ldq, c->ldq, rows, n, QUERIES, d);
    turn(rows, d, turned, QUERIES, QUERIES, d);
    if (c->sums)
        sums_gather((const float *)c->y + first * c->ldy, c->ldy, rows, n, QUERIES, d);
    size_t from = end;
    for (size_t g = 0; g < n; g += GROUP) {
        group_begin(&group[g / GROUP], c, first + g, smaller(GROUP, n - g));
        from = smaller(from, group[g / GROUP].from);
    }
    for (b.from = from / b.most * b.most; b.from < end; b.from += b.most) {
        b.keys = smaller(b.most, end - b.from);
        STORED(block_gather)(&b, c);
        for (size_t g = 0; g < n; g += GROUP)
            if (b.from <= first + g + c->ahead && group[g / GROUP].from < b.from + b.keys)
                attention_group(&b, &group[g / GROUP], turned + g, rows + g * d);
    }
    for (size_t r = 0; r < n; r++) {
        const struct group *g = &group[r / GROUP];
        const vf inverse = v_all(g->sum[r % GROUP] == 0 ? 0 : 1.f / g->sum[r % GROUP]);
        if (c->sums) {
            float *y = (float *)c->y + (first + r) * c->ldy;
            V_EACH(d, v_put(y + i, lanes, v_get(rows + r * d + i, lanes, 0) * inverse));
        } else {
            REAL *y = (REAL *)c->y + (first + r) * c->ldy;
            V_EACH(d, v_put(y + i, lanes, v_get(rows + r * d + i, lanes, 0) * inverse));
        }
        c->lse[first + r] = g->largest[r % GROUP] + (float)log((double)g->sum[r % GROUP]);
    }
}

/* Add a block's share of dq to the shares of the blocks before. They wait in f32: where bf16 is stored, the lower
 * halves stand in memory of their own, or where dk of the same rows will be, for keys come in ascending order and a
 * row's dk after its dq. A row is final with the block of keys it stands in; no block of queries has rows of two. */
static void STORED(dq_add)(const struct queries *a, const struct keys *b, REAL *dq, size_t ldq, REAL *lower,
                           size_t ld_lower)
{
    const int first = b->from == 0, final = a->from < b->from + b->n;
    assert(!final || a->from + a->n <= b->from + b->n);
    for (size_t r = 0; r < a->n; r++) {
        REAL *to = dq + (a->from + r) * ldq, *low = lower + (a->from + r) * ld_lower;
        STORED(fetch)(to, ldq, b->d);
        V_EACH(b->d, {
            vf v = v_get(a->dq + r * b->d + i, lanes, 0);
            if (!first)
                v += v_get_exact(to + i, low + i, lanes);
            if (final)
                v_put(to + i, lanes, v);
            else
                v_put_exact(to + i, low + i, lanes, v);
        });
    }
}

static void STORED(keys_gather)(struct keys *b, const struct attention *c)
{
    const size_t filled = rounded_up(b->n, W);
    STORED(gather)((const REAL *)c->v + b->from * c->ldk, c->ldk, b->k, b->n, filled, b->d);
    turn(b->k, b->d, b->v_turned, b->most, filled, b->d);
    STORED(gather)((const REAL *)c->k + b->from * c->ldk, c->ldk, b->k, b->n, filled, b->d);
    turn(b->k, b->d, b->k_turned, b->most, filled, b->d);
}

static float STORED(dot)(const REAL *a, const float *b, size_t n)
{
    vf sum = v_all(0);
    V_EACH(n, sum = v_fma(v_get(a + i, lanes, 0), v_get(b + i, lanes, 0), sum));
    return v_sum(sum);
}

/* The block's rows of head number `head` of c. */
static void STORED(queries_gather)(struct queries *a, const struct attention *c, size_t head)
{
    const size_t d = c->d, filled = rounded_up(a->n, W);
    const REAL *q = (const REAL *)c->q + head * d + a->row * c->ldq;
    const REAL *y = (const REAL *)c->y + head * d + a->row * c->ldy;
    const REAL *dy = (const REAL *)c->dy + head * d + a->row * c->ldy;
    const float *lse = c->lse + head * c->ldlse + a->row;
    STORED(gather)(dy, c->ldy, a->dy, a->n, filled, d);
    for (size_t r = 0; r < rounded_up(a->n, STRIP); r++) {
        STORED(fetch)(y + r * c->ldy, c->ldy, d);
        a->lse[r] = r < a->n ? lse[r] : 0;
        a->delta[r] = r < a->n ? STORED(dot)(y + r * c->ldy, a->dy + r * d, d) : 0;
    }
    turn(a->dy, d, a->dy_turned, a->most, filled, d);
    STORED(gather)(q, c->ldq, a->q, a->n, filled, d);
    turn(a->q, d, a->q_turned, a->most, filled, d);
}

/* What the block of queries gets from this block of keys goes to its dq; nothing, if it sees none of them. */
static void STORED(dq_put)(struct queries *a, const struct keys *b, const struct attention *c, size_t head, int seen)
{
    if (c->sums && seen)
        sums_add(a->dq, (float *)c->dq + head * c->d + a->row * c->ldq, c->ldq, a->n, c->d);
    if (c->sums || (!seen && b->from > 0))
        return;
    if (!seen)
        memset(a->dq, 0, a->n * c->d * sizeof *a->dq); /* their dq begins here all the same */
    STORED(dq_add)(a, b, (REAL *)c->dq + head * c->d, c->ldq,
                   c->lower ? (REAL *)c->lower + head * c->t * c->d : c->dk, c->lower ? c->d : c->ldk);
}

/* One block of keys against all queries of one head. */
static void STORED(keys_run)(struct keys *b, struct queries *a, const struct attention *c, size_t head)
{
    const size_t end = c->t + c->ahead;
    b->begun = c->sums || head > 0;
    for (a->from = b->from > c->ahead ? b->from : c->ahead; a->from < end; a->from += a->n) {
        a->n = queries_of(a, b, end);
        a->row = a->from - c->ahead;
        const int seen = queries_see(a, b, c);
        if (seen) {
            STORED(queries_gather)(a, c, head);
            attention_block(b, a);
        }
        STORED(dq_put)(a, b, c, head, seen);
    }
}

/* All t rows of the heads that share one of keys and values, one after the other: the sums for these have one order. */
static void STORED(attention_input)(const struct attention *c)
{
    const size_t d = c->d;
    struct keys b;
    struct queries a;
    b.d = d;
    b.most = keys_of(d);
    b.scale = 1.f / sqrtf((float)d);
    a.most = d > BLOCK_FLOATS / BLOCK ? BLOCK / 2 : BLOCK;
    for (b.from = 0; b.from < c->keys; b.from += b.most) {
        b.n = smaller(b.most, c->keys - b.from);
        if (c->sums) {
            sums_gather((const float *)c->dk + b.from * c->ldk, c->ldk, b.dk, b.n, rounded_up(b.n, STRIP), d);
            sums_gather((const float *)c->dv + b.from * c->ldk, c->ldk, b.dv, b.n, rounded_up(b.n, STRIP), d);
        } else if (c->heads == 0) { /* nobody here reads them */
            memset(b.dk, 0, b.n * d * sizeof *b.dk);
            memset(b.dv, 0, b.n * d * sizeof *b.dv);
        }
        STORED(keys_gather)(&b, c);
        for (size_t head = 0; head < c->heads; head++)
            STORED(keys_run)(&b, &a, c, head);
        if (c->sums) {
            sums_scatter(b.dk, (float *)c->dk + b.from * c->ldk, c->ldk, b.n, d);
            sums_scatter(b.dv, (float *)c->dv + b.from * c->ldk, c->ldk, b.n, d);
        } else {
            STORED(scatter)(b.dk, (REAL *)c->dk + b.from * c->ldk, c->ldk, b.n, d);
            STORED(scatter)(b.dv, (REAL *)c->dv + b.from * c->ldk, c->ldk, b.n, d);
        }
    }
}
