/* filter.c - pure: text and JSON in, yes or no out. */
#include "filter.h"

#include "base/suggest.h"

#include <ctype.h>
#include <errno.h>
#include <fnmatch.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Longer ones first: the first that fits is taken. */
static const struct {
    const char *sign;
    enum filter_how how;
} signs[] = {{"!=", FILTER_NE}, {"<=", FILTER_LE}, {">=", FILTER_GE}, {"==", FILTER_EQ}, {"!~", FILTER_UNLIKE},
             {"=", FILTER_EQ},  {"<", FILTER_LT},  {">", FILTER_GT},  {"~", FILTER_LIKE}};
#define SIGNS (sizeof signs / sizeof *signs)
#define KEYS_MAX 256

static const char *skip(const char *at)
{
    return at + strspn(at, " \t");
}

/* The value at *at, quoted or up to a space. */
static int take_value(const char **at, char *out, size_t room, struct kc_error *e)
{
    const char *begin = *at;
    char quote = *begin == '\'' || *begin == '"' ? *begin : 0;
    const char *end = quote ? strchr(++begin, quote) : begin + strcspn(begin, " \t");
    if (!end)
        return kc_fail(e, -EINVAL, "%.60s: the quote is not closed", *at);
    if (end == begin && !quote)
        return kc_fail(e, -EINVAL, "a comparison lacks its value; an example: state=running step>=100");
    if ((size_t)(end - begin) >= room)
        return kc_fail(e, -EINVAL, "%.60s…: a value has %zu letters at most", begin, room - 1);
    snprintf(out, room, "%.*s", (int)(end - begin), begin);
    *at = quote ? end + 1 : end;
    return 0;
}

static int take_term(const char **at, struct filter_term *t, struct kc_error *e)
{
    size_t n = strspn(*at, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-."), s = 0;
    if (n == 0 || n >= sizeof t->key)
        return kc_fail(e, -EINVAL, "\"%.60s\" does not begin with a name; an example: state=running step>=100", *at);
    snprintf(t->key, sizeof t->key, "%.*s", (int)n, *at);
    *at = skip(*at + n);
    while (s < SIGNS && strncmp(*at, signs[s].sign, strlen(signs[s].sign)))
        s++;
    if (s == SIGNS)
        return kc_fail(e, -EINVAL, "\"%s\" is not followed by a comparison; there are = != < <= > >= ~ !~, as in step>=100",
                       t->key);
    t->how = signs[s].how;
    *at = skip(*at + strlen(signs[s].sign));
    int code = take_value(at, t->text, sizeof t->text, e);
    if (code < 0)
        return code;
    char *end;
    t->number = strtod(t->text, &end);
    if (end == t->text || *end)
        t->number = NAN;
    if (t->how >= FILTER_LT && t->how <= FILTER_GE && isnan(t->number))
        return kc_fail(e, -EINVAL, "\"%s\" is not a number, but %s is compared with it by order", t->text, t->key);
    return 0;
}

int filter_parse(const char *text, struct filter *out, struct kc_error *e)
{
    const char *at = skip(text);
    memset(out, 0, sizeof *out);
    while (*at) {
        if (out->count && !strncmp(at, "and", 3) && isspace((unsigned char)at[3]))
            at = skip(at + 3);
        if (out->count == FILTER_TERMS)
            return kc_fail(e, -EINVAL, "more than %d comparisons", FILTER_TERMS);
        int code = take_term(&at, &out->term[out->count], e);
        if (code < 0)
            return code;
        out->count++;
        at = skip(at);
    }
    return out->count ? 0 : kc_fail(e, -EINVAL, "nothing is compared; an example: state=running step>=100");
}

const json_t *filter_member(const json_t *row, const char *key)
{
    char part[64];
    while (row && *key) {
        size_t n = strcspn(key, ".");
        snprintf(part, sizeof part, "%.*s", (int)n, key);
        row = json_object_get(row, part);
        key += n + (key[n] == '.');
    }
    return row;
}

/* As it is compared: an object as its first text ({"what":"all-reduce",…}), letters small, '_' as '-'. false: unknown. */
static bool value_text(const json_t *v, char *out, size_t room)
{
    const char *key;
    json_t *inner;
    if (json_is_object(v)) {
        const json_t *first = NULL;
        json_object_foreach((json_t *)v, key, inner)
            if (!first && json_is_string(inner))
                first = inner;
        v = first;
    }
    if (json_is_string(v))
        snprintf(out, room, "%s", json_string_value(v));
    else if (json_is_integer(v))
        snprintf(out, room, "%lld", (long long)json_integer_value(v));
    else if (json_is_real(v))
        snprintf(out, room, "%.9g", json_real_value(v));
    else if (json_is_boolean(v))
        snprintf(out, room, "%s", json_is_true(v) ? "true" : "false");
    else
        return false;
    return true;
}

static void fold(char *text)
{
    for (; *text; text++)
        *text = *text == '_' ? '-' : (char)tolower((unsigned char)*text);
}

static bool by_number(enum filter_how how, double a, double b)
{
    switch (how) {
    case FILTER_EQ: return a == b;
    case FILTER_NE: return a != b;
    case FILTER_LT: return a < b;
    case FILTER_LE: return a <= b;
    case FILTER_GT: return a > b;
    case FILTER_GE: return a >= b;
    default: return false;
    }
}

static bool term_holds(const struct filter_term *t, const json_t *row)
{
    char have[512], want[sizeof t->text];
    const json_t *v = filter_member(row, t->key);
    bool known = value_text(v, have, sizeof have);
    if (!strcmp(t->text, "-") && t->how <= FILTER_NE)
        return known == (t->how == FILTER_NE);
    if (!known)
        return false;
    if (json_is_number(v) && !isnan(t->number) && t->how <= FILTER_GE)
        return by_number(t->how, json_number_value(v), t->number);
    snprintf(want, sizeof want, "%s", t->text);
    fold(have);
    fold(want);
    switch (t->how) {
    case FILTER_EQ: return !strcmp(have, want);
    case FILTER_NE: return strcmp(have, want) != 0;
    case FILTER_LIKE: return fnmatch(want, have, 0) == 0;
    case FILTER_UNLIKE: return fnmatch(want, have, 0) != 0;
    default: return false; /* a text has no order */
    }
}

bool filter_holds(const struct filter *f, const json_t *row)
{
    for (int i = 0; i < f->count; i++)
        if (!term_holds(&f->term[i], row))
            return false;
    return true;
}

/* Names of the members that rows have, each once. */
static size_t all_keys(const json_t *rows, const char *keys[KEYS_MAX])
{
    size_t n = 0, i, k;
    json_t *row, *value;
    const char *key;
    json_array_foreach(rows, i, row) {
        json_object_foreach(row, key, value) {
            for (k = 0; k < n && strcmp(keys[k], key); k++)
                ;
            if (k == n && n < KEYS_MAX)
                keys[n++] = key;
        }
    }
    return n;
}

int filter_key_known(const json_t *rows, const char *key, const char *option, struct kc_error *e)
{
    const char *keys[KEYS_MAX], *near;
    char first[64], list[KC_ERROR_TEXT / 2] = "";
    size_t n = all_keys(rows, keys), at = 0;
    if (json_array_size(rows) == 0)
        return 0;
    snprintf(first, sizeof first, "%.*s", (int)strcspn(key, "."), key);
    for (size_t i = 0; i < n; i++)
        if (!strcmp(keys[i], first))
            return 0;
    if ((near = kc_suggest(first, keys, n)))
        return kc_fail(e, -EINVAL, "no row has a member \"%s\" (%s). Did you mean %s?", key, option, near);
    for (size_t i = 0; i < n && at < sizeof list; i++)
        at += (size_t)snprintf(list + at, sizeof list - at, "%s%s", i ? ", " : "", keys[i]);
    return kc_fail(e, -EINVAL, "no row has a member \"%s\" (%s). There are: %s", key, option, list);
}
