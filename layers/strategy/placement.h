/* placement.h - the algebra of placements: what one primitive can turn into what, along one mesh axis. */
#ifndef KC_STRATEGY_PLACEMENT_H
#define KC_STRATEGY_PLACEMENT_H

#include "contracts/shard_plan.h"

#include <stdbool.h>

#define PLACE_UNKNOWN KC_PLACES /* as a kind: not placed yet */

/* How a tensor gets from one placement to another. */
enum kc_conversion_kind {
    CONVERT_NOTHING,    /* it is there already */
    CONVERT_SLICE,      /* a local slice, nothing moves */
    CONVERT_FILL,       /* what a rank has, in zeros: a part of a sum; nothing moves */
    CONVERT_PRIMITIVE,  /* one primitive */
    CONVERT_IMPOSSIBLE, /* no single primitive does it */
};
struct kc_conversion {
    uint8_t kind;      /* enum kc_conversion_kind */
    uint8_t primitive; /* CONVERT_PRIMITIVE: enum kc_primitive */
    uint8_t reduce;    /* for reductions: enum kc_reduce */
};

static inline struct kc_placement place_replicated(void)
{
    return (struct kc_placement){.kind = KC_PLACE_REPLICATED};
}
static inline struct kc_placement place_sharded(uint8_t dim)
{
    return (struct kc_placement){.kind = KC_PLACE_SHARDED, .dim = dim};
}
static inline struct kc_placement place_partial(uint8_t reduce)
{
    return (struct kc_placement){.kind = KC_PLACE_PARTIAL, .reduce = reduce};
}

bool kc_placement_equal(struct kc_placement a, struct kc_placement b);
/* The same table for activations, gradients and buckets (KC_FLAT): P→R all-reduce, P→S reduce-scatter, S→R
 * all-gather, S→S all-to-all, R→S slice, R→P and S→P fill. */
struct kc_conversion kc_placement_convert(struct kc_placement from, struct kc_placement to);
/* Bytes that one rank sends to convert a tensor of `bytes` (whole) among `ranks`. */
double kc_conversion_bytes(struct kc_conversion c, uint64_t bytes, uint32_t ranks);
/* "all-reduce", "local slice", … */
const char *kc_conversion_name(struct kc_conversion c);
/* "R", "S(batch)", "S(flat)", "P(sum)" into out. */
void kc_placement_text(struct kc_placement p, char out[32]);

#endif
