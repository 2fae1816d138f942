/* trace_make.h - the trace of a step of a job, made by running the step once more (scratch.h). */
#ifndef KC_CONSOLE_TRACE_MAKE_H
#define KC_CONSOLE_TRACE_MAKE_H

#include "session.h"

#include <stdbool.h>
#include <stdint.h>

struct trace_made {
    uint64_t version; /* the snapshot that the run began from; 0 the beginning */
    double loss;      /* of the step */
    bool other;       /* the job had another loss at that step: what was traced is not what it did */
};

/* Into a file, which is replaced. An exit code, told if it is not 0. A loss that is not the job's own is told as well. Call it where
 * interrupts are seen (bench_guarded). */
int trace_make(struct session *s, const char *job, uint64_t step, const char *path, struct trace_made *out);

#endif
