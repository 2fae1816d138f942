/* view_overlay.c - what lies over a view: the menu of actions, a question, the output of a statement. */
#include "view.h"

#include "console/text.h"

#include <stdio.h>
#include <string.h>

const char *view_action_refused(const struct job *j, enum action_id id)
{
    bool ended = j && job_ended(j);
    if (!j)
        return "the job is gone";
    switch (id) {
    case ACTION_PAUSE: return ended ? "it has ended" : j->state == KC_JOB_PAUSED ? "it is paused" : NULL;
    case ACTION_RESUME:
        return j->state == KC_JOB_FINISHED ? "all its steps are done" : j->state == KC_JOB_RUNNING ? "it runs" : NULL;
    case ACTION_CHECKPOINT: case ACTION_STOP: return ended ? "it has ended" : NULL;
    case ACTION_REMOVE: return ended ? NULL : "it has not ended";
    case ACTIONS: break;
    }
    return NULL;
}

/* A box in the middle, as large as it may be; returns its corner. */
static void box(struct canvas *c, int rows, int cols, int *row, int *col, int *high, int *wide)
{
    *high = rows < c->rows ? rows : c->rows;
    *wide = cols < c->cols ? cols : c->cols;
    *row = (c->rows - *high) / 2;
    *col = (c->cols - *wide) / 2;
    canvas_erase(c, *row, *col, *high, *wide);
}

static void draw_menu(struct view *v, struct canvas *c)
{
    int row, col, high, wide;
    const struct job *j = view_target(v);
    box(c, ACTIONS + 3, 70, &row, &col, &high, &wide);
    canvas_bar(c, row, col, wide, ROLE_TITLE, " %s: what?", v->target);
    for (int i = 0; i < ACTIONS && i + 1 < high; i++) {
        char statement[128];
        const char *refused = view_action_refused(j, (enum action_id)i);
        snprintf(statement, sizeof statement, "kc %s %s", action_rows[i].verb, v->target);
        canvas_bar(c, row + 1 + i, col, wide, i == v->menu_at ? ROLE_CURSOR : refused ? ROLE_DIM : ROLE_NORMAL,
                   "%s %-32s %s", i == v->menu_at ? ">" : " ", statement, refused ? refused : action_rows[i].shown);
    }
    if (ACTIONS + 1 < high)
        canvas_bar(c, row + ACTIONS + 1, col, wide, ROLE_NORMAL, "%s", "");
    if (ACTIONS + 2 < high)
        canvas_bar(c, row + ACTIONS + 2, col, wide, ROLE_DIM, " j k choose  Enter do  q leave it");
}

static void draw_question(struct view *v, struct canvas *c)
{
    int row, col, high, wide;
    box(c, 5, 70, &row, &col, &high, &wide);
    canvas_bar(c, row, col, wide, ROLE_TITLE, " kc %s", v->asked.statement);
    if (high > 1)
        canvas_bar(c, row + 1, col, wide, ROLE_NORMAL, " This will %s.", v->asked.shown);
    if (high > 2)
        canvas_bar(c, row + 2, col, wide, ROLE_NORMAL,
                   v->asked.tier == TIER_NAME ? " Type the job's name, %s, and Enter. Esc leaves it."
                                        : " Type yes and Enter. Esc leaves it.",
                   v->target_name);
    if (high > 3) {
        typing_draw(v, c, row + 3, col, wide, " > ");
    }
    if (high > 4)
        canvas_bar(c, row + 4, col, wide, ROLE_NORMAL, "%s", "");
}

/* What Esc does to the statement that runs: a bench's job is its own, and ends with it. */
static const char *esc_does(const char *line)
{
    line += strspn(line, " ");
    line += strncmp(line, "kc ", 3) ? 0 : 3;
    line += strspn(line, " ");
    return strncmp(line, "bench ", 6) ? "runs; Esc stops looking, the job goes on" : "runs; Esc ends the bench";
}

/* The statement and what came of it, in the lower half. */
static void draw_output(struct view *v, struct canvas *c)
{
    int want = v->output ? (int)v->output->count + 2 : 2, most = c->rows - 2 > 2 ? c->rows - 2 : c->rows;
    int high = want < most ? want : most, row = c->rows - high;
    if (v->output && v->output_back > (int)v->output->count - (high - 2))
        v->output_back = (int)v->output->count > high - 2 ? (int)v->output->count - (high - 2) : 0;
    canvas_erase(c, row, 0, high, c->cols);
    canvas_bar(c, row, 0, 0, ROLE_TITLE, " $ kc %s", v->line);
    if (v->output && high > 2) {
        struct canvas lines = canvas_part(c, row + 1, 0, high - 2, c->cols);
        view_draw_lines(v->output, &lines, v->output_back);
    }
    if (high > 1) {
        if (v->output_running)
            canvas_text(c, c->rows - 1, 0, 0, ROLE_DIM, "%s", esc_does(v->line));
        else
            canvas_text(c, c->rows - 1, 0, 0, v->output_code ? ROLE_WARN : ROLE_DIM,
                        "exit code %d; j k scroll, q goes back", v->output_code);
    }
}

void view_draw_overlay(struct view *v, struct canvas *c)
{
    if ((v->mode == MODE_LINE || v->mode == MODE_FIND) && v->tab.shown && v->tab.c.count != 1 && c->rows > 2)
        typing_draw_tab(v, c, c->rows - 2);
    if (v->mode == MODE_MENU)
        draw_menu(v, c);
    else if (v->mode == MODE_CONFIRM)
        draw_question(v, c);
    else if (v->mode == MODE_OUTPUT)
        draw_output(v, c);
}
