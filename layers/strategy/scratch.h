/* scratch.h - memory for the time of one call: taken from the far end of the arena that a plan is built in, so that a pure
 * function needs no other. Pure. */
#ifndef KC_STRATEGY_SCRATCH_H
#define KC_STRATEGY_SCRATCH_H

#include "base/arena.h"

/* `count` zeroed elements, aligned to 64 bytes; NULL when the arena is full (its `need` counts on). They are gone after
 * kc_scratch_end(). */
void *kc_scratch_take(struct kc_arena *a, size_t count, size_t bytes);
/* The arena has its `size` again; its `need` is what the plan and the scratch memory together came to. */
void kc_scratch_end(struct kc_arena *a, size_t size);

#endif
