/* layout.h - which parts of the screen stand where at a size. Pure: of numbers alone. As the screen shrinks they go in this
 * order: the log, the neighbour, (within the job's view) the second chart, the line of the worst thing, the last line. */
#ifndef KC_CONSOLE_SCREEN_LAYOUT_H
#define KC_CONSOLE_SCREEN_LAYOUT_H

#include <stdbool.h>

enum pane { PANE_MAIN, PANE_BESIDE, PANE_LOG, PANES };

struct box {
    int row, col, rows, cols; /* rows 0: it is not there */
};

struct layout {
    struct box box[PANES];    /* the main one is there wherever there is a second line */
    struct box head[PANES];   /* one line over each, where there is more than one */
    struct box rule;          /* between neighbours */
    int trouble, last;        /* rows of the line of the worst thing and of the last line; -1: there is none */
};

/* rows, cols >= 1. What is wanted: a neighbour, on the left (a list that one came from: a third) or on the right (what the list
 * leads to), and the log below. */
struct layout layout_make(int rows, int cols, bool beside, bool left, bool log);

#endif
