/* list.h - rows one can walk through: every view that lists draws and moves with this. Rows come from a source, which is
 * looked at anew each time; where the person is in them (struct list) holds by what a row is called, never by its number:
 * the cursor stays on its object, wherever that goes, and the order stands still while the cursor has just moved. Pure. */
#ifndef KC_CONSOLE_SCREEN_LIST_H
#define KC_CONSOLE_SCREEN_LIST_H

#include "canvas.h"
#include "keys.h"

#include "base/error.h"
#include "console/filter.h"

#define LIST_ID 96
#define LIST_MARKS 64    /* rows that can be marked at once */
#define LIST_ORDER 1024  /* rows whose order can stand still */
#define LIST_STILL UINT64_C(5000000000) /* ns after a move of the cursor for which it does */

struct list_cell {
    char text[160];
    char value[64];  /* what is compared and sorted by instead of the text; "": the text */
    double number;   /* and by this before any text; NaN: it has none */
    enum role role;
    bool unknown;    /* sorts last, and holds no comparison */
};

/* In the order in which they are shown, and kept as the room narrows. */
struct list_column {
    const char *head, *key; /* key: what it is called in the verb's JSON, and in a filter */
    int width;              /* columns, or one of the macros below; 0: LIST_REST(10) */
    bool right;
};
/* As wide as its longest text where there is room; what is too long is cut in its middle: its end tells it apart. */
#define LIST_BETWEEN(least, most) ((least) | (most) << 10)
/* What is left by the others, `least` at least. One of a list. */
#define LIST_REST(least) ((least) | 1023 << 10)
#define LIST_COLUMNS 32

struct list_source {
    const void *self;
    size_t rows;
    const struct list_column *column;
    int columns;
    void (*id)(const void *self, size_t row, char out[LIST_ID]); /* what the cursor stays on */
    /* *out comes without texts, number NaN, role normal. */
    void (*cell)(const void *self, size_t row, int column, struct list_cell *out);
};

/* All zero: at the first row, nothing sorted, filtered or marked. */
struct list {
    char cursor[LIST_ID]; /* the row it is on; "": the first */
    int first;            /* line of the canvas on which rows began when they were last drawn */
    size_t at, top, page; /* its place among the rows shown, the place of the first on the screen, how many fit there */
    int sort;             /* 1 + column; 0: as the source has them */
    bool invert;
    bool filtered;
    char wanted[256];     /* the filter as it was typed: in force, or (for n N) the last that was */
    struct filter filter;
    char mark[LIST_MARKS][LIST_ID];
    size_t marks;
    uint64_t moved, now;  /* when the cursor was last moved, 0: never; when it was last looked at */
    uint64_t order[LIST_ORDER]; /* digests of ids as they stood */
    size_t ordered;
};

/* What is filtered and marked (only then), heads, rows; '>' before the row under the cursor, '*' before marked ones. Of a
 * source without rows nothing: the view says why. */
void list_draw(struct list *l, const struct list_source *s, struct canvas *c, uint64_t now);
/* Takes keys that move, sort, jump and mark; what is to be said goes to `notice`. false: not a key of lists. */
bool list_key(struct list *l, const struct list_source *s, enum key_id key, uint64_t now, char *notice, size_t room);
/* Show only rows for which `text` holds (filter.h, over cells by the column's key; a word alone is looked for in all cells);
 * "": all. -EINVAL: e says what is wrong with it, and the one before stays. */
int list_filter(struct list *l, const struct list_source *s, const char *text, struct kc_error *e);
/* The row under the cursor; SIZE_MAX: none. */
size_t list_row(struct list *l, const struct list_source *s);
bool list_marked(const struct list *l, const char *id);
/* Does the filter, if one is in force, leave that row? */
bool list_shows(const struct list *l, const struct list_source *s, size_t row);
/* How many columns fit. */
int list_columns_shown(const struct list_source *s, int cols);
/* The line of list_draw() about what is filtered and marked, `count` rows of it shown; false: nothing is, nothing is drawn. */
bool list_draw_hidden(const struct list *l, const struct list_source *s, struct canvas *c, size_t count);

#endif
