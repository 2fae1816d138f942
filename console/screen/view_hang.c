/* view_hang.c */
#include "view.h"

void view_draw_hang(struct view *v, struct canvas *c)
{
    (void)v;
    canvas_text(c, 0, 2, 0, ROLE_DIM, "The diagnosis is not shown here yet.");
}

bool view_key_hang(struct view *v, enum key_id key)
{
    (void)v;
    (void)key;
    return false;
}
