/* profile_report.h - a profile as a table, as JSON, and steps as a Chrome trace. */
#ifndef KC_CONSOLE_PROFILE_REPORT_H
#define KC_CONSOLE_PROFILE_REPORT_H

#include "profile.h"

#include "base/error.h"
#include "base/json.h"

#include <stdio.h>

void profile_print(const struct profile *p, FILE *out);
/* Adds steps, rows, lanes, communication to an object. */
void profile_json(const struct profile *p, enum profile_by by, json_t *o);
/* Steps of ranks in the Trace Event Format: a process a rank, a thread a lane, complete events with ts and dur in
 * microseconds from the first begin. Opens in ui.perfetto.dev. The file is replaced at once. -errno with e. */
int profile_trace(const char *path, const char *job, const struct profile_rank *rank, uint32_t ranks,
                  const uint32_t *steps, uint32_t count, struct kc_error *e);
/* Could it be written there? Asked before the job is followed. -errno with e. */
int profile_trace_possible(const char *path, struct kc_error *e);

#endif
