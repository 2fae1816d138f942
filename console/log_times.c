/* log_times.c */
#include "log_times.h"

#include "model.h"

#include "base/clock.h"
#include "supervisor/protocol.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define AT_ONCE 65536
#define VALUE_MOST 1000000000000000LL /* no log is as long, and nothing was noted as late */

static void add_row(struct log_times_rank *r, long long place, uint64_t wall)
{
    if (r->count && r->row[r->count - 1].place >= place)
        return; /* a keeper that came later tells what is known */
    if (r->count == r->room) {
        const size_t room = r->room ? 2 * r->room : 64;
        struct log_times_row *more = realloc(r->row, room * sizeof *more);
        if (!more)
            return;
        r->row = more;
        r->room = room;
    }
    const uint64_t before = r->count ? r->row[r->count - 1].wall : 0;
    r->row[r->count++] = (struct log_times_row){place, wall > before ? wall : before, wall == 0};
}

static void take_row(struct log_times *t, const char *text)
{
    unsigned long long wall;
    unsigned rank;
    long long value;
    if (sscanf(text, "%llu %u %lld", &wall, &rank, &value) != 3 || rank >= LOG_RANKS ||
        wall > VALUE_MOST || value > VALUE_MOST || value < -VALUE_MOST)
        return;
    struct log_times_rank *r = &t->rank[rank];
    if (value < 0)
        r->front -= value;
    else
        add_row(r, r->front + value, wall * KC_MILLISECOND);
}

/* Whole rows from `at` on; returns where they end. */
static off_t read_rows(struct log_times *t, int fd, off_t at)
{
    char text[AT_ONCE + 1];
    for (ssize_t n; (n = pread(fd, text, AT_ONCE, at)) > 0;) {
        char *line = text, *end;
        text[n] = 0;
        for (; (end = strchr(line, '\n')); line = end + 1) {
            *end = 0;
            take_row(t, line);
        }
        if (line == text)
            break;
        at += line - text;
    }
    return at;
}

static int open_file(const char *directory, const char *suffix, struct stat *st)
{
    char path[JOB_PATH_ROOM + 32];
    snprintf(path, sizeof path, "%s/" KC_LOG_TIMES_FILE "%s", directory, suffix);
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd >= 0 && (fstat(fd, st) || !S_ISREG(st->st_mode))) {
        close(fd);
        return -1;
    }
    return fd;
}

void log_times_read(struct log_times *t, const char *directory)
{
    struct stat st;
    const int fd = open_file(directory, "", &st);
    if (fd < 0)
        return;
    if (!t->known || st.st_dev != t->device || st.st_ino != t->inode || st.st_size < t->at) {
        struct stat before;
        const int old = open_file(directory, KC_LOG_TIMES_OLD, &before);
        log_times_free(t);
        *t = (struct log_times){.known = true, .device = st.st_dev, .inode = st.st_ino};
        if (old >= 0) {
            read_rows(t, old, 0);
            close(old);
        }
    }
    if (st.st_size > t->at)
        t->at = read_rows(t, fd, t->at);
    close(fd);
}

void log_times_free(struct log_times *t)
{
    for (size_t i = 0; i < LOG_RANKS; i++)
        free(t->rank[i].row);
    memset(t, 0, sizeof *t);
}

/* The first row that reaches to `place`. */
static size_t find_row(const struct log_times_rank *r, long long place)
{
    size_t low = 0, high = r->count;
    while (low < high) {
        const size_t middle = (low + high) / 2;
        if (r->row[middle].place < place)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

uint64_t log_times_find(const struct log_times *t, int rank, long long place)
{
    const struct log_times_rank *r = &t->rank[rank];
    const size_t i = find_row(r, place);
    return i < r->count ? r->row[i].unknown ? 0 : r->row[i].wall : LOG_TIME_NEW;
}

long long log_times_place(const struct log_times *t, int rank, uint64_t wall)
{
    const struct log_times_rank *r = &t->rank[rank];
    size_t low = 0, high = r->count;
    while (low < high) {
        const size_t middle = (low + high) / 2;
        if (r->row[middle].wall <= wall)
            low = middle + 1;
        else
            high = middle;
    }
    return low ? r->row[low - 1].place : r->count ? 0 : r->front;
}
