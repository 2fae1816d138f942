/* journal.h - jobs/<id>/events.jsonl: what happened to a job, for people and scripts. One write per line, appended; a
 * line that can't be written is lost silently, because nothing may stop a supervisor.
 * {"time":"2026-11-29T18:42:43.120Z","monotonic_ns":…,"event":"rank-exit", details …} */
#ifndef KC_SUPERVISOR_JOURNAL_H
#define KC_SUPERVISOR_JOURNAL_H

#include "base/json.h"
#include "shm/names.h"

#include <stdint.h>

/* `event`: of kc_told_name, or of kc_event_name. `details` (an object, or NULL; the reference is taken) is merged behind the
 * three fields. */
void kc_journal(const char *job_directory, const char *event, json_t *details);
/* For what happened before it came to be written: `when` by kc_now(). */
void kc_journal_at(const char *job_directory, uint64_t when, const char *event, json_t *details);

#endif
