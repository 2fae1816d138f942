/* view_log.c - what ranks printed, the newest at the bottom. */
#include "view.h"

void view_draw_log(struct view *v, struct canvas *c, int row, int rows)
{
    if (v->replay.on) {
        canvas_text(c, row, 2, 0, ROLE_DIM, "What ranks print is in their logs, not in a recording: kc log %s", v->selected);
        return;
    }
    if (!v->log || v->log->count == 0) {
        canvas_text(c, row, 2, 0, ROLE_DIM, "Nothing was printed yet.");
        return;
    }
    if (v->log_back > (int)v->log->count - rows)
        v->log_back = (int)v->log->count > rows ? (int)v->log->count - rows : 0;
    view_draw_lines(v->log, c, row, rows, v->log_back);
}
