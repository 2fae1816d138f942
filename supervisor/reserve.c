/* reserve.c - the reserve is a file of zeros: real blocks on every file system, NFS included. */
#include "reserve.h"

#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <unistd.h>

#define RESERVE_BYTES (32u << 10) /* state.json and result.json of 64 ranks, with their temporary copies */

static void take(const char *path)
{
    static const char zeros[RESERVE_BYTES];
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return; /* it is there */
    if (kc_write_all(fd, zeros, sizeof zeros) < 0)
        unlink(path);
    close(fd);
}

int kc_reserve_replace(const char *job_directory, const char *path, const void *data, size_t bytes)
{
    char reserve[PATH_MAX + 16];
    snprintf(reserve, sizeof reserve, "%s/.reserve", job_directory);
    int code = kc_file_replace(path, data, bytes);
    if ((code == -ENOSPC || code == -EDQUOT) && unlink(reserve) == 0)
        code = kc_file_replace(path, data, bytes);
    if (code == 0)
        take(reserve);
    return code;
}
