/* trend.h - how a job's loss went over its whole run, in a few numbers: sampled from metrics.jsonl by as many small reads,
 * however long the run is and whether it goes on or not. */
#ifndef KC_CONSOLE_TREND_H
#define KC_CONSOLE_TREND_H

#include "model.h"

#define TREND_POINTS 32

struct trend {
    uint64_t bytes, inode;  /* of the file when it was read */
    double loss[TREND_POINTS]; /* from the first step to the newest; NaN: it was not finite */
    size_t count;           /* fewer in a short run: each step stands once */
};

/* Read again if the file has grown by as much as one point stands for, or is another. No file, or none that can be read: count
 * 0. */
void trend_read(struct trend *t, const char *path);

/* Those of all jobs, kept from one look to the next. */
struct trends {
    struct named_trend {
        char id[JOB_ID_ROOM];
        struct trend trend;
        bool seen;
    } *of;
    size_t count, next; /* next: whose turn it is to be read */
};
/* Jobs that are new are read at once, of the others at most `at_once`. Those that are gone are forgotten. -ENOMEM: as before. */
int trends_read(struct trends *t, const struct model *m, size_t at_once);
/* NULL: not known. */
const struct trend *trends_find(const struct trends *t, const char *id);
void trends_free(struct trends *t);

#endif
