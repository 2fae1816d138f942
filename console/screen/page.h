/* page.h - lines of text that are made while drawing: longer than the screen they are scrolled, wider they are wrapped. */
#ifndef KC_CONSOLE_SCREEN_PAGE_H
#define KC_CONSOLE_SCREEN_PAGE_H

#include "canvas.h"

struct page {
    int cols;      /* lines are wrapped there; at least 1 */
    struct page_line {
        enum role role;
        char *text;
    } *line;
    int count, room;
};

/* One line, or several: what does not fit goes on below, `indent` columns in. A page that finds no memory ends there. */
void page_add(struct page *p, enum role role, int indent, const char *format, ...) __attribute__((format(printf, 4, 5)));
/* As many lines from `top` on as there are rows; returns the top that it took: less than was asked at the end. */
int page_draw(const struct page *p, struct canvas *c, int top);
void page_free(struct page *p);

#endif
