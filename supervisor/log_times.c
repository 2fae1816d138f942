/* log_times.c - a row for a rank that prints now and then, at most one a second for one that always does. */
#include "log_times.h"

#include "protocol.h"

#include "base/clock.h"
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ROWS_AT_ONCE 32

static void write_row(struct kc_log_times *t, uint64_t wall, uint32_t rank, off_t value)
{
    char row[64], old[PATH_MAX + 8];
    const int n = snprintf(row, sizeof row, "%llu %u %lld\n", (unsigned long long)(wall / KC_MILLISECOND), rank,
                           (long long)value);
    if (t->size >= KC_LOG_TIMES_MOST) {
        snprintf(old, sizeof old, "%s" KC_LOG_TIMES_OLD, t->path);
        const int fd = rename(t->path, old) ? -1 : open(t->path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
        close(t->fd);
        t->fd = fd;
        t->size = 0;
    }
    if (t->fd >= 0 && kc_append_all(t->fd, row, (size_t)n) == 0)
        t->size += n;
}

int kc_log_times_open(struct kc_log_times *t, const char *job_directory, const off_t *size, uint32_t ranks)
{
    struct stat st;
    memset(t, 0, sizeof *t);
    t->fd = -1;
    if ((size_t)snprintf(t->path, sizeof t->path, "%s/" KC_LOG_TIMES_FILE, job_directory) >= sizeof t->path)
        return -ENAMETOOLONG;
    t->fd = open(t->path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (t->fd < 0)
        return -errno;
    t->size = fstat(t->fd, &st) == 0 ? st.st_size : 0;
    for (uint32_t r = 0; r < ranks && r < KC_RANKS_MAX; r++) {
        t->rank[r] = (struct kc_log_times_rank){.seen = size[r], .left = ROWS_AT_ONCE, .refilled = kc_now()};
        if (size[r] > 0)
            write_row(t, 0, r, size[r]);
    }
    return 0;
}

void kc_log_times_close(struct kc_log_times *t)
{
    if (t->fd >= 0)
        close(t->fd);
    t->fd = -1;
}

void kc_log_times_grown(struct kc_log_times *t, uint32_t rank, off_t size, uint64_t wall, bool last)
{
    if (t->fd < 0 || rank >= KC_RANKS_MAX || size == t->rank[rank].seen)
        return;
    struct kc_log_times_rank *r = &t->rank[rank];
    const uint64_t now = kc_now(), more = (now - r->refilled) / KC_SECOND;
    if (more > 0) {
        r->left = r->left + more < ROWS_AT_ONCE ? r->left + (unsigned)more : ROWS_AT_ONCE;
        r->refilled += more * KC_SECOND;
    }
    if (r->left == 0 && !last)
        return;
    r->left -= r->left > 0;
    r->seen = size;
    write_row(t, wall, rank, size);
}

void kc_log_times_turned(struct kc_log_times *t, uint32_t rank, off_t bytes, uint64_t wall)
{
    if (t->fd < 0 || rank >= KC_RANKS_MAX || bytes <= 0)
        return;
    struct kc_log_times_rank *r = &t->rank[rank];
    r->seen = r->seen > bytes ? r->seen - bytes : 0;
    write_row(t, wall, rank, -bytes);
}
