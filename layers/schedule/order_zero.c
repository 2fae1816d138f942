/* order_zero.c - orders that split the backward: I passes the gradient on, W fills gaps (Qi et al. 2023, "Zero bubble
 * pipeline parallelism"; the V shape also in Qi et al. 2024, "Pipeline parallelism with controllable memory"). */
#include "order_impl.h"

/* ZB-H1: 1F1B, but W stays `rank` micro-batches behind. Each rank so keeps as much as rank 0 of 1F1B, and has as many
 * W left at the end as it would stand still there. */
void order_zb_h1(const struct kc_order_shape *s, uint32_t rank, struct kc_order_pen *out)
{
    const uint32_t ahead = s->ranks - 1 - rank;
    for (uint32_t m = 0; m < ahead; m++)
        order_put(out, KC_TURN_F, rank, m);
    for (uint32_t m = 0; m < s->micros; m++) {
        order_put(out, KC_TURN_F, rank, m + ahead);
        order_put(out, KC_TURN_I, rank, m);
        if (m >= rank)
            order_put(out, KC_TURN_W, rank, m - rank);
    }
    for (uint32_t m = s->micros < rank ? 0 : s->micros - rank; m < s->micros; m++)
        order_put(out, KC_TURN_W, rank, m);
}

/* Counts the micro-batches of each kind that a rank has listed, by chunk. */
struct zb_v {
    struct kc_order_pen *out;
    uint32_t stage[2], next[2][KC_TURN_W + 1];
};

static void put(struct zb_v *z, enum kc_turn_kind kind, uint32_t chunk)
{
    order_put(z->out, kind, z->stage[chunk], z->next[chunk][kind]++);
}

static void put_all(struct zb_v *z, uint32_t chunk)
{
    put(z, KC_TURN_F, chunk);
    put(z, KC_TURN_I, chunk);
    put(z, KC_TURN_W, chunk);
}

/* ZB-V: chunk 0 goes down the ranks, chunk 1 comes back up. Forwards of chunk 0 fill the time until the first
 * micro-batch is back; from then on a rank works on both chunks in turn, and at the end W of both is left to fill the
 * gaps between the last I. Takes this form from 2p - 1 micro-batches on; fewer are the first ones of so many. */
void order_zb_v(const struct kc_order_shape *s, uint32_t rank, struct kc_order_pen *out)
{
    const uint32_t p = s->ranks, most = s->micros < 2 * p - 1 ? 2 * p - 1 : s->micros;
    struct zb_v z = {.out = out, .stage = {rank, kc_stage_of(KC_PIPELINE_ZERO_BUBBLE, p, 2, rank, 1)}};
    for (uint32_t n = 0; n < 2 * (p - rank) - 1; n++)
        put(&z, KC_TURN_F, 0);
    for (uint32_t n = 0; n < rank; n++) {
        put(&z, KC_TURN_F, 1);
        put(&z, KC_TURN_F, 0);
    }
    for (uint32_t n = 0; n < p - rank; n++)
        put_all(&z, 1);
    while (z.next[1][KC_TURN_F] < most) {
        put_all(&z, 0);
        put_all(&z, 1);
    }
    for (uint32_t n = 0; n < rank; n++) {
        put(&z, KC_TURN_I, 0);
        put(&z, KC_TURN_I, 1);
    }
    for (uint32_t n = 0; n < p - rank; n++) {
        put(&z, KC_TURN_I, 0);
        put(&z, KC_TURN_W, 0);
    }
    while (z.next[1][KC_TURN_W] < most)
        put(&z, KC_TURN_W, 1);
    while (z.next[0][KC_TURN_W] < most)
        put(&z, KC_TURN_W, 0);
}
