/* log_times.h - jobs/<id>/log-times: when what ranks printed came into their logs. Ranks write their logs by themselves and most
 * lines say no time; the keeper looks at the logs' sizes, so lines of several ranks can be put in order later (kc log). A row a
 * line, "TIME RANK END": at TIME (ms since 1970) the log of RANK was END bytes long; TIME 0: what was there before anybody
 * looked. "TIME RANK -BYTES": so many bytes were taken off its front. Never in the way: what can't be written is left out. */
#ifndef KC_SUPERVISOR_LOG_TIMES_H
#define KC_SUPERVISOR_LOG_TIMES_H

#include "contracts/types.h"

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define KC_LOG_TIMES_MOST ((off_t)4 << 20) /* to this each of the two files grows */

struct kc_log_times {
    int fd;
    char path[PATH_MAX];
    off_t size;
    uint64_t looked;
    struct kc_log_times_rank {
        off_t seen;
        unsigned left;      /* rows that it may have at once; one more comes each second */
        uint64_t refilled;
    } rank[KC_RANKS_MAX];
};

/* Made if missing; size[r] bytes are in the log of rank r. -errno, then nothing is written later. */
int kc_log_times_open(struct kc_log_times *t, const char *job_directory, const off_t *size, uint32_t ranks);
void kc_log_times_close(struct kc_log_times *t);
/* The log of a rank is so long now (kc_wall() `wall`). `last`: it has ended, so that is noted however many rows it had. */
void kc_log_times_grown(struct kc_log_times *t, uint32_t rank, off_t size, uint64_t wall, bool last);
/* So many bytes were taken off its front. */
void kc_log_times_turned(struct kc_log_times *t, uint32_t rank, off_t bytes, uint64_t wall);

#endif
