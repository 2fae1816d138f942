/* chart.c */
#include "chart.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define LABEL 8 /* columns left of the axis */

struct column {
    double min, max;  /* min > max: nothing */
    bool nonfinite;
};

struct plot {
    int columns, dots_high; /* in dots */
    double low, high;
    struct column *column;
};

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The range that is shown: all but the highest 2 %, if those lie far above the rest (a spike would press
 * everything else flat). */
static void choose_range(const struct history *h, double *low, double *high)
{
    double *top = malloc((h->count ? h->count : 1) * sizeof *top);
    size_t n = 0;
    *low = INFINITY;
    *high = -INFINITY;
    for (size_t i = 0; i < h->count; i++) {
        if (!h->point[i].finite)
            continue;
        *low = fmin(*low, h->point[i].min);
        *high = fmax(*high, h->point[i].max);
        if (top)
            top[n++] = h->point[i].max;
    }
    if (n >= 50) {
        qsort(top, n, sizeof *top, ascending);
        double most = top[n - 1 - n / 50];
        if (*high - *low > 4 * (most - *low) && most > *low)
            *high = most;
    }
    free(top);
    if (*high - *low < 1e-9 && n) { /* a flat line lies in the middle */
        *low -= 0.5;
        *high += 0.5;
    }
}

static void fill_columns(struct plot *p, const struct history *h, uint64_t steps)
{
    for (int x = 0; x < p->columns; x++)
        p->column[x] = (struct column){INFINITY, -INFINITY, false};
    for (size_t i = 0; i < h->count; i++) {
        const struct history_point *q = &h->point[i];
        int x = (int)((double)(q->first - 1) * p->columns / (double)steps);
        if (x < 0 || x >= p->columns)
            continue;
        p->column[x].nonfinite |= q->nonfinite > 0;
        p->column[x].min = fmin(p->column[x].min, q->min);
        p->column[x].max = fmax(p->column[x].max, q->max);
    }
}

/* Dot row of a value, 0 at the top. */
static int dot_of(const struct plot *p, double v)
{
    double y = (p->high - v) / (p->high - p->low) * (p->dots_high - 1);
    return y < 0 ? 0 : y > p->dots_high - 1 ? p->dots_high - 1 : (int)lround(y);
}

static bool dot_set(const struct plot *p, int x, int y)
{
    const struct column *k = &p->column[x];
    return k->min <= k->max && y >= dot_of(p, k->max) && y <= dot_of(p, k->min);
}

static void draw_cell(struct canvas *c, int row, int col, const struct plot *p, int x, int y, bool braille)
{
    /* dots of a braille cell, column by column from the top (Unicode 15, block 2800) */
    static const uint8_t bit[2][4] = {{0x01, 0x02, 0x04, 0x40}, {0x08, 0x10, 0x20, 0x80}};
    int wide = braille ? 2 : 1, high = braille ? 4 : 2;
    unsigned dots = 0;
    for (int dx = 0; dx < wide; dx++)
        for (int dy = 0; dy < high; dy++)
            if (dot_set(p, x * wide + dx, y * high + dy))
                dots |= bit[dx][dy];
    bool bad = false, above = false;
    for (int dx = 0; y == 0 && dx < wide; dx++) {
        bad |= p->column[x * wide + dx].nonfinite;
        above |= p->column[x * wide + dx].max > p->high;
    }
    if (bad)
        canvas_put(c, row + y, col + x, ROLE_BAD, 'N', 'N');
    else if (above)
        canvas_put(c, row + y, col + x, ROLE_WARN, '^', '^');
    else if (dots) /* two dots a letter: ' upper, . lower, | both */
        canvas_put(c, row + y, col + x, ROLE_CURVE, 0x2800 + dots, (dots & 3) == 3 ? '|' : dots & 1 ? '\'' : '.');
}

static const char *short_number(double v, char out[16])
{
    snprintf(out, 16, fabs(v) >= 1e4 || (v != 0 && fabs(v) < 1e-3) ? "%.1e" : "%.3f", v);
    return out;
}

static void draw_axes(struct canvas *c, int row, int col, int rows, int cols, const struct plot *p, uint64_t steps)
{
    char text[16];
    int high = rows - 2, wide = cols - LABEL - 1;
    for (int y = 0; y < high; y++) {
        if (y == 0 || y == high - 1 || (y == high / 2 && high >= 5))
            canvas_text(c, row + y, col, LABEL, ROLE_DIM, "%*s", LABEL,
                        short_number(p->high - (p->high - p->low) * y / (high > 1 ? high - 1 : 1), text));
        canvas_put(c, row + y, col + LABEL, ROLE_DIM, 0x2502, '|');
    }
    canvas_put(c, row + high, col + LABEL, ROLE_DIM, 0x2514, '+');
    for (int x = 0; x < wide; x++)
        canvas_put(c, row + high, col + LABEL + 1 + x, ROLE_DIM, 0x2500, '-');
    char last[24], middle[24];
    int n = snprintf(last, sizeof last, "%llu", (unsigned long long)steps);
    int m = snprintf(middle, sizeof middle, "%llu", (unsigned long long)(steps / 2));
    canvas_text(c, row + high + 1, col + LABEL + 1, 1, ROLE_DIM, "0");
    if (wide >= n + m + 12)
        canvas_text(c, row + high + 1, col + LABEL + 1 + wide / 2 - m / 2, m, ROLE_DIM, "%s", middle);
    if (wide >= n + 3)
        canvas_text(c, row + high + 1, col + cols - n, n, ROLE_DIM, "%s", last);
}

void chart_draw(struct canvas *c, int row, int col, int rows, int cols, const struct history *h, uint64_t steps)
{
    bool braille = !c->ascii;
    struct plot p = {.columns = (cols - LABEL - 1) * (braille ? 2 : 1), .dots_high = (rows - 2) * (braille ? 4 : 2)};
    if (rows < 3 || cols < LABEL + 8)
        return;
    choose_range(h, &p.low, &p.high);
    if (p.low > p.high) {
        canvas_text(c, row + rows / 2 - 1, col + LABEL + 1, cols - LABEL - 1, ROLE_DIM, "no step yet");
        return;
    }
    if (h->last_step > steps)
        steps = h->last_step;
    p.column = calloc((size_t)p.columns, sizeof *p.column);
    if (!p.column)
        return;
    fill_columns(&p, h, steps);
    draw_axes(c, row, col, rows, cols, &p, steps);
    for (int y = 0; y < rows - 2; y++)
        for (int x = 0; x < cols - LABEL - 1; x++)
            draw_cell(c, row, col + LABEL + 1, &p, x, y, braille);
    free(p.column);
}
