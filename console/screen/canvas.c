/* canvas.c */
#include "canvas.h"

#include "console/text.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int canvas_new(struct canvas *c, int rows, int cols, bool ascii)
{
    struct cell *cell = calloc((size_t)rows * (size_t)cols, sizeof *cell);
    if (!cell)
        return -ENOMEM;
    *c = (struct canvas){.rows = rows, .cols = cols, .stride = cols, .ascii = ascii, .cell = cell};
    canvas_clear(c);
    return 0;
}

void canvas_free(struct canvas *c)
{
    free(c->cell);
    memset(c, 0, sizeof *c);
}

struct canvas canvas_part(struct canvas *whole, int row, int col, int rows, int cols)
{
    rows = rows < whole->rows - row ? rows : whole->rows - row;
    cols = cols < whole->cols - col ? cols : whole->cols - col;
    return (struct canvas){.rows = rows, .cols = cols, .stride = whole->stride, .ascii = whole->ascii,
                           .blocks = whole->blocks,
                           .cell = whole->cell + (size_t)row * (size_t)whole->stride + (size_t)col,
                           .cursor_row = -1, .cursor_col = -1, .whole = whole, .at_row = row, .at_col = col};
}

void canvas_cursor(struct canvas *c, int row, int col)
{
    c->cursor_row = row;
    c->cursor_col = col;
    if (c->whole)
        canvas_cursor(c->whole, c->at_row + row, c->at_col + col);
}

static struct cell *cell_at(struct canvas *c, int row, int col)
{
    return &c->cell[(size_t)row * (size_t)c->stride + (size_t)col];
}

void canvas_clear(struct canvas *c)
{
    c->overlaps = 0;
    c->cursor_row = c->cursor_col = -1;
    canvas_erase(c, 0, 0, c->rows, c->cols);
}

void canvas_erase(struct canvas *c, int row, int col, int rows, int cols)
{
    for (int r = row < 0 ? 0 : row; r < row + rows && r < c->rows; r++)
        for (int k = col < 0 ? 0 : col; k < col + cols && k < c->cols; k++)
            *cell_at(c, r, k) = (struct cell){' ', ROLE_NORMAL, false};
}

/* A braille letter as blocks: its upper four dots, its lower four. */
static uint32_t block_of(uint32_t code)
{
    static const uint32_t block[4] = {' ', 0x2580, 0x2584, 0x2588};
    return code < 0x2800 || code > 0x28ff ? code : block[((code & 0x1b) != 0) | ((code & 0xe4) != 0) << 1];
}

static void set(struct canvas *c, int row, int col, enum role role, uint32_t code)
{
    if (row < 0 || row >= c->rows || col < 0 || col >= c->cols)
        return;
    struct cell *cell = cell_at(c, row, col);
    for (struct canvas *p = c; cell->written && p; p = p->whole)
        p->overlaps++;
    *cell = (struct cell){c->blocks ? block_of(code) : code, (uint8_t)role, true};
}

void canvas_put(struct canvas *c, int row, int col, enum role role, uint32_t code, char plain)
{
    set(c, row, col, role, c->ascii ? (uint32_t)plain : code);
}

/* Clean UTF-8 into cells. What ASCII cannot say is '?', one a column, so that columns stay where they are.
 * Combining marks are left out: they have no column of their own. */
static int put_text(struct canvas *c, int row, int col, int width, enum role role, const char *text)
{
    int at = 0;
    size_t left = strlen(text);
    if (width <= 0 || width > c->cols - col)
        width = c->cols - col;
    while (left) {
        unsigned code = '?';
        size_t n = text_character(text, left, &code);
        int columns = text_columns(code);
        text += n ? n : 1;
        left -= n ? n : 1;
        if (columns == 0)
            continue;
        if (at + columns > width)
            break;
        if (c->ascii && code > 0x7e) {
            for (int i = 0; i < columns; i++)
                set(c, row, col + at + i, role, code == 0xd7 ? 'x' : '?'); /* ×: "2 ranks × 1 core" */
        } else {
            set(c, row, col + at, role, code);
            if (columns == 2)
                set(c, row, col + at + 1, role, 0);
        }
        at += columns;
    }
    return at;
}

static int draw(struct canvas *c, int row, int col, int width, enum role role, const char *format, va_list list)
{
    char text[2048], safe[4096];
    vsnprintf(text, sizeof text, format, list);
    text_clean(text, strlen(text), 0, safe, sizeof safe);
    return col < 0 || col >= c->cols ? 0 : put_text(c, row, col, width, role, safe);
}

int canvas_text(struct canvas *c, int row, int col, int width, enum role role, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    int n = draw(c, row, col, width, role, format, list);
    va_end(list);
    return n;
}

void canvas_bar(struct canvas *c, int row, int col, int width, enum role role, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    int n = draw(c, row, col, width, role, format, list);
    va_end(list);
    if (width <= 0)
        width = c->cols - col;
    for (; n < width; n++)
        set(c, row, col + n, role, ' ');
}

void canvas_line(struct canvas *c, int row, int col, enum role role, const char *format, ...)
{
    char text[2048], safe[4096];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    text_clean(text, strlen(text), 0, safe, sizeof safe);
    const int room = c->cols - col;
    if (col < 0 || room <= 0)
        return;
    if (room == 1 || text_width(safe) <= room)
        put_text(c, row, col, room, role, safe);
    else
        canvas_put(c, row, col + put_text(c, row, col, room - 1, role, safe), role, 0x2026, '~');
}

static size_t encode(uint32_t code, char out[4])
{
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    if (code < 0x800) {
        out[0] = (char)(0xc0 | code >> 6);
        out[1] = (char)(0x80 | (code & 0x3f));
        return 2;
    }
    if (code < 0x10000) {
        out[0] = (char)(0xe0 | code >> 12);
        out[1] = (char)(0x80 | (code >> 6 & 0x3f));
        out[2] = (char)(0x80 | (code & 0x3f));
        return 3;
    }
    out[0] = (char)(0xf0 | code >> 18);
    out[1] = (char)(0x80 | (code >> 12 & 0x3f));
    out[2] = (char)(0x80 | (code >> 6 & 0x3f));
    out[3] = (char)(0x80 | (code & 0x3f));
    return 4;
}

char *canvas_dump(const struct canvas *c)
{
    char *out = malloc((size_t)c->rows * ((size_t)c->cols * 4 + 1) + 1), *at = out;
    for (int r = 0; out && r < c->rows; r++) {
        char *end = at;
        for (int k = 0; k < c->cols; k++) {
            const struct cell *cell = &c->cell[(size_t)r * (size_t)c->stride + (size_t)k];
            if (cell->code)
                at += encode(cell->code, at);
            if (cell->code && cell->code != ' ')
                end = at;
        }
        at = end;
        *at++ = '\n';
    }
    if (out)
        *at = 0;
    return out;
}
