/* actions.c - what is done to a job: the menu, whose target is fixed when it opens, its questions, and the same questions for
 * statements that were typed. */
#include "view.h"

#include "console/command.h"
#include "console/words.h"

#include <ncurses.h>
#include <stdio.h>
#include <string.h>

static enum view_request run(struct view *v)
{
    typing_remember(v);
    snprintf(v->run, sizeof v->run, "%s", v->line);
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
    typing_set(v, "");
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
enum view_request actions_run(struct view *v)
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
            typing_remember(v);
            aim(v, st.arguments.word[0]);
            return question(v, v->line, action_rows[i].shown, action_rows[i].tier);
        }
    if (!strcmp(st.command->verb, "shutdown")) {
        typing_remember(v);
        aim(v, "kcd");
        const char *will = st.arguments.option[OPTION_DETACH] ? "end kcd; its jobs go on"
                                                              : "save and end every job, and end kcd";
        return question(v, v->line, will, TIER_YES);
    }
    return run(v);
}

void actions_open(struct view *v)
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

enum view_request actions_menu_key(struct view *v, int code)
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
    typing_set(v, statement);
    return run(v);
}

enum view_request actions_question_key(struct view *v, int code, bool character)
{
    if (code == 27) {
        v->mode = MODE_NORMAL;
        snprintf(v->notice, sizeof v->notice, "nothing was done to %s", v->target);
    } else if (typing_is_enter(code, character)) {
        const char *wanted = v->asked.tier == TIER_NAME ? v->target_name : "yes";
        if (!strcmp(v->line, wanted)) {
            typing_set(v, v->asked.statement);
            return run(v);
        }
        v->mode = MODE_NORMAL;
        snprintf(v->notice, sizeof v->notice, "that was not \"%s\": nothing was done to %s", wanted, v->target);
    } else {
        typing_edit(v, code, character);
    }
    return REQUEST_NONE;
}
