/* journal.c - see journal.h. Of a long run's lines most tell what nobody asked for, and parsing takes ten times as long as finding
 * the event's name. */
#include "journal.h"

#include "model.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define NAME_MOST 64

/* The event's name, which comes before all that could look like it; false: it takes a parser to know. */
static bool name_of(const char *line, size_t bytes, char out[NAME_MOST])
{
    static const char key[] = "\"event\":\"";
    const size_t skip = sizeof key - 1;
    const char *at = memmem(line, bytes, key, skip);
    const char *end = at ? memchr(at + skip, '"', bytes - skip - (size_t)(at - line)) : NULL;
    const size_t n = end ? (size_t)(end - at) - skip : NAME_MOST;
    if (n >= NAME_MOST)
        return false;
    memcpy(out, at + skip, n);
    out[n] = 0;
    return true;
}

bool journal_may_tell(const char *line, size_t bytes, const char *event)
{
    char name[NAME_MOST];
    return !name_of(line, bytes, name) || strcmp(name, event) == 0;
}

static void take(const char *line, size_t bytes, journal_wants *wants, json_t *events)
{
    char name[NAME_MOST];
    if (wants && name_of(line, bytes, name) && !wants(name))
        return;
    json_t *event = json_loadb(line, bytes, 0, NULL);
    if (json_is_object(event))
        json_array_append(events, event);
    json_decref(event);
}

static void take_piece(struct journal *j, int fd, char *text, journal_wants *wants, json_t *events)
{
    const ssize_t n = pread(fd, text, JOURNAL_PIECE, j->at);
    const char *line = text, *newline;
    for (; n > 0 && (newline = memchr(line, '\n', (size_t)(text + n - line))); line = newline + 1) {
        if (!j->cut)
            take(line, (size_t)(newline - line), wants, events);
        j->cut = false;
    }
    if (line == text && n == (ssize_t)JOURNAL_PIECE) { /* no line of ours is as long */
        j->cut = true;
        line += n;
    }
    j->at += line - text;
}

/* Where to begin. Returns whether something else was read before. */
static bool begin(struct journal *j, const struct stat *st)
{
    const bool stale = j->inode != 0;
    const off_t at = st->st_size > (off_t)JOURNAL_END ? st->st_size - (off_t)JOURNAL_END : 0;
    *j = (struct journal){.inode = st->st_ino, .at = at, .cut = at > 0};
    return stale;
}

static int read_piece(struct journal *j, int fd, journal_wants *wants, json_t *events)
{
    struct stat st;
    if (fstat(fd, &st) || !S_ISREG(st.st_mode))
        return 0;
    if ((j->inode != st.st_ino || st.st_size < j->at) && begin(j, &st))
        return -ESTALE;
    const off_t before = j->at;
    char *text = st.st_size > j->at ? malloc(JOURNAL_PIECE) : NULL;
    if (text)
        take_piece(j, fd, text, wants, events);
    free(text);
    return j->at > before && st.st_size - before > (off_t)JOURNAL_PIECE;
}

int journal_read_on(struct journal *j, const char *directory, journal_wants *wants, json_t *events)
{
    char path[JOB_PATH_ROOM + 32];
    struct stat st;
    snprintf(path, sizeof path, "%s/events.jsonl", directory);
    if (stat(path, &st) == 0 && st.st_ino == j->inode && st.st_size == j->at)
        return 0;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    const int rc = fd < 0 ? 0 : read_piece(j, fd, wants, events);
    if (fd >= 0)
        close(fd);
    return rc;
}

json_t *journal_read(const char *directory)
{
    struct journal j = {.inode = 0};
    json_t *events = json_array();
    for (int rc; (rc = journal_read_on(&j, directory, NULL, events));)
        if (rc < 0)
            json_array_clear(events);
    return events;
}
