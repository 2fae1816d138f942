/* stored_moe.h - rows that experts take are mixed, and their derivatives told apart. Included by stored.h only. */

/* to = on (or 0) + Σ by[r]·rows[r], in that order, rounded once. */
static void STORED(mix)(const void *const *rows, const float *by, size_t count, const void *on, void *to, size_t n)
{
    const REAL *below = on;
    REAL *out = to;
    V_EACH(n, {
        vf sum = below ? v_get(below + i, lanes, 0) : v_all(0);
        for (size_t r = 0; r < count; r++)
            sum = v_fma(v_all(by[r]), v_get((const REAL *)rows[r] + i, lanes, 0), sum);
        v_put(out + i, lanes, sum);
    });
}

static float STORED(inner)(const void *a, const void *b, size_t n)
{
    const REAL *x = a, *y = b;
    vf sum = v_all(0);
    V_EACH(n, sum = v_fma(v_get(x + i, lanes, 0), v_get(y + i, lanes, 0), sum));
    return v_sum(sum);
}
