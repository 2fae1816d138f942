/* saving.h - what snapshots cost a job that runs, and how often it went back to one: from the figures of its ranks. Pure. */
#ifndef KC_CONSOLE_SAVING_H
#define KC_CONSOLE_SAVING_H

#include "model.h"

#include "base/json.h"

/* NaN: unknown. Of the last snapshot the rank counts that took longest. */
struct saving {
    int stage;                   /* enum kc_saving of the one under way; -1 unknown */
    double stall, copy, write;   /* seconds */
    double bytes, raw_bytes;     /* on disk, and of the values */
    double left_out;             /* snapshots, because one was under way */
    double rollbacks, samples;   /* times that the run went back, samples left out by that */
    /* of the stage under way, all ranks: */
    double step;                 /* that the snapshot is of */
    double values;               /* bytes of values that it saves */
    double through;              /* the share of them that the stage is through with, of 1 */
    double seconds;              /* that took it */
};
/* All unknown. */
void saving_clear(struct saving *out);
void saving_of(const struct job *j, struct saving *out);
/* "training stood 3 ms; copied in 20 ms, written in 80 ms, 12.3 MiB for 30.0 MiB; 2 left out"; "" where there was none. */
void saving_text(const struct saving *s, char *out, size_t room);
/* "copying", "writing", "committing"; NULL: none is under way. */
const char *saving_stage(const struct saving *s);
/* Bytes of values a second that the stage gets through, and seconds until it is done; NaN. */
double saving_rate(const struct saving *s);
double saving_left(const struct saving *s);
/* "writing step 1200: 62 % of 30.0 MiB, 41 MiB/s, 0.28 s left"; "" where none is under way. */
void saving_progress_text(const struct saving *s, char *out, size_t room);
/* {stage, step, values, through, seconds, bytes_per_second, seconds_left}; null where none is under way. New reference. */
json_t *saving_progress_json(const struct saving *s);
/* Null where nothing is known. New reference. */
json_t *saving_json(const struct saving *s);

#endif
