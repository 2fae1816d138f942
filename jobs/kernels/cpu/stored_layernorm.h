/* stored_layernorm.h - LayerNorm (Ba et al. 2016), mean and variance in two passes over a row that is in cache; sums
 * over rows. Included by stored.h only. */

static void STORED(layernorm)(const void *in, const void *weight, const void *bias, void *out, float *mean,
                              float *rstd, size_t rows, size_t n, float eps)
{
    const REAL *x = in, *w = weight, *b = bias;
    REAL *y = out;
    for (size_t r = 0; r < rows; r++, x += n, y += n) {
        vf sum = v_all(0), square = v_all(0);
        V_EACH(n, sum += v_get(x + i, lanes, 0));
        const float m = v_sum(sum) / (float)n;
        const vf vm = v_all(m);
        V_EACH(n, {
            vf d = v_get(x + i, lanes, m) - vm;
            square = v_fma(d, d, square);
        });
        const float s = 1.f / sqrtf(v_sum(square) / (float)n + eps);
        const vf vs = v_all(s);
        V_EACH(n, v_put(y + i, lanes,
                        v_fma((v_get(x + i, lanes, 0) - vm) * vs, v_get(w + i, lanes, 0), v_get(b + i, lanes, 0))));
        mean[r] = m;
        rstd[r] = s;
    }
}

/* With x̂ = (x − mean)·rstd and g = dy·w: dx = rstd·(g − avg(g) − x̂·avg(g·x̂)). */
static void STORED(layernorm_input)(const void *above, const void *in, const void *weight, const float *mean,
                                    const float *rstd, const void *beside, void *out, size_t rows, size_t n)
{
    const REAL *dy = above, *x = in, *w = weight, *residual = beside;
    REAL *dx = out;
    for (size_t r = 0; r < rows; r++, dy += n, x += n, dx += n) {
        const vf m = v_all(mean[r]), s = v_all(rstd[r]);
        vf sum = v_all(0), along = v_all(0);
        V_EACH(n, {
            vf g = v_get(dy + i, lanes, 0) * v_get(w + i, lanes, 0);
            sum += g;
            along = v_fma(g, (v_get(x + i, lanes, 0) - m) * s, along);
        });
        const vf a = v_all(v_sum(sum) / (float)n), c = v_all(v_sum(along) / (float)n);
        V_EACH(n, {
            vf normal = (v_get(x + i, lanes, 0) - m) * s;
            vf g = v_get(dy + i, lanes, 0) * v_get(w + i, lanes, 0);
            vf d = s * (g - v_fma(normal, c, a));
            if (residual)
                d += v_get(residual + i, lanes, 0);
            v_put(dx + i, lanes, d);
        });
        if (residual)
            residual += n;
    }
}

/* A strip of `vectors` vectors side by side, of `lanes` floats each (fewer than W only for one alone). */
VEC_INLINE void STORED(weight_strip)(const REAL *dy, const REAL *x, const float *mean, const float *rstd, float *dw,
                                     float *db, size_t rows, size_t n, size_t vectors, size_t lanes, int add_to)
{
    vf w[SUM_VECTORS], b[SUM_VECTORS];
    SUM_LOOP
    {
        w[v] = add_to && dw ? v_get(dw + v * W, lanes, 0) : v_all(0);
        b[v] = add_to && db ? v_get(db + v * W, lanes, 0) : v_all(0);
    }
    for (size_t from = 0; from < rows; from += SUM_ROWS) {
        const size_t to = from + SUM_ROWS < rows ? from + SUM_ROWS : rows;
        vf pw[SUM_VECTORS], pb[SUM_VECTORS];
        SUM_LOOP pw[v] = pb[v] = v_all(0);
        for (size_t r = from; r < to; r++) {
            const vf m = v_all(mean[r]), s = v_all(rstd[r]);
            SUM_LOOP
            {
                vf d = v_get(dy + r * n + v * W, lanes, 0);
                pw[v] = v_fma(d, (v_get(x + r * n + v * W, lanes, 0) - m) * s, pw[v]);
                pb[v] += d;
            }
        }
        SUM_LOOP
        {
            w[v] += pw[v];
            b[v] += pb[v];
        }
    }
    SUM_LOOP
    {
        if (dw)
            v_put(dw + v * W, lanes, w[v]);
        if (db)
            v_put(db + v * W, lanes, b[v]);
    }
}

static void STORED(layernorm_weight)(const void *above, const void *in, const float *mean, const float *rstd,
                                     float *dw, float *db, size_t rows, size_t n, size_t first, size_t last,
                                     int add_to)
{
    const REAL *dy = above, *x = in;
    size_t c = first;
    for (; c + SUM_VECTORS * W <= last; c += SUM_VECTORS * W)
        STORED(weight_strip)(dy + c, x + c, mean, rstd, dw ? dw + c : NULL, db ? db + c : NULL, rows, n, SUM_VECTORS, W,
                             add_to);
    for (; c < last; c += W)
        STORED(weight_strip)(dy + c, x + c, mean, rstd, dw ? dw + c : NULL, db ? db + c : NULL, rows, n, 1,
                             smaller(W, last - c), add_to);
}

VEC_INLINE void STORED(sum_strip)(const REAL *x, float *sum, size_t rows, size_t n, size_t vectors, size_t lanes,
                                  int add_to)
{
    vf total[SUM_VECTORS];
    SUM_LOOP total[v] = add_to ? v_get(sum + v * W, lanes, 0) : v_all(0);
    for (size_t from = 0; from < rows; from += SUM_ROWS) {
        const size_t to = from + SUM_ROWS < rows ? from + SUM_ROWS : rows;
        vf part[SUM_VECTORS];
        SUM_LOOP part[v] = v_all(0);
        for (size_t r = from; r < to; r++)
            SUM_LOOP part[v] += v_get(x + r * n + v * W, lanes, 0);
        SUM_LOOP total[v] += part[v];
    }
    SUM_LOOP v_put(sum + v * W, lanes, total[v]);
}

static void STORED(column_sum)(const void *in, float *sum, size_t rows, size_t n, size_t first, size_t last,
                               int add_to)
{
    const REAL *x = in;
    size_t c = first;
    for (; c + SUM_VECTORS * W <= last; c += SUM_VECTORS * W)
        STORED(sum_strip)(x + c, sum + c, rows, n, SUM_VECTORS, W, add_to);
    for (; c < last; c += W)
        STORED(sum_strip)(x + c, sum + c, rows, n, 1, smaller(W, last - c), add_to);
}
