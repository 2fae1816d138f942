/* stored_llama.h - what stands between the products of a Llama layer: positions as rotations (Su et al. 2021) and the
 * gate of its MLP (Shazeer 2020). Included by stored.h only. */

/* One token: number i of the first half of each head and number i of its second half are turned by an angle. `turns`
 * has d/2 cosines, then d/2 sines; `sign` −1 turns back. */
static void STORED(rope)(const void *in, const float *turns, void *out, size_t heads, size_t d, float sign)
{
    const size_t half = d / 2;
    const vf vsign = v_all(sign);
    for (size_t h = 0; h < heads; h++) {
        const REAL *x = (const REAL *)in + h * d;
        REAL *y = (REAL *)out + h * d;
        V_EACH(half, {
            const vf c = v_get(turns + i, lanes, 0), s = v_get(turns + half + i, lanes, 0) * vsign;
            const vf a = v_get(x + i, lanes, 0), b = v_get(x + half + i, lanes, 0);
            v_put(y + i, lanes, v_fma(a, c, -(b * s)));
            v_put(y + half + i, lanes, v_fma(b, c, a * s));
        });
    }
}

/* e^−x, bounded far outside of what f32 can tell apart; σ(x) = 1/(1 + e^−x) */
VEC_INLINE vf STORED(sigmoid_tail)(vf x)
{
    return v_exp(v_min(v_all(80.f), -x));
}

static void STORED(swiglu)(const void *gate, const void *up, void *out, size_t n)
{
    const REAL *g = gate, *u = up;
    REAL *y = out;
    V_EACH(n, {
        const vf x = v_get(g + i, lanes, 0);
        const vf s = v_reciprocal(v_all(1.f) + STORED(sigmoid_tail)(x));
        v_put(y + i, lanes, x * s * v_get(u + i, lanes, 0));
    });
}

/* d/dx x·σ = σ + x·σ(1 − σ); 1 − σ is e^−x·σ */
static void STORED(swiglu_input)(const void *above, const void *gate, const void *up, void *d_gate, void *d_up,
                                 size_t n)
{
    const REAL *dy = above, *g = gate, *u = up;
    REAL *dg = d_gate, *du = d_up;
    V_EACH(n, {
        const vf x = v_get(g + i, lanes, 0), d = v_get(dy + i, lanes, 0), tail = STORED(sigmoid_tail)(x);
        const vf s = v_reciprocal(v_all(1.f) + tail);
        v_put(dg + i, lanes, d * v_get(u + i, lanes, 0) * v_fma(x * s, tail * s, s));
        v_put(du + i, lanes, d * x * s);
    });
}
