/* panes.h - the views that stand on the screen at once: the one that one is at, its neighbour, and the log below. */
#ifndef KC_CONSOLE_SCREEN_PANES_H
#define KC_CONSOLE_SCREEN_PANES_H

#include "layout.h"
#include "view.h"

/* What stands beside the view that one is at, where there is room: what it was come from, on the left; else what it leads to. */
struct panes {
    enum view_id view[PANES];
    bool beside, left, log; /* wanted */
};
struct panes panes_of(const struct view *v);
/* Where they stand on the screen as it was last drawn. */
struct layout panes_layout(const struct view *v);
/* What the views on the screen need. */
unsigned panes_needs(const struct view *v);
void panes_draw(struct view *v, struct canvas *c, const struct layout *l);
/* To the next that is there: it has the keys now. */
void panes_next(struct view *v);

#endif
