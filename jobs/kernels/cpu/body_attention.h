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

/* Rows of sums in f32: close together, zeros up to `filled` rows; back again; and on top of what stands there. */
static void sums_gather(const float *from, size_t ld, float *to, size_t rows, size_t filled, size_t d)
{
    for (size_t r = 0; r < rows; r++)
        memcpy(to + r * d, from + r * ld, d * sizeof *to);
    memset(to + rows * d, 0, (filled - rows) * d * sizeof *to);
}

static void sums_scatter(const float *from, float *to, size_t ld, size_t rows, size_t d)
{
    for (size_t r = 0; r < rows; r++)
        memcpy(to + r * ld, from + r * d, d * sizeof *to);
}

static void sums_add(const float *from, float *to, size_t ld, size_t rows, size_t d)
{
    for (size_t r = 0; r < rows; r++, from += d, to += ld)
        V_EACH(d, v_put(to + i, lanes, v_get(to + i, lanes, 0) + v_get(from + i, lanes, 0)));
}

/* The first key that row `row` sees. */
static size_t first_seen(const struct attention *c, size_t row)
{
    return c->starts && c->starts[row] > c->origin ? (size_t)(c->starts[row] - c->origin) : 0;
}

/* ---- forward ---- */

/* Queries side by side: where they stand, and how far they are. */
struct group {
    FLOATS(largest, GROUP);
    FLOATS(sum, GROUP);
    FLOATS(begin, GROUP);          /* the first key that each sees */
    size_t query, rows, from, all; /* query: among the keys; from: the least of begin, all: the largest */
    int begun;                     /* y is of keys before these */
};

static void group_begin(struct group *g, const struct attention *c, size_t row, size_t rows)
{
    const size_t query = row + c->ahead;
    g->query = query, g->rows = rows;
    g->from = query, g->all = 0, g->begun = c->sums;
    for (size_t r = 0; r < GROUP; r++) {
        const size_t begin = r < rows ? first_seen(c, row + r) : query;
        g->largest[r] = c->sums && r < rows ? c->lse[row + r] : -INFINITY;
        g->sum[r] = g->largest[r] == -INFINITY ? 0 : 1; /* that of what e^lse stands for */
        g->begin[r] = (float)begin;
        g->from = smaller(g->from, begin);
        g->all = begin > g->all && r < rows ? begin : g->all;
    }
}

/* Scores of W queries for `seen` keys from `key` on: none where a query sees only later keys. */
static void mask_lanes(float *scores, size_t seen, size_t key, const float *begin)
{
    const vf first = v_load(begin), none = v_all(-INFINITY);
    for (size_t j = 0; j < seen; j++) /* where begin < key + 1 nothing is added */
        v_store(scores + j * GROUP,
                v_load(scores + j * GROUP) + v_zero_below(none, first, v_all((float)(key + j + 1))));
}

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
    const vf now = v_max(before, v_max(top, other) * vscale);
    const vf base = v_max(v_all(-1e30f), now); /* finite also where a query has seen nothing so far */
    const vf factor = v_exp(before - base);
    vf total = v_load(sum) * factor;
    for (j = 0; j < seen; j++) {
        const vf p = v_exp(v_fma(v_load(scores + j * GROUP), vscale, -base));
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

/* One block of keys for the queries of a group; q is (d, QUERIES), y (rows, d). */
static void attention_group(const struct block *b, struct group *g, const float *q, float *y)
{
    FLOATS(p, KEYS * GROUP);
    float factor[GROUP];
    const size_t d = b->d, query = g->query, rows = g->rows, seen = smaller(b->keys, query + rows - b->from);
    const int begun = g->begun || g->from < b->from; /* there were keys before */
    for (size_t j = 0; j < seen; j += STRIP) { /* the first vector of queries does not see the last strips */
        const size_t skip = b->from + j < query + W ? 0 : W;
        product(b->k + j, b->most, q + skip, QUERIES, d, p + j * GROUP + skip, GROUP, GROUP - skip, 0);
    }
    for (size_t lane = 0; lane < GROUP; lane += W) {
        const size_t keys = smaller(seen, query + lane + W - b->from);
        if (g->all > b->from)
            mask_lanes(p + lane, keys, b->from, g->begin + lane);
        v_store(factor + lane, softmax_lanes(p + lane, keys, query + lane, b->from, b->scale, g->largest + lane,
                                             g->sum + lane));
    }
    for (size_t r = 0; r < rows && begun; r++)
        V_EACH(d, v_put(y + r * d + i, lanes, v_get(y + r * d + i, lanes, 0) * v_all(factor[r])));
    for (size_t r = 0; r < rows; r += STRIP)
        product(p + r, GROUP, b->v, d, smaller(seen, query + r + STRIP - b->from), y + r * d, d, d, begun);
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
    int begun;                    /* dk and dv hold what is owed by other heads */
};

/* A block of queries, filled up with zeros. */
struct queries {
    FLOATS(q, BLOCK_FLOATS);        /* (n, d) */
    FLOATS(q_turned, BLOCK_FLOATS); /* (d, most) */
    FLOATS(dy, BLOCK_FLOATS);
    FLOATS(dy_turned, BLOCK_FLOATS);
    FLOATS(dq, BLOCK_FLOATS);
    float lse[BLOCK], delta[BLOCK]; /* delta: y·dy */
    size_t begin[BLOCK];            /* the first key that each sees */
    size_t from, row, n, most;      /* from: among the keys; row: in q */
};

/* How many queries the block from a->from has: it ends where the block of keys ends, if it begins in there. */
static size_t queries_of(const struct queries *a, const struct keys *b, size_t t)
{
    const size_t end = b->from + b->n;
    return smaller(a->most, (a->from < end ? end : t) - a->from);
}

/* Does any of these queries see any of these keys? Fills a->begin. */
static int queries_see(struct queries *a, const struct keys *b, const struct attention *c)
{
    int see = 0;
    for (size_t r = 0; r < a->n; r++) {
        a->begin[r] = first_seen(c, a->row + r);
        see |= a->begin[r] < b->from + b->n;
    }
    for (size_t r = a->n; r < rounded_up(a->n, STRIP); r++)
        a->begin[r] = 0;
    return see;
}

/* Row of scores → P = exp(scale·score − lse), row of dp → P·(dp − delta)·scale; 0 below `begin` and from `seen` to n. */
static void softmax_row(float *scores, float *dp, size_t begin, size_t seen, size_t n, float scale, float lse,
                        float delta)
{
    const vf vscale = v_all(scale), base = v_all(-lse), off = v_all(delta), none = v_all(0);
    for (size_t i = 0; i < n; i += W) {
        vf p = v_exp(v_fma(v_load(scores + i), vscale, base));
        vf ds = p * (v_load(dp + i) - off) * vscale;
        if (i + W > seen) {
            p = v_split(seen > i ? seen - i : 0, p, none);
            ds = v_split(seen > i ? seen - i : 0, ds, none);
        }
        if (i < begin) {
            p = v_split(begin - i, none, p);
            ds = v_split(begin - i, none, ds);
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
            softmax_row(pi, dsi, a->begin[r] > b->from ? a->begin[r] - b->from : 0,
                        smaller(b->n, a->from + r + 1 - b->from), lanes, b->scale, a->lse[r], a->delta[r]);
    }
    turn(ds, KEYS, ds_turned, BLOCK, rounded_up(a->n, W), seen);
    for (size_t i = 0; i < a->n; i += STRIP)
        product(ds_turned + i, BLOCK, b->k, d, smaller(b->n, a->from + i + STRIP - b->from), a->dq + i * d, d, d, 0);
    for (size_t j = 0; j < seen; j += STRIP) {
        const size_t skip = b->from + j > a->from ? b->from + j - a->from : 0; /* queries before the first key */
        const int add_to = b->begun || a->from > b->from + j;
        product(p + skip * KEYS + j, KEYS, a->dy + skip * d, d, a->n - skip, b->dv + j * d, d, d, add_to);
        product(ds + skip * KEYS + j, KEYS, a->q + skip * d, d, a->n - skip, b->dk + j * d, d, d, add_to);
    }
}
