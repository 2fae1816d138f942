/* layout.c */
#include "layout.h"

#define TROUBLE_ROWS 5  /* of the whole screen, from which on there is such a line */
#define LAST_ROWS 3
#define BESIDE_COLS 140
#define BESIDE_ROWS 20
#define LOG_ROWS 36
#define LOG_HIGH 8

/* The first line of a box as its head. */
static struct box take_head(struct box *b)
{
    const struct box head = {b->row, b->col, 1, b->cols};
    b->row++;
    b->rows--;
    return head;
}

struct layout layout_make(int rows, int cols, bool beside, bool left, bool log)
{
    struct layout l = {.trouble = rows >= TROUBLE_ROWS ? 1 : -1, .last = rows >= LAST_ROWS ? rows - 1 : -1};
    const int top = l.trouble < 0 ? 1 : 2, bottom = l.last < 0 ? rows : l.last;
    struct box *main = &l.box[PANE_MAIN], *other = &l.box[PANE_BESIDE], *below = &l.box[PANE_LOG];
    *main = (struct box){top, 0, bottom - top, cols};
    if (cols < BESIDE_COLS || rows < BESIDE_ROWS)
        return l;
    if (log && rows >= LOG_ROWS) {
        main->rows -= LOG_HIGH + 1;
        *below = (struct box){main->row + main->rows, 0, LOG_HIGH + 1, cols};
        l.head[PANE_LOG] = take_head(below);
    }
    if (beside) {
        const int third = cols / 3;
        *other = (struct box){main->row, left ? 0 : cols - third, main->rows, third};
        main->cols = cols - third - 1;
        main->col = left ? third + 1 : 0;
        l.rule = (struct box){main->row, left ? third : main->cols, main->rows, 1};
        l.head[PANE_BESIDE] = take_head(other);
    }
    if (beside || below->rows)
        l.head[PANE_MAIN] = take_head(main);
    return l;
}
