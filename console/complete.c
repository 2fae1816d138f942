/* complete.c */
#include "complete.h"

#include "config.h"
#include "words.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>

#define FOLDER_MOST 10000 /* entries looked at */

enum subject subject_of(const struct command *c)
{
    static const char *const files[] = {"SPEC", "FILE", "FOLDER", "SNAPSHOT"};
    if (strstr(c->arguments, "JOB"))
        return SUBJECT_JOB;
    if (strstr(c->arguments, "VERB"))
        return SUBJECT_VERB;
    if (strstr(c->arguments, "SHELL"))
        return SUBJECT_SHELL;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        if (!strncmp(c->arguments, files[i], strlen(files[i])))
            return SUBJECT_FILE;
    return SUBJECT_OTHER;
}

void complete_add(struct completion *c, const char *begun, const char *word)
{
    if (strncmp(word, begun, strlen(begun)) || strlen(word) >= COMPLETION_ROOM)
        return;
    for (int i = 0; i < c->count; i++)
        if (!strcmp(c->word[i], word))
            return;
    if (c->count == COMPLETIONS)
        c->more = true;
    else
        snprintf(c->word[c->count++], COMPLETION_ROOM, "%s", word);
}

size_t complete_shared(const struct completion *c)
{
    size_t n = c->count ? strlen(c->word[0]) : 0;
    for (int i = 1; i < c->count; i++)
        for (size_t k = 0; k < n; k++)
            if (c->word[i][k] != c->word[0][k])
                n = k;
    while (n && ((unsigned char)c->word[0][n] & 0xc0) == 0x80) /* no half letter */
        n--;
    return n;
}

/* ---- what may stand there -------------------------------------------------------------------------------------- */

/* First words of verbs; with `group`, the second words of that one. */
static void add_verbs(struct completion *c, const char *begun, const char *group)
{
    for (size_t i = 0; i < commands_count; i++) {
        const char *verb = commands[i].verb, *space = strchr(verb, ' ');
        const size_t first = space ? (size_t)(space - verb) : strlen(verb);
        char word[64];
        snprintf(word, sizeof word, "%.*s", (int)first, verb);
        if (!group)
            complete_add(c, begun, word);
        else if (space && !strcmp(word, group))
            complete_add(c, begun, space + 1);
    }
}

static void add_options(struct completion *c, const char *begun, const struct command *of)
{
    char word[64];
    for (int i = 0; i < OPTIONS; i++)
        if (of->options & OPT_BIT(i)) {
            snprintf(word, sizeof word, "--%s", option_rows[i].name);
            complete_add(c, begun, word);
        }
}

static void add_jobs(struct completion *c, const char *begun, const struct model *model)
{
    for (size_t i = 0; model && i < model->count; i++)
        complete_add(c, begun, model->job[i].id);
}

static void add_words(struct completion *c, const char *begun, const char *words)
{
    char word[CONFIG_WORD];
    for (const char *at = words; *at; at += strcspn(at, " "), at += *at == ' ') {
        snprintf(word, sizeof word, "%.*s", (int)strcspn(at, " "), at);
        complete_add(c, begun, word);
    }
}

/* As a statement would have to be typed: nothing is cut at a blank. */
static void shield(const char *name, char *out, size_t room)
{
    size_t n = 0;
    for (; *name && n + 3 < room; name++) {
        if (strchr(" \t\"'\\#", *name))
            out[n++] = '\\';
        out[n++] = *name;
    }
    out[*name ? 0 : n] = 0; /* too long to be proposed */
}

static void add_files(struct completion *c, const char *begun)
{
    char folder[512], name[COMPLETION_ROOM * 2], word[COMPLETION_ROOM * 2 + 520];
    const char *slash = strrchr(begun, '/');
    const int length = slash ? (int)(slash - begun) + 1 : 0;
    const struct dirent *e;
    if (length >= (int)sizeof folder)
        return;
    snprintf(folder, sizeof folder, "%.*s", length, begun);
    DIR *d = opendir(length ? folder : ".");
    for (int i = 0; d && i < FOLDER_MOST && (e = readdir(d)); i++) {
        if (e->d_name[0] == '.' && begun[length] != '.')
            continue;
        shield(e->d_name, name, sizeof name);
        snprintf(word, sizeof word, "%s%s%s", folder, name, e->d_type == DT_DIR ? "/" : "");
        if (*name)
            complete_add(c, begun, word);
    }
    if (d)
        closedir(d);
}

/* The value of an option that wants one. */
static void add_values(struct completion *c, const char *begun, int option)
{
    for (int i = 0; i < CONFIGS; i++)
        if (config_rows[i].option == option) {
            add_words(c, begun, config_rows[i].words);
            return;
        }
    if (option == OPTION_ON_FAILURE)
        add_words(c, begun, "stop continue");
    else if (strstr(option_rows[option].argument, "FILE") || strstr(option_rows[option].argument, "DIR") ||
             strstr(option_rows[option].argument, "SPEC"))
        add_files(c, begun);
}

static void add_arguments(struct completion *c, const char *begun, const struct command *of, int at, const struct model *model)
{
    if (of->most >= 0 && at >= of->most)
        return;
    switch (subject_of(of)) {
    case SUBJECT_JOB:
        if (at == 0)
            add_jobs(c, begun, model);
        if (c->count == 0 && strpbrk(of->arguments, "|"))
            add_files(c, begun);
        break;
    case SUBJECT_FILE: add_files(c, begun); break;
    case SUBJECT_VERB: add_verbs(c, begun, NULL); break;
    case SUBJECT_SHELL: add_words(c, begun, COMPLETE_SHELLS); break;
    case SUBJECT_OTHER: break;
    }
}

/* ---- where one is in the line ---------------------------------------------------------------------------------- */

/* The byte at which the word that ends at `at` begins. */
static size_t word_begins(const char *line, size_t at)
{
    size_t from = 0;
    char quote = 0;
    for (size_t i = 0; i < at; i++) {
        if (line[i] == '\\' && quote != '\'' && i + 1 < at)
            i++;
        else if (quote ? line[i] == quote : line[i] == '"' || line[i] == '\'')
            quote = quote ? 0 : line[i];
        else if (!quote && (line[i] == ' ' || line[i] == '\t'))
            from = i + 1;
    }
    return from;
}

static int option_of(const char *word)
{
    for (int i = 0; i < OPTIONS; i++)
        if ((!strncmp(word, "--", 2) && !strcmp(word + 2, option_rows[i].name)) ||
            (option_rows[i].letter && word[0] == '-' && word[1] == option_rows[i].letter && !word[2]))
            return i;
    return -1;
}

/* Does an option swallow the word behind it? */
static bool swallows(int option)
{
    return option >= 0 && option_rows[option].argument && *option_rows[option].argument != '[';
}

/* Words that are neither options nor their values, to the front of `word`; *wants: the option whose value is being typed, or
 * -1. */
static size_t plain_words(const char **word, size_t count, int *wants)
{
    size_t plain = 0;
    *wants = -1;
    for (size_t i = 0; i < count; i++) {
        const int option = word[i][0] == '-' ? option_of(word[i]) : -1;
        if (swallows(option) && ++i == count)
            *wants = option;
        else if (option < 0 && word[i][0] != '-')
            word[plain++] = word[i];
    }
    return plain;
}

void complete_line(const char *line, size_t at, const struct model *model, struct completion *out)
{
    char before[1024], begun[512], verb[128];
    const char *words[STATEMENT_WORDS], **word = words;
    const struct command *one = NULL, *two = NULL;
    size_t count = 0;
    int wants = -1;
    out->count = 0;
    out->more = false;
    out->from = word_begins(line, at);
    if (out->from >= sizeof before || at - out->from >= sizeof begun)
        return;
    snprintf(before, sizeof before, "%.*s", (int)out->from, line);
    snprintf(begun, sizeof begun, "%.*s", (int)(at - out->from), line + out->from);
    if (words_split(before, words, STATEMENT_WORDS, &count, NULL))
        return;
    if (count && !strcmp(word[0], "kc")) { /* typed with its name */
        word++;
        count--;
    }
    count = plain_words(word, count, &wants);
    if (count)
        one = command_find(word[0]);
    if (count > 1) {
        snprintf(verb, sizeof verb, "%.60s %.60s", word[0], word[1]);
        two = command_find(verb);
    }
    const struct command *of = two ? two : one;
    if (wants >= 0)
        add_values(out, begun, wants);
    else if (begun[0] == '-' && of)
        add_options(out, begun, of);
    else if (count == 0)
        add_verbs(out, begun, NULL);
    else {
        if (count == 1)
            add_verbs(out, begun, word[0]);
        if (of)
            add_arguments(out, begun, of, (int)count - (two ? 2 : 1), model);
    }
}
