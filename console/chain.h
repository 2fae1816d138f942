/* chain.h - all states of a job that are kept: versions on disk, the copies that its keeper holds in memory, the one that is
 * aside; what each leans on and cost, and which would be loaded after which fault. Behind `kc snap ls` and the snapshots view. */
#ifndef KC_CONSOLE_CHAIN_H
#define KC_CONSOLE_CHAIN_H

#include "costs.h"
#include "model.h"

#include "contracts/job_spec.h"
#include "govern/policy.h"
#include "state/state.h"

/* Where it lies. disk: in the job's folder; elsewhere: what is there is a link out of it. */
#define CHAIN_TIER_TABLE(X) X(DISK, "disk") X(MEMORY, "memory") X(ELSEWHERE, "elsewhere") X(ASIDE, "aside")
#define CHAIN_TIER_ROW(id, name) CHAIN_##id,
enum chain_tier { CHAIN_TIER_TABLE(CHAIN_TIER_ROW) CHAIN_TIERS };
extern const char *const chain_tier_name[CHAIN_TIERS];

struct chain_row {
    struct kc_snapshot_info info;
    enum chain_tier tier;
    double written;          /* seconds since 1970; NaN unknown */
    struct job_cost cost;    /* version 0: unknown */
};

/* id, name, what happened */
#define CHAIN_AFTER_TABLE(X)                                                                                           \
    X(CRASH, "crash", "a rank dies or is killed")                                                                      \
    X(HANG, "hang", "a rank stands still")                                                                             \
    X(DEVICE, "device", "a device becomes faulty")                                                                     \
    X(NONFINITE, "nonfinite", "a step is not finite")                                                                  \
    X(KEEPER, "keeper", "the keeper dies")                                                                             \
    X(MACHINE, "machine", "the machine goes down")                                                                     \
    X(DAMAGE, "damage", "and the newest on disk is damaged")
#define CHAIN_AFTER_ROW(id, name, what) CHAIN_AFTER_##id,
enum chain_after { CHAIN_AFTER_TABLE(CHAIN_AFTER_ROW) CHAIN_AFTERS };
extern const char *const chain_after_name[CHAIN_AFTERS], *const chain_after_what[CHAIN_AFTERS];

/* What the job would go on from after it. */
struct chain_restore {
    char action[16];         /* of the policy: "restart", "rollback", "go-on", "skip", "fail"; "" unknown */
    int64_t version, step;   /* -1: it reads nothing, or begins anew */
    enum chain_tier tier;    /* of that version */
    char text[160];          /* for people, with what it reads: "the copy in memory" */
};

struct chain {
    char id[JOB_ID_ROOM];
    struct chain_row *row;   /* on disk, oldest first; then in memory; then aside */
    size_t count;
    size_t disk, memory;     /* how many of these, elsewhere counts as disk */
    bool told;               /* all that is known is what a board told: that they were committed */
    bool planned;            /* its spec was read, and it has not ended: */
    struct chain_restore after[CHAIN_AFTERS];
};

/* Of a job, or of an imported model of that name (which has no plan). -ENOENT there is neither. */
int chain_read(const struct kc_home *home, const char *word, struct chain *out, struct kc_error *e);
/* What the board of a job said of it: for a moment that is over. */
struct kc_reader;
int chain_of_board(const struct kc_reader *r, const char *id, struct chain *out);
void chain_free(struct chain *c);

/* Pure: fill in `after`, by the spec's policy and what is used up of it. */
void chain_plan(struct chain *c, const struct kc_job_spec *spec, const struct kc_policy_history *history);
/* The row that is loaded when the keeper lives (and holds copies), or is gone; without the newest on disk. NULL: there is none. */
const struct chain_row *chain_newest(const struct chain *c, bool keeper, bool damaged);

/* The members "snapshots", "copies", "nonfinite", "restore" into an object; and back. -EINVAL it is no such object. */
void chain_json(const struct chain *c, json_t *into);
int chain_of_json(const json_t *object, struct chain *out);
/* One snapshot as in these arrays, without cost. New reference. */
json_t *chain_snapshot_json(const struct kc_snapshot_info *i);
/* Was its manifest read? Of one that is not whole only what its folder's name tells is known else. */
bool chain_described(const struct kc_snapshot_info *i);
/* "yes", "no", "broken", "memory", "aside": what a table says of it. */
const char *chain_word(const struct chain_row *r);

#endif
