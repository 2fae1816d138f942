/* listing.c */
#include "listing.h"

#include "command.h"
#include "condition.h"
#include "text.h"

#include "base/clock.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define CELL 16384 /* no text that is printed here is as long: events, last words, lines of logs */
#define WIDEST 48 /* of a column that is not the last */

static const struct {
    const char *verb, *path, *columns;
    bool always;
} rows[] = {
#define LISTING(verb, always, path, columns) {verb, path, columns, always},
#include "listings.def"
#undef LISTING
};

static int find(const char *verb)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (!strcmp(rows[i].verb, verb))
            return (int)i;
    return -1;
}

const char *listing_columns(const char *verb)
{
    int row = find(verb);
    return row < 0 ? NULL : rows[row].columns;
}

static int take_columns(struct listing *l, const char *text, struct kc_error *e)
{
    l->columns = 0;
    for (const char *at = text;; at++) {
        size_t n = strcspn(at, ",");
        if (n == 0 || n >= sizeof l->column[0])
            return kc_fail(e, -EINVAL, "--cols \"%.60s\" lacks a name; an example: --cols id,state,step", text);
        if (l->columns == LISTING_COLUMNS)
            return kc_fail(e, -EINVAL, "--cols has more than %d names", LISTING_COLUMNS);
        snprintf(l->column[l->columns++], sizeof l->column[0], "%.*s", (int)n, at);
        at += n;
        if (!*at)
            return 0;
    }
}

static int take_period(const char *text, uint64_t *out, struct kc_error *e)
{
    char *end;
    double seconds = *text ? strtod(text, &end) : 1;
    if (*text && !*end && seconds >= 0.1 && seconds <= 86400)
        *out = (uint64_t)(seconds * (double)KC_SECOND);
    else if (!*text)
        *out = KC_SECOND;
    else
        return kc_fail(e, -EINVAL, "--watch=%.40s is not a number of seconds from 0.1 to 86400", text);
    return 0;
}

int listing_parse(const char *verb, const struct arguments *a, bool json, struct listing *out, struct kc_error *e)
{
    const char *where = a->option[OPTION_WHERE], *cols = a->option[OPTION_COLS], *watch = a->option[OPTION_WATCH];
    int row = find(verb), code = 0;
    bool plain = a->option[OPTION_PLAIN] != NULL;
    memset(out, 0, sizeof *out);
    if (row < 0 || (!where && !cols && !watch && !plain && (json || !rows[row].always)))
        return 0;
    if (plain && json)
        return kc_fail(e, -EINVAL, "--plain and --json are two forms: give one of them");
    out->path = rows[row].path;
    out->filtered = where != NULL;
    out->chosen = cols != NULL;
    out->form = json ? LISTING_JSON : plain ? LISTING_PLAIN : LISTING_TABLE;
    if (where && (code = filter_parse(where, &out->filter, e)) < 0)
        return code;
    if ((code = take_columns(out, cols ? cols : rows[row].columns, e)) < 0)
        return code;
    if (watch && (code = take_period(watch, &out->every, e)) < 0)
        return code;
    return 1;
}

/* ---- rows ------------------------------------------------------------------------------------------------------ */

static json_t *cut_row(const struct listing *l, const json_t *row)
{
    json_t *o = json_object();
    for (int i = 0; i < l->columns; i++) {
        const json_t *v = filter_member(row, l->column[i]);
        json_object_set_new(o, l->column[i], v ? json_incref((json_t *)v) : json_null());
    }
    return o;
}

static int check_names(const struct listing *l, const json_t *array, struct kc_error *e)
{
    int code = 0;
    for (int i = 0; l->chosen && !code && i < l->columns; i++)
        code = filter_key_known(array, l->column[i], "--cols", e);
    for (int i = 0; !code && i < l->filter.count; i++)
        code = filter_key_known(array, l->filter.term[i].key, "--where", e);
    return code;
}

/* Rows of an array, in place. */
static void cut_rows(const struct listing *l, json_t *array)
{
    for (size_t i = 0; i < json_array_size(array);) {
        json_t *row = json_array_get(array, i);
        if (l->filtered && !filter_holds(&l->filter, row)) {
            json_array_remove(array, i);
            continue;
        }
        if (l->chosen)
            json_array_set_new(array, i, cut_row(l, row));
        i++;
    }
}

int listing_cut(const struct listing *l, json_t *object, bool *wanted, struct kc_error *e)
{
    json_t *array = (json_t *)filter_member(object, l->path);
    *wanted = true;
    if (!json_is_array(array)) {
        *wanted = !l->filtered || filter_holds(&l->filter, object);
        return 0;
    }
    int code = l->stream ? 0 : check_names(l, array, e); /* one event does not have what another has */
    if (code == 0)
        cut_rows(l, array);
    *wanted = !l->stream || json_array_size(array) > 0;
    return code;
}

/* ---- text ------------------------------------------------------------------------------------------------------ */

/* One cell; a row that was cut has its columns by their whole names, others inside one another. */
static void cell(const json_t *row, const char *key, char out[CELL])
{
    const json_t *v = json_object_get(row, key);
    char raw[CELL / 4] = "-";
    if (!v)
        v = filter_member(row, key);
    if (json_is_object(v)) {
        const char *name;
        json_t *inner;
        json_object_foreach((json_t *)v, name, inner)
            if (json_is_string(inner)) {
                v = inner;
                break;
            }
    }
    if (json_is_string(v))
        snprintf(raw, sizeof raw, "%s", json_string_value(v));
    else if (json_is_boolean(v))
        snprintf(raw, sizeof raw, "%s", json_is_true(v) ? "yes" : "no");
    else if (v && !json_is_null(v)) {
        char *text = json_dumps(v, KC_JSON_FLAGS | JSON_ENCODE_ANY);
        snprintf(raw, sizeof raw, "%s", text ? text : "-");
        free(text);
    }
    text_clean(raw, strlen(raw), 0, out, CELL);
}

static bool is_number(const char *text)
{
    char *end;
    strtod(text, &end);
    return end != text && !*end;
}

static void print_plain(const struct listing *l, const json_t *array, FILE *out)
{
    char text[CELL];
    json_t *row;
    size_t i;
    json_array_foreach(array, i, row) {
        for (int c = 0; c < l->columns; c++) {
            cell(row, l->column[c], text);
            fprintf(out, "%s%s", c ? "\t" : "", text);
        }
        fputc('\n', out);
    }
}

/* Numbers stand to the right; widths are those of the first rows that are printed. */
static void measure(struct listing *l, const json_t *array)
{
    char text[CELL];
    json_t *row;
    size_t i;
    for (int c = 0; c < l->columns; c++) {
        int widest = (int)strlen(l->column[c]);
        bool right = json_array_size(array) > 0;
        json_array_foreach(array, i, row) {
            cell(row, l->column[c], text);
            int w = text_width(text);
            widest = w > widest ? w : widest;
            right &= is_number(text) || !strcmp(text, "-");
        }
        widest = widest > WIDEST ? WIDEST : widest;
        l->width[c] = right ? widest : -widest;
    }
}

static void print_cell(const struct listing *l, int c, const char *text, FILE *out)
{
    int width = l->width[c], pad = (width < 0 ? -width : width) - text_width(text);
    pad = pad > 0 && (width > 0 || c + 1 < l->columns) ? pad : 0;
    fprintf(out, "%s%*s%s%*s", c ? "  " : "", width > 0 ? pad : 0, "", text, width > 0 ? 0 : pad, "");
}

static void print_header(const struct listing *l, FILE *out)
{
    char text[sizeof l->column[0]];
    for (int c = 0; c < l->columns; c++) {
        snprintf(text, sizeof text, "%s", l->column[c]);
        for (char *p = text; *p; p++)
            *p = (char)toupper((unsigned char)*p);
        print_cell(l, c, text, out);
    }
    fputc('\n', out);
}

static void print_table(struct listing *l, const json_t *array, FILE *out)
{
    char text[CELL];
    json_t *row;
    size_t i;
    if (!l->headed) {
        measure(l, array);
        print_header(l, out);
        l->headed = true;
    }
    json_array_foreach(array, i, row) {
        for (int c = 0; c < l->columns; c++) {
            cell(row, l->column[c], text);
            print_cell(l, c, text, out);
        }
        fputc('\n', out);
    }
}

void listing_print(struct listing *l, const json_t *object, FILE *out)
{
    const json_t *array = filter_member(object, l->path);
    json_t *one = NULL;
    if (!json_is_array(array)) {
        one = json_pack("[O]", object);
        array = one;
    }
    if (l->form == LISTING_PLAIN)
        print_plain(l, array, out);
    else
        print_table(l, array, out);
    json_decref(one);
}
