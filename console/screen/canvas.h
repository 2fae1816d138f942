/* canvas.h - a screen as cells in memory. Views draw here, as pure functions of what they show and of its size;
 * the terminal gets it afterwards (terminal.h), and tests read it. All text passes the one door for foreign text
 * (console/text.h). */
#ifndef KC_CONSOLE_SCREEN_CANVAS_H
#define KC_CONSOLE_SCREEN_CANVAS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What a cell means; the terminal decides how it looks, and nothing is said by colour alone. */
enum role {
    ROLE_NORMAL,
    ROLE_DIM,
    ROLE_STRONG,
    ROLE_TITLE,
    ROLE_CURSOR,
    ROLE_GOOD,
    ROLE_WARN,
    ROLE_BAD,
    ROLE_CURVE,
    ROLES
};

struct cell {
    uint32_t code;  /* 0: the right half of a wide character */
    uint8_t role;
    bool written;
};

struct canvas {
    int rows, cols, stride; /* stride: cells from one row to the next */
    bool ascii;     /* the terminal can show nothing else */
    bool blocks;    /* its font has no braille: half blocks stand for it */
    struct cell *cell;
    int overlaps;   /* cells that were written twice: always a bug of a view */
    int cursor_row, cursor_col; /* where the terminal's cursor belongs; -1: nowhere */
    struct canvas *whole;       /* of a part: what it is a part of, whose cells it draws on; else NULL */
    int at_row, at_col;         /* and where in it */
};

/* rows, cols ≥ 1. -ENOMEM. */
int canvas_new(struct canvas *c, int rows, int cols, bool ascii);
void canvas_free(struct canvas *c);
/* A part of a canvas as a canvas of its own: what draws there begins at (0, 0) and cannot leave it. What lies outside the whole
 * is cut off; at least 1×1 must be left. Owns nothing. */
struct canvas canvas_part(struct canvas *whole, int row, int col, int rows, int cols);
/* Where the terminal's cursor belongs, in the canvas that `c` is, or is a part of. */
void canvas_cursor(struct canvas *c, int row, int col);
/* Blank again. */
void canvas_clear(struct canvas *c);

/* Write at most `width` columns (0: to the end of the row); what lies outside is cut off. Returns the columns
 * taken. */
int canvas_text(struct canvas *c, int row, int col, int width, enum role role, const char *format, ...)
    __attribute__((format(printf, 6, 7)));
/* The same to the end of the row, and a sign in its last column where that cuts it. */
void canvas_line(struct canvas *c, int row, int col, enum role role, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
/* As canvas_text(), blanks up to the full width: for bars. */
void canvas_bar(struct canvas *c, int row, int col, int width, enum role role, const char *format, ...)
    __attribute__((format(printf, 6, 7)));
/* One character. In ASCII mode `plain` instead. */
void canvas_put(struct canvas *c, int row, int col, enum role role, uint32_t code, char plain);
/* Take a region back to blank, so that something may be drawn over it (menus). */
void canvas_erase(struct canvas *c, int row, int col, int rows, int cols);

/* The screen as lines of UTF-8 without blanks at their ends: for tests, and for reading. Owned by the caller. */
char *canvas_dump(const struct canvas *c);

#endif
