/* view_jobs.c - the list of jobs, newest first. The cursor belongs to a job, not to a row. */
#include "view.h"

#include "console/report.h"
#include "console/text.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum column_id { COLUMN_ID, COLUMN_STATE, COLUMN_STEP, COLUMN_LOSS, COLUMN_RATE, COLUMN_LEFT, COLUMN_RANKS, COLUMNS };

static const struct list_column column[COLUMNS] = {
    [COLUMN_ID] = {"JOB", "id", 20, false},         [COLUMN_STATE] = {"STATE", "state", 12, false},
    [COLUMN_STEP] = {"STEP", "step", 13, true},     [COLUMN_LOSS] = {"LOSS", "loss", 8, true},
    [COLUMN_RATE] = {"TOK/S", "tokens_per_second", 6, true},
    [COLUMN_LEFT] = {"LEFT", "eta_seconds", 11, true},
    [COLUMN_RANKS] = {"RANKS", "ranks", 5, true},
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

static void job_id(const void *self, size_t row, char out[LIST_ID])
{
    const struct model *m = self;
    snprintf(out, LIST_ID, "%s", m->job[row].id);
}

static double number_of(const struct job *j, enum column_id id)
{
    switch (id) {
    case COLUMN_STEP: return j->step < 0 ? NAN : (double)j->step;
    case COLUMN_LOSS: return j->loss;
    case COLUMN_RATE: return j->tokens_per_second;
    case COLUMN_LEFT: return job_eta(j);
    case COLUMN_RANKS: return j->ranks < 0 ? NAN : (double)j->ranks;
    default: return NAN;
    }
}

static void job_cell(const void *self, size_t row, int k, struct list_cell *out)
{
    const struct job *j = &((const struct model *)self)->job[row];
    cell_text(j, (enum column_id)k, out->text, sizeof out->text);
    if (k == COLUMN_STATE)
        snprintf(out->value, sizeof out->value, "%s", job_state_text(j));
    out->number = number_of(j, (enum column_id)k);
    out->unknown = k > COLUMN_STATE && isnan(out->number);
    out->role = role_of(j);
}

bool view_source_jobs(struct view *v, struct list_source *out)
{
    static const struct model none;
    const struct model *m = v->model ? v->model : &none;
    *out = (struct list_source){m, m->count, column, COLUMNS, job_id, job_cell};
    return m->count > 0;
}

/* The cursor is on the selected job. While one walks in the list, one that it hides is not selected. */
static void follow(struct view *v)
{
    struct list *l = &v->list[VIEW_JOBS];
    struct list_source s;
    view_source_jobs(v, &s);
    snprintf(l->cursor, sizeof l->cursor, "%s", v->selected);
    const size_t row = list_row(l, &s);
    if (row != SIZE_MAX && view_active(v) == VIEW_JOBS)
        snprintf(v->selected, sizeof v->selected, "%s", v->model->job[row].id);
}

void view_draw_jobs(struct view *v, struct canvas *c)
{
    struct list_source s;
    if (!view_source_jobs(v, &s)) {
        canvas_text(c, 0, 2, 0, ROLE_NORMAL, "No jobs yet. Start one:");
        if (c->rows > 1)
            canvas_text(c, 1, 2, 0, ROLE_STRONG, ":start SPEC");
        return;
    }
    follow(v);
    list_draw(&v->list[VIEW_JOBS], &s, c, v->now);
}

bool view_key_jobs(struct view *v, enum key_id key)
{
    struct list_source s;
    follow(v);
    if ((key == KEY_ID_ENTER || key == KEY_ID_ACTIONS) && view_source_jobs(v, &s) &&
        list_row(&v->list[VIEW_JOBS], &s) == SIZE_MAX) {
        snprintf(v->notice, sizeof v->notice, "the filter leaves no job; Esc shows all");
        return true;
    }
    if (!view_list_key(v, VIEW_JOBS, key))
        return false;
    snprintf(v->selected, sizeof v->selected, "%.63s", v->list[VIEW_JOBS].cursor);
    return true;
}
