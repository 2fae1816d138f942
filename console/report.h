/* report.h - jobs as JSON and as text for people: the one place where figures of the model become output. */
#ifndef KC_CONSOLE_REPORT_H
#define KC_CONSOLE_REPORT_H

#include "model.h"

#include "base/json.h"

#include <stdio.h>

/* id, name, state, step, steps, loss, …; `ranks` only where they are known. New reference. */
json_t *report_job(const struct job *j);
/* Primitives that its plan has, and by which algorithms, {"all-reduce": ["direct"]}; null where check_algorithms() did
 * not find out. New reference. */
json_t *report_algorithms(const struct job *j);
/* Seconds by part of a step: {"data_seconds": …}. New reference. */
json_t *report_split(const double split[SPLITS]);
/* "data 43 us, forward 145 ms, …" */
void report_split_text(const double split[SPLITS], FILE *out);
/* A whole number, -1 is null. */
json_t *report_whole(int64_t n);

/* The table of `kc ps`. */
void report_list(const struct model *m, FILE *out);
/* The page of `kc show`. */
void report_page(const struct job *j, FILE *out);
/* One line: "step 120/300  loss 2.113  9.3k tok/s"; without the speed where it is unknown. */
void report_progress(const struct job *j, char *out, size_t room);
/* What a rank hangs on, "all-reduce world#6650", or "-"; report_wait_long() with how long already, which comes first so
 * that a narrow column cuts the name: "0.31 s all-reduce world#6650". */
void report_wait(const struct job_wait *w, char *out, size_t room);
void report_wait_long(const struct job_wait *w, char *out, size_t room);
/* Its letter in grids: that of its phase or state, but H hangs, ~ straggler, ? torn. */
char report_letter(const struct job *j, const struct job_rank *r);
/* Is it a straggler, and the line that says by how much. */
bool report_straggles(const struct job_rank *r);
void report_pace(const struct job_rank *r, char *out, size_t room);
/* The state and, where it is known, the place in the queue: "queued 2". */
void report_state(const struct job *j, char *out, size_t room);
/* How an ended job ended, as one line. */
void report_outcome(const struct job *j, char *out, size_t room);

#endif
