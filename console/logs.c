/* logs.c - a merge of files that grow: each source holds its next line, the one that came first is given. */
#include "logs.h"

#include "text.h"

#include "base/clock.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#define OLD_LOGS_MAX 100
#define SHRUNK_MOST 40 /* looks until a keeper that takes bytes off has long said so */

struct log_source {
    int rank, fd;
    int piece;               /* that is read: 0 the log itself, else rank-<n>.log.<piece> */
    off_t at;                /* read until there, in the piece */
    long long place;         /* of the piece's first byte (log_times.h) */
    long long stop;          /* place at which it ends for us; places of old pieces may be below 0 */
    long long front;         /* as log_times had it */
    unsigned shrunk;         /* looks since the file is shorter than what was read of it, and nobody has said why */
    bool cut;                /* the first line lacks its beginning */
    size_t begin, used, line;/* of buffer: what is not given yet; bytes of the next line, 0: not whole yet */
    uint64_t wall;           /* of the next line */
    char buffer[LOG_LINE_MOST];
};

static void piece_path(const struct logs *l, const struct log_source *s, int piece, char *out, size_t room)
{
    if (piece)
        snprintf(out, room, "%s/rank-%d.log.%d", l->directory, s->rank, piece);
    else
        snprintf(out, room, "%s/rank-%d.log", l->directory, s->rank);
}

static int open_piece(const struct logs *l, const struct log_source *s, int piece, off_t *size)
{
    char path[JOB_PATH_ROOM + 64];
    struct stat st;
    piece_path(l, s, piece, path, sizeof path);
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return -1;
    if (fstat(fd, &st) || !S_ISREG(st.st_mode)) {
        close(fd);
        return -1;
    }
    *size = st.st_size;
    return fd;
}

/* Begin with the oldest piece that is there, whose bytes stand before those of the newer ones. */
static void begin_old(const struct logs *l, struct log_source *s)
{
    long long before = 0;
    for (int k = 1; k <= OLD_LOGS_MAX; k++) {
        off_t size = 0;
        const int fd = open_piece(l, s, k, &size);
        if (fd < 0)
            continue;
        close(s->fd);
        before += size;
        s->fd = fd;
        s->piece = k;
        s->place = s->front - before;
    }
}

/* The piece before is read to its end: go on with the next. False: it was the log itself. */
static bool next_piece(const struct logs *l, struct log_source *s)
{
    off_t size = 0;
    if (s->piece == 0)
        return false;
    close(s->fd);
    s->place += s->at;
    s->at = 0;
    do {
        s->piece--;
        s->fd = open_piece(l, s, s->piece, &size);
    } while (s->fd < 0 && s->piece > 0);
    if (s->piece == 0)
        s->place = s->front;
    return s->fd >= 0;
}

static int add_source(struct logs *l, int rank, size_t tail, uint64_t until)
{
    struct log_source s = {.rank = rank, .stop = INT64_MAX / 2, .front = l->times.rank[rank].front}, *more;
    off_t size = 0;
    s.fd = open_piece(l, &s, 0, &size);
    if (s.fd < 0)
        return 0;
    s.place = s.front;
    if (until) {
        s.stop = log_times_place(&l->times, rank, until);
        size = s.stop <= s.front ? 0 : s.stop - s.front < size ? (off_t)(s.stop - s.front) : size;
    }
    if (tail == 0) {
        begin_old(l, &s);
    } else if (size > (off_t)tail) {
        s.at = size - (off_t)tail;
        s.cut = true;
    }
    more = realloc(l->source, (l->count + 1) * sizeof *more);
    if (!more) {
        close(s.fd);
        return -ENOMEM;
    }
    l->source = more;
    l->source[l->count++] = s;
    return 0;
}

static int by_rank(const void *a, const void *b)
{
    const struct log_source *x = a, *y = b;
    return (x->rank > y->rank) - (x->rank < y->rank);
}

int logs_open(struct logs *l, const struct job *j, int rank, size_t tail, uint64_t until)
{
    int n, rc = 0, end;
    *l = (struct logs){.first = j->failure.reason[0] && j->failure.rank >= 0 ? (int)j->failure.rank : -1};
    snprintf(l->directory, sizeof l->directory, "%s", j->directory);
    DIR *folder = opendir(j->directory);
    if (!folder)
        return -errno;
    log_times_read(&l->times, j->directory);
    for (struct dirent *d; rc == 0 && (d = readdir(folder));)
        if (sscanf(d->d_name, "rank-%d.log%n", &n, (end = 0, &end)) == 1 && end > 0 && !d->d_name[end] && n >= 0 &&
            n < LOG_RANKS && (rank < 0 || n == rank))
            rc = add_source(l, n, tail, until);
    closedir(folder);
    if (rc)
        logs_close(l);
    else if (l->count)
        qsort(l->source, l->count, sizeof *l->source, by_rank);
    return rc;
}

void logs_close(struct logs *l)
{
    for (size_t i = 0; i < l->count; i++)
        if (l->source[i].fd >= 0)
            close(l->source[i].fd);
    free(l->source);
    log_times_free(&l->times);
    memset(l, 0, sizeof *l);
}

void logs_refresh(struct logs *l)
{
    log_times_read(&l->times, l->directory);
    for (size_t i = 0; i < l->count; i++) {
        struct log_source *s = &l->source[i];
        struct stat st;
        const long long front = l->times.rank[s->rank].front;
        if (s->piece || s->fd < 0)
            continue;
        if (front > s->front) /* what was taken off had been read; less: the oldest times are gone, and the log is as it was */
            s->at -= front - s->front < s->at ? (off_t)(front - s->front) : s->at;
        s->place += front - s->front;
        s->front = front;
        const bool shorter = !fstat(s->fd, &st) && st.st_size < s->at;
        s->shrunk = shorter ? s->shrunk + 1 : 0;
        if (shorter && (!l->times.known || s->shrunk > SHRUNK_MOST)) {
            s->at = 0; /* turned over, and nobody says how far */
            s->shrunk = 0;
        }
    }
}

/* Find the end of the next line in the buffer, or read more. False: there is none now. */
static bool find_line(const struct logs *l, struct log_source *s, bool last)
{
    while (s->line == 0) {
        const char *from = s->buffer + s->begin, *newline = memchr(from, '\n', s->used - s->begin);
        const size_t have = s->used - s->begin;
        if (newline || have == sizeof s->buffer) {
            s->line = newline ? (size_t)(newline - from) + 1 : have;
            s->wall = log_times_find(&l->times, s->rank, s->place + s->at - (long long)have + (long long)s->line);
            if (!s->cut)
                break;
            s->begin += s->line;
            s->line = 0;
            s->cut = false;
            continue;
        }
        memmove(s->buffer, from, have);
        s->begin = 0;
        s->used = have;
        size_t room = sizeof s->buffer - have;
        if (s->stop - (s->place + s->at) < (long long)room)
            room = s->stop > s->place + s->at ? (size_t)(s->stop - s->place - s->at) : 0;
        const ssize_t n = s->fd >= 0 && room ? pread(s->fd, s->buffer + have, room, s->at) : 0;
        if (n > 0) {
            s->at += n;
            s->used += (size_t)n;
        } else if (!next_piece(l, s)) {
            if (!last || have == 0)
                return false;
            s->line = have; /* it will not be ended any more */
            s->wall = log_times_find(&l->times, s->rank, s->place + s->at);
        }
    }
    return true;
}

static bool is_before(const struct logs *l, const struct log_source *a, const struct log_source *b)
{
    if (a->wall != b->wall)
        return a->wall < b->wall;
    return a->rank == l->first && b->rank != l->first;
}

/* What nobody has seen yet came just now if we have been here before. */
static uint64_t time_of(const struct logs *l, uint64_t wall)
{
    return wall != LOG_TIME_NEW ? wall : l->drained ? kc_wall() : 0;
}

bool logs_next(struct logs *l, bool last, struct log_line *out)
{
    struct log_source *next = NULL;
    for (size_t i = 0; i < l->count; i++)
        if (find_line(l, &l->source[i], last) && (!next || is_before(l, &l->source[i], next)))
            next = &l->source[i];
    if (!next) {
        l->drained = kc_wall();
        return false;
    }
    const char *text = next->buffer + next->begin;
    *out = (struct log_line){next->rank, time_of(l, next->wall), text, next->line};
    if (text[next->line - 1] == '\n')
        out->bytes--;
    next->begin += next->line;
    next->line = 0;
    return true;
}

/* ---- what went wrong ---- */

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* Where a word is, at whose begin a word begins; whatever the case of its letters. */
static const char *find_word(const char *text, const char *end, const char *word)
{
    const size_t n = strlen(word);
    for (const char *p = text; p + n <= end; p++)
        if (strncasecmp(p, word, n) == 0 && (p == text || !is_letter(p[-1]) || (*p <= 'Z' && p[-1] >= 'a')))
            return p;
    return NULL;
}

/* "no error", "0 errors", "without failures", but not "10 errors". */
static bool is_denied(const char *text, const char *at)
{
    static const char *const no[] = {"no ", "0 ", "without "};
    for (size_t i = 0; i < sizeof no / sizeof *no; i++) {
        const size_t n = strlen(no[i]);
        const char *begin = at - n;
        if ((size_t)(at - text) < n || strncasecmp(begin, no[i], n) != 0)
            continue;
        if (begin == text || !(is_letter(begin[-1]) || (begin[-1] >= '0' && begin[-1] <= '9')))
            return true;
    }
    return false;
}

bool log_is_error(const char *text, size_t bytes)
{
    static const char *const words[] = {"error",     "fatal",     "fail",      "panic",    "abort",           "assert",
                                        "exception", "traceback", "segfault",  "sanitizer", "segmentation fault",
                                        "out of memory", "terminate called", "cannot", "can't", "killed", "signal ", "left in step"};
    const char *end = text + bytes;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        const char *at = find_word(text, end, words[i]);
        if (at && !is_denied(text, at))
            return true;
    }
    return false;
}

void log_error_take(struct log_error *e, const struct log_line *l, uint64_t since)
{
    const bool ours = l->wall >= since;
    if ((e->known && (!ours || e->wall >= since)) || !log_is_error(l->text, l->bytes))
        return;
    e->known = true;
    e->rank = l->rank;
    e->wall = l->wall;
    text_clean(l->text, l->bytes, 0, e->text, sizeof e->text);
}
