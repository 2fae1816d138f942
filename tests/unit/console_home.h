/* console_home.h - a $KC_HOME made by a test, and kc run in this process with its output caught. */
#ifndef TESTS_CONSOLE_HOME_H
#define TESTS_CONSOLE_HOME_H

#include "console/session.h"

#include <stddef.h>

struct console_home {
    char path[128];     /* a fresh folder under /tmp; also in KC_HOME */
    char instance[32];  /* of this process alone; also in KC_INSTANCE */
};
void console_home_make(struct console_home *h);
void console_home_remove(struct console_home *h);
/* Write <home>/<name>, folders made. */
void console_home_write(const struct console_home *h, const char *name, const char *text);
/* A job's files: spec.json, state.json in that state, `steps_done` lines of metrics.jsonl with loss 5 − step/100. */
void console_home_job(const struct console_home *h, const char *id, const char *state, int steps_done, int steps);

/* What a statement printed. */
struct console_answer {
    char *out, *err;
    size_t out_bytes, err_bytes;
    int code;
};
/* kc with these words (NULL ends them). */
void console_run(struct console_answer *a, const char *const *words);
#define CONSOLE_RUN(a, ...) console_run(a, (const char *const[]){__VA_ARGS__, NULL})
void console_answer_free(struct console_answer *a);

#endif
