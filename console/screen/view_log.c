/* view_log.c - what ranks printed, the newest at the bottom. */
#include "view.h"

#include <stdio.h>

void view_draw_log(struct view *v, struct canvas *c)
{
    const int rows = c->rows;
    if (v->replay.on) {
        canvas_text(c, 0, 2, 0, ROLE_DIM, "What ranks print is in their logs, not in a recording: kc log %s", v->selected);
        return;
    }
    if (!v->log || v->log->count == 0) {
        canvas_text(c, 0, 2, 0, ROLE_DIM, "Nothing was printed yet.");
        return;
    }
    if (v->log_back > (int)v->log->count - rows)
        v->log_back = (int)v->log->count > rows ? (int)v->log->count - rows : 0;
    view_draw_lines(v->log, c, v->log_back);
}

bool view_key_log(struct view *v, enum key_id key)
{
    const int by = key_moves(v, key), aside = key == KEY_ID_LEFT ? -1 : key == KEY_ID_RIGHT ? 1 : 0;
    const struct job *j = view_job(v);
    if (!by && !aside)
        return false;
    v->log_back = v->log_back - by < 0 ? 0 : v->log_back - by;
    v->log_rank += aside;
    if (v->log_rank < -1)
        v->log_rank = -1;
    if (j && j->ranks > 0 && v->log_rank >= j->ranks)
        v->log_rank = (int)j->ranks - 1;
    if (aside)
        snprintf(v->notice, sizeof v->notice, v->log_rank < 0 ? "log of all ranks" : "log of rank %d", v->log_rank);
    return true;
}
