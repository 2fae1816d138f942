/* board_make_impl.h - what the files of board_make share. */
#ifndef KC_TESTS_BOARD_MAKE_IMPL_H
#define KC_TESTS_BOARD_MAKE_IMPL_H

#include "board_make.h"

#include "shm/board.h"

/* A number of the wish's seed and two others; the second is below 1. */
uint64_t board_random(const struct board_wish *w, uint64_t a, uint64_t b);
double board_share(const struct board_wish *w, uint64_t a, uint64_t b);
bool board_any(const struct board_set *s);
/* Groups: 0 is all, then one per place in a machine, then one per machine. */
static inline uint32_t board_tensor(const struct board_wish *w)
{
    return w->ranks >= 16 ? 8 : 1;
}
#define BOARD_DATA(place) (1 + (place))
#define BOARD_TENSOR(w, machine) (1 + board_tensor(w) + (machine))

void board_metric(struct kc_metric_block *b, enum kc_metric m, double value);
void board_fill_rank(struct kc_rank_slot *s, const struct board_wish *w, uint32_t rank);

#endif
