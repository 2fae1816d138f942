/* statements.h - what was run on the screen, kept in <home>/history for the `:` line's Up and for `kc history`: a line of JSON
 * when a statement begins, and one when it ends, so that what ran while the screen was killed is there as well. The file
 * is appended to, one write a line, by any number of screens; when it is large it becomes history.1, so at most twice
 * STATEMENTS_LARGE is kept. Nothing is written into a home that is another user's. */
#ifndef KC_CONSOLE_STATEMENTS_H
#define KC_CONSOLE_STATEMENTS_H

#include "base/error.h"
#include "base/home.h"

#include <stdbool.h>
#include <stddef.h>

#define STATEMENTS_LARGE (256u << 10)
#define STATEMENT_ID 48

struct ran {
    char id[STATEMENT_ID];
    char at[32];         /* UTC, when it began */
    char instance[KC_INSTANCE_ROOM];
    char *statement;     /* owned */
    bool ended;          /* else code and seconds are unknown */
    int code;
    double seconds;
};
struct statements {
    struct ran *ran;     /* oldest first; owned */
    size_t count;
};

/* It begins; `id` is for its end. -EPERM: the home is another user's; else -errno: it is not kept. */
int statements_begin(const struct kc_home *home, const char *statement, char id[STATEMENT_ID]);
int statements_end(const struct kc_home *home, const char *id, int code, double seconds);

/* All that is kept. No file: none, 0. Lines that are none (a torn end) are passed over. -errno with a line. */
int statements_read(const struct kc_home *home, struct statements *out, struct kc_error *e);
void statements_free(struct statements *all);

#endif
