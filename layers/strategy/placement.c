/* placement.c - see placement.h. */
#include "placement.h"

#include <stdio.h>

bool kc_placement_equal(struct kc_placement a, struct kc_placement b)
{
    if (a.kind != b.kind)
        return false;
    if (a.kind == KC_PLACE_SHARDED)
        return a.dim == b.dim;
    return a.kind != KC_PLACE_PARTIAL || a.reduce == b.reduce;
}

/* Rows: from; columns: to. S to S and P to P depend on the dimension and the reduction and are looked at apart. */
static const struct kc_conversion table[KC_PLACES][KC_PLACES] = {
    [KC_PLACE_REPLICATED] = {[KC_PLACE_REPLICATED] = {.kind = CONVERT_NOTHING},
                             [KC_PLACE_SHARDED] = {.kind = CONVERT_SLICE},
                             [KC_PLACE_PARTIAL] = {.kind = CONVERT_FILL}},
    [KC_PLACE_SHARDED] = {[KC_PLACE_REPLICATED] = {.kind = CONVERT_PRIMITIVE, .primitive = KC_ALL_GATHER},
                          [KC_PLACE_SHARDED] = {.kind = CONVERT_PRIMITIVE, .primitive = KC_ALL_TO_ALL},
                          [KC_PLACE_PARTIAL] = {.kind = CONVERT_FILL}},
    [KC_PLACE_PARTIAL] = {[KC_PLACE_REPLICATED] = {.kind = CONVERT_PRIMITIVE, .primitive = KC_ALL_REDUCE},
                          [KC_PLACE_SHARDED] = {.kind = CONVERT_PRIMITIVE, .primitive = KC_REDUCE_SCATTER},
                          [KC_PLACE_PARTIAL] = {.kind = CONVERT_IMPOSSIBLE}},
};

struct kc_conversion kc_placement_convert(struct kc_placement from, struct kc_placement to)
{
    if (from.kind >= KC_PLACES || to.kind >= KC_PLACES)
        return (struct kc_conversion){.kind = CONVERT_IMPOSSIBLE};
    if (kc_placement_equal(from, to))
        return (struct kc_conversion){.kind = CONVERT_NOTHING};
    struct kc_conversion c = table[from.kind][to.kind];
    if (c.kind == CONVERT_FILL && to.reduce != KC_SUM) /* zeros add nothing to a sum alone */
        c.kind = CONVERT_IMPOSSIBLE;
    if (from.kind == KC_PLACE_PARTIAL)
        c.reduce = from.reduce;
    return c;
}

double kc_conversion_bytes(struct kc_conversion c, uint64_t bytes, uint32_t ranks)
{
    if (c.kind != CONVERT_PRIMITIVE || ranks < 2)
        return 0;
    double others = (double)(ranks - 1) / ranks * (double)bytes;
    switch (c.primitive) {
    case KC_ALL_REDUCE:
        return 2 * others; /* a reduce-scatter and an all-gather */
    case KC_ALL_TO_ALL:
        return others / ranks; /* a rank holds 1/ranks of it and keeps its own share */
    default:
        return others;
    }
}

const char *kc_conversion_name(struct kc_conversion c)
{
    switch (c.kind) {
    case CONVERT_NOTHING:
        return "nothing";
    case CONVERT_SLICE:
        return "local slice";
    case CONVERT_FILL:
        return "local fill with zeros";
    case CONVERT_PRIMITIVE:
        return kc_primitive_name[c.primitive];
    default:
        return "no single primitive";
    }
}

void kc_placement_text(struct kc_placement p, char out[32])
{
    switch (p.kind) {
    case KC_PLACE_REPLICATED:
        snprintf(out, 32, "R");
        break;
    case KC_PLACE_SHARDED:
        snprintf(out, 32, "S(%s)", p.dim == KC_FLAT ? "flat" : p.dim < KC_DIMS ? kc_dim_name[p.dim] : "?");
        break;
    case KC_PLACE_PARTIAL:
        snprintf(out, 32, "P(%s)", p.reduce < KC_REDUCES ? kc_reduce_name[p.reduce] : "?");
        break;
    default:
        snprintf(out, 32, "not placed");
    }
}
