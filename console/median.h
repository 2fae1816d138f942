/* median.h - the middle of what was measured. */
#ifndef KC_CONSOLE_MEDIAN_H
#define KC_CONSOLE_MEDIAN_H

#include <stddef.h>

/* Of `count` values, sorted in place; NaN of none, and where one is unknown. */
double median_of(double *values, size_t count);

#endif
