/* body_attention.h - causal attention of one head (on-line softmax: Milakov & Gimelshein 2018; blocks: Dao et al.
 * 2022). All operands of the products are first laid close together, in f32, and turned round where a product wants
 * it so; that is in stored_attention.h. Forward, a lane is a query: largest score and sum run down the keys without a
 * reduction across lanes. Backward, a lane is a key. What a query may not see is skipped by strips of STRIP rows and
 * vectors of W lanes. Included by the variants only. */

#define QUERIES KC_ATTENTION_QUERIES
#define WIDTH KC_ATTENTION_WIDTH
#define GROUP (2 * W)    /* queries side by side, forward */
#define KEYS 128         /* of a block */
#define KEY_FLOATS 8192  /* of a block: wide heads have fewer keys in it */
#define FETCH_ROWS 12    /* rows in memory are fetched so many ahead: the processor does not, they are far apart */
#define FLOATS(name, n) float name[n] __attribute__((aligned(64)))
static_assert(QUERIES % GROUP == 0 && W % STRIP == 0 && KEYS % GROUP == 0 && KEY_FLOATS >= WIDTH * GROUP, "they fit");

static size_t rounded_up(size_t n, size_t unit)
{
    return (n + unit - 1) / unit * unit;
}

/* to[c·ld_to + r] = from[r·ld + c]; rows is a multiple of W. */
static void turn(const float *from, size_t ld, float *to, size_t ld_to, size_t rows, size_t d)
{
    for (size_t r = 0; r < rows; r += W) {
        size_t c = 0;
        for (; c + 4 <= d; c += 4) {
            vf column[4];
            v_columns(from + r * ld + c, ld, column);
            for (size_t j = 0; j < 4; j++)
                v_store(to + (c + j) * ld_to + r, column[j]);
        }
        for (; c < d; c++)
            for (size_t j = 0; j < W; j++)
                to[c * ld_to + r + j] = from[(r + j) * ld + c];
    }
}

static size_t keys_of(size_t d)
{
    return smaller(KEYS, KEY_FLOATS / d / GROUP * GROUP);
}

/* ---- forward ---- */

/* W queries from `query`, the first `seen` keys from `key`: scores (seen, W; ld GROUP) become exp(scale·score −
 * largest), 0 for keys behind the query. largest and sum are brought up to date; returned is what the earlier sums
 * are to be multiplied with. */
static vf softmax_lanes(float *scores, size_t seen, size_t query, size_t key, float scale, float *largest, float *sum)
{
    const vf vscale = v_all(scale), none = v_all(-INFINITY), before = v_load(largest);
    const size_t all = smaller(seen, query - key + 1); /* keys that all W queries see */
    vf top = none, other = none;
    size_t j = 0;
    for (; j + 2 <= all; j += 2) {
        top = v_max(top, v_load(scores + j * GROUP));
        other = v_max(other, v_load(scores + (j + 1) * GROUP));
    }
    for (; j < seen; j++) {
        const vf s = v_split(key + j > query ? key + j - query : 0, none, v_load(scores + j * GROUP));
        v_store(scores + j * GROUP, s);
        top = v_max(top, s);
    }
    const vf now = v_max(before, v_max(top, other) * vscale), factor = v_exp(before - now);
    vf total = v_load(sum) * factor;
    for (j = 0; j < seen; j++) {
        const vf p = v_exp(v_fma(v_load(scores + j * GROUP), vscale, -now));
        v_store(scores + j * GROUP, p);
        total += p;
    }
    v_store(largest, now);
    v_store(sum, total);
    return factor;
}

struct block {
    FLOATS(k, KEY_FLOATS); /* (d, most) */
    FLOATS(v, KEY_FLOATS); /* (keys, d) */
    size_t from, keys, most, d;
    float scale;
};

/* One block of keys for GROUP queries from `query`, `rows` of them real; q is (d, QUERIES). */
static void attention_group(const struct block *b, const float *q, float *y, float *largest, float *sum, size_t query,
                            size_t rows)
{
    FLOATS(p, KEYS * GROUP);
    float factor[GROUP];
    const size_t d = b->d, seen = smaller(b->keys, query + rows - b->from);
    for (size_t j = 0; j < seen; j += STRIP) { /* the first vector of queries does not see the last strips */
        const size_t skip = b->from + j < query + W ? 0 : W;
        product(b->k + j, b->most, q + skip, QUERIES, d, p + j * GROUP + skip, GROUP, GROUP - skip, 0);
    }
    for (size_t lane = 0; lane < GROUP; lane += W)
        v_store(factor + lane, softmax_lanes(p + lane, smaller(seen, query + lane + W - b->from), query + lane,
                                             b->from, b->scale, largest + lane, sum + lane));
    for (size_t r = 0; r < rows && b->from; r++)
        V_EACH(d, v_put(y + r * d + i, lanes, v_get(y + r * d + i, lanes, 0) * v_all(factor[r])));
    for (size_t r = 0; r < rows; r += STRIP)
        product(p + r, GROUP, b->v, d, smaller(seen, query + r + STRIP - b->from), y + r * d, d, d, b->from > 0);
}

/* ---- backward ---- */

#define BLOCK 64 /* queries of a block; half as many where the head is wide */
#define BLOCK_FLOATS 8192
static_assert(BLOCK / 2 % W == 0 && BLOCK_FLOATS >= BLOCK / 2 * WIDTH, "blocks fit together");

/* One block of keys and what is owed to them. */
struct keys {
    FLOATS(k, KEY_FLOATS);        /* (n, d) */
    FLOATS(k_turned, KEY_FLOATS); /* (d, most) */
    FLOATS(v_turned, KEY_FLOATS);
    FLOATS(dk, KEY_FLOATS);       /* (n, d) */
    FLOATS(dv, KEY_FLOATS);
    size_t from, n, most, d;
    float scale;
};

/* A block of queries, filled up with zeros. */
struct queries {
    FLOATS(q, BLOCK_FLOATS);        /* (n, d) */
    FLOATS(q_turned, BLOCK_FLOATS); /* (d, most) */
    FLOATS(dy, BLOCK_FLOATS);
    FLOATS(dy_turned, BLOCK_FLOATS);
    FLOATS(dq, BLOCK_FLOATS);
    float lse[BLOCK], delta[BLOCK]; /* delta: y·dy */
    size_t from, n, most;
};

/* How many queries the block from a->from has: it ends where the block of keys ends, if it begins in there. */
static size_t queries_of(const struct queries *a, const struct keys *b, size_t t)
{
    const size_t end = b->from + b->n;
    return smaller(a->most, (a->from < end ? end : t) - a->from);
}

/* Row of scores → P = exp(scale·score − lse), row of dp → P·(dp − delta)·scale; 0 from `seen` to `n`. */
static void softmax_row(float *scores, float *dp, size_t seen, size_t n, float scale, float lse, float delta)
{
    const vf vscale = v_all(scale), base = v_all(-lse), off = v_all(delta), none = v_all(0);
    for (size_t i = 0; i < n; i += W) {
        vf p = v_exp(v_fma(v_load(scores + i), vscale, base));
        vf ds = p * (v_load(dp + i) - off) * vscale;
        if (i + W > seen) {
            p = v_split(seen > i ? seen - i : 0, p, none);
            ds = v_split(seen > i ? seen - i : 0, ds, none);
        }
        v_store(scores + i, p);
        v_store(dp + i, ds);
    }
}

/* One block of queries against one of keys. */
static void attention_block(struct keys *b, struct queries *a)
{
    FLOATS(p, BLOCK * KEYS);
    FLOATS(ds, BLOCK * KEYS);
    FLOATS(ds_turned, KEYS * BLOCK);
    const size_t d = b->d, seen = smaller(b->n, a->from + a->n - b->from);
    for (size_t i = 0; i < a->n; i += STRIP) {
        const size_t lanes = rounded_up(smaller(b->n, a->from + i + STRIP - b->from), W);
        float *pi = p + i * KEYS, *dsi = ds + i * KEYS;
        product(a->q_turned + i, a->most, b->k_turned, b->most, d, pi, KEYS, lanes, 0);
        product(a->dy_turned + i, a->most, b->v_turned, b->most, d, dsi, KEYS, lanes, 0);
        for (size_t r = i; r < i + STRIP; r++, pi += KEYS, dsi += KEYS)
            softmax_row(pi, dsi, smaller(b->n, a->from + r + 1 - b->from), lanes, b->scale, a->lse[r], a->delta[r]);
    }
    turn(ds, KEYS, ds_turned, BLOCK, rounded_up(a->n, W), seen);
    for (size_t i = 0; i < a->n; i += STRIP)
        product(ds_turned + i, BLOCK, b->k, d, smaller(b->n, a->from + i + STRIP - b->from), a->dq + i * d, d, d, 0);
    for (size_t j = 0; j < seen; j += STRIP) {
        const size_t skip = b->from + j > a->from ? b->from + j - a->from : 0; /* queries before the first key */
        const int add_to = a->from > b->from + j;
        product(p + skip * KEYS + j, KEYS, a->dy + skip * d, d, a->n - skip, b->dv + j * d, d, d, add_to);
        product(ds + skip * KEYS + j, KEYS, a->q + skip * d, d, a->n - skip, b->dk + j * d, d, d, add_to);
    }
}
