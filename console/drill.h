/* drill.h - `kc drill`: jobs that have a fault on purpose (inject of a spec), and what must become of them: what is diagnosed, how
 * soon, how the job ends, what is left, and whether its state is that of the job that was left alone. */
#ifndef KC_CONSOLE_DRILL_H
#define KC_CONSOLE_DRILL_H

#include "model.h"
#include "own_kcd.h"

#include "base/error.h"
#include "base/json.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* How a job ends. STANDS: it does not, and is stopped once it was said to hang. */
#define DRILL_END_TABLE(X) X(FINISHED, "finished") X(FAILED, "failed") X(STANDS, "stands")
enum drill_end {
#define DRILL_END_ROW(id, name) DRILL_##id,
    DRILL_END_TABLE(DRILL_END_ROW)
#undef DRILL_END_ROW
    DRILL_ENDS
};
extern const char *const drill_end_name[DRILL_ENDS];

/* One row of a set. Texts and JSON are borrowed from the set. */
struct drill {
    const char *name, *layout;
    json_t *spec;            /* whole, with inject; owned by the set */
    const json_t *verdict;   /* words of `kc hang`, one of which must be said; NULL: none is asked for */
    const json_t *fault;     /* reasons of the first failure; NULL */
    const json_t *event;     /* events of the journal; NULL */
    const json_t *without;   /* events that must not be there; NULL */
    const json_t *ranks;     /* who is named; NULL: not compared */
    const json_t *cases;     /* reports that it stands for, by their ids; NULL */
    enum drill_end end;
    bool same_root;          /* state_root at the end is that of the job without the fault */
    double seconds;          /* in which all must be over */
};

struct drill_set {
    json_t *root;
    struct drill *drill;
    size_t count;
    uint64_t tokens;   /* of the file that they train on */
    uint32_t vocab;
};

/* ---- drill_set.c ---- */
/* Read a set; `only`: names of those that are wanted, patterns with commas between (NULL: all). -EINVAL and the like with e. */
int drill_set_read(const char *path, const char *only, struct drill_set *out, struct kc_error *e);
void drill_set_free(struct drill_set *set);
/* Where the set lies that comes with kc. */
void drill_set_path(char *out, size_t room);
/* The part of a spec that decides its numbers, as text: jobs with the same have the same state. free(). */
char *drill_numbers(const json_t *spec);

/* ---- what was seen of one ---- */
#define DRILL_VERDICTS 8
struct drill_said {
    char word[32];
    int64_t rank[KC_RANKS_MAX];
    size_t ranks;
};
struct drill_seen {
    char id[JOB_ID_ROOM];
    struct drill_said verdict[DRILL_VERDICTS]; /* of the diagnosis of the first fault */
    size_t verdicts;
    struct drill_said fault;   /* the first failure; word "": none */
    struct drill_said event;   /* the first of those that are asked for; "" */
    char unwanted[32];         /* an event that must not be; "" */
    bool injected;
    double detected;           /* seconds from the fault until somebody knew; NaN unknown */
    double limit;              /* seconds that were allowed to what hung; NaN unknown */
    char by[32];               /* the event that said so */
    char end[24], root[33];    /* how it ended; "" not yet, unknown */
    size_t processes, segments, files; /* that were left */
    char left[200];            /* one of them, by name */
    char trouble[200];         /* what went wrong with the drill itself; "" */
};

/* ---- drill_judge.c: pure ---- */
/* Of a list of texts (NULL: none). */
bool drill_has_word(const json_t *words, const char *word);
/* Is it what was expected? `reference`: state_root of the job that was left alone, "" unknown. why: "" if right. */
bool drill_judge(const struct drill *d, const struct drill_seen *seen, const char *reference, char *why, size_t room);
/* "dead-peer 1", "fault nonfinite 2": what is expected, and what was got of it. */
void drill_expected_text(const struct drill *d, char *out, size_t room);
void drill_got_text(const struct drill *d, const struct drill_seen *seen, char *out, size_t room);

/* ---- drill_look.c: what files, /proc and /dev/shm say of a job ---- */
/* Read the job's journal, its end and its diagnosis. */
void drill_look(const struct own_kcd *k, const struct drill *d, struct drill_seen *seen);
/* Count what is left of it; 0: nothing. */
size_t drill_left(const struct own_kcd *k, struct drill_seen *seen);

/* ---- drill_run.c ---- */
/* Run all of the set, at most `at_once` together. `done` hears of each, in the order of the set. An exit code, told: of what kept
 * the drills from being run, not of their outcome. */
int drill_run(struct own_kcd *k, const struct drill_set *set, uint32_t at_once,
              void (*done)(void *self, const struct drill *d, const struct drill_seen *seen, const char *reference), void *self);

#endif
