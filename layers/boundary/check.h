/* check.h - private: the kinds of checks, one function each. */
#ifndef BOUNDARY_CHECK_H
#define BOUNDARY_CHECK_H

#include "boundary.h"
#include "rules.h"

struct check_context {
    const struct kc_boundary_config *config;
    const json_t *document;
    const char *today;
    struct kc_boundary_result *result;
    struct rule rule; /* the one that runs */
    struct kc_error *e;
};

typedef int check_function(struct check_context *x);

/* The function of a kind, NULL if there is none. */
check_function *check_find(const char *kind);
/* Something is not as the rule says. Place and text are formatted; counts it and tells whoever asked. */
void check_found(struct check_context *x, const char *place, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Does any pattern (fnmatch) of the JSON list match? */
bool check_matches(const json_t *patterns, const char *text);
/* Every source, header and table (.c .h .def .inc) below a folder (relative to root), in order; < 0 ends the walk. */
int check_each_source(struct check_context *x, const char *folder,
                      int (*visit)(struct check_context *x, const char *path, const char *text));

check_function check_includes;  /* source.c: project headers a room may include */
check_function check_system;    /* source.c: system headers a room may not include */
check_function check_words;     /* source.c: identifiers that may stand only in certain files */
check_function check_header;    /* source.c: a contract names its writer and readers; they are the checklist's and the farm's */
check_function check_readme;    /* source.c: the table in a README is the one `doc` prints */
check_function check_calls;     /* symbols.c: rooms whose functions a room may call */
check_function check_imports;   /* symbols.c: outside symbols a room may use */
check_function check_writable;  /* symbols.c: no data that can change */
check_function check_callers;   /* symbols.c: who may call a function */
check_function check_required;  /* symbols.c: who must call a function: a net that nobody may take down */
check_function check_unique;    /* symbols.c: no name has two owners */
check_function check_program;   /* symbols.c: what a program contains */
check_function check_stamp;     /* symbols.c: a program was built under this checklist */
check_function check_members;   /* members.c: a struct has only const members, no pointers, or exactly these */

#endif
