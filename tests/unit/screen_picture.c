/* screen_picture.c - SVG 1.1 (w3.org/TR/SVG11). A cell is 8 × 17 units; text in runs of one look, each stretched to its cells. */
#include "screen_picture.h"

#include <stdio.h>

#define WIDE 8
#define HIGH 17
#define MARGIN 8

/* The dark theme. */
static const char *const ink[ROLES] = {
    [ROLE_NORMAL] = "#d0d0d0", [ROLE_DIM] = "#7f9fa8", [ROLE_STRONG] = "#ffffff", [ROLE_TITLE] = "#16181d", [ROLE_CURSOR] = "#16181d",
    [ROLE_GOOD] = "#7ecb7e",   [ROLE_WARN] = "#e0c060", [ROLE_BAD] = "#f07070",   [ROLE_CURVE] = "#7ecb7e",
};
static const char *const paper[ROLES] = {[ROLE_TITLE] = "#d0d0d0", [ROLE_CURSOR] = "#d0d0d0"};

static const struct cell *cell_of(const struct canvas *c, int row, int col)
{
    return &c->cell[(size_t)row * (size_t)c->stride + (size_t)col];
}

static void put_character(FILE *f, uint32_t code)
{
    if (code == '&' || code == '<' || code == '>' || code == '"')
        fprintf(f, "&#%u;", code);
    else if (code < 0x80)
        fputc((int)code, f);
    else
        fprintf(f, "&#x%x;", code);
}

/* Braille: dots 1 2 3 7 left, 4 5 6 8 right, from the top (Unicode 2800). */
static void draw_braille(FILE *f, int x, int y, uint32_t dots, const char *colour)
{
    static const uint8_t bit[4][2] = {{0, 3}, {1, 4}, {2, 5}, {6, 7}};
    for (int r = 0; r < 4; r++)
        for (int k = 0; k < 2; k++)
            if (dots >> bit[r][k] & 1)
                fprintf(f, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"1.3\" fill=\"%s\"/>", x + 2.0 + k * 4.0, y + 2.5 + r * 4.0, colour);
}

/* Frames: which of up, right, down, left a character has; 0: it is none of them. */
static unsigned arms_of(uint32_t code)
{
    switch (code) {
    case 0x2500: return 2 | 8;
    case 0x2502: return 1 | 4;
    case 0x250c: return 2 | 4;
    case 0x2510: return 4 | 8;
    case 0x2514: return 1 | 2;
    case 0x2518: return 1 | 8;
    case 0x251c: return 1 | 2 | 4;
    case 0x2524: return 1 | 4 | 8;
    case 0x252c: return 2 | 4 | 8;
    case 0x2534: return 1 | 2 | 8;
    case 0x253c: return 1 | 2 | 4 | 8;
    default: return 0;
    }
}

static void draw_arms(FILE *f, int x, int y, unsigned arms, const char *colour)
{
    const double mx = x + WIDE / 2.0, my = y + HIGH / 2.0;
    fprintf(f, "<path stroke=\"%s\" fill=\"none\" d=\"", colour);
    if (arms & 1)
        fprintf(f, "M%.1f %.1fV%d", mx, my, y);
    if (arms & 2)
        fprintf(f, "M%.1f %.1fH%d", mx, my, x + WIDE);
    if (arms & 4)
        fprintf(f, "M%.1f %.1fV%d", mx, my, y + HIGH);
    if (arms & 8)
        fprintf(f, "M%.1f %.1fH%d", mx, my, x);
    fputs("\"/>", f);
}

/* Blocks of eighths: from below (2581 … 2588), from the left (2589 … 258f). */
static bool draw_block(FILE *f, int x, int y, uint32_t code, const char *colour)
{
    if (code >= 0x2581 && code <= 0x2588) {
        const double high = HIGH * (code - 0x2580) / 8.0;
        fprintf(f, "<rect x=\"%d\" y=\"%.1f\" width=\"%d\" height=\"%.1f\" fill=\"%s\"/>", x, y + HIGH - high, WIDE, high, colour);
    } else if (code >= 0x2589 && code <= 0x258f) {
        fprintf(f, "<rect x=\"%d\" y=\"%d\" width=\"%u\" height=\"%d\" fill=\"%s\"/>", x, y, 0x2590 - code, HIGH, colour);
    } else {
        return false;
    }
    return true;
}

static bool is_drawn(uint32_t code)
{
    return (code >= 0x2800 && code <= 0x28ff) || (code >= 0x2581 && code <= 0x258f) || arms_of(code) != 0;
}

static void draw_sign(FILE *f, int x, int y, const struct cell *cell)
{
    const char *colour = ink[cell->role];
    if (cell->code >= 0x2800 && cell->code <= 0x28ff)
        draw_braille(f, x, y, cell->code - 0x2800, colour);
    else if (!draw_block(f, x, y, cell->code, colour))
        draw_arms(f, x, y, arms_of(cell->code), colour);
}

/* Letters from `col` on that look alike and stand side by side, as one text; returns where they end. */
static int draw_run(FILE *f, const struct canvas *c, int row, int col)
{
    const struct cell *first = cell_of(c, row, col);
    int end = col, last = col;
    while (end < c->cols && cell_of(c, row, end)->role == first->role && !is_drawn(cell_of(c, row, end)->code)) {
        if (cell_of(c, row, end)->code != ' ')
            last = end + 1;
        else if (end - last >= 2)
            break; /* blanks part texts: each begins in its own column, whatever the font */
        end++;
    }
    if (last == col)
        return end > col ? end : col + 1;
    fprintf(f, "<text x=\"%d\" y=\"%d\" fill=\"%s\"%s textLength=\"%d\" lengthAdjust=\"spacingAndGlyphs\">", MARGIN + col * WIDE,
            MARGIN + row * HIGH + 13, ink[first->role],
            first->role == ROLE_STRONG || first->role == ROLE_BAD || first->role == ROLE_WARN ? " font-weight=\"bold\"" : "",
            (last - col) * WIDE);
    for (int k = col; k < last; k++)
        if (cell_of(c, row, k)->code)
            put_character(f, cell_of(c, row, k)->code);
    fputs("</text>\n", f);
    return last;
}

static void draw_row(FILE *f, const struct canvas *c, int row)
{
    for (int k = 0; k < c->cols;) { /* papers first: they lie under what is written */
        const char *p = paper[cell_of(c, row, k)->role];
        int end = k + 1;
        while (end < c->cols && paper[cell_of(c, row, end)->role] == p)
            end++;
        if (p)
            fprintf(f, "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"%s\"/>\n", MARGIN + k * WIDE, MARGIN + row * HIGH,
                    (end - k) * WIDE, HIGH, p);
        k = end;
    }
    bool drawn = false;
    for (int k = 0; k < c->cols;) {
        const struct cell *cell = cell_of(c, row, k);
        if (is_drawn(cell->code)) {
            draw_sign(f, MARGIN + k * WIDE, MARGIN + row * HIGH, cell);
            drawn = true;
            k++;
        } else {
            k = draw_run(f, c, row, k);
        }
    }
    if (drawn)
        fputc('\n', f);
}

char *screen_picture(const struct canvas *c)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *f = open_memstream(&text, &bytes);
    if (!f)
        return NULL;
    const int wide = c->cols * WIDE + 2 * MARGIN, high = c->rows * HIGH + 2 * MARGIN;
    fprintf(f, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" font-family=\"DejaVu Sans "
               "Mono,Menlo,Consolas,monospace\" font-size=\"13\" xml:space=\"preserve\">\n"
               "<rect width=\"%d\" height=\"%d\" rx=\"6\" fill=\"#16181d\"/>\n", wide, high, wide, high, wide, high);
    for (int r = 0; r < c->rows; r++)
        draw_row(f, c, r);
    fputs("</svg>\n", f);
    return fclose(f) ? NULL : text;
}
