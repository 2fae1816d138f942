/* prometheus.h - figures of jobs in the Prometheus text exposition format, version 0.0.4: HELP and TYPE once a
 * family, all samples of a family together, counters end in _total, no time stamps, what is unknown is left out.
 * The families are the rows of shm/metrics.def, and four of our own: kc_build_info, kc_heartbeat_timestamp_seconds,
 * kc_job_state, kc_rank_state. */
#ifndef KC_CONSOLE_PROMETHEUS_H
#define KC_CONSOLE_PROMETHEUS_H

#include "model.h"

#include <stdio.h>

/* Ended jobs have no figures that move; they appear only if `ended`. */
void prometheus_print(const struct model *m, bool ended, FILE *out);
/* Into KC_FIGURES_FILE of a folder, replaced whole, for everybody to read. -errno with one line. */
int prometheus_save(const struct model *m, const char *folder, struct kc_error *e);

#endif
