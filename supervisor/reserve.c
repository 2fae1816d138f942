/* reserve.c - the reserve is a file of zeros: real blocks on every file system, NFS included. */
#include "reserve.h"

#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
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

bool kc_reserve_may_pass(int code)
{
    switch (code) {
    case -ENOSPC:
    case -EDQUOT:
    case -EROFS:
    case -EIO:
    case -ENOMEM:
    case -EMFILE:
    case -ENFILE:
        return true;
    default:
        return false;
    }
}

/* Cut `path` to where its file system is mounted. */
static void mount_of(char *path)
{
    struct stat here, above;
    char *slash = strrchr(path, '/');
    if (!slash || slash == path || stat(path, &here) != 0)
        return;
    while ((slash = strrchr(path, '/'))) {
        char *end = slash == path ? path + 1 : slash, kept = *end;
        *end = 0;
        if (stat(path, &above) != 0 || above.st_dev != here.st_dev) {
            *end = kept;
            return;
        }
        if (slash == path)
            return;
    }
}

int kc_reserve_fail(struct kc_error *e, int code, const char *path)
{
    char where[PATH_MAX];
    struct statvfs v;
    const char *slash = strrchr(path, '/');
    int n = slash ? snprintf(where, sizeof where, "%.*s", (int)(slash - path), path) : -1;
    if ((code != -ENOSPC && code != -EDQUOT) || n <= 0 || (size_t)n >= sizeof where || statvfs(where, &v) != 0)
        return kc_fail(e, code, "%s can't be written: %s", path, strerror(-code));
    mount_of(where);
    return kc_fail(e, code, "%s can't be written: %s, %llu bytes are free on %s", path, strerror(-code),
                   (unsigned long long)v.f_bavail * v.f_frsize, where);
}
