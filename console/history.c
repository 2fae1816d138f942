/* history.c */
#include "history.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define READ_AT_ONCE (1u << 20)
#define LINE_MAX_BYTES 4096

#define HISTORY_ROW(id, name) [HISTORY_##id] = name,
const char *const history_name[HISTORY_SERIES] = {HISTORY_TABLE(HISTORY_ROW)};
#undef HISTORY_ROW

void history_clear(struct history *h)
{
    h->count = h->evaluations = 0;
    h->recent_first = h->recent_count = 0;
    h->width = 1;
    h->at = h->last_step = 0;
    h->rest_bytes = 0;
}

int history_open(struct history *h, const char *path)
{
    if (h->point && !strcmp(h->path, path))
        return 0;
    if (!h->point) {
        memset(h, 0, sizeof *h);
        h->point = calloc(HISTORY_POINTS, sizeof *h->point);
        h->recent = calloc(HISTORY_RECENT, sizeof *h->recent);
        h->rest = malloc(LINE_MAX_BYTES + 1);
        if (!h->point || !h->recent || !h->rest) {
            history_free(h);
            return -ENOMEM;
        }
    }
    snprintf(h->path, sizeof h->path, "%s", path);
    h->device = h->inode = 0;
    history_clear(h);
    return 0;
}

void history_free(struct history *h)
{
    free(h->point);
    free(h->recent);
    free(h->rest);
    memset(h, 0, sizeof *h);
}

/* ---- points ---- */

static struct history_point point_of(uint64_t step, const double value[HISTORY_SERIES])
{
    struct history_point p = {.first = step, .last = step};
    for (int i = 0; i < HISTORY_SERIES; i++) {
        const bool finite = isfinite(value[i]);
        p.value[i] = (struct history_value){.sum = finite ? value[i] : 0,
                                            .min = finite ? value[i] : INFINITY,
                                            .max = finite ? value[i] : -INFINITY,
                                            .min_at = step,
                                            .max_at = step,
                                            .finite = finite,
                                            .nonfinite = !finite};
    }
    return p;
}

static void join_value(struct history_value *to, const struct history_value *from)
{
    if (from->min < to->min) {
        to->min = from->min;
        to->min_at = from->min_at;
    }
    if (from->max > to->max) {
        to->max = from->max;
        to->max_at = from->max_at;
    }
    to->sum += from->sum;
    to->finite += from->finite;
    to->nonfinite += from->nonfinite;
}

static void join(struct history_point *to, const struct history_point *from)
{
    to->last = from->last;
    for (int i = 0; i < HISTORY_SERIES; i++)
        join_value(&to->value[i], &from->value[i]);
}

static void halve(struct history *h)
{
    size_t n = 0;
    for (size_t i = 0; i < h->count; i += 2) {
        struct history_point p = h->point[i];
        if (i + 1 < h->count)
            join(&p, &h->point[i + 1]);
        h->point[n++] = p;
    }
    h->count = n;
    h->width *= 2;
}

static void remember(struct history *h, uint64_t step, const double value[HISTORY_SERIES])
{
    struct history_step *s = &h->recent[(h->recent_first + h->recent_count) % HISTORY_RECENT];
    if (h->recent_count == HISTORY_RECENT)
        h->recent_first = (h->recent_first + 1) % HISTORY_RECENT;
    else
        h->recent_count++;
    s->step = step;
    memcpy(s->value, value, sizeof s->value);
}

void history_add(struct history *h, uint64_t step, const double value[HISTORY_SERIES])
{
    if (step <= h->last_step)
        return; /* each step stands once */
    h->last_step = step;
    remember(h, step, value);
    const struct history_point one = point_of(step, value);
    struct history_point *last = h->count ? &h->point[h->count - 1] : NULL;
    if (h->count == HISTORY_POINTS && (last->first - 1) / h->width != (step - 1) / h->width) {
        halve(h);
        last = &h->point[h->count - 1];
    }
    if (last && (last->first - 1) / h->width == (step - 1) / h->width)
        join(last, &one);
    else
        h->point[h->count++] = one;
}

void history_take(struct history *h, const struct history_point *p)
{
    if (h->count == HISTORY_POINTS)
        join(&h->point[h->count - 1], p);
    else
        h->point[h->count++] = *p;
    h->last_step = p->last;
}

/* Points that come before the recent steps, and the recent steps behind them. A point that reaches into those stands for
 * all of its steps. */
static void split(const struct history *h, size_t *points, size_t *skip)
{
    const uint64_t begin = h->recent_count ? h->recent[h->recent_first].step : UINT64_MAX;
    *points = *skip = 0;
    if (h->recent_count && h->width == 1) { /* the points are single steps themselves */
        *points = h->count;
        *skip = h->recent_count;
        return;
    }
    size_t low = 0, high = h->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (h->point[middle].first < begin)
            low = middle + 1;
        else
            high = middle;
    }
    *points = low;
    while (low && *skip < h->recent_count &&
           h->recent[(h->recent_first + *skip) % HISTORY_RECENT].step <= h->point[low - 1].last)
        ++*skip;
}

size_t history_length(const struct history *h)
{
    size_t points, skip;
    split(h, &points, &skip);
    return points + h->recent_count - skip;
}

struct history_point history_at(const struct history *h, size_t i)
{
    size_t points, skip;
    split(h, &points, &skip);
    if (i < points)
        return h->point[i];
    const struct history_step *s = &h->recent[(h->recent_first + skip + i - points) % HISTORY_RECENT];
    return point_of(s->step, s->value);
}

double history_mean(const struct history_value *v)
{
    return v->finite ? v->sum / v->finite : NAN;
}

/* ---- the file ---- */

/* The number behind a key of a line of ours (no member of it is a text); NaN: null, or it has none. */
static double number_of(const char *line, const char *key, bool *there)
{
    char *end;
    const char *at = strstr(line, key);
    *there = at != NULL;
    if (!at)
        return NAN;
    const double v = strtod(at + strlen(key), &end);
    return end == at + strlen(key) ? NAN : v;
}

static void take_evaluation(struct history *h, uint64_t step, double loss)
{
    if (h->evaluations == HISTORY_EVALUATIONS)
        memmove(h->evaluation, h->evaluation + 1, --h->evaluations * sizeof h->evaluation[0]);
    h->evaluation[h->evaluations].step = step;
    h->evaluation[h->evaluations++].loss = loss;
}

/* Lines are the keeper's own, so numbers are found without parsing JSON, ten times as fast: of a long run there are millions.
 * `line` ends with a 0. */
static void take_line(struct history *h, const char *line)
{
    static const char head[] = "{\"step\":";
    static const char *const key[HISTORY_SERIES] = {[HISTORY_LOSS] = "\"loss\":", [HISTORY_GRAD_NORM] = "\"grad_norm\":",
                                                    [HISTORY_LR] = "\"lr\":"};
    double value[HISTORY_SERIES];
    bool there;
    const uint64_t step = strncmp(line, head, sizeof head - 1) ? 0 : strtoull(line + sizeof head - 1, NULL, 10);
    if (!step || line[strlen(line) - 1] != '}')
        return;
    const double evaluated = number_of(line, "\"validation_loss\":", &there);
    if (there) {
        take_evaluation(h, step, evaluated);
        return;
    }
    for (int i = 0; i < HISTORY_SERIES; i++)
        value[i] = number_of(line, key[i], &there);
    history_add(h, step, value);
}

static void feed(struct history *h, const char *data, size_t bytes)
{
    while (bytes) {
        const char *stop = memchr(data, '\n', bytes);
        size_t n = stop ? (size_t)(stop - data) : bytes;
        size_t fits = n < LINE_MAX_BYTES - h->rest_bytes ? n : LINE_MAX_BYTES - h->rest_bytes;
        memcpy(h->rest + h->rest_bytes, data, fits); /* a line too long is none of ours: its end is missing */
        h->rest_bytes += fits;
        if (stop) {
            h->rest[h->rest_bytes] = 0;
            take_line(h, h->rest);
            h->rest_bytes = 0;
            n++;
        }
        data += n;
        bytes -= n;
    }
}

/* Was the file cut back and grew again between two looks? Then its last byte before `at` is no longer the end of
 * what was read; a newline there is what we left, unless we stopped within a line. */
static bool cut_back(const struct history *h, int fd)
{
    char last;
    return h->at && !h->rest_bytes && (pread(fd, &last, 1, (off_t)h->at - 1) != 1 || last != '\n');
}

int history_read(struct history *h)
{
    struct stat st;
    int fd = open(h->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), more = 0;
    if (fd < 0)
        return errno == ENOENT ? 0 : -errno;
    char *buffer = malloc(READ_AT_ONCE);
    if (!buffer || fstat(fd, &st) || !S_ISREG(st.st_mode)) {
        free(buffer);
        close(fd);
        return buffer ? -EINVAL : -ENOMEM;
    }
    if ((uint64_t)st.st_ino != h->inode || (uint64_t)st.st_dev != h->device || (uint64_t)st.st_size < h->at ||
        cut_back(h, fd))
        history_clear(h);
    h->inode = (uint64_t)st.st_ino;
    h->device = (uint64_t)st.st_dev;
    ssize_t n = pread(fd, buffer, READ_AT_ONCE, (off_t)h->at);
    if (n > 0) {
        h->at += (uint64_t)n;
        feed(h, buffer, (size_t)n);
        more = h->at < (uint64_t)st.st_size;
    }
    free(buffer);
    close(fd);
    return more;
}
