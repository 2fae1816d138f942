/* list_draw.c - a list on a canvas: what fits, heads, rows. */
#include "list_impl.h"

#include "console/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Columns as they fit a width. */
struct fitted {
    int count, width[LIST_COLUMNS];
};

static int least_width(const struct list_column *column)
{
    return (column->width ? column->width : LIST_REST(10)) & 1023;
}

static bool is_rest(const struct list_column *column)
{
    return !column->width || column->width >> 10 == 1023;
}

/* May it grow; by so much at most. */
static int may_grow(const struct list_column *column)
{
    const int most = column->width >> 10;
    return most && !is_rest(column) ? most - least_width(column) : 0;
}

/* How many columns fit; *left: what is then free. */
static int count_columns(const struct list_source *s, int cols, int *left)
{
    int at = 2, k = 0;
    for (; k < s->columns && k < LIST_COLUMNS && (k == 0 || at + least_width(&s->column[k]) <= cols); k++)
        at += least_width(&s->column[k]) + 1;
    *left = cols - at + 1 > 0 ? cols - at + 1 : 0;
    return k;
}

int list_columns_shown(const struct list_source *s, int cols)
{
    int left;
    return count_columns(s, cols, &left);
}

static int longest(const struct list_source *s, int column)
{
    int most = 0;
    for (size_t i = 0; i < s->rows; i++) {
        const struct list_cell cell = list_cell_of(s, i, column);
        const int wide = text_width(cell.text);
        most = wide > most ? wide : most;
    }
    return most;
}

static struct fitted fit(const struct list_source *s, int cols)
{
    int left;
    struct fitted f = {.count = count_columns(s, cols, &left)};
    for (int k = 0; k < f.count; k++) {
        const struct list_column *column = &s->column[k];
        const int most = may_grow(column);
        int more = left && most ? longest(s, k) - least_width(column) : 0;
        more = more > most ? most : more;
        more = more < 0 ? 0 : more > left ? left : more;
        f.width[k] = least_width(column) + more;
        left -= more;
    }
    for (int k = 0; k < f.count; k++)
        if (is_rest(&s->column[k])) {
            f.width[k] += left;
            left = 0;
        }
    if (f.count == 1 && f.width[0] > cols - 2) /* a window narrower than the first column */
        f.width[0] = cols > 2 ? cols - 2 : 0;
    return f;
}

/* Past the columns of a clean text that do not fit `width`. */
static const char *last_columns(const char *text, int width)
{
    int wide = text_width(text);
    while (wide > width) {
        unsigned code = 0;
        const size_t n = text_character(text, strlen(text), &code);
        text += n ? n : 1;
        wide -= text_columns(code);
    }
    return text;
}

/* What is too long has a sign where it is cut, since a number cut short is another number. */
static void put_cut(struct canvas *c, int row, int col, int width, bool middle, enum role role, const char *text)
{
    const int end = middle && width > 4 ? (width - 1) / 2 : 0;
    const int n = canvas_text(c, row, col, width - 1 - end, role, "%s", text);
    canvas_put(c, row, col + n, role, 0x2026, '~');
    if (end)
        canvas_text(c, row, col + n + 1, end, role, "%s", last_columns(text, end));
}

static void put_cell(struct canvas *c, int row, int col, int width, const struct list_column *column, enum role role,
                     const char *text)
{
    char safe[sizeof ((struct list_cell *)0)->text * 4];
    text_clean(text, strlen(text), 0, safe, sizeof safe);
    const int wide = text_width(safe), pad = column->right && wide < width ? width - wide : 0;
    if (width <= 0)
        return;
    if (wide > width && width > 1) {
        put_cut(c, row, col, width, may_grow(column) > 0, role, safe);
        return;
    }
    if (role != ROLE_CURSOR) {
        canvas_text(c, row, col + pad, width - pad, role, "%s", safe);
        return;
    }
    if (pad)
        canvas_bar(c, row, col, pad, role, "%s", "");
    if (width > pad)
        canvas_bar(c, row, col + pad, width - pad, role, "%s", safe);
}

static void draw_row(const struct list *l, const struct list_source *s, const struct fitted *f, struct canvas *c, int y,
                     size_t row, bool cursor)
{
    int at = 2;
    char id[LIST_ID] = "";
    s->id(s->self, row, id);
    if (cursor)
        canvas_text(c, y, 0, 1, ROLE_CURSOR, ">"); /* seen without colour and without reverse */
    if (list_marked(l, id))
        canvas_put(c, y, 1, ROLE_STRONG, '*', '*');
    for (int k = 0; k < f->count; k++) {
        const struct list_cell cell = list_cell_of(s, row, k);
        put_cell(c, y, at, f->width[k], &s->column[k], cursor ? ROLE_CURSOR : cell.role, cell.text);
        at += f->width[k] + 1;
        if (cursor && k + 1 < f->count)
            canvas_put(c, y, at - 1, ROLE_CURSOR, ' ', ' ');
    }
}

/* The sorted column's name has an arrow where a blank would stand beside it: down for the largest first. */
static void draw_heads(const struct list *l, const struct list_source *s, const struct fitted *f, struct canvas *c, int y)
{
    int at = 2, end = 2;
    for (int k = 0; k < f->count; k++) {
        const struct list_column *column = &s->column[k];
        int wide = text_width(column->head);
        wide = wide < f->width[k] ? wide : f->width[k];
        const int from = column->right ? at + f->width[k] - wide : at;
        const bool sorted = l->sort == k + 1, down = column->right != l->invert;
        if (wide > 0)
            canvas_text(c, y, from, wide, sorted ? ROLE_STRONG : ROLE_DIM, "%s", column->head);
        if (sorted)
            canvas_put(c, y, column->right ? from - 1 : from + wide, ROLE_STRONG, down ? 0x2193 : 0x2191, down ? 'v' : '^');
        end = from + wide + (sorted && !column->right);
        at += f->width[k] + 1;
    }
    const int more = s->columns - f->count; /* there is more in a wider window */
    if (more > 0 && c->cols - end >= 4)
        canvas_text(c, y, c->cols - 2 - (more > 9), 0, ROLE_DIM, "+%d", more);
}

/* A list that hides rows says so. */
bool list_draw_hidden(const struct list *l, const struct list_source *s, struct canvas *c, size_t count)
{
    int at = 2;
    if (l->filtered)
        at += canvas_text(c, 0, at, 0, ROLE_STRONG, "/%s", l->wanted) + 2;
    if (l->filtered)
        at += canvas_text(c, 0, at, 0, ROLE_DIM, "%zu of %zu", count, s->rows) + 2;
    if (l->marks)
        canvas_text(c, 0, at, 0, ROLE_STRONG, "%zu marked", l->marks);
    return l->filtered || l->marks;
}

static void scroll(struct list *l, const struct shown *shown, int rows)
{
    const size_t page = (size_t)rows;
    l->page = page;
    if (shown->cursor < l->top)
        l->top = shown->cursor;
    if (shown->cursor >= l->top + page)
        l->top = shown->cursor - page + 1;
    if (l->top + page > shown->count)
        l->top = shown->count > page ? shown->count - page : 0;
}

void list_draw(struct list *l, const struct list_source *s, struct canvas *c, uint64_t now)
{
    struct shown shown;
    int y = 0;
    l->now = now;
    if (s->rows == 0)
        return;
    if (list_look(l, s, &shown) < 0) {
        canvas_text(c, 0, 2, 0, ROLE_BAD, "no memory for the order of %zu rows", s->rows);
        return;
    }
    const struct fitted f = fit(s, c->cols);
    if (c->rows >= 2 && list_draw_hidden(l, s, c, shown.count))
        y++;
    if (c->rows - y >= 4) /* heads only where there is room for more than them */
        draw_heads(l, s, &f, c, y++);
    l->first = y;
    if (shown.count)
        scroll(l, &shown, c->rows - y);
    else
        canvas_text(c, y, 2, 0, ROLE_NORMAL, "The filter leaves no row; Esc shows all.");
    for (size_t i = l->top; i < shown.count && y < c->rows; i++, y++)
        draw_row(l, s, &f, c, y, shown.row[i], i == shown.cursor);
    free(shown.row);
}
