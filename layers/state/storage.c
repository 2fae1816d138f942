/* storage.c - file operations over POSIX, each done at once, and the loops above any storage. Knows nothing of snapshots. */
#include "storage.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define RETRY(result, call)                                                                                            \
    do                                                                                                                 \
        result = (call);                                                                                               \
    while (result < 0 && errno == EINTR)

static int posix_open(void *self, const char *path, int flags)
{
    int fd;
    (void)self;
    RETRY(fd, open(path, flags | O_CLOEXEC, 0600));
    return fd < 0 ? -errno : fd;
}

static int posix_close(void *self, int fd)
{
    (void)self;
    return close(fd) != 0 && errno != EINTR ? -errno : 0; /* NFS tells of a full disk here */
}

static ssize_t posix_write(void *self, int fd, const void *data, size_t bytes, uint64_t at)
{
    ssize_t n;
    (void)self;
    RETRY(n, pwrite(fd, data, bytes, (off_t)at));
    return n < 0 ? -errno : n;
}

static int posix_submit(void *self, struct kc_write *w)
{
    w->result = posix_write(self, w->fd, w->data, w->bytes, w->at);
    w->done = true;
    return w->result < 0 ? (int)w->result : 0;
}

static void posix_wait(void *self)
{
    (void)self;
}

static void posix_wait_for(void *self, const struct kc_write *w)
{
    (void)self, (void)w;
}

static ssize_t posix_read(void *self, int fd, void *data, size_t bytes, uint64_t at)
{
    ssize_t n;
    (void)self;
    RETRY(n, pread(fd, data, bytes, (off_t)at));
    return n < 0 ? -errno : n;
}

static int posix_size(void *self, int fd, uint64_t *bytes)
{
    struct stat st;
    (void)self;
    if (fstat(fd, &st) != 0)
        return -errno;
    if (!S_ISREG(st.st_mode))
        return -EINVAL;
    *bytes = (uint64_t)st.st_size;
    return 0;
}

static int posix_reserve(void *self, int fd, uint64_t bytes)
{
    int r;
    (void)self;
    RETRY(r, fallocate(fd, 0, 0,
                       (off_t)bytes)); /* not posix_fallocate: that emulates by writing, and hides what fails */
    return r < 0 ? -errno : 0;
}

static int posix_cut(void *self, int fd, uint64_t bytes)
{
    int r;
    (void)self;
    RETRY(r, ftruncate(fd, (off_t)bytes));
    return r < 0 ? -errno : 0;
}

static int posix_sync(void *self, int fd)
{
    (void)self;
    return fsync(fd) != 0 ? -errno : 0; /* also not retried on EINTR: a failed fsync is final for this file */
}

static int posix_sync_folder(void *self, const char *path)
{
    int fd = posix_open(self, path, O_RDONLY | O_DIRECTORY);
    if (fd < 0)
        return fd;
    int r = fsync(fd) != 0 ? -errno : 0;
    close(fd);
    return r;
}

static int posix_forget(void *self, int fd)
{
    (void)self;
    return -posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
}

static int posix_lock(void *self, int fd)
{
    int r;
    (void)self;
    RETRY(r, flock(fd, LOCK_EX | LOCK_NB));
    return r < 0 ? -errno : 0;
}

static int posix_rename(void *self, const char *from, const char *to)
{
    (void)self;
    return rename(from, to) != 0 ? -errno : 0;
}

static int posix_make_folder(void *self, const char *path)
{
    (void)self;
    return mkdir(path, 0700) != 0 ? -errno : 0;
}

static int posix_remove(void *self, const char *path)
{
    (void)self;
    return unlink(path) != 0 ? -errno : 0;
}

static int posix_remove_folder(void *self, const char *path)
{
    (void)self;
    return rmdir(path) != 0 ? -errno : 0;
}

static int posix_list(void *self, const char *path, int (*see)(void *arg, const char *name), void *arg)
{
    int r = 0, fd = posix_open(self, path, O_RDONLY | O_DIRECTORY);
    if (fd < 0)
        return fd;
    DIR *d = fdopendir(fd);
    if (!d) {
        r = -errno;
        close(fd);
        return r;
    }
    for (;;) {
        errno = 0;
        struct dirent *entry = readdir(d);
        if (!entry) {
            r = -errno;
            break;
        }
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        r = see(arg, entry->d_name);
        if (r < 0)
            break;
    }
    closedir(d);
    return r;
}

static int posix_free_bytes(void *self, const char *path, uint64_t *bytes)
{
    struct statvfs v;
    int r;
    (void)self;
    RETRY(r, statvfs(path, &v));
    if (r < 0)
        return -errno;
    *bytes = (uint64_t)v.f_bavail * v.f_frsize;
    return 0;
}

const struct kc_storage kc_storage_posix = {.open = posix_open, .close = posix_close, .write = posix_write,
    .submit = posix_submit, .wait = posix_wait, .wait_for = posix_wait_for, .read = posix_read, .size = posix_size,
    .reserve = posix_reserve, .cut = posix_cut, .sync = posix_sync, .sync_folder = posix_sync_folder, .forget = posix_forget, .lock = posix_lock, .rename = posix_rename,
    .make_folder = posix_make_folder, .remove = posix_remove, .remove_folder = posix_remove_folder,
    .list = posix_list, .free_bytes = posix_free_bytes};

int kc_storage_write_all(const struct kc_storage *st, int fd, const void *data, size_t bytes, uint64_t at)
{
    const char *p = data;
    while (bytes > 0) {
        ssize_t n = st->write(st->self, fd, p, bytes, at);
        if (n < 0)
            return (int)n;
        if (n == 0)
            return -EIO;
        p += n;
        at += (uint64_t)n;
        bytes -= (size_t)n;
    }
    return 0;
}

/* ---- many writes ---- */

#define DIRECT_UNIT 4096 /* of address, offset and length: what every disk takes */

int kc_writes_begin(struct kc_writes *w, const struct kc_storage *st, int fd, int direct, uint32_t most)
{
    *w = (struct kc_writes){.st = st, .fd = fd, .direct = direct, .room = 2 * most};
    w->write = calloc(w->room + 1u, sizeof *w->write);
    return w->write ? 0 : -ENOMEM;
}

static int start(struct kc_writes *w, int fd, const void *data, size_t bytes, uint64_t at)
{
    if (bytes == 0)
        return 0;
    struct kc_write *one = &w->write[w->count++];
    *one = (struct kc_write){.fd = fd, .data = data, .bytes = bytes, .at = at};
    int r = w->st->submit(w->st->self, one);
    return r == -EINVAL && w->direct >= 0 ? 0 : r; /* see finish() */
}

int kc_writes_add(struct kc_writes *w, const void *data, size_t bytes, uint64_t at)
{
    const bool aligned = w->direct >= 0 && (uintptr_t)data % DIRECT_UNIT == 0 && at % DIRECT_UNIT == 0;
    const size_t main = aligned ? bytes / DIRECT_UNIT * DIRECT_UNIT : 0;
    int r = start(w, w->direct, data, main, at);
    return r < 0 ? r : start(w, w->fd, (const char *)data + main, bytes - main, at + main);
}

/* What is left of one write. */
static int finish(const struct kc_writes *w, const struct kc_write *one)
{
    ssize_t n = one->result;
    if (n == -EINVAL && one->fd == w->direct) /* the file system wants another alignment than ours */
        n = 0;
    if (n < 0 || (size_t)n == one->bytes)
        return n < 0 ? (int)n : 0;
    return kc_storage_write_all(w->st, w->fd, (const char *)one->data + n, one->bytes - (size_t)n, one->at + (uint64_t)n);
}

int kc_writes_until(struct kc_writes *w, uint32_t count)
{
    for (; w->settled < count; w->settled++) {
        const struct kc_write *one = &w->write[w->settled];
        w->st->wait_for(w->st->self, one);
        if (w->failed == 0)
            w->failed = finish(w, one);
    }
    return w->failed;
}

int kc_writes_end(struct kc_writes *w)
{
    w->st->wait(w->st->self);
    const int r = kc_writes_until(w, w->count);
    free(w->write);
    *w = (struct kc_writes){.st = w->st, .fd = -1, .direct = -1};
    return r;
}

int kc_storage_read_all(const struct kc_storage *st, int fd, void *data, size_t bytes, uint64_t at)
{
    char *p = data;
    while (bytes > 0) {
        ssize_t n = st->read(st->self, fd, p, bytes, at);
        if (n < 0)
            return (int)n;
        if (n == 0)
            return -ENODATA;
        p += n;
        at += (uint64_t)n;
        bytes -= (size_t)n;
    }
    return 0;
}

int kc_storage_read_file(const struct kc_storage *st, const char *path, size_t limit, char **out, size_t *bytes)
{
    uint64_t size;
    char *data = NULL;
    int fd = st->open(st->self, path, O_RDONLY | O_NONBLOCK);
    if (fd < 0)
        return fd;
    int r = st->size(st->self, fd, &size);
    if (r == 0 && size > limit)
        r = -EFBIG;
    if (r == 0 && !(data = malloc((size_t)size + 1)))
        r = -ENOMEM;
    if (r == 0)
        r = kc_storage_read_all(st, fd, data, (size_t)size, 0);
    st->close(st->self, fd);
    if (r < 0) {
        free(data);
        return r;
    }
    data[size] = 0;
    *out = data;
    *bytes = (size_t)size;
    return 0;
}

int kc_storage_read_json(const struct kc_storage *st, const char *path, struct json_t **out, struct kc_error *e)
{
    char *text;
    size_t bytes;
    json_error_t je;
    int r = kc_storage_read_file(st, path, 64 << 20, &text, &bytes);
    if (r < 0)
        return kc_storage_fail(st, e, r, "read", path, 0);
    json_t *json = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &je);
    free(text);
    if (!json_is_object(json)) {
        r = kc_fail(e, -EBADMSG, "%s is no JSON object: line %d: %s", path, je.line, json ? "not an object" : je.text);
        json_decref(json);
        return r;
    }
    *out = json;
    return 0;
}

int kc_storage_write_file(const struct kc_storage *st, const char *path, const void *data, size_t bytes)
{
    int fd = st->open(st->self, path, O_WRONLY | O_CREAT | O_EXCL);
    if (fd < 0)
        return fd;
    int r = kc_storage_write_all(st, fd, data, bytes, 0);
    if (r == 0)
        r = st->sync(st->self, fd);
    int c = st->close(st->self, fd);
    r = r < 0 ? r : c;
    if (r < 0)
        st->remove(st->self, path);
    return r;
}

struct tree {
    const struct kc_storage *st;
    const char *path;
};

static int remove_one(void *arg, const char *name)
{
    struct tree *t = arg;
    char path[PATH_MAX];
    if ((size_t)snprintf(path, sizeof path, "%s/%s", t->path, name) >= sizeof path)
        return -ENAMETOOLONG;
    int r = t->st->remove(t->st->self, path);
    return r == -ENOENT ? 0 : r;
}

int kc_storage_remove_tree(const struct kc_storage *st, const char *path)
{
    struct tree t = {st, path};
    int r = st->list(st->self, path, remove_one, &t);
    return r < 0 ? r : st->remove_folder(st->self, path);
}

int kc_storage_fail(const struct kc_storage *st, struct kc_error *e, int code, const char *what, const char *path,
                    uint64_t needed)
{
    char folder[PATH_MAX], space[128] = "";
    const char *slash = strrchr(path, '/');
    uint64_t room;
    snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - path) : 1, slash ? path : ".");
    if (needed && st->free_bytes(st->self, folder, &room) == 0)
        snprintf(space, sizeof space, " needs %llu bytes, %llu free:", (unsigned long long)needed,
                 (unsigned long long)room);
    else if (needed)
        snprintf(space, sizeof space, " needs %llu bytes, free unknown:", (unsigned long long)needed);
    return kc_fail(e, code, "cannot %s %s:%s %s (errno %d)", what, path, space, strerror(-code), -code);
}
