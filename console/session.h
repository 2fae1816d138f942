/* session.h - what a statement runs in: where it reads, where it writes, in which form. Data goes to `out`,
 * messages to `err` as "kc: …"; with --json what fails is also an object on `out`, so that a reader of stdout
 * always gets an answer. */
#ifndef KC_CONSOLE_SESSION_H
#define KC_CONSOLE_SESSION_H

#include "listing.h"

#include "base/error.h"
#include "base/home.h"
#include "base/json.h"

#include <stdbool.h>
#include <stdio.h>

struct session {
    struct kc_home home;
    FILE *out, *err;
    bool terminal;    /* `out` is a terminal: foreign text is made safe for it */
    bool json;
    const char *verb; /* for the schema */
    bool unwritten;   /* that `out` can't be written is told */
    struct listing *listing; /* what is wanted of a verb that lists; NULL: all, as JSON */
};

/* Prints "kc: …" (with --json also {"schema":"kc.error/1",…}) and returns `code`. */
int session_fail(struct session *s, int code, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* "kc: …" on err: something worth knowing that is not a failure. */
void session_note(struct session *s, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The exit code that stands for a negative errno of our own libraries. */
int session_code(int rc);
/* An object with "schema":"kc.<verb>/1" (the space of a verb becomes a dot) and "generated_at". New reference. */
json_t *session_envelope(const struct session *s);
/* Whoever read `out` has hung up. That is no error: a verb that goes on for its reader alone ends then, with 0; any other goes on
 * to its end, and its exit code is what came of it. */
bool session_gone(const struct session *s);
/* All that was printed is written, or nobody reads it: KC_EXIT_OK; else KC_EXIT_SYSTEM, which is told once. */
int session_written(struct session *s);
/* Print one line of JSON, or the rows of it that are wanted in the form that is, and let go of the reference. 0,
 * EXIT_USAGE: it has no such member; EXIT_SYSTEM when it cannot be written. */
int session_emit(struct session *s, json_t *object);
/* Foreign text as a JSON string (what is not UTF-8 becomes \xNN); NULL or "": null. New reference. */
json_t *session_text(const char *text);
/* kc_wall() as RFC 3339 in UTC; 0: null. New reference. */
json_t *session_time(uint64_t wall);
/* Foreign text: as it is into a pipe or file, made safe on a terminal (text.h). */
void session_foreign(struct session *s, const char *data, size_t bytes);

/* A page that holds names and texts we did not write: print it to the stream that draft_open() gives, then
 * draft_close() sends it through session_foreign(). Where there is no memory for it, what is printed is lost and
 * EXIT_SYSTEM returned. */
struct draft {
    char *text;
    size_t bytes;
    FILE *stream;
};
FILE *draft_open(struct draft *d);
int draft_close(struct session *s, struct draft *d);
/* The same where the page is the answer itself: with --json it is the member of that name. */
int draft_emit(struct session *s, struct draft *d, const char *member);
/* Into a file instead, replaced whole, and clean as for a terminal: people print files. 0 or -errno. */
int draft_save(struct draft *d, const char *path);

/* Ctrl-C while something is waited for: the first one sets a flag that waits look at. */
void interrupt_catch(void);
bool interrupt_seen(void);
/* For who has something to clean up: SIGTERM and SIGHUP set the flag as well, until they are released. */
void interrupt_catch_ends(void);
void interrupt_release_ends(void);
/* 128 + the signal that set the flag. */
int interrupt_code(void);
/* Says that `job` goes on; returns 130. */
int interrupt_told(struct session *s, const char *job);

#endif
