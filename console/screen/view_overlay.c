/* view_overlay.c - what lies over a view: the menu of actions, a question, the output of a statement. */
#include "view.h"

#include "console/text.h"

#include <stdio.h>
#include <string.h>

/* A box in the middle, as large as it may be; returns its corner. */
static void box(struct canvas *c, int rows, int cols, int *row, int *col, int *high, int *wide)
{
    *high = rows < c->rows ? rows : c->rows;
    *wide = cols < c->cols ? cols : c->cols;
    *row = (c->rows - *high) / 2;
    *col = (c->cols - *wide) / 2;
    canvas_erase(c, *row, *col, *high, *wide);
}

/* "quickstart-2", or "3 jobs: a-1 b-1 c-1". */
static void name_targets(const struct action_choice *a, char *out, size_t room)
{
    static const char *const what[] = {[MENU_JOB] = "jobs", [MENU_SNAPSHOT] = "snapshots", [MENU_NODE] = "devices"};
    size_t n = 0;
    if (a->targets <= 1) {
        snprintf(out, room, "%s", a->targets ? a->target[0].id : a->job.id);
        return;
    }
    n = (size_t)snprintf(out, room, "%d %s:", a->targets, what[a->menu]);
    for (int i = 0; i < a->targets && n < room; i++)
        n += (size_t)snprintf(out + n, room - n, " %s", a->target[i].id);
}

/* A row: the statement, and what it does, or why it may not be done. */
static void draw_action(struct view *v, struct canvas *c, int row, int col, int wide, enum action_id id, bool chosen)
{
    static char statements[sizeof v->act.statement];
    char what[160], why[128];
    int left, n = actions_statements(v, id, statements, sizeof statements, &left, why, sizeof why);
    const struct action_row *r = &action_rows[id];
    if (n == 1 && !left)
        snprintf(what, sizeof what, "%.120s", statements);
    else if (n + left > 1)
        snprintf(what, sizeof what, "%s%s, %d of %d", r->verb, r->behind, n, n + left);
    else
        snprintf(what, sizeof what, "%s %.100s%s", r->verb,
                 v->act.targets == 1 && (r->on != ON_JOB || v->act.menu == MENU_JOB) ? v->act.target[0].id : v->act.job.id, r->behind);
    const char *shown = n ? r->shown : *why ? why : "no row is selected";
    canvas_bar(c, row, col, wide, chosen ? ROLE_CURSOR : n ? ROLE_NORMAL : ROLE_DIM, "%s kc %-29s %s",
               chosen ? ">" : " ", what, shown);
}

static void draw_menu(struct view *v, struct canvas *c)
{
    int row, col, high, wide;
    char title[400];
    enum action_id id[ACTIONS];
    const int rows = actions_of_menu(v, id);
    name_targets(&v->act, title, sizeof title);
    box(c, rows + 3, 70, &row, &col, &high, &wide);
    canvas_bar(c, row, col, wide, ROLE_TITLE, " %s: what?", title);
    for (int i = 0; i < rows && i + 1 < high; i++)
        draw_action(v, c, row + 1 + i, col, wide, id[i], i == v->act.at);
    if (rows + 1 < high)
        canvas_bar(c, row + rows + 1, col, wide, ROLE_NORMAL, "%s", "");
    if (rows + 2 < high)
        canvas_bar(c, row + rows + 2, col, wide, ROLE_DIM, " j k choose  Enter do  q leave it");
}

/* The n-th of lines. */
static void nth_line(const char *text, int n, char *out, size_t room)
{
    while (n-- > 0 && *text)
        text += strcspn(text, "\n") + (text[strcspn(text, "\n")] != 0);
    snprintf(out, room, "%.*s", (int)strcspn(text, "\n"), text);
}

/* All statements, as many as there is room for, then what they do and what must be typed. */
static void draw_question(struct view *v, struct canvas *c)
{
    const struct action_choice *a = &v->act;
    int row, col, high, wide, at, lines = a->statements;
    char text[LINE_ROOM + 64], wanted[sizeof a->target[0].id];
    if (lines > c->rows - 6)
        lines = c->rows - 6 > 1 ? c->rows - 6 : 1;
    box(c, lines + 4, 70, &row, &col, &high, &wide);
    at = row;
    for (int i = 0; i < lines && i < high; i++) {
        nth_line(a->statement, i, text, sizeof text);
        if (i == lines - 1 && lines < a->statements)
            snprintf(text, sizeof text, "... and %d more", a->statements - i);
        canvas_bar(c, at++, col, wide, ROLE_TITLE, a->statements == 1 || strncmp(text, "...", 3) ? " kc %s" : " %s", text);
    }
    actions_wanted(v, wanted, sizeof wanted);
    if (at < row + high && a->left)
        canvas_bar(c, at++, col, wide, ROLE_NORMAL, " This will %s (%d left out).", a->shown, a->left);
    else if (at < row + high)
        canvas_bar(c, at++, col, wide, ROLE_NORMAL, " This will %s.", a->shown);
    if (at < row + high)
        canvas_bar(c, at++, col, wide, ROLE_NORMAL, a->tier == TIER_ID && a->statements == 1
                   ? " Type the job's id, %s, and Enter. Esc leaves it." : " Type %s and Enter. Esc leaves it.", wanted);
    if (at < row + high) {
        typing_draw(v, c, at++, col, wide, " > ");
    }
    if (at < row + high)
        canvas_bar(c, at, col, wide, ROLE_NORMAL, "%s", "");
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
    if (strchr(v->run, '\n'))
        canvas_bar(c, row, 0, 0, ROLE_TITLE, " $ %d statements", v->act.statements);
    else
        canvas_bar(c, row, 0, 0, ROLE_TITLE, " $ kc %s", v->run);
    if (v->output && high > 2) {
        struct canvas lines = canvas_part(c, row + 1, 0, high - 2, c->cols);
        view_draw_lines(v->output, &lines, v->output_back);
    }
    if (high > 1) {
        if (v->output_running)
            canvas_text(c, c->rows - 1, 0, 0, ROLE_DIM, "%s", esc_does(v->run));
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
