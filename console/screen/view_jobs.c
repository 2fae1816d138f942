/* view_jobs.c - the list of jobs, newest first. The cursor belongs to a job, not to a row. */
#include "sparkline.h"
#include "view.h"

#include "console/events.h"
#include "console/report.h"
#include "console/text.h"
#include "console/trend.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* In the order in which they are kept when the screen narrows. */
enum column_id {
    COLUMN_ID,
    COLUMN_STATE,
    COLUMN_SHARE,
    COLUMN_STEP,
    COLUMN_LEFT,
    COLUMN_LOSS,
    COLUMN_RATE,
    COLUMN_AGE,
    COLUMN_RANKS,
    COLUMN_SAVED,
    COLUMN_CURVE,
    COLUMN_SAYS,
    COLUMNS
};
#define CURVE 12 /* columns of the whole run's losses */
static const struct list_column column[COLUMNS] = {
    [COLUMN_ID] = {"JOB", "id", LIST_BETWEEN(18, 40), false},
    [COLUMN_STATE] = {"STATE", "state", 12, false},
    [COLUMN_SHARE] = {"%", "done", 4, true},
    [COLUMN_STEP] = {"STEP", "step", 13, true},
    [COLUMN_LEFT] = {"LEFT", "left_seconds", 5, true},
    [COLUMN_LOSS] = {"LOSS", "loss", 7, true},
    [COLUMN_RATE] = {"TOK/S", "tokens_per_second", 6, true},
    [COLUMN_AGE] = {"AGE", "unchanged_seconds", 5, true},
    [COLUMN_RANKS] = {"RANKS", "ranks", 5, true},
    [COLUMN_SAVED] = {"SAVED", "snapshot", 8, true},
    [COLUMN_CURVE] = {"LOSSES", "losses", CURVE, false},
    [COLUMN_SAYS] = {"LAST", "last", LIST_REST(20), false},
};

/* A board that can't be read or has lost its keeper says so instead of a state that may not be so any more. */
static void state_text(const struct job *j, char *out, size_t room)
{
    char state[32];
    report_state(j, state, sizeof state);
    if (j->board_error)
        snprintf(out, room, "? no board");
    else if (j->board && !j->keeper_alive && !job_ended(j))
        snprintf(out, room, "? no keeper");
    else
        snprintf(out, room, "%c %s", j->state < 0 ? '?' : kc_job_state_row[j->state].letter, state);
}

static double whole(int64_t n)
{
    return n < 0 ? NAN : (double)n;
}

static double number_of(const struct job *j, enum column_id id)
{
    switch (id) {
    case COLUMN_SHARE: return j->step < 0 || j->steps <= 0 ? NAN : (double)j->step / (double)j->steps;
    case COLUMN_STEP: return whole(j->step);
    case COLUMN_LEFT: return job_eta(j);
    case COLUMN_LOSS: return j->loss;
    case COLUMN_RATE: return j->tokens_per_second;
    case COLUMN_AGE: return job_unchanged(j);
    case COLUMN_RANKS: return whole(j->ranks);
    case COLUMN_SAVED: return whole(j->snapshot.step);
    default: return NAN;
    }
}

static void number_text(const struct job *j, enum column_id id, double n, char *out, size_t room)
{
    switch (id) {
    case COLUMN_SHARE: text_number(floor(n * 100), "%.0f%%", out, room); break;
    case COLUMN_STEP: snprintf(out, room, j->steps > 0 ? "%.0f/%lld" : "%.0f", n, (long long)j->steps); break;
    case COLUMN_LEFT: case COLUMN_AGE: text_brief(n, out, room); break;
    case COLUMN_LOSS: text_number(n, fabs(n) < 100 ? "%.4f" : "%.4g", out, room); break;
    case COLUMN_RATE: text_rate(n, out, room); break;
    default: text_number(n, "%.0f", out, room); break;
    }
}

/* What to know of a job that its figures do not tell. */
static enum role says(const struct view *v, const struct job *j, char *out, size_t room)
{
    char first[320];
    *out = 0;
    if (j->board_error)
        snprintf(out, room, "%s", j->board_text);
    else if (j->board && !j->keeper_alive && !job_ended(j))
        snprintf(out, room, "its keeper is gone: it saves and ends, kcd starts it again");
    else if (!isnan(j->hangs))
        job_hang_text(j, out, room);
    else if (j->state == KC_JOB_FAILED || j->state == KC_JOB_INTERRUPTED)
        snprintf(out, room, "%s", *j->text ? j->text : j->failure.reason);
    if (*out)
        return ROLE_BAD;
    if (j->state == KC_JOB_QUEUED)
        view_waits(v, j, out, room);
    else if (!isnan(j->restart_in))
        snprintf(out, room, "%s%s%s", job_restart_text(j, first, sizeof first), *j->text ? "; last: " : "", j->text);
    else if (*j->unsaved)
        snprintf(out, room, "snapshot failed: %s", j->unsaved);
    else if (*j->text)
        snprintf(out, room, "%s%s", j->restarts > 0 ? "came back from: " : "", j->text);
    return *out ? ROLE_WARN : ROLE_NORMAL;
}

/* That, or the last that happened. */
static enum role last(const struct view *v, const struct job *j, char *out, size_t room)
{
    const enum role role = says(v, j, out, room);
    const struct event_line *l = !*out && v->newest ? events_newest_known(v->newest, j->id) : NULL;
    if (l)
        event_line_text(l, out, room);
    return role;
}

static void curve(const struct view *v, const struct job *j, struct list_cell *out)
{
    char text[SPARKLINE_ROOM];
    const struct trend *t = v->trends ? trends_find(v->trends, j->id) : NULL;
    out->unknown = !t || !t->count;
    if (out->unknown)
        snprintf(out->text, sizeof out->text, "-");
    else
        snprintf(out->text, sizeof out->text, "%.159s", sparkline(t->loss, t->count, CURVE, v->plain, text));
}

static enum role role_of(const struct job *j)
{
    if (!isnan(j->hangs) || j->board_error)
        return ROLE_BAD;
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
    const struct view *v = self;
    snprintf(out, LIST_ID, "%s", v->model->job[row].id);
}

static void job_cell(const void *self, size_t row, int k, struct list_cell *out)
{
    const struct view *v = self;
    const struct job *j = &v->model->job[row];
    char text[1024];
    out->role = role_of(j);
    if (k == COLUMN_ID) {
        snprintf(out->text, sizeof out->text, "%s", j->id);
    } else if (k == COLUMN_STATE) {
        state_text(j, out->text, sizeof out->text);
        snprintf(out->value, sizeof out->value, "%s", isnan(j->hangs) ? job_state_text(j) : "hangs");
    } else if (k == COLUMN_SAYS) {
        out->role = last(v, j, text, sizeof text);
        out->unknown = !*text;
        snprintf(out->text, sizeof out->text, "%.159s", *text ? text : "-");
    } else if (k == COLUMN_CURVE) {
        curve(v, j, out);
    } else {
        out->number = number_of(j, (enum column_id)k);
        out->unknown = isnan(out->number);
        number_text(j, (enum column_id)k, out->number, out->text, sizeof out->text);
        if (out->unknown && k == COLUMN_STEP && j->steps > 0)
            snprintf(out->text, sizeof out->text, "-/%lld", (long long)j->steps);
        else if (out->unknown)
            snprintf(out->text, sizeof out->text, "-");
        if (k == COLUMN_SAVED && *j->unsaved)
            out->role = ROLE_WARN;
    }
}

bool view_source_jobs(struct view *v, struct list_source *out)
{
    *out = (struct list_source){v, v->model ? v->model->count : 0, column, COLUMNS, job_id, job_cell};
    return out->rows > 0;
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

/* What does not fit into the list is said below it, of the job under the cursor. */
static void draw_below(struct view *v, const struct list_source *s, struct canvas *c)
{
    char text[1024];
    const size_t row = list_row(&v->list[VIEW_JOBS], s);
    if (row == SIZE_MAX)
        return;
    const enum role role = last(v, &v->model->job[row], text, sizeof text);
    canvas_line(c, c->rows - 1, 2, role, "%s", text);
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
    v->plain = c->ascii;
    const bool below = c->rows >= 6 && list_columns_shown(&s, c->cols) < COLUMNS;
    struct canvas rows = canvas_part(c, 0, 0, c->rows - below, c->cols);
    list_draw(&v->list[VIEW_JOBS], &s, &rows, v->now);
    if (below)
        draw_below(v, &s, c);
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
