/* listing.h - what --where, --cols, --plain and --watch do to a verb that lists. Such a verb only makes its JSON object:
 * rows are chosen and cut here, on their way out (session_emit()), so they are the same in every form. */
#ifndef KC_CONSOLE_LISTING_H
#define KC_CONSOLE_LISTING_H

#include "filter.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct arguments;

#define LISTING_COLUMNS 32

enum listing_form { LISTING_JSON, LISTING_TABLE, LISTING_PLAIN };

struct listing {
    const char *path;        /* of the rows */
    bool stream;             /* set by a verb that follows: an object without rows is not told */
    bool headed;             /* a table: its header is printed, and widths hold */
    int width[LISTING_COLUMNS];
    enum listing_form form;
    bool filtered, chosen;   /* --where, --cols were given */
    struct filter filter;
    int columns;
    char column[LISTING_COLUMNS][64];
    uint64_t every;          /* --watch: nanoseconds; 0: once */
};

/* What the options say, for `verb`; json: it was asked for. 1: *out holds; 0: the verb prints as it always does (it does
 * not list, or none was given); -EINVAL. */
int listing_parse(const char *verb, const struct arguments *a, bool json, struct listing *out, struct kc_error *e);
/* What `verb` shows of a row where --cols does not say; NULL: it does not list. */
const char *listing_columns(const char *verb);
/* Keep the rows, and of them the members, that are wanted. An object without the array is itself a row (one of a stream);
 * then *wanted says whether it stays. -EINVAL: a name that no row has. */
int listing_cut(const struct listing *l, json_t *object, bool *wanted, struct kc_error *e);
/* As lines for people or for other programs; what it did not write is made safe. */
void listing_print(struct listing *l, const json_t *object, FILE *out);

#endif
