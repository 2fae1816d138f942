/* kernels.h - the loops that have variants: plain functions on rows and runs, no threads, no views. Private to this
 * room.
 *
 * Pointers may not overlap, except where it says in place. "add": 1 adds to the output, 0 overwrites it. Results do
 * not depend on anything but the arguments. */
#ifndef KC_KERNELS_H
#define KC_KERNELS_H

#include <stddef.h>
#include <stdint.h>

/* C (m, n) = op(A) (m, k) · op(B) (k, n) + beta·C, row-major; ta/tb: 'N' or 'T'; beta 0 or 1. C is not read for beta
 * 0. Returns 0, or what the library says of its failure. */
typedef int sgemm_fn(char ta, char tb, size_t m, size_t n, size_t k, const float *a, size_t lda, const float *b,
                     size_t ldb, float beta, float *c, size_t ldc);

#define KC_ATTENTION_QUERIES 128
#define KC_EXPERTS_MAX 1024
#define KC_TOP_K_MAX 64
#define KC_ATTENTION_WIDTH 256 /* of a head: what is turned round stands on the stack */

struct adamw_values {
    float scale;           /* of the gradient: 1/tokens · clip */
    float beta1, beta2, eps;
    float keep;            /* 1 − lr·decay */
    float rate;            /* lr / (1 − β1^t) */
    float correction;      /* 1 / √(1 − β2^t) */
};

/* What is fused to a product, for a block of its sums; each but c may be NULL. */
struct finish {
    const void *bias;     /* (n): is added, */
    const void *residual; /* (rows, n): and this; */
    const void *gelu_of;  /* (rows, n): the sum is multiplied by GELU′ of this; */
    void *c;              /* (rows, n): what comes of it all; */
    void *gelu;           /* (rows, n): its GELU, of what it was before it was rounded */
    size_t ld;            /* of these */
};

/* Causal attention of heads that share one of keys and values, which stand side by side in q, y and their derivatives.
 * Pointers are to the columns of the first head in row 0; rows are ld apart. d is at most KC_ATTENTION_WIDTH. */
struct attention {
    const void *q, *k, *v, *dy;
    void *y, *dq, *dk, *dv;
    void *lower;           /* (heads, t, d): in bf16, room for backward with several heads, but not of sums; else NULL */
    float *lse;            /* (heads, t), ldlse apart */
    size_t ldq, ldk, ldy;  /* of q; of k and v; of y; derivatives likewise */
    size_t ldlse;          /* from a head's lse to the next one's */
    size_t heads, t, d;
    size_t keys, ahead;    /* rows of k and v; row r of q sees them up to number r + ahead: all, if that is `keys` or more,
                              and else ahead is 0 */
    int sums;              /* y, dq, dk and dv are f32 and are added to: y, with lse, becomes that of what it was made of
                              and of these keys. Nothing so far is 0 and −∞ */
    const int32_t *starts; /* (t): position of the first row that a row sees, NULL: the first of all, */
    int32_t origin;        /* and the position of the first key */
};

/* A table for each type that numbers are stored in, f32 and bf16: `void *` means numbers of that type, `float *` is
 * f32 in both. Arithmetic is in f32, rounded once, when it is stored. */
struct kernels {
    const char *name;
    const struct kernels *bf16; /* the same variant's table for bf16 */
    size_t bytes;               /* of a number */
    sgemm_fn *blocked;          /* our own matrix product */
    /* y = (x − mean)·rstd·w + b by row; rows × n */
    void (*layernorm)(const void *x, const void *w, const void *b, void *y, float *mean, float *rstd, size_t rows,
                      size_t n, float eps);
    /* dx may be dy; residual may be NULL */
    void (*layernorm_input)(const void *dy, const void *x, const void *w, const float *mean, const float *rstd,
                            const void *residual, void *dx, size_t rows, size_t n);
    /* columns [first, last) of dw and db; pointers are to column 0 */
    void (*layernorm_weight)(const void *dy, const void *x, const float *mean, const float *rstd, float *dw,
                             float *db, size_t rows, size_t n, size_t first, size_t last, int add);
    /* y = x·rstd·w by row, rstd of the mean square; otherwise as layernorm */
    void (*rmsnorm)(const void *x, const void *w, void *y, float *rstd, size_t rows, size_t n, float eps);
    void (*rmsnorm_input)(const void *dy, const void *x, const void *w, const float *rstd, const void *residual,
                          void *dx, size_t rows, size_t n);
    void (*rmsnorm_weight)(const void *dy, const void *x, const float *rstd, float *dw, size_t rows, size_t n,
                           size_t first, size_t last, int add);
    /* One token: halves of each head turned by d/2 angles (cosines, then sines), back with sign −1; y may be x */
    void (*rope)(const void *x, const float *turns, void *y, size_t heads, size_t d, float sign);
    void (*swiglu)(const void *gate, const void *up, void *y, size_t n);      /* y may be either */
    void (*swiglu_input)(const void *dy, const void *gate, const void *up, void *d_gate, void *d_up,
                         size_t n);                                           /* d_gate may be dy */
    /* to = on (or 0) + Σ by[r]·rows[r]; to may be on */
    void (*mix)(const void *const *rows, const float *by, size_t count, const void *on, void *to, size_t n);
    float (*inner)(const void *a, const void *b, size_t n);
    /* columns [first, last) of the sum over rows */
    void (*column_sum)(const void *x, float *sum, size_t rows, size_t n, size_t first, size_t last, int add);
    /* f->c may be sums */
    void (*finish)(const float *sums, size_t ld_sums, const struct finish *f, size_t rows, size_t n);
    void (*add)(const void *a, const void *b, void *y, size_t n);             /* y may be a or b */
    void (*add_to)(float *sum, const void *x, size_t n);
    void (*scale)(const void *x, float by, void *y, size_t n);                /* y may be x */
    void (*widen)(const void *x, float *y, size_t n);
    void (*narrow)(const float *x, void *y, size_t n);                        /* y may begin at x */
    void (*gelu)(const void *x, void *y, size_t n);                           /* y may be x */
    void (*gelu_input)(const void *dy, const void *x, void *dx, size_t n);    /* dx may be dy */
    /* Queries [first, last) of one head, at most KC_ATTENTION_QUERIES from a multiple of that. */
    void (*attention)(const struct attention *a, size_t first, size_t last);
    /* All rows of all heads: dq, dk and dv. */
    void (*attention_input)(const struct attention *a);
    /* master: f32, of a parameter in bf16, which becomes the new master, rounded; else NULL */
    void (*adamw)(const float *g, void *p, float *m, float *v, float *master, size_t n,
                  const struct adamw_values *values);
    float (*row_max)(const float *row, size_t n);
    float (*row_sum)(const float *row, size_t n, float largest);              /* Σ e^(x − largest) */
    /* Adds to sum[0] the losses and to sum[1] the count of rows whose target is not below 0; lse for all rows. */
    void (*cross_entropy)(const float *logits, const int32_t *targets, float *lse, double sum[2], size_t rows,
                          size_t n);
    /* A target that is not below n is a column that is elsewhere. */
    void (*cross_entropy_input)(const float *logits, const int32_t *targets, const float *lse, float *dlogits,
                                size_t rows, size_t n);                       /* dlogits may be logits */
    double (*square_sum)(const float *x, size_t n);
};

extern const struct kernels kernels_portable;
/* NULL where the compiler or the processor does not have what they need. */
const struct kernels *kernels_avx2(void), *kernels_avx512(void);

#endif
