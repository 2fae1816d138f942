/* condition.h - what `kc wait --for` waits for: figures of a job compared with values, in the words of filter.h. A figure
 * that is unknown makes its comparison false, never an error: it may become known. */
#ifndef KC_CONSOLE_CONDITION_H
#define KC_CONSOLE_CONDITION_H

#include "filter.h"
#include "model.h"

/* -EINVAL: e has the place, the nearest known name, an example. */
int condition_parse(const char *text, struct filter *out, struct kc_error *e);
bool condition_holds(const struct filter *c, const struct job *j);

#endif
