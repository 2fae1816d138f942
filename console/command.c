/* command.c - the table of verbs, and statements: words → verb, options, arguments. */
#include "command.h"

#include "session.h"
#include "verbs.h"

#include "base/clock.h"
#include "base/suggest.h"
#include "contracts/types.h"
#include "supervisor/protocol.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define OPTION(id, name, letter, argument, help) [OPTION_##id] = {name, letter, argument, help},
const struct option_row option_rows[OPTIONS] = {
#include "options.def"
};
#undef OPTION

#define COMMAND(handler, verb, arguments, least, most, needs, options, summary, help)                                  \
    {verb, arguments, least, most, NEEDS_##needs, (options) | OPT(HELP) | OPT(JSON), summary, help, verb_##handler},
const struct command commands[] = {
#include "commands.def"
};
#undef COMMAND
const size_t commands_count = sizeof commands / sizeof commands[0];

const struct command *command_find(const char *verb)
{
    for (size_t i = 0; i < commands_count; i++)
        if (!strcmp(commands[i].verb, verb))
            return &commands[i];
    return NULL;
}

#define COMMANDS_MAX 128

/* Is `word` the first of a two-word verb? */
static bool is_group(const char *word)
{
    size_t n = strlen(word);
    for (size_t i = 0; i < commands_count; i++)
        if (!strncmp(commands[i].verb, word, n) && commands[i].verb[n] == ' ')
            return true;
    return false;
}

/* ---- options --------------------------------------------------------------------------------------------------- */

static int option_by_name(const char *name, size_t length)
{
    for (int i = 0; i < OPTIONS; i++)
        if (strlen(option_rows[i].name) == length && !strncmp(option_rows[i].name, name, length))
            return i;
    return -1;
}

static int option_by_letter(char letter)
{
    for (int i = 0; i < OPTIONS; i++)
        if (option_rows[i].letter && option_rows[i].letter == letter)
            return i;
    return -1;
}

/* The verb that a statement begins with; NULL: it begins with none. */
static const struct command *verb_before(int count, const char *const *words)
{
    char both[128];
    const struct command *c = NULL;
    if (count > 1 && snprintf(both, sizeof both, "%s %s", words[0], words[1]) < (int)sizeof both)
        c = command_find(both);
    return c || count == 0 ? c : command_find(words[0]);
}

/* What is proposed is an option that the verb has. */
static int unknown_option(int before, const char *const *words, struct kc_error *e)
{
    const struct command *c = verb_before(before, words);
    const char *names[OPTIONS], *word = words[before];
    char name[64];
    size_t n = 0;
    for (int i = 0; i < OPTIONS; i++)
        if (!c || (c->options & OPT_BIT(i)))
            names[n++] = option_rows[i].name;
    snprintf(name, sizeof name, "%.*s", (int)strcspn(word + 2, "="), word + 2);
    const char *near = word[1] == '-' ? kc_suggest(name, names, n) : NULL;
    if (near)
        return kc_fail(e, -EINVAL, "unknown option %s. Did you mean --%s?", word, near);
    if (c)
        return kc_fail(e, -EINVAL, "unknown option %s. `kc %s --help` lists its options", word, c->verb);
    return kc_fail(e, -EINVAL, "unknown option %s. `kc help` lists what there is", word);
}

/* Takes the option at words[*at] and moves *at past it. */
static int take_option(int count, const char *const *words, int *at, struct arguments *a, struct kc_error *e)
{
    const char *word = words[*at], *value = NULL;
    int id;
    if (word[1] == '-') {
        size_t length = strcspn(word + 2, "=");
        id = option_by_name(word + 2, length);
        if (word[2 + length] == '=')
            value = word + 2 + length + 1;
    } else {
        id = option_by_letter(word[1]);
        if (id >= 0 && word[2] && option_rows[id].argument)
            value = word + 2;
        else if (word[2])
            id = -1; /* letters are not joined: no verb has two that would be typed so */
    }
    if (id < 0)
        return unknown_option(*at, words, e);
    const struct option_row *row = &option_rows[id];
    if (!row->argument) {
        if (value)
            return kc_fail(e, -EINVAL, "--%s takes no value", row->name);
        value = "";
    } else if (!value && *row->argument == '[') {
        value = ""; /* it may be left out, so a value comes behind '=' alone */
    } else if (!value) {
        if (*at + 1 >= count)
            return kc_fail(e, -EINVAL, "--%s wants a value: --%s %s", row->name, row->name, row->argument);
        value = words[++*at];
    }
    ++*at;
    a->option[id] = value;
    return 0;
}

/* ---- statements ------------------------------------------------------------------------------------------------ */

static size_t shared_letters(const char *a, const char *b)
{
    size_t n = 0;
    while (a[n] && a[n] == b[n])
        n++;
    return n;
}

/* What takes something away is proposed only to who began to type it: not where the word's first letters are more
 * those of another verb. */
static bool proposable(const char *verb, const char *word)
{
    static const char *const grave[] = {"stop", "rm", "shutdown"};
    bool is_grave = false;
    for (size_t i = 0; i < sizeof grave / sizeof grave[0]; i++)
        is_grave |= !strcmp(verb, grave[i]);
    for (size_t i = 0; is_grave && i < commands_count; i++)
        if (shared_letters(commands[i].verb, word) > shared_letters(verb, word))
            return false;
    return true;
}

/* The first word of two is right: what is meant can only be among its second words. */
static int unknown_second(const char *word, const char *second, struct kc_error *e)
{
    const char *names[COMMANDS_MAX];
    char list[256] = "";
    size_t n = 0, at = 0, length = strlen(word);
    for (size_t i = 0; i < commands_count && n < COMMANDS_MAX; i++) {
        if (strncmp(commands[i].verb, word, length) || commands[i].verb[length] != ' ')
            continue;
        if (at < sizeof list)
            at += (size_t)snprintf(list + at, sizeof list - at, "%s`kc %s`", n ? ", " : "", commands[i].verb);
        names[n++] = commands[i].verb + length + 1;
    }
    const char *near = second ? kc_suggest(second, names, n) : NULL;
    if (near)
        return kc_fail(e, -EINVAL, "unknown verb %s %s. Did you mean `kc %s %s`?", word, second, word, near);
    if (second)
        return kc_fail(e, -EINVAL, "unknown verb %s %s. There are %s", word, second, list);
    return kc_fail(e, -EINVAL, "%s wants a second word. There are %s", word, list);
}

static int unknown_verb(const char *word, const char *second, struct kc_error *e)
{
    const char *names[COMMANDS_MAX], *near = NULL;
    char both[128];
    size_t n = 0;
    if (is_group(word))
        return unknown_second(word, second, e);
    for (size_t i = 0; i < commands_count && n < COMMANDS_MAX; i++)
        if (proposable(commands[i].verb, word))
            names[n++] = commands[i].verb;
    if (second) {
        snprintf(both, sizeof both, "%s %s", word, second);
        near = kc_suggest(both, names, n);
        if (near && !strchr(near, ' '))
            near = NULL;
    }
    if (!near)
        near = kc_suggest(word, names, n);
    if (near)
        return kc_fail(e, -EINVAL, "unknown verb %s. Did you mean `kc %s`?", word, near);
    return kc_fail(e, -EINVAL, "unknown verb %s. `kc help` lists them", word);
}

/* The verb of the first words; *used of them. */
static int take_verb(struct statement *s, int words, int *used, struct kc_error *e)
{
    char both[128];
    if (words > 1) {
        snprintf(both, sizeof both, "%s %s", s->word[0], s->word[1]);
        s->command = command_find(both);
        *used = 2;
    }
    if (!s->command) {
        s->command = command_find(s->word[0]);
        *used = 1;
    }
    if (s->command)
        return 0;
    if (s->help && words == 1 && is_group(s->word[0]))
        return 0; /* `kc snap --help`: the list */
    return unknown_verb(s->word[0], words > 1 ? s->word[1] : NULL, e);
}

static int check_arguments(const struct statement *s, struct kc_error *e)
{
    const struct command *c = s->command;
    const struct arguments *a = &s->arguments;
    for (int i = 0; i < OPTIONS; i++)
        if (a->option[i] && !(c->options & OPT_BIT(i)))
            return kc_fail(e, -EINVAL, "`kc %s` has no option --%s. `kc %s --help` lists its options", c->verb,
                           option_rows[i].name, c->verb);
    if (a->words < c->least)
        return kc_fail(e, -EINVAL, "`kc %s` wants %s. Usage: kc %s %s. `kc %s --help` lists its options", c->verb,
                       c->arguments, c->verb, c->arguments, c->verb);
    if (c->most >= 0 && a->words > c->most)
        return kc_fail(e, -EINVAL,
                       "`kc %s` does not take \"%.200s\". Usage: kc %s%s%s. `kc %s --help` lists its options", c->verb,
                       a->word[c->most], c->verb, *c->arguments ? " " : "", c->arguments, c->verb);
    return 0;
}

int statement_parse(int count, const char *const *words, struct statement *out, struct kc_error *e)
{
    int plain = 0, used = 0;
    bool options = true;
    memset(out, 0, sizeof *out);
    for (int i = 0; i < count && strcmp(words[i], "--");
         i++) /* known first, so that errors come out in the right form */
        out->json |= !strcmp(words[i], "--json");
    for (int at = 0; at < count;) {
        const char *word = words[at];
        if (options && !strcmp(word, "--")) {
            options = false;
            at++;
        } else if (options && !strcmp(word, "--version")) {
            out->version = true;
            at++;
        } else if (options && word[0] == '-' && word[1]) {
            int rc = take_option(count, words, &at, &out->arguments, e);
            if (rc)
                return rc;
        } else if (plain == STATEMENT_WORDS) {
            return kc_fail(e, -EINVAL, "more than %d words", STATEMENT_WORDS);
        } else {
            out->word[plain++] = word;
            at++;
        }
    }
    out->help = out->arguments.option[OPTION_HELP] != NULL;
    out->json = out->arguments.option[OPTION_JSON] != NULL;
    if (out->version || plain == 0)
        return 0;
    int rc = take_verb(out, plain, &used, e);
    if (rc || !out->command)
        return rc;
    out->arguments.word = out->word + used;
    out->arguments.words = plain - used;
    return out->help ? 0 : check_arguments(out, e);
}

/* Once, or again and again. */
static int run_repeated(struct session *s, const struct command *c, const struct arguments *a, struct listing *l)
{
    const struct timespec nap = {.tv_sec = (time_t)(l->every / KC_SECOND), .tv_nsec = (long)(l->every % KC_SECOND)};
    int code = c->run(s, a);
    if (l->every)
        interrupt_catch();
    while (l->every && !code && !interrupt_seen()) {
        nanosleep(&nap, NULL);
        if (interrupt_seen() || session_gone(s))
            break;
        if (l->form == LISTING_TABLE)
            fputc('\n', s->out);
        l->headed = false;
        code = c->run(s, a);
    }
    return code;
}

static int run_command(struct session *s, const struct command *c, const struct arguments *a)
{
    struct listing l;
    struct kc_error e = {""};
    bool json = s->json;
    int listed = listing_parse(c->verb, a, json, &l, &e), code;
    if (listed < 0)
        return session_fail(s, KC_EXIT_USAGE, "%s", e.text);
    if (listed) {
        s->listing = &l;
        s->json = true;
    }
    code = listed ? run_repeated(s, c, a, &l) : c->run(s, a);
    s->listing = NULL;
    s->json = json;
    return code;
}

int statement_run(struct session *s, int count, const char *const *words)
{
    struct statement st;
    struct kc_error e = {""};
    static const struct arguments none;
    bool json_before = s->json;
    const char *verb_before = s->verb;
    int rc = statement_parse(count, words, &st, &e), code;
    s->json = json_before || st.json;
    s->verb = st.command ? st.command->verb : "kc";
    if (rc)
        code = session_fail(s, KC_EXIT_USAGE, "%s", e.text);
    else if (st.version)
        code = (s->verb = "version", verb_version(s, &none));
    else if (st.help && st.command)
        code = verb_help_of(s, st.command);
    else if (st.help)
        code = (s->verb = "help", verb_help(s, &none));
    else if (!st.command)
        code = session_fail(s, KC_EXIT_USAGE, "which verb? `kc help` lists them; without one kc is the screen, which needs a terminal "
                                              "at both ends");
    else
        code = run_command(s, st.command, &st.arguments);
    s->json = json_before;
    s->verb = verb_before;
    return code;
}

/* ---- help ------------------------------------------------------------------------------------------------------ */

void help_all(FILE *out)
{
    fprintf(
        out,
        "kc                             the screen, when both ends are a terminal; --theme NAME, --readonly and so on:\n"
        "                               kc config\n"
        "kc VERB …                      one statement; the same on the screen's `:` line and in a batch file\n\n");
    for (size_t i = 0; i < commands_count; i++) {
        char left[64];
        snprintf(left, sizeof left, "%s%s%s", commands[i].verb, *commands[i].arguments ? " " : "",
                 commands[i].arguments);
        int pad = 26;
        for (const char *p = left; *p; p++) /* the one letter that is not ASCII, …, takes three bytes */
            pad += (*p & 0xc0) == 0x80;
        fprintf(out, "kc %-*s  %s\n", pad, left, commands[i].summary);
    }
    fprintf(out, "\nEvery verb takes --json and --help. Exit codes:\n");
#define KC_EXIT_HELP(id, code, help) fprintf(out, "%5d  %s\n", code, help);
    KC_EXIT_TABLE(KC_EXIT_HELP)
#undef KC_EXIT_HELP
}

void help_command(const struct command *c, FILE *out)
{
    fprintf(out, "kc %s%s%s - %s\n\n%s\n\n", c->verb, *c->arguments ? " " : "", c->arguments, c->summary, c->help);
    for (int i = 0; i < OPTIONS; i++) {
        const struct option_row *o = &option_rows[i];
        char left[64];
        if (!(c->options & OPT_BIT(i)))
            continue;
        const char *argument = o->argument ? o->argument : "";
        snprintf(left, sizeof left, "--%s%s%s", o->name, *argument && *argument != '[' ? " " : "", argument);
        fprintf(out, "  %c%c%c %-22s %s\n", o->letter ? '-' : ' ', o->letter ? o->letter : ' ', o->letter ? ',' : ' ',
                left, o->help);
    }
    fprintf(out, "\n%s\n", c->needs == NEEDS_KCD ? "Needs kcd; exit 3 when none answers." : "Works without kcd.");
}

int argument_target(const char *word, const char *verb, char *id, size_t room, int *rank, struct kc_error *e)
{
    const char *slash = strchr(word, '/');
    char *end = NULL;
    snprintf(id, room, "%.*s", slash ? (int)(slash - word) : (int)strlen(word), word);
    *rank = -1;
    if (!slash)
        return 0;
    long r = strtol(slash + 1, &end, 10);
    if (!slash[1] || *end || r < 0 || r >= KC_RANKS_MAX)
        return kc_fail(e, -EINVAL, "\"%.80s\" is not JOB/RANK. An example: kc %s quickstart-1/0", word, verb);
    *rank = (int)r;
    return 0;
}

int argument_whole(const struct arguments *a, enum option_id id, uint32_t least, uint32_t most, uint32_t *out,
                   struct kc_error *e)
{
    const char *text = a->option[id];
    char *end = NULL;
    if (!text)
        return 0;
    errno = 0;
    long long n = strtoll(text, &end, 10);
    if (end == text || *end || errno || n < least || n > most)
        return kc_fail(e, -EINVAL, "--%s wants a whole number from %u to %u, not \"%.40s\"", option_rows[id].name,
                       least, most, text);
    *out = (uint32_t)n;
    return 0;
}
