/* progress.c - pure arithmetic over the spec and the numbers that are given. */
#include "progress.h"

#include "number.h"

#include <math.h>

/* cos(π·r) for r in [0, 1], the same bits everywhere. */
static double cos_half(double r)
{
    double s, c;
    kc_number_turn(r / 2, &s, &c);
    return c;
}

double kc_state_lr(const struct kc_job_spec *spec, uint64_t step)
{
    if (step < spec->warmup)
        return spec->lr * (double)(step + 1) / (double)spec->warmup;
    uint64_t after = spec->steps > spec->warmup ? spec->steps - spec->warmup : 1;
    double low = spec->floor * spec->lr, r = (double)(step - spec->warmup) / (double)after;
    r = r > 1 ? 1 : r; /* beyond the last step */
    switch ((enum kc_lr)spec->lr_kind) {
    case KC_LR_LINEAR:
        return low + (1 - r) * (spec->lr - low);
    case KC_LR_COSINE:
        return low + 0.5 * (1 + cos_half(r)) * (spec->lr - low);
    case KC_LR_WSD: {
        uint64_t end = spec->steps - spec->steps / 5;
        if (step < end)
            return spec->lr;
        double q = spec->steps > end ? (double)(step - end) / (double)(spec->steps - end) : 1;
        return low + (1 - sqrt(q > 1 ? 1 : q)) * (spec->lr - low);
    }
    default:
        return spec->lr;
    }
}

void kc_history_clear(struct kc_history *h, uint64_t first)
{
    h->stride = 1;
    h->count = 0;
    h->first = first;
    h->open_steps = 0;
    h->open_sum = 0;
}

static void halve(struct kc_history *h)
{
    for (uint32_t i = 0; i < KC_HISTORY_POINTS / 2; i++)
        h->point[i] = (h->point[2 * i] + h->point[2 * i + 1]) / 2;
    h->count = KC_HISTORY_POINTS / 2;
    h->stride *= 2;
}

void kc_history_add(struct kc_history *h, double loss)
{
    h->open_sum += loss;
    if (++h->open_steps < h->stride)
        return;
    if (h->count == KC_HISTORY_POINTS)
        halve(h);
    if (h->open_steps < h->stride) /* halving doubled what a point must have: this one stays open */
        return;
    h->point[h->count++] = h->open_sum / (double)h->open_steps;
    h->open_steps = 0;
    h->open_sum = 0;
}
