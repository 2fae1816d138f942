/* output.c */
#include "output.h"

#include "base/file.h"
#include "tokens.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define BLOCK 131072 /* bytes */

static int write_failed(const struct output *o, int code, struct kc_error *e)
{
    uint64_t need = KC_TOKENS_HEADER + o->each * (o->want ? o->want : o->have);
    const char *least = o->want ? "" : "at least ";
    struct statvfs v;
    char folder[4096];
    snprintf(folder, sizeof folder, "%s", o->path);
    *strrchr(folder, '/') = 0;
    if (code == -EFBIG)
        return kc_fail(e, code,
                       "%s: needs %s%llu bytes, more than this process may write to a file (ulimit -f); raise the "
                       "limit",
                       o->path, least, (unsigned long long)need);
    if (statvfs(*folder ? folder : "/", &v) == 0 && (code == -ENOSPC || code == -EDQUOT))
        return kc_fail(e, code, "%s: needs %s%llu bytes, %s has %llu free: %s; make room or choose another --out",
                       o->path, least, (unsigned long long)need, *folder ? folder : "/",
                       (unsigned long long)v.f_bavail * v.f_frsize, strerror(-code));
    return kc_fail(e, code, "%s: cannot be written: %s", o->path, strerror(-code));
}

int output_open(struct output *o, const char *path, int32_t magic, int32_t version, uint32_t each, uint64_t want,
                struct kc_error *e)
{
    static const char header[KC_TOKENS_HEADER];
    memset(o, 0, sizeof *o);
    o->fd = -1;
    o->magic = magic;
    o->version = version;
    o->each = each;
    o->want = want;
    int n = snprintf(o->path, sizeof o->path, "%s", path);
    if (n < 0 || (size_t)n >= sizeof o->path)
        return kc_fail(e, -ENAMETOOLONG, "%s: the path is too long", path);
    o->block = malloc(BLOCK);
    if (!o->block)
        return kc_fail(e, -ENOMEM, "%s: out of memory", path);
    snprintf(o->temporary, sizeof o->temporary, "%s.tmp.%ld", o->path, (long)getpid());
    unlink(o->temporary); /* of a killed process that had our number */
    o->fd = open(o->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (o->fd < 0) {
        int code = -errno;
        *o->temporary = 0;
        return write_failed(o, code, e);
    }
    /* Some file systems cannot reserve and are written to instead. */
    if (want && fallocate(o->fd, 0, 0, (off_t)(KC_TOKENS_HEADER + each * want)) != 0 && errno != EOPNOTSUPP &&
        errno != EINTR)
        return write_failed(o, -errno, e);
    int r = kc_write_all(o->fd, header, sizeof header);
    return r < 0 ? write_failed(o, r, e) : 0;
}

static int flush(struct output *o, struct kc_error *e)
{
    int r = kc_write_all(o->fd, o->block, o->filled);
    o->filled = 0;
    return r < 0 ? write_failed(o, r, e) : 0;
}

static int count_up(struct output *o, size_t count, struct kc_error *e)
{
    if (count > KC_TOKENS_MOST - o->have)
        return kc_fail(e, -EFBIG,
                       "%s would have more than %d tokens, which is what a token file counts at most; give fewer "
                       "files at a time",
                       o->path, KC_TOKENS_MOST);
    o->have += count;
    return 0;
}

/* An element in our own byte order, which is the file's (tokens.c). */
static int put_one(struct output *o, int32_t value, struct kc_error *e)
{
    memcpy(o->block + o->filled, &value, o->each);
    o->filled += o->each;
    return o->filled == BLOCK ? flush(o, e) : 0;
}

int output_put(struct output *o, const int32_t *values, size_t count, struct kc_error *e)
{
    int r = count_up(o, count, e);
    for (size_t i = 0; r == 0 && i < count; i++)
        r = put_one(o, values[i], e);
    return r;
}

int output_put_same(struct output *o, int32_t value, size_t count, struct kc_error *e)
{
    int r = count_up(o, count, e);
    for (size_t i = 0; r == 0 && i < count; i++)
        r = put_one(o, value, e);
    return r;
}

int output_finish(struct output *o, struct kc_error *e)
{
    int32_t header[3] = {o->magic, o->version, (int32_t)o->have};
    int r = flush(o, e);
    if (r < 0)
        return r;
    ssize_t n = pwrite(o->fd, header, sizeof header, 0);
    if (n != sizeof header)
        return write_failed(o, n < 0 ? -errno : -EIO, e);
    if (fsync(o->fd) != 0)
        return write_failed(o, -errno, e);
    r = close(o->fd) == 0 ? 0 : -errno;
    o->fd = -1;
    return r < 0 ? write_failed(o, r, e) : 0;
}

int output_place(struct output *o, struct kc_error *e)
{
    if (rename(o->temporary, o->path) != 0)
        return write_failed(o, -errno, e);
    o->placed = true;
    return 0;
}

void output_close(struct output *o)
{
    if (o->fd >= 0)
        close(o->fd);
    if (*o->temporary && !o->placed)
        unlink(o->temporary);
    free(o->block);
    o->block = NULL;
    o->fd = -1;
}
