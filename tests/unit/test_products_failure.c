/* test_products_failure.c - a product that the library fails in fails the table: the next op says so, in one line, of
 * the first failure. The library's functions stand here, in front of the real ones, and fail when a test wants it. */
#include "jobs/jobs.h"
#include "tests/unit/graph_runner.h"
#include "tests/unit/suite.h"

#include <check.h>
#include <errno.h>
#include <string.h>

#ifdef KC_HAVE_DNNL
#include <dlfcn.h>
#include <dnnl.h>

enum where { NOWHERE, SGEMM, HANDLE, EXECUTE, WAIT };
static enum where fails; /* which function; */
static int calls;        /* how often it did, and its status: 2, 3, 4 … */

#define FORWARD(where, name, parameters, arguments)     \
    dnnl_status_t DNNL_API name parameters              \
    {                                                   \
        dnnl_status_t (*real) parameters;               \
        *(void **)&real = dlsym(RTLD_NEXT, #name);      \
        if (fails == (where))                           \
            return (dnnl_status_t)(2 + calls++);        \
        return real arguments;                          \
    }
FORWARD(SGEMM, dnnl_sgemm,
        (char ta, char tb, dnnl_dim_t m, dnnl_dim_t n, dnnl_dim_t k, float alpha, const float *a, dnnl_dim_t lda,
         const float *b, dnnl_dim_t ldb, float beta, float *c, dnnl_dim_t ldc),
        (ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc))
FORWARD(HANDLE, dnnl_memory_set_data_handle, (dnnl_memory_t memory, void *data), (memory, data))
FORWARD(EXECUTE, dnnl_primitive_execute,
        (const_dnnl_primitive_t p, dnnl_stream_t stream, int count, const dnnl_exec_arg_t *list),
        (p, stream, count, list))
FORWARD(WAIT, dnnl_stream_wait, (dnnl_stream_t stream), (stream))

static const struct {
    enum where where;
    const char *variant;
    int precision;
} ways[] = {
    {SGEMM, "auto+onednn", KC_PRECISION_FP32},          {SGEMM, "auto+onednn+widened", KC_PRECISION_BF16},
    {HANDLE, "auto+onednn+native", KC_PRECISION_BF16},  {EXECUTE, "auto+onednn+native", KC_PRECISION_BF16},
    {WAIT, "auto+onednn+native", KC_PRECISION_BF16},
};
enum { WAYS = sizeof ways / sizeof *ways, ROWS = 600, IN = 3, OUT = 5 }; /* rows: more than one run of the depth */

/* dw, db = dy, x */
static int weight_gradient(struct kc_op_table *table, uint8_t type, struct kc_error *e)
{
    static float dy[ROWS * OUT], x[ROWS * IN], dw[IN * OUT], db[OUT];
    static double scratch[KC_SCRATCH_MIN / 8] __attribute__((aligned(64)));
    struct test_lane lane;
    struct kc_view in[] = {{.data = dy, .type = type, .rank = 3, .size = {1, ROWS, OUT}},
                           {.data = x, .type = type, .rank = 3, .size = {1, ROWS, IN}}};
    struct kc_view out[] = {{.data = dw, .type = KC_F32, .rank = 2, .size = {IN, OUT}},
                            {.data = db, .type = KC_F32, .rank = 1, .size = {OUT}}};
    struct kc_op_call call = {.opcode = KC_OP_LINEAR_W, .inputs = 2, .outputs = 2, .in = in, .out = out,
                              .scratch = scratch, .scratch_bytes = sizeof scratch};
    test_lane_init(&lane, 1);
    return table->ops[KC_OP_LINEAR_W].enqueue(table->self, &call, &lane.lane, e);
}

START_TEST(a_failed_product_is_told_by_the_next_op)
{
    struct kc_job_spec spec = test_spec(1, 8, 2, 8, 16, 1);
    spec.precision = (uint8_t)ways[_i].precision;
    struct kc_jobs_config config = {.spec = &spec, .variant = ways[_i].variant};
    struct kc_op_table *table;
    struct kc_error e = {{0}};
    const uint8_t type = ways[_i].precision == KC_PRECISION_BF16 ? KC_BF16 : KC_F32;
    int r = kc_jobs_cpu_table(&config, &table, &e);
    ck_assert(r == 0 || r == -ENOTSUP); /* a processor without instructions for bf16 has no native products */
    if (r < 0)
        return;
    ck_assert_int_eq(weight_gradient(table, type, &e), 0); /* what the product needs is made, and it is right */
    ck_assert_int_eq(table->failed(table->self, &e), 0);
    fails = ways[_i].where;
    ck_assert_int_eq(weight_gradient(table, type, &e), 0); /* the lane ran it, enqueue knows nothing */
    fails = NOWHERE;
    ck_assert_int_gt(calls, ways[_i].where == SGEMM); /* in runs of the depth, each with a status of its own */
    char want[256];
    snprintf(want, sizeof want, "oneDNN fails in a product of %d x %d x %d (status 2), variant %s; a variant with "
                                "+blocked does without it", IN, OUT, ROWS, table->variant);
    ck_assert_int_eq(weight_gradient(table, type, &e), -EIO);
    ck_assert_str_eq(e.text, want);
    ck_assert_int_eq(table->failed(table->self, &e), -EIO);
    kc_jobs_cpu_table_free(table);
}
END_TEST
#endif

int main(void)
{
    Suite *s = suite_create("failing products");
    TCase *t = tcase_create("library");
#ifdef KC_HAVE_DNNL
    tcase_add_loop_test(t, a_failed_product_is_told_by_the_next_op, 0, WAYS);
#endif
    suite_add_tcase(s, t);
    return suite_run(s);
}
