/* config.h - what a person chose about the screen, and where that was said. The strongest first: an option of this start,
 * $XDG_CONFIG_HOME/kuangchao/config, NO_COLOR, the default (a file is stronger than NO_COLOR: no-color.org). The file has a
 * `key = value` a line, # begins a comment. A mistake in it is told with its line and leaves the rest in force: it is no
 * reason not to open the screen. */
#ifndef KC_CONSOLE_CONFIG_H
#define KC_CONSOLE_CONFIG_H

#include "base/error.h"

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct arguments;

enum config_id {
#define SETTING(id, ...) CONFIG_##id,
#include "config.def"
#undef SETTING
    CONFIGS
};

struct config_row {
    const char *key, *words, *otherwise, *help;
    double least, most;
    int option; /* enum option_id; -1: none */
};
extern const struct config_row config_rows[CONFIGS];

#define CONFIG_WORD 16
#define CONFIG_MISTAKES 8

struct config {
    struct {
        char word[CONFIG_WORD];
        char from[PATH_MAX + 16]; /* "default", "FILE:3", "--theme", "NO_COLOR", "locale C" */
    } set[CONFIGS];
    char path[PATH_MAX];          /* of the file; "": no place is known for it */
    bool read;                    /* it was there */
    int mistakes;                 /* in it; the first of them are told */
    char mistake[CONFIG_MISTAKES][512];
};

/* The defaults. */
void config_default(struct config *c);
/* Take the text of a file. Pure. */
void config_text(struct config *c, const char *path, const char *text, size_t bytes);
/* Take what options of this start say; a NULL: none. -EINVAL. */
int config_options(struct config *c, const struct arguments *a, struct kc_error *e);
/* Say what "auto" is for marks: by the character set of the locale and the kind of terminal. Pure. */
void config_marks(struct config *c, const char *codeset, const char *terminal);
/* All of it: defaults, NO_COLOR, the file, options, the locale. -EINVAL: an option is wrong. */
int config_load(struct config *c, const struct arguments *a, struct kc_error *e);

bool config_is(const struct config *c, enum config_id id, const char *word);
/* Nanoseconds from look to look. */
uint64_t config_interval(const struct config *c);

#endif
