/* reserve.h - a job can say how it ended on a full disk, too: its directory holds a little room from the beginning, given up
 * when a file that must be written does not fit. */
#ifndef KC_SUPERVISOR_RESERVE_H
#define KC_SUPERVISOR_RESERVE_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>

/* kc_file_replace() of `path`, a file of `job_directory`. Without space: again with the reserve, which is taken anew as soon
 * as there is room. -errno. */
int kc_reserve_replace(const char *job_directory, const char *path, const void *data, size_t bytes);
/* May a write that failed so succeed later, with nobody touching the file: room, quota, a disk that comes back? */
bool kc_reserve_may_pass(int code);
/* Why `path` can't be written, with the room of its file system. Returns code. */
int kc_reserve_fail(struct kc_error *e, int code, const char *path);

#endif
