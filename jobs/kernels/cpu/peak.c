/* peak.c - the rate that matrix products reach here when nothing else is asked of them. */
#include "cpu.h"

#include "base/clock.h"

#define SIZE  2048
#define TRIES 1024

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

int kc_jobs_cpu_peak(double seconds, double *flops_per_second, char *variant, size_t room,
                     struct kc_error *e)
{
    static const struct kc_job_spec none;
    struct kc_jobs_config config = {.spec = &none, .batch_ranks = 1};
    struct kc_op_table *table;
    size_t bytes = sizeof(float) * SIZE * SIZE;
    double took[TRIES];
    size_t tries = 0;
    int r = kc_jobs_cpu_table(&config, &table, e);
    if (r < 0)
        return r;
    sgemm_fn *product = ((struct cpu *)table->self)->sgemm;
    float *a = aligned_alloc(64, 3 * bytes), *b = a + SIZE * SIZE, *c = b + SIZE * SIZE;
    if (!a) {
        kc_jobs_cpu_table_free(table);
        return kc_fail(e, -ENOMEM, "no memory for three matrices of %zu bytes", bytes);
    }
    for (size_t i = 0; i < SIZE * SIZE; i++)
        a[i] = (float)(i % 17) - 8,
        b[i] = (float)(i % 13) - 6; /* small whole numbers: every sum is exact */
    product('N', 'N', SIZE, SIZE, SIZE, a, SIZE, b, SIZE, 0, c,
            SIZE); /* generates its code, touches c */
    for (uint64_t end = kc_now() + (uint64_t)(seconds * 1e9);
         tries == 0 || (tries < TRIES && kc_now() < end); tries++) {
        uint64_t start = kc_now();
        product('N', 'N', SIZE, SIZE, SIZE, a, SIZE, b, SIZE, 0, c, SIZE);
        took[tries] = (double)(kc_now() - start) * 1e-9;
    }
    qsort(took, tries, sizeof *took, compare);
    *flops_per_second = 2.0 * SIZE * SIZE * SIZE / took[tries / 2];
    snprintf(variant, room, "%s", table->variant);
    free(a);
    kc_jobs_cpu_table_free(table);
    return 0;
}
