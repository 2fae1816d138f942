/* view_comm.c */
#include "view.h"

void view_draw_comm(struct view *v, struct canvas *c)
{
    (void)v;
    canvas_text(c, 0, 2, 0, ROLE_DIM, "Communication is not shown here yet.");
}

bool view_key_comm(struct view *v, enum key_id key)
{
    (void)v;
    (void)key;
    return false;
}
