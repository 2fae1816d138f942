/* schema.h - what every verb answers with --json, as data: schemas/all.def, once, from which JSON Schemas are made. Pure. */
#ifndef KC_CONSOLE_SCHEMA_H
#define KC_CONSOLE_SCHEMA_H

#include "base/error.h"
#include "base/json.h"

#include <stddef.h>

/* The JSON Schema (draft 2020-12) of one object that `kc VERB --json` prints; "error": of what any verb prints that fails.
 * It lets members pass that it does not name: within "/1" members only come. New reference. -ENOENT: there is none for that
 * verb; -EINVAL: a row of the table is wrong, e says which. */
int schema_of(const char *verb, json_t **out, struct kc_error *e);
/* The verb of the n-th schema; NULL behind the last. */
const char *schema_verb(size_t n);
/* "kc.snap.ls/1": what an answer of the verb says it is. */
void schema_name(const char *verb, char *out, size_t room);

#endif
