/* sparkline.c */
#include "sparkline.h"

#include <math.h>
#include <string.h>

#define LEVELS 8

static double mean_of(const double *value, size_t from, size_t to)
{
    double sum = 0;
    size_t n = 0;
    for (size_t i = from; i < to; i++)
        if (isfinite(value[i])) {
            sum += value[i];
            n++;
        }
    return n ? sum / (double)n : NAN;
}

const char *sparkline(const double *value, size_t count, int cols, bool ascii, char out[SPARKLINE_ROOM])
{
    static const char *const block[LEVELS] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    static const char letter[] = "_.,-=*#@";
    double mean[SPARKLINE_COLS], low = INFINITY, high = -INFINITY;
    size_t wide = cols < 1 ? 0 : cols > SPARKLINE_COLS ? SPARKLINE_COLS : (size_t)cols;
    char *at = out;
    if (wide > count)
        wide = count;
    for (size_t i = 0; i < wide; i++) {
        mean[i] = mean_of(value, i * count / wide, (i + 1) * count / wide);
        low = fmin(low, mean[i]);
        high = fmax(high, mean[i]);
    }
    for (size_t i = 0; i < wide; i++) {
        const double level = high > low ? (mean[i] - low) / (high - low) * (LEVELS - 1) : (LEVELS - 1) / 2;
        const int l = isnan(mean[i]) ? -1 : (int)lround(level);
        if (l < 0 || ascii)
            *at++ = l < 0 ? ' ' : letter[l];
        else
            at = stpcpy(at, block[l]);
    }
    *at = 0;
    return out;
}
