/* borders.h - the rules of layers/boundary.json as kc was built with them, and whether they are kept, where there is a source tree
 * to look at. What the checker found may come from another kc (`kc boundary check --json`). */
#ifndef KC_CONSOLE_BORDERS_H
#define KC_CONSOLE_BORDERS_H

#include "base/error.h"
#include "base/json.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* By how bad it is. */
#define BORDER_STATE_TABLE(X) X(UNKNOWN, "unknown") X(KEPT, "kept") X(EXEMPT, "exempt") X(WARNS, "warns") X(BROKEN, "broken")
#define BORDER_STATE_ROW(id, name) BORDER_##id,
enum border_state { BORDER_STATE_TABLE(BORDER_STATE_ROW) BORDER_STATES };
extern const char *const border_state_name[BORDER_STATES];

struct border {
    const char *id, *says, *net, *strength, *owner;
    int version;
    enum border_state state;
    uint32_t findings;
    char place[192], text[512]; /* of the worst finding */
};

struct border_exemption {
    const char *rule, *place, *reason, *reach, *back, *expires; /* expires: "2027-03-01", the last day on which it holds */
    int days;                   /* left; negative: it has expired */
};

struct borders {
    struct border *rule;
    size_t rules;
    struct border_exemption *exemption;
    size_t exemptions;
    bool checked;                   /* else every state is unknown … */
    char why[256];                  /* … for this reason */
    uint32_t count[BORDER_STATES];  /* rules */
};

/* The table, nothing checked. wall: kc_wall() of today. -ENOMEM. */
int borders_new(uint64_t wall, struct borders *out);
void borders_free(struct borders *b);
/* The source tree that this kc lies in, as bin/kc; false: there is none, as where it was installed. */
bool borders_root(char *root, size_t room);
/* Run the checker there; what it can't look at is `why`. */
void borders_check(struct borders *b, const char *root);
/* Take what `kc boundary check --json` answered instead. */
void borders_take(struct borders *b, const json_t *answer);

/* "1 broken, 1 warns, 89 kept of 91", or "91, not checked: …". Returns `out`. */
const char *borders_text(const struct borders *b, char *out, size_t room);
/* "expires 2027-03-01, in 91 days", "expired 2026-11-01". */
const char *border_expiry(const struct border_exemption *x, char *out, size_t room);
/* The members "check", "rules", "exemptions". */
void borders_json(const struct borders *b, json_t *into);

#endif
