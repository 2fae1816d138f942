/* page.c */
#include "page.h"

#include "console/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST 4000  /* lines of a page */
#define TEXT 4096  /* bytes of what is added at once */

static void append(struct page *p, enum role role, int indent, const char *text, int bytes)
{
    if (p->count == p->room) {
        const int room = p->room ? p->room * 2 : 64;
        struct page_line *more = p->count < MOST ? realloc(p->line, (size_t)room * sizeof *more) : NULL;
        if (!more)
            return;
        p->line = more;
        p->room = room;
    }
    const size_t room = (size_t)indent + (size_t)bytes + 1;
    char *line = malloc(room);
    if (!line)
        return;
    snprintf(line, room, "%*s%.*s", indent, "", bytes, text);
    p->line[p->count++] = (struct page_line){role, line};
}

/* Bytes of `text` that fit into so many columns: up to a blank, if there is one far enough. */
static int fitting(const char *text, int cols)
{
    size_t left = strlen(text), at = 0, blank = 0;
    int width = 0;
    while (at < left) {
        unsigned code = '?';
        const size_t n = text_character(text + at, left - at, &code);
        width += text_columns(code);
        if (width > cols)
            break;
        blank = text[at] == ' ' ? at : blank;
        at += n ? n : 1;
    }
    if (at == left || text[at] == ' ' || blank <= at / 2)
        return (int)(at ? at : 1);
    return (int)blank;
}

void page_add(struct page *p, enum role role, int indent, const char *format, ...)
{
    char raw[TEXT], text[TEXT];
    va_list list;
    va_start(list, format);
    vsnprintf(raw, sizeof raw, format, list);
    va_end(list);
    text_clean(raw, strlen(raw), 0, text, sizeof text);
    if (indent >= p->cols - 8)
        indent = 0;
    const char *at = text;
    if (!*at)
        append(p, role, 0, "", 0);
    while (*at) {
        const int in = at == text ? 0 : indent, n = fitting(at, p->cols - in);
        append(p, role, in, at, n);
        at += n;
        at += *at == ' ';
    }
}

int page_draw(const struct page *p, struct canvas *c, int top)
{
    const int last = p->count > c->rows ? p->count - c->rows : 0;
    top = top > last ? last : top < 0 ? 0 : top;
    for (int i = 0; i < c->rows && top + i < p->count; i++)
        canvas_text(c, i, 0, 0, p->line[top + i].role, "%s", p->line[top + i].text);
    return top;
}

void page_free(struct page *p)
{
    for (int i = 0; i < p->count; i++)
        free(p->line[i].text);
    free(p->line);
    *p = (struct page){.cols = p->cols};
}
