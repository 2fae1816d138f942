/* rules.h - private: the checklist in memory, checked for form when it is loaded. */
#ifndef BOUNDARY_RULES_H
#define BOUNDARY_RULES_H

#include "base/digest.h"
#include "base/error.h"

#include <jansson.h>
#include <stdbool.h>

#define RULES_PATH "layers/boundary.json"

/* One rule, borrowed from the document. */
struct rule {
    const char *id, *says, *owner, *strength, *since, *kind;
    const json_t *check;
    long long version;
};

/* Load and check form: every rule whole, ids unique, versions with a history whose last line carries the digest of what
 * the rule says now. The document is owned by the caller (json_decref). -EINVAL with the rule's id. */
int rules_load(const char *root, json_t **out, struct kc_error *e);
/* Rule i of a loaded document. */
struct rule rules_at(const json_t *document, size_t i);
size_t rules_count(const json_t *document);
/* Digest of the parts of a rule that mean something: says, strength, check, owner. */
void rule_digest(const struct rule *r, char out[33]);
/* The folder of a room, NULL if there is no such room. */
const char *rules_room_path(const json_t *document, const char *room);
/* Does an exemption that is still valid cover this place? expired: one that covers it has run out. */
bool rules_exempt(const json_t *document, const char *rule, const char *place, const char *today, bool *expired);

#endif
