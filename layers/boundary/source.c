/* source.c - checks that read source text: which headers are included, which words stand where. Comments are text too: a
 * word rule names identifiers that have no business in a comment either. */
#include "check.h"

#include "base/file.h"
#include "base/json.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int is_source(const struct dirent *d)
{
    size_t n = strlen(d->d_name);
    return d->d_name[0] != '.' && (d->d_type == DT_DIR || (n > 2 && d->d_name[n - 2] == '.' &&
                                                           (d->d_name[n - 1] == 'c' || d->d_name[n - 1] == 'h')));
}

int check_each_source(struct check_context *x, const char *folder,
                      int (*visit)(struct check_context *x, const char *path, const char *text))
{
    char path[PATH_MAX], *text;
    size_t bytes;
    struct dirent **list;
    snprintf(path, sizeof path, "%s/%s", x->config->root, folder);
    int code = 0, n = scandir(path, &list, is_source, alphasort);
    if (n < 0)
        return kc_fail(x->e, -errno, "%s: %s", path, strerror(errno));
    for (int i = 0; i < n; i++) {
        char inner[PATH_MAX];
        snprintf(inner, sizeof inner, "%.2000s/%.255s", folder, list[i]->d_name);
        if (code == 0 && list[i]->d_type == DT_DIR) {
            code = check_each_source(x, inner, visit);
        } else if (code == 0) {
            snprintf(path, sizeof path, "%.1500s/%.2400s", x->config->root, inner);
            code = kc_file_read(path, 8u << 20, &text, &bytes);
            if (code < 0)
                kc_fail(x->e, code, "%s: %s", path, strerror(-code));
            else
                code = visit(x, inner, text);
            if (code == 0)
                free(text);
        }
        free(list[i]);
    }
    free(list);
    return code;
}

/* The folder that this rule is about. */
static const char *room_folder(struct check_context *x)
{
    return rules_room_path(x->document, kc_json_text(x->rule.check, "room", ""));
}

static int no_room(struct check_context *x)
{
    return kc_fail(x->e, -EINVAL, "no room \"%s\" among rooms", kc_json_text(x->rule.check, "room", ""));
}

/* Call `each` for every include line; quote is '"' or '<'. */
static void each_include(struct check_context *x, const char *path, const char *text,
                         void (*each)(struct check_context *x, const char *path, char quote, const char *name, int line))
{
    int line = 0;
    for (const char *p = text; p && *p; p = strchr(p, '\n') ? strchr(p, '\n') + 1 : NULL) {
        char name[256];
        char quote;
        line++;
        while (*p == ' ' || *p == '\t')
            p++;
        if (*p != '#' || sscanf(p, "# include %c%255[^\">]", &quote, name) != 2)
            continue;
        each(x, path, quote, name, line);
    }
}

static void project_include(struct check_context *x, const char *path, char quote, const char *name, int line)
{
    char place[192];
    if (quote != '"' || !strchr(name, '/')) /* a plain name is a header of the same folder */
        return;
    if (check_matches(json_object_get(x->rule.check, "allow"), name))
        return;
    snprintf(place, sizeof place, "%.170s:%d", path, line);
    check_found(x, place, "includes \"%s\", which %s may not", name, kc_json_text(x->rule.check, "room", ""));
}

static int visit_project(struct check_context *x, const char *path, const char *text)
{
    each_include(x, path, text, project_include);
    return 0;
}

int check_includes(struct check_context *x)
{
    return room_folder(x) ? check_each_source(x, room_folder(x), visit_project) : no_room(x);
}

static void system_include(struct check_context *x, const char *path, char quote, const char *name, int line)
{
    char place[192];
    if (quote != '<' || check_matches(json_object_get(x->rule.check, "allow"), name))
        return;
    snprintf(place, sizeof place, "%.170s:%d", path, line);
    check_found(x, place, "includes <%s>, which is not on its list", name);
}

static int visit_system(struct check_context *x, const char *path, const char *text)
{
    each_include(x, path, text, system_include);
    return 0;
}

int check_system(struct check_context *x)
{
    return room_folder(x) ? check_each_source(x, room_folder(x), visit_system) : no_room(x);
}

static bool word_char(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

static int visit_words(struct check_context *x, const char *path, const char *text)
{
    size_t i;
    json_t *w;
    char place[192];
    if (check_matches(json_object_get(x->rule.check, "except"), path))
        return 0;
    json_array_foreach(json_object_get(x->rule.check, "words"), i, w) {
        const char *word = json_string_value(w);
        size_t n = strlen(word);
        for (const char *p = strstr(text, word); p; p = strstr(p + n, word)) {
            if ((p > text && word_char(p[-1])) || word_char(p[n]))
                continue;
            int line = 1;
            for (const char *q = text; q < p; q++)
                line += *q == '\n';
            snprintf(place, sizeof place, "%.170s:%d", path, line);
            check_found(x, place, "says \"%s\"", word);
            break;
        }
    }
    return 0;
}

int check_words(struct check_context *x)
{
    return room_folder(x) ? check_each_source(x, room_folder(x), visit_words) : no_room(x);
}

/* The names after `label` up to the next full stop, as they stand in a header's first comment. */
static bool named_in(const char *text, const char *label, const char *name)
{
    const char *p = strstr(text, label), *end = p ? strchr(p, '.') : NULL, *at;
    if (!p || !end)
        return false;
    for (at = strstr(p, name); at && at < end; at = strstr(at + 1, name))
        if (!word_char(at[-1]) && !word_char(at[strlen(name)]))
            return true;
    return false;
}

int check_header(struct check_context *x)
{
    size_t i, k;
    json_t *contract, *reader;
    json_array_foreach(json_object_get(x->document, "contracts"), i, contract) {
        const char *header = kc_json_text(contract, "header", ""), *writer = kc_json_text(contract, "writer", "");
        char path[PATH_MAX], *text;
        size_t bytes;
        snprintf(path, sizeof path, "%s/layers/%s", x->config->root, header);
        int code = kc_file_read(path, 1u << 20, &text, &bytes);
        if (code < 0)
            return kc_fail(x->e, code, "%s: %s", path, strerror(-code));
        if (!named_in(text, "Writer:", writer))
            check_found(x, header, "does not name %s as its writer", writer);
        json_array_foreach(json_object_get(contract, "readers"), k, reader)
            if (!named_in(text, "Readers:", json_string_value(reader)))
                check_found(x, header, "does not name %s among its readers", json_string_value(reader));
        free(text);
    }
    return 0;
}

int check_readme(struct check_context *x)
{
    char path[PATH_MAX], *text, *table;
    size_t bytes;
    snprintf(path, sizeof path, "%s/%s", x->config->root, kc_json_text(x->rule.check, "file", ""));
    int code = kc_boundary_doc(x->config->root, &table, x->e);
    if (code < 0)
        return code;
    code = kc_file_read(path, 4u << 20, &text, &bytes);
    if (code < 0) {
        free(table);
        return kc_fail(x->e, code, "%s: %s", path, strerror(-code));
    }
    if (!strstr(text, table))
        check_found(x, kc_json_text(x->rule.check, "file", ""),
                    "does not hold the table that `kc boundary doc` prints: put its output there");
    free(text);
    free(table);
    return 0;
}
