/* body_gemm.h - our own matrix product, for machines without oneDNN and as the second opinion in tests: panels of A
 * and B are packed, a register tile of ROWS × 2W runs over them (Goto & van de Geijn 2008). Included by the variants
 * only. */

#define TILE_ROWS 6
#define TILE_COLS (2 * W)
#define BLOCK_M 72  /* packed A: 72 × 256 × 4 = 72 KiB; both packs live on the stack of the thread */
#define BLOCK_N 128 /* packed B: 128 KiB */
#define BLOCK_K 256

/* Strips of TILE_ROWS rows, k-major, short strips padded with zeros. at(i, p) is row i, column p of op(A). */
static void pack_rows(float *to, const float *a, size_t row_step, size_t k_step, size_t m, size_t k, size_t strip)
{
    for (size_t i = 0; i < m; i += strip)
        for (size_t p = 0; p < k; p++)
            for (size_t r = 0; r < strip; r++)
                *to++ = i + r < m ? a[(i + r) * row_step + p * k_step] : 0.f;
}

#define TILE_LOOP _Pragma("GCC unroll 6") for (size_t r = 0; r < TILE_ROWS; r++)

/* c (at most TILE_ROWS × TILE_COLS) = or += a · b over k */
VEC_INLINE void gemm_tile(const float *a, const float *b, size_t k, float *c, size_t ldc, size_t m, size_t n,
                          int add_to)
{
    vf acc[TILE_ROWS][2];
    TILE_LOOP acc[r][0] = acc[r][1] = v_all(0);
    for (size_t p = 0; p < k; p++, a += TILE_ROWS, b += TILE_COLS) {
        const vf b0 = v_load(b), b1 = v_load(b + W);
        TILE_LOOP
        {
            const vf x = v_all(a[r]);
            acc[r][0] = v_fma(x, b0, acc[r][0]);
            acc[r][1] = v_fma(x, b1, acc[r][1]);
        }
    }
    float tile[TILE_ROWS][TILE_COLS]; /* indexed below by variables: memory, so that acc can stay in registers */
    TILE_LOOP
    {
        v_store(tile[r], acc[r][0]);
        v_store(tile[r] + W, acc[r][1]);
    }
    for (size_t i = 0; i < m; i++)
        for (size_t j = 0; j < n; j++)
            c[i * ldc + j] = add_to ? c[i * ldc + j] + tile[i][j] : tile[i][j];
}

static int blocked(char ta, char tb, size_t m, size_t n, size_t k, const float *a, size_t lda, const float *b,
                   size_t ldb, float beta, float *c, size_t ldc)
{
    float pa[BLOCK_M * BLOCK_K], pb[BLOCK_N * BLOCK_K];
    const size_t a_row = ta == 'N' ? lda : 1, a_k = ta == 'N' ? 1 : lda;
    const size_t b_col = tb == 'N' ? 1 : ldb, b_k = tb == 'N' ? ldb : 1;
    for (size_t k0 = 0; k0 < k; k0 += BLOCK_K) {
        const size_t kb = k - k0 < BLOCK_K ? k - k0 : BLOCK_K;
        const int add_to = k0 > 0 || beta != 0;
        for (size_t n0 = 0; n0 < n; n0 += BLOCK_N) {
            const size_t nb = n - n0 < BLOCK_N ? n - n0 : BLOCK_N;
            pack_rows(pb, b + n0 * b_col + k0 * b_k, b_col, b_k, nb, kb, TILE_COLS);
            for (size_t m0 = 0; m0 < m; m0 += BLOCK_M) {
                const size_t mb = m - m0 < BLOCK_M ? m - m0 : BLOCK_M;
                pack_rows(pa, a + m0 * a_row + k0 * a_k, a_row, a_k, mb, kb, TILE_ROWS);
                for (size_t j = 0; j < nb; j += TILE_COLS)
                    for (size_t i = 0; i < mb; i += TILE_ROWS)
                        gemm_tile(pa + i * kb, pb + j * kb, kb, c + (m0 + i) * ldc + n0 + j, ldc,
                                  mb - i < TILE_ROWS ? mb - i : TILE_ROWS, nb - j < TILE_COLS ? nb - j : TILE_COLS,
                                  add_to);
            }
        }
    }
    return 0;
}
