/* boundary.h - the checker: reads the checklist (layers/boundary.json) and the built archives and programs, and says where
 * they differ. Linked into kc alone; looks at files, runs nothing, changes nothing but what `farm` is asked to write.
 *
 * The form of the checklist is documented in kc-boundary(5). */
#ifndef KC_BOUNDARY_H
#define KC_BOUNDARY_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>

struct kc_finding {
    const char *rule;   /* id */
    const char *owner;  /* the team that answers for the rule */
    bool core;          /* fails the build; else a warning that is counted */
    bool exempt;        /* a valid exemption covers it */
    char place[192];    /* file, archive member, symbol: where */
    char text[512];     /* what, and what the rule says */
};

struct kc_boundary_config {
    const char *root;   /* of the source tree */
    const char *build;  /* folder with lib<room>.a, relative to root; e.g. "build/release" */
    const char *programs; /* folder with kc, kcd, kc-rank, relative to root */
    const char *today;  /* "2026-11-29"; NULL: the clock's */
    void (*report)(void *arg, const struct kc_finding *f);
    void *arg;
};

struct kc_boundary_result {
    size_t rules, findings, core, exempt;
};

/* Run every rule. 0 when the check itself worked, whatever it found (see result->core); -EINVAL the checklist is not well
 * formed, -ENOENT something to look at is missing: e names it. */
int kc_boundary_check(const struct kc_boundary_config *config, struct kc_boundary_result *result, struct kc_error *e);
/* The table of rules as Markdown, as it stands in layers/README.md (owned, free()). */
int kc_boundary_doc(const char *root, char **out, struct kc_error *e);
/* Write the include farm: <to>/<room>/<header> links to every header that the room's rule lets it include, and three that
 * are made: <to>/engine/boundary/stamp.h with the checklist's digest, <to>/console/boundary/owners.h with the team of each
 * room, <to>/console/boundary/borders.h with the rules and exemptions. What is right already is not touched. */
int kc_boundary_farm(const char *root, const char *to, struct kc_error *e);

#endif
