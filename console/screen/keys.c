/* keys.c - what a key does: a pure function of the view, up to a request. */
#include "view.h"

#include "console/command.h"
#include "console/text.h"
#include "console/words.h"

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

/* ---- a line being typed ---------------------------------------------------------------------------------------- */

static void line_set(struct view *v, const char *text)
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

static void line_remember(struct view *v)
{
    if (v->past_count && !strcmp(v->past[v->past_count - 1], v->line))
        return;
    if (v->past_count == LINE_HISTORY)
        memmove(v->past[0], v->past[1], sizeof v->past[0] * (size_t)--v->past_count);
    memcpy(v->past[v->past_count++], v->line, sizeof v->line);
}

/* Typing that the line and the question share. */
static void line_edit(struct view *v, int code, bool character)
{
    if (code == 8 || code == 127 || (!character && code == KEY_BACKSPACE))
        line_rub(v);
    else if (code == 21) /* ^U */
        line_set(v, "");
    else if (character)
        line_put(v, code);
}

static bool is_enter(int code, bool character)
{
    return code == '\r' || code == '\n' || (!character && code == KEY_ENTER);
}

static enum view_request run(struct view *v)
{
    line_remember(v);
    v->mode = MODE_OUTPUT;
    v->output_back = 0;
    return REQUEST_RUN;
}

static enum view_request question(struct view *v, const char *statement, const char *shown, enum action_tier tier)
{
    snprintf(v->asked.statement, sizeof v->asked.statement, "%s", statement);
    v->asked.shown = shown;
    v->asked.tier = tier;
    v->mode = MODE_CONFIRM;
    line_set(v, "");
    return REQUEST_NONE;
}

/* The question's job, by its id. Its name too, if the job is not among those known: an id is its name, a hyphen and a
 * number. */
static void aim(struct view *v, const char *id)
{
    const char *hyphen = strrchr(id, '-');
    snprintf(v->target, sizeof v->target, "%s", id);
    const struct job *j = view_target(v);
    if (j)
        snprintf(v->target_name, sizeof v->target_name, "%s", j->name);
    else
        snprintf(v->target_name, sizeof v->target_name, "%.*s", hyphen ? (int)(hyphen - id) : JOB_ID_ROOM - 1, id);
}

/* A statement that was typed asks what the menu would ask. One that is wrong, or wants only help, does nothing and is
 * run: kc tells it. */
static enum view_request run_line(struct view *v)
{
    char line[LINE_ROOM];
    const char *word[STATEMENT_WORDS];
    size_t count = 0;
    struct statement st;
    snprintf(line, sizeof line, "%s", v->line);
    if (words_split(line, word, STATEMENT_WORDS, &count, NULL))
        return run(v);
    size_t from = count && !strcmp(word[0], "kc"); /* typed with its name */
    if (statement_parse((int)(count - from), word + from, &st, NULL) || st.help || st.version || !st.command)
        return run(v);
    for (int i = 0; i < ACTIONS; i++)
        if (!strcmp(action_rows[i].verb, st.command->verb) && action_rows[i].tier != TIER_NONE) {
            line_remember(v);
            aim(v, st.arguments.word[0]);
            return question(v, v->line, action_rows[i].shown, action_rows[i].tier);
        }
    if (!strcmp(st.command->verb, "shutdown")) {
        line_remember(v);
        aim(v, "kcd");
        const char *will = st.arguments.option[OPTION_DETACH] ? "end kcd; its jobs go on"
                                                              : "save and end every job, and end kcd";
        return question(v, v->line, will, TIER_YES);
    }
    return run(v);
}

static enum view_request key_in_line(struct view *v, int code, bool character)
{
    if (is_enter(code, character) && *v->line)
        return run_line(v);
    if (code == 27 || is_enter(code, character) ||
        (!*v->line && (code == 8 || code == 127 || (!character && code == KEY_BACKSPACE)))) {
        v->mode = MODE_NORMAL;
    } else if (!character && (code == KEY_UP || code == KEY_DOWN)) {
        v->past_at += code == KEY_UP ? -1 : 1;
        v->past_at = v->past_at < 0 ? 0 : v->past_at > v->past_count ? v->past_count : v->past_at;
        line_set(v, v->past_at < v->past_count ? v->past[v->past_at] : "");
    } else {
        line_edit(v, code, character);
    }
    return REQUEST_NONE;
}

/* ---- the menu and its questions -------------------------------------------------------------------------------- */

static void open_menu(struct view *v)
{
    const struct job *j = view_job(v);
    if (v->replay.on) {
        snprintf(v->notice, sizeof v->notice, "this is a recording: nothing can be done to what was");
        return;
    }
    if (!j) {
        snprintf(v->notice, sizeof v->notice, "no job is selected");
        return;
    }
    snprintf(v->target, sizeof v->target, "%s",
             j->id); /* from here on the question is about this job, whatever moves */
    snprintf(v->target_name, sizeof v->target_name, "%s", j->name);
    v->menu_at = -1; /* Enter typed ahead chooses nothing */
    v->mode = MODE_MENU;
}

static enum view_request key_in_menu(struct view *v, int code)
{
    enum key_id key = key_find(code);
    if (key == KEY_ID_UP && v->menu_at > 0)
        v->menu_at--;
    else if (key == KEY_ID_DOWN && v->menu_at < ACTIONS - 1)
        v->menu_at++;
    else if (key == KEY_ID_BACK || key == KEY_ID_ACTIONS)
        v->mode = MODE_NORMAL;
    else if (key == KEY_ID_QUIT)
        return REQUEST_QUIT;
    if (key != KEY_ID_ENTER)
        return REQUEST_NONE;
    if (v->menu_at < 0) {
        snprintf(v->notice, sizeof v->notice, "choose with j and k first");
        return REQUEST_NONE;
    }
    enum action_id id = (enum action_id)v->menu_at;
    char statement[LINE_ROOM];
    snprintf(statement, sizeof statement, "%s %s", action_rows[id].verb, v->target);
    const char *refused = view_action_refused(view_target(v), id);
    if (refused) {
        snprintf(v->notice, sizeof v->notice, "kc %s %s: %s", action_rows[id].verb, v->target, refused);
        v->mode = MODE_NORMAL;
        return REQUEST_NONE;
    }
    if (action_rows[id].tier != TIER_NONE)
        return question(v, statement, action_rows[id].shown, action_rows[id].tier);
    line_set(v, statement);
    return run(v);
}

static enum view_request key_in_question(struct view *v, int code, bool character)
{
    if (code == 27) {
        v->mode = MODE_NORMAL;
        snprintf(v->notice, sizeof v->notice, "nothing was done to %s", v->target);
    } else if (is_enter(code, character)) {
        const char *wanted = v->asked.tier == TIER_NAME ? v->target_name : "yes";
        if (!strcmp(v->line, wanted)) {
            line_set(v, v->asked.statement);
            return run(v);
        }
        v->mode = MODE_NORMAL;
        snprintf(v->notice, sizeof v->notice, "that was not \"%s\": nothing was done to %s", wanted, v->target);
    } else {
        line_edit(v, code, character);
    }
    return REQUEST_NONE;
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

/* ---- moving about ---------------------------------------------------------------------------------------------- */

static void move_jobs(struct view *v, int by)
{
    const struct job *j = view_job(v);
    if (!j)
        return;
    long at = j - v->model->job + by, last = (long)v->model->count - 1;
    at = at < 0 ? 0 : at > last ? last : at;
    snprintf(v->selected, sizeof v->selected, "%s", v->model->job[at].id);
}

static void move_ranks(struct view *v, int by)
{
    const struct job *j = view_job(v);
    int count = j ? (int)j->ranks_known : 0, at = v->rank + by;
    v->rank = at < 0 ? 0 : at >= count ? (count ? count - 1 : 0) : at;
}

static void move_by_key(struct view *v, enum key_id key)
{
    int page = v->page > 1 ? v->page - 1 : 1, far = 1 << 20;
    int by = key == KEY_ID_UP ? -1 : key == KEY_ID_DOWN ? 1 : key == KEY_ID_PAGE_UP ? -page
             : key == KEY_ID_PAGE_DOWN ? page : key == KEY_ID_FIRST ? -far : key == KEY_ID_LAST ? far : 0;
    int aside = key == KEY_ID_LEFT ? -1 : key == KEY_ID_RIGHT ? 1 : 0;
    const struct job *j;
    switch (v->at) {
    case VIEW_JOBS: move_jobs(v, by); break;
    case VIEW_RANKS: move_ranks(v, (by == 1 || by == -1 ? by * v->page : by) + aside); break;
    case VIEW_LOG:
        v->log_back = v->log_back - by < 0 ? 0 : v->log_back - by;
        j = view_job(v);
        v->log_rank += aside;
        if (v->log_rank < -1)
            v->log_rank = -1;
        if (j && j->ranks > 0 && v->log_rank >= j->ranks)
            v->log_rank = (int)j->ranks - 1;
        if (aside)
            snprintf(v->notice, sizeof v->notice, v->log_rank < 0 ? "log of all ranks" : "log of rank %d",
                     v->log_rank);
        break;
    case VIEW_HELP: v->help_top = v->help_top + by < 0 ? 0 : v->help_top + by; break;
    case VIEW_JOB: case VIEWS: break;
    }
}

static enum view_request go_back(struct view *v, int code)
{
    if (v->at == VIEW_HELP)
        v->at = v->before_help;
    else if (v->at == VIEW_RANKS || v->at == VIEW_LOG)
        v->at = VIEW_JOB;
    else if (v->at == VIEW_JOB && !v->only)
        v->at = VIEW_JOBS;
    else if (code == 'q')
        return REQUEST_QUIT;
    return REQUEST_NONE;
}

static void go(struct view *v, enum view_id to)
{
    if (to == VIEW_JOBS && v->only) {
        snprintf(v->notice, sizeof v->notice, "this is `kc %s`: q leaves; the list of jobs is plain `kc`",
                 v->replay.on ? "replay" : "watch");
    } else if (to == VIEW_HELP) {
        if (v->at != VIEW_HELP)
            v->before_help = v->at;
        v->help_top = 0;
        v->at = to;
    } else if (to == VIEW_JOBS || view_job(v)) {
        v->at = to;
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
    if (v->replay.on) {
        snprintf(v->notice, sizeof v->notice, "this is a recording: statements are for the command line");
        return;
    }
    v->mode = MODE_LINE;
    v->past_at = v->past_count;
    line_set(v, "");
}

static enum view_request key_in_view(struct view *v, int code)
{
    enum key_id key = key_find(code);
    switch (key) {
    case KEY_ID_UP: case KEY_ID_DOWN: case KEY_ID_LEFT: case KEY_ID_RIGHT: case KEY_ID_PAGE_UP: case KEY_ID_PAGE_DOWN:
    case KEY_ID_FIRST: case KEY_ID_LAST: move_by_key(v, key); break;
    case KEY_ID_ENTER: go(v, v->at == VIEW_JOBS ? VIEW_JOB : v->at == VIEW_JOB ? VIEW_RANKS : v->at); break;
    case KEY_ID_BACK: return go_back(v, code);
    case KEY_ID_QUIT: return REQUEST_QUIT;
    case KEY_ID_JOBS: go(v, VIEW_JOBS); break;
    case KEY_ID_JOB: go(v, VIEW_JOB); break;
    case KEY_ID_RANKS: go(v, VIEW_RANKS); break;
    case KEY_ID_LOG: go(v, VIEW_LOG); break;
    case KEY_ID_HELP: go(v, VIEW_HELP); break;
    case KEY_ID_ACTIONS: open_menu(v); break;
    case KEY_ID_LINE: begin_line(v); break;
    case KEY_ID_EARLIER: return walk(v, REPLAY_BACK);
    case KEY_ID_LATER: return walk(v, REPLAY_FORTH);
    case KEY_ID_MINUTE_BACK: return walk(v, REPLAY_MINUTE_BACK);
    case KEY_ID_MINUTE_ON: return walk(v, REPLAY_MINUTE_FORTH);
    case KEY_ID_WRONG_BACK: return walk(v, REPLAY_WRONG_BACK);
    case KEY_ID_WRONG_ON: return walk(v, REPLAY_WRONG_FORTH);
    case KEY_ID_BEGIN: return walk(v, REPLAY_FIRST);
    case KEY_ID_NEWEST: return walk(v, REPLAY_LAST);
    case KEY_ID_REDRAW: return REQUEST_REDRAW;
    case KEY_IDS: break;
    }
    return REQUEST_NONE;
}

enum view_request view_key(struct view *v, int code, bool character)
{
    v->notice[0] = 0;
    switch (v->mode) {
    case MODE_LINE: return key_in_line(v, code, character);
    case MODE_MENU: return key_in_menu(v, character && code > 0x7f ? 0 : code);
    case MODE_CONFIRM: return key_in_question(v, code, character);
    case MODE_OUTPUT: return key_in_output(v, character && code > 0x7f ? 0 : code);
    case MODE_NORMAL: break;
    }
    /* Letters beyond ASCII have the numbers of ncurses's keys, and are none. */
    return character && code > 0x7f ? REQUEST_NONE : key_in_view(v, code);
}
