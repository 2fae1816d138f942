/* view_snapshots.c */
#include "view.h"

void view_draw_snapshots(struct view *v, struct canvas *c)
{
    (void)v;
    canvas_text(c, 0, 2, 0, ROLE_DIM, "Snapshots is not shown here yet.");
}

bool view_key_snapshots(struct view *v, enum key_id key)
{
    (void)v;
    (void)key;
    return false;
}
