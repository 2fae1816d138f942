/* metrics_file.h - jobs/<id>/metrics.jsonl: one line per step and one per evaluation, each step once. A record that
 * is not beyond the last line is a step that is done again after a restart: what stood there from that step on is cut
 * away first.
 *
 *   {"step":1,"loss":…,"grad_norm":…,"lr":…,"tokens":…,"seconds":…,"tokens_per_second":…}
 *   {"step":100,"validation_loss":…}
 * Where there are experts a step ends with "expert_imbalance":….
 * Nine significant digits; what is not finite is null. */
#ifndef KC_SUPERVISOR_METRICS_FILE_H
#define KC_SUPERVISOR_METRICS_FILE_H

#include "base/error.h"
#include "shm/records.h"

#include <stddef.h>
#include <stdint.h>

struct kc_metrics_file {
    int fd;
    uint64_t step, evaluated; /* of the last line of each kind; 0: none */
};

/* One line with its newline, NUL-terminated. Length, or -ENOSPC. */
int kc_metrics_step_line(const struct kc_step_record *r, char *out, size_t room);
int kc_metrics_evaluation_line(const struct kc_evaluation *r, char *out, size_t room);

/* Open (made if missing) and find the last lines; half a line at the end, of a writer that died, is cut off. -errno
 * with one line. */
int kc_metrics_open(struct kc_metrics_file *f, const char *job_directory, struct kc_error *e);
void kc_metrics_close(struct kc_metrics_file *f);
/* Cut back to `step`: no line of a later step stays. -errno. */
int kc_metrics_cut(struct kc_metrics_file *f, uint64_t step);
/* Append, cutting first where the step was done before. One write. -errno. */
int kc_metrics_step(struct kc_metrics_file *f, const struct kc_step_record *r);
int kc_metrics_evaluation(struct kc_metrics_file *f, const struct kc_evaluation *r);

#endif
