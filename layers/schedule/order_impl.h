/* order_impl.h - what the files of order share. */
#ifndef KC_SCHEDULE_ORDER_IMPL_H
#define KC_SCHEDULE_ORDER_IMPL_H

#include "order.h"

#include "contracts/shard_plan.h"

/* What one rank has at most of one stage and micro-batch: F, I, W, and four transfers. */
enum { ORDER_COMPUTE_MOST = 3, ORDER_TURNS_MOST = 7 };

/* Where a row's function writes its turns. A function may list micro-batches that do not exist: they are left out,
 * and what is left of lists that are in order is in order. */
struct kc_order_pen {
    struct kc_turn *turns;
    uint32_t count, room;
    uint32_t micros;
    bool forward;
};

static inline void order_put(struct kc_order_pen *p, enum kc_turn_kind kind, uint32_t stage, uint32_t micro)
{
    if (micro < p->micros && (kind == KC_TURN_F || !p->forward) && p->count < p->room)
        p->turns[p->count++] = (struct kc_turn){kind, stage, micro};
}

void order_gpipe(const struct kc_order_shape *s, uint32_t rank, struct kc_order_pen *out);
void order_1f1b(const struct kc_order_shape *s, uint32_t rank, struct kc_order_pen *out);
void order_interleaved(const struct kc_order_shape *s, uint32_t rank, struct kc_order_pen *out);
void order_zb_h1(const struct kc_order_shape *s, uint32_t rank, struct kc_order_pen *out);
void order_zb_v(const struct kc_order_shape *s, uint32_t rank, struct kc_order_pen *out);

static inline uint32_t order_stages(const struct kc_order_lists *l)
{
    return l->shape.ranks * l->shape.chunks;
}
static inline uint32_t order_rank(const struct kc_order_lists *l, uint32_t stage)
{
    return kc_stage_coordinate((enum kc_pipeline)l->row->pipeline, l->shape.ranks, l->shape.chunks, stage);
}
/* The two lie on different ranks, so that what passes between them is a transfer. */
static inline bool order_apart(const struct kc_order_lists *l, uint32_t stage, uint32_t other)
{
    return order_rank(l, stage) != order_rank(l, other);
}
/* Index of (stage, micro) in an array over both. */
static inline size_t order_at(const struct kc_order_lists *l, uint32_t stage, uint32_t micro)
{
    return (size_t)stage * l->shape.micros + micro;
}
static inline bool turn_computes(const struct kc_turn *t)
{
    return t->kind <= KC_TURN_W;
}
double turn_cost(const struct kc_turn *t, const struct kc_order_costs *costs);
/* "recv F of stage 3, micro-batch 7" into out. */
#define TURN_TEXT 64
void turn_text(const struct kc_turn *t, char out[TURN_TEXT]);

/* Compute turns → a new list of compute turns and transfers. -EDEADLK, -ENOMEM. */
int order_connect(const struct kc_order_lists *in, const struct kc_order_costs *costs, struct kc_order_lists *out,
                  struct kc_error *e);

#endif
