/* actions.c - what is done from the screen: the menu, whose targets are fixed when it opens, its questions, and the same questions
 * for statements that were typed. */
#include "view.h"

#include "console/command.h"
#include "console/words.h"

#include <ncurses.h>
#include <stdio.h>
#include <string.h>

#define ACTION(id, menu, on, verb, behind, tier, shown)                                                                \
    [ACTION_##id] = {MENU_##menu, ON_##on, verb, behind, TIER_##tier, shown},
const struct action_row action_rows[ACTIONS] = {
#include "console/actions.def"
};
#undef ACTION

static enum view_request run(struct view *v, const char *statements)
{
    snprintf(v->run, sizeof v->run, "%s", statements);
    v->mode = MODE_OUTPUT;
    v->output_back = 0;
    return REQUEST_RUN;
}

/* ---- may it be done? ------------------------------------------------------------------------------------------- */

static const char *refused_job(const struct job *j, enum action_id id)
{
    const bool ended = j && job_ended(j);
    if (!j)
        return "the job is gone";
    switch (id) {
    case ACTION_PAUSE: return ended ? "it has ended" : j->state == KC_JOB_PAUSED ? "it is paused" : NULL;
    case ACTION_RESUME:
        return j->state == KC_JOB_FINISHED ? "all its steps are done" : j->state == KC_JOB_RUNNING ? "it runs" : NULL;
    case ACTION_CHECKPOINT: case ACTION_SNAP_NOW: case ACTION_STOP: return ended ? "it has ended" : NULL;
    case ACTION_REMOVE: return ended ? NULL : "it has not ended";
    default: return NULL;
    }
}

/* NULL: it may be done; else why not, for a person. */
static const char *refused(const struct view *v, enum action_id id, const struct action_target *t)
{
    char job[JOB_ID_ROOM];
    const char *slash = strrchr(t->id, '/');
    if (action_rows[id].on == ON_DEVICE)
        return NULL;
    if (action_rows[id].on == ON_SNAPSHOT && (!slash || !slash[1] || slash[1 + strspn(slash + 1, "0123456789")]))
        return "it is no version on the disk";
    snprintf(job, sizeof job, "%.*s", slash ? (int)(slash - t->id) : JOB_ID_ROOM - 1, t->id);
    const struct job *j = view_job_by(v, job);
    if (j && v->leave == LEAVE_AUTO && j->owner >= 0 && j->owner != v->user && action_rows[id].on == ON_JOB)
        return "another user's (--readonly=no may)";
    return refused_job(j, id);
}

/* ---- targets and statements ------------------------------------------------------------------------------------ */

static void aim_at_job(const char *id, struct action_target *out)
{
    snprintf(out->id, sizeof out->id, "%s", id);
}

int actions_of_menu(const struct view *v, enum action_id out[ACTIONS])
{
    int n = 0;
    for (int i = 0; i < ACTIONS; i++)
        if (action_rows[i].menu == v->act.menu)
            out[n++] = (enum action_id)i;
    return n;
}

int actions_statements(const struct view *v, enum action_id id, char *out, size_t room, int *left, char *why, size_t why_room)
{
    const struct action_row *row = &action_rows[id];
    const bool of_job = row->on == ON_JOB && v->act.menu != MENU_JOB;
    const struct action_target *target = of_job ? &v->act.job : v->act.target;
    const int targets = of_job ? 1 : v->act.targets;
    size_t n = 0;
    int count = 0;
    *out = *why = 0;
    *left = 0;
    for (int i = 0; i < targets; i++) {
        const char *no = refused(v, id, &target[i]);
        if (no) {
            snprintf(why, why_room, "%s", no);
            ++*left;
        } else if (n < room) {
            n += (size_t)snprintf(out + n, room - n, "%s%s %s%s", count++ ? "\n" : "", row->verb, target[i].id, row->behind);
        }
    }
    return count;
}

static enum view_request question(struct view *v, const char *shown, enum action_tier tier)
{
    v->act.shown = shown;
    v->act.tier = tier;
    v->mode = MODE_CONFIRM;
    typing_set(v, "");
    return REQUEST_NONE;
}

/* ---- a statement that was typed -------------------------------------------------------------------------------- */

/* A screen that only looks runs nothing that changes something. */
static bool forbidden(struct view *v, const struct statement *st)
{
    const struct job *j = st->arguments.words ? view_job_by(v, st->arguments.word[0]) : NULL;
    if (st->command->needs == NEEDS_NOTHING || st->arguments.option[OPTION_DRY_RUN])
        return false;
    if (v->leave == LEAVE_NEVER)
        snprintf(v->notice, sizeof v->notice, "this screen only looks (--readonly): kc %s is for the command line", st->command->verb);
    else if (v->leave == LEAVE_AUTO && j && j->owner >= 0 && j->owner != v->user)
        snprintf(v->notice, sizeof v->notice, "%s is another user's: this screen only looks at it (kc --readonly=no may)", j->id);
    else
        return false;
    return true;
}

/* What the menu would ask about this statement; TIER_NONE: nothing. */
static enum action_tier asks(const struct statement *st, const char **shown)
{
    for (int i = 0; i < ACTIONS; i++)
        if (!strcmp(action_rows[i].verb, st->command->verb)) {
            *shown = action_rows[i].shown;
            return action_rows[i].tier;
        }
    if (!strcmp(st->command->verb, "shutdown")) {
        *shown = st->arguments.option[OPTION_DETACH] ? "end kcd; its jobs go on" : "save and end every job, and end kcd";
        return TIER_YES;
    }
    *shown = "run all that is in the file, without a question";
    return strcmp(st->command->verb, "batch") ? TIER_NONE : TIER_YES;
}

/* One that is wrong, or wants only help, does nothing and is run: kc tells it. */
enum view_request actions_run(struct view *v)
{
    char line[LINE_ROOM];
    const char *word[STATEMENT_WORDS], *shown = "";
    size_t count = 0;
    struct statement st;
    for (size_t n = strlen(v->line); n && v->line[n - 1] == ' ' && (n < 2 || v->line[n - 2] != '\\');) /* Tab leaves one */
        v->line[--n] = 0;
    snprintf(line, sizeof line, "%s", v->line);
    typing_remember(v);
    if (words_split(line, word, STATEMENT_WORDS, &count, NULL))
        return run(v, v->line);
    size_t from = count && !strcmp(word[0], "kc"); /* typed with its name */
    if (statement_parse((int)(count - from), word + from, &st, NULL) || st.help || st.version || !st.command)
        return run(v, v->line);
    if (forbidden(v, &st)) {
        v->mode = MODE_NORMAL;
        return REQUEST_NONE;
    }
    const enum action_tier tier = asks(&st, &shown);
    if (tier == TIER_NONE || st.arguments.option[OPTION_DRY_RUN])
        return run(v, v->line);
    v->act = (struct action_choice){.targets = 1, .statements = 1, .at = -1};
    aim_at_job(st.arguments.words ? st.arguments.word[0] : "kcd", &v->act.target[0]);
    snprintf(v->act.statement, sizeof v->act.statement, "%s", v->line);
    return question(v, shown, tier);
}

/* ---- the menu -------------------------------------------------------------------------------------------------- */

/* The marked rows of the view, else the one under the cursor. */
static void aim_at_rows(struct view *v, const char *prefix)
{
    const enum view_id at = view_active(v);
    struct list *l = &v->list[at];
    struct list_source s;
    char id[LIST_ID];
    struct action_choice *a = &v->act;
    for (size_t i = 0; i < l->marks; i++)
        snprintf(a->target[a->targets++].id, sizeof a->target[0].id, "%s%s", prefix, l->mark[i]);
    if (!a->targets && view_kinds[at].source && view_kinds[at].source(v, &s)) {
        const size_t row = list_row(l, &s);
        if (row != SIZE_MAX) {
            s.id(s.self, row, id);
            snprintf(a->target[a->targets++].id, sizeof a->target[0].id, "%s%s", prefix, id);
        }
    }
}

static void aim(struct view *v, const struct job *j)
{
    struct action_choice *a = &v->act;
    const struct list *l = &v->list[VIEW_JOBS];
    char prefix[JOB_ID_ROOM + 1];
    if (j)
        aim_at_job(j->id, &a->job);
    if (a->menu == MENU_NODE) {
        aim_at_rows(v, "");
    } else if (a->menu == MENU_SNAPSHOT && j) {
        snprintf(prefix, sizeof prefix, "%s/", j->id);
        aim_at_rows(v, prefix);
    } else if (view_active(v) == VIEW_JOBS && l->marks) {
        for (size_t i = 0; i < l->marks; i++)
            aim_at_job(l->mark[i], &a->target[a->targets++]);
    } else if (j) {
        aim_at_job(j->id, &a->target[a->targets++]);
    }
}

void actions_open(struct view *v)
{
    const struct job *j = view_job(v);
    const enum view_id at = view_active(v);
    const enum action_menu menu = at == VIEW_SNAPSHOTS ? MENU_SNAPSHOT : at == VIEW_NODE ? MENU_NODE : MENU_JOB;
    if (v->replay.on) {
        snprintf(v->notice, sizeof v->notice, "this is a recording: nothing can be done to what was");
        return;
    }
    if (v->leave == LEAVE_NEVER) {
        snprintf(v->notice, sizeof v->notice, "this screen only looks (--readonly): nothing is done from here");
        return;
    }
    if (!j && menu != MENU_NODE) {
        snprintf(v->notice, sizeof v->notice, "no job is selected");
        return;
    }
    v->act = (struct action_choice){.menu = menu, .at = -1}; /* Enter typed ahead chooses nothing */
    aim(v, j);
    if (menu == MENU_NODE && !v->act.targets)
        snprintf(v->notice, sizeof v->notice, "no device is selected");
    else
        v->mode = MODE_MENU;
}

static enum view_request choose(struct view *v, enum action_id id)
{
    struct action_choice *a = &v->act;
    const struct action_row *row = &action_rows[id];
    char why[128];
    a->statements = actions_statements(v, id, a->statement, sizeof a->statement, &a->left, why, sizeof why);
    if (!a->statements) {
        snprintf(v->notice, sizeof v->notice, "kc %s %.100s: %.100s", row->verb, a->targets == 1 ? a->target[0].id : a->job.id,
                 *why ? why : "no row is selected");
        v->mode = MODE_NORMAL;
        return REQUEST_NONE;
    }
    if (row->tier != TIER_NONE || a->statements > 1) /* several are shown before they run */
        return question(v, row->shown, row->tier == TIER_NONE ? TIER_YES : row->tier);
    typing_set(v, a->statement);
    typing_remember(v);
    return run(v, a->statement);
}

enum view_request actions_menu_key(struct view *v, int code)
{
    const enum key_id key = key_find(code);
    enum action_id id[ACTIONS];
    const int rows = actions_of_menu(v, id);
    if (key == KEY_ID_UP && v->act.at > 0)
        v->act.at--;
    else if (key == KEY_ID_DOWN && v->act.at < rows - 1)
        v->act.at++;
    else if (key == KEY_ID_BACK || key == KEY_ID_ACTIONS)
        v->mode = MODE_NORMAL;
    else if (key == KEY_ID_QUIT)
        return REQUEST_QUIT;
    if (key != KEY_ID_ENTER)
        return REQUEST_NONE;
    if (v->act.at >= 0)
        return choose(v, id[v->act.at]);
    snprintf(v->notice, sizeof v->notice, "choose with j and k first");
    return REQUEST_NONE;
}

/* ---- the question ---------------------------------------------------------------------------------------------- */

/* What must be typed: y; the job's id, which no other job has; of several jobs, how many they are. */
void actions_wanted(const struct view *v, char *out, size_t room)
{
    const struct action_choice *a = &v->act;
    if (a->tier != TIER_ID)
        snprintf(out, room, "y");
    else if (a->statements > 1)
        snprintf(out, room, "%d jobs", a->statements);
    else
        snprintf(out, room, "%s", a->target[0].id);
}

enum view_request actions_question_key(struct view *v, int code, bool character)
{
    char wanted[sizeof v->act.target[0].id];
    if (code == 27) {
        v->mode = MODE_NORMAL;
        snprintf(v->notice, sizeof v->notice, "nothing was done");
    } else if (typing_is_enter(code, character)) {
        actions_wanted(v, wanted, sizeof wanted);
        if (!strcmp(v->line, wanted) || (v->act.tier == TIER_YES && !strcmp(v->line, "yes"))) {
            typing_set(v, v->act.statements == 1 ? v->act.statement : "");
            if (v->act.statements == 1)
                typing_remember(v);
            return run(v, v->act.statement);
        }
        v->mode = MODE_NORMAL;
        snprintf(v->notice, sizeof v->notice, "that was not \"%s\": nothing was done", wanted);
    } else {
        typing_edit(v, code, character);
    }
    return REQUEST_NONE;
}
