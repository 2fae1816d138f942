/* looks.h - what the two looks at the processes of a job saw, as JSON (kc.looks/1): beside a saved board it makes the same
 * evidence again, when the processes are long gone. */
#ifndef KC_CONSOLE_HANG_LOOKS_H
#define KC_CONSOLE_HANG_LOOKS_H

#include "evidence.h"

#include "base/error.h"
#include "base/json.h"

/* New reference; NULL without memory. */
json_t *kc_looks_json(const struct kc_evidence *e);
/* Put what such an object says into evidence that was made from the board beside it. Nothing of it is believed: what is of
 * another form or too long is left out. -EINVAL: it is no such object. */
int kc_looks_put(const json_t *looks, struct kc_evidence *e, struct kc_error *error);

#endif
