/* stored_product.h - what is fused to a matrix product. Included by stored.h only. */

static void STORED(finish)(const float *sums, size_t ld_sums, const struct finish *f, size_t rows, size_t n)
{
    const REAL *bias = f->bias, *residual = f->residual, *gelu_of = f->gelu_of;
    REAL *c = f->c, *gelu = f->gelu;
    for (size_t r = 0; r < rows; r++, sums += ld_sums) {
        const size_t row = r * f->ld;
        V_EACH(n, {
            const size_t at = row + i;
            vf x = v_get(sums + i, lanes, 0);
            if (bias)
                x += v_get(bias + i, lanes, 0);
            if (residual)
                x += v_get(residual + at, lanes, 0);
            if (gelu_of)
                x *= v_gelu_slope(v_get(gelu_of + at, lanes, 0));
            v_put(c + at, lanes, x);
            if (gelu)
                v_put(gelu + at, lanes, v_gelu(x));
        });
    }
}
