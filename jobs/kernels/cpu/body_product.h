/* body_product.h - a small matrix product whose operands are in cache already: STRIP rows in registers, two vectors
 * wide. For attention, where a library's call would cost more than the product. The strip's factor lies with its rows
 * side by side, so that one line of cache has a column of it: a quarter faster than rows apart. Included by the
 * variants only. */

#define STRIP_LOOP _Pragma("GCC unroll 8") for (size_t r = 0; r < STRIP; r++)
#define PAIR_LOOP _Pragma("GCC unroll 2") for (size_t v = 0; v < vectors; v++)

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

VEC_INLINE void strip_tile(size_t vectors, size_t lanes, const float *a, size_t lda, const float *b, size_t ldb,
                           size_t k, float *c, size_t ldc, int add_to)
{
    vf acc[STRIP][2];
    STRIP_LOOP PAIR_LOOP acc[r][v] = v_all(0);
    for (size_t p = 0; p < k; p++, a += lda, b += ldb) {
        vf x[2];
        PAIR_LOOP x[v] = v_get(b + v * W, lanes, 0);
        STRIP_LOOP
        {
            const vf y = v_all(a[r]);
            PAIR_LOOP acc[r][v] = v_fma(y, x[v], acc[r][v]);
        }
    }
    STRIP_LOOP PAIR_LOOP
    {
        float *to = c + r * ldc + v * W;
        if (add_to)
            acc[r][v] += v_get(to, lanes, 0);
        v_put(to, lanes, acc[r][v]);
    }
}

/* Functions of their own, so that nothing around them takes registers from the loop. */
static __attribute__((noinline)) void strip_pair(const float *a, size_t lda, const float *b, size_t ldb, size_t k,
                                                 float *c, size_t ldc, int add_to)
{
    strip_tile(2, W, a, lda, b, ldb, k, c, ldc, add_to);
}
static __attribute__((noinline)) void strip_single(const float *a, size_t lda, const float *b, size_t ldb, size_t k,
                                                   float *c, size_t ldc, size_t lanes, int add_to)
{
    if (lanes == W)
        strip_tile(1, W, a, lda, b, ldb, k, c, ldc, add_to);
    else
        strip_tile(1, lanes, a, lda, b, ldb, k, c, ldc, add_to);
}

/* c (STRIP, n) = or += aT · b, with a (k, STRIP) and b (k, n). */
static void product(const float *a, size_t lda, const float *b, size_t ldb, size_t k, float *c, size_t ldc, size_t n,
                    int add_to)
{
    size_t j = 0;
    for (; j + 2 * W <= n; j += 2 * W)
        strip_pair(a, lda, b + j, ldb, k, c + j, ldc, add_to);
    for (; j < n; j += W)
        strip_single(a, lda, b + j, ldb, k, c + j, ldc, smaller(W, n - j), add_to);
}
