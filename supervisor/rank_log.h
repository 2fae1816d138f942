/* rank_log.h - jobs/<id>/rank-<n>.log: what a rank prints. The rank appends to it by itself, so its output survives
 * any supervisor; the keeper only turns the file over when it has grown: the old text moves to rank-<n>.log.1 (.2 …),
 * a piece at a time, and is then taken off the front, under the feet of the writer, who goes on appending. */
#ifndef KC_SUPERVISOR_RANK_LOG_H
#define KC_SUPERVISOR_RANK_LOG_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct kc_rank_log {
    int fd;             /* append; the rank inherits it */
    int old;            /* being written while it is turned over, else -1 */
    off_t moved;
    off_t taken;        /* off its front, by the last kc_rank_log_turn() */
    off_t mark;         /* its size at kc_rank_log_mark() */
    char path[PATH_MAX];
};

/* Open for appending, made if missing. -errno. */
int kc_rank_log_open(struct kc_rank_log *log, const char *job_directory, uint32_t rank);
void kc_rank_log_close(struct kc_rank_log *log);
/* Turn it over if it is larger than `limit` bytes, keeping `keep` old ones (0: the text is dropped). Copies at most 1
 * MiB a call; true: call again soon. A failure leaves the log as it is. log->taken: bytes that this call took off its front. */
bool kc_rank_log_turn(struct kc_rank_log *log, uint64_t limit, uint32_t keep);
/* Its size in bytes; 0 unknown. */
off_t kc_rank_log_size(const struct kc_rank_log *log);
/* What is printed from here on belongs to the next incarnation. */
void kc_rank_log_mark(struct kc_rank_log *log);
/* The last line since the mark that is not blank, cut to fit: valid UTF-8 without control characters; "" if none. */
void kc_rank_log_last(const struct kc_rank_log *log, char *out, size_t room);

#endif
