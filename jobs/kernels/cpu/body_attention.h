/* body_attention.h - the softmax of one block of scores (online, Milakov & Gimelshein 2018; Dao et al. 2022).
 * Included by the variants only. */

/* How many of `keys` row i may see. */
VEC_INLINE size_t visible_keys(ptrdiff_t visible, size_t i, size_t keys)
{
    ptrdiff_t n = visible + (ptrdiff_t)i + 1;
    return n < 0 ? 0 : (size_t)n < keys ? (size_t)n : keys;
}

static void rescale_row(float *y, size_t d, float factor)
{
    V_EACH(d, v_put(y + i, lanes, v_get(y + i, lanes, 0) * v_all(factor)));
}

static void softmax_block(float *scores, size_t rows, size_t keys, size_t ld, ptrdiff_t visible, float scale,
                          float *largest, float *sum, float *y, size_t d, size_t ldy)
{
    for (size_t r = 0; r < rows; r++, scores += ld, y += ldy) {
        const size_t n = visible_keys(visible, r, keys);
        const float before = largest[r];
        vf top = v_all(-INFINITY), total = v_all(0);
        V_EACH(n, top = v_max(top, v_get(scores + i, lanes, -INFINITY)));
        const float now = fmaxf(before, v_largest(top) * scale);
        const vf vscale = v_all(scale), base = v_all(-now);
        V_EACH(n, {
            vf p = v_exp(v_fma(v_get(scores + i, lanes, -INFINITY), vscale, base));
            total += p;
            v_put(scores + i, lanes, p);
        });
        for (size_t i = n; i < keys; i++)
            scores[i] = 0;
        if (now > before) {
            const float factor = v_first(v_exp(v_all(before - now)));
            sum[r] *= factor;
            if (before > -INFINITY)
                rescale_row(y, d, factor);
        }
        sum[r] += v_sum(total);
        largest[r] = now;
    }
}

static void softmax_finish(const float *largest, const float *sum, float *y, float *lse, size_t rows, size_t d,
                           size_t ldy)
{
    for (size_t r = 0; r < rows; r++) {
        rescale_row(y + r * ldy, d, 1.f / sum[r]);
        lse[r] = largest[r] + (float)log((double)sum[r]);
    }
}

static void softmax_input(float *scores, float *dp, size_t rows, size_t keys, size_t ld, ptrdiff_t visible,
                          float scale, const float *lse, const float *delta)
{
    const vf vscale = v_all(scale);
    for (size_t r = 0; r < rows; r++, scores += ld, dp += ld) {
        const size_t n = visible_keys(visible, r, keys);
        const vf base = v_all(-lse[r]), off = v_all(delta[r]);
        V_EACH(n, {
            vf p = v_exp(v_fma(v_get(scores + i, lanes, -INFINITY), vscale, base));
            v_put(scores + i, lanes, p);
            v_put(dp + i, lanes, p * (v_get(dp + i, lanes, 0) - off) * vscale);
        });
        for (size_t i = n; i < keys; i++)
            scores[i] = dp[i] = 0;
    }
}

static float dot(const float *a, const float *b, size_t n)
{
    vf sum = v_all(0);
    V_EACH(n, sum = v_fma(v_get(a + i, lanes, 0), v_get(b + i, lanes, 0), sum));
    return v_sum(sum);
}
