/* finite.h - looks through values for one that is not finite, as integers, so that the loop is a vector loop. */
#ifndef KC_BASE_FINITE_H
#define KC_BASE_FINITE_H

#include <stdint.h>

/* The first of `count` values that is infinite or not a number; -1 if there is none. */
int64_t kc_find_nonfinite(const float *data, uint64_t count);

#endif
