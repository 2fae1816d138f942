/* body_rows.h - how sums over rows are made. They are kept short: SUM_ROWS rows into registers, then those onto the
 * total. That keeps the error of a long sum near that of its square root, and the order depends on the shape alone.
 * Included by the variants only. */
#define SUM_ROWS 64
#define SUM_VECTORS 4
#define SUM_LOOP _Pragma("GCC unroll 4") for (size_t v = 0; v < vectors; v++)
