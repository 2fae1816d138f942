/* chart_scale.c */
#include "chart_scale.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define FEW 50        /* fewer values have no outliers */
#define OUTLIERS 50   /* one of so many may be left out at either end */
#define FAR 4         /* times the rest: as far as that they have to be out */
#define DECADE 10     /* less than that is told by the numbers of a linear axis */
#define NEWEST 4      /* the slope is that of the newest 4th */

int samples_take(struct chart_samples *s, const struct history *h, enum history_series series, uint64_t from, uint64_t to)
{
    const size_t length = history_length(h);
    struct chart_sample *at = malloc((length ? length : 1) * sizeof *at);
    size_t n = 0;
    if (!at)
        return -ENOMEM;
    for (size_t i = 0; i < length; i++) {
        const struct history_point p = history_at(h, i);
        if (p.last > from && p.first <= to)
            at[n++] = (struct chart_sample){p.first, p.last, p.value[series]};
    }
    *s = (struct chart_samples){at, n, INFINITY, -INFINITY};
    return 0;
}

void samples_free(struct chart_samples *s)
{
    free(s->at);
    *s = (struct chart_samples){0};
}

/* ---- the y axis ---- */

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Leave out what is far above and far below the rest. `value`: the means, in the axis's own measure. */
static void leave_out(double *value, size_t n, double *low, double *high)
{
    if (n < FEW)
        return;
    qsort(value, n, sizeof *value, ascending);
    const double least = value[n / OUTLIERS], most = value[n - 1 - n / OUTLIERS];
    if (most > least && *high - most > (FAR - 1) * (most - least))
        *high = most;
    if (most > least && least - *low > (FAR - 1) * (most - least))
        *low = least;
}

/* The largest of 1, 2 and 5 times a power of ten that is not above v > 0. */
static double round_down(double v)
{
    const double power = pow(10, floor(log10(v) + 1e-9)), digit = v / power * (1 + 1e-9);
    return power * (digit >= 5 ? 5 : digit >= 2 ? 2 : 1);
}

static double round_up(double v)
{
    const double down = round_down(v), digit = down / pow(10, floor(log10(down) + 1e-9));
    return down >= v * (1 - 1e-9) ? down : down * (digit > 1.5 && digit < 3 ? 2.5 : 2);
}

static void make_round(struct chart_scale *s)
{
    if (s->log && s->high > DECADE * s->low) {
        s->low = round_down(s->low);
        s->high = round_up(s->high);
        return;
    }
    const double size = fmax(fabs(s->low), fabs(s->high));
    if (s->high - s->low <= 1e-6 * size || size == 0) { /* a flat line lies in the middle */
        const double half = size > 0 ? size / 2 : 0.5;
        s->low -= half;
        s->high += half;
    }
    const double step = round_down((s->high - s->low) / 10);
    const double low = floor(s->low / step + 1e-9) * step;
    s->low = s->log && low <= 0 ? s->low : low;
    s->high = ceil(s->high / step - 1e-9) * step;
}

struct chart_scale scale_choose(const struct chart_samples *s, bool log)
{
    struct chart_scale out = {.low = INFINITY, .high = -INFINITY};
    double *mean = malloc((s->count ? s->count : 1) * sizeof *mean);
    size_t n = 0;
    for (size_t i = 0; log && !out.log && i < s->count; i++)
        out.log = s->at[i].value.finite && s->at[i].value.max > 0;
    for (size_t i = 0; i < s->count; i++) {
        const struct history_value *v = &s->at[i].value;
        if (!v->finite || (out.log && v->max <= 0))
            continue;
        const double least = out.log && v->min <= 0 ? v->max : v->min;
        const double middle = out.log ? sqrt(least * v->max) : history_mean(v);
        out.low = fmin(out.low, least);
        out.high = fmax(out.high, v->max);
        if (mean)
            mean[n++] = out.log ? log10(middle) : middle;
    }
    if (out.low <= out.high && mean) {
        double low = out.log ? log10(out.low) : out.low, high = out.log ? log10(out.high) : out.high;
        leave_out(mean, n, &low, &high);
        out.low = out.log ? fmax(out.low, pow(10, low)) : low;
        out.high = out.log ? fmin(out.high, pow(10, high)) : high;
    }
    free(mean);
    if (out.low <= out.high && s->low <= s->high && (!out.log || s->low > 0)) {
        out.low = fmin(out.low, s->low);
        out.high = fmax(out.high, s->high);
    }
    if (out.low <= out.high)
        make_round(&out);
    return out;
}

double scale_place(const struct chart_scale *s, double v)
{
    if (s->log)
        return v > 0 ? (log(s->high) - log(v)) / (log(s->high) - log(s->low)) : NAN;
    return (s->high - v) / (s->high - s->low);
}

double scale_value(const struct chart_scale *s, double place)
{
    return s->log ? exp(log(s->high) - place * (log(s->high) - log(s->low))) : s->high - place * (s->high - s->low);
}

const char *scale_text(const struct chart_scale *s, double v, char out[16])
{
    const double size = fmax(fabs(s->low), fabs(s->high)), step = s->log ? fabs(v) : (s->high - s->low) / 10;
    const int places = step > 0 ? (int)fmax(0, s->log - floor(log10(step) + 1e-9)) : 0;
    if (fabs(v) < step * 1e-6)
        snprintf(out, 16, "0");
    else if (size >= 1e6 || places > 4)
        snprintf(out, 16, "%.*e", s->log || size / step < 100 ? 1 : 2, v);
    else
        snprintf(out, 16, "%.*f", places, v);
    return out;
}

/* ---- in words ---- */

static void find_slope(const struct chart_samples *s, struct chart_words *w)
{
    const uint64_t first = s->at[0].first, begin = w->last_at - (w->last_at - first) / NEWEST;
    double n = 0, x = 0, y = 0, xx = 0, xy = 0;
    for (size_t i = 0; i < s->count; i++) {
        const struct history_value *v = &s->at[i].value;
        if (s->at[i].first < begin || !v->finite)
            continue;
        const double at = (double)(s->at[i].first - begin) + (double)(s->at[i].last - s->at[i].first) / 2;
        n += v->finite;
        x += v->finite * at;
        xx += v->finite * at * at;
        y += v->sum;
        xy += v->sum * at;
    }
    const double spread = n * xx - x * x;
    for (w->per = 1; w->per * 10 <= w->last_at - begin + 1;)
        w->per *= 10;
    if (n >= 4 && spread > 0)
        w->slope = (n * xy - x * y) / spread * (double)w->per;
}

struct chart_words samples_words(const struct chart_samples *s)
{
    struct chart_words w = {.min = NAN, .max = NAN, .last = NAN, .slope = NAN, .per = 1};
    for (size_t i = 0; i < s->count; i++) {
        const struct history_value *v = &s->at[i].value;
        w.nonfinite += v->nonfinite;
        if (!v->finite)
            continue;
        if (!(w.min <= v->min)) {
            w.min = v->min;
            w.min_at = v->min_at;
        }
        if (!(w.max >= v->max)) {
            w.max = v->max;
            w.max_at = v->max_at;
        }
        w.last = history_mean(v);
        w.last_at = s->at[i].last;
    }
    if (w.last_at)
        find_slope(s, &w);
    return w;
}
