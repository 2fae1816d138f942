/* rank_log.c */
#include "rank_log.h"

#include "base/json.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#define PIECE ((size_t)1 << 20)
#define TAIL 4096     /* of a log, in which its last line is looked for */
#define SHIFT_MAX 100 /* old logs of one rank that are shifted */

int kc_rank_log_open(struct kc_rank_log *log, const char *job_directory, uint32_t rank)
{
    struct kc_rank_log new = {.old = -1};
    int n = snprintf(new.path, sizeof new.path, "%s/rank-%u.log", job_directory, rank);
    if (n < 0 || (size_t)n + 16 >= sizeof new.path)
        return -ENAMETOOLONG;
    new.fd = open(new.path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (new.fd < 0)
        return -errno;
    *log = new;
    return 0;
}

void kc_rank_log_close(struct kc_rank_log *log)
{
    if (log->fd >= 0)
        close(log->fd);
    if (log->old >= 0)
        close(log->old);
    log->fd = log->old = -1;
}

static void old_path(const struct kc_rank_log *log, uint32_t n, char out[PATH_MAX + 16])
{
    snprintf(out, PATH_MAX + 16, "%s.%u", log->path, n);
}

static int begin(struct kc_rank_log *log, uint32_t keep)
{
    char from[PATH_MAX + 16], to[PATH_MAX + 16];
    for (uint32_t i = keep < SHIFT_MAX ? keep : SHIFT_MAX; i > 1; i--) {
        old_path(log, i - 1, from);
        old_path(log, i, to);
        rename(from, to);
    }
    old_path(log, 1, to);
    log->old = open(to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    log->moved = 0;
    return log->old < 0 ? -errno : 0;
}

/* Take what was moved off the front. Where the file system can do that, nothing that is written meanwhile is lost;
 * where it can't, what came since is copied too and the file emptied, with a gap of microseconds. */
static void finish(struct kc_rank_log *log)
{
    struct stat st;
    off_t whole = 0;
    if (fstat(log->fd, &st) == 0 && st.st_blksize > 0)
        whole = log->moved / st.st_blksize * st.st_blksize;
    if (whole > 0 && whole < st.st_size && fallocate(log->fd, FALLOC_FL_COLLAPSE_RANGE, 0, whole) == 0) {
        log->taken = whole;
        (void)!ftruncate(log->old, whole); /* the rest stands in the new one; twice is no harm */
    } else {
        while (sendfile(log->old, log->fd, &log->moved, PIECE) > 0)
            ;
        if (ftruncate(log->fd, 0) == 0)
            log->taken = log->moved;
    }
    close(log->old);
    log->old = -1;
}

bool kc_rank_log_turn(struct kc_rank_log *log, uint64_t limit, uint32_t keep)
{
    struct stat st;
    log->taken = 0;
    if (log->fd < 0 || fstat(log->fd, &st) != 0)
        return false;
    if (log->old < 0) {
        if ((uint64_t)st.st_size <= limit)
            return false;
        if (keep == 0) {
            log->taken = ftruncate(log->fd, 0) == 0 ? st.st_size : 0;
            return false;
        }
        if (begin(log, keep) < 0)
            return false;
    }
    ssize_t n = sendfile(log->old, log->fd, &log->moved, PIECE);
    if (n > 0 && log->moved < st.st_size)
        return true;
    if (n < 0) { /* no room for it: keep what there is */
        close(log->old);
        log->old = -1;
        return false;
    }
    finish(log);
    return false;
}

off_t kc_rank_log_size(const struct kc_rank_log *log)
{
    struct stat st;
    return log->fd >= 0 && fstat(log->fd, &st) == 0 ? st.st_size : 0;
}

void kc_rank_log_mark(struct kc_rank_log *log)
{
    log->mark = kc_rank_log_size(log);
}

/* In place: what a terminal or a parser of JSON would trip over. */
static void tame(char *text)
{
    json_t *whole = json_string(text); /* NULL: not UTF-8 */
    for (unsigned char *c = (unsigned char *)text; *c; c++)
        if (*c < ' ' || *c == 0x7f || (*c >= 0x80 && !whole))
            *c = *c == '\t' ? ' ' : '?';
    json_decref(whole);
}

void kc_rank_log_last(const struct kc_rank_log *log, char *out, size_t room)
{
    char tail[TAIL + 1];
    struct stat st;
    *out = 0;
    if (log->fd < 0 || fstat(log->fd, &st) != 0)
        return;
    off_t from = log->mark <= st.st_size ? log->mark : 0; /* smaller than it was: it was turned over since */
    if (st.st_size - from > TAIL)
        from = st.st_size - TAIL;
    ssize_t n = pread(log->fd, tail, TAIL, from);
    while (n > 0 && strchr(" \t\r\n", tail[n - 1])) /* a NUL counts as blank, too */
        n--;
    if (n <= 0)
        return;
    tail[n] = 0;
    ssize_t begin_at = n;
    while (begin_at > 0 && tail[begin_at - 1] != '\n' && tail[begin_at - 1] != 0)
        begin_at--;
    size_t length = (size_t)(n - begin_at);
    if (length >= room) {
        length = room - 1;
        while (length > 0 && (tail[begin_at + (ssize_t)length] & 0xc0) == 0x80) /* not through a character */
            length--;
    }
    memcpy(out, tail + begin_at, length);
    out[length] = 0;
    tame(out);
}
