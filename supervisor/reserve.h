/* reserve.h - a job can say how it ended on a full disk, too: its directory holds a little room from the beginning, given up
 * when a file that must be written does not fit. */
#ifndef KC_SUPERVISOR_RESERVE_H
#define KC_SUPERVISOR_RESERVE_H

#include <stddef.h>

/* kc_file_replace() of `path`, a file of `job_directory`. Without space: again with the reserve, which is taken anew as soon
 * as there is room. -errno. */
int kc_reserve_replace(const char *job_directory, const char *path, const void *data, size_t bytes);

#endif
