/* typing.c - a line being typed: a statement, what to find, the answer to a question. */
#include "view.h"

#include "console/text.h"

#include <ncurses.h>
#include <stdio.h>
#include <string.h>

enum { CTRL_A = 1, CTRL_B = 2, CTRL_D = 4, CTRL_E = 5, CTRL_F = 6, CTRL_K = 11, CTRL_U = 21, CTRL_W = 23 };

void typing_set(struct view *v, const char *text)
{
    snprintf(v->line, sizeof v->line, "%s", text);
    v->line_at = strlen(v->line);
}

/* ---- letters --------------------------------------------------------------------------------------------------- */

/* Where the letter before `at`, or the one behind it, begins and ends. */
static size_t before(const struct view *v, size_t at)
{
    while (at && (v->line[--at] & 0xc0) == 0x80)
        ;
    return at;
}

static size_t behind(const struct view *v, size_t at)
{
    if (v->line[at])
        at++;
    while ((v->line[at] & 0xc0) == 0x80)
        at++;
    return at;
}

static void cut(struct view *v, size_t from, size_t to)
{
    memmove(v->line + from, v->line + to, strlen(v->line + to) + 1);
    v->line_at = from;
}

static void put(struct view *v, const char *bytes, size_t n)
{
    const size_t length = strlen(v->line);
    if (length + n >= sizeof v->line)
        return;
    memmove(v->line + v->line_at + n, v->line + v->line_at, length - v->line_at + 1);
    memcpy(v->line + v->line_at, bytes, n);
    v->line_at += n;
}

static void put_letter(struct view *v, int code)
{
    char bytes[4] = "";
    size_t n = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    static const unsigned char lead[5] = {0, 0, 0xc0, 0xe0, 0xf0};
    if (code < 0x20 || code == 0x7f || (code >= 0x80 && code < 0xa0))
        return;
    for (size_t i = n - 1; n > 1 && i > 0; i--, code >>= 6)
        bytes[i] = (char)(0x80 | (code & 0x3f));
    bytes[0] = (char)(n == 1 ? code : lead[n] | code);
    put(v, bytes, n);
}

/* Blanks before the cursor, and the word before them. */
static size_t word_before(const struct view *v)
{
    size_t at = v->line_at;
    while (at && v->line[at - 1] == ' ')
        at--;
    while (at && v->line[at - 1] != ' ')
        at--;
    return at;
}

static bool is_rub(int code, bool character)
{
    return (character && (code == 8 || code == 127)) || (!character && code == KEY_BACKSPACE);
}

/* Keys that move or cut; false: another one. */
static bool edit_key(struct view *v, int code)
{
    switch (code) {
    case KEY_LEFT: case CTRL_B: v->line_at = before(v, v->line_at); break;
    case KEY_RIGHT: case CTRL_F: v->line_at = behind(v, v->line_at); break;
    case KEY_HOME: case CTRL_A: v->line_at = 0; break;
    case KEY_END: case CTRL_E: v->line_at = strlen(v->line); break;
    case KEY_DC: case CTRL_D: cut(v, v->line_at, behind(v, v->line_at)); break;
    case CTRL_W: cut(v, word_before(v), v->line_at); break;
    case CTRL_U: cut(v, 0, v->line_at); break;
    case CTRL_K: v->line[v->line_at] = 0; break;
    default: return false;
    }
    return true;
}

void typing_edit(struct view *v, int code, bool character)
{
    if (is_rub(code, character))
        cut(v, before(v, v->line_at), v->line_at);
    else if ((!character || code < 0x20) && edit_key(v, code)) /* letters beyond ASCII have the numbers of ncurses's keys */
        return;
    else if (character)
        put_letter(v, code);
}

bool typing_is_enter(int code, bool character)
{
    return code == '\r' || code == '\n' || (!character && code == KEY_ENTER);
}

/* ---- what was typed before ------------------------------------------------------------------------------------- */

void typing_remember(struct view *v)
{
    if (v->past_count && !strcmp(v->past[v->past_count - 1], v->line))
        return;
    if (v->past_count == LINE_HISTORY)
        memmove(v->past[0], v->past[1], sizeof v->past[0] * (size_t)--v->past_count);
    memcpy(v->past[v->past_count++], v->line, sizeof v->line);
}

/* To the one before, or after, that begins as what was typed; beyond the last is what was typed. */
static void recall(struct view *v, int by)
{
    int at = v->past_at;
    if (at == v->past_count)
        memcpy(v->typed, v->line, sizeof v->typed);
    do
        at += by;
    while (at >= 0 && at < v->past_count && strncmp(v->past[at], v->typed, strlen(v->typed)));
    if (at < 0 || at > v->past_count)
        return;
    v->past_at = at;
    typing_set(v, at < v->past_count ? v->past[at] : v->typed);
}

/* ---- Tab ------------------------------------------------------------------------------------------------------- */

/* Put `n` letters of a word where the one that was begun stands. */
static void become(struct view *v, const char *word, size_t n)
{
    cut(v, v->tab.c.from, v->line_at);
    put(v, word, n);
}

/* Names of what is compared, where the rows of a view are filtered. */
static void complete_find(struct view *v)
{
    struct list_source s;
    struct completion *c = &v->tab.c;
    char begun[LINE_ROOM];
    size_t from = v->line_at;
    while (from && v->line[from - 1] != ' ')
        from--;
    c->from = from;
    c->count = 0;
    c->more = false;
    snprintf(begun, sizeof begun, "%.*s", (int)(v->line_at - from), v->line + from);
    const enum view_id at = view_active(v);
    if (view_kinds[at].source && view_kinds[at].source(v, &s))
        for (int i = 0; i < s.columns; i++)
            complete_add(c, begun, s.column[i].key);
}

/* The first Tab goes as far as all words are the same, further ones from word to word. */
static void tab(struct view *v)
{
    struct completion *c = &v->tab.c;
    if (v->tab.shown && c->count > 1) {
        v->tab.at = (v->tab.at + 1) % c->count;
        become(v, c->word[v->tab.at], strlen(c->word[v->tab.at]));
        return;
    }
    if (v->mode == MODE_FIND)
        complete_find(v);
    else
        complete_line(v->line, v->line_at, v->model, c);
    v->tab.at = -1;
    v->tab.shown = true;
    if (c->count == 0)
        return;
    become(v, c->word[0], complete_shared(c));
    if (c->count == 1 && v->mode == MODE_LINE && v->line_at && v->line[v->line_at - 1] != '/')
        put(v, " ", 1);
}

void typing_draw_tab(struct view *v, struct canvas *c, int row)
{
    const struct completion *w = &v->tab.c;
    int col = 1, first = 0;
    canvas_erase(c, row, 0, 1, c->cols);
    if (w->count == 0)
        canvas_text(c, row, 1, 0, ROLE_WARN, "nothing known begins so");
    for (int i = 0, wide = 0; i <= v->tab.at; i++) { /* the one that was taken is seen */
        wide += text_width(w->word[i]) + 2;
        while (wide > c->cols - 2 && first < i)
            wide -= text_width(w->word[first++]) + 2;
    }
    for (int i = first; i < w->count && col < c->cols - 2; i++)
        col += canvas_text(c, row, col, c->cols - col - 1, i == v->tab.at ? ROLE_CURSOR : ROLE_DIM, "%s", w->word[i]) + 2;
    if (w->more && col < c->cols - 4)
        canvas_text(c, row, col, 0, ROLE_DIM, "...");
}

/* ---- the line -------------------------------------------------------------------------------------------------- */

void typing_begin(struct view *v, enum view_mode mode)
{
    v->mode = mode;
    v->past_at = v->past_count;
    v->tab.shown = false;
    typing_set(v, "");
}

static bool leaves(const struct view *v, int code, bool character)
{
    return code == 27 || (!*v->line && is_rub(code, character));
}

enum view_request typing_key(struct view *v, int code, bool character)
{
    const bool enter = typing_is_enter(code, character);
    if (code == '\t') {
        tab(v);
        return REQUEST_NONE;
    }
    v->tab.shown = false;
    if (enter && *v->line)
        return actions_run(v);
    if (enter || leaves(v, code, character))
        v->mode = MODE_NORMAL;
    else if (!character && (code == KEY_UP || code == KEY_DOWN))
        recall(v, code == KEY_UP ? -1 : 1);
    else
        typing_edit(v, code, character);
    return REQUEST_NONE;
}

bool typing_find_key(struct view *v, int code, bool character)
{
    const bool enter = typing_is_enter(code, character);
    if (code == '\t') {
        tab(v);
        return false;
    }
    v->tab.shown = false;
    if (enter || leaves(v, code, character))
        v->mode = MODE_NORMAL;
    else
        typing_edit(v, code, character);
    return enter;
}

void typing_draw(struct view *v, struct canvas *c, int row, int col, int width, const char *prompt)
{
    const int room = width - text_width(prompt) - 1; /* the cursor stands behind the last letter */
    char head[LINE_ROOM];
    size_t from = 0;
    snprintf(head, sizeof head, "%.*s", (int)v->line_at, v->line);
    while (head[from] && text_width(head + from) > room)
        from = behind(v, from);
    int at = col + canvas_text(c, row, col, width, ROLE_STRONG, "%s", prompt);
    if (v->line[from])
        canvas_text(c, row, at, width - (at - col), ROLE_NORMAL, "%s", v->line + from);
    at += text_width(head + from);
    canvas_cursor(c, row, at < col + width ? at : col + width - 1);
}
