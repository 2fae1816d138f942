/* panes.c */
#include "panes.h"

#include <stdio.h>

struct panes panes_of(const struct view *v)
{
    struct panes p = {.view = {[PANE_MAIN] = v->at, [PANE_BESIDE] = v->at, [PANE_LOG] = VIEW_LOG}};
    const struct view_kind *k = &view_kinds[v->at];
    const bool jobs = v->model && v->model->count;
    if (v->at == VIEW_HELP || !jobs)
        return p;
    p.left = k->up != v->at && (view_kinds[k->up].of_job || !v->only);
    p.view[PANE_BESIDE] = p.left ? k->up : k->down;
    p.beside = p.view[PANE_BESIDE] != v->at;
    p.log = v->at != VIEW_LOG && v->at != VIEW_NODE;
    return p;
}

struct layout panes_layout(const struct view *v)
{
    const struct panes p = panes_of(v);
    return layout_make(v->rows > 0 ? v->rows : 1, v->cols > 0 ? v->cols : 1, p.beside, p.left, p.log);
}

enum view_id view_active(const struct view *v)
{
    const struct layout l = panes_layout(v);
    return l.box[v->pane].rows > 0 ? panes_of(v).view[v->pane] : v->at;
}

unsigned panes_needs(const struct view *v)
{
    const struct layout l = panes_layout(v);
    const struct panes p = panes_of(v);
    unsigned needs = view_kinds[v->at].needs;
    for (int i = PANE_MAIN + 1; i < PANES; i++)
        if (l.box[i].rows > 0)
            needs |= view_kinds[p.view[i]].needs;
    return needs;
}

void panes_next(struct view *v)
{
    const struct layout l = panes_layout(v);
    const enum pane before = v->pane;
    do
        v->pane = (enum pane)((v->pane + 1) % PANES);
    while (v->pane != PANE_MAIN && l.box[v->pane].rows <= 0);
    if (v->pane == before)
        snprintf(v->notice, sizeof v->notice, "there is one part: more stand on a window of 140 columns");
}

/* A line with the name in it, in brackets if it has the keys. */
static void draw_head(const struct view *v, struct canvas *c, const struct box *b, enum view_id at, bool active)
{
    char rank[24] = "", name[64];
    if (b->rows <= 0)
        return;
    if (at == VIEW_LOG && v->log_rank >= 0)
        snprintf(rank, sizeof rank, " of rank %d", v->log_rank);
    snprintf(name, sizeof name, active ? "[%s%s]" : " %s%s ", view_kinds[at].name, rank);
    canvas_put(c, b->row, b->col, ROLE_DIM, 0x2500, '-');
    const int n = b->cols > 1 ? canvas_text(c, b->row, b->col + 1, b->cols - 1, active ? ROLE_STRONG : ROLE_DIM, "%s", name) : 0;
    for (int i = 1 + n; i < b->cols; i++)
        canvas_put(c, b->row, b->col + i, ROLE_DIM, 0x2500, '-');
}

void panes_draw(struct view *v, struct canvas *c, const struct layout *l)
{
    const struct panes p = panes_of(v);
    int page = v->page;
    for (int i = 0; i < PANES; i++) {
        const struct box *b = &l->box[i];
        if (b->rows <= 0)
            continue;
        draw_head(v, c, &l->head[i], p.view[i], (enum pane)i == v->pane);
        struct canvas part = canvas_part(c, b->row, b->col, b->rows, b->cols);
        v->page = b->rows;
        view_kinds[p.view[i]].draw(v, &part);
        if ((enum pane)i == v->pane)
            page = v->page;
    }
    v->page = page;
    for (int i = 0; i < l->rule.rows; i++)
        canvas_put(c, l->rule.row + i, l->rule.col, ROLE_DIM, 0x2502, '|');
}
