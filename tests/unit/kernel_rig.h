/* kernel_rig.h - ops of the CPU table called one at a time, for each variant there is, with the same values in f64 beside
 * them: forward against a naive formula, backward against its central differences. */
#ifndef KC_TESTS_KERNEL_RIG_H
#define KC_TESTS_KERNEL_RIG_H

#include "tests/unit/graph_runner.h"

enum { VARIANTS = 4, KERNEL_SCRATCH = 1 << 20 };

extern struct kc_job_spec spec;
extern struct kc_op_table *table; /* of the variant under test */
extern struct test_lane lane;
extern double scratch[KERNEL_SCRATCH];
extern struct kc_step_values step_values;

/* Makes `table` of variant i; 0 if this machine does not have it. */
int use_variant(int i);
void end_variant(void);

/* A tensor of a test: a view and the same values in f64. */
struct tensor {
    struct kc_view view;
    double *exact;
    uint64_t n;
};
/* Noise of that size; integers and f64 are not filled. */
struct tensor make(int type, int rank, const uint64_t *size, double scale);
#define MAKE(type, scale, ...) \
    make(type, sizeof((uint64_t[]){__VA_ARGS__}) / 8, (const uint64_t[]){__VA_ARGS__}, scale)
float *floats(const struct tensor *t);
void drop(struct tensor *t, int n);
double noise(void); /* [−1, 1) */

/* attr: four attributes for ADAMW, one for others; NULL: none. */
int run(enum kc_opcode op, const struct tensor *in, int inputs, struct tensor *out, int outputs, int accumulate,
        const double *attr, struct kc_error *e);
int run_attrs(enum kc_opcode op, const struct tensor *in, int inputs, struct tensor *out, int outputs, int accumulate,
              const double *attr, uint32_t attrs, struct kc_error *e);

/* |got − want| ≤ tolerance · max |want| for all elements. */
void same(const char *what, const float *got, const double *want, uint64_t n, double tolerance);

/* A naive forward pass in f64: in and out are arrays of the operands' values; out[1] and further may be NULL. */
struct shape {
    uint64_t b, t, h, n, heads, kv_heads;
};
typedef void naive_fn(const struct shape *s, double *const *in, double *const *out);
naive_fn naive_product; /* (rows, n) = x (rows, h) · wT, w (n, h) */
/* Compare every `every`-th element of a derivative with the slope of Σ dy·forward(in) along operand k; `before` is what
 * it was added to (or NULL). */
void derivative_is_slope(const char *what, const struct tensor *got, naive_fn *forward, const struct shape *s,
                         double *const *in, int k, const struct tensor *dy, const double *before, uint64_t every);

#endif
