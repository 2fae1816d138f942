/* view_jobs.c - the list of jobs, newest first. The cursor belongs to a job, not to a row. */
#include "view.h"

#include "console/report.h"
#include "console/text.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum column_id { COLUMN_ID, COLUMN_STATE, COLUMN_STEP, COLUMN_LOSS, COLUMN_RATE, COLUMN_LEFT, COLUMN_RANKS, COLUMNS };

/* In the order in which they are kept when the screen narrows. */
static const struct {
    const char *head;
    int width;
    bool right;
} column[COLUMNS] = {
    [COLUMN_ID] = {"JOB", 20, false},   [COLUMN_STATE] = {"STATE", 12, false}, [COLUMN_STEP] = {"STEP", 13, true},
    [COLUMN_LOSS] = {"LOSS", 8, true},  [COLUMN_RATE] = {"TOK/S", 6, true},    [COLUMN_LEFT] = {"LEFT", 11, true},
    [COLUMN_RANKS] = {"RANKS", 5, true},
};

static void cell_text(const struct job *j, enum column_id id, char *out, size_t room)
{
    char state[32];
    switch (id) {
    case COLUMN_ID: snprintf(out, room, "%s", j->id); break;
    case COLUMN_STATE:
        report_state(j, state, sizeof state);
        snprintf(out, room, "%c %s", j->state < 0 ? '?' : kc_job_state_row[j->state].letter, state);
        break;
    case COLUMN_STEP:
        if (j->step < 0)
            snprintf(out, room, "-");
        else
            snprintf(out, room, "%lld/%lld", (long long)j->step, (long long)j->steps);
        break;
    case COLUMN_LOSS: text_number(j->loss, "%.4f", out, room); break;
    case COLUMN_RATE: text_rate(j->tokens_per_second, out, room); break;
    case COLUMN_LEFT: text_seconds(job_eta(j), out, room); break;
    case COLUMN_RANKS:
        if (j->ranks < 0)
            snprintf(out, room, "-");
        else
            snprintf(out, room, "%lld", (long long)j->ranks);
        break;
    case COLUMNS: break;
    }
}

static void draw_row(struct canvas *c, int row, const struct job *j, enum role role)
{
    int at = 2;
    for (int k = 0; k < COLUMNS && at < c->cols; k++) {
        char text[96];
        if (k > 0 && at + column[k].width > c->cols)
            break;
        if (j)
            cell_text(j, (enum column_id)k, text, sizeof text);
        else
            snprintf(text, sizeof text, "%s", column[k].head);
        int pad = column[k].right ? column[k].width - text_width(text) : 0;
        canvas_text(c, row, at + (pad > 0 ? pad : 0), column[k].width - (pad > 0 ? pad : 0), role, "%s", text);
        at += column[k].width + 1;
    }
}

static enum role role_of(const struct job *j)
{
    switch (j->state) {
    case KC_JOB_RUNNING: return ROLE_GOOD;
    case KC_JOB_FAILED: return ROLE_BAD;
    case KC_JOB_RESTARTING: case KC_JOB_INTERRUPTED: return ROLE_WARN;
    case KC_JOB_FINISHED: case KC_JOB_STOPPED: return ROLE_DIM;
    default: return ROLE_NORMAL;
    }
}

void view_draw_jobs(struct view *v, struct canvas *c)
{
    const int rows = c->rows;
    int row = 0;
    const struct model *m = v->model;
    const struct job *selected = view_job(v);
    if (!selected) {
        canvas_text(c, row, 2, 0, ROLE_NORMAL, "No jobs yet. Start one:");
        if (rows > 1)
            canvas_text(c, row + 1, 2, 0, ROLE_STRONG, ":start SPEC");
        return;
    }
    int list = rows, cursor = (int)(selected - m->job);
    if (rows >= 4) { /* with a head only where there is room for more than it */
        draw_row(c, row++, NULL, ROLE_DIM);
        list--;
    }
    v->page = list;
    if (cursor < v->jobs_top)
        v->jobs_top = cursor;
    if (cursor >= v->jobs_top + list)
        v->jobs_top = cursor - list + 1;
    if (v->jobs_top > (int)m->count - list)
        v->jobs_top = (int)m->count > list ? (int)m->count - list : 0;
    for (int i = 0; i < list && v->jobs_top + i < (int)m->count; i++) {
        const struct job *j = &m->job[v->jobs_top + i];
        if (j == selected)
            canvas_text(c, row + i, 0, 1, ROLE_CURSOR, ">"); /* seen without colour and without reverse */
        draw_row(c, row + i, j, j == selected ? ROLE_CURSOR : role_of(j));
    }
}

bool view_key_jobs(struct view *v, enum key_id key)
{
    const int by = key_moves(v, key);
    const struct job *j = view_job(v);
    if (!by || !j)
        return false;
    long at = j - v->model->job + by, last = (long)v->model->count - 1;
    at = at < 0 ? 0 : at > last ? last : at;
    snprintf(v->selected, sizeof v->selected, "%s", v->model->job[at].id);
    return true;
}
