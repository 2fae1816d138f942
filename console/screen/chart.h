/* chart.h - a curve over the whole run: braille dots where the terminal has UTF-8, letters elsewhere. The x axis is all
 * steps that the run will have, and the y axis ends at round numbers, so that points are added in place and little is
 * sent over a slow line. */
#ifndef KC_CONSOLE_SCREEN_CHART_H
#define KC_CONSOLE_SCREEN_CHART_H

#include "canvas.h"

#include "console/history.h"

/* How the person looks at it. */
struct chart_look {
    int zoom;     /* a 2^zoom-th of the run is shown, 0: all; no fewer steps than CHART_STEPS */
    int64_t back; /* halves of what is shown, back from the newest step */
    bool log;     /* y axis */
    bool smooth;  /* the mean over neighbouring steps as a second curve */
};
#define CHART_STEPS 16

struct chart {
    const struct history *history;
    enum history_series series;
    uint64_t steps; /* what the run will have; less than what was seen is corrected */
    struct chart_look look;
};

/* On all of `c`: one line that says it in words (from 5 rows on), the plot, its axis. A column shows the range of its steps, never an
 * invented shape; where the mean of neighbouring steps passes stands the mean alone. Steps without a finite value are an N
 * on the top line, values above the range a ^, below it a v, validation losses an o. Smaller than 3 × 16: draws nothing. */
void chart_draw(struct canvas *c, const struct chart *chart);

/* The steps that it shows: (from, to]. */
void chart_window(const struct chart *chart, uint64_t *from, uint64_t *to);
/* Zoom in (1) or out (-1), move by half of what is shown, earlier (-1) or later (1). False: it goes no further that way. */
bool chart_zoom(struct chart *chart, int by);
bool chart_move(struct chart *chart, int by);

#endif
