/* stored_product.h - what is fused to a matrix product. Included by stored.h only. */

/* What is read and written beside the sums comes from beyond the L2: it is fetched so many bytes ahead, over the page
 * that the processor's own prefetching ends at. */
#define FETCH_AHEAD 1024

static void STORED(finish)(const float *sums, size_t ld_sums, const struct finish *f, size_t rows, size_t n)
{
    const REAL *bias = f->bias, *residual = f->residual, *gelu_of = f->gelu_of;
    REAL *c = f->c, *gelu = f->gelu;
    for (size_t r = 0; r < rows; r++, sums += ld_sums) {
        const size_t row = r * f->ld;
        V_EACH(n, {
            const size_t at = row + i, ahead = at + FETCH_AHEAD / sizeof *c;
            vf x = v_get(sums + i, lanes, 0);
            if (bias)
                x += v_get(bias + i, lanes, 0);
            if (residual) {
                __builtin_prefetch(residual + ahead);
                x += v_get(residual + at, lanes, 0);
            }
            if (gelu_of) {
                __builtin_prefetch(gelu_of + ahead);
                x *= v_gelu_slope(v_get(gelu_of + at, lanes, 0));
            }
            v_put(c + at, lanes, x);
            if (gelu) {
                __builtin_prefetch(gelu + ahead, 1);
                v_put(gelu + at, lanes, v_gelu(x));
            }
        });
    }
}
