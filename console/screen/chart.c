/* chart.c */
#include "chart.h"

#include "chart_scale.h"

#include "console/text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define LABEL 8 /* columns left of the axis */
#define SMOOTHED 24 /* the mean is over a 24th of what is shown */

struct column {
    double min, max;  /* min > max: nothing */
    double mean;      /* over neighbouring steps; NaN */
    double evaluated; /* NaN */
    bool nonfinite, above, below;
};

struct plot {
    int columns, dots_high; /* in dots */
    int top, high, wide;    /* the cells: first row, how many rows and columns */
    uint64_t from, to, window; /* window: steps that the mean is over */
    struct chart_scale scale;
    struct chart_samples samples;
    struct column *column;
    bool evaluated;         /* some are shown */
};

/* ---- what is shown ---- */

static uint64_t halved(uint64_t steps, int zoom)
{
    for (; zoom > 0 && steps / 2 >= CHART_STEPS; zoom--)
        steps = (steps + 1) / 2;
    return steps;
}

/* The end of the x axis. Of a run that goes on beyond what was said, a round number, so that it stands for a while. */
static uint64_t whole_run(const struct chart *chart)
{
    const uint64_t last = chart->history->last_step;
    if (chart->steps >= last && chart->steps)
        return chart->steps;
    uint64_t unit = 1;
    while (unit <= last / 10)
        unit *= 10;
    return last ? (last / unit + 1) * unit : CHART_STEPS;
}

void chart_window(const struct chart *chart, uint64_t *from, uint64_t *to)
{
    const uint64_t whole = whole_run(chart), part = halved(whole, chart->look.zoom), half = (part + 1) / 2;
    const uint64_t span = part < whole ? 2 * half : whole;
    const uint64_t last = chart->history->last_step ? chart->history->last_step - 1 : 0;
    int64_t at = (int64_t)(last / half) - 1 - chart->look.back;
    *from = at > 0 ? (uint64_t)at * half : 0; /* moves by halves, not by steps: in between points are added in place */
    if (*from + span > whole)
        *from = whole - span;
    *to = *from + span;
}

bool chart_move(struct chart *chart, int by)
{
    uint64_t from, to, now_from, now_to;
    struct chart next = *chart;
    chart_window(chart, &from, &to);
    next.look.back -= by;
    chart_window(&next, &now_from, &now_to);
    if (next.look.back < 0 || now_from == from)
        return false;
    *chart = next;
    return true;
}

/* Stays at the newest steps where it stood there, else about the same middle. */
bool chart_zoom(struct chart *chart, int by)
{
    uint64_t from, to, now_from, now_to;
    struct chart next = *chart;
    chart_window(chart, &from, &to);
    const uint64_t middle = from + (to - from) / 2;
    next.look.zoom = next.look.zoom + by < 0 ? 0 : next.look.zoom + by;
    next.look.back = 0;
    chart_window(&next, &now_from, &now_to);
    if (now_to - now_from == to - from)
        return false;
    while (chart->look.back && now_from + (now_to - now_from) / 4 > middle && chart_move(&next, -1))
        chart_window(&next, &now_from, &now_to);
    *chart = next;
    return true;
}

/* ---- columns ---- */

static int column_of(const struct plot *p, uint64_t step)
{
    const double x = (double)(step - p->from - 1) * p->columns / (double)(p->to - p->from);
    return x < 0 ? 0 : x >= p->columns ? p->columns - 1 : (int)x;
}

/* A sample that stands for more steps than a column does fills all of its columns. */
static void fill_values(struct plot *p)
{
    for (int x = 0; x < p->columns; x++)
        p->column[x] = (struct column){.min = INFINITY, .max = -INFINITY, .mean = NAN, .evaluated = NAN};
    for (size_t i = 0; i < p->samples.count; i++) {
        const struct chart_sample *s = &p->samples.at[i];
        const int end = s->last > s->first ? column_of(p, s->last < p->to ? s->last : p->to) : column_of(p, s->first);
        for (int x = s->first > p->from ? column_of(p, s->first) : 0; x <= end; x++) {
            struct column *k = &p->column[x];
            k->nonfinite |= s->value.nonfinite > 0;
            k->min = fmin(k->min, s->value.min);
            k->max = fmax(k->max, s->value.max);
        }
    }
}

/* The mean of the steps around the middle of each column, half a window to either side. */
static void fill_means(struct plot *p)
{
    const double step = (double)(p->to - p->from) / p->columns;
    size_t first = 0, end = 0;
    double sum = 0, count = 0;
    p->window = (p->to - p->from + SMOOTHED - 1) / SMOOTHED;
    for (int x = 0; x < p->columns; x++) {
        const double at = (double)p->from + 0.5 + (x + 0.5) * step, reach = (double)p->window / 2;
        for (; end < p->samples.count && (double)p->samples.at[end].first <= at + reach; end++) {
            sum += p->samples.at[end].value.sum;
            count += p->samples.at[end].value.finite;
        }
        for (; first < end && (double)p->samples.at[first].last < at - reach; first++) {
            sum -= p->samples.at[first].value.sum;
            count -= p->samples.at[first].value.finite;
        }
        if (count > 0 && p->column[x].min <= p->column[x].max)
            p->column[x].mean = sum / count;
    }
}

static bool is_shown(const struct plot *p, uint64_t step, double loss)
{
    return step > p->from && step <= p->to && isfinite(loss);
}

static void fill_evaluations(struct plot *p, const struct history *h)
{
    for (size_t i = 0; i < h->evaluations; i++)
        if (is_shown(p, h->evaluation[i].step, h->evaluation[i].loss)) {
            p->column[column_of(p, h->evaluation[i].step)].evaluated = h->evaluation[i].loss;
            p->evaluated = true;
        }
}

/* Validation losses have to be on the axis too. */
static void ask_for_evaluations(struct plot *p, const struct history *h)
{
    for (size_t i = 0; i < h->evaluations; i++)
        if (is_shown(p, h->evaluation[i].step, h->evaluation[i].loss)) {
            p->samples.low = fmin(p->samples.low, h->evaluation[i].loss);
            p->samples.high = fmax(p->samples.high, h->evaluation[i].loss);
        }
}

static void mark_outside(struct plot *p)
{
    for (int x = 0; x < p->columns; x++) {
        struct column *k = &p->column[x];
        k->above = k->max > p->scale.high + 1e-9 * fabs(p->scale.high);
        k->below = k->min <= k->max && (k->min < p->scale.low - 1e-9 * fabs(p->scale.low));
    }
}

/* ---- cells ---- */

/* Dot row of a value, 0 at the top. */
static int dot_of(const struct plot *p, double v)
{
    const double place = scale_place(&p->scale, v), y = isnan(place) ? p->dots_high - 1 : place * (p->dots_high - 1);
    return y < 0 ? 0 : y > p->dots_high - 1 ? p->dots_high - 1 : (int)lround(y);
}

static bool dot_set(const struct plot *p, int x, int y)
{
    const struct column *k = &p->column[x];
    return k->min <= k->max && y >= dot_of(p, k->max) && y <= dot_of(p, k->min);
}

/* The curve of the mean: from where it was a column before, so that it hangs together. */
static bool mean_set(const struct plot *p, int x, int y)
{
    const double now = p->column[x].mean, before = x ? p->column[x - 1].mean : NAN;
    if (isnan(now))
        return false;
    const int to = dot_of(p, now), from = isnan(before) ? to : dot_of(p, before);
    return y == to || (y > from && y < to) || (y < from && y > to);
}

/* What a cell of `wide` × `high` dots has, and the marks of its columns. */
struct dots {
    unsigned raw, mean; /* as braille bits */
    bool nonfinite, above, below, evaluated;
};

static struct dots dots_of(const struct plot *p, int x, int y, int wide, int high)
{
    /* dots of a braille cell, column by column from the top (Unicode 15, block 2800) */
    static const uint8_t bit[2][4] = {{0x01, 0x02, 0x04, 0x40}, {0x08, 0x10, 0x20, 0x80}};
    struct dots d = {0};
    for (int dx = 0; dx < wide; dx++) {
        const struct column *k = &p->column[x * wide + dx];
        for (int dy = 0; dy < high; dy++) {
            d.raw |= dot_set(p, x * wide + dx, y * high + dy) ? bit[dx][dy] : 0;
            d.mean |= mean_set(p, x * wide + dx, y * high + dy) ? bit[dx][dy] : 0;
        }
        d.nonfinite |= y == 0 && k->nonfinite;
        d.above |= y == 0 && k->above;
        d.below |= (y + 1) * high >= p->dots_high && k->below;
        d.evaluated |= !isnan(k->evaluated) && dot_of(p, k->evaluated) / high == y;
    }
    return d;
}

static void draw_cell(struct canvas *c, const struct plot *p, int x, int y)
{
    const int row = p->top + y, col = LABEL + 1 + x;
    const struct dots d = dots_of(p, x, y, c->ascii ? 1 : 2, c->ascii ? 2 : 4);
    if (d.nonfinite)
        canvas_put(c, row, col, ROLE_BAD, 'N', 'N');
    else if (d.above || d.below)
        canvas_put(c, row, col, ROLE_WARN, d.above ? '^' : 'v', d.above ? '^' : 'v');
    else if (d.evaluated)
        canvas_put(c, row, col, ROLE_GOOD, 'o', 'o');
    else if (d.mean)
        canvas_put(c, row, col, ROLE_STRONG, 0x2800 + d.mean, '*');
    else if (d.raw) /* two dots a letter: ' upper, . lower, | both */
        canvas_put(c, row, col, ROLE_CURVE, 0x2800 + d.raw, (d.raw & 3) == 3 ? '|' : d.raw & 1 ? '\'' : '.');
}

/* ---- around it ---- */

static void draw_axes(struct canvas *c, const struct plot *p)
{
    char text[24];
    for (int y = 0; y < p->high; y++) {
        const double place = p->high > 1 ? (double)y / (p->high - 1) : 0;
        if (y == 0 || y == p->high - 1 || (y == p->high / 2 && p->high >= 5))
            canvas_text(c, p->top + y, 0, LABEL, ROLE_DIM, "%*s", LABEL, scale_text(&p->scale, scale_value(&p->scale, place), text));
        canvas_put(c, p->top + y, LABEL, ROLE_DIM, 0x2502, '|');
    }
    const int row = p->top + p->high;
    canvas_put(c, row, LABEL, ROLE_DIM, 0x2514, '+');
    for (int x = 0; x < p->wide; x++)
        canvas_put(c, row, LABEL + 1 + x, ROLE_DIM, 0x2500, '-');
    const uint64_t at[3] = {p->from, p->from + (p->to - p->from) / 2, p->to};
    int n[3];
    for (int i = 0; i < 3; i++)
        n[i] = snprintf(text, sizeof text, "%llu", (unsigned long long)at[i]);
    const int begin[3] = {0, p->wide / 2 - n[1] / 2, p->wide - n[2]};
    for (int i = 0; i < 3; i++)
        if (i == 0 || (i == 2 ? p->wide >= n[0] + n[2] + 2 : begin[1] > n[0] + 4 && begin[1] + n[1] + 4 < begin[2]))
            canvas_text(c, row + 1, LABEL + 1 + begin[i], n[i], ROLE_DIM, "%llu", (unsigned long long)at[i]);
}

static const char *number(enum history_series series, double v, char out[32])
{
    return text_number(v, series == HISTORY_LOSS ? "%.4f" : series == HISTORY_LR ? "%.3e" : "%.3g", out, 32);
}

/* "1k" for 1000 steps */
static const char *power(uint64_t v, char out[24])
{
    if (v == 1)
        return "step";
    snprintf(out, 24, v < 1000 ? "%llu" : v < 1000000 ? "%lluk" : "%lluM",
             (unsigned long long)(v < 1000 ? v : v < 1000000 ? v / 1000 : v / 1000000));
    return out;
}

/* What is not told of a curve by looking at it: how it is drawn. */
static void name_look(const struct chart *chart, const struct plot *p, char *out, size_t room)
{
    char part[2][64] = {"", ""};
    if (chart->look.smooth)
        snprintf(part[0], sizeof part[0], "  mean of %llu steps", (unsigned long long)p->window);
    if (p->to - p->from < whole_run(chart))
        snprintf(part[1], sizeof part[1], "  steps %llu-%llu", (unsigned long long)p->from + 1, (unsigned long long)p->to);
    snprintf(out, room, "%s%s%s%s", p->evaluated ? "  o validation" : "", part[0],
             p->scale.log ? "  log" : chart->look.log ? "  nothing above 0: no log" : "", part[1]);
}

/* Where it does not fit go: most, least, change, newest. */
static void draw_words(struct canvas *c, const struct chart *chart, const struct plot *p)
{
    char look[256], part[4][80], line[512], value[32], per[24];
    const struct chart_words w = samples_words(&p->samples);
    snprintf(part[0], sizeof part[0], "  last %s", number(chart->series, w.last, value));
    snprintf(part[1], sizeof part[1], isnan(w.slope) ? "  slope -" : "  slope %+.2g/%s", w.slope, power(w.per, per));
    snprintf(part[2], sizeof part[2], "  min %s@%llu", number(chart->series, w.min, value), (unsigned long long)w.min_at);
    snprintf(part[3], sizeof part[3], "  max %s@%llu", number(chart->series, w.max, value), (unsigned long long)w.max_at);
    name_look(chart, p, look, sizeof look);
    const int room = c->cols - text_width(look);
    for (int parts = isnan(w.last) ? 0 : 4; parts >= 0; parts--) {
        snprintf(line, sizeof line, "%s%s%s%s%s", history_name[chart->series], parts > 0 ? part[0] : "",
                 parts > 2 ? part[2] : "", parts > 3 ? part[3] : "", parts > 1 ? part[1] : "");
        if (text_width(line) <= room)
            break;
    }
    const int n = canvas_text(c, 0, 0, 0, ROLE_NORMAL, "%s", line);
    if (n < c->cols)
        canvas_text(c, 0, n, 0, ROLE_DIM, "%s", look);
}

static void draw_plot(struct canvas *c, const struct chart *chart, struct plot *p)
{
    if (chart->series == HISTORY_LOSS)
        ask_for_evaluations(p, chart->history);
    p->scale = scale_choose(&p->samples, chart->look.log);
    if (p->scale.low > p->scale.high) {
        canvas_text(c, 0, 0, 0, ROLE_DIM, "%s: %s", history_name[chart->series],
                    p->samples.count ? "not known here" : chart->history->last_step ? "no step here" : "no step yet");
        return;
    }
    p->top = c->rows >= 5;
    p->high = c->rows - p->top - 2;
    p->wide = c->cols - LABEL - 1;
    p->columns = p->wide * (c->ascii ? 1 : 2);
    p->dots_high = p->high * (c->ascii ? 2 : 4);
    p->column = calloc((size_t)p->columns, sizeof *p->column);
    if (!p->column)
        return;
    fill_values(p);
    if (chart->look.smooth)
        fill_means(p);
    if (chart->series == HISTORY_LOSS)
        fill_evaluations(p, chart->history);
    mark_outside(p);
    if (p->top)
        draw_words(c, chart, p);
    draw_axes(c, p);
    for (int y = 0; y < p->high; y++)
        for (int x = 0; x < p->wide; x++)
            draw_cell(c, p, x, y);
    free(p->column);
}

void chart_draw(struct canvas *c, const struct chart *chart)
{
    struct plot p = {0};
    if (c->rows < 3 || c->cols < LABEL + 8)
        return;
    chart_window(chart, &p.from, &p.to);
    if (samples_take(&p.samples, chart->history, chart->series, p.from, p.to))
        return;
    draw_plot(c, chart, &p);
    samples_free(&p.samples);
}
