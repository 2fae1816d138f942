/* metrics_file.c - lines are ours, so their step stands right behind {"step": and is found without parsing JSON. */
#include "metrics_file.h"

#include "base/file.h"
#include "base/json.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LINE_MAX_BYTES 512
#define CHUNK (64u << 10)
#define ALL_DIGITS (JSON_COMPACT | JSON_REAL_PRECISION(17)) /* a loss is read back to the bit: kc snap prove compares it */

static int dump_line(json_t *o, char *out, size_t room)
{
    size_t n = o ? json_dumpb(o, out, room, ALL_DIGITS) : 0;
    json_decref(o);
    if (n == 0 || n + 2 > room)
        return -ENOSPC;
    out[n] = '\n';
    out[n + 1] = 0;
    return (int)n + 1;
}

int kc_metrics_step_line(const struct kc_step_record *r, char *out, size_t room)
{
    double speed = r->seconds > 0 ? (double)r->tokens / r->seconds : 0.0 / 0.0;
    json_t *o = json_object();
    json_object_set_new(o, "step", json_integer((json_int_t)r->step));
    json_object_set_new(o, "loss", kc_json_number(r->loss));
    json_object_set_new(o, "grad_norm", kc_json_number(r->grad_norm));
    json_object_set_new(o, "lr", kc_json_number(r->lr));
    json_object_set_new(o, "tokens", json_integer((json_int_t)r->tokens));
    json_object_set_new(o, "seconds", kc_json_number(r->seconds));
    json_object_set_new(o, "tokens_per_second", kc_json_number(speed));
    if (r->imbalance > 0)
        json_object_set_new(o, "expert_imbalance", kc_json_number(r->imbalance));
    return dump_line(o, out, room);
}

int kc_metrics_evaluation_line(const struct kc_evaluation *r, char *out, size_t room)
{
    json_t *o = json_object();
    json_object_set_new(o, "step", json_integer((json_int_t)r->step));
    json_object_set_new(o, "validation_loss", kc_json_number(r->loss));
    return dump_line(o, out, room);
}

/* A walk over the lines from the front: the end of the last line that may stay, and the last steps seen up to there.
 */
struct walk {
    uint64_t limit; /* lines of later steps do not stay */
    off_t keep;
    uint64_t step, evaluated;
    bool over;      /* a line that does not stay was met: all behind it goes too */
};

static void take_line(struct walk *w, const char *line, size_t length)
{
    static const char head[] = "{\"step\":";
    uint64_t step =
        strncmp(line, head, sizeof head - 1) == 0 ? strtoull(line + sizeof head - 1, NULL, 10) : UINT64_MAX;
    if (w->over || step > w->limit) { /* foreign lines go too: UINT64_MAX */
        w->over = true;
        return;
    }
    if (strstr(line, "\"validation_loss\":"))
        w->evaluated = step;
    else
        w->step = step;
    w->keep += (off_t)length + 1;
}

static int walk_lines(int fd, struct walk *w)
{
    char *buffer = malloc(CHUNK + 1);
    size_t have = 0;
    off_t at = 0;
    int r = buffer ? 0 : -ENOMEM;
    while (r == 0 && !w->over) {
        ssize_t n = pread(fd, buffer + have, CHUNK - have, at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            r = n < 0 ? -errno : 0;
            break;
        }
        at += n;
        have += (size_t)n;
        size_t start = 0;
        for (char *end; !w->over && (end = memchr(buffer + start, '\n', have - start));
             start = (size_t)(end - buffer) + 1) {
            *end = 0;
            take_line(w, buffer + start, (size_t)(end - buffer) - start);
        }
        if (start == 0 && have == CHUNK)
            break; /* a line longer than any of ours */
        memmove(buffer, buffer + start, have - start);
        have -= start;
    }
    free(buffer);
    return r;
}

static int cut_to(struct kc_metrics_file *f, uint64_t limit)
{
    struct walk w = {.limit = limit};
    int r = walk_lines(f->fd, &w);
    if (r == 0 && ftruncate(f->fd, w.keep) != 0)
        r = -errno;
    if (r == 0) {
        f->step = w.step;
        f->evaluated = w.evaluated;
    }
    return r;
}

int kc_metrics_open(struct kc_metrics_file *f, const char *job_directory, struct kc_error *e)
{
    char path[PATH_MAX + 32];
    struct kc_metrics_file new = {0};
    snprintf(path, sizeof path, "%s/metrics.jsonl", job_directory);
    new.fd = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    int r = new.fd < 0 ? -errno : cut_to(&new, UINT64_MAX - 1);
    if (r < 0) {
        if (new.fd >= 0)
            close(new.fd);
        return kc_fail(e, r, "%s can't be opened: %s", path, strerror(-r));
    }
    *f = new;
    return 0;
}

void kc_metrics_close(struct kc_metrics_file *f)
{
    if (f->fd >= 0)
        close(f->fd);
    f->fd = -1;
}

int kc_metrics_cut(struct kc_metrics_file *f, uint64_t step)
{
    return f->step <= step && f->evaluated <= step ? 0 : cut_to(f, step);
}

int kc_metrics_step(struct kc_metrics_file *f, const struct kc_step_record *r)
{
    char line[LINE_MAX_BYTES];
    int n = r->step == 0 ? -EINVAL : kc_metrics_step_line(r, line, sizeof line);
    int code = n < 0 ? n : kc_metrics_cut(f, r->step - 1);
    if (code == 0)
        code = kc_append_all(f->fd, line, (size_t)n);
    if (code == 0)
        f->step = r->step;
    return code;
}

int kc_metrics_evaluation(struct kc_metrics_file *f, const struct kc_evaluation *r)
{
    char line[LINE_MAX_BYTES];
    if (r->step <= f->evaluated && f->evaluated != 0)
        return 0; /* evaluated again after a restart, with the same bits */
    int n = kc_metrics_evaluation_line(r, line, sizeof line);
    int code = n < 0 ? n : kc_append_all(f->fd, line, (size_t)n);
    if (code == 0)
        f->evaluated = r->step;
    return code;
}
