/* sparkline.h - a curve as one line of text. Pure. */
#ifndef KC_CONSOLE_SCREEN_SPARKLINE_H
#define KC_CONSOLE_SCREEN_SPARKLINE_H

#include <stdbool.h>
#include <stddef.h>

#define SPARKLINE_COLS 64 /* at most */
#define SPARKLINE_ROOM (3 * SPARKLINE_COLS + 1)

/* `cols` columns of blocks (▁▂▃▄▅▆▇█; in ASCII _.,-=*#@), from the least value to the most; a blank where there is none (NaN),
 * the middle where all are the same. Of several values in a column their mean; fewer than columns are not spread. Returns
 * `out`. */
const char *sparkline(const double *value, size_t count, int cols, bool ascii, char out[SPARKLINE_ROOM]);

#endif
