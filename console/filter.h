/* filter.h - which rows are wanted: what they are called compared with values, "state=running step>=100 wait=all-reduce".
 * The same words for --where (members of a JSON row), for --for (figures of a job) and for `/` of the screen (cells). */
#ifndef KC_CONSOLE_FILTER_H
#define KC_CONSOLE_FILTER_H

#include "base/error.h"
#include "base/json.h"

#include <stdbool.h>
#include <stddef.h>

#define FILTER_TERMS 16

enum filter_how {
    FILTER_EQ,
    FILTER_NE,
    FILTER_LT,
    FILTER_LE,
    FILTER_GT,
    FILTER_GE,
    FILTER_LIKE,
    FILTER_UNLIKE,
    FILTER_WORD, /* no name: the row has the text somewhere */
    FILTER_HOWS
};

/* All terms must hold. */
struct filter {
    int count;
    struct filter_term {
        enum filter_how how;
        char key[64];    /* "wait.what": of a member inside a member */
        char text[128];  /* the value as it was typed */
        double number;   /* and as a number; NaN: it is none */
    } term[FILTER_TERMS];
};

/* Terms stand apart by spaces, or are joined by `and` or `&&`. A value with spaces is quoted. -EINVAL: e names the place. */
int filter_parse(const char *text, struct filter *out, struct kc_error *e);
/* The same, and a word that no comparison follows is looked for in all that the row shows. */
int filter_parse_words(const char *text, struct filter *out, struct kc_error *e);

/* What a name stands for in a row. */
struct filter_value {
    bool known;
    double number;   /* NaN: it is a text */
    char text[1024];
};
/* Fills *out (which is unknown) with what `row` has under `key`; "": all that it shows, as one text. */
typedef void filter_get(const void *row, const char *key, struct filter_value *out);

/* What is unknown makes a comparison false, but for `=-`, which asks for just that. Texts are compared without regard to
 * case, and '_' is '-'; ~ takes * and ?. */
bool filter_holds_by(const struct filter *f, filter_get *get, const void *row);
/* By the members of a JSON object: null, or no such member, is unknown; an object stands for its first text. */
bool filter_holds(const struct filter *f, const json_t *row);
/* "WHAT. Did you mean state?", or "WHAT. There are: id, state, step": no name of `names` is `name`. Returns -EINVAL. */
int filter_unknown(const char *name, const char *const *names, size_t count, struct kc_error *e, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
/* The member that a key names, "a.b" inside; NULL: there is none. Borrowed. */
const json_t *filter_member(const json_t *row, const char *key);
/* Does any of `rows` (an array of objects) have a member of that name? An empty array has them all. -EINVAL: e names the
 * nearest, or all. `option`: what the key was typed behind. */
int filter_key_known(const json_t *rows, const char *key, const char *option, struct kc_error *e);

#endif
