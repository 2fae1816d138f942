/* history.h - the loss of a whole run, from metrics.jsonl, at bounded size: when full, neighbours are joined and the
 * resolution is halved. Reading goes on where it stopped; a file that was cut back (a restart) is read again. */
#ifndef KC_CONSOLE_HISTORY_H
#define KC_CONSOLE_HISTORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HISTORY_POINTS 4096
#define HISTORY_EVALUATIONS 512

/* Steps [first, last] drawn together. */
struct history_point {
    uint64_t first, last;
    double sum, min, max; /* of the finite losses; min > max: there was none */
    uint32_t finite, nonfinite;
};

struct history {
    struct history_point *point;
    size_t count;
    uint64_t width;           /* steps a point stands for */
    struct {
        uint64_t step;
        double loss;
    } evaluation[HISTORY_EVALUATIONS]; /* the newest */
    size_t evaluations;
    char path[4096];
    uint64_t at;              /* bytes read */
    uint64_t device, inode, last_step;
    char *rest;               /* the beginning of a line */
    size_t rest_bytes;
};

/* Follow `path`. The same path again goes on; another begins anew. -ENOMEM. */
int history_open(struct history *h, const char *path);
/* Read what is new, at most 4 MiB at once, so that a screen stays alive. 1: there is more, 0: all read, -errno. */
int history_read(struct history *h);
void history_free(struct history *h);
/* One step's loss (NaN: not finite), steps rising. */
void history_add(struct history *h, uint64_t step, double loss);

#endif
