/* why.h - the story of a job's last fault, in ten lines: what happened first, who followed, who answers for it, by what that
 * is known, what was done, and what to type next. Pure: from what the journal, the job's files and a post-mortem say. */
#ifndef KC_CONSOLE_HANG_WHY_H
#define KC_CONSOLE_HANG_WHY_H

#include "console/model.h"

#include "base/json.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define KC_WHY_ROOM 640
#define KC_WHY_EVIDENCE 3
#define KC_WHY_NEXT 3

struct kc_why {
    char head[KC_WHY_ROOM];       /* how the job is */
    bool fault;                   /* something went wrong, or does; without one, up to `also` all is empty */
    char time[24];                /* of the first thing that did: "2026-11-30 03:12:40", UTC */
    int rank;                     /* -1: none alone */
    int64_t step;                 /* -1 unknown */
    char word[32];                /* "hang", "crash", …: the fault, as the journal has it */
    char first[KC_WHY_ROOM];
    uint32_t followers;
    char then[KC_WHY_ROOM];       /* who followed; "" nobody */
    char layer[24], team[48];
    uint32_t evidence_count;
    char evidence[KC_WHY_EVIDENCE][KC_WHY_ROOM];
    char done[KC_WHY_ROOM];
    char kept[128];               /* folder of the post-mortem below the job's; "" none */
    char also[KC_WHY_ROOM];       /* what went wrong besides, before; "" nothing */
    uint32_t next_count;
    char next[KC_WHY_NEXT][KC_WHY_ROOM]; /* what to type */
};

/* The folder of the post-mortem of the fault that the story is of, as the journal names it; NULL: none. Borrowed. */
const char *kc_why_folder(const json_t *events);
/* `events`: an array of the journal's objects, oldest first, maybe without the oldest. `verdict`: verdict.json of that
 * folder; NULL. */
void kc_why(const struct job *job, const json_t *events, const json_t *verdict, struct kc_why *out);
/* At most ten lines. */
void kc_why_text(const struct kc_why *w, FILE *out);
/* Adds to an object of schema kc.why/1. */
void kc_why_json(const struct kc_why *w, json_t *to);

#endif
