/* rig_faults.c - see rig_faults.h. */
#include "rig_faults.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Count a call; 0 to go on, else what to answer. */
static int hit(struct rig_faults *f, const char *operation, bool changes)
{
    if (f->writes_only && !changes)
        return 0;
    if (++f->calls != f->at || f->corrupts)
        return 0;
    f->failed = operation;
    if (f->code == 0)
        _exit(99);
    return f->code;
}

/* What is done to which file; the last part of the path. */
static void trace(struct rig_faults *f, const char *operation, const char *path)
{
    const char *slash = strrchr(path, '/');
    if (f->traces && f->traced < 1024)
        snprintf(f->trace[f->traced++], 64, "%s %.44s", operation, slash ? slash + 1 : path);
}

static void trace_fd(struct rig_faults *f, const char *operation, int fd)
{
    trace(f, operation, fd < 256 ? f->name[fd] : "?");
}

#define FAULT(operation, changes, call, ...)                                                                           \
    do {                                                                                                               \
        struct rig_faults *f_ = self;                                                                                  \
        int code_ = hit(f_, operation, changes);                                                                       \
        return code_ ? code_ : f_->below->call(f_->below->self, __VA_ARGS__);                                          \
    } while (0)

static int f_open(void *self, const char *path, int flags)
{
    struct rig_faults *f = self;
    const char *slash = strrchr(path, '/');
    int code = hit(self, "open", (flags & O_CREAT) != 0);
    if (f->full && (flags & O_CREAT) && strncmp(path, f->full, strlen(f->full)) == 0)
        code = -ENOSPC;
    int fd = code ? code : f->below->open(f->below->self, path, flags);
    if (fd >= 0 && fd < 256)
        snprintf(f->name[fd], sizeof f->name[fd], "%.47s", slash ? slash + 1 : path);
    return fd;
}

static int f_close(void *self, int fd)
{
    struct rig_faults *f = self;
    int code = hit(f, "close", false), r = f->below->close(f->below->self, fd); /* whatever is said, it is closed */
    return code ? code : r;
}

/* One wrong bit, and a word that all is well. */
static ssize_t write_wrong(struct rig_faults *f, const struct kc_write *w)
{
    unsigned char *copy = malloc(w->bytes);
    memcpy(copy, w->data, w->bytes);
    copy[w->bytes / 2] ^= 4;
    ssize_t n = f->below->write(f->below->self, w->fd, copy, w->bytes, w->at);
    free(copy);
    f->failed = "corrupt";
    return n;
}

/* A write that is to go wrong is done here and now, the others as `below` does them. */
static bool write_fails(struct rig_faults *f, const struct kc_write *w, ssize_t *result)
{
    int code = hit(f, "write", true);
    trace_fd(f, "write", w->fd);
    if (f->corrupts && f->calls == f->at)
        *result = write_wrong(f, w);
    else if (code && f->halves != RIG_WHOLE && w->bytes > 1) {
        f->at = f->halves == RIG_HALF_THEN_FAIL ? f->calls + 1 : 0;
        f->halves = RIG_WHOLE;
        *result = f->below->write(f->below->self, w->fd, w->data, w->bytes / 2, w->at);
    } else if (code)
        *result = code;
    else
        return false;
    return true;
}

static ssize_t f_write(void *self, int fd, const void *data, size_t bytes, uint64_t at)
{
    struct rig_faults *f = self;
    const struct kc_write w = {.fd = fd, .data = data, .bytes = bytes, .at = at};
    ssize_t n;
    return write_fails(f, &w, &n) ? n : f->below->write(f->below->self, fd, data, bytes, at);
}

static int f_submit(void *self, struct kc_write *w)
{
    struct rig_faults *f = self;
    ssize_t n;
    if (!write_fails(f, w, &n))
        return f->below->submit(f->below->self, w);
    w->result = n;
    w->done = true;
    return n < 0 ? (int)n : 0;
}

static void f_wait(void *self)
{
    struct rig_faults *f = self;
    f->below->wait(f->below->self);
}

static void f_wait_for(void *self, const struct kc_write *w)
{
    struct rig_faults *f = self;
    f->below->wait_for(f->below->self, w);
}

static ssize_t f_read(void *self, int fd, void *data, size_t bytes, uint64_t at)
{
    FAULT("read", false, read, fd, data, bytes, at);
}

static int f_size(void *self, int fd, uint64_t *bytes)
{
    FAULT("size", false, size, fd, bytes);
}

static int f_reserve(void *self, int fd, uint64_t bytes)
{
    struct rig_faults *f = self;
    int code = hit(self, "reserve", true);
    if (code == 0 && f->no_reserve)
        return -EOPNOTSUPP;
    return code ? code : f->below->reserve(f->below->self, fd, bytes);
}

static int f_cut(void *self, int fd, uint64_t bytes)
{
    trace_fd(self, "cut", fd);
    FAULT("cut", true, cut, fd, bytes);
}

static int f_sync(void *self, int fd)
{
    trace_fd(self, "sync", fd);
    FAULT("sync", true, sync, fd);
}

static int f_sync_folder(void *self, const char *path)
{
    trace(self, "sync_folder", path);
    FAULT("sync_folder", true, sync_folder, path);
}

static int f_forget(void *self, int fd)
{
    FAULT("forget", false, forget, fd);
}

static int f_lock(void *self, int fd)
{
    FAULT("lock", false, lock, fd);
}

static int f_rename(void *self, const char *from, const char *to)
{
    trace(self, "rename", to);
    FAULT("rename", true, rename, from, to);
}

static int f_make_folder(void *self, const char *path)
{
    FAULT("make_folder", true, make_folder, path);
}

static int f_remove(void *self, const char *path)
{
    trace(self, "remove", path);
    FAULT("remove", true, remove, path);
}

static int f_remove_folder(void *self, const char *path)
{
    FAULT("remove_folder", true, remove_folder, path);
}

static int f_list(void *self, const char *path, int (*see)(void *arg, const char *name), void *arg)
{
    FAULT("list", false, list, path, see, arg);
}

static int f_free_bytes(void *self, const char *path, uint64_t *bytes)
{
    struct rig_faults *f = self;
    if (f->free_says) {
        *bytes = f->free_says;
        return 0;
    }
    return f->below->free_bytes(f->below->self, path, bytes);
}

void rig_faults(struct rig_faults *f)
{
    *f = (struct rig_faults){.below = &kc_storage_posix,
                             .storage = {.self = f,
                                         .open = f_open,
                                         .close = f_close,
                                         .write = f_write,
                                         .submit = f_submit,
                                         .wait = f_wait,
                                         .wait_for = f_wait_for,
                                         .read = f_read,
                                         .size = f_size,
                                         .reserve = f_reserve,
                                         .cut = f_cut,
                                         .sync = f_sync,
                                         .sync_folder = f_sync_folder,
                                         .forget = f_forget,
                                         .lock = f_lock,
                                         .rename = f_rename,
                                         .make_folder = f_make_folder,
                                         .remove = f_remove,
                                         .remove_folder = f_remove_folder,
                                         .list = f_list,
                                         .free_bytes = f_free_bytes}};
}
