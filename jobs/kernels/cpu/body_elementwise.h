/* body_elementwise.h - addition, GELU, AdamW, squared sums. Included by the variants only. */

static void add(const float *a, const float *b, float *y, size_t n)
{
    V_EACH(n, v_put(y + i, lanes, v_get(a + i, lanes, 0) + v_get(b + i, lanes, 0)));
}

/* The tanh form (Hendrycks & Gimpel 2016, "gelu_new"): ½x(1 + tanh u) with u = √(2/π)(x + 0.044715x³), which is
 * x·σ(2u) = x/(1 + e^−2u). That has no cancellation where x is negative and needs one exponential. Returns e^−2u,
 * bounded far outside of what f32 can tell apart. */
VEC_INLINE vf gelu_exponential(vf x)
{
    const vf a = v_all(-1.5957691216057308f), c = v_all(-0.07135481627159886f); /* −2√(2/π), and that × 0.044715 */
    return v_exp(v_min(v_all(80.f), x * v_fma(c, x * x, a)));
}

static void gelu(const float *x, float *y, size_t n)
{
    V_EACH(n, {
        vf v = v_get(x + i, lanes, 0);
        v_put(y + i, lanes, v * v_reciprocal(v_all(1.f) + gelu_exponential(v)));
    });
}

/* d/dx x·σ(2u) = σ + x·σ(1 − σ)·2u′, 2u′ = 2√(2/π)(1 + 3·0.044715x²); 1 − σ is e^−2u·σ */
static void gelu_input(const float *dy, const float *x, float *dx, size_t n)
{
    const vf a = v_all(1.5957691216057308f), c = v_all(0.2140644488147966f);
    V_EACH(n, {
        vf v = v_get(x + i, lanes, 0), tail = gelu_exponential(v), s = v_reciprocal(v_all(1.f) + tail);
        vf slope = v_fma(v * s * (tail * s), v_fma(c, v * v, a), s);
        v_put(dx + i, lanes, v_get(dy + i, lanes, 0) * slope);
    });
}

/* Loshchilov & Hutter 2019, in the order of torch.optim.AdamW: decay first, eps after the bias correction. */
static void adamw(const float *g, float *p, float *m, float *v, size_t n, const struct adamw_values *values)
{
    const vf scale = v_all(values->scale), b1 = v_all(values->beta1), b2 = v_all(values->beta2);
    const vf c1 = v_all(1.f - values->beta1), c2 = v_all(1.f - values->beta2), eps = v_all(values->eps);
    const vf keep = v_all(values->keep), rate = v_all(values->rate), correction = v_all(values->correction);
    V_EACH(n, {
        vf grad = v_get(g + i, lanes, 0) * scale;
        vf first = v_fma(b1, v_get(m + i, lanes, 0), c1 * grad);
        vf second = v_fma(b2, v_get(v + i, lanes, 0), c2 * grad * grad);
        vf step = rate * first / v_fma(v_sqrt(second), correction, eps);
        v_put(m + i, lanes, first);
        v_put(v + i, lanes, second);
        v_put(p + i, lanes, v_fma(keep, v_get(p + i, lanes, 0), -step));
    });
}

/* In f64 from the first addition: squares of f32 cannot overflow it, and a value that is not finite stays visible. */
static double square_sum(const float *x, size_t n)
{
    double lane[W] = {0};
    size_t i = 0;
    for (; i + W <= n; i += W)
        for (int k = 0; k < W; k++)
            lane[k] += (double)x[i + (size_t)k] * x[i + (size_t)k];
    for (size_t k = 0; i + k < n; k++)
        lane[k] += (double)x[i + k] * x[i + k];
    for (int step = 1; step < W; step *= 2)
        for (int k = 0; k < W; k += 2 * step)
            lane[k] += lane[k + step];
    return lane[0];
}
