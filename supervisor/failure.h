/* failure.h - which rank failed first, and what to call it. Pure: from what the keeper saw of each rank's end and
 * what the ranks said, to one verdict. A rank that left because of a peer, or that we ended, is never first; the rest
 * are folded into "and N others followed". */
#ifndef KC_SUPERVISOR_FAILURE_H
#define KC_SUPERVISOR_FAILURE_H

#include "govern/policy.h"
#include "shm/records.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KC_LAST_LINE_ROOM 201 /* as much of it as helps, and a NUL */

/* How one rank ended. */
struct kc_rank_end {
    bool gone;                   /* its process was reaped, or is known to be gone */
    bool known;                  /* exit_code and signal mean something (false: it was not our child) */
    int exit_code, signal;       /* signal 0: it exited */
    bool ended_by_us;            /* we had told it to end when it did */
    bool aborted;                /* it set the abort word, and may still run */
    bool killed;                 /* by SIGKILL, which we did not send: was it the kernel, for want of memory? */
    enum kc_oom_level oom;       /* if so */
    char oom_evidence[112];      /* and by what that is known; "" nothing speaks for it */
    uint64_t seen;               /* kc_now() when the keeper saw the end or the abort */
    uint64_t step;               /* that it was in, from its slot */
    enum kc_phase phase;
    struct kc_last_words words;  /* time 0: none */
    char line[KC_LAST_LINE_ROOM];/* the last that it printed, if it left without a word; "" none */
};

struct kc_verdict {
    int rank;                    /* -1: no rank; with a text: what failed was none of them, else nothing failed */
    bool cause; /* it failed of itself; false: all that is known followed something, or was ended by us */
    bool alone;                  /* the text is of this rank; false: of several, none of which is to blame more than another */
    bool outside;                /* it was killed without a word: says nothing about what the rank did */
    bool killed;                 /* as in kc_rank_end */
    enum kc_oom_level oom;
    uint64_t step, time;
    enum kc_phase phase;
    enum kc_reason reason;
    uint32_t followers;          /* other ranks that did not end well */
    char detail[320];            /* what happened to it: "killed by someone (signal 9, SIGKILL)" */
    char text[512];              /* one line for a person */
};

/* Does it tell of a failure, of a rank or not? */
static inline bool kc_verdict_failed(const struct kc_verdict *verdict)
{
    return verdict->rank >= 0 || verdict->text[0];
}
/* A failure that no rank is to blame for. */
struct kc_verdict kc_failure_other(enum kc_reason reason, enum kc_phase phase, uint64_t step, const char *text);
/* Did it end as a rank of a finished or stopped job does? */
bool kc_rank_ended_well(const struct kc_rank_end *end);
/* The first failure among `count` ranks; rank -1 if all ended well (or have not ended). */
void kc_failure_name(const struct kc_rank_end *ends, size_t count, struct kc_verdict *out);
/* The same again? At the same step, for the same reason, and in the same words but for numbers, whichever rank it was; of a
 * hang the words are of what was found, and do not count. */
bool kc_failure_same(const struct kc_verdict *a, const struct kc_verdict *b);
/* Append to its text. */
void kc_failure_add(struct kc_verdict *verdict, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The fault that policy is asked about. `trained`: the incarnation had finished a step. */
enum kc_fault kc_failure_fault(const struct kc_verdict *verdict, bool trained);

#endif
