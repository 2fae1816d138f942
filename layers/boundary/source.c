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
#include <sys/stat.h>
#include <unistd.h>

static int is_visible(const struct dirent *d)
{
    return d->d_name[0] != '.';
}

static bool is_source(const char *name)
{
    static const char *const ends[] = {".c", ".h", ".def", ".inc"};
    const char *dot = strrchr(name, '.');
    for (size_t i = 0; dot && i < sizeof ends / sizeof *ends; i++)
        if (strcmp(dot, ends[i]) == 0)
            return true;
    return false;
}

static int visit_source(struct check_context *x, const char *full, const char *path,
                        int (*visit)(struct check_context *x, const char *path, const char *text))
{
    char *text;
    size_t bytes;
    int code = kc_file_read(full, 8u << 20, &text, &bytes);
    if (code < 0)
        return kc_fail(x->e, code, "%s: %s", full, strerror(-code));
    code = visit(x, path, text);
    free(text);
    return code;
}

/* What an entry is, stat() says: some file systems do not tell with its name. */
int check_each_source(struct check_context *x, const char *folder,
                      int (*visit)(struct check_context *x, const char *path, const char *text))
{
    char full[PATH_MAX], inner[PATH_MAX];
    struct dirent **list;
    struct stat st;
    snprintf(full, sizeof full, "%s/%s", x->config->root, folder);
    int code = 0, n = scandir(full, &list, is_visible, alphasort);
    if (n < 0)
        return kc_fail(x->e, -errno, "%s: %s", full, strerror(errno));
    for (int i = 0; i < n; i++) {
        snprintf(inner, sizeof inner, "%.2000s/%.255s", folder, list[i]->d_name);
        snprintf(full, sizeof full, "%.1500s/%.2400s", x->config->root, inner);
        if (code == 0 && stat(full, &st) != 0)
            code = kc_fail(x->e, -errno, "%s: %s", full, strerror(errno));
        else if (code == 0 && S_ISDIR(st.st_mode))
            code = check_each_source(x, inner, visit);
        else if (code == 0 && is_source(list[i]->d_name))
            code = visit_source(x, full, inner, visit);
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

/* Call `each` for every line that includes something; quote is '"' or '<', or '?' where the name does not stand there:
 * a macro, include_next, import. */
static void each_include(struct check_context *x, const char *path, const char *text,
                         void (*each)(struct check_context *x, const char *path, char quote, const char *name, int line))
{
    int line = 0;
    for (const char *p = text; p && *p; p = strchr(p, '\n') ? strchr(p, '\n') + 1 : NULL) {
        char word[64], rest[256], name[256], quote;
        line++;
        p += strspn(p, " \t");
        if (*p != '#')
            continue;
        p += 1 + strspn(p + 1, " \t");
        if (sscanf(p, "%63[a-z_]%255[^\n]", word, rest) != 2)
            continue;
        if (strcmp(word, "include") != 0 && strcmp(word, "include_next") != 0 && strcmp(word, "import") != 0)
            continue;
        bool plain = strcmp(word, "include") == 0 && sscanf(rest, " %c%255[^\">]", &quote, name) == 2;
        if (!plain || !strchr("\"<", quote)) {
            quote = '?';
            snprintf(name, sizeof name, "%s%.190s", word, rest);
        }
        each(x, path, quote, name, line);
    }
}

/* Does <name> mean a header of ours? The compiler looks for both forms in the same folders. */
static bool names_project(const struct check_context *x, const char *name)
{
    char path[PATH_MAX], first[64] = "";
    sscanf(name, "%63[^/]", first);
    if (rules_room_path(x->document, first) || strstr(name, ".."))
        return true;
    snprintf(path, sizeof path, "%.1500s/layers/%.255s", x->config->root, name);
    if (access(path, F_OK) == 0)
        return true;
    snprintf(path, sizeof path, "%.1500s/%.255s", x->config->root, name);
    return access(path, F_OK) == 0;
}

static void project_include(struct check_context *x, const char *path, char quote, const char *name, int line)
{
    char place[192];
    const char *room = kc_json_text(x->rule.check, "room", "");
    snprintf(place, sizeof place, "%.170s:%d", path, line);
    if (quote == '?')
        check_found(x, place, "\"%s\" includes what cannot be read here: write the header's name", name);
    if (quote == '?' || !strchr(name, '/')) /* a plain name is a header of the same folder */
        return;
    if ((quote == '<' && !names_project(x, name)) || check_matches(json_object_get(x->rule.check, "allow"), name))
        return;
    check_found(x, place, quote == '<' ? "includes <%s>, which %s may not" : "includes \"%s\", which %s may not", name,
                room);
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

static bool lists(const json_t *names, const char *name)
{
    size_t i;
    json_t *n;
    json_array_foreach((json_t *)names, i, n)
        if (strcmp(json_string_value(n), name) == 0)
            return true;
    return false;
}

/* The header's first comment says what the checklist says. */
static void header_comment(struct check_context *x, const json_t *contract, const char *header, const char *text)
{
    const char *writer = kc_json_text(contract, "writer", ""), *room;
    const json_t *readers = json_object_get(contract, "readers");
    size_t i;
    json_t *reader, *value;
    if (!named_in(text, "Writer:", writer))
        check_found(x, header, "does not name %s as its writer", writer);
    json_array_foreach((json_t *)readers, i, reader)
        if (!named_in(text, "Readers:", json_string_value(reader)))
            check_found(x, header, "does not name %s among its readers", json_string_value(reader));
    json_object_foreach(json_object_get(x->document, "rooms"), room, value)
        if (named_in(text, "Readers:", room) && !lists(readers, room) && strcmp(room, writer) != 0)
            check_found(x, header, "names %s among its readers, the checklist does not", room);
}

/* Who may include a contract is who writes or reads it: the farm and the list of contracts are the same. The room that
 * the header lies in does neither. */
static void header_farm(struct check_context *x, const json_t *contract, const char *header)
{
    const json_t *readers = json_object_get(contract, "readers");
    for (size_t i = 0; i < rules_count(x->document); i++) {
        struct rule r = rules_at(x->document, i);
        const char *room = kc_json_text(r.check, "room", ""), *path = rules_room_path(x->document, room);
        char full[512];
        snprintf(full, sizeof full, "layers/%.400s", header);
        bool home = path && strncmp(full, path, strlen(path)) == 0 && full[strlen(path)] == '/';
        if (home || strcmp(r.kind, "includes") != 0)
            continue;
        bool in = check_matches(json_object_get(r.check, "allow"), header);
        bool named = lists(readers, room) || strcmp(kc_json_text(contract, "writer", ""), room) == 0;
        if (in && !named && !lists(readers, "all"))
            check_found(x, header, "%s may include it (rule %s), but is neither its writer nor a reader", room, r.id);
        if (!in && named)
            check_found(x, header, "%s writes or reads it, but rule %s does not let it in", room, r.id);
    }
}

int check_header(struct check_context *x)
{
    size_t i;
    json_t *contract;
    json_array_foreach(json_object_get(x->document, "contracts"), i, contract) {
        const char *header = kc_json_text(contract, "header", "");
        char path[PATH_MAX], *text;
        size_t bytes;
        snprintf(path, sizeof path, "%s/layers/%s", x->config->root, header);
        int code = kc_file_read(path, 1u << 20, &text, &bytes);
        if (code < 0)
            return kc_fail(x->e, code, "%s: %s", path, strerror(-code));
        header_comment(x, contract, header, text);
        header_farm(x, contract, header);
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
