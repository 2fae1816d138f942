/* curve.c - see curve.h. */
#include "curve.h"

#include "record.h"

#include <math.h>

static uint64_t head_of(const struct kc_leader_area *a)
{
    return atomic_load_explicit(&a->curve_head, memory_order_relaxed);
}

static struct kc_curve_point point_of(const struct kc_leader_area *a, uint32_t generation, uint32_t i)
{
    struct kc_curve_point p;
    kc_words_load(&p, &a->curve[generation & 1][i], sizeof p);
    return p;
}

static uint64_t last_counted(const struct kc_leader_area *a)
{
    uint64_t head = head_of(a);
    uint32_t n = CURVE_POINTS(head);
    return n ? point_of(a, CURVE_GENERATION(head), n - 1).last : 0;
}

/* What the writer itself wrote; nothing when a predecessor died while writing it, or after it had made a point of
 * it. */
static struct kc_curve_point pending_of(const struct kc_leader_area *a)
{
    struct kc_curve_point p = {0};
    KC_READ(a->pending, &p);
    return p.steps && p.first > last_counted(a) ? p : (struct kc_curve_point){0};
}

uint64_t curve_last(const struct kc_leader_area *a)
{
    struct kc_curve_point pending = pending_of(a);
    return pending.steps ? pending.last : last_counted(a);
}

static void put_point(struct kc_leader_area *a, uint32_t generation, uint32_t i, const struct kc_curve_point *p)
{
    kc_words_store(&a->curve[generation & 1][i], p, sizeof *p);
}

static void publish(struct kc_leader_area *a, uint64_t head)
{
    atomic_store_explicit(&a->curve_head, head, memory_order_release);
}

/* b follows a */
static struct kc_curve_point merge(struct kc_curve_point a, struct kc_curve_point b)
{
    if (a.steps == 0)
        return b;
    uint32_t finite_a = a.steps - a.nonfinite, finite_b = b.steps - b.nonfinite;
    struct kc_curve_point p = {.first = a.first, .last = b.last, .steps = a.steps + b.steps,
                               .nonfinite = a.nonfinite + b.nonfinite,
                               .min = fminf(a.min, b.min), .max = fmaxf(a.max, b.max)}; /* NaN yields to a number */
    if (finite_a == 0)
        p.mean = b.mean;
    else if (finite_b == 0)
        p.mean = a.mean;
    else
        p.mean = (float)(((double)a.mean * finite_a + (double)b.mean * finite_b) / ((double)finite_a + finite_b));
    return p;
}

static void halve(struct kc_leader_area *a)
{
    uint64_t head = head_of(a);
    uint32_t g = CURVE_GENERATION(head), n = CURVE_POINTS(head);
    for (uint32_t i = 0; i < n / 2; i++) {
        struct kc_curve_point p = merge(point_of(a, g, 2 * i), point_of(a, g, 2 * i + 1));
        put_point(a, g + 1, i, &p);
    }
    publish(a, CURVE_HEAD(g + 1, n / 2, CURVE_SHIFT(head) + 1));
}

void curve_cut(struct kc_leader_area *a, uint64_t step)
{
    uint64_t head = head_of(a);
    uint32_t g = CURVE_GENERATION(head), n = CURVE_POINTS(head), keep = 0;
    while (keep < n) {
        struct kc_curve_point p = point_of(a, g, keep);
        if (p.last > step)
            break;
        put_point(a, g + 1, keep++, &p);
    }
    struct kc_curve_point pending = pending_of(a);
    if (keep < n || pending.last > step)
        pending = (struct kc_curve_point){0};
    /* Pending first: points that are gone must never stand behind it. */
    KC_WRITE(a->pending, &pending);
    publish(a, CURVE_HEAD(g + 1, keep, keep ? CURVE_SHIFT(head) : 0));
}

void curve_add(struct kc_leader_area *a, uint64_t step, double loss)
{
    uint64_t head = head_of(a);
    struct kc_curve_point pending = pending_of(a);
    uint32_t n = CURVE_POINTS(head);
    if (step == 0)
        return;
    if (step <= curve_last(a)) {
        curve_cut(a, step - 1);
        head = head_of(a);
        n = CURVE_POINTS(head);
        pending = pending_of(a);
    }
    int finite = isfinite(loss);
    float value = finite ? (float)loss : NAN;
    struct kc_curve_point one = {.first = step, .last = step, .steps = 1, .nonfinite = !finite,
                                 .mean = value, .min = value, .max = value};
    pending = merge(pending, one);
    if (pending.steps >= UINT32_C(1) << CURVE_SHIFT(head)) {
        if (n == KC_CURVE) {
            halve(a);
            head = head_of(a);
            n = CURVE_POINTS(head);
        }
        /* After halving, the pending point is half of what a point stands for now: it stays pending. */
        if (pending.steps >= UINT32_C(1) << CURVE_SHIFT(head)) {
            put_point(a, CURVE_GENERATION(head), n, &pending);
            publish(a, head + CURVE_HEAD(0, 1, 0));
            pending = (struct kc_curve_point){0};
        }
    }
    KC_WRITE(a->pending, &pending);
}
