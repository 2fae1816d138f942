/* stored_rmsnorm.h - RMSNorm (Zhang & Sennrich 2019): a row over the root of its mean square. Included by stored.h
 * only. */

static void STORED(rmsnorm)(const void *in, const void *weight, void *out, float *rstd, size_t rows, size_t n,
                            float eps)
{
    const REAL *x = in, *w = weight;
    REAL *y = out;
    for (size_t r = 0; r < rows; r++, x += n, y += n) {
        vf square = v_all(0);
        V_EACH(n, {
            const vf v = v_get(x + i, lanes, 0);
            square = v_fma(v, v, square);
        });
        rstd[r] = 1.f / sqrtf(v_sum(square) / (float)n + eps);
        const vf s = v_all(rstd[r]);
        V_EACH(n, v_put(y + i, lanes, v_get(x + i, lanes, 0) * s * v_get(w + i, lanes, 0)));
    }
}

/* With x̂ = x·rstd and g = dy·w: dx = rstd·(g − x̂·avg(g·x̂)). */
static void STORED(rmsnorm_input)(const void *above, const void *in, const void *weight, const float *rstd,
                                  const void *beside, void *out, size_t rows, size_t n)
{
    const REAL *dy = above, *x = in, *w = weight, *residual = beside;
    REAL *dx = out;
    for (size_t r = 0; r < rows; r++, dy += n, x += n, dx += n) {
        const vf s = v_all(rstd[r]);
        vf along = v_all(0);
        V_EACH(n, along = v_fma(v_get(dy + i, lanes, 0) * v_get(w + i, lanes, 0), v_get(x + i, lanes, 0) * s, along));
        const vf c = v_all(-v_sum(along) / (float)n);
        V_EACH(n, {
            const vf g = v_get(dy + i, lanes, 0) * v_get(w + i, lanes, 0);
            vf d = s * v_fma(v_get(x + i, lanes, 0) * s, c, g);
            if (residual)
                d += v_get(residual + i, lanes, 0);
            v_put(dx + i, lanes, d);
        });
        if (residual)
            residual += n;
    }
}

/* A strip of `vectors` vectors side by side, as in stored_layernorm.h. */
VEC_INLINE void STORED(rms_strip)(const REAL *dy, const REAL *x, const float *rstd, float *dw, size_t rows, size_t n,
                                  size_t vectors, size_t lanes, int add_to)
{
    vf total[SUM_VECTORS];
    SUM_LOOP total[v] = add_to ? v_get(dw + v * W, lanes, 0) : v_all(0);
    for (size_t from = 0; from < rows; from += SUM_ROWS) {
        const size_t to = from + SUM_ROWS < rows ? from + SUM_ROWS : rows;
        vf part[SUM_VECTORS];
        SUM_LOOP part[v] = v_all(0);
        for (size_t r = from; r < to; r++) {
            const vf s = v_all(rstd[r]);
            SUM_LOOP part[v] = v_fma(v_get(dy + r * n + v * W, lanes, 0), v_get(x + r * n + v * W, lanes, 0) * s,
                                     part[v]);
        }
        SUM_LOOP total[v] += part[v];
    }
    SUM_LOOP v_put(dw + v * W, lanes, total[v]);
}

static void STORED(rmsnorm_weight)(const void *above, const void *in, const float *rstd, float *dw, size_t rows,
                                   size_t n, size_t first, size_t last, int add_to)
{
    const REAL *dy = above, *x = in;
    size_t c = first;
    for (; c + SUM_VECTORS * W <= last; c += SUM_VECTORS * W)
        STORED(rms_strip)(dy + c, x + c, rstd, dw + c, rows, n, SUM_VECTORS, W, add_to);
    for (; c < last; c += W)
        STORED(rms_strip)(dy + c, x + c, rstd, dw + c, rows, n, 1, smaller(W, last - c), add_to);
}
