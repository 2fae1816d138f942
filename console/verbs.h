/* verbs.h - the handlers behind commands.def, one function a row: verb_<handler>(). Each returns an exit code and
 * has told why if it is not 0. */
#ifndef KC_CONSOLE_VERBS_H
#define KC_CONSOLE_VERBS_H

#include "command.h"

#define COMMAND(handler, ...) int verb_##handler(struct session *s, const struct arguments *a);
#include "commands.def"
#undef COMMAND

/* `kc VERB --help`. */
int verb_help_of(struct session *s, const struct command *c);

#endif
