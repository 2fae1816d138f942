/* typing.c - a line being typed: a statement, what to find, the answer to a question. */
#include "view.h"

#include <ncurses.h>
#include <stdio.h>
#include <string.h>

void typing_set(struct view *v, const char *text)
{
    snprintf(v->line, sizeof v->line, "%s", text);
    v->line_at = strlen(v->line);
}

static void line_put(struct view *v, int code)
{
    char bytes[5] = "";
    size_t n = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    static const unsigned char lead[5] = {0, 0, 0xc0, 0xe0, 0xf0};
    if (code < 0x20 || code == 0x7f || (code >= 0x80 && code < 0xa0) || v->line_at + n >= sizeof v->line)
        return;
    for (size_t i = n - 1; n > 1 && i > 0; i--, code >>= 6)
        bytes[i] = (char)(0x80 | (code & 0x3f));
    bytes[0] = (char)(n == 1 ? code : lead[n] | code);
    memcpy(v->line + v->line_at, bytes, n + 1);
    v->line_at += n;
}

static void line_rub(struct view *v)
{
    while (v->line_at && (v->line[v->line_at - 1] & 0xc0) == 0x80)
        v->line_at--;
    if (v->line_at)
        v->line_at--;
    v->line[v->line_at] = 0;
}

void typing_remember(struct view *v)
{
    if (v->past_count && !strcmp(v->past[v->past_count - 1], v->line))
        return;
    if (v->past_count == LINE_HISTORY)
        memmove(v->past[0], v->past[1], sizeof v->past[0] * (size_t)--v->past_count);
    memcpy(v->past[v->past_count++], v->line, sizeof v->line);
}

void typing_edit(struct view *v, int code, bool character)
{
    if (code == 8 || code == 127 || (!character && code == KEY_BACKSPACE))
        line_rub(v);
    else if (code == 21) /* ^U */
        typing_set(v, "");
    else if (character)
        line_put(v, code);
}

bool typing_is_enter(int code, bool character)
{
    return code == '\r' || code == '\n' || (!character && code == KEY_ENTER);
}

void typing_begin(struct view *v, enum view_mode mode)
{
    v->mode = mode;
    v->past_at = v->past_count;
    typing_set(v, "");
}

static bool leaves(const struct view *v, int code, bool character)
{
    return code == 27 || (!*v->line && (code == 8 || code == 127 || (!character && code == KEY_BACKSPACE)));
}

enum view_request typing_key(struct view *v, int code, bool character)
{
    const bool enter = typing_is_enter(code, character);
    if (enter && *v->line)
        return actions_run(v);
    if (enter || leaves(v, code, character)) {
        v->mode = MODE_NORMAL;
    } else if (!character && (code == KEY_UP || code == KEY_DOWN)) {
        v->past_at += code == KEY_UP ? -1 : 1;
        v->past_at = v->past_at < 0 ? 0 : v->past_at > v->past_count ? v->past_count : v->past_at;
        typing_set(v, v->past_at < v->past_count ? v->past[v->past_at] : "");
    } else {
        typing_edit(v, code, character);
    }
    return REQUEST_NONE;
}

bool typing_find_key(struct view *v, int code, bool character)
{
    const bool enter = typing_is_enter(code, character);
    if (enter || leaves(v, code, character))
        v->mode = MODE_NORMAL;
    else
        typing_edit(v, code, character);
    return enter;
}
