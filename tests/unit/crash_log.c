/* crash_log.c - the log of crash_log.h; crash_replay.c has the replay. */
#include "crash_log.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- keeping the log ---- */

static const char *relative(const struct crash_log *l, const char *path)
{
    const size_t n = strlen(l->root);
    ck_assert_msg(strncmp(path, l->root, n) == 0, "%s is outside of %s", path, l->root);
    return path[n] == '/' ? path + n + 1 : path + n;
}

static struct crash_call *note(struct crash_log *l, enum crash_kind kind, const char *path)
{
    if (l->calls == l->room) {
        l->room = l->room ? 2 * l->room : 256;
        l->call = realloc(l->call, l->room * sizeof *l->call);
        ck_assert_ptr_nonnull(l->call);
    }
    struct crash_call *c = &l->call[l->calls++];
    *c = (struct crash_call){.kind = kind};
    if (path)
        snprintf(c->path, sizeof c->path, "%s", relative(l, path));
    return c;
}

static struct crash_call *note_fd(struct crash_log *l, enum crash_kind kind, int fd)
{
    struct crash_call *c = note(l, kind, NULL);
    ck_assert(fd >= 0 && fd < 1024 && l->handle[fd]);
    c->handle = l->handle[fd];
    return c;
}

/* Is this call, which would be the next of the log, one that a killed process did not make any more? */
static bool dead(struct crash_log *l, bool changes)
{
    l->dead |= changes && l->die_at && l->calls + 1 >= l->die_at;
    return l->dead;
}

void crash_log_mark(struct crash_log *l, uint64_t mark)
{
    note(l, CRASH_MARK, NULL)->mark = mark;
}

/* ---- the storage ---- */

#define BELOW(call, ...) l->below->call(l->below->self, __VA_ARGS__)

static int l_open(void *self, const char *path, int flags)
{
    struct crash_log *l = self;
    if (dead(l, flags & O_CREAT))
        return -EIO;
    int fd = BELOW(open, path, flags);
    if (fd < 0)
        return fd;
    ck_assert_int_lt(fd, 1024);
    l->handle[fd] = 0;
    if ((flags & O_ACCMODE) != O_RDONLY) {
        struct crash_call *c = note(l, CRASH_OPEN, path);
        c->create = (flags & O_CREAT) != 0;
        c->handle = l->handle[fd] = ++l->handles;
    }
    return fd;
}

static int l_close(void *self, int fd)
{
    struct crash_log *l = self;
    return BELOW(close, fd);
}

static void note_write(struct crash_log *l, int fd, const void *data, size_t bytes, uint64_t at)
{
    struct crash_call *c = note_fd(l, CRASH_WRITE, fd);
    c->data = malloc(bytes + 1);
    memcpy(c->data, data, bytes);
    c->bytes = bytes;
    c->at = at;
}

static ssize_t l_write(void *self, int fd, const void *data, size_t bytes, uint64_t at)
{
    struct crash_log *l = self;
    if (dead(l, true))
        return -EIO;
    ssize_t n = BELOW(write, fd, data, bytes, at);
    if (n > 0)
        note_write(l, fd, data, (size_t)n, at);
    return n;
}

static int l_submit(void *self, struct kc_write *w)
{
    struct crash_log *l = self;
    if (dead(l, true))
        return w->done = true, (int)(w->result = -EIO);
    int r = l->below->submit(l->below->self, w);
    if (r == 0) /* of a file with an error nothing is used */
        note_write(l, w->fd, w->data, w->bytes, w->at);
    return r;
}

static void l_wait(void *self)
{
    struct crash_log *l = self;
    l->below->wait(l->below->self);
}

static void l_wait_for(void *self, const struct kc_write *w)
{
    struct crash_log *l = self;
    l->below->wait_for(l->below->self, w);
}

static ssize_t l_read(void *self, int fd, void *data, size_t bytes, uint64_t at)
{
    struct crash_log *l = self;
    return dead(l, false) ? -EIO : BELOW(read, fd, data, bytes, at);
}

static int l_size(void *self, int fd, uint64_t *bytes)
{
    struct crash_log *l = self;
    return dead(l, false) ? -EIO : BELOW(size, fd, bytes);
}

static int l_reserve(void *self, int fd, uint64_t bytes)
{
    struct crash_log *l = self;
    int r = dead(l, true) ? -EIO : BELOW(reserve, fd, bytes);
    if (r == 0)
        note_fd(l, CRASH_LENGTH, fd)->bytes = bytes;
    return r;
}

static int l_cut(void *self, int fd, uint64_t bytes)
{
    struct crash_log *l = self;
    int r = dead(l, true) ? -EIO : BELOW(cut, fd, bytes);
    if (r == 0)
        note_fd(l, CRASH_CUT, fd)->bytes = bytes;
    return r;
}

static int l_sync(void *self, int fd)
{
    struct crash_log *l = self;
    int r = dead(l, true) ? -EIO : BELOW(sync, fd);
    if (r == 0)
        note_fd(l, CRASH_SYNC, fd);
    return r;
}

/* Calls that name a path and say 0 when it was done. */
#define CHANGE(name, kind)                                                                                             \
    static int l_##name(void *self, const char *path)                                                                  \
    {                                                                                                                  \
        struct crash_log *l = self;                                                                                    \
        int r = dead(l, true) ? -EIO : BELOW(name, path);                                                              \
        if (r == 0)                                                                                                    \
            note(l, kind, path);                                                                                       \
        return r;                                                                                                      \
    }
CHANGE(sync_folder, CRASH_SYNC_FOLDER)
CHANGE(make_folder, CRASH_FOLDER)
CHANGE(remove, CRASH_REMOVE)
CHANGE(remove_folder, CRASH_REMOVE)

static int l_forget(void *self, int fd)
{
    struct crash_log *l = self;
    return BELOW(forget, fd);
}

static int l_lock(void *self, int fd)
{
    struct crash_log *l = self;
    return BELOW(lock, fd);
}

static int l_rename(void *self, const char *from, const char *to)
{
    struct crash_log *l = self;
    int r = dead(l, true) ? -EIO : BELOW(rename, from, to);
    if (r == 0)
        snprintf(note(l, CRASH_RENAME, from)->to, sizeof l->call->to, "%s", relative(l, to));
    return r;
}

static int l_list(void *self, const char *path, int (*see)(void *arg, const char *name), void *arg)
{
    struct crash_log *l = self;
    return dead(l, false) ? -EIO : BELOW(list, path, see, arg);
}

static int l_free_bytes(void *self, const char *path, uint64_t *bytes)
{
    struct crash_log *l = self;
    return BELOW(free_bytes, path, bytes);
}

void crash_log_open(struct crash_log *l, const char *root, const struct kc_storage *below)
{
    *l = (struct crash_log){.below = below,
        .storage = {.self = l, .open = l_open, .close = l_close, .write = l_write, .submit = l_submit, .wait = l_wait, .wait_for = l_wait_for,
            .read = l_read, .size = l_size, .reserve = l_reserve, .cut = l_cut, .sync = l_sync, .sync_folder = l_sync_folder,
            .forget = l_forget, .lock = l_lock, .rename = l_rename, .make_folder = l_make_folder, .remove = l_remove,
            .remove_folder = l_remove_folder, .list = l_list, .free_bytes = l_free_bytes}};
    snprintf(l->root, sizeof l->root, "%s", root);
}

void crash_log_close(struct crash_log *l)
{
    for (uint32_t i = 0; i < l->calls; i++)
        free(l->call[i].data);
    free(l->call);
    l->call = NULL;
    l->calls = 0;
}

void crash_call_text(const struct crash_log *l, uint32_t i, char out[256])
{
    static const char *const names[] = {"open", "write", "reserve", "cut", "sync", "sync_folder", "rename", "make_folder", "remove",
                                        "committed"};
    const struct crash_call *c = &l->call[i];
    const char *path = c->path;
    for (uint32_t k = 0; k < i && c->handle && c->kind != CRASH_OPEN; k++)
        if (l->call[k].kind == CRASH_OPEN && l->call[k].handle == c->handle)
            path = l->call[k].path;
    snprintf(out, 256, "%s %s%s%s", names[c->kind], *path || c->kind == CRASH_MARK ? path : ".", *c->to ? " to " : "", c->to);
}
