/* kernel_rig.c - see kernel_rig.h. */
#include "tests/unit/kernel_rig.h"

#include <check.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const variants[VARIANTS] = {"auto", "avx512+blocked", "avx2+blocked", "portable+blocked"};

struct kc_job_spec spec;
struct kc_op_table *table; /* of the variant under test */
struct test_lane lane;
double scratch[KERNEL_SCRATCH] __attribute__((aligned(64)));

int use_variant(int i)
{
    spec = test_spec(1, 8, 2, 8, 16, 1);
    struct kc_jobs_config config = {.spec = &spec, .variant = variants[i]};
    test_lane_init(&lane, 1);
    int r = kc_jobs_cpu_table(&config, &table, NULL);
    ck_assert(r == 0 || r == -ENOTSUP);
    return r == 0;
}

void end_variant(void)
{
    kc_jobs_cpu_table_free(table);
    table = NULL;
}

static uint64_t seed = 1;
double noise(void)
{
    seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (double)(seed >> 11) / 4503599627370496.0 - 1; /* [−1, 1) */
}

struct tensor make(int type, int rank, const uint64_t *size, double scale)
{
    struct tensor t = {.view = {.type = (uint8_t)type, .rank = (uint8_t)rank}, .n = 1};
    for (int d = 0; d < rank; d++)
        t.n *= t.view.size[d] = size[d];
    t.view.data = aligned_alloc(64, (t.n * kc_type_bytes[type] + 63) / 64 * 64);
    t.exact = calloc(t.n, sizeof *t.exact);
    for (uint64_t i = 0; i < t.n && type == KC_F32; i++) {
        float v = (float)(scale * noise());
        ((float *)t.view.data)[i] = v;
        t.exact[i] = (double)v;
    }
    return t;
}

float *floats(const struct tensor *t)
{
    return t->view.data;
}

void drop(struct tensor *t, int n)
{
    for (int i = 0; i < n; i++) {
        free(t[i].view.data);
        free(t[i].exact);
    }
}

struct kc_step_values step_values;
int run(enum kc_opcode op, const struct tensor *in, int inputs, struct tensor *out, int outputs, int accumulate,
        const double *attr, struct kc_error *e)
{
    return run_attrs(op, in, inputs, out, outputs, accumulate, attr, !attr ? 0 : op == KC_OP_ADAMW ? 4 : 1, e);
}

int run_attrs(enum kc_opcode op, const struct tensor *in, int inputs, struct tensor *out, int outputs, int accumulate,
              const double *attr, uint32_t attrs, struct kc_error *e)
{
    struct kc_view iv[KC_RULE_TENSORS], ov[KC_RULE_TENSORS];
    for (int i = 0; i < inputs; i++)
        iv[i] = in[i].view;
    for (int i = 0; i < outputs; i++)
        ov[i] = out[i].view;
    if (op == KC_OP_ADAMW && outputs == 3)
        ov[outputs++] = (struct kc_view){.data = NULL}; /* no master: the parameter is f32 */
    struct kc_op_call call = {.opcode = (uint16_t)op,
                              .accumulate = (uint8_t)accumulate,
                              .inputs = (uint8_t)inputs,
                              .outputs = (uint8_t)outputs,
                              .in = iv,
                              .out = ov,
                              .attr = attr,
                              .attrs = attrs,
                              .scratch = scratch,
                              .scratch_bytes = sizeof scratch,
                              .step = &step_values};
    return table->ops[op].enqueue(table->self, &call, &lane.lane, e);
}

void same(const char *what, const float *got, const double *want, uint64_t n, double tolerance)
{
    double largest = 1e-30, worst = 0;
    uint64_t at = 0;
    for (uint64_t i = 0; i < n; i++)
        largest = fmax(largest, fabs(want[i]));
    for (uint64_t i = 0; i < n; i++) {
        double d = fabs((double)got[i] - want[i]);
        if (!(d <= worst))
            worst = d, at = i;
    }
    ck_assert_msg(worst <= tolerance * largest, "%s [%llu]: %.9g instead of %.9g (largest %.3g), variant %s", what,
                  (unsigned long long)at, (double)got[at], want[at], largest, table ? table->variant : "of its own");
}

void naive_product(const struct shape *s, double *const *in, double *const *out)
{
    for (uint64_t r = 0; r < s->b * s->t; r++)
        for (uint64_t j = 0; j < s->n; j++) {
            double sum = 0;
            for (uint64_t k = 0; k < s->h; k++)
                sum += in[0][r * s->h + k] * in[1][j * s->h + k];
            out[0][r * s->n + j] = sum;
        }
}

/* Σ dy·forward(in), as a function of element i of operand k, differentiated: (f(x + ε) − f(x − ε)) / 2ε. */
static double slope(naive_fn *forward, const struct shape *s, double *const *in, int k, uint64_t i, const double *dy,
                    uint64_t outputs)
{
    const double step = 1e-5, was = in[k][i];
    double *y[2] = {malloc(outputs * sizeof(double)), NULL}, sum = 0;
    for (int side = -1; side <= 1; side += 2) {
        in[k][i] = was + side * step;
        forward(s, in, y);
        for (uint64_t o = 0; o < outputs; o++)
            sum += side * dy[o] * y[0][o];
    }
    in[k][i] = was;
    free(y[0]);
    return sum / (2 * step);
}

void derivative_is_slope(const char *what, const struct tensor *got, naive_fn *forward, const struct shape *s,
                                double *const *in, int k, const struct tensor *dy, const double *before,
                                uint64_t every)
{
    uint64_t n = 0;
    float *some = malloc(got->n * sizeof *some);
    double *want = malloc(got->n * sizeof *want);
    for (uint64_t i = 0; i < got->n; i += every, n++) {
        some[n] = floats(got)[i];
        want[n] = slope(forward, s, in, k, i, dy->exact, dy->n) + (before ? before[i] : 0);
    }
    same(what, some, want, n, 2e-5);
    free(some);
    free(want);
}

