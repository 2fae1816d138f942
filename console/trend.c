/* trend.c */
#include "trend.h"

#include "base/json.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ROOM 1024 /* bytes of a read: two lines fit, whatever they say */

/* The first whole line of a step in a piece of the file; false: there is none. first: it begins with a line. */
static bool find_step(const char *piece, size_t bytes, bool first, uint64_t *step, double *loss)
{
    const char *at = piece, *const end = piece + bytes;
    if (!first && (at = memchr(piece, '\n', bytes)) != NULL)
        at++;
    while (at && at < end) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        json_t *o = stop ? json_loadb(at, (size_t)(stop - at), 0, NULL) : NULL;
        const bool is = json_object_get(o, "loss") != NULL;
        *step = (uint64_t)kc_json_integer(o, "step", 0);
        *loss = kc_json_real(o, "loss", NAN);
        json_decref(o);
        if (is && *step)
            return true;
        at = stop ? stop + 1 : NULL;
    }
    return false;
}

static bool same(const struct trend *t, const struct stat *st)
{
    const uint64_t bytes = (uint64_t)st->st_size;
    return t->inode == (uint64_t)st->st_ino && bytes >= t->bytes && bytes - t->bytes <= t->bytes / TREND_POINTS;
}

void trend_read(struct trend *t, const char *path)
{
    char piece[ROOM];
    struct stat st;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &st) || !S_ISREG(st.st_mode)) {
        t->count = 0;
    } else if (!same(t, &st)) {
        const uint64_t size = (uint64_t)st.st_size;
        uint64_t step = 0, before = 0;
        double loss;
        *t = (struct trend){.bytes = size, .inode = (uint64_t)st.st_ino};
        for (uint64_t i = 0; i < TREND_POINTS; i++) {
            const uint64_t at = size * i / TREND_POINTS;
            const ssize_t n = pread(fd, piece, ROOM, (off_t)at);
            if (n > 0 && find_step(piece, (size_t)n, at == 0, &step, &loss) && step > before) {
                t->loss[t->count++] = loss;
                before = step;
            }
        }
    }
    if (fd >= 0)
        close(fd);
}

/* ---- of all jobs ---- */

static struct named_trend *find(const struct trends *t, const char *id)
{
    for (size_t i = 0; i < t->count; i++)
        if (!strcmp(t->of[i].id, id))
            return &t->of[i];
    return NULL;
}

static void read_one(struct named_trend *n, const struct job *j)
{
    char path[JOB_PATH_ROOM + 16];
    snprintf(path, sizeof path, "%s/metrics.jsonl", j->directory);
    trend_read(&n->trend, path);
}

static void forget_gone(struct trends *t)
{
    size_t n = 0;
    for (size_t i = 0; i < t->count; i++)
        if (t->of[i].seen)
            t->of[n++] = t->of[i];
    t->count = n;
}

int trends_read(struct trends *t, const struct model *m, size_t at_once)
{
    struct named_trend *of = realloc(t->of, (t->count + m->count + 1) * sizeof *of);
    if (!of)
        return -ENOMEM;
    t->of = of;
    for (size_t i = 0; i < t->count; i++)
        of[i].seen = false;
    for (size_t i = 0; i < m->count; i++) {
        struct named_trend *known = find(t, m->job[i].id);
        if (!known) {
            known = &of[t->count++];
            memset(known, 0, sizeof *known);
            snprintf(known->id, sizeof known->id, "%s", m->job[i].id);
            read_one(known, &m->job[i]);
        }
        known->seen = true;
    }
    forget_gone(t);
    for (size_t i = 0; i < at_once && i < m->count; i++) {
        const struct job *j = &m->job[t->next++ % m->count];
        read_one(find(t, j->id), j);
    }
    return 0;
}

const struct trend *trends_find(const struct trends *t, const char *id)
{
    const struct named_trend *n = find(t, id);
    return n ? &n->trend : NULL;
}

void trends_free(struct trends *t)
{
    free(t->of);
    *t = (struct trends){0};
}
