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
};
void saving_of(const struct job *j, struct saving *out);
/* "training stood 3 ms; copied in 20 ms, written in 80 ms, 12.3 MiB for 30.0 MiB; 2 left out"; "" where there was none. */
void saving_text(const struct saving *s, char *out, size_t room);
/* "copying", "writing", "committing"; NULL: none is under way. */
const char *saving_stage(const struct saving *s);
/* Null where nothing is known. New reference. */
json_t *saving_json(const struct saving *s);

#endif
