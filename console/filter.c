/* filter.c - pure: text and rows in, yes or no out. */
#include "filter.h"

#include "base/suggest.h"

#include <ctype.h>
#include <errno.h>
#include <fnmatch.h>
#include <math.h>
#include <stdarg.h>
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

/* The sign at `at`; SIGNS: there is none. */
static size_t sign_at(const char *at)
{
    size_t s = 0;
    while (s < SIGNS && strncmp(at, signs[s].sign, strlen(signs[s].sign)))
        s++;
    return s;
}

static int take_term(const char **at, bool words, struct filter_term *t, struct kc_error *e)
{
    size_t n = strspn(*at, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-."), s = sign_at(skip(*at + n));
    if (words && s == SIGNS) {
        t->how = FILTER_WORD;
        return take_value(at, t->text, sizeof t->text, e);
    }
    if (n == 0 || n >= sizeof t->key)
        return kc_fail(e, -EINVAL, "\"%.60s\" does not begin with a name; an example: state=running step>=100", *at);
    snprintf(t->key, sizeof t->key, "%.*s", (int)n, *at);
    *at = skip(*at + n);
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

/* Past a word that joins two terms. */
static const char *skip_joint(const char *at)
{
    size_t n = !strncmp(at, "and", 3) ? 3 : !strncmp(at, "&&", 2) ? 2 : 0;
    return n && isspace((unsigned char)at[n]) ? skip(at + n) : at;
}

static int parse(const char *text, bool words, struct filter *out, struct kc_error *e)
{
    struct filter f = {0};
    for (const char *at = skip(text); *at; at = skip(at)) {
        if (f.count)
            at = skip_joint(at);
        if (f.count == FILTER_TERMS)
            return kc_fail(e, -EINVAL, "more than %d comparisons", FILTER_TERMS);
        int code = take_term(&at, words, &f.term[f.count], e);
        if (code < 0)
            return code;
        f.count++;
    }
    if (!f.count)
        return kc_fail(e, -EINVAL, "nothing is compared; an example: state=running step>=100");
    *out = f;
    return 0;
}

int filter_parse(const char *text, struct filter *out, struct kc_error *e)
{
    return parse(text, false, out, e);
}

int filter_parse_words(const char *text, struct filter *out, struct kc_error *e)
{
    return parse(text, true, out, e);
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

static void json_get(const void *row, const char *key, struct filter_value *out)
{
    const json_t *v = filter_member(row, key);
    const char *name;
    json_t *inner;
    if (json_is_object(v)) { /* {"what":"all-reduce",…}: its first text */
        const json_t *first = NULL;
        json_object_foreach((json_t *)v, name, inner)
            if (!first && json_is_string(inner))
                first = inner;
        v = first;
    }
    out->known = json_is_string(v) || json_is_number(v) || json_is_boolean(v);
    if (json_is_number(v))
        out->number = json_number_value(v);
    if (json_is_string(v))
        snprintf(out->text, sizeof out->text, "%s", json_string_value(v));
    else if (json_is_integer(v))
        snprintf(out->text, sizeof out->text, "%lld", (long long)json_integer_value(v));
    else if (json_is_real(v))
        snprintf(out->text, sizeof out->text, "%.9g", out->number);
    else if (json_is_boolean(v))
        snprintf(out->text, sizeof out->text, "%s", json_is_true(v) ? "true" : "false");
}

/* As texts are compared: letters small, '_' as '-'. */
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

static bool term_holds(const struct filter_term *t, filter_get *get, const void *row)
{
    struct filter_value have = {.number = NAN};
    char want[sizeof t->text];
    get(row, t->key, &have);
    if (!strcmp(t->text, "-") && t->how <= FILTER_NE)
        return have.known == (t->how == FILTER_NE);
    if (!have.known)
        return false;
    if (!isnan(have.number) && !isnan(t->number) && t->how <= FILTER_GE)
        return by_number(t->how, have.number, t->number);
    snprintf(want, sizeof want, "%s", t->text);
    fold(have.text);
    fold(want);
    switch (t->how) {
    case FILTER_EQ: return !strcmp(have.text, want);
    case FILTER_NE: return strcmp(have.text, want) != 0;
    case FILTER_LIKE: return fnmatch(want, have.text, 0) == 0;
    case FILTER_UNLIKE: return fnmatch(want, have.text, 0) != 0;
    case FILTER_WORD: return strstr(have.text, want) != NULL;
    default: return false; /* a text has no order */
    }
}

bool filter_holds_by(const struct filter *f, filter_get *get, const void *row)
{
    for (int i = 0; i < f->count; i++)
        if (!term_holds(&f->term[i], get, row))
            return false;
    return true;
}

bool filter_holds(const struct filter *f, const json_t *row)
{
    return filter_holds_by(f, json_get, row);
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

int filter_unknown(const char *name, const char *const *names, size_t count, struct kc_error *e, const char *format, ...)
{
    char what[KC_ERROR_TEXT / 2], list[KC_ERROR_TEXT / 2] = "";
    const char *near = kc_suggest(name, names, count);
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    if (near)
        return kc_fail(e, -EINVAL, "%s. Did you mean %s?", what, near);
    size_t at = 0;
    for (size_t i = 0; i < count && at < sizeof list; i++)
        at += (size_t)snprintf(list + at, sizeof list - at, "%s%s", i ? ", " : "", names[i]);
    return kc_fail(e, -EINVAL, "%s. There are: %s", what, list);
}

int filter_key_known(const json_t *rows, const char *key, const char *option, struct kc_error *e)
{
    const char *keys[KEYS_MAX];
    char first[64];
    size_t n = all_keys(rows, keys);
    snprintf(first, sizeof first, "%.*s", (int)strcspn(key, "."), key);
    for (size_t i = 0; i < n; i++)
        if (!strcmp(keys[i], first))
            return 0;
    return json_array_size(rows) == 0 ? 0
                                      : filter_unknown(first, keys, n, e, "no row has a member \"%s\" (%s)", key, option);
}
