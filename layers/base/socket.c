/* socket.c */
#include "base/socket.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

/* Fill the address. A path that does not fit goes by its directory's descriptor, which must stay open (*dir, else -1)
 * until the address has been used. */
static int address(const char *path, struct sockaddr_un *out, int *dir)
{
    size_t length = strlen(path);
    *out = (struct sockaddr_un){.sun_family = AF_UNIX};
    *dir = -1;
    if (length < sizeof out->sun_path) {
        memcpy(out->sun_path, path, length + 1);
        return 0;
    }
    char parent[PATH_MAX];
    const char *slash = strrchr(path, '/');
    if (!slash || slash == path || length >= sizeof parent)
        return -ENAMETOOLONG;
    memcpy(parent, path, (size_t)(slash - path));
    parent[slash - path] = 0;
    int fd = open(parent, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    int n = snprintf(out->sun_path, sizeof out->sun_path, "/proc/self/fd/%d/%s", fd, slash + 1);
    if (n < 0 || (size_t)n >= sizeof out->sun_path) {
        close(fd);
        return -ENAMETOOLONG;
    }
    *dir = fd;
    return 0;
}

int kc_socket_listen(const char *path)
{
    struct sockaddr_un to;
    int dir, r = address(path, &to, &dir);
    if (r < 0)
        return r;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        r = -errno;
    } else {
        mode_t old = umask(0177); /* the socket must never be open to others, not for a moment */
        if (bind(fd, (struct sockaddr *)&to, sizeof to) != 0 || listen(fd, 64) != 0)
            r = -errno;
        umask(old);
    }
    if (r < 0 && fd >= 0)
        close(fd);
    if (dir >= 0)
        close(dir);
    return r < 0 ? r : fd;
}

int kc_socket_connect(const char *path)
{
    struct sockaddr_un to;
    int dir, r = address(path, &to, &dir);
    if (r < 0)
        return r;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        r = -errno;
    while (fd >= 0 && connect(fd, (struct sockaddr *)&to, sizeof to) != 0) {
        r = errno == EINTR ? 0 : -errno;
        if (r < 0)
            break;
    }
    if (r < 0 && fd >= 0)
        close(fd);
    if (dir >= 0)
        close(dir);
    return r < 0 ? r : fd;
}
