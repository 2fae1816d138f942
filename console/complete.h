/* complete.h - what a word of a statement may become: verbs, options, values, job ids and files, from the same tables that
 * statements are read by. For the screen's `:` line; `kc completion` makes what shells use. */
#ifndef KC_CONSOLE_COMPLETE_H
#define KC_CONSOLE_COMPLETE_H

#include "command.h"
#include "model.h"

#define COMPLETIONS 64
#define COMPLETION_ROOM 128

struct completion {
    size_t from;   /* where the word begins in the line */
    int count;     /* words that it may become, as the table or the folder has them */
    bool more;     /* there were more */
    char word[COMPLETIONS][COMPLETION_ROOM];
};

#define COMPLETE_SHELLS "bash zsh fish" /* those that kc completion knows */

/* Does the verb take a job first, a file, or something that is not completed? */
enum subject { SUBJECT_OTHER, SUBJECT_JOB, SUBJECT_FILE, SUBJECT_VERB, SUBJECT_SHELL };
enum subject subject_of(const struct command *c);

/* Of the word that ends at byte `at` of the line. `model` NULL: no jobs are known. Reads a folder where a file is wanted. */
void complete_line(const char *line, size_t at, const struct model *model, struct completion *out);
/* A word that may stand there; one that does not begin as `begun` is passed over, a second one, too. */
void complete_add(struct completion *c, const char *begun, const char *word);
/* How many letters all of them begin with. */
size_t complete_shared(const struct completion *c);

#endif
