/* verb_log.c - what ranks printed: jobs/<id>/rank-<n>.log, and the older pieces rank-<n>.log.1 … that the keeper
 * turned over. */
#include "follow.h"
#include "report.h"
#include "text.h"
#include "verbs.h"

#include "base/clock.h"
#include "supervisor/protocol.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define OLD_LOGS_MAX 100
#define LINE_MAX_BYTES 65536
#define FOLLOW_NAP_NS (50 * KC_MILLISECOND)

struct log_source {
    int rank, fd;
    off_t at;
    char *line; /* what stands before its newline has come */
    size_t used;
};

struct log_printer {
    struct session *s;
    const char *id;
    bool prefix;      /* several ranks: each line says whose it is */
    json_t *lines;    /* --json without -f: all of them */
    bool stream;      /* --json with -f: an object a line */
};

static void print_line(struct log_printer *p, int rank, const char *line, size_t bytes)
{
    if (!p->lines && !p->stream) {
        if (p->prefix)
            fprintf(p->s->out, "%d| ", rank);
        session_foreign(p->s, line, bytes);
        fputc('\n', p->s->out);
        return;
    }
    char *safe = malloc(bytes * 4 + 1);
    if (!safe)
        return;
    text_clean(line, bytes, TEXT_KEEP_LINES, safe, bytes * 4 + 1);
    if (p->stream) {
        json_t *o = session_envelope(p->s);
        json_object_set_new(o, "id", json_string(p->id));
        json_object_set_new(o, "rank", json_integer(rank));
        json_object_set_new(o, "text", json_string(safe));
        session_emit(p->s, o);
    } else {
        json_array_append_new(p->lines, json_pack("{s:i,s:s}", "rank", rank, "text", safe));
    }
    free(safe);
}

/* Print what is whole of it; the rest waits. `last`: there will be no more. */
static void feed(struct log_printer *p, struct log_source *src, const char *data, size_t bytes, bool last)
{
    for (size_t i = 0; i < bytes; i++) {
        if (data[i] != '\n')
            src->line[src->used++] = data[i];
        if (data[i] == '\n' || src->used == LINE_MAX_BYTES) {
            print_line(p, src->rank, src->line, src->used);
            src->used = 0;
        }
    }
    if (last && src->used) {
        print_line(p, src->rank, src->line, src->used);
        src->used = 0;
    }
}

static void read_on(struct log_printer *p, struct log_source *src)
{
    char buffer[16384];
    struct stat st;
    if (!fstat(src->fd, &st) && st.st_size < src->at)
        src->at = 0; /* turned over: what was before it is in .1 and was printed */
    for (;;) {
        ssize_t n = pread(src->fd, buffer, sizeof buffer, src->at);
        if (n < 0 && errno == EINTR && !interrupt_seen())
            continue;
        if (n <= 0 || ferror(p->s->out))
            return;
        src->at += n;
        feed(p, src, buffer, (size_t)n, false);
    }
}

static void print_old(struct log_printer *p, struct log_source *src, const char *directory)
{
    char path[JOB_PATH_ROOM + 64];
    int fd = src->fd;
    for (int k = OLD_LOGS_MAX; k > 0; k--) {
        snprintf(path, sizeof path, "%s/rank-%d.log.%d", directory, src->rank, k);
        src->fd = open(path, O_RDONLY | O_CLOEXEC);
        if (src->fd < 0)
            continue;
        src->at = 0;
        read_on(p, src);
        close(src->fd);
    }
    src->fd = fd;
    src->at = 0;
}

/* Open the logs of `rank`, or of all ranks (-1). */
static size_t open_sources(const struct job *j, int rank, struct log_source *src)
{
    size_t n = 0;
    char path[JOB_PATH_ROOM + 64];
    for (int r = 0; r < KC_RANKS_MAX; r++) {
        if (rank >= 0 && r != rank)
            continue;
        snprintf(path, sizeof path, "%s/rank-%d.log", j->directory, r);
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        char *line = fd >= 0 ? malloc(LINE_MAX_BYTES + 1) : NULL;
        if (line)
            src[n++] = (struct log_source){.rank = r, .fd = fd, .line = line};
        else if (fd >= 0)
            close(fd);
    }
    return n;
}

static int follow_logs(struct session *s, struct log_printer *p, const char *id, struct log_source *src, size_t count)
{
    const struct timespec nap = {.tv_nsec = FOLLOW_NAP_NS};
    interrupt_catch();
    for (;;) {
        struct job j;
        bool ended = job_read(&s->home, id, &j, NULL) != 0;
        if (!ended) {
            ended = job_ended(&j);
            job_free(&j);
        }
        for (size_t i = 0; i < count; i++)
            read_on(p, &src[i]);
        fflush(s->out);
        if (interrupt_seen())
            return interrupt_told(s, id);
        if (ended || session_gone(s))
            return KC_EXIT_OK; /* it had ended before that last look, so nothing more comes */
        nanosleep(&nap, NULL);
    }
}

int verb_log(struct session *s, const struct arguments *a)
{
    struct log_source src[KC_RANKS_MAX];
    struct kc_error e = {""};
    struct job j;
    char id[JOB_ID_ROOM];
    int rank, code = KC_EXIT_OK;
    bool follow = a->option[OPTION_FOLLOW] != NULL;
    if (argument_target(a->word[0], "log", id, sizeof id, &rank, &e))
        return session_fail(s, KC_EXIT_USAGE, "%s", e.text);
    int rc = job_read(&s->home, id, &j, &e);
    if (rc)
        return session_fail(s, session_code(rc), "%s", e.text);
    struct log_printer p = {.s = s, .id = id, .prefix = rank < 0 && j.ranks != 1, .stream = s->json && follow,
                            .lines = s->json && !follow ? json_array() : NULL};
    size_t count = open_sources(&j, rank, src);
    if (count == 0 && rank >= 0)
        code = session_fail(s, KC_EXIT_NO_OBJECT, "rank %d of %s has no log: it has %lld ranks, from 0", rank, id,
                            (long long)j.ranks);
    for (size_t i = 0; i < count; i++) {
        print_old(&p, &src[i], j.directory);
        read_on(&p, &src[i]);
        if (!follow)
            feed(&p, &src[i], "", 0, true);
    }
    if (!code && follow)
        code = follow_logs(s, &p, id, src, count);
    if (!code && p.lines) {
        json_t *o = session_envelope(s);
        json_object_set_new(o, "id", json_string(id));
        json_object_set(o, "lines", p.lines);
        code = session_emit(s, o);
    }
    json_decref(p.lines);
    for (size_t i = 0; i < count; i++) {
        close(src[i].fd);
        free(src[i].line);
    }
    job_free(&j);
    return code;
}
