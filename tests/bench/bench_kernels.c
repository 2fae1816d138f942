/* bench_kernels.c - one rank's training step without any layer: our best time and rate per op, tokens/s, and the share of the
 * peak: the best rate of the same library on a product of 2048³, tried between steps of the same run, so that both see
 * the same machine.
 *
 *   bench_kernels [layers hidden heads context vocab micro steps variant precision]   default: the quickstart model */
#include "base/clock.h"
#include "jobs/kernels/cpu/cpu.h"
#include "tests/unit/graph_runner.c" /* benches are linked with the archives alone */

#include <stdio.h>
#include <stdlib.h>

static int random_rows(void *self, int evaluate, uint64_t position, uint32_t rows, uint32_t context, int32_t *tokens,
                       int32_t *targets, int32_t *starts, struct kc_error *e)
{
    (void)starts;
    (void)evaluate, (void)e;
    const uint32_t vocab = *(uint32_t *)self;
    for (uint64_t i = 0; i < (uint64_t)rows * context; i++) {
        uint64_t z = (position * context + i + 1) * UINT64_C(0x9e3779b97f4a7c15);
        tokens[i] = (int32_t)((z >> 33) % vocab);
        targets[i] = (int32_t)((z >> 13) % vocab);
    }
    return 0;
}

/* One try of the peak: seconds of a product of SIDE³. */
enum { SIDE = 2048 };
static double product_seconds(sgemm_fn *run)
{
    static float *m[3];
    for (int i = 0; i < 3 && !m[i]; i++) {
        m[i] = aligned_alloc(64, SIDE * SIDE * sizeof(float));
        for (int k = 0; k < SIDE * SIDE; k++)
            m[i][k] = (float)(k % 7) * 0.1f;
    }
    const uint64_t t = kc_now();
    run('N', 'N', SIDE, SIDE, SIDE, m[0], SIDE, m[1], SIDE, 0, m[2], SIDE);
    return (double)(kc_now() - t) * 1e-9;
}

static long argument(int argc, char **argv, int i, long otherwise)
{
    return argc > i ? strtol(argv[i], NULL, 10) : otherwise;
}

int main(int argc, char **argv)
{
    struct kc_job_spec spec = test_spec((uint32_t)argument(argc, argv, 1, 4), (uint32_t)argument(argc, argv, 2, 128),
                                        (uint32_t)argument(argc, argv, 3, 4), (uint32_t)argument(argc, argv, 4, 128),
                                        (uint32_t)argument(argc, argv, 5, 256), (uint32_t)argument(argc, argv, 6, 8));
    const int steps = (int)argument(argc, argv, 7, 30);
    spec.precision = argc > 9 && strcmp(argv[9], "bf16") == 0 ? KC_PRECISION_BF16 : KC_PRECISION_FP32;
    struct runner r;
    struct kc_error e = {{0}};
    if (graph_runner_new(&r, &spec, argc > 8 ? argv[8] : "auto", 1, 1, random_rows, &spec.vocab, &e) < 0) {
        fprintf(stderr, "bench_kernels: %s\n", e.text);
        return 1;
    }
    graph_runner_init_parameters(&r, 1);
    struct kc_step_values v = {.lr = 1e-4, .scale = 1.0 / (spec.micro * (double)spec.context), .beta1_power = 0.9,
                               .beta2_power = 0.95};
    sgemm_fn *product = ((struct cpu *)r.table->self)->sgemm;
    double best = 1e9, update = 1e9, square = 1e9, op_best[KC_OPCODES] = {0};
    for (int s = 0; s < steps; s++) {
        v.sample_first = (uint64_t)s * spec.micro;
        for (int i = 0; i < KC_OPCODES; i++)
            r.op_seconds[i] = r.op_flops[i] = 0;
        uint64_t t = kc_now();
        if (graph_runner_run(&r, RUN_TRAIN, 0, 0, &v, &e) < 0)
            return fprintf(stderr, "bench_kernels: %s\n", e.text), 1;
        double seconds = (double)(kc_now() - t) * 1e-9;
        best = seconds < best ? seconds : best;
        for (int i = 0; i < KC_OPCODES; i++)
            op_best[i] = s == 0 || r.op_seconds[i] < op_best[i] ? r.op_seconds[i] : op_best[i];
        if (s < 8 || s % 8 == 0) {
            seconds = product_seconds(product);
            square = seconds < square ? seconds : square;
        }
        t = kc_now();
        graph_runner_gradient_norm(&r);
        graph_runner_update(&r, &v, &e);
        seconds = (double)(kc_now() - t) * 1e-9;
        update = seconds < update ? seconds : update;
    }
    const double tokens = spec.micro * (double)spec.context, flops = tokens * (double)kc_model_flops_per_token(&spec);
    const double peak = 2.0 * SIDE * SIDE * SIDE / square * 1e-9;
    printf("model     %u x %u, %u heads, context %u, vocab %u: %.2f M parameters, micro-batch %u\n", spec.layers,
           spec.hidden, spec.heads, spec.context, spec.vocab, (double)kc_model_parameters(&spec) * 1e-6, spec.micro);
    printf("kernels   %s\n", r.table->variant);
    printf("step      %.2f ms forward and backward (best), %.2f ms norm and optimizer, %.0f tokens/s\n", best * 1e3,
           update * 1e3, tokens / best);
    printf("limit     %.2f ms if all ran at the %.0f GFLOP/s of a product of 2048^3; we reach %.0f GFLOP/s, %.0f %%\n",
           flops / peak * 1e-6, peak, flops / best * 1e-9, 100 * flops / best * 1e-9 / peak);
    for (int i = 0; i < KC_OPCODES; i++)
        if (op_best[i] > 0)
            printf("  %-16s %8.3f ms %6.0f GFLOP/s\n", r.table->ops[i].name, op_best[i] * 1e3, r.op_flops[i] / op_best[i] * 1e-9);
    graph_runner_free(&r);
    return 0;
}
