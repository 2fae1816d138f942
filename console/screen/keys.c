/* keys.c - which key is which, and who gets it: a pure function of the view, up to a request. Order: what has the keys (a line,
 * a menu, a question, an output); keys that mean the same everywhere; the view. */
#include "panes.h"
#include "view.h"

#include <ncurses.h>
#include <stdio.h>
#include <string.h>

#define KEY(id, code, second, function, shown, help) [KEY_ID_##id] = {shown, help, {code, second, function}},
const struct key_row key_rows[KEY_IDS] = {
#include "console/keys.def"
};
#undef KEY

enum key_id key_find(int code)
{
    if (code == '\n')
        code = '\r';
    for (int i = 0; code && i < KEY_IDS; i++)
        for (int k = 0; k < 3; k++)
            if (key_rows[i].code[k] == code)
                return (enum key_id)i;
    return KEY_IDS;
}

int key_moves(const struct view *v, enum key_id key)
{
    const int page = v->page > 1 ? v->page - 1 : 1, far = 1 << 20;
    switch (key) {
    case KEY_ID_UP: return -1;
    case KEY_ID_DOWN: return 1;
    case KEY_ID_PAGE_UP: return -page;
    case KEY_ID_PAGE_DOWN: return page;
    case KEY_ID_FIRST: return -far;
    case KEY_ID_LAST: return far;
    default: return 0;
    }
}

static enum view_request key_in_view(struct view *v, int code);

static enum view_request key_in_output(struct view *v, int code)
{
    enum key_id key = key_find(code);
    if (key == KEY_ID_UP || key == KEY_ID_PAGE_UP)
        v->output_back += key == KEY_ID_UP ? 1 : 10;
    else if (key == KEY_ID_DOWN || key == KEY_ID_PAGE_DOWN)
        v->output_back =
            v->output_back > (key == KEY_ID_DOWN ? 1 : 10) ? v->output_back - (key == KEY_ID_DOWN ? 1 : 10) : 0;
    else if (key == KEY_ID_QUIT)
        return REQUEST_QUIT;
    else if (v->output_running)
        return key == KEY_ID_BACK ? REQUEST_INTERRUPT : REQUEST_NONE;
    else if (key == KEY_ID_BACK || key == KEY_ID_ENTER || key == KEY_ID_LINE || key == KEY_ID_HELP)
        v->mode = MODE_NORMAL;
    /* What begins something of its own is handed on; letters typed ahead must not act on a job. */
    return v->mode == MODE_NORMAL && (key == KEY_ID_LINE || key == KEY_ID_HELP) ? key_in_view(v, code) : REQUEST_NONE;
}

bool view_list_key(struct view *v, enum view_id at, enum key_id key)
{
    struct list_source s;
    return view_kinds[at].source && view_kinds[at].source(v, &s) &&
           list_key(&v->list[at], &s, key, v->now, v->notice, sizeof v->notice);
}

static void begin_find(struct view *v)
{
    struct list_source s;
    const enum view_id at = view_active(v);
    const struct view_kind *k = &view_kinds[at];
    if (!k->find && !(k->source && k->source(v, &s))) {
        snprintf(v->notice, sizeof v->notice, "there is nothing to look through here");
        return;
    }
    typing_begin(v, MODE_FIND);
    if (k->source && v->list[at].filtered) {
        char wanted[sizeof v->list[at].wanted + 1];
        snprintf(wanted, sizeof wanted, "%s ", v->list[at].wanted); /* what is typed is another term */
        typing_set(v, wanted);
    }
}

static void find(struct view *v, const char *text)
{
    struct list_source s;
    struct kc_error e = {""};
    const enum view_id at = view_active(v);
    const struct view_kind *k = &view_kinds[at];
    if (k->find)
        k->find(v, text);
    else if (k->source && k->source(v, &s) && list_filter(&v->list[at], &s, text, &e) < 0)
        snprintf(v->notice, sizeof v->notice, "%.255s", e.text);
}

static enum view_request go_back(struct view *v, int code)
{
    const enum view_id at = view_active(v);
    if (code == 27 && ((view_kinds[at].source && v->list[at].filtered) || (view_kinds[at].find && *v->log_at.find))) {
        find(v, "");
        return REQUEST_NONE;
    }
    if (v->pane != PANE_MAIN) {
        v->pane = PANE_MAIN;
        return REQUEST_NONE;
    }
    const enum view_id up = v->at == VIEW_HELP ? v->before_help : view_kinds[v->at].up;
    if (up != v->at && (view_kinds[up].of_job || !v->only))
        v->at = up;
    else if (code == 'q')
        return REQUEST_QUIT;
    return REQUEST_NONE;
}

/* Nothing is looked at until it is let go. */
static void freeze(struct view *v)
{
    v->frozen = v->frozen ? 0 : v->now ? v->now : 1;
    if (v->replay.on) {
        v->frozen = 0;
        snprintf(v->notice, sizeof v->notice, "a recording stands still by itself");
    }
}

static enum view_request walk(struct view *v, enum replay_walk how)
{
    if (!v->replay.on) {
        snprintf(v->notice, sizeof v->notice, "time goes back in a replay alone: kc replay JOB");
        return REQUEST_NONE;
    }
    v->replay.walk = how;
    return REQUEST_WALK;
}

static void begin_line(struct view *v)
{
    if (v->replay.on)
        snprintf(v->notice, sizeof v->notice, "this is a recording: statements are for the command line");
    else
        typing_begin(v, MODE_LINE);
}

static enum view_request key_in_view(struct view *v, int code)
{
    const enum key_id key = key_find(code);
    const enum view_id at = view_active(v);
    if (key == KEY_IDS || view_kinds[at].key(v, key) || view_list_key(v, at, key))
        return REQUEST_NONE;
    switch (key) {
    case KEY_ID_ENTER: view_go(v, view_kinds[at].down); break;
    case KEY_ID_PANE: panes_next(v); break;
    case KEY_ID_BACK: return go_back(v, code);
    case KEY_ID_QUIT: return REQUEST_QUIT;
    case KEY_ID_JOBS: case KEY_ID_JOB: case KEY_ID_RANKS: case KEY_ID_COMM: case KEY_ID_SNAPSHOTS: case KEY_ID_GOVERN:
    case KEY_ID_HANG: case KEY_ID_LOG: case KEY_ID_NODE: case KEY_ID_HELP:
        view_go(v, (enum view_id)(VIEW_JOBS + (key - KEY_ID_JOBS)));
        break;
    case KEY_ID_ACTIONS: actions_open(v); break;
    case KEY_ID_LINE: begin_line(v); break;
    case KEY_ID_FIND: begin_find(v); break;
    case KEY_ID_EARLIER: return walk(v, REPLAY_BACK);
    case KEY_ID_LATER: return walk(v, REPLAY_FORTH);
    case KEY_ID_MINUTE_BACK: return walk(v, REPLAY_MINUTE_BACK);
    case KEY_ID_MINUTE_ON: return walk(v, REPLAY_MINUTE_FORTH);
    case KEY_ID_WRONG_BACK: return walk(v, REPLAY_WRONG_BACK);
    case KEY_ID_WRONG_ON: return walk(v, REPLAY_WRONG_FORTH);
    case KEY_ID_BEGIN: return walk(v, REPLAY_FIRST);
    case KEY_ID_NEWEST: return walk(v, REPLAY_LAST);
    case KEY_ID_REDRAW: return REQUEST_REDRAW;
    case KEY_ID_FREEZE: freeze(v); break;
    case KEY_ID_COPY: return REQUEST_COPY;
    case KEY_ID_WRITE: return REQUEST_WRITE;
    default: break;
    }
    return REQUEST_NONE;
}
_Static_assert(KEY_ID_HELP - KEY_ID_JOBS == (int)VIEW_HELP - (int)VIEW_JOBS, "keys.def names views in the order of views.def");

void view_click(struct view *v, int row, int col)
{
    struct list_source s;
    const struct layout l = panes_layout(v);
    int pane = 0;
    while (pane < PANES && (row < l.box[pane].row || row >= l.box[pane].row + l.box[pane].rows || col < l.box[pane].col ||
                            col >= l.box[pane].col + l.box[pane].cols))
        pane++;
    if (v->mode != MODE_NORMAL || pane == PANES)
        return;
    v->pane = (enum pane)pane;
    const enum view_id at = view_active(v);
    struct list *list = &v->list[at];
    if (!view_kinds[at].source || !view_kinds[at].source(v, &s) || row - l.box[pane].row < list->first)
        return;
    const size_t want = list->top + (size_t)(row - l.box[pane].row - list->first);
    for (size_t before = SIZE_MAX; list->at != want && list->at != before;) { /* as keys would go there: it ends at the end */
        before = list->at;
        if (!view_kinds[at].key(v, list->at < want ? KEY_ID_DOWN : KEY_ID_UP))
            view_list_key(v, at, list->at < want ? KEY_ID_DOWN : KEY_ID_UP);
    }
}

enum view_request view_key(struct view *v, int code, bool character)
{
    v->notice[0] = 0;
    /* Letters beyond ASCII have the numbers of ncurses's keys, and are none. */
    const int known = character && code > 0x7f ? 0 : code;
    switch (v->mode) {
    case MODE_LINE: return typing_key(v, code, character);
    case MODE_FIND:
        if (typing_find_key(v, code, character))
            find(v, v->line);
        break;
    case MODE_MENU: return actions_menu_key(v, known);
    case MODE_CONFIRM: return actions_question_key(v, code, character);
    case MODE_OUTPUT: return key_in_output(v, known);
    case MODE_NORMAL: return key_in_view(v, known);
    }
    return REQUEST_NONE;
}
