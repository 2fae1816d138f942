/* answer.h - what a verb says with --json, asked by a view that must not wait for it: another kc. One question at a time;
 * the last answer stays, with its age, while the next is under way and where that fails. */
#ifndef KC_CONSOLE_SCREEN_ANSWER_H
#define KC_CONSOLE_SCREEN_ANSWER_H

#include "base/json.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct answer {
    pid_t pid;            /* 0: nothing is under way */
    int fd;
    char *text;           /* what has come of it; owned */
    size_t bytes;
    json_t *json;         /* the last answer; NULL: none yet. Owned */
    uint64_t asked, came; /* kc_now() of the last question, and of that which `json` answers; 0 */
    int code;             /* exit code of `json` */
    bool news;            /* it has come, and answer_read() has not said so yet */
    char error[256];      /* why the last question has none; "" it has, or is under way */
};

/* Ask: the words of a statement without --json, "hang demo-1". Does nothing while a question is under way. -errno, then
 * `error` has it too. */
int answer_ask(struct answer *a, const char *statement);
/* Take what has come; never waits. A question that is older than a minute is given up. For those that nobody looks at now: who is
 * asked must not stand at a full pipe, nor stay a zombie. */
void answer_drain(struct answer *a);
/* The same. True, once: an answer, or why there is none. */
bool answer_read(struct answer *a);
/* Give up what is under way and forget all; a zeroed one is a new one. */
void answer_free(struct answer *a);

#endif
