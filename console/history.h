/* history.h - loss, gradient norm and learning rate of a whole run, from metrics.jsonl, at bounded size: when full,
 * neighbours are joined and the resolution is halved; the newest steps stand beside that one by one. Reading goes on
 * where it stopped; a file that was cut back (a restart) is read again. */
#ifndef KC_CONSOLE_HISTORY_H
#define KC_CONSOLE_HISTORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HISTORY_POINTS 4096
#define HISTORY_RECENT 4096 /* steps */
#define HISTORY_EVALUATIONS 512

/* id, name, shown */
#define HISTORY_TABLE(X)                                                                                               \
    X(LOSS, "loss") X(GRAD_NORM, "gradient norm") X(LR, "learning rate")
enum history_series {
#define HISTORY_ROW(id, name) HISTORY_##id,
    HISTORY_TABLE(HISTORY_ROW)
#undef HISTORY_ROW
    HISTORY_SERIES
};
extern const char *const history_name[HISTORY_SERIES];

struct history_value {
    double sum, min, max;    /* of the finite ones; min > max: there was none */
    uint64_t min_at, max_at; /* steps */
    uint32_t finite, nonfinite;
};

/* Steps [first, last] drawn together. */
struct history_point {
    uint64_t first, last;
    struct history_value value[HISTORY_SERIES];
};

struct history_step {
    uint64_t step;
    double value[HISTORY_SERIES];
};

struct history {
    struct history_point *point;
    size_t count;
    uint64_t width;              /* steps a point stands for */
    struct history_step *recent; /* ring */
    size_t recent_first, recent_count;
    struct {
        uint64_t step;
        double loss;
    } evaluation[HISTORY_EVALUATIONS]; /* the newest */
    size_t evaluations;
    char path[4096];
    uint64_t at;                 /* bytes read */
    uint64_t device, inode, last_step;
    char *rest;                  /* the beginning of a line */
    size_t rest_bytes;
};

/* Follow `path`. The same path again goes on; another begins anew. -ENOMEM. */
int history_open(struct history *h, const char *path);
/* Read what is new, at most 1 MiB at once, so that a screen stays alive. 1: there is more, 0: all read, -errno. */
int history_read(struct history *h);
void history_free(struct history *h);
/* One step (NaN: not finite), steps rising. */
void history_add(struct history *h, uint64_t step, const double value[HISTORY_SERIES]);
/* A point that somebody else has joined, behind those that are there; one too many is joined to the last. */
void history_take(struct history *h, const struct history_point *p);
/* Forget all, keep the path. */
void history_clear(struct history *h);

/* All of the run in order, i < history_length(): single steps where those are known, else points. */
size_t history_length(const struct history *h);
struct history_point history_at(const struct history *h, size_t i);
/* The mean of a point's finite values; NaN: there is none. */
double history_mean(const struct history_value *v);

#endif
