/* view_help.c - the help, made of the tables that the program runs on: keys.def, states.def, commands.def. */
#include "view.h"

#include "console/command.h"

#include <stdio.h>

#define HELP_ROOM 256

struct page {
    struct canvas *c;
    int row, rows, skip, line; /* `line`: of the whole text */
};

static void put(struct page *p, enum role role, const char *left, const char *right)
{
    int at = p->line++ - p->skip;
    if (at < 0 || at >= p->rows)
        return;
    int n = canvas_text(p->c, p->row + at, 0, 0, role, "%s", left);
    if (right)
        canvas_text(p->c, p->row + at, n < 15 ? 15 : n + 1, 0, ROLE_NORMAL, "%s", right);
}

static void letters(struct page *p, const char *title, const struct kc_state_row *row, const char *const *name,
                    int count)
{
    char left[HELP_ROOM];
    put(p, ROLE_NORMAL, "", NULL);
    put(p, ROLE_STRONG, title, NULL);
    for (int i = 0; i < count; i++) {
        snprintf(left, sizeof left, " %c %s", row[i].letter, name[i]);
        put(p, ROLE_NORMAL, left, row[i].help);
    }
}

static void write_page(struct page *p)
{
    char left[HELP_ROOM];
    put(p, ROLE_STRONG, "Keys", NULL);
    for (int i = 0; i < KEY_IDS; i++) {
        snprintf(left, sizeof left, " %s", key_rows[i].shown);
        put(p, ROLE_NORMAL, left, key_rows[i].help);
    }
    put(p, ROLE_NORMAL, "", NULL);
    put(p, ROLE_STRONG, "Statements, after `:` as on the command line", NULL);
    for (size_t i = 0; i < commands_count; i++) {
        snprintf(left, sizeof left, " %s %s", commands[i].verb, commands[i].arguments);
        put(p, ROLE_NORMAL, left, commands[i].summary);
    }
    letters(p, "Letters of ranks: what they are in", kc_phase_row, kc_phase_name, KC_PHASES);
    letters(p, "or, while they do not run", kc_rank_state_row, kc_rank_state_name, KC_RANK_STATES);
    letters(p, "States of jobs", kc_job_state_row, kc_job_state_name, KC_JOB_STATES);
}

void view_draw_help(struct view *v, struct canvas *c)
{
    const int rows = c->rows;
    struct page count = {.c = c, .rows = 0};
    write_page(&count); /* draws nothing: how long is it? */
    if (v->help_top > count.line - rows)
        v->help_top = count.line > rows ? count.line - rows : 0;
    struct page p = {.c = c, .rows = rows, .skip = v->help_top};
    write_page(&p);
}

bool view_key_help(struct view *v, enum key_id key)
{
    const int by = key_moves(v, key);
    v->help_top = v->help_top + by < 0 ? 0 : v->help_top + by;
    return by != 0;
}
