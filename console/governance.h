/* governance.h - how a job is governed, as seen from outside: the policy and what is used up of it, what was done about faults
 * and requests (who, when, why), and the ledger: which layer asked for which state. Behind `kc govern` and the governance view;
 * rules and exemptions are borders.h. */
#ifndef KC_CONSOLE_GOVERNANCE_H
#define KC_CONSOLE_GOVERNANCE_H

#include "journal.h"
#include "model.h"
#include "spent.h"

#include "base/json.h"

/* What policy says to a fault now. */
struct ruling {
    enum kc_fault fault;
    enum kc_action action, first; /* now, and before anything was used up */
    int64_t used, most;           /* of what that takes: restarts, rollbacks; -1: it takes nothing */
};

/* Something that was done; the same by the same, again and again, is one row. */
struct deed {
    char time[32];        /* of the last time */
    uint32_t times;
    double at;            /* seconds since 1970; NaN */
    const char *who;      /* user, keeper, kcd, govern, state, drill */
    char what[24];        /* the event: "fault" */
    char action[24];      /* "restart" */
    int64_t rank, step;   /* -1 */
    char why[400];        /* of the last time */
};
#define DEEDS_MOST 1024   /* the newest */

/* One caller's account with one keeper of something, of a rank or of all. Unknown is NaN. */
struct ledger_row {
    char caller[32];
    const char *of;       /* "state": opened are tickets, viewed views. "communication": operations. "devices": leases */
    int rank;             /* -1: all ranks together */
    double opened, viewed, refused, by_class[KC_STATES];
};

struct governance {
    struct ruling ruling[KC_FAULTS];
    size_t rulings;       /* 0: the spec can't be read */
    struct deed *deed;    /* oldest first */
    size_t deeds;
    struct journal journal; /* read so far */
    struct ledger_row *ledger; /* rows of all ranks together come first */
    size_t ledgers;
};

/* Of a job: of its files, and what its ranks show. A zeroed `g` is new; asked again, it reads on, a piece of the journal at a
 * time. Whether there is more of that: go on at once. */
bool governance_read(const struct job *j, struct governance *g);
/* Pure parts of it. `events`: an array of the journal's objects, those behind what `g` has. -ENOMEM. */
size_t governance_rule(const struct kc_job_spec *spec, const struct kc_policy_history *history, struct ruling out[KC_FAULTS]);
int governance_judge(const json_t *events, struct governance *g);
void governance_free(struct governance *g);

/* The ledger again, as the ranks show it now, with the strangers of whom the journal tells. */
void governance_count(const struct job *j, struct governance *g);

/* "crash restart 1/3": so many of so many are used up. Returns `out`. */
const char *ruling_text(const struct ruling *r, char *out, size_t room);
/* The members "policy", "ledger", "actions". */
void governance_json(const struct governance *g, json_t *into);

#endif
