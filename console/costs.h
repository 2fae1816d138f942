/* costs.h - what each snapshot of a job cost, from its events.jsonl: the figures that its ranks measured. */
#ifndef KC_CONSOLE_COSTS_H
#define KC_CONSOLE_COSTS_H

#include "model.h"

#include "base/json.h"

struct costs {
    struct job_cost *row; /* in the order of the file */
    size_t count;
};

/* Of versions from `least` on; older ones are not worth parsing. `directory`: the job's. What can't be read is unknown. */
void costs_read(const char *directory, uint64_t least, struct costs *out);
/* The same of the job that a version's folder belongs to, if it is one of a job. */
void costs_read_of(const char *version_path, uint64_t least, struct costs *out);
/* What one rank told in an event of events.jsonl; false: it is none of a snapshot. */
bool cost_of_event(const json_t *event, struct job_cost *out);
/* NULL: unknown. The last that was written under that number, of that step. */
const struct job_cost *costs_find(const struct costs *c, uint64_t version, uint64_t step);
void costs_free(struct costs *c);
/* Of the newest snapshot of a job. */
void costs_newest(struct job *j);

/* NULL is null. New reference. */
json_t *cost_json(const struct job_cost *c);
/* "training stood 3 ms; copied in 20 ms, written in 80 ms, 12.3 MiB for 30.0 MiB; 310 MiB/s, 62 % of the disk's own rate"; "" unknown. */
void cost_text(const struct job_cost *c, char *out, size_t room);

#endif
