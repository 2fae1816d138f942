/* lines.c */
#include "lines.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TAIL_BYTES 65536      /* of a log, when it is opened */
#define READ_AT_ONCE 262144   /* bytes a tick and rank */

void lines_free(struct lines *l)
{
    for (size_t i = 0; i < LINES_KEPT; i++)
        free(l->line[i]);
    memset(l, 0, sizeof *l);
}

const char *lines_at(const struct lines *l, size_t i)
{
    const char *text = i < l->count ? l->line[(l->first + i) % LINES_KEPT] : NULL;
    return text ? text : "";
}

static void add(struct lines *l, const char *prefix, const char *text, size_t bytes)
{
    size_t before = strlen(prefix);
    char *line = malloc(before + bytes + 1);
    if (!line)
        return;
    memcpy(line, prefix, before);
    memcpy(line + before, text, bytes);
    line[before + bytes] = 0;
    for (size_t i = before; i < before + bytes; i++) /* a zero byte would end it early */
        if (!line[i])
            line[i] = 1;
    size_t at = (l->first + l->count) % LINES_KEPT;
    if (l->count == LINES_KEPT) {
        free(l->line[l->first]);
        l->first = (l->first + 1) % LINES_KEPT;
        l->count--;
    }
    l->line[at] = line;
    l->count++;
    l->total++;
}

/* Shared by logs and outputs: `part` holds the beginning of a line between calls. */
static void feed(struct lines *l, const char *prefix, const char *data, size_t bytes, char *part, size_t *part_bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        if (data[i] == '\n') {
            add(l, prefix, part, *part_bytes);
            *part_bytes = 0;
        } else if (data[i] == '\t') {
            for (int k = 0; k < 4 && *part_bytes < LINES_WIDTH; k++)
                part[(*part_bytes)++] = ' ';
        } else if (*part_bytes < LINES_WIDTH) {
            part[(*part_bytes)++] = data[i];
        }
    }
}

void lines_feed(struct lines *l, const char *prefix, const char *data, size_t bytes)
{
    feed(l, prefix, data, bytes, l->part, &l->part_bytes);
}

void lines_flush(struct lines *l, const char *prefix)
{
    if (l->part_bytes)
        add(l, prefix, l->part, l->part_bytes);
    l->part_bytes = 0;
}

/* ---- logs ------------------------------------------------------------------------------------------------------ */

void log_tail_free(struct log_tail *t)
{
    lines_free(&t->lines);
    memset(t, 0, sizeof *t);
}

static void read_source(struct log_tail *t, const struct job *j, int rank, bool prefixed)
{
    char path[JOB_PATH_ROOM + 64], prefix[16] = "";
    struct stat st;
    snprintf(path, sizeof path, "%s/rank-%d.log", j->directory, rank);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return;
    char *buffer = malloc(READ_AT_ONCE);
    if (buffer && !fstat(fd, &st) && S_ISREG(st.st_mode)) {
        if (!t->source[rank].open) {
            t->source[rank].open = true;
            t->source[rank].at = st.st_size > TAIL_BYTES ? st.st_size - TAIL_BYTES : 0;
        }
        if (st.st_size < t->source[rank].at)
            t->source[rank].at = 0; /* turned over */
        ssize_t n = pread(fd, buffer, READ_AT_ONCE, t->source[rank].at);
        if (prefixed)
            snprintf(prefix, sizeof prefix, "%d| ", rank);
        if (n > 0) {
            t->source[rank].at += n;
            feed(&t->lines, prefix, buffer, (size_t)n, t->source[rank].part, &t->source[rank].part_bytes);
        }
    }
    free(buffer);
    close(fd);
}

void log_tail_read(struct log_tail *t, const struct job *j, int rank)
{
    int ranks = j->ranks > 0 && j->ranks <= KC_RANKS_MAX ? (int)j->ranks : KC_RANKS_MAX;
    if (strcmp(t->id, j->id) || t->rank != rank) {
        log_tail_free(t);
        snprintf(t->id, sizeof t->id, "%s", j->id);
        t->rank = rank;
    }
    for (int r = 0; r < ranks; r++)
        if (rank < 0 || rank == r)
            read_source(t, j, r, rank < 0 && ranks > 1);
}
