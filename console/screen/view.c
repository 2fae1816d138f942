/* view.c - the frame around every view: title, the worst thing now, body, last line. */
#include "view.h"

#include "console/report.h"
#include "console/text.h"

#include "base/clock.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define ACTION_ROW(id, verb, shown, tier) [ACTION_##id] = {verb, shown, tier},
const struct action_row action_rows[ACTIONS] = {ACTION_TABLE(ACTION_ROW)};
#undef ACTION_ROW

static const char *const view_name[VIEWS] = {
    [VIEW_JOBS] = "jobs", [VIEW_JOB] = "job", [VIEW_RANKS] = "ranks", [VIEW_LOG] = "log", [VIEW_HELP] = "help",
};

#define LONG_WAIT 30.0 /* seconds: told on the second line, whatever the view */

const struct job *view_job(struct view *v)
{
    const struct model *m = v->model;
    if (!m || m->count == 0) {
        if (!v->only)
            v->selected[0] = 0;
        return NULL;
    }
    for (size_t i = 0; i < m->count; i++)
        if (!strcmp(m->job[i].id, v->selected))
            return &m->job[i];
    if (v->only)
        return NULL;
    snprintf(v->selected, sizeof v->selected, "%s", m->job[0].id); /* it was removed, or this is the first look */
    return &m->job[0];
}

const struct job *view_target(const struct view *v)
{
    for (size_t i = 0; v->model && i < v->model->count; i++)
        if (!strcmp(v->model->job[i].id, v->target))
            return &v->model->job[i];
    return NULL;
}

/* The worst thing to say about a job; "" if all is well. */
static enum role trouble_of(const struct job *j, char *out, size_t room)
{
    char seconds[32];
    *out = 0;
    if (!j)
        return ROLE_NORMAL;
    if (j->state == KC_JOB_FAILED) {
        snprintf(out, room, "! %s failed: %.400s", j->id,
                 *j->text ? j->text : *j->failure.reason ? j->failure.reason : "no reason was recorded");
        return ROLE_BAD;
    }
    if (j->board_error) {
        snprintf(out, room, "! %s", j->board_text);
        return ROLE_BAD;
    }
    if (j->board && !j->keeper_alive && !job_ended(j)) {
        snprintf(out, room, "! %s has lost its keeper: its ranks save and end, kcd starts it again", j->id);
        return ROLE_BAD;
    }
    if (!isnan(j->hangs)) {
        char hang[320];
        snprintf(out, room, "! %s %s", j->id, job_hang_text(j, hang, sizeof hang));
        return ROLE_BAD;
    }
    const struct job_rank *longest = NULL;
    for (size_t i = 0; i < j->ranks_known; i++) {
        const struct job_rank *r = &j->rank[i];
        if (r->wait.what > KC_WAIT_NONE && kc_wait_row[r->wait.what].kind == KC_WAIT_KIND_PEER &&
            r->wait.seconds > LONG_WAIT && (!longest || r->wait.seconds > longest->wait.seconds))
            longest = r;
    }
    if (longest) {
        snprintf(out, room, "! rank %d has waited in %s %s for %s [3]", longest->rank,
                 kc_wait_name[longest->wait.what], longest->wait.group,
                 text_seconds(longest->wait.seconds, seconds, sizeof seconds));
        return ROLE_WARN;
    }
    if (!isnan(j->restart_in)) {
        char again[96];
        snprintf(out, room, "! %s %s%s%.300s", j->id, job_restart_text(j, again, sizeof again), *j->text ? "; last: " : "", j->text);
        return ROLE_WARN;
    }
    if (j->restarts > 0) {
        snprintf(out, room, "%s was restarted %lld times%s%.400s", j->id, (long long)j->restarts,
                 *j->text ? "; last: " : "", j->text);
        return ROLE_WARN;
    }
    for (size_t i = 0; i < j->ranks_known; i++)
        if (report_straggles(&j->rank[i])) {
            char pace[160];
            report_pace(&j->rank[i], pace, sizeof pace);
            snprintf(out, room, "! rank %d is a %s [3]", j->rank[i].rank, pace);
            return ROLE_WARN;
        }
    return ROLE_NORMAL;
}

/* The time of a replay, which stays on every screen: what is left of it as that narrows. */
static void time_of_replay(const struct view *v, const struct job *j, int room, char *out, size_t size)
{
    char at[32], step[64] = "";
    kc_wall_text(v->replay.wall, at); /* 2025-11-30T03:12:40.123Z */
    if (j && j->step >= 0)
        snprintf(step, sizeof step, "step %lld/%lld  ", (long long)j->step, (long long)j->steps);
    snprintf(out, size, " %s%.10s %.10sZ ", step, at, at + 11);
    if (text_width(out) > room)
        snprintf(out, size, " %.10s %.10sZ ", at, at + 11);
    if (text_width(out) > room)
        snprintf(out, size, " %.10sZ ", at + 11);
}

static void draw_title(struct view *v, struct canvas *c, const struct job *j)
{
    char left[256], right[96] = "", age[32];
    enum view_id at = v->at;
    if (at == VIEW_JOBS || at == VIEW_HELP)
        snprintf(left, sizeof left, " kc %s %s  %s/%s", c->ascii ? ">" : "▸", view_name[at], v->host, v->instance);
    else
        snprintf(left, sizeof left, " %s %s %s  %s", j ? j->id : v->selected, c->ascii ? ">" : "▸", view_name[at],
                 j ? job_state_text(j) : "gone");
    if (at == VIEW_JOBS || at == VIEW_HELP)
        snprintf(right, sizeof right, v->kcd ? "kcd %d " : "no kcd: kcd --daemon ", v->kcd);
    else if (j && j->step >= 0)
        snprintf(right, sizeof right, "step %lld/%lld ", (long long)j->step, (long long)j->steps);
    if (v->age > 3)
        snprintf(right, sizeof right, "looked %s ago ", text_seconds(v->age, age, sizeof age));
    if (v->replay.on)
        time_of_replay(v, j, c->cols - text_width(left) - 1, right, sizeof right);
    int width = text_width(right);
    if (text_width(left) + width >= c->cols && (!v->replay.on || width >= c->cols))
        width = 0;
    canvas_bar(c, 0, 0, c->cols - width, ROLE_TITLE, "%s", left);
    if (width)
        canvas_text(c, 0, c->cols - width, width, ROLE_TITLE, "%s", right);
}

static void draw_last_line(struct view *v, struct canvas *c)
{
    int row = c->rows - 1;
    if (v->mode == MODE_LINE) {
        int shown = text_width(v->line), from = 0;
        while (shown - from > c->cols - 3) /* the end is what is typed at */
            from++;
        const char *text = v->line;
        for (int i = 0; i < from && *text;) {
            unsigned code = 0;
            size_t n = text_character(text, strlen(text), &code);
            i += text_columns(code);
            text += n ? n : 1;
        }
        canvas_text(c, row, 0, 1, ROLE_STRONG, ":");
        int n = canvas_text(c, row, 1, 0, ROLE_NORMAL, "%s", text);
        c->cursor_row = row;
        c->cursor_col = 1 + n < c->cols ? 1 + n : c->cols - 1;
        return;
    }
    if (*v->notice) {
        canvas_text(c, row, 0, 0, ROLE_WARN, "%s", v->notice);
        return;
    }
    static const char *const hints[VIEWS] = {
        [VIEW_JOBS] = "Enter open  a actions  : statement  ? help  q leave",
        [VIEW_JOB] = "3 ranks  4 log  a actions  : statement  ? help  q back",
        [VIEW_RANKS] = "hjkl move  2 job  4 log  a actions  ? help  q back",
        [VIEW_LOG] = "jk scroll  G follow  hl rank  2 job  ? help  q back",
        [VIEW_HELP] = "jk scroll  q back",
    };
    static const char *const walks[VIEWS] = {
        [VIEW_JOB] = "[ ] moment  { } minute  < > trouble  0 $ ends  3 ranks  ? help  q leave",
        [VIEW_RANKS] = "[ ] moment  { } minute  < > trouble  0 $ ends  hjkl move  2 job  q back",
        [VIEW_LOG] = "2 job  3 ranks  ? help  q back",
        [VIEW_HELP] = "jk scroll  q back",
    };
    canvas_text(c, row, 0, 0, ROLE_DIM, "%s", (v->replay.on && walks[v->at] ? walks : hints)[v->at]);
}

/* Where in time a replay stands; what is wrong with the job, if anything is, stands behind it. */
static enum role place_in_replay(const struct view *v, enum role role, char *text, size_t room)
{
    char left[64] = "at the end", was[400];
    const uint64_t behind = v->replay.last > v->replay.wall ? v->replay.last - v->replay.wall : 0;
    snprintf(was, sizeof was, "%.399s", text);
    if (*was) {
        snprintf(text, room, "%u/%u  %s", v->replay.at + 1, v->replay.of, was);
        return role;
    }
    if (behind) {
        text_seconds((double)behind * 1e-9, was, sizeof was);
        snprintf(left, sizeof left, "%.40s before the end", was);
    }
    snprintf(text, room, "%u/%u  %s%s%s", v->replay.at + 1, v->replay.of, left, v->replay.minutes ? "; told by minutes" : "",
             v->replay.wrong ? "; something went wrong here" : "");
    return v->replay.wrong ? ROLE_WARN : ROLE_DIM;
}

static void draw_body(struct view *v, struct canvas *c, int row, int rows)
{
    v->page = rows;
    switch (v->at) {
    case VIEW_JOBS: view_draw_jobs(v, c, row, rows); break;
    case VIEW_JOB: view_draw_job(v, c, row, rows); break;
    case VIEW_RANKS: view_draw_ranks(v, c, row, rows); break;
    case VIEW_LOG: view_draw_log(v, c, row, rows); break;
    case VIEW_HELP: view_draw_help(v, c, row, rows); break;
    case VIEWS: break;
    }
}

void view_draw(struct view *v, struct canvas *c)
{
    char trouble[512];
    const struct job *j = view_job(v);
    int top = 1, bottom = c->rows;
    canvas_clear(c);
    draw_title(v, c, j);
    if (c->rows >= 3) {
        bottom--;
        draw_last_line(v, c);
    }
    enum role role = trouble_of(v->at == VIEW_HELP ? NULL : j, trouble, sizeof trouble);
    if (v->replay.on && v->at != VIEW_HELP)
        role = place_in_replay(v, role, trouble, sizeof trouble);
    if (*v->trouble) {
        role = ROLE_BAD;
        snprintf(trouble, sizeof trouble, "! %s", v->trouble);
    }
    if (c->rows >= 5) { /* the line stays, empty when all is well: the rest does not jump */
        canvas_text(c, top, 0, 0, role, "%s", trouble);
        top++;
    }
    if (bottom > top)
        draw_body(v, c, top, bottom - top);
    view_draw_overlay(v, c);
}

void view_draw_lines(const struct lines *l, struct canvas *c, int row, int rows, int back)
{
    size_t end = l->count > (size_t)back ? l->count - (size_t)back : 0;
    size_t first = end > (size_t)rows ? end - (size_t)rows : 0;
    for (size_t i = first; i < end; i++)
        canvas_text(c, row + (int)(i - first), 0, 0, ROLE_NORMAL, "%s", lines_at(l, i));
}
