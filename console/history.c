/* history.c */
#include "history.h"

#include "base/json.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define READ_AT_ONCE (4u << 20)
#define LINE_MAX_BYTES 4096

static void restart(struct history *h)
{
    h->count = h->evaluations = 0;
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
        h->rest = malloc(LINE_MAX_BYTES);
        if (!h->point || !h->rest) {
            history_free(h);
            return -ENOMEM;
        }
    }
    snprintf(h->path, sizeof h->path, "%s", path);
    h->device = h->inode = 0;
    restart(h);
    return 0;
}

void history_free(struct history *h)
{
    free(h->point);
    free(h->rest);
    memset(h, 0, sizeof *h);
}

static void join(struct history_point *to, const struct history_point *from)
{
    to->last = from->last;
    to->sum += from->sum;
    to->min = fmin(to->min, from->min);
    to->max = fmax(to->max, from->max);
    to->finite += from->finite;
    to->nonfinite += from->nonfinite;
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

void history_add(struct history *h, uint64_t step, double loss)
{
    bool finite = isfinite(loss);
    struct history_point one = {.first = step,
                                .last = step,
                                .sum = finite ? loss : 0,
                                .min = finite ? loss : INFINITY,
                                .max = finite ? loss : -INFINITY,
                                .finite = finite,
                                .nonfinite = !finite};
    if (step <= h->last_step)
        return; /* each step stands once */
    h->last_step = step;
    struct history_point *last = h->count ? &h->point[h->count - 1] : NULL;
    if (last && (last->first - 1) / h->width == (step - 1) / h->width) {
        join(last, &one);
        return;
    }
    if (h->count == HISTORY_POINTS) {
        halve(h);
        h->last_step = step - 1;
        history_add(h, step, loss);
        return;
    }
    h->point[h->count++] = one;
}

static void take_line(struct history *h, const char *line, size_t bytes)
{
    json_t *o = json_loadb(line, bytes, 0, NULL);
    const json_t *evaluated = json_object_get(o, "validation_loss");
    uint64_t step = (uint64_t)kc_json_integer(o, "step", 0);
    if (step && evaluated) {
        if (h->evaluations == HISTORY_EVALUATIONS)
            memmove(h->evaluation, h->evaluation + 1, --h->evaluations * sizeof h->evaluation[0]);
        h->evaluation[h->evaluations].step = step;
        h->evaluation[h->evaluations++].loss = kc_json_real(o, "validation_loss", NAN);
    } else if (step) {
        history_add(h, step, kc_json_real(o, "loss", NAN));
    }
    json_decref(o);
}

static void feed(struct history *h, const char *data, size_t bytes)
{
    while (bytes) {
        const char *stop = memchr(data, '\n', bytes);
        size_t n = stop ? (size_t)(stop - data) : bytes;
        size_t fits = n < LINE_MAX_BYTES - h->rest_bytes ? n : LINE_MAX_BYTES - h->rest_bytes;
        memcpy(h->rest + h->rest_bytes, data, fits); /* a line too long is none of ours: it does not parse */
        h->rest_bytes += fits;
        if (stop) {
            take_line(h, h->rest, h->rest_bytes);
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
        restart(h);
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
