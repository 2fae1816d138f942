/* look_hang.c - asks `kc hang` and `kc stack` about the selected job: when it is first shown, with R, and in a replay at each
 * moment that one stays at. */
#include "screen_impl.h"

#include "console/words.h"

#include <stdio.h>
#include <string.h>

/* The recording itself, at the moment: a millisecond is told, so the next one is taken. */
static void statement_of(struct screen *x, const struct job *j, char *out, size_t room)
{
    char path[900], at[32];
    if (!x->replay) {
        snprintf(out, room, "hang %s", j->id);
        return;
    }
    words_quote(x->replay->path, path, sizeof path);
    kc_wall_text(x->replay->wall + KC_MILLISECOND - 1, at);
    snprintf(out, room, "hang %s --at %s", path, at);
}

void look_hang(struct screen *x, const struct job *j)
{
    struct look_hang *h = &x->hang;
    char statement[1024];
    statement_of(x, j, statement, sizeof statement);
    if (answer_read(&h->hang) && !x->replay && !h->hang.pid) { /* one after the other: the second makes the first wait */
        char stack[JOB_ID_ROOM + 16];
        snprintf(stack, sizeof stack, "stack %s", j->id);
        answer_ask(&h->stack, stack);
    }
    answer_read(&h->stack);
    if (!h->hang.pid && (x->again || strcmp(h->asked, statement) != 0)) {
        snprintf(h->asked, sizeof h->asked, "%s", statement);
        answer_ask(&h->hang, statement);
    }
    x->view.hang = &h->hang;
    x->view.stack = &h->stack;
}

void look_hang_free(struct look_hang *h)
{
    answer_free(&h->hang);
    answer_free(&h->stack);
}
