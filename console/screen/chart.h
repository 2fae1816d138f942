/* chart.h - the loss curve over the whole run: braille dots where the terminal has UTF-8, letters elsewhere. The x
 * axis is all steps that the run will have, so that points are added in place and little is sent over a slow line. */
#ifndef KC_CONSOLE_SCREEN_CHART_H
#define KC_CONSOLE_SCREEN_CHART_H

#include "canvas.h"

#include "console/history.h"

/* In the box at (row, col) of rows × cols cells, labels included. A column shows the range of its steps, never an
 * invented shape; steps without a finite loss are an N on the top line, losses above the range a ^. `steps`: what
 * the run will have; less than what was seen is corrected. Smaller than 3 × 16: draws nothing. */
void chart_draw(struct canvas *c, int row, int col, int rows, int cols, const struct history *h, uint64_t steps);

#endif
