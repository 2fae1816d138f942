/* list_impl.h - what list.c and list_draw.c share. */
#ifndef KC_CONSOLE_SCREEN_LIST_IMPL_H
#define KC_CONSOLE_SCREEN_LIST_IMPL_H

#include "list.h"

/* Rows as they are shown. */
struct shown {
    size_t *row;
    size_t count, cursor; /* cursor: place; SIZE_MAX: nothing is shown */
};

/* As they are now, and the cursor among them, which is put where one is. 0, -ENOMEM. out->row is the caller's. */
int list_look(struct list *l, const struct list_source *s, struct shown *out);
struct list_cell list_cell_of(const struct list_source *s, size_t row, int column);

#endif
