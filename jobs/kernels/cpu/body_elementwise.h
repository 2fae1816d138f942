/* body_elementwise.h - the exponential of GELU, squared sums. Included by the variants only. */

/* The tanh form (Hendrycks & Gimpel 2016, "gelu_new"): ½x(1 + tanh u) with u = √(2/π)(x + 0.044715x³), which is
 * x·σ(2u) = x/(1 + e^−2u). That has no cancellation where x is negative and needs one exponential. Returns e^−2u,
 * bounded far outside of what f32 can tell apart. */
VEC_INLINE vf gelu_exponential(vf x)
{
    const vf a = v_all(-1.5957691216057308f), c = v_all(-0.07135481627159886f); /* −2√(2/π), and that × 0.044715 */
    return v_exp(v_min(v_all(80.f), x * v_fma(c, x * x, a)));
}

VEC_INLINE vf v_gelu(vf x)
{
    return x * v_reciprocal(v_all(1.f) + gelu_exponential(x));
}

/* d/dx x·σ(2u) = σ + x·σ(1 − σ)·2u′, 2u′ = 2√(2/π)(1 + 3·0.044715x²); 1 − σ is e^−2u·σ */
VEC_INLINE vf v_gelu_slope(vf x)
{
    const vf a = v_all(1.5957691216057308f), c = v_all(0.2140644488147966f);
    const vf tail = gelu_exponential(x), s = v_reciprocal(v_all(1.f) + tail);
    return v_fma(x * s * (tail * s), v_fma(c, x * x, a), s);
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
