/* mortem.h - a post-mortem: a folder that has all that is needed to understand a fault of a job later, elsewhere, without the
 * job. The verdict, the board and the looks are written by who made them (verb_hang.c); this adds the rest. */
#ifndef KC_CONSOLE_HANG_MORTEM_H
#define KC_CONSOLE_HANG_MORTEM_H

#include "base/error.h"
#include "base/home.h"

#include <stdint.h>

#define KC_MORTEM_KEPT 3               /* of a job, the newest; older ones go */
#define KC_MORTEM_LOG (64u << 10)      /* bytes of each rank's log: its end */
#define KC_MORTEM_EVENTS (256u << 10)  /* of the journal: its end, whole lines */
#define KC_MORTEM_SECONDS 900          /* of the recording */

/* Into `folder`, which is there: the recording's end, log-R.txt, events.jsonl, state.json, spec.json and plan.json of the job
 * whose directory is given. What is missing is left out; what can't be written does not keep the rest from it. Then, if it
 * is one of the job's own (below its "postmortem"), older ones than the newest KC_MORTEM_KEPT are removed.
 * The first error, -errno with one line. */
int kc_mortem_fill(const struct kc_home *home, const char *folder, const char *job_directory, uint32_t ranks,
                   struct kc_error *e);

#endif
