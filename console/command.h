/* command.h - the verbs of kc as a table, and how a line of words becomes a call. One statement is the same on the
 * command line, in a batch file and on the `:` line of the screen. */
#ifndef KC_CONSOLE_COMMAND_H
#define KC_CONSOLE_COMMAND_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct session;

#define OPTION(id, name, letter, argument, help) OPTION_##id,
enum option_id {
#include "options.def"
    OPTIONS
};
#undef OPTION
/* A set of options; there are more than 64. */
__extension__ typedef unsigned __int128 option_set;
_Static_assert(OPTIONS <= 128, "more options than an option_set holds");
#define OPT_BIT(number) ((option_set)1 << (number))
#define OPT(id) OPT_BIT(OPTION_##id)

struct option_row {
    const char *name;
    char letter;          /* 0: none */
    const char *argument; /* NULL: takes none; "[=…]": it may be left out */
    const char *help;
};
extern const struct option_row option_rows[OPTIONS];

/* OWNER: no kcd, but it changes something of a job or the node, which a screen that only looks refuses. */
enum command_needs { NEEDS_NOTHING, NEEDS_KCD, NEEDS_OWNER };

/* What follows a verb. All strings are borrowed from the words that were parsed. */
struct arguments {
    const char *option[OPTIONS]; /* value, "" for options without one, NULL when not given */
    const char *const *word;
    int words;
};

struct command {
    const char *verb; /* one or two words, "snap ls" */
    const char *arguments;
    int least, most;  /* words that follow; most -1: any number */
    enum command_needs needs;
    option_set options; /* OPT() bits, HELP and JSON always among them */
    const char *summary, *help;
    /* Returns an exit code. Has told why if it is not 0. */
    int (*run)(struct session *s, const struct arguments *a);
};
extern const struct command commands[];
extern const size_t commands_count;

/* of a verb that lists: listings.def has a row for it */
#define LISTS (OPT(WHERE) | OPT(COLS) | OPT(PLAIN))

/* of a verb that opens the screen: config.def says what they choose */
#define OF_SCREEN (OPT(THEME) | OPT(ASCII) | OPT(INTERVAL) | OPT(MOUSE) | OPT(READONLY))

#define STATEMENT_WORDS 256

/* A whole number option; *out is left as it is when it is not given. -EINVAL with what it wants. */
int argument_whole(const struct arguments *a, enum option_id id, uint32_t least, uint32_t most, uint32_t *out,
                   struct kc_error *e);

/* "JOB/RANK" → id, cut to the room, and rank; -1: no rank was named. -EINVAL with an example of `verb`. */
int argument_target(const char *word, const char *verb, char *id, size_t room, int *rank, struct kc_error *e);

/* A parsed statement. `command` NULL: no word at all was there. */
struct statement {
    const struct command *command;
    struct arguments arguments;
    const char *word[STATEMENT_WORDS];
    bool help, json, version;
};

/* Options may stand anywhere, `--` ends them, `--name=value` and `-nvalue` are taken, abbreviations are not. On
 * failure e has the wrong word, the nearest known one and what to type; out->json is right even then. 0 or
 * -EINVAL. */
int statement_parse(int count, const char *const *words, struct statement *out, struct kc_error *e);
/* Parse and run; help and usage errors included. Returns an exit code. */
int statement_run(struct session *s, int count, const char *const *words);

const struct command *command_find(const char *verb);
/* The list of verbs, or one verb's page. */
void help_all(FILE *out);
void help_command(const struct command *c, FILE *out);

#endif
