/* stored_elementwise.h - addition, multiples, GELU, AdamW, change of the type. Included by stored.h only. */

static void STORED(add)(const void *a, const void *b, void *y, size_t n)
{
    const REAL *from = a, *other = b;
    REAL *to = y;
    V_EACH(n, v_put(to + i, lanes, v_get(from + i, lanes, 0) + v_get(other + i, lanes, 0)));
}

static void STORED(add_to)(float *sum, const void *x, size_t n)
{
    const REAL *from = x;
    V_EACH(n, v_put(sum + i, lanes, v_get(sum + i, lanes, 0) + v_get(from + i, lanes, 0)));
}

static void STORED(scale)(const void *x, float by, void *y, size_t n)
{
    const REAL *from = x;
    REAL *to = y;
    V_EACH(n, v_put(to + i, lanes, v_get(from + i, lanes, 0) * v_all(by)));
}

static void STORED(widen)(const void *x, float *y, size_t n)
{
    const REAL *from = x;
    V_EACH(n, v_put(y + i, lanes, v_get(from + i, lanes, 0)));
}

static void STORED(narrow)(const float *x, void *y, size_t n)
{
    REAL *to = y;
    V_EACH(n, v_put(to + i, lanes, v_get(x + i, lanes, 0)));
}

static void STORED(gelu)(const void *x, void *y, size_t n)
{
    const REAL *from = x;
    REAL *to = y;
    V_EACH(n, v_put(to + i, lanes, v_gelu(v_get(from + i, lanes, 0))));
}

static void STORED(gelu_input)(const void *dy, const void *x, void *dx, size_t n)
{
    const REAL *from = x, *above = dy;
    REAL *to = dx;
    V_EACH(n, v_put(to + i, lanes, v_get(above + i, lanes, 0) * v_gelu_slope(v_get(from + i, lanes, 0))));
}

/* Loshchilov & Hutter 2019, in the order of torch.optim.AdamW: decay first, eps after the bias correction. A stored
 * parameter that is not f32 is its master, rounded. */
static void STORED(adamw)(const float *g, void *p, float *m, float *v, float *master, size_t n,
                          const struct adamw_values *values)
{
    const vf scale = v_all(values->scale), b1 = v_all(values->beta1), b2 = v_all(values->beta2);
    const vf c1 = v_all(1.f - values->beta1), c2 = v_all(1.f - values->beta2), eps = v_all(values->eps);
    const vf keep = v_all(values->keep), rate = v_all(values->rate), correction = v_all(values->correction);
    REAL *stored = p;
    float *exact = sizeof(REAL) == sizeof(float) ? p : master;
    V_EACH(n, {
        vf grad = v_get(g + i, lanes, 0) * scale;
        vf first = v_fma(b1, v_get(m + i, lanes, 0), c1 * grad);
        vf second = v_fma(b2, v_get(v + i, lanes, 0), c2 * grad * grad);
        vf step = rate * first / v_fma(v_sqrt(second), correction, eps);
        vf now = v_fma(keep, v_get(exact + i, lanes, 0), -step);
        v_put(m + i, lanes, first);
        v_put(v + i, lanes, second);
        v_put(exact + i, lanes, now);
        if (sizeof(REAL) != sizeof(float))
            v_put(stored + i, lanes, now);
    });
}
