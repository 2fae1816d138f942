/* filter.h - which rows of a listing are wanted: members of their JSON objects compared with values,
 * "state=running step>=100 wait=all-reduce". The same words for --where and for `/` of the screen. */
#ifndef KC_CONSOLE_FILTER_H
#define KC_CONSOLE_FILTER_H

#include "base/error.h"
#include "base/json.h"

#include <stdbool.h>
#include <stddef.h>

#define FILTER_TERMS 16

enum filter_how { FILTER_EQ, FILTER_NE, FILTER_LT, FILTER_LE, FILTER_GT, FILTER_GE, FILTER_LIKE, FILTER_UNLIKE, FILTER_HOWS };

/* All terms must hold. */
struct filter {
    int count;
    struct filter_term {
        enum filter_how how;
        char key[64];    /* of a member; "wait.what" of one inside it */
        char text[128];  /* the value as it was typed */
        double number;   /* and as a number; NaN: it is none */
    } term[FILTER_TERMS];
};

/* Terms stand apart by spaces, or are joined by `and`. A value with spaces is quoted. -EINVAL: e names the place. */
int filter_parse(const char *text, struct filter *out, struct kc_error *e);
/* What is unknown (null, or no such member) makes a comparison false, but for `=-`, which asks for just that. Texts are
 * compared without regard to case, and '_' is '-'; ~ takes * and ?. An object stands for its first text. */
bool filter_holds(const struct filter *f, const json_t *row);
/* The member that a key names, "a.b" inside; NULL: there is none. Borrowed. */
const json_t *filter_member(const json_t *row, const char *key);
/* Does any of `rows` (an array of objects) have a member of that name? An empty array has them all. -EINVAL: e names the
 * nearest, or all. `option`: what the key was typed behind. */
int filter_key_known(const json_t *rows, const char *key, const char *option, struct kc_error *e);

#endif
