/* file.c */
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int kc_file_read(const char *path, size_t limit, char **out, size_t *bytes)
{
    int r = 0, fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    char *data = NULL;
    struct stat st;
    if (fd < 0)
        return -errno;
    if (fstat(fd, &st) != 0) {
        r = -errno;
        goto out;
    }
    if (!S_ISREG(st.st_mode)) {
        r = S_ISDIR(st.st_mode) ? -EISDIR : -EINVAL;
        goto out;
    }
    if ((size_t)st.st_size > limit) {
        r = -EFBIG;
        goto out;
    }
    size_t have = 0, room = (size_t)st.st_size;
    data = malloc(room + 1);
    if (!data) {
        r = -ENOMEM;
        goto out;
    }
    while (have < room) {
        ssize_t n = read(fd, data + have, room - have);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            r = -errno;
            goto out;
        }
        if (n == 0)
            break; /* it shrank while we read: what is there is what it is */
        have += (size_t)n;
    }
    data[have] = 0;
    *out = data;
    *bytes = have;
    data = NULL;
out:
    free(data);
    close(fd);
    return r;
}

int kc_write_all(int fd, const void *data, size_t bytes)
{
    const char *p = data;
    while (bytes > 0) {
        ssize_t n = write(fd, p, bytes);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        if (n == 0)
            return -EIO;
        p += n;
        bytes -= (size_t)n;
    }
    return 0;
}

int kc_append_all(int fd, const void *data, size_t bytes)
{
    off_t end = lseek(fd, 0, SEEK_END);
    int code = kc_write_all(fd, data, bytes);
    if (code < 0 && end >= 0)
        (void)!ftruncate(fd, end);
    return code;
}

int kc_sync_parent(const char *path)
{
    char dir[PATH_MAX];
    const char *slash = strrchr(path, '/');
    size_t n = slash ? (size_t)(slash - path) : 0;
    if (n >= sizeof dir)
        return -ENAMETOOLONG;
    if (!slash)
        memcpy(dir, ".", 2);
    else if (n == 0)
        memcpy(dir, "/", 2);
    else {
        memcpy(dir, path, n);
        dir[n] = 0;
    }
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    int r = fsync(fd) == 0 ? 0 : -errno;
    close(fd);
    return r;
}

int kc_file_replace(const char *path, const void *data, size_t bytes)
{
    char tmp[PATH_MAX];
    int n = snprintf(tmp, sizeof tmp, "%s.tmp.%ld", path, (long)getpid());
    if (n < 0 || (size_t)n >= sizeof tmp)
        return -ENAMETOOLONG;
    int fd = open(tmp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0)
        return -errno;
    int r = kc_write_all(fd, data, bytes);
    if (r == 0 && fsync(fd) != 0)
        r = -errno;
    if (close(fd) != 0 && r == 0)
        r = -errno;
    if (r == 0 && rename(tmp, path) != 0)
        r = -errno;
    if (r < 0) {
        unlink(tmp);
        return r;
    }
    return kc_sync_parent(path);
}

int kc_make_dirs(const char *path)
{
    char part[PATH_MAX];
    size_t n = strlen(path);
    if (n == 0 || n >= sizeof part)
        return n ? -ENAMETOOLONG : -EINVAL;
    for (size_t i = 1; i <= n; i++) {
        if (path[i] != '/' && path[i] != 0)
            continue;
        memcpy(part, path, i);
        part[i] = 0;
        if (mkdir(part, 0700) != 0 && errno != EEXIST)
            return -errno;
    }
    struct stat st;
    if (stat(path, &st) != 0)
        return -errno;
    return S_ISDIR(st.st_mode) ? 0 : -ENOTDIR;
}
