/* config.c */
#include "config.h"

#include "command.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/suggest.h"

#include <ctype.h>
#include <errno.h>
#include <langinfo.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define FILE_LIMIT (64u << 10)

enum { OPTION_NONE = -1 };
#define SETTING(id, key, words, least, most, otherwise, option, help)                                                  \
    [CONFIG_##id] = {key, words, otherwise, help, least, most, OPTION_##option},
const struct config_row config_rows[CONFIGS] = {
#include "config.def"
};
#undef SETTING

static void take(struct config *c, enum config_id id, const char *word, const char *from)
{
    snprintf(c->set[id].word, sizeof c->set[id].word, "%s", word);
    snprintf(c->set[id].from, sizeof c->set[id].from, "%s", from);
}

void config_default(struct config *c)
{
    memset(c, 0, sizeof *c);
    for (int i = 0; i < CONFIGS; i++)
        take(c, (enum config_id)i, config_rows[i].otherwise, "default");
}

static bool among(const char *word, const char *words)
{
    size_t n = strlen(word);
    for (const char *at = words; *at; at += strcspn(at, " "), at += *at == ' ')
        if (strcspn(at, " ") == n && !strncmp(at, word, n))
            return true;
    return false;
}

/* May it be that? e: what it may be. */
static int fits(enum config_id id, const char *word, struct kc_error *e)
{
    const struct config_row *row = &config_rows[id];
    char *end = NULL;
    if (*row->words) {
        if (strlen(word) < CONFIG_WORD && *word && among(word, row->words))
            return 0;
        return kc_fail(e, -EINVAL, "%s is one of: %s; not \"%.40s\"", row->key, row->words, word);
    }
    double value = strtod(word, &end);
    if (strlen(word) < CONFIG_WORD && end != word && !*end && value >= row->least && value <= row->most)
        return 0;
    return kc_fail(e, -EINVAL, "%s is a number from %g to %g, not \"%.40s\"", row->key, row->least, row->most, word);
}

/* ---- the file -------------------------------------------------------------------------------------------------- */

__attribute__((format(printf, 4, 5)))
static void mistaken(struct config *c, const char *path, int line, const char *format, ...)
{
    char text[384];
    va_list list;
    if (c->mistakes++ >= CONFIG_MISTAKES)
        return;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    char where[16] = "";
    if (line)
        snprintf(where, sizeof where, ":%d", line);
    snprintf(c->mistake[c->mistakes - 1], sizeof c->mistake[0], "%.100s%s: %s",
             strlen(path) > 100 ? path + strlen(path) - 100 : path, where, text);
}

static char *trim(char *text)
{
    text += strspn(text, " \t");
    for (size_t n = strlen(text); n && isspace((unsigned char)text[n - 1]);)
        text[--n] = 0;
    return text;
}

static void take_line(struct config *c, const char *path, int number, char *line)
{
    const char *keys[CONFIGS];
    char from[sizeof c->set[0].from];
    struct kc_error e = {""};
    line[strcspn(line, "#")] = 0;
    char *equals = strchr(line, '=');
    if (!*trim(line))
        return;
    if (!equals) {
        mistaken(c, path, number, "\"%.40s\" is not KEY = VALUE", trim(line));
        return;
    }
    *equals = 0;
    const char *key = trim(line), *word = trim(equals + 1);
    int id = 0;
    while (id < CONFIGS && strcmp(config_rows[id].key, key))
        id++;
    if (id == CONFIGS) {
        for (int i = 0; i < CONFIGS; i++)
            keys[i] = config_rows[i].key;
        const char *near = kc_suggest(key, keys, CONFIGS);
        mistaken(c, path, number, near ? "no such key: %.40s. Did you mean %s?" : "no such key: %.40s. %s", key,
                 near ? near : "`kc config` lists them");
    } else if (fits((enum config_id)id, word, &e)) {
        mistaken(c, path, number, "%.300s", e.text);
    } else {
        snprintf(from, sizeof from, "%s:%d", path, number);
        take(c, (enum config_id)id, word, from);
    }
}

void config_text(struct config *c, const char *path, const char *text, size_t bytes)
{
    char line[512];
    int number = 0;
    c->read = true;
    for (size_t at = 0; at < bytes;) {
        const char *end = memchr(text + at, '\n', bytes - at);
        size_t n = end ? (size_t)(end - (text + at)) : bytes - at;
        number++;
        if (n >= sizeof line || memchr(text + at, 0, n)) {
            mistaken(c, path, number, "not a line of text of less than %zu bytes", sizeof line);
        } else {
            memcpy(line, text + at, n);
            line[n] = 0;
            take_line(c, path, number, line);
        }
        at += n + 1;
    }
}

/* $XDG_CONFIG_HOME, which counts only if it is absolute, else ~/.config. */
static void find_file(struct config *c)
{
    const char *base = getenv("XDG_CONFIG_HOME"), *tail = "";
    if (!base || *base != '/') {
        base = getenv("HOME");
        tail = "/.config";
    }
    if (!base || *base != '/')
        return;
    int n = snprintf(c->path, sizeof c->path, "%s%s/kuangchao/config", base, tail);
    if (n < 0 || (size_t)n >= sizeof c->path)
        c->path[0] = 0;
}

static void read_file(struct config *c)
{
    char *text = NULL;
    size_t bytes = 0;
    if (!c->path[0])
        return;
    int rc = kc_file_read(c->path, FILE_LIMIT, &text, &bytes);
    if (rc == 0)
        config_text(c, c->path, text, bytes);
    else if (rc == -EFBIG)
        mistaken(c, c->path, 0, "larger than %u KiB: not read", FILE_LIMIT >> 10);
    else if (rc != -ENOENT && rc != -ENOTDIR)
        mistaken(c, c->path, 0, "not read: %s", strerror(-rc));
    free(text);
}

/* ---- the rest -------------------------------------------------------------------------------------------------- */

int config_options(struct config *c, const struct arguments *a, struct kc_error *e)
{
    char from[64];
    for (int i = 0; a && i < CONFIGS; i++) {
        const struct config_row *row = &config_rows[i];
        const char *value = row->option < 0 ? NULL : a->option[row->option];
        if (!value)
            continue;
        if (i == CONFIG_MARKS)
            value = "ascii";
        else if (!*value)
            value = "yes"; /* --mouse, --readonly */
        if (fits((enum config_id)i, value, e))
            return kc_fail_prefix(e, -EINVAL, "--%s", option_rows[row->option].name);
        snprintf(from, sizeof from, "--%s", option_rows[row->option].name);
        take(c, (enum config_id)i, value, from);
    }
    return 0;
}

void config_marks(struct config *c, const char *codeset, const char *terminal)
{
    char from[96];
    if (!config_is(c, CONFIG_MARKS, "auto"))
        return;
    bool wide = !strcasecmp(codeset, "UTF-8") || !strcasecmp(codeset, "utf8");
    snprintf(from, sizeof from, "locale (%.60s)", codeset);
    if (!wide)
        take(c, CONFIG_MARKS, "ascii", from);
    else if (terminal && !strncmp(terminal, "linux", 5)) /* the kernel's own terminal: its fonts have no braille */
        take(c, CONFIG_MARKS, "block", "TERM=linux");
    else
        take(c, CONFIG_MARKS, "braille", from);
}

int config_load(struct config *c, const struct arguments *a, struct kc_error *e)
{
    const char *plain = getenv("NO_COLOR");
    config_default(c);
    if (plain && *plain)
        take(c, CONFIG_THEME, "mono", "NO_COLOR");
    find_file(c);
    read_file(c);
    int rc = config_options(c, a, e);
    if (rc)
        return rc;
    config_marks(c, nl_langinfo(CODESET), getenv("TERM"));
    return 0;
}

bool config_is(const struct config *c, enum config_id id, const char *word)
{
    return !strcmp(c->set[id].word, word);
}

uint64_t config_interval(const struct config *c)
{
    return (uint64_t)(strtod(c->set[CONFIG_INTERVAL].word, NULL) * (double)KC_SECOND);
}
