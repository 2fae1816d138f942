/* verdict.h - what hangs, who is to blame, and why: the judgement of the evidence. Pure: no clock, no file, no process; the
 * same evidence gives the same verdicts, so all of it is tested by evidence made by hand.
 *
 * A verdict is a root: a rank that others wait for and that waits for nobody; or a circle; or an operation whose members
 * disagree. It never comes without rows of evidence. *Hung* is said only of what did not move between two looks, and where
 * nobody can go on for certain, or what stands is older than the limit of its phase. All else is told as what it is. */
#ifndef KC_CONSOLE_HANG_VERDICT_H
#define KC_CONSOLE_HANG_VERDICT_H

#include "match.h"

#define KC_VERDICT_ROWS 12
#define KC_VERDICTS_MAX 64

struct kc_verdict {
    enum kc_hang_word word;
    bool hung;
    uint64_t ranks;          /* the root, or all parties; a bit each */
    uint64_t victims;        /* ranks that wait for them, also through others */
    enum kc_owner layer;     /* who answers for it … */
    const char *owner;       /* … and the team that the checklist of borders names for that layer */
    char operation[96];      /* that the victims stand in; "" none */
    uint32_t group;          /* KC_NO_GROUP: none */
    char group_name[33];     /* "" unknown */
    uint64_t sequence;
    double since_seconds;    /* so long already; NaN unknown */
    char text[320];          /* as one sentence */
    char fact[320];          /* the same without how long it has been so: for who tells it later; "" the same */
    uint32_t rows;
    char row[KC_VERDICT_ROWS][256];
    char next[192];          /* what to type next */
};

struct kc_diagnosis {
    bool hung;
    char text[384];          /* the whole of it in one line */
    uint32_t count;
    struct kc_verdict verdict[KC_VERDICTS_MAX]; /* what hangs first, then by victims */
};

/* -ENOMEM. To be freed with free(). */
int kc_diagnose(const struct kc_evidence *e, struct kc_diagnosis **out);

/* The team that answers for a layer, as layers/boundary.json named it when this program was built; "" unknown. */
const char *kc_team_of(enum kc_owner layer);

/* "rank 3", "ranks 0-2,5"; where they are not few (more than 10, or more than a quarter of `of`): "12 ranks". of 0: always
 * by number. */
const char *kc_ranks_text(uint64_t ranks, uint32_t of, char *out, unsigned room);
/* "41.2 s", "0.31 s", "12 min 5 s", "some time" for NaN. */
const char *kc_seconds_text(double seconds, char *out, unsigned room);

#endif
