/* peak.c - the rate that matrix products reach here when nothing else is asked of them. */
#include "cpu.h"

#include "base/clock.h"

#define SIZE 2048

int kc_jobs_cpu_peak(double seconds, double *flops_per_second, char *variant, size_t room,
                     struct kc_error *e)
{
    static const struct kc_job_spec none;
    struct kc_jobs_config config = {.spec = &none};
    struct kc_op_table *table;
    size_t bytes = sizeof(float) * SIZE * SIZE;
    uint64_t best = UINT64_MAX;
    int r = kc_jobs_cpu_table(&config, &table, e);
    if (r < 0)
        return r;
    sgemm_fn *product = ((struct cpu *)table->self)->sgemm;
    float *a = aligned_alloc(64, 3 * bytes);
    if (!a) {
        kc_jobs_cpu_table_free(table);
        return kc_fail(e, -ENOMEM, "no memory for three matrices of %zu bytes", bytes);
    }
    float *b = a + SIZE * SIZE, *c = b + SIZE * SIZE;
    for (size_t i = 0; i < 2 * SIZE * SIZE; i++)
        a[i] = (float)(i % 17) - 8;
    int status = product('N', 'N', SIZE, SIZE, SIZE, a, SIZE, b, SIZE, 0, c, SIZE); /* makes its code */
    for (uint64_t start = kc_now(), end = start + (uint64_t)(seconds * 1e9);
         status == 0 && (start < end || best == UINT64_MAX);) {
        status = product('N', 'N', SIZE, SIZE, SIZE, a, SIZE, b, SIZE, 0, c, SIZE);
        uint64_t now = kc_now();
        best = now - start < best ? now - start : best;
        start = now;
    }
    if (status) {
        r = kc_fail(e, -EIO, "oneDNN fails in a product of %d x %d x %d (status %d)", SIZE, SIZE, SIZE, status);
        goto out;
    }
    *flops_per_second = 2.0 * SIZE * SIZE * SIZE / ((double)best * 1e-9);
    snprintf(variant, room, "%s", table->variant);
out:
    free(a);
    kc_jobs_cpu_table_free(table);
    return r;
}
