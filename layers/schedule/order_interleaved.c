/* order_interleaved.c - 1F1B over several chunks a rank (Narayanan et al. 2021, "Efficient large-scale language model
 * training on GPU clusters using Megatron-LM", section 2.2), for any number of micro-batches.
 *
 * Micro-batches pass a rank in groups: a whole group through one chunk, then through the next. A group must be at
 * least as long as the pipeline, or the first rank waits for the last. So there are as many groups as fit, the
 * remainder is spread over the first ones, and fewer micro-batches than ranks are one group. No later group is longer
 * than an earlier one, so that the forwards which the first backward waits for are the first group's. */
#include "order_impl.h"

struct groups {
    uint32_t size;   /* of the later groups */
    uint32_t larger; /* so many first groups have one more */
};

static struct groups groups_of(const struct kc_order_shape *s)
{
    const uint32_t count = s->micros < s->ranks ? 1 : s->micros / s->ranks;
    return (struct groups){.size = s->micros / count, .larger = s->micros % count};
}

/* The k-th time that a rank takes a micro-batch through a chunk. */
struct pass {
    uint32_t chunk, micro;
};

static struct pass pass_at(const struct kc_order_shape *s, struct groups g, uint32_t k)
{
    uint32_t size = g.size + 1, before = 0; /* micro-batches before this kind of group */
    const uint32_t larger = g.larger * size * s->chunks;
    if (k >= larger)
        k -= larger, before = g.larger * size, size = g.size;
    const uint32_t in = k % (size * s->chunks);
    return (struct pass){.chunk = in / size, .micro = before + k / (size * s->chunks) * size + in % size};
}

void order_interleaved(const struct kc_order_shape *s, uint32_t rank, struct kc_order_pen *out)
{
    const struct groups g = groups_of(s);
    const uint32_t passes = s->micros * s->chunks, longest = g.size + (g.larger > 0);
    const uint32_t wanted = 2 * (s->ranks - 1 - rank) + (s->chunks - 1) * longest;
    const uint32_t ahead = wanted < passes ? wanted : passes;
    for (uint32_t k = 0; k < passes + ahead; k++) {
        if (k < passes) {
            const struct pass f = pass_at(s, g, k);
            order_put(out, KC_TURN_F, f.chunk * s->ranks + rank, f.micro);
        }
        if (k >= ahead) {
            const struct pass b = pass_at(s, g, k - ahead);
            order_put(out, KC_TURN_B, (s->chunks - 1 - b.chunk) * s->ranks + rank, b.micro);
        }
    }
}
