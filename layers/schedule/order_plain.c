/* order_plain.c - orders whose backward is whole and that have one rule a rank: GPipe (Huang et al. 2019; over
 * several chunks: Lamy-Poirier 2023, breadth first), and 1F1B (Narayanan et al. 2019 and 2021). */
#include "order_impl.h"

void order_gpipe(const struct kc_order_shape *s, uint32_t rank, struct kc_order_pen *out)
{
    for (uint32_t c = 0; c < s->chunks; c++)
        for (uint32_t m = 0; m < s->micros; m++)
            order_put(out, KC_TURN_F, c * s->ranks + rank, m);
    for (uint32_t c = s->chunks; c-- > 0;)
        for (uint32_t m = 0; m < s->micros; m++)
            order_put(out, KC_TURN_B, c * s->ranks + rank, m);
}

/* As many forwards ahead as there are ranks behind this one, then a forward and a backward in turn. */
void order_1f1b(const struct kc_order_shape *s, uint32_t rank, struct kc_order_pen *out)
{
    const uint32_t ahead = s->ranks - 1 - rank;
    for (uint32_t m = 0; m < ahead; m++)
        order_put(out, KC_TURN_F, rank, m);
    for (uint32_t m = 0; m < s->micros; m++) {
        order_put(out, KC_TURN_F, rank, m + ahead);
        order_put(out, KC_TURN_B, rank, m);
    }
}
