/* chart_scale.h - what of a history a chart shows, between which values it lies, and what it says in words. Pure. */
#ifndef KC_CONSOLE_SCREEN_CHART_SCALE_H
#define KC_CONSOLE_SCREEN_CHART_SCALE_H

#include "console/history.h"

/* Steps [first, last] of one series. */
struct chart_sample {
    uint64_t first, last;
    struct history_value value;
};
struct chart_samples {
    struct chart_sample *at; /* owned */
    size_t count;
    double low, high;        /* what else is to be on the y axis, if low <= high */
};
/* Those of steps (from, to]. -ENOMEM. */
int samples_take(struct chart_samples *s, const struct history *h, enum history_series series, uint64_t from, uint64_t to);
void samples_free(struct chart_samples *s);

/* The y axis. */
struct chart_scale {
    double low, high; /* low > high: nothing has a value */
    bool log;
};
/* Round numbers around what is shown, without the 2 % farthest out where those would press everything else flat. `log`
 * stays false where nothing is above 0. */
struct chart_scale scale_choose(const struct chart_samples *s, bool log);
/* Where a value stands: 0 at the top, 1 at the bottom, outside of that beyond; NaN: nowhere (0 on a log axis). */
double scale_place(const struct chart_scale *s, double v);
/* What stands there. */
double scale_value(const struct chart_scale *s, double place);
/* A number of the axis, with as many digits as tell it from its neighbours. Returns `out`. */
const char *scale_text(const struct chart_scale *s, double v, char out[16]);

/* What a person would read off it. */
struct chart_words {
    double min, max, last;  /* NaN: there is none */
    uint64_t min_at, max_at, last_at;
    double slope;           /* by how much it changes in `per` steps, over the newest quarter; NaN */
    uint64_t per;           /* a power of 10 */
    uint32_t nonfinite;
};
struct chart_words samples_words(const struct chart_samples *s);

#endif
