/* figures.h - what is kept of a part of a tensor: a digest of its bits in their places, and figures of its values. Pure. */
#ifndef KC_TRACE_FIGURES_H
#define KC_TRACE_FIGURES_H

#include "contracts/step_trace.h"

/* Fill digest, sum, squares, largest and nonfinite of a row from the elements at `data`. The place of an element is its
 * number in the logical tensor; of a batched one of micro-batch m so many whole tensors further. */
void figures_take(struct kc_traced *row, const void *data);

#endif
