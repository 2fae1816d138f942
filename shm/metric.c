/* metric.c - metric blocks. Each value is a word of its own; unknown is a clear bit, never a zero. */
#include "probe_impl.h"

static uint64_t bits_of(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static double value_of(uint64_t bits)
{
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static void mark(struct kc_metric_block *b, uint32_t m)
{
    uint64_t bit = UINT64_C(1) << m % 64;
    /* seldom changes: look before taking the line for writing */
    if (!(atomic_load_explicit(&b->valid[m / 64], memory_order_relaxed) & bit))
        atomic_fetch_or_explicit(&b->valid[m / 64], bit, memory_order_release);
}

void metric_set(struct kc_metric_block *b, uint32_t m, double value)
{
    if (m >= KC_METRICS_MAX)
        return;
    atomic_store_explicit(&b->value[m], bits_of(value), memory_order_release);
    mark(b, m);
}

void metric_add(struct kc_metric_block *b, uint32_t m, double amount)
{
    if (m >= KC_METRICS_MAX)
        return;
    /* an unknown value lies there as 0, so that the first two threads lose nothing */
    uint64_t old = atomic_load_explicit(&b->value[m], memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(&b->value[m], &old, bits_of(value_of(old) + amount),
                                                  memory_order_release, memory_order_relaxed))
        ;
    mark(b, m);
}

void metric_unset(struct kc_metric_block *b, uint32_t m)
{
    if (m >= KC_METRICS_MAX)
        return;
    atomic_fetch_and_explicit(&b->valid[m / 64], ~(UINT64_C(1) << m % 64), memory_order_release);
    atomic_store_explicit(&b->value[m], 0, memory_order_release);
}

void metric_clear(struct kc_metric_block *b)
{
    for (uint32_t m = 0; m < KC_METRICS_MAX; m++)
        metric_unset(b, m);
}
