/* view.c - the table of views, and how one comes to the screen. */
#include "panes.h"
#include "view.h"

#include <stdio.h>
#include <string.h>

#define VIEW(id, name, function, of_job, up, down, needs, source, find, hints, walks)                                  \
    [VIEW_##id] = {name,  of_job, VIEW_##up,            VIEW_##down,         needs,                                    \
                   hints, walks,  view_draw_##function, view_key_##function, source, find},
const struct view_kind view_kinds[VIEWS] = {
#include "views.def"
};
#undef VIEW

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
    struct list_source s; /* it was removed, or this is the first look */
    view_source_jobs(v, &s);
    const size_t row = list_row(&v->list[VIEW_JOBS], &s);
    const struct job *next = &m->job[row < m->count ? row : 0];
    snprintf(v->selected, sizeof v->selected, "%s", next->id);
    return next;
}

const struct job *view_job_by(const struct view *v, const char *id)
{
    for (size_t i = 0; v->model && i < v->model->count; i++)
        if (!strcmp(v->model->job[i].id, id))
            return &v->model->job[i];
    return NULL;
}

const char *view_waits(const struct view *v, const struct job *j, char *out, size_t room)
{
    snprintf(out, room, "%s", *j->waits ? j->waits : "waits for devices");
    for (size_t i = 0; v->model && !*j->waits && j->queue > 1 && i < v->model->count; i++)
        if (v->model->job[i].state == KC_JOB_QUEUED && v->model->job[i].queue == j->queue - 1)
            snprintf(out, room, "waits for its turn, behind %s", v->model->job[i].id);
    return out;
}

void view_go(struct view *v, enum view_id to)
{
    v->pane = PANE_MAIN;
    if (to == VIEW_HELP) {
        if (v->at != VIEW_HELP)
            v->before_help = v->at;
        v->help_top = 0;
        v->at = to;
    } else if (!view_kinds[to].of_job && v->only) {
        snprintf(v->notice, sizeof v->notice, "this is `kc %s`: q leaves; the %s is in plain `kc`",
                 v->replay.on ? "replay" : "watch", to == VIEW_JOBS ? "list of jobs" : view_kinds[to].name);
    } else if (!view_kinds[to].of_job || view_job(v)) {
        v->at = to;
    }
}

void view_draw(struct view *v, struct canvas *c)
{
    const struct job *j = view_job(v);
    v->rows = c->rows;
    v->cols = c->cols;
    const struct layout l = panes_layout(v);
    if (l.box[v->pane].rows <= 0)
        v->pane = PANE_MAIN;
    canvas_clear(c);
    panes_draw(v, c, &l);
    frame_draw_title(v, c, j, &l); /* which says what was left out */
    if (l.last >= 0)
        frame_draw_last(v, c);
    if (l.trouble >= 0) /* the line stays, empty when all is well: the rest does not jump */
        frame_draw_trouble(v, c, l.trouble, j);
    view_draw_overlay(v, c);
}

void view_draw_lines(const struct lines *l, struct canvas *c, int back)
{
    size_t end = l->count > (size_t)back ? l->count - (size_t)back : 0;
    size_t first = end > (size_t)c->rows ? end - (size_t)c->rows : 0;
    for (size_t i = first; i < end; i++)
        canvas_text(c, (int)(i - first), 0, 0, ROLE_NORMAL, "%s", lines_at(l, i));
}
