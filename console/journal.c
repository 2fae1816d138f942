/* journal.c - see journal.h. */
#include "journal.h"

#include "model.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

json_t *journal_read(const char *directory)
{
    char path[JOB_PATH_ROOM + 32];
    struct stat st;
    json_t *events = json_array();
    snprintf(path, sizeof path, "%s/events.jsonl", directory);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    char *text = fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) ? malloc(JOURNAL_END) : NULL;
    if (text) {
        const off_t at = st.st_size > (off_t)JOURNAL_END ? st.st_size - (off_t)JOURNAL_END : 0;
        const ssize_t n = pread(fd, text, JOURNAL_END, at);
        const char *line = text, *newline;
        for (; n > 0 && (newline = memchr(line, '\n', (size_t)(text + n - line))); line = newline + 1) {
            json_t *event = at > 0 && line == text ? NULL : json_loadb(line, (size_t)(newline - line), 0, NULL);
            if (json_is_object(event))
                json_array_append(events, event);
            json_decref(event);
        }
    }
    free(text);
    if (fd >= 0)
        close(fd);
    return events;
}
